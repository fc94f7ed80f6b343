"""A site's policy: limits that no request of the hub can exceed, set by the site's own operator.

The file ``policy.toml`` in the site's state directory is written by ``fcac federation site`` when it first starts, with
cautious values, and read anew for every request. A site that is used from Python and has no such file is not limited.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment.audit_log import steady_clock
from fcac.deployment.settings import read_toml
from fcac.tables.column import Column
from fcac.tables.schema import Schema

FILE = "policy.toml"

_TEXT = """\
# What this site allows. No request of the hub can exceed it; it is read anew for every request.

[rounds]
least_interval = "{least_interval}"   # between two answered rounds: 30s, 15m, 6h, 1d
rounds_per_day = {rounds_per_day}   # in any 24 hours
epsilon_per_day = {epsilon_per_day}   # in any 24 hours; 0: only the budget limits it
new_rows = {new_rows}   # a round with fewer new rows is refused; with --epsilon it must be 0, for a refusal would tell
# how many rows are new

[release]
least_count = {least_count}   # rows behind a node that is sent; without --epsilon this protects nobody
secure_aggregation = "{secure_aggregation}"   # "required": only masked sums may leave this site

[data]
# What the operator has agreed to; the study cannot ask for other columns or other bounds.
columns = [{columns}]
# What a round costs, and what one record is; another cost or unit has to be agreed to again.
terms = [{terms}]

