"""The ledger: what a data owner has spent of a privacy budget, recorded on disk before any noise is drawn.

It is one SQLite file at the site, with one row per charge. A crash may waste budget but can never hide spending: a
charge is on disk before the noise it pays for exists. Costs are stored as rho (which adds up exactly) and shown as
epsilon at delta.

One ledger belongs to one owner of data. Budget, people and repeated batches are the owner's: the name under which rows
are released (a site, a file) is written down with a charge, but gives nobody a budget of its own.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcac.exceptions import BudgetExceeded, LedgerError
from fcac.privacy.account import Receipt
from fcac.privacy.ledger_file import LastCharge, LedgerFile, connect, plain_errors
from fcac.privacy.ledger_sums import for_everybody, insert, slack_of_all, spent_rho
from fcac.privacy.record_ids import batch_mark, canonical_id, check_record_ids, keyed
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon, show, up

__all__ = ["Admission", "Ledger", "RecordIds", "check_record_ids"]

RecordIds = Sequence[Any] | None


class Admission(NamedTuple):
    """A charge that was recorded, by its number, and whom it admits.

    With record ids, `admitted` says which rows may be used: the rows of people whose budget is used up must be left
    out. `spent`, the epsilon that nobody in the ledger can have exceeded so far, depends on charges only, never on
    rows, and may leave the site. `repeated` says whether exactly these rows were released before.
    """

    number: int
    receipt: Receipt
    admitted: Any
    spent: float
    repeated: bool


class Ledger(LedgerFile):
    """Privacy budget of one data owner, in one SQLite file.

    The object consists of a path, a budget and a delta; every operation opens the file, performs one transaction and
    closes it, so copies and processes can share it. All charges add up, under whatever site name they are made; with
    record ids they add up for each person, and the largest total of any person counts.

    A key is kept beside the file (``PATH.key``): ids and batches are stored only as keyed hashes. Back up both files.

    Parameters
    ----------
    path : path-like
    budget : float
        Epsilon, at delta, that may be spent per record (with ids: per person) over all rounds and sites.
    delta : float

    Examples
    --------
    >>> import tempfile, os
    >>> from fcac.privacy import Ledger
    >>> from fcac.privacy.zcdp import rho_from_epsilon
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(os.path.join(folder.name, "site.db"), budget=4.0)
    >>> number = ledger.charge("A", rho_from_epsilon(2.0, 1e-6), round=1)
    >>> ledger.summary_line("A")
    'site A: eps = 2.00 at delta = 1e-6 per record, budget 4.0'
    >>> folder.cleanup()
    """

    @classmethod
    def anew(cls, path: str | os.PathLike[str], budget: float, delta: float = 1e-6) -> Ledger:
        """Make the file of a ledger that is lost, with the key that is left of it, for :meth:`recover`."""
        ledger = cls(path, budget, delta)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(ledger.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing ledger with its own budget and delta."""
        if not Path(path).is_file():
            raise LedgerError(f"there is no ledger at {os.fspath(path)}")
        with plain_errors(os.fspath(path)), contextlib.closing(connect(os.fspath(path))) as connection:
            facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
        if "budget" not in facts:
            raise LedgerError(f"{os.fspath(path)} is not a privacy ledger")
        return cls(path, float(facts["budget"]), float(facts["delta"]))

    def admit(
        self,
        site: str,
        rho: float,
        *,
        round: int | None = None,
        batch: Any = None,
        record_ids: RecordIds = None,
        what: str = "release",
        receipts: Sequence[Receipt] = (),
        slack: float = 0.0,
        _all_or_nothing: bool = False,
    ) -> Admission:
        """Record a cost durably, or refuse it. Call this before drawing any noise.

        Whether a cost is refused depends on earlier charges only, never on rows: people who cannot afford it are left
        out instead.

        Parameters
        ----------
        site : str
            Name under which the rows are released; for the record.
        rho : float
            Cost for one person (without ids: for one record).
        round : int, optional
        batch : ndarray, optional
            The rows. If exactly the same rows, in any order, were released before, the admission says so; if they had
            other record ids then, the ids do not tell people apart, and they are refused. Changing one row evades this.
        record_ids : sequence, optional
            The person of each row; each person pays once, however many rows there are.
        what : str
            Description for human readers.
        receipts : sequence of Receipt
            Receipts for what has left the site: if the ledger does not know them, it is older than that.
        slack : float
            Probability that the release shows something that rho does not account for. It comes off delta: the slack
            of all charges must stay below half of it.

        Raises
        ------
        BudgetExceeded, LedgerError
            In that case nothing was recorded.
        """
        if not isinstance(site, str) or not site:
            raise ValueError(f"site must be a non-empty name, got {site!r}")
        if not (isinstance(rho, int | float | np.floating) and math.isfinite(rho) and rho > 0):
            raise ValueError(f"rho must be a positive number, got {rho!r}")
        if not 0.0 <= slack < self.delta / 2:
            raise ValueError(f"slack must be at least 0 and below half of delta = {show(self.delta)}, got {slack!r}")
        counted, part = "ids" if record_ids is not None else "all", None
        texts = None if record_ids is None else check_record_ids(record_ids)
        seal = secrets.token_hex(8)
        with self._transaction() as (connection, key):
            self._check_receipts(connection, receipts)
            mark = batch_mark(key, batch)
            repeated = mark is not None and bool(
                connection.execute("SELECT 1 FROM charges WHERE batch = ? AND completed = 1", (mark,)).fetchone()
            )
            if texts is not None:
                part = keyed(key, "people", repr(sorted({canonical_id(text) for text in texts})).encode()).hex()
                if mark is not None and self._under_other_ids(connection, mark, part):
                    raise LedgerError(
                        f"site {site}: exactly these rows were released with other record ids before, which do not "
                        "tell people apart then. Nothing was drawn. Name the column in which people keep their ids"
                    )
            number = insert(
                connection, site=site, round=round, rho=float(rho), what=what, counted=counted, part=part,
                batch=mark, seal=seal, slack=self._affordable_slack(connection, slack),
            )  # fmt: skip
            self._check_budget(connection, site, float(rho) if texts is not None else self._most_by_ids(connection))
            admitted = None if record_ids is None else np.ones(len(record_ids), dtype=bool)
            if texts is not None:
                admitted = self._admit_people(connection, key, site, float(rho), texts)
                if _all_or_nothing and not admitted.all():
                    raise BudgetExceeded(
                        f"site {site}: the budget of eps = {self.budget:g} is used up for people among these rows; "
                        "nothing was charged"
                    )
            spent = self._public_spent(connection)
            last = self._total(connection, seal)
        self._note_last(last)
        return Admission(number, Receipt(seal, float(rho), round or 0), admitted, spent, repeated)

    @staticmethod
    def _under_other_ids(connection: sqlite3.Connection, batch: bytes, people: str) -> bool:
        """Return whether exactly these rows were charged to other ids: whom and how much this would cost is unknown."""
        query = "SELECT 1 FROM charges WHERE batch = ? AND part IS NOT NULL AND part != ?"
        return connection.execute(query, (batch, people)).fetchone() is not None

    def _affordable_slack(self, connection: sqlite3.Connection, slack: float) -> float:
        """Return the slack of a charge, unless all charges together would take more than half of delta."""
        if slack and slack_of_all(connection) + slack > self.delta / 2:
            raise BudgetExceeded(
                f"the part of delta = {show(self.delta)} that is kept for releases of names is used up; nothing was "
                "drawn. List the levels of categories in the schema, from public knowledge"
            )
        return float(slack)

    @staticmethod
    def _total(connection: sqlite3.Connection, seal: str) -> LastCharge:
        costs = [cost for (cost,) in connection.execute("SELECT rho FROM charges")]
        return LastCharge(seal, math.fsum(costs), slack_of_all(connection))

    def _public_spent(self, connection: sqlite3.Connection) -> float:
        """Return an epsilon that nobody can have exceeded, from charges alone."""
        total = self._epsilon(connection, math.fsum(cost for (cost,) in connection.execute("SELECT rho FROM charges")))
        recovered = connection.execute("SELECT 1 FROM charges WHERE what LIKE 'recovered%'").fetchone()
        # nobody is charged beyond the budget; only what was recovered is charged whatever the budget is
        return total if recovered else min(total, self.budget)

    def charge(self, site: str, rho: float, **named: Any) -> int:
        """Record a cost durably, or refuse it; return the number of the charge.

        As :meth:`admit`, except that nobody is left out: if a person cannot afford it, the charge is refused.
        """
        return self.admit(site, rho, **named, _all_or_nothing=True).number

    def _check_budget(self, connection: sqlite3.Connection, site: str, more: float) -> None:
        after = self._epsilon(connection, for_everybody(connection) + more)
        if after > self.budget:
            # The exception rolls back the transaction, so the refused charge leaves no trace.
            names = [name for (name,) in connection.execute("SELECT DISTINCT site FROM charges WHERE site != ''")]
            whose = f"site {site}" if names == [site] else f"site {site}: all releases of this ledger count together"
            raise BudgetExceeded(
                f"{whose}: this release would bring eps to {after:.3g} at delta = {show(self.delta)}, "
                f"the budget is {self.budget:g}; nothing was drawn. Raise the budget or stop here"
            )

    def _most_by_ids(self, connection: sqlite3.Connection) -> float:
        """Return what no person can have cost by charges with ids; it does not depend on who the people are."""
        by_ids = [cost for (cost,) in connection.execute("SELECT rho FROM charges WHERE counted = 'ids'")]
        return min(math.fsum(by_ids), self._allowed_rho(connection))

    def _admit_people(self, connection: sqlite3.Connection, key: bytes, site: str, rho: float, texts: list[str]) -> Any:
        """Charge everybody who can afford it; return which rows are theirs."""
        names = [canonical_id(text) for text in texts]
        people = {name: number for number, name in enumerate(dict.fromkeys(names))}
        marks = [(number, keyed(key, "id", name.encode())) for name, number in people.items()]
        connection.execute("CREATE TEMP TABLE now (person INTEGER NOT NULL, id BLOB NOT NULL)")
        connection.executemany("INSERT INTO now VALUES (?, ?)", marks)
        left = self._allowed_rho(connection) - for_everybody(connection) - rho
        poor = {
            person
            for person, spent in connection.execute(
                "SELECT person, SUM(rho) FROM now JOIN ids ON ids.id = now.id GROUP BY person"
            )
            if spent > left
        }
        connection.execute("DROP TABLE now")
        connection.executemany(
            "INSERT INTO ids VALUES (?, ?, ?) ON CONFLICT (site, id) DO UPDATE SET rho = rho + excluded.rho",
            [(site, mark, rho) for person, mark in marks if person not in poor],
        )
        return np.array([people[name] not in poor for name in names], dtype=bool)

    def _check_receipts(self, connection: sqlite3.Connection | None, receipts: Sequence[Receipt]) -> None:
        """Refuse a ledger that does not know what has left, or what is written beside it."""
        known = []
        for receipt in receipts:
            what = f"round {receipt.round}" if receipt.round else "an agreement or a release of distances"
            known.append((f"{what}, which has left the site", receipt.seal))
        last = self._last()
        for what, seal in [*known, *([] if last is None else [("its own last charge", last.seal)])]:
            if connection is None or not _find_seal(connection, seal):
                raise LedgerError(
                    f"{self.path} does not know of {what}: it is another "
                    "ledger or an older copy. Nothing was drawn. Put the right file back; if it is lost, `fcac ledger "
                    f"{Path(self.path).name} --recover FILE`, with the model or the site's state, adds what is missing"
                )

    def verify(self, receipts: Sequence[Receipt]) -> None:
        """Raise LedgerError unless the ledger knows these receipts; a ledger that is missing knows none."""
        with self._reading() as connection:
            self._check_receipts(connection, receipts)

    def recover(
        self,
        site: str,
        receipts: Sequence[Receipt],
        at_least: float = 0.0,
        rounds: Mapping[int, float] | None = None,
    ) -> int:
        """Charge to everybody what has left the site and is missing here, whatever the budget; return how many charges.

        A charge that was never completed paid for nothing that has left, and stands for nothing that is missing.

        Parameters
        ----------
        site : str
        receipts : sequence of Receipt
        at_least : float
            What the site's releases have cost in all, as rho: what no receipt accounts for is charged in one sum, as is
            anything that the file beside the ledger knows of.
        rounds : mapping of round to rho, optional
            What rounds have cost, by a log.
        """
        added, what = 0, "recovered: it had left the site and was missing here"
        with self._transaction() as (connection, _):
            for receipt in receipts:
                if not _find_seal(connection, receipt.seal):
                    insert(
                        connection, site=site, round=receipt.round, rho=receipt.rho, counted="all", seal=receipt.seal,
                        what=what, completed=1, slack=receipt.slack,
                    )  # fmt: skip
                    added += 1
            for number, rho in (rounds or {}).items():
                query = "SELECT rho FROM charges WHERE site = ? AND round = ? AND completed = 1"
                missing = rho - math.fsum(cost for (cost,) in connection.execute(query, (site, number)))
                if missing > 1e-9 * rho:
                    insert(
                        connection, site=site, round=number, rho=missing, counted="all", what=what, completed=1,
                        seal=secrets.token_hex(8),
                    )  # fmt: skip
                    added += 1
            last, here = self._last(), self._total(connection, "")
            query = "SELECT rho FROM charges WHERE site = ? AND completed = 1"
            own = math.fsum(cost for (cost,) in connection.execute(query, (site,)))
            missing = max(
                at_least - own, 0.0 if last is None or _find_seal(connection, last.seal) else last.rho - here.rho
            )
            slack = 0.0 if last is None else max(last.slack - here.slack, 0.0)
            seal = secrets.token_hex(8)
            if missing > 1e-12 * (at_least + here.rho) or slack > 0:
                insert(
                    connection, site=site, round=None, rho=max(missing, 0.0), counted="all", seal=seal,
                    what=f"{what}; in which rounds is not known", completed=1, slack=slack,
                )  # fmt: skip
                added += 1
            (seal,) = connection.execute("SELECT seal FROM charges ORDER BY number DESC LIMIT 1").fetchone() or (seal,)
            last = self._total(connection, seal)
        if last.rho:
            self._note_last(last)
        return added

    def knows_round(self, site: str, round: int) -> bool:
        """Return whether something that this site has sent for this round was charged here."""
        with self._reading() as connection:
            if connection is None:
                return False
            query = "SELECT 1 FROM charges WHERE site = ? AND round = ? AND completed = 1"
            return connection.execute(query, (site, round)).fetchone() is not None

    def complete(self, number: int) -> None:
        """Mark a charge as completed: what it paid for has been stored. This does not change what was spent."""
        with self._transaction() as (connection, _):
            connection.execute("UPDATE charges SET completed = 1 WHERE number = ?", (number,))

    def change_budget(self, budget: float) -> Ledger:
        """Write a new budget to the file, with a visible entry, and return the ledger with that budget."""
        new = Ledger(self.path, budget, self.delta)
        with self._transaction() as (connection, _):
            spent = self._epsilon_of_all(connection)
            if new.budget < spent:
                raise ValueError(
                    f"budget must be at least {math.ceil(spent * 1000) / 1000:g}, which has been spent; got {budget:g}"
                )
            connection.execute("UPDATE facts SET value = ? WHERE name = 'budget'", (repr(new.budget),))
            what = f"budget changed from eps = {self.budget:g} to {new.budget:g}"
            insert(connection, site="", rho=0.0, what=what, counted="all", completed=1, seal=secrets.token_hex(8))
        return new

    def spent_rho(self, site: str | None = None) -> float:
        """Return the most that anybody has cost, as rho; with a site, by what was released under that name alone."""
        with self._reading() as connection:
            return 0.0 if connection is None else spent_rho(connection, site)

    def spent(self, site: str | None = None) -> float:
        """Return the most that anybody has cost, as epsilon at delta; with a site, under that name alone."""
        with self._reading() as connection:
            return 0.0 if connection is None else self._epsilon(connection, spent_rho(connection, site))

    def remaining(self, site: str | None = None) -> float:
        """Return the largest epsilon (at delta) that one more release for everybody may cost; `site` is ignored."""
        with self._reading() as connection:
            if connection is None:
                return self.budget
            left = self._allowed_rho(connection) - spent_rho(connection, None)
            return self._epsilon(connection, left) if left > 0 else 0.0

    def name(self) -> str:
        """Return a name of this ledger, by which statements of sites that share it are told; "" before any charge."""
        with self._reading() as connection:
            if connection is None:
                return ""
            (check,) = connection.execute("SELECT value FROM facts WHERE name = 'key_check'").fetchone()
            return str(check)[:12]

    def spent_at_most(self) -> float:
        """Return an epsilon that nobody can have exceeded. It depends on charges only, so it may leave the site."""
        with self._reading() as connection:
            return 0.0 if connection is None else self._public_spent(connection)

    def remaining_at_least(self) -> float:
        """Return an epsilon that everybody can still spend; it depends on charges only, so it may leave the site."""
        with self._reading() as connection:
            if connection is None:
                return self.budget
            total = math.fsum(cost for (cost,) in connection.execute("SELECT rho FROM charges"))
            left = self._allowed_rho(connection) - total
            return self._epsilon(connection, left) if left > 0 else 0.0

    def rho_of(self, epsilon: float) -> float:
        """Return the cost that this ledger shows as epsilon."""
        with self._reading() as connection:
            return rho_from_epsilon(epsilon, self.delta - (0.0 if connection is None else slack_of_all(connection)))

    def unit(self) -> str:
        """Return whose cost is counted: "person" if every charge came with record ids, else "record"."""
        with self._reading() as connection:
            if connection is None:
                return "record"
            kinds = {row[0] for row in connection.execute("SELECT DISTINCT counted FROM charges WHERE rho > 0")}
        return "person" if kinds == {"ids"} else "record"

    def people(self) -> list[float]:
        """Return what each person has spent, as epsilon and the dearest first; only for the site's own eyes."""
        with self._reading() as connection:
            if connection is None:
                return []
            base = for_everybody(connection)
            rows = connection.execute("SELECT SUM(rho) AS spent FROM ids GROUP BY id ORDER BY spent DESC").fetchall()
            known: dict[float, float] = {}
            for (rho,) in rows:
                if rho not in known:  # few different costs, many people
                    known[rho] = self._epsilon(connection, base + rho)
        return [known[rho] for (rho,) in rows]

    def sites(self) -> list[str]:
        """Return the names under which releases were charged, the dearest first."""
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT DISTINCT site FROM charges WHERE site != ''").fetchall()
            names = [row[0] for row in rows]
            return sorted(names, key=lambda name: (-spent_rho(connection, name), name))

    def entries(self, site: str | None = None) -> list[dict[str, Any]]:
        """Return all charges, oldest first, each as a dict of plain values."""
        query = "SELECT number, time, site, round, rho, what, counted, completed FROM charges"
        with self._reading() as connection:
            if connection is None:
                return []
            if site is None:
                rows = connection.execute(query + " ORDER BY number").fetchall()
            else:
                rows = connection.execute(query + " WHERE site = ? ORDER BY number", (site,)).fetchall()
            names = ("number", "time", "site", "round", "rho", "what", "counted", "completed")
            found = [dict(zip(names, row, strict=True)) for row in rows]
            for entry in found:
                entry["completed"] = bool(entry["completed"])
                entry["epsilon"] = self._epsilon(connection, entry["rho"])
        return found

    def summary_line(self, site: str | None = None) -> str:
        """Return a one-line summary. It must stay at the site: with record ids it depends on who is in the data."""
        total, unit = up(self.spent()), self.unit()
        most = up(self.spent_at_most())
        outside = "" if most == total else f" (outside: at most {most})"
        if site is None:
            return (
                f"all releases: eps = {total} at delta = {show(self.delta)} per {unit}{outside}, budget {self.budget}"
            )
        own = up(self.spent(site))
        with_others = "" if own == total else f"; with everything else in this ledger {total}"
        told = f"eps = {own} at delta = {show(self.delta)} per {unit}{with_others}{outside}"
        return f"site {site}: {told}, budget {self.budget}"

    def _epsilon(self, connection: sqlite3.Connection, rho: float) -> float:
        return epsilon_from_rho(rho, self.delta - slack_of_all(connection))

    def _epsilon_of_all(self, connection: sqlite3.Connection) -> float:
        return self._epsilon(connection, spent_rho(connection, None))

    def _allowed_rho(self, connection: sqlite3.Connection) -> float:
        return rho_from_epsilon(self.budget, self.delta - slack_of_all(connection))


def _find_seal(connection: sqlite3.Connection, seal: str) -> bool:
    return connection.execute("SELECT 1 FROM charges WHERE seal = ?", (seal,)).fetchone() is not None
