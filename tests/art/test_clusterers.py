"""CAPlus, CAE and CAEFC: invariances, exactness of the search, input of every kind, reading, storage."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcac import CAE, CAEFC, CAPlus, load, save
from fcac.art import network_clusterer
from fcac.art.network import Network
from fcac.exceptions import DegenerateBandwidthWarning
from fcac.model.storage import from_bytes, to_bytes

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from plain_numpy import PlainNetwork

MODELS = [CAPlus, CAE, CAEFC]
modest, thorough = settings(max_examples=25), settings(max_examples=1500)

quiet = pytest.mark.filterwarnings("ignore::fcac.exceptions.DegenerateBandwidthWarning")


# ---------------------------------------------------------------- data

KINDS = ("normal", "offset", "small", "large", "integers", "duplicates", "heavy", "constant", "mixed")


def rows_of(kind: str, seed: int, n: int, d: int) -> np.ndarray:
    """Rows that are hard on a search in single precision, each in its own way."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if kind == "offset":
        X = X * 10.0 ** rng.integers(-3, 2) + 1e5
    elif kind == "small":
        X *= 1e-4
    elif kind == "large":
        X *= 1e6
    elif kind == "integers":
        X = np.round(X * 2)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n // 4), n)]
    elif kind == "heavy":
        X = rng.standard_cauchy((n, d)) ** 3
    elif kind == "constant":
        X[:, rng.random(d) < 0.4] = rng.choice([0.0, 1e5, -3.7])
    elif kind == "mixed":
        X *= 10.0 ** rng.integers(-4, 6, d)
        X += 10.0 ** rng.integers(-2, 6, d)
    return X


hostile = st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(1, 260), st.integers(1, 12))
smooth = st.tuples(st.just("normal"), st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 6))
any_model = st.sampled_from(MODELS)


def state(model) -> tuple[dict, dict]:
    """Everything a fitted model knows."""
    return model._network.to_parts()


def assert_equal_states(one, other):
    (meta, arrays), (other_meta, other_arrays) = state(one), state(other)
    assert meta == other_meta
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)


def quietly(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateBandwidthWarning)
        return function(*args)


# ---------------------------------------------------------------- scikit-learn


def expected_failures(estimator):
    reason = "every CA+ node is a cluster of its own, so that 50 points in 3 blobs give dozens of clusters"
    return {"check_clustering": reason} if isinstance(estimator, CAPlus) else {}


@parametrize_with_checks([CAPlus(), CAE(), CAEFC()], expected_failed_checks=expected_failures)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- invariances


def check_chunks(model_class, spec, cuts, look):
    X = rows_of(*spec)
    whole = quietly(model_class().fit, X)
    model, at = model_class(), sorted({cut % (len(X) + 1) for cut in cuts} | {0, len(X)})
    for start, stop in itertools.pairwise(at):
        quietly(model.partial_fit, X[start:stop])
        if look:  # reading shows what would be if the data ended here, and disturbs nothing
            model.predict(X[:3])
            assert len(model.nodes_) <= model.n_samples_seen_ == stop
    assert_equal_states(model, whole)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


