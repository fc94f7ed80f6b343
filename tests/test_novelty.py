"""There is one meaning of "novel": Python, commands, exports, sites and the report agree row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from fcac import CAEFC, FCAC, CAPlus, load, novelty, persistence, save
from fcac.cli import run
from fcac.clusters import Communities
from fcac.codebook import Codebook
from fcac.deployment.shared_codebook import for_sites
from fcac.federation import Server, Site
from fcac.model import storage
from fcac.model.assembly import condenser_of
from fcac.report.report_data import gather
from fcac.tables.schema import Column, Schema

SERVERS = ("cae-fc", "communities")
SCHEMA = Schema([Column("b", min=-20, max=40, scaling="range"), Column("a")])


def learned(seed: int = 0, n: int = 3000) -> np.ndarray:
    """Three blobs of unequal width, in features of unequal spread."""
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=n)
    return (which[:, None] * 6.0 + rng.normal(size=(n, 2)) * np.array([0.3, 1.0, 2.0])[which, None]) * [1.0, 3.0]


def mixed(seed: int = 1, n: int = 1500) -> np.ndarray:
    """Fresh rows, rows between and around the blobs, and rows far away."""
    rng = np.random.default_rng(seed)
    rows = [learned(seed, n // 2), rng.uniform(-10, 25, size=(n // 3, 2)) * [1.0, 3.0]]
    return np.concatenate([*rows, rng.normal(size=(n - n // 2 - n // 3, 2)) * 300])


def fitted(server: str, n_sites: int, **kwargs: Any) -> FCAC:
    X = learned()
    return FCAC(server=server, random_state=0, **kwargs).fit(X, groups=np.arange(len(X)) % n_sites)


def told_by_the_command(model: Any, X: np.ndarray, folder: Path, names: tuple[str, str] = ("a", "b")) -> pa.Table:
    save(model, folder / "model.fcac")
    pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), folder / "rows.parquet")
    made = ["predict", "model.fcac", "rows.parquet", "--out", "labels.parquet", "--force"]
    assert run([str(folder / word) if "." in word else word for word in made]) == 0
    return pq.read_table(folder / "labels.parquet")


# ------------------------------------------------------------ everybody agrees


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("n_sites", [1, 5])
def test_python_command_and_export_agree_on_every_row(server: str, n_sites: int, tmp_path: Path) -> None:
    model, X = fitted(server, n_sites), mixed()
    novel = model.is_novel(X)
    assert 100 < novel.sum() < len(X) - 100
    told = told_by_the_command(model, X, tmp_path)
    assert told["novel"].to_pylist() == novel.tolist()
    assert told["label"].to_pylist() == model.predict(X).tolist()
    np.testing.assert_array_equal(told["distance"].to_numpy(), -model.score_samples(X))
    whole = model.export(share_nodes=True)
    np.testing.assert_array_equal(whole.is_novel(X), novel)
    np.testing.assert_array_equal(whole.nearest(X)[1], -model.score_samples(X))
    told_by_book = told_by_the_command(whole, X, tmp_path)
    for column in ("label", "distance", "novel"):
        assert told_by_book[column].equals(told[column])


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("n_sites", [1, 3])
def test_with_a_schema_python_command_and_export_agree(server: str, n_sites: int, tmp_path: Path) -> None:
    raw, X = learned()[:, ::-1], mixed()[:, ::-1]
    inside = lambda rows: np.column_stack([(rows[:, 0] + 20) / 60, rows[:, 1]])  # noqa: E731
    pieces = iter([(f"s{i}", inside(raw)[i::n_sites]) for i in range(n_sites)])
    model = FCAC(server=server, random_state=0).play_stream(pieces, 2, ["b", "a"], schema=SCHEMA)
    table = pa.table({"a": X[:, 1], "b": X[:, 0]})
    pa_csv.write_csv(table, tmp_path / "rows.csv")
    told = {}
    for name, source in (("model", model), ("book", model.export(share_nodes=True)), ("means", model.export())):
        save(source, tmp_path / f"{name}.fcac")
        out = tmp_path / f"{name}.parquet"
        assert run(["predict", str(tmp_path / f"{name}.fcac"), str(tmp_path / "rows.csv"), "--out", str(out)]) == 0
        told[name] = pq.read_table(out)["novel"].to_numpy()
    from fcac.tables import open_tables

    read = np.concatenate([batch.block for batch in open_tables([tmp_path / "rows.csv"], SCHEMA).batches()])
    novel = model.is_novel(table.to_pandas())
    np.testing.assert_array_equal(model.is_novel(read), novel)
    assert 0 < novel.sum() < len(novel)
    np.testing.assert_array_equal(told["model"], novel)
    np.testing.assert_array_equal(told["book"], novel)
    np.testing.assert_array_equal(told["means"], model.export().is_novel(read))


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
def test_a_saved_model_means_the_same(server: str, tmp_path: Path) -> None:
    model, X = fitted(server, 3), mixed()
    save(model, tmp_path / "m.fcac")
    np.testing.assert_array_equal(load(tmp_path / "m.fcac").is_novel(X), model.is_novel(X))
    book = model.export()
    save(book, tmp_path / "b.fcac")
    again = load(tmp_path / "b.fcac")
    np.testing.assert_array_equal(again.reach, book.reach)
    np.testing.assert_array_equal(again.is_novel(X), book.is_novel(X))


def test_equal_distances_are_told_apart_in_the_same_way(tmp_path: Path) -> None:
    """Rows on a lattice lie equally far from several nodes, whose reach and cluster may differ."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 12, size=(800, 2)).astype(float) * [1.0, 4.0]
    model = FCAC(server="communities").fit(X, groups=np.arange(len(X)) % 4)
    rows = np.stack(np.meshgrid(np.arange(-6, 18, 0.5), np.arange(-24, 72, 2.0)), -1).reshape(-1, 2)
    whole = model.export(share_nodes=True)
    np.testing.assert_array_equal(whole.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(whole.is_novel(rows), model.is_novel(rows))
    assert told_by_the_command(model, rows, tmp_path)["novel"].to_pylist() == model.is_novel(rows).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_export_measures_as_the_model_does_to_the_last_bit(seed: int) -> None:
    """Features of very unequal spread are weighted; a weight must not be rounded on its way into the export."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 7)) * np.exp(rng.normal(scale=3, size=7))
    rows = rng.normal(size=(500, 7)) * X.std(axis=0) * 2
    for server in SERVERS:
        model = FCAC(server=server, random_state=0).fit(X)
        book = storage.from_bytes(storage.to_bytes(model.export(share_nodes=True)))
        np.testing.assert_array_equal(book.nearest(rows)[1], -model.score_samples(rows))


@pytest.mark.parametrize("kind", [CAPlus, CAEFC])
def test_single_clusterers_and_the_command_agree(kind: Any, tmp_path: Path) -> None:
    model, rows = kind().fit(learned()), mixed()
    novel = model.is_novel(rows)
    np.testing.assert_array_equal(novel, model.score_samples(rows) < -model.threshold_)
    assert told_by_the_command(model, rows, tmp_path)["novel"].to_pylist() == novel.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
def test_the_report_counts_the_same_rows(server: str) -> None:
    model, rows = fitted(server, 3), mixed()
    found = gather(model, rows=rows).novelty
    assert found is not None
    assert found.n_novel == int(model.is_novel(rows).sum())
    assert found.n_rows == len(rows)


# ------------------------------------------------------------ what is handed out


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("n_sites", [1, 6])
def test_means_that_are_handed_out_call_nearly_the_same_rows_novel(server: str, n_sites: int) -> None:
    X, rows = learned(), mixed()
    hub = Server(server)
    hub.absorb([Site(f"s{i}").contribute(X[i::n_sites]) for i in range(n_sites)])
    book = for_sites(hub)
    assert book is not None
    ours, theirs = hub.label_rows(rows)[2], book.is_novel(rows)
    far = np.abs(rows).max(axis=1) > 150
    assert theirs[far].all()
    fresh = learned(seed=9)
    # a mean stands for a region; it must not raise more alarms than the nodes it stands for
    assert book.is_novel(fresh).mean() <= hub.label_rows(fresh)[2].mean() + 0.01
    assert (ours == theirs).mean() > 0.8
    through = storage.from_bytes(storage.to_bytes(book))
    np.testing.assert_array_equal(through.is_novel(rows), theirs)


@pytest.mark.slow
def test_released_nodes_are_read_by_sites_as_by_the_server() -> None:
    from fcac.federation import Contribution

    statement = {"mechanism": "NodeRelease", "epsilon": 1.0, "delta": 1e-6}
    X, rows = learned(n=300), mixed()
    for kind in SERVERS:
        hub = Server(kind)
        parts = [Contribution(s, 1, X[i::2], np.ones(150, np.int64), statement) for i, s in enumerate("ab")]
        hub.absorb(parts)
        book = for_sites(hub)
        assert book is not None
        np.testing.assert_array_equal(book.is_novel(rows), hub.label_rows(rows)[2])
        np.testing.assert_array_equal(book.predict(rows), hub.predict(rows))


# ------------------------------------------------------------ the definition and its stored form


def test_a_row_is_novel_beyond_the_reach_of_its_own_nearest_prototype() -> None:
    book = Codebook([[0.0], [10.0]], [0, 1], reach=[1.0, 4.0])
    assert book.is_novel([[1.0], [1.5], [6.0], [5.9], [14.5]]).tolist() == [False, True, False, True, True]
    assert book.threshold == 4.0
    assert novelty.is_novel(np.array([0, 1]), np.array([2.0, 2.0]), book.reach).tolist() == [True, False]


def test_codebook_files_with_one_threshold_stay_as_they_were() -> None:
    for threshold in (0.25, None):
        header = {
            "estimator": "Codebook",
            "params": {},
            "versions": {"fcac": "0.2.0", "numpy": "1", "python": "3"},
            "bandwidth": None,
            "threshold": threshold,
            "feature_names": None,
        }
        arrays = {"nodes": np.arange(6.0).reshape(3, 2), "labels": np.array([0, 0, 1]), "scale": np.array([0.1, 3.0])}
        book = storage.from_bytes(persistence.pack("model", header, arrays))
        limit = np.inf if threshold is None else threshold
        assert book.threshold == limit
        assert book.reach.tolist() == [limit] * 3
        meta, stored = book._to_parts()
        assert {name: header[name] for name in meta} == meta
        assert set(stored) == set(arrays)
        assert all(np.array_equal(stored[name], arrays[name]) for name in arrays)
        again = storage.to_bytes(book)
        assert storage.to_bytes(storage.from_bytes(again)) == again


def test_a_reach_that_makes_no_sense_is_refused() -> None:
    for reach in ([1.0], [1.0, -1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="reach"):
            Codebook([[0.0], [1.0]], [0, 1], reach=reach)
    with pytest.raises(ValueError, match="reach"):
        Codebook([[0.0], [1.0]], [0, 1], reach=[1.0, 2.0], threshold=2.0)


def test_one_node_alone_knows_only_itself() -> None:
    model = Communities().set_site("a", [[1.0, 2.0]], [5.0]).fit()
    assert model.is_novel([[1.0, 2.0], [1.0, 2.1]]).tolist() == [False, True]


# ------------------------------------------------------------ a rate of false alarms

KINDS = {
    "gauss2": lambda n, rng: gaussians(n, 2, rng),
    "gauss50": lambda n, rng: gaussians(n, 50, rng),
    "cube": lambda n, rng: rng.uniform(size=(n, 3)),
    "t3": lambda n, rng: rng.standard_t(3, size=(n, 5)),
    "lognormal": lambda n, rng: np.exp(rng.normal(size=(n, 4))),
}


def gaussians(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    centres = np.random.default_rng(d).normal(size=(8, d)) * 8
    return centres[rng.integers(8, size=n)] + rng.normal(size=(n, d))


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("n_sites", [1, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_about_alpha_of_fresh_rows_are_novel(kind: str, n_sites: int, server: str) -> None:
    rng = np.random.default_rng(11)
    X, fresh = KINDS[kind](8000, rng), KINDS[kind](8000, rng)
    settings = {} if server == "cae-fc" else {"max_nodes": 4000 // n_sites}
    model = FCAC(server=server, random_state=0, **settings).fit(X, groups=np.arange(len(X)) % n_sites)
    assert 0.003 < model.is_novel(fresh).mean() < 0.03
    assert 0.06 < model.is_novel(fresh, alpha=0.1).mean() < 0.15
    assert 0.003 < model.export().is_novel(fresh).mean() < 0.03
    far = X.mean(axis=0) + 10 * X.std(axis=0) + rng.normal(size=(200, X.shape[1]))
    assert model.is_novel(far).mean() > 0.99
    assert model.export().is_novel(far).mean() > 0.99


@pytest.mark.slow
def test_the_rate_holds_where_many_rows_share_a_node() -> None:
    rng = np.random.default_rng(2)
    for kind in ("gauss50", "cube"):
        model = FCAC(max_nodes=200).fit(KINDS[kind](40_000, rng))
        assert 0.003 < model.is_novel(KINDS[kind](20_000, rng)).mean() < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("alpha", [0.001, 0.2])
def test_a_rate_means_the_same_everywhere(server: str, alpha: float, tmp_path: Path) -> None:
    model, X = fitted(server, 4), mixed()
    novel = model.is_novel(X, alpha=alpha)
    assert (novel != model.is_novel(X)).any()
    for kind in (model, model.export(share_nodes=True)):
        save(kind, tmp_path / "m.fcac")
        np.testing.assert_array_equal(load(tmp_path / "m.fcac").is_novel(X, alpha=alpha), novel)
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "rows.parquet")
        out = tmp_path / "out.parquet"
        words = ["predict", str(tmp_path / "m.fcac"), str(tmp_path / "rows.parquet"), "--out", str(out), "--force"]
        assert run([*words, "--alpha", str(alpha)]) == 0
        assert pq.read_table(out)["novel"].to_pylist() == novel.tolist()
    assert run([*words, "--alpha", "2"]) == 2


@pytest.mark.slow
def test_rounds_and_forgetting_a_site_measure_anew() -> None:
    rng = np.random.default_rng(4)
    here, there = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2)) + 50
    model = FCAC().fit({"a": here})
    assert model.is_novel(there).all()
    model.partial_fit({"b": there})
    assert not model.is_novel(there).all()
    model.forget("b")
    assert model.is_novel(there).all()
    np.testing.assert_array_equal(model.is_novel(here), FCAC().fit({"a": here}).is_novel(here))


@pytest.mark.slow
def test_chunks_and_order_do_not_change_the_rate() -> None:
    rows, X = learned(), mixed()
    whole = FCAC(max_nodes=500).fit({"a": rows})
    pieces = iter([("a", rows[:700]), ("a", rows[700:701]), ("a", rows[701:])])
    streamed = FCAC(max_nodes=500).play_stream(pieces, 2)
    assert streamed.novelty_reach(0.05) == whole.novelty_reach(0.05)
    np.testing.assert_array_equal(whole.is_novel(X), streamed.is_novel(X))


def test_released_nodes_give_a_guess_and_no_more() -> None:
    from fcac.privacy import NodeRelease

    rows, X = learned(), mixed()
    bounds = np.column_stack([rows.min(axis=0), rows.max(axis=0)])
    model = FCAC(privacy=NodeRelease(8.0, bounds)).fit(rows)
    assert model.novelty_reach() is None
    np.testing.assert_array_equal(model.is_novel(X), model.server_.label_rows(X)[2])
    book = model.export()
    with pytest.warns(UserWarning, match="calibrate_novelty") as warned:
        guessed = model.is_novel(X, alpha=0.05)
    assert len(warned) == 1
    np.testing.assert_array_equal(guessed, book.is_novel(X, alpha=0.05))
    with pytest.warns(UserWarning, match="is a guess"):
        assert model.is_novel(X, alpha=0.01).sum() <= model.is_novel(X, alpha=0.2).sum()
    with pytest.raises(ValueError, match="alpha"):
        model.is_novel(X, alpha="0.1")


def test_what_is_no_rate_is_refused() -> None:
    model = fitted("communities", 1)
    for alpha in (0, 1, -0.1, 2.0, "0.1", True, np.nan):
        with pytest.raises(ValueError, match="alpha"):
            model.is_novel(mixed(), alpha=alpha)
    for distances in (np.zeros(3), np.arange(49.0), np.full(49, np.nan)):
        with pytest.raises(ValueError, match="calibration"):
            novelty.Calibration(distances)


@pytest.mark.slow
def test_a_site_measures_the_model_it_fetches_by_its_own_rows(tmp_path: Path) -> None:
    from fcac.federation.asking import calibrated_at_site

    rng = np.random.default_rng(5)
    for server in SERVERS:
        condenser = condenser_of(FCAC(server=server))
        sites = [Site(f"s{i}", condenser=condenser) for i in range(5)]
        hub = Server(server)
        hub.absorb([site.contribute(gaussians(3000, 4, rng)) for site in sites])
        book = for_sites(hub)
        assert book is not None
        assert book.calibration is None
        own = calibrated_at_site(book, sites[2])
        assert 0.002 < own.is_novel(gaussians(10_000, 4, rng)).mean() < 0.03
        again = storage.from_bytes(storage.to_bytes(own))
        X = gaussians(500, 4, rng) * 1.5
        np.testing.assert_array_equal(again.is_novel(X, alpha=0.05), own.is_novel(X, alpha=0.05))
        # a site whose rows may not be looked at takes the model as it is
        assert calibrated_at_site(book, Site("new")) is book
