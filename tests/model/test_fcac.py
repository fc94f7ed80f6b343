"""The FCAC estimator: traces from client data to labels, scikit-learn habits, rounds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcac import FCAC, CAPlus, load, save
from fcac.privacy import Ledger, LocalNoise, NodeRelease, PaperLaplace, PrivacyWarning
from testing.data import draw_diagonal

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*__fcac.npz"))
if "FCAC_TRACES" in os.environ:
    TRACES = sorted(Path(os.environ["FCAC_TRACES"]).glob("*__fcac.npz"))


def rows_and_sites(seed: int = 0, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Three blobs on the diagonal, and which of four sites each row is at."""
    rng = np.random.default_rng(seed)
    return draw_diagonal(rng, n, 2, 5.0, 0.5), rng.integers(4, size=n)


def same_model(a: FCAC, b: FCAC) -> bool:
    (_, one), (_, two) = a._to_parts(), b._to_parts()
    return all(np.array_equal(one[k], two[k]) for k in one | two)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_traces(path: Path) -> None:
    trace = np.load(path)
    offsets = trace["client_X_offsets"]
    groups = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    model = FCAC(server="cae-fc", random_state=0).fit(trace["client_X"], groups=groups)
    sites = [site.model for site in model.sites_.values()]
    np.testing.assert_allclose(np.concatenate([s.nodes_ for s in sites]), trace["client_nodes"], rtol=1e-9)
    np.testing.assert_array_equal(np.concatenate([s.counts_ for s in sites]), trace["client_counts"])
    np.testing.assert_allclose([s.threshold_ for s in sites], trace["client_V"], rtol=1e-9)
    network = model.server_.readout.network
    np.testing.assert_allclose(network.nodes, trace["weights"], rtol=1e-9)
    np.testing.assert_array_equal(network.counts, trace["counts"])
    edges, ages = network.edges_with_ages()
    np.testing.assert_array_equal(np.column_stack([edges, ages]), trace["edges"])
    np.testing.assert_array_equal(model.predict(trace["Xtest"]), trace["predict"])
    assert model.n_clusters_ == trace["n_clusters"]


def test_there_are_traces() -> None:
    assert TRACES


@parametrize_with_checks([FCAC()])
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
def test_result_depends_neither_on_threads_nor_on_how_sites_are_mixed() -> None:
    X, site = rows_and_sites()
    first = FCAC(random_state=0, n_jobs=1).fit(X, groups=site)
    order = np.argsort(site, kind="stable")
    assert same_model(first, FCAC(random_state=0, n_jobs=4).fit(X, groups=site))
    assert same_model(first, FCAC(random_state=0).fit(X[order], groups=site[order]))
    assert same_model(first, FCAC(random_state=0).fit({s: X[site == s] for s in (3, 1, 0, 2)}))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "frame", "arrow", "float32"])
def test_any_kind_of_table(form: str) -> None:
    X, site = rows_and_sites(1)
    X = X.astype(np.float32).astype(float)
    expected = FCAC(random_state=0).fit(X, groups=site)
    frame = pd.DataFrame(X, columns=["a", "b"])
    tables = {
        "list": X.tolist(),
        "frame": frame,
        "arrow": pa.Table.from_pandas(frame),
        "float32": X.astype(np.float32),
    }
    model = FCAC(random_state=0).fit(tables[form], groups=pd.Series(site))
    assert same_model(expected, model)
    np.testing.assert_array_equal(model.labels_, expected.labels_)


@pytest.mark.slow
def test_site_names() -> None:
    X, site = rows_and_sites(2)
    named = np.array(["site-" + "abcd"[s] for s in site])
    by_number, by_name = FCAC(random_state=0).fit(X, groups=site), FCAC(random_state=0).fit(X, groups=named)
    assert list(by_name.sites_) == ["site-a", "site-b", "site-c", "site-d"]
    np.testing.assert_array_equal(by_number.labels_, by_name.labels_)
    mixed = FCAC(random_state=0).fit(X, groups=np.array([10 if s else "x" for s in site], dtype=object))
    assert list(mixed.sites_) == [10, "x"]


@pytest.mark.slow
def test_rounds_go_on() -> None:
    X, site = rows_and_sites(3, 900)
    model = FCAC(random_state=0).fit(X[:300], groups=site[:300])
    model.partial_fit(X[300:600], groups=site[300:600])
    model.partial_fit({7: X[600:]})
    assert model.n_rounds_ == 3
    assert list(model.sites_) == [0, 1, 2, 3, 7]
    assert sum(s.model.n_seen for s in model.sites_.values()) == 900
    assert len(model.labels_) == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"groups": [0, 1]}, "groups must name the site of each"),
        ({"groups": np.full(600, np.nan)}, "groups holds NaN"),
        ({"groups": np.array([None] * 600, dtype=object)}, "missing"),
        ({"groups": np.full(600, 0.5)}, "whole number"),
    ],
)
def test_bad_groups_change_nothing(kwargs: dict, words: str) -> None:
    X, site = rows_and_sites(4)
    model, before = FCAC(random_state=0).fit(X, groups=site), FCAC(random_state=0).fit(X, groups=site)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, **kwargs)
    assert same_model(model, before)


