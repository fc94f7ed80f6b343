"""The tables whose traces are kept, and what is written down about each.

Rows come from a generator whose stream NumPy has frozen, through additions, multiplications and comparisons only, so
that they are the same bits everywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fcac import FCAC, load, save
from fcac.federation import Contribution
from fcac.model.lineage import rows_of
from fcac.privacy import Ledger, NodeRelease, PaperLaplace, PrivacyWarning
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.schema import Schema

#: What is traced of every case, each in a folder of its own; "ledger" only where there is one.
TRACES = ("contributions", "stored", "ledger", "labels", "tree", "lineage")
BOUNDS = [[-8.0, 8.0], [-8.0, 8.0]]
CENTRES = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])


# ------------------------------------------------------------ rows


def bell(rng: np.random.RandomState, *shape: int) -> np.ndarray:
    """Return numbers around 0 of variance 1/3 whose distribution is nearly normal, by exact arithmetic."""
    u = rng.random_sample((*shape, 4))
    return (u[..., 0] + u[..., 1]) + (u[..., 2] + u[..., 3]) - 2.0


def blobs(n: int, seed: int, centres: np.ndarray = CENTRES, spread: float = 1.0) -> np.ndarray:
    """Return points around centres."""
    rng = np.random.RandomState(seed)
    return centres[rng.randint(len(centres), size=n)] + spread * bell(rng, n, centres.shape[1])


def sites(names: str, seed: int, n: int = 300) -> dict[str, np.ndarray]:
    """Return rows for every site."""
    return {name: blobs(n, 100 * seed + i) for i, name in enumerate(names)}


def wide(n: int, seed: int) -> np.ndarray:
    """Return rows of 40 features in four clusters."""
    centres = np.where(np.random.RandomState(5).random_sample((4, 40)) < 0.5, -1.0, 1.0)
    return blobs(n, seed, centres)


def arcs(n: int, seed: int) -> np.ndarray:
    """Return two interlocked parabolas."""
    rng = np.random.RandomState(seed)
    x, upper = 2.0 * rng.random_sample(n) - 1.0, rng.random_sample(n) < 0.5
    y = np.where(upper, 1.0 - x * x, x * x - 0.5)
    return np.column_stack([np.where(upper, x, x + 1.0), y]) + 0.08 * bell(rng, n, 2)


def table(n: int, seed: int) -> pa.Table:
    """Return numbers, a skewed one, categories, a flag and a day; some values are missing."""
    rng = np.random.RandomState(seed)
    group = rng.randint(3, size=n)
    numbers = 3.0 * CENTRES[group] / 4.0 + bell(rng, n, 2)
    ward = np.where(rng.random_sample(n) < 0.9, group, rng.randint(3, size=n))
    cost = 10.0 + (2.0 + group + bell(rng, n)) ** 4
    gaps = rng.random_sample((n, 3)) < 0.1
    return pa.table(
        {
            "age": [None if g else float(v) for g, v in zip(gaps[:, 0], numbers[:, 0] * 8.0 + 50.0, strict=True)],
            "pressure": [None if g else float(v) for g, v in zip(gaps[:, 1], numbers[:, 1] + 100.0, strict=True)],
            "cost": cost,
            "ward": [None if g else ("surgery", "medicine", "ear")[w] for g, w in zip(gaps[:, 2], ward, strict=True)],
            "urgent": np.where(rng.random_sample(n) < 0.2 + 0.3 * group, "yes", "no").tolist(),
            "admitted": [f"2021-{1 + int(m):02d}-{1 + int(d):02d}" for m, d in rng.randint(12, size=(n, 2))],
        }
    )


MIXED = """\
fcac_schema = 1
bounds_are_public = true
missing = "native"

