"""Make the golden set: files as fcac 0.1.0 wrote them, and what came of going on with them.

It was run on fcac 0.1.0 (commit 9bdb7fb) as ``PYTHONPATH=SRC_OF_0.1.0 python tests/golden/make_v010.py``, and is kept
to show where the files come from. Do not run it on a later version: that would only prove that the version agrees with
itself. Given a folder, it writes there instead.

Two runs give the same bytes, except for what is made of keys and times: ledgers and their keys, journals, and the
certificates and public keys of ``federations/keys``. That federation is stored without any private key.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _api import (
    CAE,
    CAEFC,
    FCAC,
    CAPlus,
    CAPlusCommunities,
    Codebook,
    Contribution,
    Ledger,
    LocalNoise,
    NodeRelease,
    PaperLaplace,
    Schema,
    Server,
    Site,
    load,
    save,
)
from _steps import (
    BOUNDS,
    HERE,
    PLACE,
    UNCOMPARED,
    as_table,
    blobs,
    contribute_privately,
    give,
    go_on,
    go_on_federation,
    go_on_ledger,
    go_on_plain_site,
    go_on_private_site,
    hub_of,
    ledger_facts,
    mechanism_at,
    persons,
    play_over_grid,
    read,
    repeatable,
    settle,
    sha,
    sites,
    versions_in,
)

CLINIC = """\
# A schema with every setting in it.
fcac_schema = 1
bounds_are_public = true
missing = "drop"

[columns]
age = { min = 0, max = 100, scaling = "range" }
"body mass" = { min = 10, max = 60, scaling = "standard", center = 25, spread = 5, missing = "fill", fill = 25 }
ward = { categories = ["surgery", "medicine"] }
"""
PLANE = """\
fcac_schema = 1
bounds_are_public = true

