"""The clinics of the demo: a mixed table at three sites, under privacy."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.model.demo import N_PATIENTS, SCHEMA, clinic_tables, fit_clinics
from fcac.report import render_report


def test_tables_fit_the_schema_and_come_again():
    first, second = clinic_tables(3), clinic_tables(3)
    assert first == second
    for table in first.values():
        rows = SCHEMA.apply(table)
        bounds = SCHEMA.require_bounds()
        assert rows.shape == (N_PATIENTS, SCHEMA.n_features)
        assert ((rows >= bounds[:, 0]) & (rows <= bounds[:, 1])).all()


@pytest.mark.slow
def test_the_report_of_the_clinics_is_private_and_in_their_units():
    model = fit_clinics(0)
    assert model.server_.released
    # real noise, so their number is not certain; it was four in all of 19 draws
    assert 2 <= model.n_clusters_ <= 8
    assert sorted(model.server_.sites) == ["north", "south", "west"]
    assert np.isfinite(model.server_.nodes).all()
    html = render_report(model)
    assert "±" in html
    assert "differentially private per row" in html
    assert "creatinine" in html