@pytest.mark.slow
@modest
@given(any_model, hostile, st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_how_rows_are_cut_does_not_matter(model_class, spec, cuts, look):
    check_chunks(model_class, spec, cuts, look)


@pytest.mark.soak
@thorough
@given(any_model, hostile, st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_how_rows_are_cut_does_not_matter_long(model_class, spec, cuts, look):
    check_chunks(model_class, spec, cuts, look)


@pytest.mark.slow
@pytest.mark.parametrize("model_class", MODELS)
def test_one_row_at_a_time(model_class):
    X = rows_of("normal", 3, 400, 3)
    model = model_class()
    for row in X:
        model.partial_fit(row[None])
    assert_equal_states(model, model_class().fit(X))


@pytest.mark.parametrize("model_class", MODELS)
def test_reading_early_shows_what_would_be_if_the_data_ended_here(model_class):
    X = rows_of("normal", 5, 30, 2)
    model = model_class()
    for n in range(1, 13):
        model.partial_fit(X[n - 1 : n])
        ended = model_class().fit(X[:n])
        np.testing.assert_array_equal(model.nodes_, ended.nodes_)
        np.testing.assert_array_equal(model.bandwidths_, ended.bandwidths_)
        np.testing.assert_array_equal(model.predict(X), ended.predict(X))
        assert model.n_samples_seen_ == n


def check_scaling(model_class, spec, exponent):
    X, factor = rows_of(*spec), 2.0**exponent
    assume(len(X) > 1)
    model, scaled = model_class().fit(X), model_class().fit(X * factor)
    np.testing.assert_array_equal(scaled.nodes_, model.nodes_ * factor)
    np.testing.assert_array_equal(scaled.bandwidths_, model.bandwidths_ * factor)
    for name in ("counts_", "recency_", "threshold_", "n_active_", "node_labels_"):
        np.testing.assert_array_equal(getattr(scaled, name), getattr(model, name))
    if model_class is not CAPlus:
        np.testing.assert_array_equal(scaled.edges_, model.edges_)
        np.testing.assert_array_equal(scaled.edge_ages_, model.edge_ages_)
    np.testing.assert_array_equal(scaled.transform(X[:5] * factor), model.transform(X[:5]))
    np.testing.assert_array_equal(scaled.predict(X * factor), model.predict(X))


@pytest.mark.slow
@modest
@given(any_model, smooth, st.integers(-60, 60))
def test_scaling_by_a_power_of_two_scales_the_result_bit_for_bit(model_class, spec, exponent):
    check_scaling(model_class, spec, exponent)


@pytest.mark.soak
@thorough
@given(any_model, smooth, st.integers(-300, 300))
def test_scaling_by_a_power_of_two_scales_the_result_bit_for_bit_long(model_class, spec, exponent):
    check_scaling(model_class, spec, exponent)


@pytest.mark.slow
@modest
@given(any_model, smooth, st.floats(-100, 100))
def test_shifting_shifts_the_result(model_class, spec, shift):
    X = rows_of(*spec)
    assume(len(X) > 1)
    model, shifted = model_class().fit(X), model_class().fit(X + shift)
    np.testing.assert_array_equal(shifted.counts_, model.counts_)
    np.testing.assert_array_equal(shifted.node_labels_, model.node_labels_)
    np.testing.assert_array_equal(shifted.predict(X + shift), model.predict(X))
    np.testing.assert_allclose(shifted.nodes_, model.nodes_ + shift, rtol=1e-9, atol=1e-11)
    if model_class is not CAPlus:
        np.testing.assert_array_equal(shifted.edges_, model.edges_)


# ---------------------------------------------------------------- exactness


class BruteForce(Network):
    """The same network with a screening copy so far off that its margin rules out no node."""

    def _rescale(self, block):
        super()._rescale(block)
        self._state.shift[:] = 1e30


def check_search(model_class, spec):
    X = rows_of(*spec)
    rules = model_class()._rules()
    screened, brute = Network(X.shape[1], rules), BruteForce(X.shape[1], rules)
    screened.learn(X)
    brute.learn(X)
    (meta, arrays), (other_meta, other_arrays) = screened.to_parts(), brute.to_parts()
    assert meta == other_meta
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)
    # reading: near, on and far from the nodes
    network, rng = screened.settled(), np.random.default_rng(spec[1])
    queries = np.concatenate([X[:80], X[:40] + rng.normal(size=(len(X[:40]), X.shape[1])), X[:5] * 1e3, X[:1] - 1e9])
    position, distance = network.nearest(queries)
    every = network.distances(queries)
    np.testing.assert_array_equal(position, every.argmin(axis=1))  # argmin, too, takes the lowest position
    np.testing.assert_array_equal(distance, every.min(axis=1))


@modest
@given(any_model, hostile)
def test_the_screened_search_is_the_full_search(model_class, spec):
    check_search(model_class, spec)


@pytest.mark.soak
@thorough
@given(any_model, st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(1, 900), st.integers(1, 200)))
def test_the_screened_search_is_the_full_search_long(model_class, spec):
    check_search(model_class, spec)


@pytest.mark.parametrize("d", [1, 7, 8, 31, 127, 128, 129, 300])
def test_distances_are_the_formula_s(d):
    rng = np.random.default_rng(d)
    model = CAPlus().fit(rng.normal(size=(60, d)))
    queries, s = rng.normal(size=(20, d)), model.bandwidths_.mean()
    kernel = np.exp(-((queries[:, None] - model.nodes_) ** 2) / (2 * s**2)).mean(axis=-1)
    np.testing.assert_allclose(model.transform(queries), np.sqrt(1 - kernel), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.score_samples(queries), -model.transform(queries).min(axis=1))
    np.testing.assert_array_equal(model.transform(model.nodes_).diagonal(), 0.0)


