"""What happened to clusters, as a table."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from fcac.clusters import Change
from fcac.clusters.tracking import Move
from fcac.federation.readout import ReadOut

#: Spreads from which on it is worth telling that a cluster has moved.
MOVED = 0.25

#: Events after which the set of clusters is another one.
STRUCTURAL = ("born", "died", "split", "merged")


class Lineage(list[Change]):
    """A list of `Change` that shows itself as a table, in a terminal and in a notebook.

    How far clusters have moved is part of the table, not of the list.
    """

    def __init__(self, changes: Iterable[Change] = (), moves: Iterable[Move] = ()) -> None:
        super().__init__(changes)
        self._moves = tuple(moves)

    def to_frame(self) -> Any:
        """Return the table as a data frame; without pandas, as a list of dictionaries."""
        return as_table(rows_of(self, self._moves))

    def __repr__(self) -> str:
        """Return the table as text: one line per event."""
        rows = rows_of(self, self._moves)
        return "\n".join(lines_of(rows, 60, rounds=True)) if rows else "no changes of clusters"

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = rows_of(self, self._moves)
        head, *body = _cells(rows, rounds=True)
        lines = ["".join(f"<th>{word}</th>" for word in head)]
        lines += ["".join(f"<td>{html.escape(word)}</td>" for word in line) for line in body]
        return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def rows_of(changes: Sequence[Change], moves: Sequence[Move]) -> list[dict[str, Any]]:
    """Return one dictionary for every event, in the order of rounds.

    A cluster that has moved by at least a quarter of its spread has an event of its own.
    """
    moved = {(move.round, move.cluster): move.moved for move in moves}
    mass = {(c.round, c.cluster): (c.mass_before, c.mass_after) for c in changes if c.kind in ("grew", "shrank")}
    table = [
        _row(c.round, c.kind, c.cluster, c.others, c.mass_before, c.mass_after, moved.get((c.round, c.cluster)))
        for c in changes
    ]
    for move in moves:
        if move.moved >= MOVED:
            before, after = mass.get((move.round, move.cluster), (math.nan, math.nan))
            table.append(_row(move.round, "moved", move.cluster, (), before, after, move.moved))
    return sorted(table, key=lambda row: row["round"])


def _row(
    number: int,
    event: str,
    cluster: int,
    others: tuple[int, ...],
    before: float,
    after: float,
    moved: float | None,
) -> dict[str, Any]:
    return {
        "round": number,
        "event": event,
        "cluster": cluster,
        "others": others,
        "rows_before": before,
        "rows_after": after,
        "moved": math.nan if moved is None else moved,
    }


def as_table(rows: list[dict[str, Any]]) -> Any:
    """Return a data frame if pandas is installed, and the list as it is if not."""
    try:
        import pandas as pd
    except ImportError:
        return rows
    columns = ("round", "event", "cluster", "others", "rows_before", "rows_after", "moved")
    return pd.DataFrame(rows, columns=list(columns))


def told_before_latest(readout: ReadOut) -> tuple[int, int]:
    """Return how many of them are older than the latest round in which anything happened."""
    latest = max((event.round for event in (*readout.lineage, *readout.moves)), default=0)
    return sum(c.round < latest for c in readout.lineage), sum(m.round < latest for m in readout.moves)


def moves_to_json(moves: Sequence[Move]) -> list[list[Any]]:
    """Return moves as JSON values; a cluster that had no spread has moved by infinitely many, which JSON cannot say."""
    return [[m.round, m.cluster, m.moved if math.isfinite(m.moved) else None] for m in moves]


def moves_from_json(values: Any) -> list[Move]:
    """Read :func:`moves_to_json`."""
    return [Move(int(number), int(name), math.inf if by is None else float(by)) for number, name, by in values]


def lines_of(rows: Sequence[dict[str, Any]], most: int = 20, *, rounds: bool = False) -> list[str]:
    """Return events as lines of text with a heading; with `rounds`, each begins with the number of its round."""
    lines = _cells(rows[:most], rounds=rounds)
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    text = [
        "  ".join(word.rjust(w) if k else word.ljust(w) for k, (word, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    if len(rows) > most:
        text.append(f"and {len(rows) - most:,} more")
    return [line.rstrip() for line in text]


def _cells(rows: Sequence[dict[str, Any]], *, rounds: bool) -> list[tuple[str, ...]]:
    """Return a heading and one line of words for every event."""
    lines: list[tuple[str, ...]] = [("round", "event", "cluster", "others", "rows before", "rows after", "moved")]
    lines += [
        (
            str(row["round"]),
            str(row["event"]),
            str(row["cluster"]),
            " ".join(map(str, row["others"])),
            _number(row["rows_before"]),
            _number(row["rows_after"]),
            "" if math.isnan(row["moved"]) else f"{row['moved']:.2f}",
        )
        for row in rows
    ]
    return lines if rounds else [line[1:] for line in lines]


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"