@pytest.mark.slow
def test_bad_rows_change_nothing() -> None:
    X, site = rows_and_sites(4)
    model, before = FCAC(random_state=0).fit(X, groups=site), FCAC(random_state=0).fit(X, groups=site)
    bad = X.copy()
    bad[599, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(bad, groups=site)
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(np.ones((5, 3)))
    with pytest.raises(ValueError, match="groups is not used"):
        model.partial_fit({0: X}, groups=site)
    with pytest.raises(ValueError, match="differ in their number"):
        model.partial_fit({0: X, 1: np.ones((3, 3))})
    assert same_model(model, before)


def test_forget_is_exact() -> None:
    X, site = rows_and_sites(5, 900)
    model, without = (FCAC(server="cae-fc", random_state=0) for _ in range(2))
    for part in np.array_split(np.arange(900), 3):
        model.partial_fit(X[part], groups=site[part])
        part = part[site[part] != 2]
        without.partial_fit(X[part], groups=site[part])
    assert same_model(model.forget(2), without)
    with pytest.raises(ValueError, match="no contribution of site 2"):
        model.forget(2)
    with pytest.raises(ValueError, match="only one"):
        FCAC().fit(X).forget(0)


@pytest.mark.slow
def test_saved_model_goes_on_as_the_original(tmp_path) -> None:
    X, site = rows_and_sites(6, 900)
    model = FCAC(random_state=0).fit(X[:400], groups=site[:400])
    save(model, tmp_path / "m.fcac")
    again = load(tmp_path / "m.fcac")
    assert same_model(model, again)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    model.partial_fit(X[400:], groups=site[400:])
    again.partial_fit(X[400:], groups=site[400:])
    assert same_model(model, again)
    again.forget(1)


def test_stream_equals_table() -> None:
    X, site = rows_and_sites(7)
    table = FCAC(random_state=0).fit(X, groups=site)
    pieces = ((s, X[i : i + 50][site[i : i + 50] == s]) for i in range(0, 600, 50) for s in range(4))
    stream = FCAC(random_state=0).play_stream(pieces, 2, ["a", "b"])
    assert same_model(table, stream)
    with pytest.raises(AttributeError, match="labels_"):
        _ = stream.labels_


def test_export_holds_only_what_predict_needs(tmp_path) -> None:
    X, site = rows_and_sites(8)
    model = FCAC(server="cae-fc", random_state=0).fit(pd.DataFrame(X, columns=["a", "b"]), groups=site)
    book = model.export()
    assert sorted(book._to_parts()[1]) == ["calibration", "labels", "nodes"]
    save(book, tmp_path / "book.fcac")
    again = load(tmp_path / "book.fcac")
    np.testing.assert_array_equal(again.predict(X), model.labels_)
    distance = -model.score_samples(pd.DataFrame(X, columns=["a", "b"]))
    np.testing.assert_allclose(again.nearest(X)[1], distance, rtol=1e-12)
    assert again.feature_names == ["a", "b"]


def test_paper_noise_is_wired_and_reproducible() -> None:
    X, site = rows_and_sites(9)

    def fitted(**kwargs) -> FCAC:
        noise = PaperLaplace(15, random_state=1, **kwargs)
        with pytest.warns(PrivacyWarning, match="not a privacy guarantee"):
            return FCAC(server="cae-fc", random_state=0, privacy=noise).fit(X, groups=site)

    model = fitted()
    assert same_model(model, fitted())
    assert not same_model(model, FCAC(server="cae-fc", random_state=0).fit(X, groups=site))
    sent = model.server_.log[0][0]
    assert sent.privacy == {"mechanism": "PaperLaplace", "epsilon": 15.0, "rounds": 1}
    # exact reproduction: every site gets default_rng(seed)
    rows = X[site == 2]
    noise = np.random.default_rng(1).laplace(scale=np.ptp(rows, axis=0) / 15, size=rows.shape)
    paper = fitted(paper_streams=True)
    np.testing.assert_array_equal(paper.sites_[2].model.nodes_, CAPlus().fit(rows + noise).nodes_)


@pytest.mark.slow
def test_private_release_is_wired(tmp_path) -> None:
    X, site = rows_and_sites(10)
    ledger = Ledger(tmp_path / "spent.db", budget=20.0)
    privacy = NodeRelease(4.0, bounds=[[-3, 13], [-3, 13]], ledger=ledger)
    model = FCAC(random_state=0, privacy=privacy).fit(X, groups=site, public_groups=True)
    model.partial_fit(X + 0.01, groups=site, public_groups=True)
    assert all(item.privacy["mechanism"] == "NodeRelease" for item in model.server_.log[1])
    assert model.server_.log[1][0].privacy["rounds"] == 2
    # sites release from one ledger, and pay together
    assert {item.privacy["spent"] for item in model.server_.log[1]} == {round(ledger.spent_at_most(), 6)}
    save(model, tmp_path / "m.fcac")
    again = load(tmp_path / "m.fcac")
    assert again.privacy == privacy
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_local_noise_is_wired() -> None:
    X, site = rows_and_sites(11)
    model = FCAC(privacy=LocalNoise(8.0, bounds=[[-3, 13], [-3, 13]])).fit(X, groups=site, public_groups=True)
    assert model.server_.log[0][0].privacy["mechanism"] == "LocalNoise"


def test_private_site_without_rows_answers_like_any_other() -> None:
    X, _ = rows_and_sites(12)
    privacy = NodeRelease(4.0, bounds=[[-3, 13], [-3, 13]])
    model = FCAC(random_state=0, privacy=privacy).fit({"a": X, "b": np.empty((0, 2))})
    assert [item.site for item in model.server_.log[0]] == ["a", "b"]
    with pytest.raises(ValueError, match="0 sample"):
        FCAC().fit({"a": X, "b": np.empty((0, 2))})


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return adjusted_rand_score(a, b) == 1.0


@pytest.mark.slow
def test_communities_are_wired(tmp_path) -> None:
    X, site = rows_and_sites(13, 1200)
    model = FCAC(server="communities").fit(X[:600], groups=site[:600])
    model.partial_fit(X[600:], groups=site[600:])
    truth = np.round(X[600:, 0] / 5.0)
    assert 3 <= model.n_clusters_ <= 4  # at this size a few rows at an edge may be taken for a cluster
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    one_shot = FCAC(server="communities")
    one_shot.fit({s: np.concatenate([X[:600][site[:600] == s], X[600:][site[600:] == s]]) for s in range(4)})
    assert same_partition(one_shot.predict(X), model.predict(X))
    labels, confidence = model.predict_with_confidence(X)
    np.testing.assert_array_equal(labels, model.predict(X))
    assert 0 < confidence.min() <= confidence.max() <= 1
    assert model.is_novel([[500.0, 500.0], X[0]]).tolist() == [True, False]
    assert len(np.unique(model.clusters_at(2))) == 2
    assert {change.kind for change in model.lineage_} >= {"born"}
    save(model, tmp_path / "m.fcac")
    again = load(tmp_path / "m.fcac")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    model.forget(2)
    again.forget(2)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    without = FCAC(server="communities").fit(
        {s: np.concatenate([X[:600][site[:600] == s], X[600:][site[600:] == s]]) for s in (0, 1, 3)}
    )
    assert same_partition(without.predict(X), model.predict(X))


def test_communities_do_not_hand_out_other_sites_nodes() -> None:
    X, site = rows_and_sites(14)
    model = FCAC(server="communities").fit(X, groups=site)
    raw = {tuple(node) for node in model.server_.nodes}
    book = model.export()
    assert not raw & {tuple(node) for node in book.nodes}
    assert np.mean(book.predict(X) == model.labels_) > 0.99
    assert not book.is_novel(X).all()
    shared = model.export(share_nodes=True)
    assert {tuple(node) for node in shared.nodes} == raw
    np.testing.assert_array_equal(shared.predict(X), model.labels_)


def test_confidence_is_for_communities() -> None:
    X, site = rows_and_sites(14)
    model = FCAC(server="cae-fc").fit(X, groups=site)
    with pytest.raises(AttributeError, match="communities"):
        model.predict_with_confidence(X)
    with pytest.raises(AttributeError, match="communities"):
        model.clusters_at(2)
    assert model.lineage_ == []
    assert model.is_novel([[500.0, 500.0], model.server_.nodes[0]]).tolist() == [True, False]


def test_labels_and_novelty_where_the_server_condenses():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    X = centres[rng.integers(3, size=6000)] + rng.normal(size=(6000, 2))
    fresh = centres[rng.integers(3, size=6000)] + rng.normal(size=(6000, 2))
    model = FCAC(max_server_nodes=1000, random_state=0).fit(X, groups=np.arange(6000) % 10)
    assert len(model.server_.nodes) == 1000
    assert (model.labels_ == model.predict(X)).mean() > 0.99
    assert 0.002 < model.is_novel(fresh, alpha=0.01).mean() < 0.03
    with pytest.raises(ValueError, match="max_server_nodes"):
        FCAC(server="cae-fc", max_server_nodes=1000).fit(X)