[columns]
x = { min = -8, max = 8 }
y = { min = -8, max = 8 }
"""


def note(path: Path, facts: dict[str, Any]) -> None:
    """Write the JSON beside a file."""
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")


# ------------------------------------------------------------ models


def rounds(n: int, **settings: Any) -> FCAC:
    """Play rounds in which sites come, stay away, and come again."""
    model = FCAC(random_state=3, **settings)
    for number, names in zip(range(1, n + 1), ("abc", "bcd", "ad"), strict=False):
        with repeatable(model.privacy, number):
            model.partial_fit(sites(names, number))
    return model


def with_schema(schema: Schema, **settings: Any) -> FCAC:
    model = FCAC(random_state=1, **settings)
    for number in (1, 2):
        rows = as_table(sites("ab", number, 90), schema)
        model.play_stream(iter(rows.items()), schema.n_features, schema.feature_names, schema=schema)
    return model


def with_ledger() -> FCAC:
    mechanism = NodeRelease(2.0, BOUNDS, ledger=Ledger("fcac_release_ledger.db", budget=30.0))
    model = FCAC(privacy=mechanism, n_jobs=1, random_state=0)
    for number in (1, 2):
        rows = sites("ab", number, 60)
        with repeatable(mechanism, number):
            model.partial_fit(rows, record_ids={site: persons(site, len(block)) for site, block in rows.items()})
    return model


def models(schema: Schema) -> dict[str, Any]:
    """Return a model of every kind that can be saved."""
    names = pa.table({"height": blobs(200, 1)[:, 0], "weight": blobs(200, 1)[:, 1]})
    ages = {"diversity_threshold": 1e-5, "min_nodes": 12}
    made: dict[str, Any] = {
        "caplus": CAPlus().fit(blobs(300, 1)).partial_fit(blobs(100, 2)),
        "caplus_start": CAPlus().fit(blobs(6, 1)),
        "caplus_names": CAPlus().fit(names),
        "caplus_settings": CAPlus(**ages).fit(blobs(300, 1)),
        "cae": CAE().fit(blobs(400, 1)),
        "caefc": CAEFC().fit(blobs(400, 1)),
        "caefc_settings": CAEFC(**ages, age_iqr_factor=1.0).fit(blobs(400, 1)),
        "communities": CAPlusCommunities().fit(blobs(300, 1)).partial_fit(blobs(100, 2)),
        "communities_two": CAPlusCommunities(n_clusters=2, neighbors="exact").fit(blobs(300, 1)),
        "fcac": rounds(1),
        "fcac_rounds": rounds(3),
        "fcac_forgot": rounds(3).forget("b"),
        "fcac_int_sites": FCAC(random_state=5).fit(blobs(200, 1), groups=np.arange(200) % 2 * 8 + 2),
        "fcac_communities": rounds(1, server="communities"),
        "fcac_communities_rounds": rounds(3, server="communities"),
        "fcac_communities_two": rounds(2, server="communities", n_clusters=2),
        "fcac_schema": with_schema(schema),
        "fcac_communities_schema": with_schema(schema, server="communities"),
        "fcac_paper": rounds(2, privacy=PaperLaplace(15.0, random_state=4)),
        "fcac_paper_streams": rounds(2, privacy=PaperLaplace(15.0, random_state=4, paper_streams=True)),
        "fcac_local": rounds(2, privacy=LocalNoise(16.0, BOUNDS), n_jobs=1),
        "fcac_release": rounds(2, privacy=NodeRelease(4.0, BOUNDS, n_cells=20, random_state=2), n_jobs=1),
        "fcac_release_communities": rounds(2, server="communities", privacy=NodeRelease(8.0, BOUNDS), n_jobs=1),
        "fcac_release_ledger": with_ledger(),
    }
    for name in ("fcac_rounds", "fcac_communities_rounds", "fcac_schema", "fcac_release_communities"):
        made[f"codebook_{name}"] = made[name].export()
    made["codebook_shared"] = made["fcac_communities"].export(share_nodes=True)
    made["codebook_scaled"] = Codebook(
        [[0.0, 0.0], [3.0, 1.0]], [4, 7], scale=[1.0, 2.0], threshold=1.5, feature_names=["x", "y"], counts=[2.0, 5.5]
    )
    return made


def make_models(folder: Path, schema: Schema) -> None:
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for name, model in models(schema).items():
            path = folder / f"{name}.fcac"
            save(model, path)
            facts: dict[str, Any] = {"sha256": sha(path.read_bytes()), "versions": versions_in(path.read_bytes())}
            if "ledger" in name:
                for file in (f"{name}.db", f"{name}.db.key"):
                    shutil.copy(file, folder / file)
            facts["read"] = read(load(path), name)
            if not name.startswith("codebook"):
                later = go_on(name, load(path))
                save(later, "later.fcac")
                facts["next"] = {"sha256": sha(Path("later.fcac").read_bytes()), "read": read(later, name)}
            if "ledger" in name:
                facts["ledger"] = ledger_facts(Ledger.open(folder / f"{name}.db"))
                facts["next"]["ledger"] = ledger_facts(Ledger.open(f"{name}.db"))
            note(folder / f"{name}.json", facts)


# ------------------------------------------------------------ what sites and server send and keep


def make_contributions(folder: Path) -> None:
    with repeatable(release := NodeRelease(4.0, BOUNDS), 3):
        made = {
            "plain": Site("clinic-a").contribute(blobs(150, 1)),
            "number": Site(12).contribute(blobs(40, 2)),
            "private": Site("clinic-p", release).contribute(blobs(300, 3)),
        }
    made["empty"] = Contribution("clinic-e", 3, np.empty((0, 2)), np.empty(0, np.int64), {"mechanism": "none"})
    for name, item in made.items():
        data = item.to_bytes()
        (folder / f"{name}.fcac").write_bytes(data)
        facts = {"sha256": sha(data), "site": item.site, "round": item.round, "privacy": item.privacy}
        note(folder / f"{name}.json", facts | {"nodes": sha(item.nodes), "counts": sha(item.counts)})
    absorbed = {}
    for kind in ("cae-fc", "communities"):
        server = Server(kind, 7)
        server.absorb([made["plain"], made["private"], made["number"]])
        absorbed[kind] = {"nodes": sha(server.nodes), "labels": sha(server.node_labels)}
    note(folder / "absorbed.json", absorbed)


def make_sites(folder: Path) -> None:
    plain, private = folder / "plain", folder / "private"
    for number in (1, 2):
        Site("clinic-a", state_dir=plain).contribute(blobs(120, number))
        Site("clinic-p", mechanism_at(private, number), private).contribute(
            blobs(150, 20 + number), record_ids=persons("p", 150)
        )
    for path in private.glob("*.lock"):
        path.unlink()
    with tempfile.TemporaryDirectory() as place:
        for state, step in ((plain, go_on_plain_site), (private, go_on_private_site)):
            files = {path.name: sha(path.read_bytes()) for path in sorted(state.glob("*.fcac"))}
            came = step(Path(shutil.copytree(state, Path(place) / state.name)))
            note(state / "expected.json", {"files": files, "next": came})


def make_ledger(folder: Path) -> None:
    ledger = Ledger(folder / "ledger.db", budget=6.0)
    ledger.complete(ledger.charge("a", 0.01, round=1, batch=blobs(20, 1), what="first"))
    ledger.charge("a", 0.02, round=2, record_ids=["p1", "p2", "p1"])
    ledger.charge("b", 0.03, round=1, partition="monday")
    ledger.charge("b", 0.03, round=2, partition="tuesday")
    ledger = ledger.change_budget(7.0)
    with tempfile.TemporaryDirectory() as place:
        came = go_on_ledger(Path(shutil.copytree(folder, Path(place) / "copy")))
    note(folder / "expected.json", {"facts": ledger_facts(ledger), "next": came})


# ------------------------------------------------------------ federations


def make_federation(folder: Path, name: str) -> None:
    from fcac.flower import deploy
    from fcac.flower.service import site_settings

    with tempfile.TemporaryDirectory() as place:
        work = Path(place) / name
        work.mkdir()
        (work / "schema.toml").write_text(PLANE, "utf-8")
        deploy.init(
            work / "study",
            ["a", "b"],
            work / "schema.toml",
            insecure=name != "keys",
            server="communities" if name == "keys" else "cae-fc",
            timeout=0.2,
            wait=0.0,
        )
        (work / "schema.toml").unlink()
        privacy: dict[str, Any] = {"epsilon": 4.0, "budget": 20.0, "part_by_file": True} if name == "private" else {}
        for site in "ab":
            (work / f"data-{site}").mkdir()
            state = work / f"state-{site}"
            site_settings(work / "study" / "bundles" / site, work / f"data-{site}", state, **privacy).save(
                state / "settings.json"
            )
        for number in (1, 2):
            give(work, sites("ab", number), f"part-{number}.csv" if privacy else "rows.csv")
            if privacy:
                for i, site in enumerate("ab"):
                    contribute_privately(work, site, 10 * number + i)
                hub_of(work).close_round()
            else:
                play_over_grid(work)
        if privacy:
            # one contribution waits in the inbox of a round that is still open
            give(work, {"a": blobs(60, 40)}, "part-3.csv")
            contribute_privately(work, "a", 7)
        for path in list(work.rglob("*")):
            secret = path.is_file() and b"PRIVATE KEY" in path.read_bytes()
            if secret or path.name in UNCOMPARED or path.name.endswith(".lock"):
                path.unlink()
        for path in work.glob("state-*/settings.json"):
            path.write_text(path.read_text("utf-8").replace(str(work.resolve()), PLACE), "utf-8")
        shutil.copytree(work, folder)
        came = go_on_federation(name, settle(folder, Path(place) / "going-on"))
        note(folder / "expected.json", came)


def make_schemas(folder: Path) -> Schema:
    for name, text in (("clinic", CLINIC), ("plane", PLANE)):
        (folder / f"{name}.toml").write_text(text, "utf-8")
        schema = Schema.load(folder / f"{name}.toml")
        facts: dict[str, Any] = {
            "columns": schema.columns,
            "feature_names": schema.feature_names,
            "bounds": schema.require_bounds().tolist(),
            "to_toml": schema.to_toml(),
        }
        if name == "clinic":
            facts["apply"] = sha(as_table({"a": blobs(100, 5)}, schema)["a"])
        note(folder / f"{name}.json", facts)
    return Schema.load(folder / "clinic.toml")


def main(target: Path) -> None:
    """Make the whole set."""
    for name in ("models", "contributions", "sites", "ledger", "federations", "schemas"):
        shutil.rmtree(target / name, ignore_errors=True)
        (target / name).mkdir(parents=True)
    make_models(target / "models", make_schemas(target / "schemas"))
    make_contributions(target / "contributions")
    make_sites(target / "sites")
    make_ledger(target / "ledger")
    for name in ("open", "keys", "private"):
        make_federation(target / "federations" / name, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
