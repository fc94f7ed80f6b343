"""NodeRelease: what it sends, what it refuses, and in which order it does things."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from fcac.persistence import pack, unpack
from fcac.privacy import BudgetExceeded, Ledger, NodeRelease, PrivacyError, ReleasedState, RepeatedBatch, cell_release
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from testing.data import blobs
from testing.holder import Holder

SQUARE = np.array([[0.0, 1.0], [0.0, 1.0]])


def two_crowds(seed: int = 0, n: int = 600) -> np.ndarray:
    return blobs(n, seed, [[0.2, 0.3], [0.8, 0.7]], 0.03)


def quiet(epsilon: float = 4.0, seed: int = 0, **settings: Any) -> NodeRelease:
    return NodeRelease(epsilon, SQUARE, sampler=InsecureTestSampler(seed), **settings)


class TestWhatIsSent:
    def test_nodes_lie_on_the_crowds(self) -> None:
        nodes, counts, _ = quiet(8).release(two_crowds())
        heavy = nodes[counts >= np.median(counts)]
        distances = np.linalg.norm(heavy[:, None] - np.array([[0.2, 0.3], [0.8, 0.7]])[None], axis=2)
        assert distances.min(axis=0).max() < 0.1  # each crowd has a node
        assert counts.sum() == pytest.approx(600, rel=0.2)

    def test_units_are_those_of_the_data(self) -> None:
        bounds = np.array([[-100.0, 100.0], [5.0, 6.0]])
        mechanism = NodeRelease(8, bounds, sampler=InsecureTestSampler(0))
        nodes, _, _ = mechanism.release(bounds[:, 0] + two_crowds() * (bounds[:, 1] - bounds[:, 0]))
        same, _, _ = quiet(8).release(two_crowds())
        assert np.allclose((nodes - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0]), same, atol=1e-3)

    def test_nodes_stay_within_the_bounds_and_counts_are_whole(self) -> None:
        nodes, counts, state = quiet(0.2).release(two_crowds())
        assert ((nodes >= 0) & (nodes <= 1)).all()
        assert np.array_equal(counts, np.rint(counts))
        assert (counts >= 1).all()
        assert isinstance(state, ReleasedState)
        assert np.array_equal(state.nodes, nodes)

    @pytest.mark.filterwarnings("ignore:epsilon = 500 promises little")
    def test_counts_are_rounded_to_the_nearest_and_so_add_up_to_the_rows(self) -> None:
        """Rounding down would lose half a row for every node."""
        lost = [600 - quiet(500, seed).release(two_crowds(seed))[1].sum() for seed in range(8)]
        n_nodes = [len(quiet(500, seed).release(two_crowds(seed))[1]) for seed in range(8)]
        assert abs(sum(lost)) < sum(n_nodes) / 5

    @pytest.mark.parametrize("n_rows", [0, 1, 2])
    def test_an_empty_batch_is_answered_like_any_other(self, n_rows: int) -> None:
        for seed in range(20):
            nodes, counts, _ = quiet(seed=seed).release(two_crowds()[:n_rows])
            assert nodes.shape[1] == 2
            assert 1 <= len(nodes) == len(counts) <= 8
            assert np.isfinite(nodes).all()

    def test_records_outside_the_bounds_count_as_if_on_the_edge(self) -> None:
        rows = two_crowds()
        far = np.where(rows > 0.5, 1e8, -1e8)
        edge = np.where(rows > 0.5, 1.0, 0.0)
        for a, b in zip(quiet().release(far)[:2], quiet().release(edge)[:2], strict=True):
            assert np.array_equal(a, b)
        assert quiet().count_outside(far) == far.size
        assert quiet().count_outside(edge) == 0

    def test_order_of_rows_does_not_matter(self) -> None:
        rows = two_crowds()
        a, b = quiet().release(rows), quiet().release(rows[::-1])
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])

    def test_cells_can_be_limited(self) -> None:
        assert len(quiet(10, n_cells=1).release(two_crowds())[0]) == 1
        assert len(quiet(10, n_cells=30).release(two_crowds(n=5000))[0]) > 8

    def test_real_noise_differs_every_time(self) -> None:
        pytest.importorskip("opendp", reason="needs the extra 'privacy'")
        mechanism = NodeRelease(4, SQUARE)
        assert not np.array_equal(mechanism.release(two_crowds())[0], mechanism.release(two_crowds())[0])


class TestSettings:
    def test_larger_batches_and_budgets_have_more_cells(self) -> None:
        def cells(n: float, d: int, epsilon: float) -> int:
            return cell_release._affordable_cells(n, d, rho_from_epsilon(epsilon, 1e-6))

        assert cells(-50, 64, 1) == cells(0, 2, 0.1) == cell_release.FEWEST_CELLS
        assert cells(180, 64, 4) <= cells(180, 64, 8) == cell_release.USUAL_CELLS
        assert cell_release.USUAL_CELLS < cells(1_000, 16, 4) < cells(1_000, 16, 8) < cell_release.MOST_CELLS
        assert cells(1e9, 2, 16) == cell_release.MOST_CELLS

    def test_most_records_of_a_large_batch_stay_in_cells_that_are_sent(self) -> None:
        for seed in range(5):
            counts = quiet(8, seed).release(two_crowds(seed, n=3_000))[1]
            assert len(counts) > cell_release.USUAL_CELLS
            assert counts.sum() == pytest.approx(3_000, rel=0.1)

    @pytest.mark.slow
    def test_the_stated_deviations_are_those_of_the_noise(self) -> None:
        rows = np.random.default_rng(1).normal(0.5, 0.05, (1500, 3)) * [1.0, 10.0, 100.0]
        bounds = [[0, 1], [0, 10], [0, 100]]
        drawn = [
            NodeRelease(2.0, bounds, n_cells=1, sampler=InsecureTestSampler(seed)).release(rows)[2]
            for seed in range(150)
        ]
        counts, places = np.array([s.counts[0] for s in drawn]), np.array([s.nodes[0] for s in drawn])
        of_counts, of_places = (
            np.array([s.count_deviation[0] for s in drawn]),
            np.array([s.deviation[0] for s in drawn]),
        )
        assert counts.std() == pytest.approx(of_counts.mean(), rel=0.2)
        # shrinking a mean by how far it exceeds its noise makes it vary a little less than noise alone would
        ratio = places.std(axis=0) / np.sqrt((of_places**2).mean(axis=0))
        assert ((ratio > 0.6) & (ratio < 1.3)).all()

    def test_values_at_a_bound_return_to_it(self) -> None:
        nodes = np.array([[-0.2, 0.05, 0.5, 0.97, 1.3], [0.0, 0.05, 0.5, 0.97, 1.0], [0.2, 0.3, 0.5, 0.7, 0.8]])
        pulled = cell_release.pulled_to_bounds(nodes, np.array([0.1**2, 0.0, 9.0]))
        expected = [[0.0, 0.0, 0.5, 1.0, 1.0], [0.0, 0.05, 0.5, 0.97, 1.0], [0.0, 0.3, 0.5, 0.7, 1.0]]
        assert pulled.tolist() == expected


class TestRounds:
    def test_releases_accumulate_and_new_places_open(self) -> None:
        mechanism = quiet(8)
        rows = two_crowds()
        left, right = rows[rows[:, 0] < 0.5], rows[rows[:, 0] > 0.5]
        nodes, counts, state = mechanism.release(left, round=1)
        more, more_counts, later = mechanism.release(right, state, round=2)
        assert (later.n_releases, state.n_releases) == (2, 1)
        assert more_counts.sum() == pytest.approx(600, rel=0.2)
        assert np.linalg.norm(more - [0.8, 0.7], axis=1).min() < 0.1
        assert np.linalg.norm(more - [0.2, 0.3], axis=1).min() < 0.1
        # the old state is not changed by going on from it
        assert np.array_equal(state.nodes, nodes)
        assert np.array_equal(state.counts, counts)

    def test_the_same_place_again_joins_its_nodes(self) -> None:
        mechanism, state = quiet(8), None
        sizes = []
        for number in range(1, 9):
            nodes, counts, state = mechanism.release(two_crowds(number), state, round=number)
            sizes.append(len(nodes))
        assert len(nodes) < 0.5 * 8 * sizes[0]  # less than half of what eight separate releases would have
        assert counts.sum() == pytest.approx(8 * 600, rel=0.2)

    def test_state_survives_storage(self) -> None:
        state = quiet().release(two_crowds())[2]
        meta, arrays = unpack(pack("release", *state.to_parts()), kind="release")
        assert ReleasedState.from_parts(meta, arrays) == state
        assert repr(state).startswith("ReleasedState(")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"made_by": "somebody"}, "not the result of a release"),
            ({"n_releases": 0}, "damaged"),
            ({"n_releases": "many"}, "damaged"),
        ],
    )
    def test_a_foreign_description_is_refused(self, change: dict[str, Any], words: str) -> None:
        meta, arrays = quiet().release(two_crowds())[2].to_parts()
        with pytest.raises(PrivacyError, match=words):
            ReleasedState.from_parts({**meta, **change}, arrays)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("unit_nodes", np.array([[2.0, 0.5]])),
            ("unit_nodes", np.array([[np.nan, 0.5]])),
            ("unit_nodes", np.zeros((0, 2))),
            ("unit_nodes", np.zeros((1, 3))),
            ("released_counts", np.array([0.0])),
            ("node_noise", np.array([-1.0])),
            ("node_noise", np.array([1.0, 2.0])),
        ],
    )
    def test_impossible_arrays_are_refused(self, name: str, value: np.ndarray) -> None:
        meta, arrays = quiet(n_cells=1).release(two_crowds())[2].to_parts()
        with pytest.raises(PrivacyError, match="damaged"):
            ReleasedState.from_parts(meta, {**arrays, name: value})


class Broken(InsecureTestSampler):
    """A sampler that dies where a power cut would."""

    def add_noise(self, values: Any, scale: float) -> Any:
        raise RuntimeError("power cut")


class TestOrderOfThings:
    def test_the_charge_is_on_disk_before_noise_is_drawn(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=5)
        mechanism = NodeRelease(4, SQUARE, ledger=ledger, sampler=Broken())
        with pytest.raises(RuntimeError, match="power cut"):
            mechanism.release(two_crowds(), site="A")
        (entry,) = ledger.entries("A")
        assert ledger.spent("A") == pytest.approx(4)
        assert not entry["completed"]

    def test_over_budget_nothing_is_drawn(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=3)
        with pytest.raises(BudgetExceeded, match="budget is 3"):
            NodeRelease(4, SQUARE, ledger=ledger, sampler=Broken()).release(two_crowds(), site="A")
        assert ledger.spent("A") == 0

    def test_rounds_add_up_in_the_ledger(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4)
        mechanism, state = quiet(1, ledger=ledger), None
        for number in range(1, 5):
            state = mechanism.release(two_crowds(number), state, site="A", round=number)[2]
        assert ledger.spent("A") == pytest.approx(epsilon_from_rho(4 * mechanism.rho, 1e-6))
        assert ledger.spent("A") < 4  # zCDP adds up more kindly than epsilon does
        with pytest.raises(RepeatedBatch):
            mechanism.release(two_crowds(4), state, site="A", round=5)

    def test_empty_batches_are_charged_and_never_refused_as_repeats(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4)
        mechanism = quiet(1, ledger=ledger)
        for number in (1, 2, 3):
            mechanism.release(np.empty((0, 2)), site="A", round=number)
        assert len(ledger.entries("A")) == 3
        assert ledger.spent_rho("A") == pytest.approx(3 * mechanism.rho)


class TestErrorsBeforeAnythingIsCharged:
    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            (np.array([[0.1, np.inf]]), "NaN or infinite"),
            (np.zeros((3, 5)), "5 features, but bounds describe 2"),
            (np.zeros(2), "reshape"),
            (np.array([["a", "b"]]), "numeric"),
        ],
    )
    def test_wrong_rows(self, tmp_path: Path, rows: np.ndarray, words: str) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4)
        with pytest.raises(ValueError, match=words):
            quiet(ledger=ledger).release(rows, site="A")
        assert ledger.entries() == []

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"state": np.zeros((3, 2))}, "not the result of a release"),
            ({"site": ""}, "site"),
            ({"site": 3}, "site"),
            ({"round": -1}, "round"),
            ({"round": 1.5}, "round"),
            ({"record_ids": ["a"]}, "one id per row"),
        ],
    )
    def test_wrong_arguments(self, tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4)
        with pytest.raises(ValueError, match=words):
            quiet(ledger=ledger).release(two_crowds(), **arguments)
        assert ledger.entries() == []

    def test_state_with_other_bounds(self) -> None:
        state = NodeRelease(4, SQUARE * 2, sampler=InsecureTestSampler(0)).release(two_crowds())[2]
        with pytest.raises(PrivacyError, match="other bounds"):
            quiet().release(two_crowds(), state)

    @pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, "four", None])
    def test_epsilon(self, epsilon: Any) -> None:
        with pytest.raises(ValueError, match="epsilon"):
            NodeRelease(epsilon, SQUARE)

    @pytest.mark.parametrize("delta", [0, 1e-4, 1, -1e-6, np.nan])
    def test_delta(self, delta: float) -> None:
        with pytest.raises(ValueError, match="delta"):
            NodeRelease(4, SQUARE, delta=delta)

    @pytest.mark.parametrize(
        ("bounds", "words"),
        [
            (None, "missing"),
            ([[0, 1], [2, 1]], "feature 1 are inverted"),
            ([[0, 1], [2, 2]], "feature 1 are of zero width"),
            ([[0, np.inf]], "not finite"),
            ([[np.nan, 1]], "not finite"),
            ([[-1e308, 1.7e308]], "not finite"),
            ([0, 1], r"shape \(d, 2\)"),
            (np.empty((0, 2)), r"shape \(d, 2\)"),
            ([["a", "b"]], "numbers"),
        ],
    )
    def test_bounds(self, bounds: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            NodeRelease(4, bounds)

    @pytest.mark.parametrize(
        "settings",
        [{"n_cells": 0}, {"n_cells": 2.5}, {"random_state": -1}, {"random_state": None}, {"ledger": "site.db"}],
    )
    def test_settings(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(settings))):
            NodeRelease(4, SQUARE, **settings)

    def test_epsilon_and_bounds_have_no_default(self) -> None:
        with pytest.raises(TypeError, match="bounds"):
            NodeRelease(4)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="epsilon"):
            NodeRelease(bounds=SQUARE)  # type: ignore[call-arg]

    def test_one_delta_for_mechanism_and_ledger(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="one delta for both"):
            NodeRelease(4, SQUARE, delta=1e-7, ledger=Ledger(tmp_path / "site.db", 4))


class Schema:
    """Anything with bounds will do."""

    bounds = SQUARE.tolist()


class TestPlainObject:
    def test_clone_copies_it_and_shares_the_ledger_file(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4)
        original = NodeRelease(1, SQUARE, ledger=ledger)
        copied = clone(Holder(original)).privacy
        assert copied == original
        assert copied is not original
        copied.ledger.charge("A", copied.rho)
        assert ledger.spent("A") == pytest.approx(1, rel=0.1)

    def test_equality_and_words(self) -> None:
        assert NodeRelease(4, SQUARE) == NodeRelease(4.0, SQUARE.tolist())
        assert NodeRelease(4, SQUARE) != NodeRelease(5, SQUARE)
        assert NodeRelease(4, SQUARE) != NodeRelease(4, SQUARE * 2)
        assert NodeRelease(4, SQUARE) != "NodeRelease"
        assert "epsilon=4.0" in repr(NodeRelease(4, SQUARE))
        assert "<64 features>" in repr(NodeRelease(4, np.tile([0, 1], (64, 1))))
        assert copy.deepcopy(NodeRelease(4, SQUARE)) == NodeRelease(4, SQUARE)

    def test_a_schema_gives_the_bounds(self) -> None:
        assert NodeRelease(4, Schema()) == NodeRelease(4, SQUARE)

        class Empty:
            bounds = None

        with pytest.raises(ValueError, match="schema has no bounds"):
            NodeRelease(4, Empty())

    def test_statement_for_the_report(self, tmp_path: Path) -> None:
        statement = NodeRelease(4, SQUARE, ledger=Ledger(tmp_path / "site.db", 8)).describe()
        assert statement["unit"].startswith("one row")
        assert statement["adjacency"].startswith("one row")
        assert (statement["epsilon"], statement["delta"], statement["budget"]) == (4.0, 1e-6, 8.0)
        assert statement["bounds"] == SQUARE.tolist()
        assert len(statement["not_promised"]) >= 4
        assert "warning" not in statement
        assert "No ledger" in NodeRelease(4, SQUARE).describe()["warning"]
        # the statement is about settings; it must not touch the ledger's file
        assert not (tmp_path / "site.db").exists()


def test_people_weigh_as_much_with_a_ledger_as_without(tmp_path: Path) -> None:
    rows, ids = two_crowds()[:60], [f"p{n % 20}" for n in range(60)]
    weights = []
    for ledger in (None, Ledger(tmp_path / "site.db", 8.0)):
        mechanism = NodeRelease(4.0, SQUARE, ledger=ledger)
        weights.append(mechanism.charge(mechanism.prepare(rows, site="a", round=1, record_ids=ids)).weights)
    assert weights[0] is not None
    assert weights[0].sum() == 20 * WEIGHT
    np.testing.assert_array_equal(*weights)
