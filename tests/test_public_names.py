"""What the package shows, and that every public name of 0.1.0 can still be imported, with one warning each."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

import fcac
from fcac import _lazy

# Public names of 0.1.0 by module, as its reference listed them.
OLD_NAMES = {
    "fcac.baselines": ["KMeansMerged", "KFed", "FedFCM", "MUFC"],
    "fcac.clusterers": ["CAPlus", "CAE", "CAEFC", "DegenerateBandwidthWarning"],
    "fcac.data": ["open_tables", "Tables", "Batch", "Schema", "Split", "find_files", "site_from_text", "FORMATS"],
    "fcac.demo": ["demo_data", "run_demo", "DemoRound", "DemoResult"],
    "fcac.estimator": ["FCAC"],
    "fcac.models": ["save", "load", "to_bytes", "from_bytes"],
    "fcac.network": ["Network", "Rules"],
    "fcac.partition": ["iid", "dirichlet", "classes_per_site", "by_column", "site_names", "as_groups", "paper_iid",
                       "paper_dirichlet"],
    "fcac.readout": ["Communities", "CAPlusCommunities", "Change", "Codebook"],
    "fcac.schema": ["Schema", "Column", "DataError", "RequestError", "SchemaError"],
    "fcac.storage": ["pack", "unpack", "read", "kind_of", "write_atomic"],
}  # fmt: skip
KEPT = {
    "fcac": ["CAE", "CAEFC", "CAPlus", "FCAC", "load", "save"],
    "fcac.codebook": ["Codebook"],
    "fcac.federation": ["Contribution", "Server", "Site", "SiteName", "play_round", "site_order"],
    "fcac.privacy": ["AuditResult", "BudgetExceeded", "Ledger", "LedgerError", "LocalNoise", "NodeRelease",
                     "PaperLaplace", "PrivacyError", "PrivacyWarning", "ReleasedState", "RepeatedBatch",
                     "StoredRelease", "audit", "release_once"],
    "fcac.report": ["render_report", "write_report"],
}  # fmt: skip


def test_dir_shows_public_names_and_subpackages_only() -> None:
    shown = dir(fcac)
    assert shown == sorted(fcac.__all__)
    assert not [name for name in shown if name.startswith("_")]
    for name in shown:
        assert getattr(fcac, name) is not None


@pytest.mark.slow
def test_subpackages_load_when_asked_for() -> None:
    program = "import fcac, sys; assert 'sklearn' not in sys.modules; fcac.report.write_report; fcac.tables.open_tables"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=300)


@pytest.mark.parametrize("module", sorted(OLD_NAMES))
def test_old_modules_warn_once_and_name_the_new_place(module: str) -> None:
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} has moved: import from fcac") as caught:
        old = importlib.import_module(module)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module(module)
        for name in OLD_NAMES[module]:
            assert getattr(old, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = old.no_such_name


@pytest.mark.parametrize("module", sorted(KEPT))
def test_what_stays_where_it_was_does_not_warn(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in KEPT[module]:
            assert getattr(importlib.import_module(module), name) is not None


def test_names_that_left_a_package_still_work() -> None:
    import fcac.privacy

    with pytest.warns(DeprecationWarning, match="has moved to fcac.privacy.samplers"):
        _ = fcac.privacy.InsecureTestSampler
    with pytest.warns(DeprecationWarning, match=r"has moved to fcac\.paper\.attacks"):
        _ = fcac.privacy.attack_figures
    assert "InsecureTestSampler" not in fcac.privacy.__all__


def test_every_old_module_is_known() -> None:
    assert set(OLD_NAMES) | {"fcac.experiments"} == set(_lazy._OLD_MODULES)