@pytest.mark.slow
@modest
@given(any_model, smooth)
def test_same_as_the_plain_program(model_class, spec):
    X = rows_of(*spec)
    assume(len(X) > 1)
    rules = model_class()._rules()
    model = model_class().fit(X)
    plain = PlainNetwork(
        rules.topological, rules.one_minus_cim, rules.min_nodes, rules.diversity_threshold, rules.age_iqr_factor
    ).fit(X)
    np.testing.assert_array_equal(model.counts_, plain.counts)
    np.testing.assert_array_equal(model.recency_, plain.recency)
    np.testing.assert_allclose(model.nodes_, plain.nodes.reshape(model.nodes_.shape), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(model.bandwidths_, plain.widths, rtol=1e-9)
    assert model.threshold_ == pytest.approx(plain.threshold, rel=1e-9)
    assert model.n_active_ == plain.n_active
    if model_class is not CAPlus:
        edges = {frozenset(map(int, edge)): int(age) for edge, age in zip(model.edges_, model.edge_ages_, strict=True)}
        assert edges == plain.edges
        assert model.n_deleted_edges_ == plain.n_deleted
        assert model.mean_deleted_age_ == plain.mean_deleted


# ---------------------------------------------------------------- numbers at the edge


@quiet
@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize(
    "X",
    [
        np.ones((1, 3)),
        np.ones((2, 1)),
        np.full((60, 3), 7.25),
        np.repeat(np.arange(6.0)[:, None], 50, axis=0),
        np.concatenate([np.zeros((15, 2)), np.random.default_rng(0).normal(size=(100, 2))]),
        np.concatenate([np.zeros((15, 2)), 1e140 * np.random.default_rng(0).normal(size=(100, 2))]),
        np.random.default_rng(0).normal(size=(200, 3)) * 1e-160,
        np.random.default_rng(0).normal(size=(200, 3)) * 1e-170,
        np.random.default_rng(0).normal(size=(200, 3)) * 5e-324,
        np.random.default_rng(0).normal(size=(200, 3)) * 1e140,
        np.random.default_rng(0).normal(size=(200, 3)) * [1e-150, 1.0, 1e140],
        np.random.default_rng(0).normal(size=(200, 3)) * [1e-160, 1e-160, 1e149],
        np.geomspace(1e-140, 1e140, 200)[:, None],
        np.random.default_rng(0).normal(size=(200, 3)) + 1e15,
        np.linspace(-1e150, 1e150, 50)[:, None],
    ],
    ids=lambda X: f"{X.shape}",
)
def test_no_nan_and_no_infinity_ever(model_class, X):
    model = model_class()
    for part in np.array_split(X, 3):
        if len(part):
            model.partial_fit(part)
        if model.__sklearn_is_fitted__():
            assert all(np.isfinite(array).all() for array in state(model)[1].values())
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert len(model.predict(X)) == len(X)
    assert_equal_states(from_bytes(to_bytes(model)), model)


@quiet
def test_all_nodes_deleted_at_the_last_point():
    with np.load(Path(__file__).parents[1] / "data" / "traces" / "deleteall_20__caefc.npz") as trace:
        X = trace["X"]
    model = CAEFC().fit(X)
    assert len(model.nodes_) == 0
    assert model.n_clusters_ == 0
    # the nodes as they were before that deletion answer, each its own cluster
    before = CAEFC().fit(X[:-1])
    nodes = np.concatenate([before.nodes_, X[-1:]])
    assert model.transform(X).shape == (20, len(nodes))
    np.testing.assert_array_equal(nodes[model.predict(nodes)], nodes)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    again = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    # and learning goes on, with the next point as the first node
    for one in (model, again):
        one.partial_fit([[0.5, 0.5]])
        np.testing.assert_array_equal(one.nodes_, [[0.5, 0.5]])
        assert one.threshold_ == before.threshold_


def test_ties_go_to_the_lowest_position():
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    model = CAPlus().fit(X)
    assert len(model.nodes_) == 4
    np.testing.assert_array_equal(model.predict([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1e9, 1e9]]), [0, 1, 2, 0])


# ---------------------------------------------------------------- input


def arrow(X, kind=None):
    return pa.table({f"c{j}": pa.array(X[:, j], kind) for j in range(X.shape[1])})


def read_only_map(X, folder):
    path = folder / "rows.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


INTEGERS = np.random.default_rng(1).integers(0, 256, (300, 4)).astype(np.uint8)


