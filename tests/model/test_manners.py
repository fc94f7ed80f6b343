"""FCAC where other clusterers are used: labels, output as frames, pipelines, clones, BERTopic."""

from __future__ import annotations

import inspect
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcac import FCAC, load, save
from fcac._rows import Rows
from testing.data import labelled_blobs

# ------------------------------------------------------------ labels_ from one search


def overlapping(n: int, d: int, spread: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-10, 10, size=(6, d))
    return centres[rng.integers(6, size=n)] + rng.normal(0, spread, size=(n, d))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["array", "groups", "dict", "frame"])
def test_labels_of_learned_rows_are_those_of_predict(form: str) -> None:
    X = overlapping(12_000, 2, 2.0)
    site = np.arange(len(X)) % 3
    given: dict[str, tuple[Any, Any]] = {
        "array": (X, None),
        "groups": (X, site),
        "dict": ({s: X[site == s] for s in (2, 0, 1)}, None),
        "frame": (pd.DataFrame(X, columns=["a", "b"]), np.array(["x", "y", "z"])[site]),
    }
    table, groups = given[form]
    # few nodes, so that most rows are not nodes themselves
    model = FCAC(max_nodes=300).fit(table, groups=groups)
    assert model._trails is not None
    rows = np.concatenate([X[site == s] for s in (2, 0, 1)]) if form == "dict" else table
    assert np.mean(model.labels_ == model.predict(rows)) > 0.99


@pytest.mark.slow
def test_trails_are_not_kept_longer_than_needed() -> None:
    X = overlapping(3000, 2, 1.0)
    model = FCAC(max_nodes=200).fit(X)
    labels = model.labels_
    assert model._trails is None
    again = model.partial_fit(X[:500])
    assert len(again.labels_) == 500
    site = np.arange(3000) % 2
    forgot = FCAC(max_nodes=200).fit(X, groups=site).forget(0)
    assert len(forgot.labels_) == 3000
    copied = clone(model).fit(X)
    np.testing.assert_array_equal(copied.labels_, labels)


def test_rows_without_weight_have_labels_too() -> None:
    X = overlapping(2000, 2, 0.5)
    weights = np.ones(2000)
    weights[:100] = 0.0
    model = FCAC(max_nodes=200).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(5), "one number for each of the 300 rows"),
        (np.full(300, -1.0), "not below zero"),
        (np.full(300, np.nan), "finite"),
        (["x"] * 300, "must hold numbers"),
        (np.zeros(300), "all weights are zero"),
        ({"a": np.ones(300)}, "sample_weight"),
    ],
)
def test_bad_weights(weights: Any, words: str) -> None:
    X, _ = labelled_blobs(300, 0)
    with pytest.raises(ValueError, match=words):
        FCAC().fit(X, sample_weight=weights)
    with pytest.raises(ValueError, match="dict like X"):
        FCAC().fit({"a": X}, sample_weight=np.ones(300))


# ------------------------------------------------------------ scikit-learn


@pytest.mark.slow
def test_distances_are_to_clusters_or_to_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = labelled_blobs(300, 1)
    model = FCAC(max_nodes=30).fit(X)
    to_clusters, to_nodes = model.transform(X), model.transform(X, to="nodes")
    assert to_clusters.shape == (300, model.n_clusters_)
    assert to_nodes.shape == (300, len(model.server_.nodes))
    for column, k in enumerate(model.cluster_ids_):
        nearest = to_nodes[:, model.server_.node_labels == k].min(axis=1)
        np.testing.assert_array_equal(to_clusters[:, column], nearest)
    monkeypatch.setattr("fcac.model.reading._MOST_DISTANCES", 100)
    np.testing.assert_array_equal(model.transform(X), to_clusters)
    with pytest.raises(ValueError, match='"clusters" or "nodes"'):
        model.transform(X, to="sites")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "coo_matrix"])
def test_sparse_rows_are_read_like_dense_ones(form: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.poisson(rate, size=(200, 30)) for rate in (0.1, 4.0)]).astype(float)
    rows = getattr(scipy.sparse, form)(X)
    dense, site = FCAC().fit(X), np.arange(400) % 3
    model = FCAC().fit(rows)
    np.testing.assert_array_equal(model.labels_, dense.labels_)
    np.testing.assert_array_equal(model.predict(rows), dense.predict(X))
    spread = FCAC().fit(rows, groups=site)
    np.testing.assert_array_equal(spread.labels_, FCAC().fit(X, groups=site).labels_)
    np.testing.assert_array_equal(
        FCAC().fit({"a": rows, "b": rows[:50] if form != "coo_matrix" else rows}).n_clusters_, dense.n_clusters_
    )


