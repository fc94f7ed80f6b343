"""The three clusterers against recorded states of the reference program, point by point.

Set FCAC_TRACES to a directory with more traces to check those too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest

from fcac import CAE, CAEFC, CAPlus

MODELS = {"caplus": CAPlus, "caefc": CAEFC, "cae": CAE}
HERE = Path(__file__).parents[1] / "data" / "traces"

# below this, a decision of the reference came too close to going the other way to bind another program
FRAGILE = 1e-12

pytestmark = pytest.mark.filterwarnings("ignore::fcac.exceptions.DegenerateBandwidthWarning")


def traces() -> list[Path]:
    """Traces that bind: ties as a stable sort breaks them, and no resets of the point counter between rounds."""
    folders = [HERE]
    if "FCAC_TRACES" in os.environ:
        folders.append(Path(os.environ["FCAC_TRACES"]))
    found = {}
    for folder in folders:
        for path in sorted(folder.glob("*.npz")):
            data, algorithm, *rest = path.stem.split("__")
            superseded = not rest and path.with_name(f"{path.stem}__stable.npz").exists()
            informative_only = data.startswith("continual") and algorithm != "caplus"
            if algorithm in MODELS and not superseded and not informative_only:
                found[path.stem] = path
    return [found[name] for name in sorted(found)]


def rounds(trace):
    """The rows of a trace, one array per call."""
    return np.split(trace["X"], np.cumsum(trace["round_lengths"])[:-1])


def model_of(path):
    return MODELS[path.stem.split("__")[1]]()


def assert_same(model, trace):
    np.testing.assert_array_equal(model.counts_, trace["counts"])
    np.testing.assert_allclose(model.nodes_, trace["weights"].reshape(model.nodes_.shape), rtol=1e-9, atol=1e-15)
    if np.isfinite(trace["sigmas"]).all():
        np.testing.assert_allclose(model.bandwidths_, trace["sigmas"], rtol=1e-9)
    else:
        assert len(trace["X"]) == 1  # one point has no spread: NaN there, never here
        assert np.isfinite(model.bandwidths_).all()
    np.testing.assert_array_equal(model.recency_, trace["active_order"])
    assert model.threshold_ == pytest.approx(float(trace["V_thres"]), rel=1e-9)
    assert model.n_active_ == float(trace["n_active_nodes"])
    assert model.deletion_interval_ == float(trace["div_lambda"])
    assert model.n_samples_seen_ == len(trace["X"])
    if not isinstance(model, CAPlus):
        edges = trace["edges"].reshape(-1, 3)
        np.testing.assert_array_equal(np.column_stack([model.edges_, model.edge_ages_]), edges)
        assert model.n_deleted_edges_ == int(trace["n_deleted_edge"])
        assert model.mean_deleted_age_ == pytest.approx(float(trace["lifetime_d_edge"]), rel=1e-9)
        np.testing.assert_array_equal(model.node_labels_, trace["node_cluster"])
        assert model.n_clusters_ == int(trace["n_clusters"])
    if not str(trace["predict_error"]):
        np.testing.assert_array_equal(model.predict(trace["X"]), trace["predict"])


@contextlib.contextmanager
def binding(path, trace):
    """Let a difference in a trace from elsewhere pass if the reference's own decision hung on the last bit."""
    try:
        yield
    except AssertionError:
        margin = min(float(trace[name]) for name in ("min_margin_s1", "min_margin_s2", "min_gap"))
        if margin < FRAGILE and path.parent != HERE:
            pytest.xfail(f"a decision in this trace was {margin:g} away from going the other way")
        raise


@pytest.mark.parametrize("path", traces(), ids=lambda path: path.stem)
def test_final_state_is_the_reference_s(path):
    with np.load(path) as trace:
        model = model_of(path)
        for rows in rounds(trace):
            model.partial_fit(rows)
        with binding(path, trace):
            assert_same(model, trace)


@pytest.mark.parametrize("path", traces(), ids=lambda path: path.stem)
def test_states_on_the_way_are_the_reference_s(path):
    with np.load(path) as trace, binding(path, trace):
        model, seen = model_of(path), 0
        for n_seen, n_nodes, weight_sum, threshold, n_edges, count_sum in trace["checkpoints"]:
            model.partial_fit(trace["X"][seen : int(n_seen)])
            seen = int(n_seen)
            assert len(model.nodes_) == n_nodes
            assert model.nodes_.sum() == pytest.approx(weight_sum, rel=1e-9, abs=1e-9)
            assert model.threshold_ == pytest.approx(threshold, rel=1e-9)
            assert model.counts_.sum() == count_sum
            if not isinstance(model, CAPlus):
                assert len(model.edges_) == n_edges


def test_traces_are_there():
    names = {path.stem for path in traces()}
    assert len(names) > 40
    for data in ("gauss2d_3000", "digits1000", "deleteall_20", "tiny_n1", "intgrid_1500"):
        assert any(name.startswith(data) for name in names)