[hub]
tell_reasons = {tell_reasons}   # why a round was refused: pace, budget, data
tell_budget = {tell_budget}   # which part of the budget is left
"""


class PolicyRefusal(Exception):
    """The site's policy does not allow what was asked: the reason for its own log, and a code that
    the hub may be told.
    """

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Policy:
    """What a site allows.

    Parameters
    ----------
    least_interval : float
        Seconds between two rounds that are answered.
    rounds_per_day : int
    epsilon_per_day : float
        Sum of what the rounds of 24 hours may cost; 0 means no limit of its own.
    new_rows : int
        A round with fewer new rows is refused. With privacy it must be 0: see :meth:`check_with_privacy`.
    least_count : int
        Rows that must stand behind a node that is sent without privacy.
    secure_aggregation : {"no", "required"}
    columns : tuple of str
        Columns with their bounds, as :func:`described` writes them; empty if the operator was not asked yet.
    tell_reasons, tell_budget : bool
        What the hub may be told.
    terms : tuple of str
        Cost of a round and unit of privacy, as :func:`terms_of` writes them.
    """

    least_interval: float = 0.0
    rounds_per_day: int = 10**6
    epsilon_per_day: float = 0.0
    new_rows: int = 0
    least_count: int = 1
    secure_aggregation: str = "no"
    columns: tuple[str, ...] = field(default=())
    tell_reasons: bool = False
    tell_budget: bool = False
    terms: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("rounds_per_day", "new_rows", "least_count"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (1 if name == "least_count" else 0):
                raise ValueError(f"policy: {name} must be a whole number, got {value!r}")
        if not self.least_interval >= 0 or not self.epsilon_per_day >= 0:
            raise ValueError("policy: least_interval and epsilon_per_day must be at least 0")
        if self.secure_aggregation not in ("no", "required"):
            raise ValueError('policy: secure_aggregation must be "no" or "required"')

    @classmethod
    def cautious(cls, private: bool) -> Policy:
        """Return the policy with which a site begins: where rounds cost something, one an hour."""
        return cls(least_interval=3600.0 if private else 0.0, rounds_per_day=48, least_count=5)

    @classmethod
    def load(cls, folder: str | Path) -> Policy:
        """Read the policy in a state directory; the defaults if there is none."""
        path = Path(folder) / FILE
        given = read_toml(path)
        if given is None:
            return cls()
        known = {entry.name for entry in fields(cls)}
        values: dict[str, Any] = {}
        for section, entries in given.items():
            if not isinstance(entries, dict):
                raise ValueError(f"{path}: {section!r} belongs in a section")
            values |= entries
        unknown = sorted(set(values) - known)
        if unknown:
            # a limit that is misspelt would silently not hold
            raise ValueError(f"{path}: there is no setting {unknown[0]!r}")
        if "least_interval" in values:
            values["least_interval"] = seconds(str(values["least_interval"]))
        for name in ("columns", "terms"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)

    def save(self, folder: str | Path) -> Path:
        """Write the policy into a state directory."""
        text = _TEXT.format(
            least_interval=f"{self.least_interval:g}s",
            rounds_per_day=self.rounds_per_day,
            epsilon_per_day=self.epsilon_per_day,
            new_rows=self.new_rows,
            least_count=self.least_count,
            secure_aggregation=self.secure_aggregation,
            columns=_list(self.columns),
            terms=_list(self.terms),
            tell_reasons=str(self.tell_reasons).lower(),
            tell_budget=str(self.tell_budget).lower(),
        )
        path = Path(folder) / FILE
        persistence.write_atomic(path, text.encode())
        path.chmod(0o600)
        return path

    def check_request(
        self, round: int, expected: int, past: list[dict[str, Any]], epsilon: float | None, now: datetime | None = None
    ) -> None:
        """Raise :class:`PolicyRefusal` unless a new round, which would cost epsilon, may be answered now.

        `expected` is the round after the newest that this site has answered; `past` are entries of its audit log.
        """
        if round > expected + AHEAD:
            raise PolicyRefusal(f"round {round} was asked for, but the next would be {expected}", "data")
        answered = [
            (seconds_since(entry, now), float(entry.get("epsilon") or 0.0))
            for entry in past
            if entry["event"] in ("contributed", "sent late")
        ]
        # a clock that was ahead, and was put right, must not lock the site out: its stamps count for nothing
        today = [(since, cost) for since, cost in answered if 0 <= since < _DAY]
        if any(since < self.least_interval for since, _ in today):
            raise PolicyRefusal(f"the policy asks for {self.least_interval:g} seconds between two rounds", "pace")
        if len(today) >= self.rounds_per_day:
            raise PolicyRefusal(f"the policy allows {self.rounds_per_day} rounds in 24 hours", "pace")
        if self.epsilon_per_day and epsilon is not None:
            spent = sum(cost for _, cost in today)
            if spent + epsilon > self.epsilon_per_day * (1 + 1e-9):
                raise PolicyRefusal(
                    f"the policy allows epsilon = {self.epsilon_per_day:g} in 24 hours, and {spent:g} was spent",
                    "budget",
                )

    def check_new_rows(self, n_rows: int) -> None:
        """Raise :class:`PolicyRefusal` unless there are enough new rows."""
        if n_rows < self.new_rows:
            raise PolicyRefusal(f"{n_rows} rows are new, and the policy asks for {self.new_rows}", "data")

    def check_with_privacy(self, private: bool) -> None:
        """Raise :class:`PolicyRefusal` if a limit would tell, in spite of the noise, how many rows there are.

        Whether a round is refused because of few new rows depends on the rows without noise: with record ids, whoever
        can add all but one of them learns whether the last person was there.
        """
        if private and self.new_rows:
            raise PolicyRefusal(
                f"{FILE} says new_rows = {self.new_rows}, but this site has an epsilon: refusing a round with few rows "
                "would tell how many there are. Write new_rows = 0; an empty round is answered with noise",
                "data",
            )

    def check_plain(self) -> None:
        """Raise :class:`PolicyRefusal` if contributions may only leave as part of a masked sum."""
        if self.secure_aggregation == "required":
            raise PolicyRefusal("the policy asks for secure aggregation, and the study collects contributions", "data")

    def check_terms(self, terms: Sequence[str]) -> None:
        """Raise :class:`PolicyRefusal` unless the operator has agreed to this cost and unit."""
        if self.terms and tuple(terms) != self.terms:
            raise PolicyRefusal(
                "cost or unit differ from those agreed to: start the site again to look at them", "data"
            )

    def check_schema(self, schema: Schema) -> None:
        """Raise :class:`PolicyRefusal` unless the operator has agreed to these columns and bounds."""
        if self.columns and tuple(described(schema)) != self.columns:
            raise PolicyRefusal(
                "the study asks for other columns or bounds than those agreed to: start the site again to look at them",
                "data",
            )


def terms_of(epsilon: float | None, delta: float, record_id: str | None) -> list[str]:
    """Return what a round costs and what one record is, in plain words.

    Examples
    --------
    >>> from fcac.deployment.policy import terms_of
    >>> terms_of(1.0, 1e-6, "patient")
    ['epsilon = 1 for each round, at delta = 1e-06', 'for a person: all rows with one value of patient']
    """
    if epsilon is None:
        return ["without noise"]
    unit = "for one row" if record_id is None else f"for a person: all rows with one value of {record_id}"
    return [f"epsilon = {epsilon:g} for each round, at delta = {delta:g}", unit]


def seconds_since(entry: Mapping[str, Any], now: datetime | None = None) -> float:
    """Return how long ago an entry of the audit log was written; negative if a wrong clock has dated it ahead.

    While the machine has been running without a restart, its steady clock counts, which nobody sets.
    """
    boot, _, reading = str(entry.get("clock", "")).partition(" ")
    if now is None and boot and boot == steady_clock().partition(" ")[0]:
        return float(steady_clock().partition(" ")[2]) - float(reading)
    return ((now or datetime.now(UTC)) - datetime.fromisoformat(entry["time"])).total_seconds()


_DAY = 86_400.0

#: How many rounds a request may skip: a site that was away meets a later round than its own next one.
AHEAD = 100


def _list(texts: Sequence[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def described(schema: Schema) -> list[str]:
    """Return the columns of a schema with their bounds, in plain words, one text each.

    >>> from fcac.tables.schema import Column, Schema
    >>> columns = [Column("age", min=0, max=120), Column("ward", min=0, max=9)]
    >>> described(Schema(columns, bounds_are_public=True))
    ['age from 0 to 120', 'ward from 0 to 9']
    """
    return [_in_words(column) for column in schema.used]


def _in_words(column: Column) -> str:
    """Return what is asked of a column: its numbers as the table has them, and every level, whatever the encoding."""
    settings = [f"{name} {getattr(column, name)}" for name in _ENCODING if getattr(column, name) is not None]
    levels = column.categories or column.order
    if column.groups:
        levels = tuple(f"{name} ({', '.join(group)})" for name, group in column.groups.items())
    said = ""
    if column.min is not None and column.max is not None:
        said = f" from {_number(column.min)} to {_number(column.max)}"
    elif levels:
        # every level is part of what is agreed to; a few hundred are named by a digest
        text = ", ".join(map(str, levels))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        said = f": {text}" if len(text) <= _MOST_LETTERS else f": {len(levels)} levels, {text[:60]}... ({digest})"
    elif column.how.name in ("number", "category"):
        said = " (any value)"
    # the schema comes from the hub, and is shown at the site
    return plain(f"{column.name}{said}" + (f"; {', '.join(settings)}" if settings else ""), 1000)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


#: Settings that change what is read of a column; where a scaling lies is public and no concern of a site's.
_ENCODING = ("encoder", "parts", "features", "prefix")
_MOST_LETTERS = 400


def seconds(text: str) -> float:
    """Return the seconds of an interval such as 30s, 15m, 6h or 1d.

    >>> seconds("15m"), seconds("0s")
    (900.0, 0.0)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", text.strip())
    if not found:
        raise ValueError(f"{text!r}: write a number and s, m, h or d, as in 6h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