[columns]
age = { min = 0, max = 100 }
pressure = { min = 80, max = 120, scaling = "range" }
cost = { min = 1, max = 10000, scaling = "log" }
ward = { kind = "category", categories = ["surgery", "medicine", "ear"] }
urgent = { kind = "boolean" }
admitted = { kind = "date", since = "2021-01-01", min = 0, max = 400 }
"""
GAPS = """\
fcac_schema = 1
missing = "native"

[columns]
age = { min = 0, max = 100 }
pressure = { min = 80, max = 120 }
"""
TEXT = """\
fcac_schema = 1
missing = "native"

[columns]
note = { kind = "text", encoder = "wordllama:8" }
"""
WORDS = (
    ("fever", "cough", "pneumonia", "antibiotic", "lung", "breath"),
    ("fracture", "plaster", "bone", "fall", "wrist", "orthopaedic"),
    ("invoice", "payment", "insurer", "refund", "letter", "account"),
)


def notes(n: int, seed: int) -> pa.Table:
    """Return short notes on three subjects; a few are empty."""
    rng = np.random.RandomState(seed)
    subjects, words, empty = rng.randint(3, size=n), rng.randint(6, size=(n, 4)), rng.random_sample(n) < 0.03
    texts = [
        None if none else " ".join(WORDS[subject][word] for word in row)
        for subject, row, none in zip(subjects, words, empty, strict=True)
    ]
    return pa.table({"note": texts})


# ------------------------------------------------------------ cases


@dataclass
class Played:
    """A fitted model, new rows to label with it, and the ledger that it charged."""

    model: FCAC
    fresh: Any
    ledger: Ledger | None = None
    #: contributions that the model no longer holds
    sent: list[Contribution] = field(default_factory=list)


CASES: dict[str, Callable[[Path], Played]] = {}


def case(play: Callable[[Path], Played]) -> Callable[[Path], Played]:
    """Add a case under its function's name; it is given an empty folder."""
    CASES[play.__name__] = play
    return play


def played_rounds(names: tuple[str, ...] = ("abc", "bcd", "ad"), **settings: Any) -> FCAC:
    """Play rounds in which sites come, stay away, and come again."""
    model = FCAC(random_state=3, n_jobs=1, **settings)
    for number, present in enumerate(names, 1):
        model.partial_fit(sites(present, number))
    return model


@case
def one_site(folder: Path) -> Played:
    return Played(FCAC(random_state=0).fit(blobs(6000, 1)), blobs(500, 2))


@case
def ten_sites(folder: Path) -> Played:
    return Played(FCAC(random_state=0).fit(blobs(3000, 1), groups=np.arange(3000) % 10), blobs(500, 2))


@case
def shapes(folder: Path) -> Played:
    return Played(FCAC(random_state=0).fit(arcs(3000, 1), groups=np.arange(3000) % 3), arcs(500, 2))


@case
def many_features(folder: Path) -> Played:
    return Played(FCAC(random_state=0).fit(wide(2500, 1), groups=np.arange(2500) % 4), wide(300, 2))


@case
def known_number(folder: Path) -> Played:
    return Played(FCAC(n_clusters=2, max_nodes=200, random_state=0).fit(sites("ab", 1, 900)), blobs(500, 2))


@case
def weighted(folder: Path) -> Played:
    weights = 1.0 + np.arange(1200) % 3
    return Played(FCAC(random_state=0).fit(blobs(1200, 4), sample_weight=weights), blobs(500, 2))


@case
def mixed(folder: Path) -> Played:
    rows = {name: table(500, seed) for seed, name in enumerate("abc")}
    return Played(FCAC(random_state=0).fit(rows, schema=Schema.from_toml(MIXED)), table(300, 9))


@case
def gaps(folder: Path) -> Played:
    rows = {name: table(500, seed).select(["age", "pressure"]) for seed, name in enumerate("ab")}
    model = FCAC(random_state=0).fit(rows, schema=Schema.from_toml(GAPS))
    return Played(model, table(300, 9).select(["age", "pressure"]))


