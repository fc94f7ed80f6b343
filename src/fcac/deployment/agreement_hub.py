"""The hub's side of an agreement on bounds and levels: questions, stored answers, and the schema that follows.

Everything is in ``state/agreement`` of the federation: the schema before, the answers of each stage, and the bins of
the second one. A run that was interrupted goes on where it stopped, and nobody is asked, or pays, twice. The agreed
schema replaces ``schema.toml`` of the federation, before the first round.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fcac import persistence
from fcac._text import counted
from fcac._typing import Floats
from fcac.deployment.hub import Hub
from fcac.deployment.settings import schema_digest
from fcac.exceptions import SchemaError
from fcac.privacy.agreement import SCALINGS, agreed_schema, fine_edges, open_columns
from fcac.privacy.agreement_counts import COARSE, NoisedCounts
from fcac.tables.column import Column
from fcac.tables.schema import Schema

#: Where, below the federation's state, an agreement is kept.
FOLDER = "agreement"

_HEAD = "# Bounds, centre, spread and levels of some columns were agreed on by the sites, under differential privacy.\n"
_MOST_BYTES = 2_000_000


class AgreementHub:
    """An agreement as far as it has got; with `levels`, on those of categories too, with this
    scaling of its columns.
    """

    def __init__(self, root: Path, hub: Hub, levels: bool = True, scaling: str = "standard") -> None:
        self.root, self.hub = root, hub
        self.folder = hub.state / FOLDER
        if hub.settings.summing is not None:
            raise ValueError(
                "the sites of this study are summed, which needs bounds from the start: agree on them in a study "
                "without --aggregation secure, and make this one from its schema.toml"
            )
        if scaling not in SCALINGS:
            raise ValueError(f"--scaling must be one of {', '.join(SCALINGS)}, not {scaling}")
        before = self.folder / "before.toml"
        if not before.exists():
            if hub.store.closed:
                raise ValueError(
                    "rounds were played with the present schema: it cannot change in the middle of a study"
                )
            open_columns(hub.settings.schema, levels)  # refuses if there is nothing to agree on
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write("plan.json", json.dumps({"levels": levels, "scaling": scaling}))
            self._write("before.toml", hub.settings.schema.to_toml())
        plan = json.loads((self.folder / "plan.json").read_text("utf-8"))
        self.levels, self.scaling = bool(plan["levels"]), str(plan["scaling"])
        self.before = Schema.load(before)
        self.numbers, self.categories = open_columns(self.before, self.levels)

    @property
    def stage(self) -> str:
        """What comes next: "coarse", "fine", or "done"."""
        if (self.folder / "agreed.toml").exists():
            return "done"
        return "fine" if (self.folder / "edges.json").exists() else "coarse"

    def request(self) -> bytes:
        """Return the question of the present stage; the same for every site."""
        asked: dict[str, Any] = {"stage": self.stage, "of": schema_digest(self.before), "levels": self.levels}
        if self.stage == "fine":
            asked["edges"] = json.loads((self.folder / "edges.json").read_text("utf-8"))
        elif self.stage == "done":
            schema = (self.folder / "agreed.toml").read_text("utf-8")
            asked = {"stage": "schema", "of": schema_digest(self.before), "schema": schema}
        return json.dumps(asked).encode()

    def missing(self) -> list[str]:
        """Return the sites that are to be asked in this stage: in the second, those that answered in the first."""
        if self.stage == "done":
            return self.hub.settings.active
        asked = self.hub.settings.active if self.stage == "coarse" else sorted(self._answers("coarse"))
        return [site for site in asked if not self._path(self.stage, site).exists()]

    def take(self, site: str, data: bytes) -> None:
        """Check and keep the answer of a site; ValueError if it is none."""
        if len(data) > _MOST_BYTES:
            raise ValueError(f"the answer has {len(data):,} bytes; {_MOST_BYTES:,} are accepted")
        self._read(data, self.stage)
        path = self._path(self.stage, site)
        path.parent.mkdir(exist_ok=True)
        persistence.write_atomic(path, data)

    def close_stage(self) -> None:
        """Go on to the next stage with what has arrived; an error if that does not suffice."""
        stage = self.stage
        answers = self._answers(stage)
        if not answers:
            raise ValueError(f"no site sent its {stage} counts: see `fcac federation status {self.root}`")
        if stage == "coarse" and self.numbers:
            edges = fine_edges(list(answers.values()), self.numbers)
            self._write("edges.json", json.dumps([[float(e[0]), float(e[-1]), len(e) - 1] for e in edges]))
            return
        coarse = self._answers("coarse")
        if stage == "fine" and set(answers) != set(coarse):
            lacking = ", ".join(sorted(set(coarse) - set(answers)))
            raise ValueError(
                f"no fine counts came from {lacking}, who sent coarse ones: run this again when they are back"
            )
        fine = list(answers.values()) if stage == "fine" else []
        schema = agreed_schema(
            self.before, self.numbers, self.categories, list(coarse.values()), self._edges(), fine, self.scaling
        )
        text = _HEAD + schema.to_toml()
        persistence.write_atomic(self.root / "schema.toml", text.encode())
        self._write("agreed.toml", text)  # last: with it, the agreement is complete
        self.hub.note("agreed", sites=sorted(coarse), columns=len(self.numbers) + len(self.categories))

    def schema(self) -> Schema:
        """Return the agreed schema."""
        return Schema.load(self.folder / "agreed.toml")

    def in_words(self) -> list[str]:
        """Return what was agreed on, one line a column."""
        agreed = {column.name: column for column in self.schema().fields}
        return [_described(agreed[column.name]) for column in (*self.numbers, *self.categories)]

    # ------------------------------------------------------------ files

    def _edges(self) -> list[Floats]:
        path = self.folder / "edges.json"
        found = json.loads(path.read_text("utf-8")) if path.exists() else []
        return [np.linspace(low, high, n + 1) for low, high, n in found]

    def _answers(self, stage: str) -> dict[str, NoisedCounts]:
        files = sorted((self.folder / stage).glob("*.fcac"))
        return {file.stem: self._read(file.read_bytes(), stage) for file in files}

    def _read(self, data: bytes, stage: str) -> NoisedCounts:
        if stage == "coarse":
            return NoisedCounts.from_bytes(data, [len(COARSE) - 1] * len(self.numbers), len(self.categories))
        return NoisedCounts.from_bytes(data, [len(edges) - 1 for edges in self._edges()], 0)

    def _path(self, stage: str, site: str) -> Path:
        return self.folder / stage / f"{site}.fcac"

    def _write(self, name: str, text: str) -> None:
        persistence.write_atomic(self.folder / name, text.encode())


def _described(column: Column) -> str:
    if column.how.name == "category":
        if column.categories is None:
            return f"{column.name}: no level is frequent enough; every level keeps its public code"
        return f"{column.name}: {counted(len(column.categories), 'level')}"
    if column.center is None or column.min is None or column.max is None:
        raise SchemaError(f"column {column.name!r} has no bounds")
    return (
        f"{column.name}: {column.min:.4g} to {column.max:.4g}, centre {column.center:.4g}, spread {column.spread:.4g}"
    )
