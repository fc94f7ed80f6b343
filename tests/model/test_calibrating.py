"""Novelty measured on rows that are given: rates, costs, errors, and how long the result holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import FCAC, load, save
from fcac.privacy import BudgetExceeded, Ledger, LocalNoise, NodeRelease, PrivacyWarning
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import rho_from_epsilon

BOUNDS = [[-8.0, 8.0]] * 3


def rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, 1)) < 0.5, -3.0, 3.0) + rng.normal(size=(n, 3))


X, FRESH, SITES = rows(6000, 0), rows(20_000, 1), np.arange(6000) % 3


def private(n_sites: int = 3, server: str = "communities", sampler: Any = None, **settings: Any) -> FCAC:
    sampler = InsecureTestSampler(2) if sampler is None else sampler
    mechanism = NodeRelease(2.0, BOUNDS, sampler=sampler, **settings)
    return FCAC(server=server, privacy=mechanism, random_state=0, n_jobs=1).fit(
        X, groups=np.arange(len(X)) % n_sites, public_groups=True
    )


def state(model: FCAC) -> Any:
    return None if model._measured is None else model._measured.nodes.distances.tolist()


# ------------------------------------------------------------ rates


@pytest.mark.parametrize("server", ["communities", "cae-fc"])
@pytest.mark.parametrize("n_sites", [1, 3])
def test_under_a_release_the_rate_is_kept(server: str, n_sites: int) -> None:
    model = private(n_sites, server).calibrate_novelty(X, np.arange(len(X)) % n_sites, epsilon=1.0, public_groups=True)
    assert 0.003 < model.is_novel(FRESH).mean() < 0.03
    assert 0.003 < model.is_novel(FRESH, alpha=0.01).mean() < 0.03
    assert 0.06 < model.is_novel(FRESH, alpha=0.1).mean() < 0.15
    assert model.is_novel(FRESH + 40).all()
    book = model.export(share_nodes=True)
    np.testing.assert_array_equal(book.is_novel(FRESH, alpha=0.02), model.is_novel(FRESH, alpha=0.02))


@pytest.mark.parametrize("server", ["communities", "cae-fc"])
def test_without_privacy_fresh_rows_replace_the_samples(server: str) -> None:
    model = FCAC(server=server, random_state=0, n_jobs=1).fit(X, groups=SITES)
    wider = rows(4000, 3) * 1.5
    assert model.is_novel(wider, alpha=0.05).mean() > 0.1
    model.calibrate_novelty({"new": wider})
    again = rows(20_000, 4) * 1.5
    for known in (model, model.export(), model.export(share_nodes=True)):
        assert 0.04 < known.is_novel(again, alpha=0.05).mean() < 0.06
    np.testing.assert_array_equal(model.export(share_nodes=True).is_novel(again), model.is_novel(again))


def test_a_codebook_is_calibrated_on_rows_at_hand() -> None:
    book = private().export()
    own = book.calibrated(rows(5000, 5))
    assert book.calibration is None
    assert 0.005 < own.is_novel(FRESH).mean() < 0.02
    np.testing.assert_array_equal(own.predict(FRESH), book.predict(FRESH))
    with pytest.raises(ValueError, match="at least two rows, not 1"):
        book.calibrated(FRESH[:1])


def test_frames_and_dicts_are_read_as_by_fit() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    found = []
    forms: list[tuple[Any, Any]] = [
        (frame, SITES),
        (frame.assign(site=SITES)[["c", "site", "b", "a"]], "site"),
        ({site: frame[site == SITES] for site in range(3)}, None),
    ]
    for given, groups in forms:
        mechanism = NodeRelease(2.0, BOUNDS, sampler=InsecureTestSampler(2))
        model = FCAC(privacy=mechanism, random_state=0, n_jobs=1).fit(frame, groups=SITES, public_groups=True)
        found.append(state(model.calibrate_novelty(given, groups, epsilon=1.0, public_groups=True)))
    assert found[0] == found[1] == found[2]


# ------------------------------------------------------------ how long it holds


def test_what_was_measured_is_dropped_when_the_model_changes() -> None:
    usual = {"a": X[:3000], "b": X[3000:]}

    def calibrated() -> FCAC:
        mechanism = NodeRelease(2.0, BOUNDS, sampler=InsecureTestSampler(2))
        model = FCAC(privacy=mechanism, random_state=0, n_jobs=1).fit(usual).calibrate_novelty(usual, epsilon=1.0)
        assert model.novelty_reach() is not None
        return model

    for change in (
        lambda model: model.partial_fit(usual),
        lambda model: model.fit(usual),
        lambda model: model.forget("a"),
        lambda model: model.play_stream(iter([("a", X[:500])]), 3),
    ):
        model = calibrated()
        change(model)
        assert state(model) is None
        assert model.novelty_reach() is None


def test_it_is_saved_with_the_model(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    mechanism = NodeRelease(2.0, BOUNDS)
    model = (
        FCAC(privacy=mechanism, random_state=0, n_jobs=1)
        .fit(X, groups=SITES, public_groups=True)
        .calibrate_novelty(X, SITES, epsilon=2.0, public_groups=True)
    )
    plain = FCAC(random_state=0, n_jobs=1).fit(X).calibrate_novelty(rows(1000, 6))
    for known in (model, plain):
        save(known, tmp_path / "m.fcac")
        again = load(tmp_path / "m.fcac")
        assert state(again) == state(known)
        assert again._measured[2:] == known._measured[2:]
        np.testing.assert_array_equal(again.is_novel(FRESH, alpha=0.05), known.is_novel(FRESH, alpha=0.05))
        np.testing.assert_array_equal(again.export().is_novel(FRESH), known.export().is_novel(FRESH))


# ------------------------------------------------------------ costs


def test_every_site_is_charged_once_and_nothing_if_it_cannot_be_paid(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 6.0, 1e-6)
    model = private(2, ledger=ledger)
    model.calibrate_novelty(X, np.arange(len(X)) % 2, epsilon=0.5, public_groups=True)
    own = [entry for entry in ledger.entries() if "distances" in entry["what"]]
    assert [entry["site"] for entry in own] == ["0", "1"]
    assert all(entry["completed"] for entry in own)
    assert own[0]["what"] == "distances for novelty, eps = 0.5 at delta = 1e-6"
    # the next contribution, and the check for an older copy of the ledger, know of it
    account = model.sites_[1].model.account
    assert account.spent == pytest.approx(ledger.spent(), rel=1e-6)
    assert account.rho == pytest.approx(model.privacy.rho + rho_from_epsilon(0.5, 1e-6))
    assert len(account.receipts) == 2
    before, spent = state(model), ledger.spent()
    with pytest.raises(BudgetExceeded, match="2 sites would exceed the budget of eps = 6; nothing was charged"):
        model.calibrate_novelty(X, np.arange(len(X)) % 2, epsilon=5.0, public_groups=True)
    assert ledger.spent() == spent
    assert len(ledger.entries()) == 4
    assert state(model) == before


def test_people_without_budget_are_left_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 2.2, 1e-6)
    people = [f"p{i // 2}" for i in range(len(X))]
    mechanism = NodeRelease(2.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(2, factor=0.0))
    model = FCAC(privacy=mechanism, random_state=0, n_jobs=1).fit(X[:4000], record_ids=people[:4000])
    # two in three of these people have spent all they have; the others lie farther out
    given = X.copy()
    given[4000:] *= 1.6
    model.calibrate_novelty(given, epsilon=1.0, record_ids=people)
    assert 0.005 < (model.is_novel(FRESH * 1.6, alpha=0.05)).mean() < 0.1
    (entry,) = [entry for entry in ledger.entries() if "distances" in entry["what"]]
    assert entry["counted"] == "ids"


# ------------------------------------------------------------ errors


def test_errors_say_what_to_do_and_change_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 9.0, 1e-6)
    model = private(1, ledger=ledger).calibrate_novelty(X, epsilon=0.5)
    before, n_charges = state(model), len(ledger.entries())
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (X, {}, r"calibrate_novelty\(X, epsilon=0.5\)"),
        (X, {"epsilon": -1}, "epsilon"),
        (X[:, :2], {"epsilon": 1}, "2 features"),
        (X, {"epsilon": 1, "record_ids": ["a"]}, "record_ids"),
        (np.full((3, 3), np.nan), {"epsilon": 1}, "NaN"),
    ]
    for given, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            model.calibrate_novelty(given, **options)
    assert state(model) == before
    assert len(ledger.entries()) == n_charges


def test_where_it_makes_no_sense_it_is_refused() -> None:
    plain = FCAC(random_state=0, n_jobs=1).fit(X[:500])
    with pytest.raises(ValueError, match="no privacy mechanism"):
        plain.calibrate_novelty(X, epsilon=1.0)
    with pytest.raises(ValueError, match="NodeRelease"):
        plain.calibrate_novelty(X, record_ids=range(len(X)))
    with pytest.warns(PrivacyWarning, match="LocalNoise"):
        noisy = FCAC(privacy=LocalNoise(4.0, BOUNDS), random_state=0).fit(X[:500])
    with pytest.raises(ValueError, match="LocalNoise no row may be read without its noise"):
        noisy.calibrate_novelty(X)
    secure = private(1)
    secure.aggregation = "secure"
    with pytest.raises(ValueError, match=r"export\(\).calibrated"):
        secure.calibrate_novelty(X, epsilon=1.0)
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        FCAC().calibrate_novelty(X)