@case
def text(folder: Path) -> Played:
    rows = {name: notes(400, seed) for seed, name in enumerate("ab")}
    return Played(FCAC(random_state=0).fit(rows, schema=Schema.from_toml(TEXT)), notes(200, 9))


@case
def rounds(folder: Path) -> Played:
    model = played_rounds()
    # a fourth cluster appears
    model.partial_fit({"d": np.concatenate([blobs(200, 7), blobs(300, 8) * 0.2 + [12.0, 12.0]])})
    return Played(model, blobs(500, 2))


@case
def streamed(folder: Path) -> Played:
    model = FCAC(random_state=3)
    for number in (1, 2):
        pieces = [(name, part) for name, rows in sites("ba", number).items() for part in np.array_split(rows, 3)]
        model.play_stream(iter(pieces), 2)
    return Played(model, blobs(500, 2))


@case
def without_a_site(folder: Path) -> Played:
    model = played_rounds()
    sent = [item for batch in model.server_.log for item in batch]
    return Played(model.forget("b"), blobs(500, 2), sent=sent)


@case
def half_life(folder: Path) -> Played:
    return Played(played_rounds(forgetting="half-life=2"), blobs(500, 2))


@case
def window(folder: Path) -> Played:
    return Played(played_rounds(("abc", "bc", "ad"), forgetting="window=2"), blobs(500, 2))


@case
def paper(folder: Path) -> Played:
    return Played(played_rounds(server="cae-fc"), blobs(500, 2))


@case
def paper_noise(folder: Path) -> Played:
    return Played(played_rounds(server="cae-fc", privacy=PaperLaplace(15.0, random_state=4)), blobs(500, 2))


@case
def released(folder: Path) -> Played:
    mechanism = NodeRelease(8.0, BOUNDS, sampler=InsecureTestSampler(1))
    return Played(played_rounds(("ab", "bc"), privacy=mechanism), blobs(500, 2))


@case
def released_mixed(folder: Path) -> Played:
    schema = Schema.from_toml(MIXED.replace("native", "drop"))
    mechanism = NodeRelease(16.0, schema.require_bounds(), sampler=InsecureTestSampler(1))
    rows = {name: table(1200, seed).drop_null() for seed, name in enumerate("ab")}
    model = FCAC(privacy=mechanism, n_jobs=1, random_state=0).fit(rows, schema=schema)
    return Played(model, table(300, 9).drop_null())


@case
def charged(folder: Path) -> Played:
    ledger = Ledger(folder / "ledger.db", budget=30.0)
    mechanism = NodeRelease(4.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(2))
    model = FCAC(privacy=mechanism, n_jobs=1, random_state=0)
    for number in (1, 2):
        rows = sites("ab", number)
        # a few people have two rows
        ids = {name: [f"{name}-{i % (len(own) - 20)}" for i in range(len(own))] for name, own in rows.items()}
        model.partial_fit(rows, record_ids=ids)
    return Played(model, blobs(500, 2), ledger)


@case
def summed(folder: Path) -> Played:
    ledger = Ledger(folder / "ledger.db", budget=30.0)
    mechanism = NodeRelease(8.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(3))
    model = FCAC(privacy=mechanism, aggregation="secure", n_jobs=1, random_state=0)
    for number in (1, 2):
        model.partial_fit(sites("abcde", number))
    return Played(model, blobs(500, 2), ledger)


# ------------------------------------------------------------ traces


def sha(data: Any) -> str:
    """Return the start of the SHA-256 of bytes, or of an array's values in a fixed byte order."""
    if isinstance(data, np.ndarray):
        kind = {"i": "<i8", "u": "<u8", "f": "<f8", "b": "|b1"}[data.dtype.kind]
        data = repr(data.shape).encode() + np.ascontiguousarray(data, dtype=kind).tobytes()
    elif not isinstance(data, bytes):
        data = json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:32]


