"""``NodeRelease``: what leaves a site is differentially private per record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.exceptions import PrivacyError
from fcac.privacy.bounds import check_bounds, check_rows, to_unit
from fcac.privacy.cell_release import Outcome, release_cells
from fcac.privacy.cell_statistics import MAX_FEATURES, to_grid
from fcac.privacy.ledger import Ledger, RecordIds, check_partition, check_record_ids
from fcac.privacy.mechanism import Mechanism
from fcac.privacy.released_state import ReleasedState, accumulate
from fcac.privacy.samplers import OpenDPSampler, Sampler
from fcac.privacy.zcdp import check_delta, check_epsilon, epsilon_from_rho, rho_from_epsilon, show


@dataclass(frozen=True)
class Prepared:
    """A batch that has passed every check; nothing has been charged for it yet."""

    rows: Integers
    given_rows: Floats
    state: ReleasedState | None
    site: str
    round: int
    record_ids: RecordIds
    partition: str | None


class NodeRelease(Mechanism):
    """Release noised cells of a batch instead of CA+ nodes: differentially private per record.

    The site is trusted with its own records, but what leaves it must not depend much on any one of them. Records are
    assigned to the cells of a codebook that is built from noised totals only; the noised means and counts of the cells
    are sent as nodes. Adding or removing one record changes the probability of any outcome by at most a factor
    exp(epsilon), up to delta. Every batch is answered in the same way, even an empty one: the noise hides it.

    Parameters
    ----------
    epsilon : float
        Cost of one release, at ``delta``. There is no default: choosing it is a decision.
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
    per = "record and round"
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
        partition: str | None = None,
    ) -> tuple[Floats, Floats, ReleasedState]:
        """Charge the ledger, draw the noise, and return what may leave the site.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The rows of this round; may be empty.
        state : ReleasedState, optional
            What this site released before.
        site, round : str, int
            Who is charged, and for which round.
        record_ids : sequence, optional
            The id (person) of each row. The ledger then adds up costs per id, and m rows of one id cost m^2 times rho.
        partition : str, optional
            Name of a part of the data that was defined without looking at values, such as a day. The costs of releases
            of different parts do not add up.

        Returns
        -------
        nodes : ndarray of shape (K, d)
        counts : ndarray of shape (K,)
        state : ReleasedState
            The accumulated result of all releases; `nodes` and `counts` are taken from it.
        """
        prepared = self.prepare(X, state, site, round, record_ids=record_ids, partition=partition)
        charge = self.charge(prepared)
        released = self.draw(prepared)
        if self.ledger is not None and charge is not None:
            self.ledger.complete(charge)
        return released.nodes, released.counts.copy(), released

    def prepare(
        self,
        X: Any,
        state: ReleasedState | None = None,
        site: str = "site",
        round: int = 1,
        *,
        record_ids: Sequence[Any] | None = None,
        partition: str | None = None,
    ) -> Prepared:
        """Check all arguments before anything is charged."""
        rows = check_rows(X, len(self.bounds))
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
        ids = None if record_ids is None else check_record_ids(record_ids)
        if ids is not None and len(ids) != len(rows):
            raise ValueError(f"record_ids has {len(ids)} entries for {len(rows)} rows: one id per row")
        if record_ids is not None and partition is not None:
            raise ValueError("give record_ids or partition, not both")
        check_partition(partition)
        if self.ledger is None and (record_ids is not None or partition is not None):
            raise ValueError("record_ids and partition are for a ledger: give NodeRelease(ledger=...)")
        self.sampler.check_ready()
        on_grid = to_grid(to_unit(rows, self.bounds))
        return Prepared(on_grid, rows, state, site, int(round), ids, partition)

    def charge(self, prepared: Prepared) -> int | None:
        """Record the cost in the ledger durably; return the number of the entry, or None without a ledger."""
        if self.ledger is None:
            return None
        return self.ledger.charge(
            prepared.site,
            self.rho,
            round=prepared.round,
            batch=prepared.given_rows,
            record_ids=prepared.record_ids,
            partition=prepared.partition,
            what=f"NodeRelease, eps = {self.epsilon:g} at delta = {show(self.delta)}",
        )

    def draw(self, prepared: Prepared) -> ReleasedState:
        """Draw the noise and return the accumulated state. To be called only after :meth:`charge`."""
        outcome = self._draw_outcome(prepared)
        fresh = ReleasedState(
            outcome.unit_nodes, outcome.counts, outcome.node_noise, self.bounds, 1, outcome.count_noise
        )
        return accumulate(prepared.state, fresh, outcome.vigilance)

    def count_outside(self, X: Any) -> int:
        """Return how many values lie outside the bounds. Only the site itself may see it: the number is not private."""
        rows = check_rows(X, len(self.bounds))
        return int(((rows < self.bounds[:, 0]) | (rows > self.bounds[:, 1])).sum())

    def statement(self, n_releases: int) -> dict[str, Any]:
        """Return the short statement that travels with a contribution, with what all releases cost together."""
        spent = round(epsilon_from_rho(n_releases * self.rho, self.delta), 6)
        return {**super().statement(n_releases), "delta": float(self.delta), "spent": spent}

    def describe(self) -> dict[str, Any]:
        """Return statements for a report, computed from settings only, never from rows or from the ledger's ids."""
        statement: dict[str, Any] = {
            "mechanism": "NodeRelease: noised cells (discrete Gaussian noise, zCDP)",
            "unit": "record",
            "adjacency": "one record added or removed",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "bounds": self.bounds.tolist(),
            "rounds": "every round costs the same again, and costs add up unless record ids or a partition are given",
            "budget": None if self.ledger is None else self.ledger.budget,
            "noise": "OpenDP, exact discrete sampler" if self.sampler.secure else "INSECURE test noise",
            "not_promised": [
                "it is visible that a site takes part, or answers 'unavailable'",
                "a person with m records in a round costs m * m as much, with records in m rounds m times as much",
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

    def _draw_outcome(self, prepared: Prepared) -> Outcome:
        state = prepared.state
        start = None if state is None else state.unit_nodes[np.argsort(-state.counts, kind="stable")]
        generator = np.random.default_rng(self._public_seed(prepared.site, prepared.round))
        outcome = release_cells(prepared.rows, self.rho, self.sampler, generator, self.n_cells, start)
        spent = sum(step.rho for step in outcome.steps)
        if spent > self.rho:
            raise AssertionError("the steps cost more than was charged; nothing is sent")
        return outcome

    def _public_seed(self, site: str, round: int) -> list[int]:
        digest = hashlib.sha256(site.encode()).digest()
        return [self.random_state, round, int.from_bytes(digest[:8], "big")]
