"""Everything that fcac 0.1.0 wrote still loads, is saved to the same bytes, and goes on learning to the same bits.

The files under ``v0.1.0`` were made by ``make_v010.py`` on fcac 0.1.0; the JSON beside each says what came of it there.
Digests after learning are those of one machine (x86-64, Linux): where the mathematical library rounds an exponential
differently, they may differ although nothing is wrong with the program.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from _api import (
    Contribution,
    Ledger,
    ReleasedState,
    Schema,
    Server,
    Site,
    load,
    pack,
    save,
    unpack,
)
from _steps import (
    HERE,
    as_table,
    blobs,
    go_on,
    go_on_federation,
    go_on_ledger,
    go_on_plain_site,
    go_on_private_site,
    hub_of,
    ledger_facts,
    mechanism_at,
    read,
    settle,
    sha,
    versions_in,
    with_versions,
)

MODELS = sorted((HERE / "models").glob("*.fcac"))
FEDERATIONS = sorted((HERE / "federations").iterdir())


def named(path: Path) -> str:
    return path.stem


def expected(path: Path) -> Any:
    """Return the JSON beside a file, or the one in a folder."""
    beside = path / "expected.json" if path.is_dir() else path.with_suffix(".json")
    return json.loads(beside.read_text("utf-8"))


def same(found: Any, wanted: Any) -> bool:
    """Compare facts of ledgers; costs go through logarithms, which libraries round differently."""
    found = json.loads(json.dumps(found))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else found == wanted)


def same_ledger(found: Any, wanted: Any) -> bool:
    """Compare what a ledger has recorded. Its sites share one budget since 0.2.0, so what is left of it differs."""
    spent = [{name: site[0] for name, site in facts["sites"].items()} for facts in (found, wanted)]
    return same(spent[0], spent[1]) and all(same(found[key], wanted[key]) for key in ("budget", "delta", "entries"))


def test_the_set_is_whole() -> None:
    assert len(MODELS) == len(list((HERE / "models").glob("*.json"))) == 30
    assert [path.name for path in FEDERATIONS] == ["keys", "open", "private"]
    for path in HERE.rglob("*"):
        assert not path.is_file() or b"PRIVATE KEY" not in path.read_bytes()


# ------------------------------------------------------------ models


def says(model: Any, name: str, wanted: dict[str, str]) -> bool:
    """Whether a model answers as it did; later versions can be asked more."""
    found = read(model, name)
    return {key: found[key] for key in wanted} == wanted


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=named)
def test_model(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, data = expected(path), path.read_bytes()
    assert sha(data) == facts["sha256"]
    assert with_versions(data, facts["versions"]) == data

    monkeypatch.chdir(tmp_path)  # a model names its ledger by a path
    for file in (path, *path.parent.glob(f"{path.stem}.db*")):
        shutil.copy(file, tmp_path)
    model = load(path.name)
    save(model, "again.fcac")
    again = Path("again.fcac").read_bytes()
    assert with_versions(again, facts["versions"]) == data
    if versions_in(again) == facts["versions"]:
        assert again == data
    assert says(model, path.stem, facts["read"])

    if "next" in facts:
        later = go_on(path.stem, model)
        save(later, "later.fcac")
        if "release" in path.stem:
            # a release carries the deviations of its noise since 0.2.0, and communities make use of them
            assert later.n_rounds_ == load(path.name).n_rounds_ + 1
            assert read(load("later.fcac"), path.stem) == read(later, path.stem)
        elif path.stem == "fcac_communities":
            # since 0.2.0 borders are judged otherwise: what was learned is the same bit for bit, the cut need not be
            kept = {
                key: facts["next"]["read"][key] for key in ("is_novel", "score_samples", "transform", "three_clusters")
            }
            assert says(later, path.stem, kept)
            assert read(load("later.fcac"), path.stem) == read(later, path.stem)
        else:
            assert sha(with_versions(Path("later.fcac").read_bytes(), facts["versions"])) == facts["next"]["sha256"]
            assert says(later, path.stem, facts["next"]["read"])
            # what was saved after going on reads as the model in memory does
            assert says(load("later.fcac"), path.stem, facts["next"]["read"])
    if "ledger" in facts:
        assert same_ledger(ledger_facts(Ledger.open(path.with_suffix(".db"))), facts["ledger"])
        now = Ledger.open(f"{path.stem}.db")
        assert same(now.entries()[-1]["epsilon"], facts["next"]["ledger"]["entries"][-1]["epsilon"])
        assert now.spent() <= now.budget


# ------------------------------------------------------------ contributions


@pytest.mark.parametrize("name", ["plain", "number", "private", "empty"])
def test_contribution(name: str) -> None:
    path = HERE / "contributions" / f"{name}.fcac"
    facts, data = expected(path), path.read_bytes()
    item = Contribution.from_bytes(data)
    assert item.to_bytes() == data
    assert item.digest() == sha(data) == facts["sha256"]
    assert (item.site, item.round, item.privacy) == (facts["site"], facts["round"], facts["privacy"])
    assert (sha(item.nodes), sha(item.counts)) == (facts["nodes"], facts["counts"])


@pytest.mark.parametrize("kind", ["cae-fc", "communities"])
def test_contributions_are_absorbed(kind: str) -> None:
    folder = HERE / "contributions"
    server = Server(kind, 7)
    server.absorb(
        [Contribution.from_bytes((folder / f"{name}.fcac").read_bytes()) for name in ("plain", "private", "number")]
    )
    wanted = json.loads((folder / "absorbed.json").read_text("utf-8"))[kind]
    assert {"nodes": sha(server.nodes), "labels": sha(server.node_labels)} == wanted


# ------------------------------------------------------------ sites and ledgers


@pytest.mark.parametrize("name", ["plain", "private"])
def test_site(name: str, tmp_path: Path) -> None:
    folder = HERE / "sites" / name
    facts = expected(folder)
    assert {path.name: sha(path.read_bytes()) for path in folder.glob("*.fcac")} == facts["files"]
    state = tmp_path / name
    shutil.copytree(folder, state)

    data = (state / "site.fcac").read_bytes()
    site = Site("clinic-a", state_dir=state) if name == "plain" else Site("clinic-p", mechanism_at(state, 5), state)
    assert pack("site", *site.to_parts()) == data
    for path in state.glob("release-*.fcac"):
        meta, arrays = unpack(path.read_bytes(), kind="release")
        said, held = ReleasedState.from_parts(meta["state"], arrays).to_parts()
        assert pack("release", {**meta, "state": said}, held) == path.read_bytes()

    if name == "plain":
        assert same(go_on_plain_site(state), facts["next"])
    else:
        came = go_on_private_site(state)
        assert came.keys() == facts["next"].keys()
        # a person with several rows pays once since 0.2.0
        assert same(came["ledger"]["entries"], facts["next"]["ledger"]["entries"])
        assert came["ledger"]["sites"]["clinic-p"][0] < facts["next"]["ledger"]["sites"]["clinic-p"][0]


def test_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    shutil.copytree(HERE / "ledger", folder)
    facts = expected(folder)
    assert same_ledger(ledger_facts(Ledger.open(folder / "ledger.db")), facts["facts"])
    came, wanted = go_on_ledger(folder), facts["next"]
    assert came["tries"]["too dear"] == "BudgetExceeded"
    # the same rows are charged again, and everything goes on in the numbers that follow
    assert [came["tries"][key] for key in ("same rows", "same person", "new part", "known part")] == list("6789")
    assert same(came["facts"]["sites"]["b"][0], wanted["facts"]["sites"]["b"][0])


# ------------------------------------------------------------ federations


@pytest.mark.parametrize("folder", FEDERATIONS, ids=named)
def test_federation_loads(folder: Path, tmp_path: Path) -> None:
    hub = hub_of(settle(folder, tmp_path / "copy"))
    snapshot = hub.snapshot()
    assert (snapshot.closed, sorted(snapshot.server.sites), hub.settings.active) == (2, ["a", "b"], ["a", "b"])
    assert sorted(hub.inbox()) == (["a"] if folder.name == "private" else [])
    data = (folder / hub.state.relative_to(tmp_path / "copy") / "server.fcac").read_bytes()
    meta, arrays = unpack(data, kind="federation")
    said, held = Server.from_parts(meta["server"], arrays).to_parts()
    assert pack("federation", {**meta, "server": said}, held) == data
    assert load(hub.state / "global.fcac").n_features == 2
    for site in "ab":
        sent = folder / f"state-{site}" / "sent" / "000000002.fcac"
        assert Contribution.from_bytes(sent.read_bytes()).to_bytes() == sent.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("folder", FEDERATIONS, ids=named)
def test_federation_goes_on(folder: Path, tmp_path: Path) -> None:
    if folder.name != "private":
        pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fcac[flower]'")
    came = go_on_federation(folder.name, settle(folder, tmp_path / "copy"))
    wanted = expected(folder)
    assert came["outcomes"] == wanted["outcomes"]
    for step in ("played", "forgotten"):
        # the golden noise is a test generator's: since 0.2.0 it states no guarantee, and its nodes are not handed out
        kept_back = {"global.fcac"} if folder.name == "private" and step == "forgotten" else set()
        assert came[step].keys() == wanted[step].keys() - kept_back
        for name, facts in wanted[step].items():
            if Path(name).name in ("model.fcac", "global.fcac"):
                continue  # what sites get to label rows says "novel" as everything else does, since 0.2.0
            if Path(name).name == "ledger.db":
                assert same_ledger(came[step][name], facts), f"{name}, {step}"
                continue
            if folder.name == "private" and (isinstance(facts, str) or name.endswith("journal.jsonl")):
                continue  # noise is drawn in other units since 0.2.0
            assert same(came[step][name], facts), f"{name}, {step}"


# ------------------------------------------------------------ schemas


@pytest.mark.parametrize("name", ["clinic", "plane"])
def test_schema(name: str, tmp_path: Path) -> None:
    path = HERE / "schemas" / f"{name}.toml"
    facts, schema = expected(path), Schema.load(path)
    assert (schema.columns, schema.feature_names) == (facts["columns"], facts["feature_names"])
    assert schema.require_bounds().tolist() == facts["bounds"]
    schema.save(tmp_path / "again.toml")
    assert schema.to_toml() == (tmp_path / "again.toml").read_text("utf-8") == facts["to_toml"]
    assert Schema.load(tmp_path / "again.toml") == schema
    if "apply" in facts:
        assert sha(as_table({"a": blobs(100, 5)}, schema)["a"]) == facts["apply"]


def test_the_rows_are_those_of_the_golden_set() -> None:
    """If this fails, the rows are other ones, and every other failure follows from it."""
    assert sha(blobs(100, 1)) == "d190ea56fdaad3c45383b4f5c61e93dc414e3bea295b33908f7d5df0ce284f46"