@pytest.mark.parametrize(
    "make",
    [
        lambda X, folder: X.astype(np.float32),
        lambda X, folder: X.astype(np.int64),
        lambda X, folder: X.astype(np.float16),
        lambda X, folder: X.astype(">f8"),
        lambda X, folder: np.asfortranarray(X.astype(float)),
        lambda X, folder: np.repeat(X.astype(float), 2, axis=0)[::2],
        lambda X, folder: X.tolist(),
        lambda X, folder: X.astype(object),
        read_only_map,
        lambda X, folder: read_only_map(X.astype(float), folder),
        lambda X, folder: pd.DataFrame(X, columns=list("abcd")),
        lambda X, folder: pd.DataFrame(X, columns=list("abcd")).astype("Int64"),
        lambda X, folder: pd.DataFrame(X.astype(float), columns=list("abcd")).astype({"a": "float32", "b": "int16"}),
        lambda X, folder: arrow(X),
        lambda X, folder: arrow(X.astype(float)),
        lambda X, folder: pa.concat_tables([arrow(X[:100]), arrow(X[100:])]),
        lambda X, folder: arrow(X).to_batches()[0],
    ],
)
@pytest.mark.parametrize("block_bytes", [8_000_000, 900])
def test_any_table_of_numbers(make, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("fcac._rows._BLOCK_BYTES", block_bytes)
    table = make(INTEGERS, tmp_path)
    model, expected = CAEFC().fit(table), CAEFC().fit(INTEGERS.astype(float))
    assert_equal_states(model, expected)
    np.testing.assert_array_equal(model.predict(table), expected.predict(INTEGERS.astype(float)))
    np.testing.assert_array_equal(model.labels_, expected.labels_)


def test_booleans():
    X = np.random.default_rng(0).random((100, 5)) < 0.5
    assert_equal_states(CAPlus().fit(X), CAPlus().fit(X.astype(float)))


GOOD = rows_of("normal", 0, 200, 3)
BAD = {
    "NaN": (np.where(np.eye(3) > 0, np.nan, 1.0), "NaN"),
    "infinite": (np.array([[1.0, np.inf, 0.0]]), "infinity"),
    "too large": (np.array([[1.0, 1e200, 0.0]]), "1e\\+150"),
    "empty": (np.empty((0, 3)), "0 sample"),
    "no rows at all": ([], "1D array|0 sample"),
    "no features": (np.empty((5, 0)), "0 feature"),
    "1-D": (np.ones(3), "Expected 2D array, got 1D array"),
    "3-D": (np.ones((2, 3, 1)), "dim 3"),
    "scalar": (3.0, "Expected 2D array"),
    "text": (np.array([["a", "b", "c"]]), "not compatible with arrays of bytes/strings|could not convert"),
    "text in a frame": (pd.DataFrame({"a": ["x"], "b": [1], "c": [2]}), "column 'a' holds text"),
    "dates": (np.array([["2020-01-01"] * 3], dtype="datetime64[D]"), "not numbers|datetime"),
    "complex": (np.ones((2, 3), complex), "Complex data not supported"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0]], "inhomogeneous|sequence"),
    "masked": (np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 4.0), "NaN"),
    "missing in a frame": (pd.DataFrame({"a": [1, None], "b": [1, 2], "c": [1, 2]}), "NaN"),
    "null in Arrow": (arrow(GOOD[:2]).set_column(0, "c0", pa.array([1.0, None])), "NaN"),
    "text in Arrow": (pa.table({"a": ["x"], "b": [1.0], "c": [1.0]}), "column 'a' holds text"),
    "Arrow column": (pa.chunked_array([[1.0]]), "pass a pyarrow Table"),
    "wrong number of features": (np.ones((4, 2)), "X has 2 features, but .* is expecting 3 features"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_and_changes_nothing(what):
    X, message = BAD[what]
    model = CAEFC().fit(GOOD)
    before, labels = to_bytes(model), model.labels_
    methods = [model.partial_fit, model.predict, model.transform, model.score_samples]
    if what != "wrong number of features":
        methods += [model.fit, CAEFC().fit, CAEFC().partial_fit]
    for method in methods:
        with pytest.raises(ValueError, match=message):
            method(X)
        assert to_bytes(model) == before
        assert model.labels_ is labels
        assert model.n_features_in_ == 3


def test_a_sparse_matrix_is_refused():
    model = CAPlus().fit(GOOD)
    before = to_bytes(model)
    for method in (model.fit, model.partial_fit, model.predict):
        with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
            method(sparse.csr_array(GOOD))
    assert to_bytes(model) == before


@pytest.mark.parametrize("container", [np.asarray, lambda X: pd.DataFrame(X, columns=list("abc")), arrow])
def test_a_bad_row_far_down_is_found_before_anything_is_learned(container, monkeypatch):
    monkeypatch.setattr("fcac._rows._BLOCK_BYTES", 24 * 50)
    X = rows_of("normal", 9, 5000, 3)
    X[4900, 1] = np.nan
    model = CAPlus().fit(container(GOOD))
    before = to_bytes(model)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(container(X))
    assert to_bytes(model) == before


def test_numbers_assumed_finite_are_checked_all_the_same():
    from sklearn import config_context

    with config_context(assume_finite=True), pytest.raises(ValueError, match="NaN, infinity"):
        CAPlus().fit(BAD["NaN"][0])


def test_not_fitted():
    for method in ("predict", "transform", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(CAPlus(), method)(GOOD)
    with pytest.raises(NotFittedError):
        _ = CAPlus().nodes_


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (CAPlus(diversity_threshold=0.0), "diversity_threshold"),
        (CAPlus(min_nodes=0), "min_nodes"),
        (CAPlus(min_nodes=2.5), "min_nodes"),
        (CAEFC(age_iqr_factor=-1.0), "age_iqr_factor"),
        (CAEFC(age_iqr_factor=np.nan), "age_iqr_factor"),
        (CAE(diversity_threshold="x"), "diversity_threshold"),
        (CAE(diversity_threshold=np.inf), "diversity_threshold"),
        (CAE(min_nodes=2**70), "min_nodes"),
    ],
)
def test_bad_parameters_are_named(model, name):
    with pytest.raises(ValueError, match=name):
        model.fit(GOOD)


