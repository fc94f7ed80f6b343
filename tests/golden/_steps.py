"""What is done to every golden file, by the program that made the files and by the test that reads them.

Rows come from a generator whose stream NumPy has frozen, through additions and multiplications only, so that they are
the same bits everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import secrets
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _api import (
    BudgetExceeded,
    FederationSettings,
    Hub,
    InsecureTestSampler,
    Ledger,
    NodeRelease,
    PrivacyWarning,
    RepeatedBatch,
    Schema,
    Site,
    SiteAgent,
    SiteSettings,
    pack,
    run_over_grid,
)

HERE = Path(__file__).parent / "v0.1.0"
BOUNDS = [[-8.0, 8.0], [-8.0, 8.0]]
CENTRES = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
#: Stands for the folder of a federation in the paths that a site's settings hold.
PLACE = "@HERE@"
#: Left out of what is compared: times, locks, and pages for people.
UNCOMPARED = ("lock", "site.log", "report.html")


def blobs(n: int, seed: int) -> np.ndarray:
    """Return points around three centres, by exact arithmetic on uniform numbers."""
    rng = np.random.RandomState(seed)
    u = rng.random_sample((n, 2, 4))
    return CENTRES[rng.randint(3, size=n)] + ((u[..., 0] + u[..., 1]) + (u[..., 2] + u[..., 3]) - 2.0)


def sites(names: str, seed: int, n: int = 60) -> dict[str, np.ndarray]:
    """Return rows for every site."""
    return {name: blobs(n, 100 * seed + i) for i, name in enumerate(names)}


GRID = np.array([[x, y] for x in np.arange(-6.0, 6.5, 0.75) for y in np.arange(-3.0, 7.5, 0.75)])


def sha(data: Any) -> str:
    """Return the SHA-256 of bytes, or of an array's values in a fixed byte order."""
    if isinstance(data, np.ndarray):
        kind = {"i": "<i8", "f": "<f8", "b": "|b1"}[data.dtype.kind]
        data = repr(data.shape).encode() + np.ascontiguousarray(data, dtype=kind).tobytes()
    return hashlib.sha256(data).hexdigest()


# ------------------------------------------------------------ bytes of a model, whatever version wrote them


def framed(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return the safetensors frame, the header of ours in it, and the arrays' bytes, read without the package."""
    size = int.from_bytes(data[:8], "little")
    frame = json.loads(data[8 : 8 + size])
    return frame, json.loads(frame["__metadata__"]["fcac"]), data[8 + size :]


def versions_in(data: bytes) -> dict[str, str] | None:
    """Return the versions that a model file names; other files name none."""
    found: dict[str, str] | None = framed(data)[1]["meta"].get("versions")
    return found


def with_versions(data: bytes, versions: dict[str, str] | None) -> bytes:
    """Return a file as it would be if these versions of fcac, NumPy and Python had written it.

    Versions are all that may differ between two programs that write the same model; the checksum follows from them.
    """
    if versions is None:
        return data
    frame, header, arrays = framed(data)
    header["meta"]["versions"] = versions
    del header["sha256"]
    digest = hashlib.sha256(_canonical(header).encode())
    names = {"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"}
    names |= {"U8": "uint8", "BOOL": "bool"}
    for name in sorted(set(frame) - {"__metadata__"}):
        start, end = frame[name]["data_offsets"]
        shape = tuple(frame[name]["shape"])
        digest.update(f"\n{name} {names[frame[name]['dtype']]} {shape}\n".encode() + arrays[start:end])
    header["sha256"] = digest.hexdigest()
    frame["__metadata__"]["fcac"] = _canonical(header)
    text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + arrays


def _canonical(header: Any) -> str:
    return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)


# ------------------------------------------------------------ repeatable noise