def test_sparse_rows_are_dense_only_block_by_block() -> None:
    wide = scipy.sparse.random(20_000, 5_000, density=1e-4, format="csr", random_state=0)
    tracemalloc.start()
    n_rows = sum(len(block) for block in Rows(wide, allow_sparse=True).blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_rows == 20_000
    assert peak < 60e6, "all rows at once are 800 MB"


@pytest.mark.slow
def test_a_model_saves_itself(tmp_path: Path) -> None:
    X, _ = labelled_blobs(200, 1)
    model = FCAC().fit(X)
    model.save(tmp_path / "m.fcac")
    save(model, tmp_path / "n.fcac")
    assert (tmp_path / "m.fcac").read_bytes() == (tmp_path / "n.fcac").read_bytes()
    np.testing.assert_array_equal(load(tmp_path / "m.fcac").predict(X), model.labels_)


def test_output_as_a_frame() -> None:
    X, _ = labelled_blobs(200, 1)
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(200) + 1000)
    model = FCAC(max_nodes=20).set_output(transform="pandas").fit(frame)
    distances = model.transform(frame)
    assert isinstance(distances, pd.DataFrame)
    assert distances.shape == (200, model.n_clusters_)
    assert distances.columns.tolist() == model.get_feature_names_out().tolist()
    assert distances.columns[0] == "fcac0"
    assert distances.index.tolist() == frame.index.tolist()
    np.testing.assert_allclose(distances.to_numpy().min(axis=1), -model.score_samples(frame))
    again = FCAC(max_nodes=20).set_output(transform="pandas").fit_transform(frame)
    np.testing.assert_array_equal(again, distances)


@pytest.mark.slow
def test_in_a_pipeline() -> None:
    X, truth = labelled_blobs(600, 2)
    X = X * [1.0, 1000.0]
    pipeline = make_pipeline(StandardScaler(), FCAC())
    assert adjusted_rand_score(truth, pipeline.fit_predict(X)) > 0.9
    site = np.arange(600) % 3
    pipeline.fit(X, fcac__groups=site)
    assert list(pipeline[-1].sites_) == [0, 1, 2]
    # new rows go through the steps before as they are, and on into the last
    more, more_truth = labelled_blobs(300, 3)
    pipeline[-1].partial_fit(pipeline[:-1].transform(more * [1.0, 1000.0]), groups=site[:300])
    assert pipeline[-1].n_rounds_ == 2
    assert adjusted_rand_score(more_truth, pipeline.predict(more * [1.0, 1000.0])) > 0.9


@pytest.mark.slow
def test_in_a_pipeline_that_passes_frames_on() -> None:
    X, truth = labelled_blobs(300, 4)
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), FCAC())
    assert adjusted_rand_score(truth, pipeline.fit_predict(frame)) > 0.9
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.slow
def test_n_clusters_with_a_server_that_has_no_use_for_it_is_an_error() -> None:
    X, _ = labelled_blobs(200, 5)
    model = FCAC(server="cae-fc", n_clusters=3)
    # as scikit-learn has it: nothing is checked before fit, and parameters come and go unchanged
    assert clone(model).get_params()["n_clusters"] == 3
    for call in (model.fit, model.partial_fit, model.fit_predict):
        with pytest.raises(ValueError, match=r'n_clusters: server="cae-fc" finds the number'):
            call(X)
    assert not hasattr(model, "server_")
    with pytest.raises(ValueError, match="n_clusters"):
        model.play_stream(iter([("a", X)]), 2)
    assert model.set_params(server="communities").fit(X).n_clusters_ == 3
    assert model.set_params(server="cae-fc", n_clusters=None).fit(X).n_clusters_ >= 1


# ------------------------------------------------------------ BERTopic


class Topics:
    """What BERTopic does with its `hdbscan_model`, step by step as its documentation describes it."""

    def __init__(self, hdbscan_model: Any) -> None:
        self.hdbscan_model = hdbscan_model

    def fit_transform(self, embeddings: np.ndarray, y: Any = None) -> list[int]:
        # a model that takes no y is fitted without it
        try:
            self.hdbscan_model.fit(embeddings, y=y)
        except TypeError:
            self.hdbscan_model.fit(embeddings)
        labels = self.hdbscan_model.labels_
        documents = pd.DataFrame({"Topic": labels, "ID": range(len(embeddings))})
        sizes = documents.groupby("Topic").count().ID.sort_values(ascending=False)
        return sizes.index.tolist()

    def transform(self, embeddings: np.ndarray) -> np.ndarray:
        # hdbscan's own prediction needs prediction_data; any other model is asked to predict
        assert not hasattr(self.hdbscan_model, "prediction_data")
        labels = self.hdbscan_model.predict(embeddings)
        assert len(labels) == len(embeddings)
        return labels

    def partial_fit(self, embeddings: np.ndarray) -> list[int]:
        self.hdbscan_model.partial_fit(embeddings)
        return self.hdbscan_model.labels_.tolist()


@pytest.mark.slow
def test_as_the_cluster_model_of_bertopic() -> None:
    rng = np.random.default_rng(6)
    centres = rng.normal(0, 6, size=(4, 5))  # as of embeddings that were reduced to five dimensions
    truth = rng.integers(4, size=800)
    embeddings = (centres[truth] + rng.normal(size=(800, 5))).astype(np.float32)
    topics = Topics(FCAC())
    found = topics.fit_transform(embeddings[:600])
    assert sorted(found) == [0, 1, 2, 3]
    assert adjusted_rand_score(truth[600:], topics.transform(embeddings[600:])) > 0.99
    assert adjusted_rand_score(truth[600:], topics.partial_fit(embeddings[600:])) > 0.99
    assert list(inspect.signature(FCAC().fit).parameters)[:2] == ["X", "y"]
    # documents with given topics: y is accepted and not used
    assert Topics(FCAC()).fit_transform(embeddings[:600], y=truth[:600]) == found