# ---------------------------------------------------------------- names and warnings


def test_feature_names():
    frame = pd.DataFrame(GOOD, columns=["length", "width", "mass"])
    for table in (frame, pa.Table.from_pandas(frame), pa.Table.from_pandas(frame).to_batches()[0]):
        model = CAPlus().fit(table)
        assert list(model.feature_names_in_) == ["length", "width", "mass"]
        assert list(from_bytes(to_bytes(model)).feature_names_in_) == ["length", "width", "mass"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame.rename(columns={"mass": "weight"}))
        with pytest.raises(ValueError, match="feature names"):
            model.partial_fit(frame[["width", "length", "mass"]])
    assert not hasattr(CAPlus().fit(GOOD), "feature_names_in_")
    assert list(model.get_feature_names_out()[:2]) == ["caplus0", "caplus1"]


def test_constant_features_are_named_once():
    frame = pd.DataFrame(GOOD, columns=["length", "width", "mass"])
    frame["width"] = frame["mass"] = 1.0
    model = CAPlus()
    with pytest.warns(DegenerateBandwidthWarning, match="2 of 3 features do not vary .*width, mass"):
        model.fit(frame)
    model.partial_fit(frame)  # warnings are errors here: it does not warn again
    with pytest.warns(DegenerateBandwidthWarning, match="features 1, 2"):
        CAPlus().fit(frame.to_numpy())
    wide = np.concatenate([GOOD, np.zeros((200, 20))], axis=1)
    with pytest.warns(DegenerateBandwidthWarning, match="and 12 more"):
        CAPlus().fit(wide)
    CAPlus().fit(GOOD * 1e-9)  # small numbers that vary are no reason to warn
    CAPlus().fit(frame[["length", "width"]].assign(other=GOOD[:, 1]))  # nor is one constant feature of three


# ---------------------------------------------------------------- labels and copies


def test_labels_belong_to_the_rows_of_the_last_call():
    X, more = rows_of("normal", 1, 300, 2), rows_of("normal", 2, 40, 2)
    for model_class in MODELS:
        model = model_class().fit(X)
        np.testing.assert_array_equal(model.labels_, model.predict(X))
        np.testing.assert_array_equal(model_class().fit_predict(X), model.labels_)
        model.partial_fit(more)
        assert len(model.labels_) == 40
        np.testing.assert_array_equal(model.labels_, model.predict(more))
    with pytest.raises(AttributeError, match="holds no labels_"):
        _ = from_bytes(to_bytes(model)).labels_