@cache
def traces(name: str) -> dict[str, Any]:
    """Play a case and return its traces."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        played = CASES[name](Path(folder))
        model, server = played.model, played.model.server_
        sent = played.sent or [item for batch in server.log for item in batch]
        found: dict[str, Any] = {
            "contributions": [_contribution(item) for item in sent],
            "stored": _stored(played, Path(folder)),
            "labels": _labels(played),
            "tree": _tree(model),
            "lineage": [
                {k: v for k, v in row.items() if v == v} for row in rows_of(model.lineage_, server.readout.moves)
            ],
        }
        if played.ledger is not None:
            found["ledger"] = _ledger(played.ledger)
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _contribution(item: Contribution) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "site": item.site,
        "round": item.round,
        "privacy": item.privacy,
        "n_nodes": len(item.nodes),
        "rows": float(item.counts.sum()),
        "nodes": sha(item.nodes),
        "counts": sha(item.counts),
        "bytes": sha(item.to_bytes()),
    }
    if item.deviation is not None:
        facts |= {"deviation": sha(item.deviation), "count_deviation": sha(item.count_deviation)}
        facts["released_counts"] = item.counts.tolist()
    return facts


def _stored(played: Played, folder: Path) -> dict[str, Any]:
    """What sites and server keep, clusters aside; the file of a model holds the same after it was loaded and saved."""
    model = played.model
    meta, arrays = model.server_.to_parts()
    facts: dict[str, Any] = {
        "sites": {str(name): _parts(*site.to_parts()) for name, site in model.sites_.items()},
        "log": _parts(
            {key: meta[key] for key in ("kind", "random_state", "n_clusters", "entries", "statements")},
            {key: array for key, array in arrays.items() if key.startswith("log_")},
        ),
    }
    if getattr(getattr(model, "privacy", None), "sampler", None) is None:  # test noise is not to be saved
        save(model, folder / "model.fcac")
        again = load(folder / "model.fcac")
        save(again, folder / "again.fcac")
        facts["again"] = (folder / "again.fcac").read_bytes() == (folder / "model.fcac").read_bytes()
        facts["predicts"] = bool(np.array_equal(again.predict(played.fresh), model.predict(played.fresh)))
    return facts


def _parts(meta: dict[str, Any], arrays: dict[str, Any]) -> dict[str, str]:
    # names of receipts are drawn
    plain = re.sub(r'\["[0-9a-f]{16}"', '["drawn"', json.dumps(meta, sort_keys=True))
    return {"meta": sha(plain.encode())} | {key: sha(array) for key, array in sorted(arrays.items())}


def _labels(played: Played) -> dict[str, Any]:
    model = played.model
    found, counts = np.unique(model.server_.node_labels, return_counts=True)
    facts: dict[str, Any] = {
        "nodes": dict(zip(map(str, found), map(int, counts), strict=True)),
        "node_labels": sha(model.server_.node_labels),
        "predict": sha(model.predict(played.fresh)),
        "novel": sha(model.is_novel(played.fresh)),
        # in single precision: processors differ in the last bits of products of matrices
        "score_samples": sha(model.score_samples(played.fresh).astype(np.float32)),
    }
    try:
        facts["labels_"] = sha(model.labels_)
    except AttributeError:  # streamed models keep no rows
        facts["labels_"] = None
    return facts


def _tree(model: FCAC) -> dict[str, str] | None:
    if not model.server_.readout.accepts_n_clusters:
        return None
    return {str(level): sha(model.clusters_at(level)) for level in range(1, 7)}


def _ledger(ledger: Ledger) -> dict[str, Any]:
    return {
        "budget": ledger.budget,
        "delta": ledger.delta,
        "spent": {name: ledger.spent(name) for name in ledger.sites()},
        "spent by all": ledger.spent(),
        # the name of an attempt at a summed round is drawn
        "rows": [
            {
                k: re.sub(r"\([0-9a-f]{16}\)", "(drawn)", v) if isinstance(v, str) else v
                for k, v in e.items()
                if k != "time"
            }
            for e in ledger.entries()
        ],
    }
