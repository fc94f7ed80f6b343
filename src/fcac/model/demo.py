"""The last part of ``fcac demo``: patients of three clinics, under privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac.model.fcac import FCAC
from fcac.tables.schema import Column, Schema

#: Rows at each clinic.
N_PATIENTS = 3000
EPSILON = 4.0
_CODES = ("E11", "I10", "N18", "O80")
# Four kinds of patients: age, creatinine and HbA1c of the typical one, and the code most of them have.
_KINDS = ((62, 90, 68, 0), (48, 80, 37, 1), (74, 190, 42, 2), (29, 60, 35, 3))
_SPREADS = (6.0, 13.0, 4.0)
# How often each kind comes at each clinic.
_CLINICS = {"north": (0.2, 0.4, 0.3, 0.1), "south": (0.3, 0.5, 0.2, 0.0), "west": (0.2, 0.3, 0.2, 0.3)}
_RIGHT_CODE = 0.97

#: What the columns mean at all clinics; every constant is public knowledge.
SCHEMA = Schema(
    [
        Column("age", kind="number", min=18, max=98, scaling="range", unit="years"),
        Column("creatinine", kind="number", min=30, max=400, scaling="range", unit="µmol/l"),
        Column("HbA1c", kind="number", min=20, max=130, scaling="range", unit="mmol/mol"),
        Column("diagnosis", kind="category", categories=_CODES, scaling="range"),
    ],
    bounds_are_public=True,
)


def clinic_tables(seed: int = 0) -> dict[str, Any]:
    """Return one Arrow table per clinic, with the columns of :data:`SCHEMA`.

    >>> {name: (table.num_rows, table.column_names) for name, table in clinic_tables().items()}["west"]
    (3000, ['age', 'creatinine', 'HbA1c', 'diagnosis'])
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    typical = np.array(_KINDS, dtype=np.float64)
    tables = {}
    for name, shares in _CLINICS.items():
        kind = rng.choice(len(_KINDS), p=shares, size=N_PATIENTS)
        values = typical[kind, :3] + rng.normal(size=(N_PATIENTS, 3)) * _SPREADS
        code = np.where(rng.random(N_PATIENTS) < _RIGHT_CODE, typical[kind, 3], rng.integers(4, size=N_PATIENTS))
        bounds = np.array([[18, 98], [30, 400], [20, 130]])
        age, creatinine, hba1c = np.clip(np.rint(values), bounds[:, 0], bounds[:, 1]).T
        diagnosis = np.array(_CODES)[code.astype(int)]
        tables[name] = pa.table({"age": age, "creatinine": creatinine, "HbA1c": hba1c, "diagnosis": diagnosis})
    return tables


def fit_clinics(seed: int = 0) -> FCAC:
    """Cluster the clinics' patients of a seed; what leaves a clinic is differentially private, with random noise."""
    from fcac.privacy import NodeRelease

    model = FCAC(privacy=NodeRelease(EPSILON, SCHEMA.require_bounds()), random_state=seed)
    pieces = ((name, SCHEMA.apply(table)) for name, table in clinic_tables(seed).items())
    return model.play_stream(pieces, SCHEMA.n_features, SCHEMA.feature_names, schema=SCHEMA)
