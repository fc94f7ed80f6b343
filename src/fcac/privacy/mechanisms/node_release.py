"""``NodeRelease``: what leaves a site is differentially private per record, or per person where ids are given."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fcac._typing import Floats, Integers
from fcac.exceptions import PrivacyError, PrivacyWarning, RepeatedBatch
from fcac.privacy.account import Account
from fcac.privacy.bounds import check_bounds, check_rows, to_unit
from fcac.privacy.cell_release import (
    Outcome,
    Request,
    Step,
    grow_cells,
    noised_totals,
    release_cells,
    take_steps,
)
from fcac.privacy.cell_statistics import MAX_FEATURES, GridBlocks, RowBlocks, Totals, person_weights, to_grid
from fcac.privacy.ledger import Admission, Ledger
from fcac.privacy.mechanism import Mechanism
from fcac.privacy.record_ids import MANY_VALUES, MultisetHash, canonical_id, check_record_ids
from fcac.privacy.released_state import ReleasedState, accumulate
from fcac.privacy.samplers import OpenDPSampler, Sampler
from fcac.privacy.zcdp import check_delta, check_epsilon, epsilon_from_rho, rho_from_epsilon, show


@dataclass(frozen=True)
class Prepared:
    """A batch that has passed every check; nothing has been charged for it yet."""

    rows: Integers | GridBlocks
    given_rows: Floats | MultisetHash
    state: ReleasedState | None
    site: str
    round: int
    record_ids: list[str] | None


@dataclass(frozen=True)
class Charged:
    """A batch that has been paid for: the rows that may be used, their weights, and the account afterwards."""

    prepared: Prepared
    rho: float
    number: int | None
    rows: Integers | GridBlocks
    weights: Integers | None
    account: Account


class BatchElsewhere(Protocol):
    """A batch whose rows are at other machines of the same owner; they add up totals, and only totals come here."""

    def ids(self) -> list[str] | None:
        """Return every id among the rows once, as :func:`check_record_ids` spells it; None: the unit is one row."""

    def leave_out(self, people: set[str]) -> None:
        """Take no account of the rows of these people, named as :func:`canonical_id` spells them."""

    def totals(self, request: Request) -> Totals:
        """Return the sum, over all rows, of what :func:`~fcac.privacy.cell_statistics.cell_totals` adds up."""


#: An epsilon above this gives a warning.
LARGEST_MEANINGFUL = 10.0


class NodeRelease(Mechanism):
    """Release noised cells of a batch instead of CA+ nodes: differentially private per record, or per person.

    The site is trusted with its own records, but what leaves it must not depend much on any one of them. Records are
    assigned to the cells of a codebook that is built from noised totals only; the noised means and counts of the cells
    are sent as nodes. A gap (NaN) in a record adds nothing to the mean of its cell. Adding or removing one record
    changes the probability of any outcome by at most a factor exp(epsilon), up to delta. Where record ids are given,
    the same holds for a person with all of their rows, because the rows of a person share the weight of one. Every
    batch is answered in the same way, even an empty one: the noise hides it.

    Parameters
    ----------
    epsilon : float
        Cost of one release, at ``delta``. There is no default: choosing it is a decision. Above 10 there is a warning.
    bounds : array-like of shape (d, 2) or schema
        Public (low, high) of every feature. Values outside are clipped.
    delta : float
        At most 1e-5.
    ledger : Ledger, optional
        Budget of the site, charged before any noise is drawn. Without one, the costs of rounds are not added up.
    n_cells : int, optional
        Largest number of nodes in one release; None chooses 3 to 48 from the noised number of records.
    random_state : int
        Seed of the public randomness (directions of splits). It protects nothing and need not be secret.
    sampler : Sampler, optional
        Source of the noise; None means OpenDP's exact discrete Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.privacy import NodeRelease
    >>> from fcac.privacy.samplers import InsecureTestSampler  # repeatable, for this example only
    >>> rows = np.random.default_rng(0).normal([[0.3, 0.7]], 0.02, size=(500, 2))
    >>> mechanism = NodeRelease(epsilon=4, bounds=[[0, 1], [0, 1]], sampler=InsecureTestSampler(1))
    >>> nodes, counts, state = mechanism.release(rows, site="A", round=1)
    >>> bool(np.abs(np.average(nodes, axis=0, weights=counts) - [0.3, 0.7]).max() < 0.05)
    True
    """

    kind = "node"
    guarantee = "central"
    title = "differentially private release"
    per = "unit and round"
    #: :meth:`prepare` and :meth:`release` accept rows that are read block by block.
    reads_in_blocks = True
    _fields = ("epsilon", "bounds", "delta", "ledger", "n_cells", "random_state", "sampler")

    def __init__(
        self,
        epsilon: float,
        bounds: Any,
        delta: float = 1e-6,
        ledger: Ledger | None = None,
        *,
        n_cells: int | None = None,
        random_state: int = 0,
        sampler: Sampler | None = None,
    ) -> None:
        self.epsilon = check_epsilon(epsilon)
        if self.epsilon > LARGEST_MEANINGFUL:
            warnings.warn(
                f"epsilon = {self.epsilon:g} promises little: somebody's odds may change by a factor of "
                f"{_factor(self.epsilon)}; choose at most {LARGEST_MEANINGFUL:g}, or better 1 to 4",
                PrivacyWarning,
                stacklevel=2,
            )
        self.bounds = check_bounds(bounds)
        self.delta = check_delta(delta)
        if len(self.bounds) > MAX_FEATURES:
            raise ValueError(f"bounds describe {len(self.bounds)} features, at most {MAX_FEATURES} are supported")
        if ledger is not None and not isinstance(ledger, Ledger):
            raise ValueError(f"ledger must be a fcac.privacy.Ledger or None, got {type(ledger).__name__}")
        if ledger is not None and ledger.delta != self.delta:
            raise ValueError(f"delta is {self.delta:g} here and {ledger.delta:g} in the ledger: use one delta for both")
        if n_cells is not None and (not isinstance(n_cells, int | np.integer) or not 1 <= n_cells <= 1000):
            raise ValueError(f"n_cells must be a whole number from 1 to 1000 or None, got {n_cells!r}")
        if not isinstance(random_state, int | np.integer) or random_state < 0:
            raise ValueError(f"random_state must be a whole number >= 0, got {random_state!r}")
        self.ledger = ledger
        self.n_cells = None if n_cells is None else int(n_cells)
        self.random_state = int(random_state)
        self.sampler: Sampler = OpenDPSampler() if sampler is None else sampler

    @property
    def rho(self) -> float:
        """Cost of one release in zCDP, which the ledger adds up."""
        return rho_from_epsilon(self.epsilon, self.delta)

    def release(
        self,
        X: Any,
        state: ReleasedState | None = None,
        site: str = "site",
        round: int = 1,
        *,
        record_ids: Sequence[Any] | None = None,
    ) -> tuple[Floats, Floats, ReleasedState]:
        """Charge the ledger, draw the noise, and return what may leave the site.

        Parameters
        ----------
        X : array-like of shape (n, d), or an object with ``n_rows``, ``n_features`` and ``blocks()``
            The rows of this round; may be empty. Rows in blocks, such as a
            :class:`~fcac.persistence.row_spool.RowSpool`, are read once per step and never held in memory together;
            the result is the same.
        state : ReleasedState, optional
            What this site released before.
        site, round : str, int
            Who is charged, and for which round.
        record_ids : sequence, optional
            The id (person) of each row: the promise then holds per person. A person's m rows weigh 1/m each. With a
            ledger, costs add up per person, and the rows of people whose budget is used up are left out.

        Returns
        -------
        nodes : ndarray of shape (K, d)
        counts : ndarray of shape (K,)
        state : ReleasedState
            The accumulated result of all releases; `nodes` and `counts` are taken from it.
        """
        prepared = self.prepare(X, state, site, round, record_ids=record_ids)
        charged = self.charge(prepared)
        released = self.draw(charged)
        if self.ledger is not None and charged.number is not None:
            self.ledger.complete(charged.number)
        return released.nodes, released.counts.copy(), released

    def prepare(
        self,
        X: Any,
        state: ReleasedState | None = None,
        site: str = "site",
        round: int = 1,
        *,
        record_ids: Sequence[Any] | None = None,
    ) -> Prepared:
        """Check all arguments before anything is charged."""
        on_grid, given, n_rows = self._checked(X)
        ids = None if record_ids is None else check_record_ids(record_ids)
        if ids is not None and len(ids) != n_rows:
            raise ValueError(f"record_ids has {len(ids)} entries for {n_rows} rows: one id per row")
        self._check_request(state, site, round)
        return Prepared(on_grid, given, state, site, int(round), ids)

    def _check_request(self, state: ReleasedState | None, site: str, round: int) -> None:
        if state is not None:
            if not isinstance(state, ReleasedState):
                raise PrivacyError(
                    f"state: a {type(state).__name__} is not the result of a release; "
                    "pass the state that release() returned, or None"
                )
            if not np.array_equal(state.bounds, self.bounds):
                raise PrivacyError("state: it was released with other bounds; start a new state or use those bounds")
        if not isinstance(site, str) or not site:
            raise ValueError(f"site must be a non-empty name, got {site!r}")
        if not isinstance(round, int | np.integer) or isinstance(round, bool) or round < 0:
            raise ValueError(f"round must be a whole number >= 0, got {round!r}")
        self.sampler.check_ready()

    def _checked(self, X: Any) -> tuple[Integers | GridBlocks, Floats | MultisetHash, int]:
        """Return the rows on the grid, what tells whether they are a repeat, and their number."""
        d = len(self.bounds)
        if hasattr(X, "blocks") and X.n_rows * X.n_features > MANY_VALUES:
            source: RowBlocks = X
            # every row is checked before anything is charged
            hashed = MultisetHash()
            for block in source.blocks():
                hashed.add(check_rows(block, d, gaps=True))
            return GridBlocks(source, self.bounds), hashed, source.n_rows
        if hasattr(X, "blocks"):
            X = np.concatenate([np.empty((0, X.n_features if X.n_rows else d)), *X.blocks()])
        rows = check_rows(X, d, gaps=True)
        return to_grid(to_unit(rows, self.bounds)), rows, len(rows)

    def charge(self, prepared: Prepared) -> Charged:
        """Record the cost in the ledger durably; say which rows it admits."""
        rho, admission, account = self._admit(prepared)
        rows, people = prepared.rows, None if prepared.record_ids is None else _people(prepared.record_ids)
        if people is not None and admission is not None:
            rows = rows[admission.admitted]
            people = [name for name, kept in zip(people, admission.admitted, strict=True) if kept]
        number, weights = getattr(admission, "number", None), None if people is None else person_weights(people)
        return Charged(prepared, rho, number, rows, weights, account)

    def _admit(self, prepared: Prepared) -> tuple[float, Admission | None, Account]:
        """Return the cost, the ledger's admission (None without a ledger) and the account afterwards."""
        unit = "row" if prepared.record_ids is None else "person"
        before = Account() if prepared.state is None else prepared.state.account
        if self.ledger is None:
            return self.rho, None, before.after(self.rho, unit, None, None, None)
        rho = self.ledger.rho_of(self.epsilon)
        admission = self.ledger.admit(
            prepared.site,
            rho,
            round=prepared.round,
            batch=prepared.given_rows,
            record_ids=prepared.record_ids,
            what=f"NodeRelease, eps = {self.epsilon:g} at delta = {show(self.delta)}",
            receipts=before.receipts,
        )
        if admission.repeated:
            warnings.warn(
                f"site {prepared.site}: exactly these rows were released before; they are released and charged again. "
                "Two draws tell more about them than one",
                RepeatedBatch,
                stacklevel=4,
            )
        return rho, admission, before.after(rho, unit, admission.spent, self.ledger.budget, admission.receipt)

    def release_elsewhere(
        self,
        batch: BatchElsewhere,
        state: ReleasedState | None = None,
        site: str = "site",
        round: int = 1,
    ) -> ReleasedState:
        """Release a batch whose rows are added up at other machines of the same owner.

        The totals of all rows meet here, and noise is added to them once; the ledger is charged once. The result is
        that of :meth:`release` with the same rows, except that nobody notices if they were released before.

        Parameters
        ----------
        batch : BatchElsewhere
        state, site, round
            As in :meth:`release`.

        Returns
        -------
        ReleasedState
        """
        self._check_request(state, site, round)
        ids = batch.ids()
        no_rows = np.empty((0, len(self.bounds)))
        prepared = Prepared(to_grid(no_rows), no_rows, state, site, int(round), ids)
        # What is asked first is public. Added up before anything is charged, it shows whether the rows can be read.
        checked = {} if ids is not None else {0: batch.totals(next(self._growth(prepared, self.rho)))}
        rho, admission, account = self._admit(prepared)
        if ids is not None and admission is not None:
            kept = zip(_people(ids), admission.admitted, strict=True)
            batch.leave_out({person for person, admitted in kept if not admitted})

        def one_step(request: Request) -> Step:
            totals = checked.pop(0, None)
            return noised_totals(batch.totals(request) if totals is None else totals, request, self.sampler)

        outcome = take_steps(self._growth(prepared, rho), one_step)
        released = self._accumulated(self._affordable(outcome, rho), state, account)
        if self.ledger is not None and admission is not None:
            self.ledger.complete(admission.number)
        return released

    def draw(self, charged: Charged) -> ReleasedState:
        """Draw the noise and return the accumulated state."""
        return self._accumulated(self._draw_outcome(charged), charged.prepared.state, charged.account)

    def _accumulated(self, outcome: Outcome, state: ReleasedState | None, account: Account) -> ReleasedState:
        fresh = ReleasedState(
            outcome.unit_nodes, outcome.counts, outcome.node_noise, self.bounds, 1, outcome.count_noise, account
        )
        return accumulate(state, fresh, outcome.vigilance)

    def count_outside(self, X: Any) -> int:
        """Return how many values lie outside the bounds. Only the site itself may see it: the number is not private."""
        rows = check_rows(X, len(self.bounds), gaps=True)
        return int(((rows < self.bounds[:, 0]) | (rows > self.bounds[:, 1])).sum())

    def statement(self, n_releases: int, state: Any = None) -> dict[str, Any]:
        """Return the short statement that travels with a contribution, with what the ledger says has been spent.

        Parameters
        ----------
        n_releases : int
        state : ReleasedState, optional
            What is sent; its account says what was spent.
        """
        said = {**super().statement(n_releases), "delta": float(self.delta)}
        if not self.sampler.secure:
            return {**said, "mechanism": "none", "note": "test noise: it protects nobody"}
        account = Account(n_releases * self.rho, "row") if state is None else state.account
        spent, budget = account.spent, account.budget
        if self.ledger is not None and os.path.exists(self.ledger.path):
            # never less than was said before, should the ledger be an older copy
            spent, budget = max(self.ledger.spent_at_most(), spent or 0.0), self.ledger.budget
            said["ledger"] = self.ledger.name()
        elif spent is None:
            spent = epsilon_from_rho(account.rho, self.delta)
        said |= {"spent": round(spent, 6), "unit": account.unit}
        return said if budget is None else {**said, "budget": budget}

    def describe(self) -> dict[str, Any]:
        """Return statements for a report, computed from settings only, never from rows or from the ledger's ids."""
        statement: dict[str, Any] = {
            "mechanism": "NodeRelease: noised cells (discrete Gaussian noise, zCDP)",
            "unit": "one row; where record ids are named, one person with all rows",
            "adjacency": "one row (with record ids: one person) added or removed",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "bounds": self.bounds.tolist(),
            "rounds": "every round costs the same again; costs add up over rounds and site names, per person where "
            "record ids are named",
            "budget": None if self.ledger is None else self.ledger.budget,
            "noise": "OpenDP, exact discrete sampler" if self.sampler.secure else "INSECURE test noise",
            "not_promised": [
                "it is visible that a site takes part, or answers 'unavailable', and how long it takes",
                "without record ids the unit is a row: a person with m rows in a round has m * m times the cost",
                "a person at several sites is protected at each of them, and the costs add up",
                "that a known member's values were changed costs up to four times as much (twice the noise ratio)",
                "the bounds are public and must not come from the records",
                "what can be learned about everybody (clusters exist) is learned, even about those who stay away",
                "the site itself, its disk and its operator are trusted",
            ],
        }
        if not self.sampler.secure:
            statement["warning"] = "The noise comes from a test generator and protects nobody."
        elif self.ledger is None:
            statement["warning"] = "No ledger: the costs of rounds are not added up, and nothing prevents overspending."
        return statement

    def _draw_outcome(self, charged: Charged) -> Outcome:
        start, generator = self._public_start(charged.prepared)
        outcome = release_cells(
            charged.rows, charged.rho, self.sampler, generator, self.n_cells, start, charged.weights
        )
        return self._affordable(outcome, charged.rho)

    def _affordable(self, outcome: Outcome, rho: float) -> Outcome:
        if sum(step.rho for step in outcome.steps) > rho:
            raise AssertionError("the steps cost more than was charged; nothing is sent")
        return outcome

    def _growth(self, prepared: Prepared, rho: float) -> Generator[Request, Step, Outcome]:
        start, generator = self._public_start(prepared)
        return grow_cells(len(self.bounds), rho, generator, self.n_cells, start)

    def _public_start(self, prepared: Prepared) -> tuple[Floats | None, np.random.Generator]:
        """Return what a release starts from, all of it public: nodes released before, and public randomness."""
        state = prepared.state
        start = None if state is None else state.unit_nodes[np.argsort(-state.counts, kind="stable")]
        return start, np.random.default_rng(self._public_seed(prepared.site, prepared.round))

    def _public_seed(self, site: str, round: int) -> list[int]:
        digest = hashlib.sha256(site.encode()).digest()
        return [self.random_state, round, int.from_bytes(digest[:8], "big")]


def _people(ids: list[str]) -> list[str]:
    return [canonical_id(name) for name in ids]


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):,.0f}" if epsilon < 20 else f"10^{epsilon / math.log(10):.0f}"