@contextlib.contextmanager
def repeatable(mechanism: Any, seed: int) -> Iterator[None]:
    """Let a mechanism draw repeatable noise for a while.

    A model with test noise refuses to be saved, and rightly; here the secure sampler is put back afterwards, because
    nobody's records are in these files.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", PrivacyWarning)
        draws = random.Random(seed)
        stack.enter_context(mock.patch.object(secrets, "randbelow", lambda n: draws.getrandbits(256) % n))
        if isinstance(mechanism, NodeRelease):
            stack.enter_context(mock.patch.object(mechanism, "sampler", InsecureTestSampler(seed)))
        yield


# ------------------------------------------------------------ models


def read(model: Any, name: str) -> dict[str, str]:
    """Return digests of everything that a model says about fixed rows."""
    rows = GRID
    if "schema" in name:
        rows = np.array([[(x + 6) / 12, y / 3, float(x > 0), float(x <= 0)] for x, y in GRID])
    rows = _named(model, rows)
    found = {"predict": sha(model.predict(rows))}
    for method in ("score_samples", "is_novel", "transform"):
        if hasattr(model, method):
            found[method] = sha(getattr(model, method)(rows))
    if name.startswith("communities"):
        found["confidence"] = sha(model.predict(rows, return_confidence=True)[1])
    if getattr(model, "server", None) == "communities":
        found["confidence"] = sha(model.predict_with_confidence(rows)[1])
        found["three_clusters"] = sha(model.clusters_at(3))
    return found


def go_on(name: str, model: Any) -> Any:
    """Let a model learn the next rows: one more call, or one more round."""
    if not name.startswith("fcac"):
        return model.partial_fit(_named(model, blobs(150, 999)))
    rows = sites("abz", 99)
    if "int_sites" in name:
        rows = dict(zip((2, 10, 11), rows.values(), strict=True))
    if model.schema_ is not None:
        table = as_table(rows, model.schema_)
        return model.play_stream(iter(table.items()), model.schema_.n_features, schema=model.schema_)
    ids = {site: persons(site, len(block)) for site, block in rows.items()} if "ledger" in name else None
    with repeatable(model.privacy, 77):
        return model.partial_fit(rows, record_ids=ids)


def persons(site: Any, n: int) -> list[str]:
    """Return an id for every row; a few people have two rows."""
    return [f"{site}-{i % (n - 5)}" for i in range(n)]


def _named(model: Any, rows: np.ndarray) -> Any:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return rows
    import pyarrow as pa

    return pa.table({str(name): rows[:, j] for j, name in enumerate(names)})


def as_table(rows: dict[Any, np.ndarray], schema: Schema) -> dict[Any, np.ndarray]:
    """Return rows as the schema of the golden set makes them from a table."""
    import pyarrow as pa

    made = {}
    for site, block in rows.items():
        wards = ["surgery" if x > 0 else "medicine" for x in block[:, 0]]
        mass = [None if i % 7 == 3 else float(v) + 30.0 for i, v in enumerate(block[:, 1])]
        age = [None if i % 11 == 5 else float(v) * 5.0 + 50.0 for i, v in enumerate(block[:, 0])]
        made[site] = schema.apply(pa.table({"ward": wards, "body mass": mass, "age": age, "unused": wards}))
    return made


# ------------------------------------------------------------ sites, ledgers, federations


def mechanism_at(folder: Path, seed: int) -> NodeRelease:
    """Return the mechanism of the golden private site, with repeatable noise."""
    ledger = Ledger(folder / "ledger.db", budget=40.0)
    return NodeRelease(4.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(seed))


def go_on_plain_site(state: Path) -> dict[str, str]:
    """Ask a site for the round it has answered, and for the next."""
    site = Site("clinic-a", state_dir=state)
    again = site.contribute(round=2).to_bytes()
    sent = site.contribute(blobs(80, 33)).to_bytes()
    return {"again": sha(again), "sent": sha(sent), "state": sha((state / "site.fcac").read_bytes())}


def go_on_private_site(state: Path) -> dict[str, Any]:
    """Do the same with a private site; then play that it died before its new state was stored."""
    before = (state / "site.fcac").read_bytes()
    site = Site("clinic-p", mechanism_at(state, 5), state)
    again = site.contribute(round=2).to_bytes()
    sent = site.contribute(blobs(80, 34), record_ids=persons("p", 80)).to_bytes()
    found = {"again": sha(again), "sent": sha(sent)}
    for name in ("site.fcac", "release-000003.fcac"):
        found[name] = sha((state / name).read_bytes())
    (state / "site.fcac").write_bytes(before)
    revived = Site("clinic-p", mechanism_at(state, 6), state)
    found["sent after a crash"] = sha(revived.contribute(blobs(80, 35), round=3).to_bytes())
    return found | {"ledger": ledger_facts(Ledger.open(state / "ledger.db"))}


def ledger_facts(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger says, without the times of its entries."""
    return {
        "budget": ledger.budget,
        "delta": ledger.delta,
        "sites": {name: [ledger.spent(name), ledger.remaining(name)] for name in ledger.sites()},
        "lines": [ledger.summary_line(name) for name in ledger.sites()],
        "entries": [{k: v for k, v in entry.items() if k != "time"} for entry in ledger.entries()],
    }