def test_caplus_clusters_are_its_nodes():
    model = CAPlus().fit(GOOD)
    np.testing.assert_array_equal(model.node_labels_, np.arange(len(model.nodes_)))
    assert model.n_clusters_ == len(model.nodes_)
    assert model.counts_.sum() == len(GOOD)
    assert not hasattr(model, "edges_")


def test_fit_starts_anew_and_attributes_are_copies():
    model = CAEFC().fit(rows_of("normal", 1, 500, 2))
    model.fit(GOOD)
    assert_equal_states(model, CAEFC().fit(GOOD))
    model.nodes_[:] = 0.0
    model.counts_[:] = 0
    model.edges_[:] = 0
    assert_equal_states(model, CAEFC().fit(GOOD))


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy])
def test_copies_and_pickles_go_on_alike(model_class, again):
    X = rows_of("normal", 1, 600, 3)
    model = model_class().fit(X[:333])
    other = again(model)
    np.testing.assert_array_equal(other.labels_, model.labels_)
    assert_equal_states(other.partial_fit(X[333:]), model_class().fit(X))
    if again is not copy.copy:
        assert_equal_states(model.partial_fit(X[333:]), other)
    assert not hasattr(clone(other), "_network")


# ---------------------------------------------------------------- storage


def check_saving(model_class, spec, cut):
    X = rows_of(*spec)
    cut %= len(X)
    assume(cut > 0)
    whole, model = model_class(), model_class()
    quietly(whole.fit, X)
    quietly(model.fit, X[:cut])
    data = to_bytes(model)
    again = from_bytes(data)
    assert again.get_params() == model.get_params()
    assert to_bytes(again) == data
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.transform(X[:9]), model.transform(X[:9]))
    assert_equal_states(quietly(again.partial_fit, X[cut:]), whole)


@pytest.mark.slow
@modest
@given(any_model, hostile, st.integers(0, 300))
def test_saved_loaded_and_gone_on_is_as_never_saved(model_class, spec, cut):
    check_saving(model_class, spec, cut)


@pytest.mark.soak
@thorough
@given(any_model, hostile, st.integers(0, 300))
def test_saved_loaded_and_gone_on_is_as_never_saved_long(model_class, spec, cut):
    check_saving(model_class, spec, cut)


@pytest.mark.parametrize("cut", [1, 5, 9, 10, 11, 12, 40, 400])
def test_saving_in_every_phase(cut, tmp_path):
    X = rows_of("normal", 4, 900, 4)
    for model_class in MODELS:
        model = model_class().fit(X[:cut])
        save(model, tmp_path / "model.fcac")
        again = load(tmp_path / "model.fcac").partial_fit(X[cut:])
        assert_equal_states(again, model_class().fit(X))


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("model_class", MODELS)
def test_two_fits_at_once_give_what_they_give_alone(model_class):
    data = [rows_of("normal", seed, 6000, 5) for seed in (1, 2)]
    alone = [model_class().fit(X) for X in data]
    together = [model_class() for _ in data]
    start = threading.Barrier(2)

    def work(model, X):
        start.wait()
        for part in np.array_split(X, 7):
            model.partial_fit(part)
            model.predict(X[:500])

    threads = [threading.Thread(target=work, args=pair) for pair in zip(together, data, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        assert_equal_states(one, other)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    X = rows_of("mixed", 1, 12_000, 4)
    model = CAEFC().fit(X)
    results = []
    for n_threads in (1, 2, 3, 16):
        monkeypatch.setattr(network_clusterer, "threads_for", lambda n_rows, n=n_threads: n)
        results.append((model.predict(X), model.score_samples(X), model.transform(X[:4000])))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_threads_read_one_model_at_once():
    X = rows_of("normal", 1, 20_000, 3)
    model = CAPlus().fit(X)
    expected, answers = model.predict(X), [None] * 4

    def read(at):
        answers[at] = model.predict(X)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


def test_an_interrupt_leaves_the_model_as_it_was(monkeypatch):
    X = rows_of("normal", 1, 30_000, 3)
    model = CAPlus().fit(GOOD)
    before, calls = to_bytes(model), []
    learn = Network.learn

    def interrupted(self, block):
        learn(self, block)
        calls.append(len(block))
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("fcac._rows._BLOCK_BYTES", 24 * 8000)
    monkeypatch.setattr(Network, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X)
    assert calls == [8000, 8000]
    assert to_bytes(model) == before


def test_a_model_goes_through_a_stream():
    model = CAEFC().fit(GOOD)
    stream = io.BytesIO(to_bytes(model))
    assert_equal_states(from_bytes(stream.read()), model)