def go_on_ledger(folder: Path) -> dict[str, Any]:
    """Charge what is allowed, and try what is not."""
    ledger = Ledger.open(folder / "ledger.db")
    tries: dict[str, Any] = {
        "same rows": {"site": "a", "rho": 0.01, "batch": blobs(20, 1)},
        "too dear": {"site": "a", "rho": 9.0},
        "same person": {"site": "a", "rho": 0.01, "record_ids": ["p2"]},
        "new part": {"site": "b", "rho": 0.02, "partition": "wednesday"},
        "known part": {"site": "b", "rho": 0.02, "partition": "monday"},
    }
    found = {}
    for name, charge in tries.items():
        try:
            found[name] = str(ledger.charge(**charge))
        except (BudgetExceeded, RepeatedBatch) as error:
            found[name] = type(error).__name__
    return {"tries": found, "facts": ledger_facts(ledger)}


def settle(folder: Path, target: Path) -> Path:
    """Copy a golden federation to a place where it can go on."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("expected.json"))
    for path in target.rglob("settings.json"):
        path.write_text(path.read_text("utf-8").replace(PLACE, str(target.resolve())), "utf-8")
    return target


def give(folder: Path, rows: dict[str, np.ndarray], file: str = "rows.csv") -> None:
    """Put new rows at the end of sites' files, so that they read back bit for bit."""
    for name, block in rows.items():
        path = folder / f"data-{name}" / file
        path.parent.mkdir(exist_ok=True)
        new = not path.exists()
        with path.open("a") as stream:
            stream.write("x,y\n" if new else "")
            stream.writelines(f"{float(x)!r},{float(y)!r}\n" for x, y in block)


def play_over_grid(folder: Path) -> None:
    """Play one round with all sites of a federation, by the same apps as on the wire."""
    members = FederationSettings.load(folder / "study").members
    places = sorted(folder.glob("state-*"))
    names = {100 + i: path.name.removeprefix("state-") for i, path in enumerate(places)}
    keys = {node: members[name].key for node, name in names.items() if members[name].key}
    run_over_grid({100 + i: str(path / "settings.json") for i, path in enumerate(places)}, keys, str(folder / "study"))


def hub_of(folder: Path) -> Hub:
    """Return the server's side of a federation."""
    return Hub(folder / "study" / "state", FederationSettings.load(folder / "study"))


def contribute_privately(folder: Path, name: str, seed: int) -> str:
    """Let a private site answer the open round, with repeatable noise; return what became of its delivery."""
    settings = SiteSettings.load(folder / f"state-{name}" / "settings.json")
    mechanism = settings.mechanism()
    mechanism.sampler = InsecureTestSampler(seed)
    hub = hub_of(folder)
    data = SiteAgent(settings, mechanism).contribute(hub.open_round, hub.holdings().get(name, 0))
    return hub.receive(name, data).outcome


def go_on_federation(name: str, folder: Path) -> dict[str, Any]:
    """Play one more round and then forget a site; return digests of all that lies on disk after each."""
    if name == "private":
        give(folder, {"b": blobs(90, 41)}, "second.csv")
        outcomes = [contribute_privately(folder, "b", 8), contribute_privately(folder, "a", 9)]
        hub_of(folder).close_round()
    else:
        outcomes = []
        give(folder, sites("ab", 42))
        play_over_grid(folder)
    played = tree(folder)
    hub_of(folder).forget("a")
    return {"outcomes": outcomes, "played": played, "forgotten": tree(folder / "study" / "state")}


def as_v010_wrote(root: Path) -> bytes:
    """Return the state of a hub in the form of 0.1.0."""
    snapshot = Hub(root / "state", FederationSettings.load(root)).snapshot()
    meta, arrays = snapshot.server.to_parts()
    newest = {site: list(known) for site, known in snapshot.newest.items()}
    return pack("federation", {"closed": snapshot.closed, "newest": newest, "server": meta}, arrays)


def tree(folder: Path) -> dict[str, Any]:
    """Return digests of all files whose bytes do not depend on the hour, the place or the program's version."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name == "journal.jsonl":
            lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            # since 0.2.0 the journal also says when a directory of 0.1.0 was taken over
            lines = [line for line in lines if line["event"] != "taken over"]
            found[name] = [{k: v for k, v in line.items() if k != "time"} for line in lines]
        elif path.name == "ledger.db":
            found[name] = ledger_facts(Ledger.open(path))
        elif path.suffix == ".fcac":
            # since 0.2.0 the hub keeps rounds in a store: what 0.1.0 would have written is made from it
            data = as_v010_wrote(path.parents[1]) if path.name == "server.fcac" else path.read_bytes()
            found[name] = sha(with_versions(data, {} if versions_in(data) else None))
        elif path.name in ("cursor.json", "parts.json", "nodes.json"):
            found[name] = json.loads(path.read_text("utf-8"))
    return found
