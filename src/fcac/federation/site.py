"""A site: its rows stay, its nodes go."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac import persistence
from fcac._rows import Rows
from fcac._sites import SiteName, plain_site
from fcac._text import counted
from fcac._typing import Integers
from fcac.art.clusterers import CAPlus
from fcac.federation.condenser import CA_PLUS, AgingCondenser, Condenser, ReservoirCondenser
from fcac.federation.contribution import Contribution
from fcac.nodes import Reservoir, Trail
from fcac.nodes.sample import RowSample
from fcac.persistence.row_spool import RowSpool
from fcac.privacy.account import Account
from fcac.privacy.mechanism import AnyMechanism, NodeMechanism, RowMechanism
from fcac.privacy.mechanisms import statement
from fcac.privacy.released_state import ReleasedState

_STATE_FILE = "site.fcac"
_USUAL = ReservoirCondenser()


class Site:
    """One holder of data: condenses its own rows (or releases them privately) and contributes the nodes.

    Rows are learned once, in their order. A fair sample of them, 4,000 at most (1,000 beside CA+), stays in the site's
    state for rates of false alarms. A site goes on over rounds where it left off.

    Parameters
    ----------
    name : str or int
    privacy : mechanism, optional
        A row mechanism (`PaperLaplace`, `LocalNoise`) that perturbs rows before CA+ sees them, or a node mechanism
        (`NodeRelease`) that takes the place of CA+. None: nodes are sent as they are.
    state_dir : path-like, optional
        Directory in which the site keeps its state between rounds and runs (written atomically). If it already holds
        the state of this site, the site goes on from there.
    condenser : Condenser, optional
        How rows become nodes: `ReservoirCondenser`, at most 4,000 nodes, by default; `CAPlusCondenser` is the paper's.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.federation import Site
    >>> site = Site("clinic-a")
    >>> sent = site.contribute(np.random.default_rng(0).normal(size=(500, 3)))
    >>> sent.site, sent.round, int(sent.counts.sum())
    ('clinic-a', 1, 500)
    """

    __slots__ = (
        "__weakref__",
        "_draft",
        "_draft_ids",
        "_draft_rows",
        "_released",
        "_state",
        "condenser",
        "name",
        "privacy",
        "round",
        "state_dir",
    )

    def __init__(
        self,
        name: SiteName,
        privacy: AnyMechanism | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        condenser: Condenser | None = None,
    ) -> None:
        self.name = plain_site(name)
        if privacy is not None and not isinstance(privacy, RowMechanism | NodeMechanism):
            raise TypeError(f"privacy must be a mechanism with perturb or release, got {type(privacy).__name__}")
        self.privacy = privacy
        self.state_dir = None if state_dir is None else Path(state_dir)
        self.round = 0
        self.condenser = _USUAL if condenser is None else condenser
        if self.condenser.ages and isinstance(privacy, NodeMechanism):
            raise ValueError("forgetting: what NodeRelease has released cannot grow old; leave out one of the two")
        self._state: Any = None
        self._released: Any = None
        self._draft: Any = None
        self._draft_rows: RowSpool | None = None
        self._draft_ids: list[str] | None = None
        if self.state_dir is not None:
            self.state_dir.mkdir(parents=True, exist_ok=True)
            if (self.state_dir / _STATE_FILE).exists():
                self._restore(*persistence.read(self.state_dir / _STATE_FILE, kind="site"))

    # ------------------------------------------------------------ rows in, contribution out

    def observe(
        self,
        rows: Any,
        record_ids: Sequence[Any] | None = None,
        *,
        weights: Any = None,
        n_threads: int | None = None,
        trail: Trail | None = None,
    ) -> None:
        """Take rows of the coming round; they count once :meth:`contribute` closes the round.

        For data that arrives in pieces. Without privacy the pieces are learned at once; a mechanism that
        needs the round's rows together keeps them until the round is closed.

        Parameters
        ----------
        rows : array-like of shape (n, d)
        record_ids : sequence, optional
            The id (person) of each of these rows; see :meth:`contribute`.
        weights : array-like of shape (n,), optional
            How many rows each row stands for.
        n_threads : int, optional
            All cores that this process may use by default. The result does not depend on it.
        trail : Trail, optional
            Without privacy: takes note of where rows go, for :meth:`nodes_of`.
        """
        ids = self.checked_records(record_ids)
        table = rows if hasattr(rows, "blocks") else Rows(rows, "Site", allow_empty=True, allow_gaps=True)
        self._check_width(table.n_features)
        if self.privacy is None:
            self._learn(table, weights, n_threads, trail)
            return
        if weights is not None:
            raise ValueError("sample_weight: a privacy mechanism counts every row once; leave the weights out")
        if ids is not None:
            if len(ids) != table.n_rows:
                raise ValueError(f"record_ids has {len(ids)} entries for {table.n_rows} rows: one id per row")
            self._note_ids(ids)
        if self._draft_rows is None:
            self._draft_rows = RowSpool(self.state_dir)
        for block in table.blocks():
            self._draft_rows.append(block)

    def checkpoint(self) -> tuple[Any, ...]:
        """Return a token for :meth:`roll_back`; cheap, since states are replaced and never changed."""
        return self.condenser, self._state, self._released, self.round

    def roll_back(self, token: tuple[Any, ...]) -> None:
        """Return to a checkpoint in memory. What is on disk, a ledger's charges above all, stays."""
        if self.state_dir is None and not isinstance(self.privacy, NodeMechanism):
            self.condenser, self._state, self._released, self.round = token

    def discard(self) -> None:
        """Forget rows observed since the last contribution."""
        if self._draft_rows is not None:
            self._draft_rows.close()
        self._draft, self._draft_rows, self._draft_ids = None, None, None

    def contribute(
        self,
        rows: Any = None,
        round: int | None = None,
        *,
        record_ids: Sequence[Any] | None = None,
        weights: Any = None,
        n_threads: int | None = None,
        trail: Trail | None = None,
    ) -> Contribution:
        """Close a round: learn the new rows and return what leaves the site.

        Parameters
        ----------
        rows : array-like of shape (n, d), optional
            New rows, each to be given once. Zero rows are fine; a node mechanism answers them like any other batch.
        round : int, optional
            Number of the round asked for; the next one if not given. The latest round asked for again is answered
            with the same bytes, without learning anything.
        record_ids : sequence, optional
            For `NodeRelease`: the id (person) of each of these rows, or without `rows` of those observed. The promise
            is then per person: a person's rows share one weight, the ledger adds up per person, and people whose budget
            is used up are left out. In a round every row has an id, or none has.
        weights, n_threads, trail
            As in :meth:`observe`.

        Returns
        -------
        Contribution
            All nodes of the site, not only those of this round.
        """
        ids = self.checked_records(record_ids)
        number = self.round + 1 if round is None else int(round)
        if number < 1 or number < self.round:
            raise ValueError(f"round {number} is over: site {self.name} has answered round {self.round} already")
        if number == self.round:
            return self._current()
        try:
            if rows is not None:
                self.observe(rows, ids, weights=weights, n_threads=n_threads, trail=trail)
            elif ids is not None:
                self._note_ids(ids)
            self._check_draft_ids()
            self._close_round(number, n_threads)
        finally:
            self.discard()
        return self._current()

    def _close_round(self, number: int, n_threads: int | None) -> None:
        """Compute the new state, store it, and only then take it over."""
        released = self._released
        if self.privacy is not None:
            if isinstance(self.privacy, NodeMechanism):
                released = self._release(self.privacy, number)
            elif self._draft_rows is not None and self._draft_rows.n_rows:
                rows = self._draft_rows.array()
                noised = self.privacy.perturb(rows, site=self.name, round=number)
                block = np.ascontiguousarray(noised, dtype=np.float64)
                self.condenser.learn(self._drafted(rows.shape[1]), block, None, n_threads)
        if self.condenser.ages and self._state is not None:
            self._drafted(self._state.n_features)  # a round without rows makes the others older
        state = self._state if self._draft is None else self.condenser.settle(self._draft, number)
        if state is None and released is None:
            raise ValueError(f"site {self.name} has no rows yet: nothing to contribute")
        if self.state_dir is not None:
            self._store(number, state, released)
        self._state, self._released, self.round = state, released, number

    def _release(self, mechanism: NodeMechanism, number: int) -> ReleasedState:
        """Release privately; with a state directory a round that was drawn before is found, not drawn again."""
        name = str(self.name)
        rows: Any = self._draft_rows
        # node mechanisms of other packages may want the rows at once
        if rows is None or not rows.n_rows:
            rows = np.empty((0, self._known_width()))
        elif not getattr(mechanism, "reads_in_blocks", False):
            rows = rows.array()
        # other node mechanisms need not know of ledgers, so what was not named is not passed
        named: dict[str, Any] = {} if self._draft_ids is None else {"record_ids": self._draft_ids}
        if self.state_dir is None:
            return mechanism.release(rows, self._released, site=name, round=number, **named)[2]
        from fcac.privacy import NodeRelease, release_once

        if not isinstance(mechanism, NodeRelease):
            raise TypeError(
                "privacy: a site with a state directory must find a draw again after a crash, which only NodeRelease "
                f"does, got {type(mechanism).__name__}; give NodeRelease, or leave out state_dir"
            )
        path = self.state_dir / f"release-{number:06d}.fcac"
        return release_once(mechanism, rows, self._released, name, number, path, **named).state

    def adopt(self, released: ReleasedState, round: int) -> None:
        """Take over a release that was made elsewhere: the sum of all sites, under secure aggregation."""
        if round <= self.round:
            raise ValueError(f"round {round} is over: site {self.name} has answered round {self.round} already")
        if self.state_dir is not None:
            self._store(round, None, released)
        self._released, self.round = released, round

    def note_cost(self, account: Account) -> None:
        """Take over the account after a release beside the nodes, so that later statements and receipts count it."""
        released = dataclasses.replace(self._released, account=account)
        if self.state_dir is not None:
            self._store(self.round, None, released)
        self._released = released

    def checked_records(self, record_ids: Sequence[Any] | None) -> list[str] | None:
        """Check what the ledger is to be told, before anything is charged; return the ids as the ledger spells them."""
        if record_ids is None:
            return None
        if getattr(self.privacy, "ledger", None) is None and not isinstance(self.privacy, NodeMechanism):
            raise ValueError(
                f"site {self.name}: record_ids say whose cost a release is: "
                "give the site privacy=NodeRelease(..., ledger=Ledger(...))"
            )
        from fcac.privacy.record_ids import check_record_ids

        return check_record_ids(record_ids)

    def _note_ids(self, ids: list[str]) -> None:
        if self._draft_ids is None:
            self._draft_ids = []
        self._draft_ids += ids

    def _check_draft_ids(self) -> None:
        if self._draft_ids is None:
            return
        n_rows = 0 if self._draft_rows is None else self._draft_rows.n_rows
        if len(self._draft_ids) != n_rows:
            raise ValueError(
                f"record_ids: {len(self._draft_ids)} ids for this round's {n_rows} rows: one id per row, or none at all"
            )

    def _current(self) -> Contribution:
        noise = None, None
        if self._released is not None:
            # noised counts are fractions; a node that was kept stands for at least one record
            nodes, counts = self._released.nodes, np.maximum(np.rint(self._released.counts), 1).astype(np.int64)
            # node mechanisms of other packages need not know the scale of their noise
            noise = getattr(self._released, "deviation", None), getattr(self._released, "count_deviation", None)
        else:
            nodes, counts = self.condenser.nodes(self._state)
        said = _shared(tuple(self.statement().items()))
        return Contribution(self.name, self.round, nodes, counts, said, *noise)

    def statement(self) -> dict[str, Any]:
        """Return what is said today of the privacy of this site's contributions, and of what was spent."""
        n_releases = self.round if self._released is None else self._released.n_releases
        return statement(self.privacy, n_releases, self._released)

    # ------------------------------------------------------------ state

    def nodes_of(self, trail: Trail) -> Integers:
        """Return the node that counts each row, if all rows of this site were learned with this trail.

        Positions are those of the nodes in the latest contribution. Only for sites that condense with a reservoir and
        send all of its nodes.
        """
        if not isinstance(self._state, Reservoir) or getattr(self.condenser, "min_rows", 1) > 1:
            raise ValueError(f"site {self.name} cannot tell which node counts a row")
        return self._state.nodes_of(trail)

    def __repr__(self) -> str:
        told = [repr(self.name), f"round {self.round}"]
        if self._state is not None or self._released is not None:
            sent = self._current()
            about = "about " if self._released is not None else ""
            told += [counted(len(sent.nodes), "node"), about + counted(round(sent.counts.sum()), "row")]
        if self.privacy is not None:
            told.append(type(self.privacy).__name__)
        return f"Site({', '.join(told)})"

    @property
    def model(self) -> Any:
        """What the site has learned: a `Reservoir`, a `CAPlus` model or a released state; None before any round."""
        if self._released is not None:
            return self._released
        if self._state is None or self.condenser.key != CA_PLUS.key:
            return self._state
        model = CAPlus()
        meta, arrays = self._state.to_parts()
        model._restore({"network": meta, "feature_names": None}, arrays)
        return model

    def sample(self) -> RowSample | None:
        """Return a fair sample of the rows learned, for rates of false alarms; it never leaves the site.

        None where the site keeps none: with `NodeRelease`.
        """
        return None if self._state is None or self._released is not None else self.condenser.sample(self._state)

    @property
    def n_features(self) -> int | None:
        """Number of features seen so far; None before the first row."""
        if self._state is not None:
            return int(self._state.n_features)
        if self._released is not None:
            return int(self._released.nodes.shape[1])
        return None

    def _check_width(self, d: int) -> None:
        known = self._draft.n_features if self._draft is not None else self.n_features
        if known is None and self._draft_rows is not None:
            known = self._draft_rows.n_features
        if known is not None and d != known:
            raise ValueError(f"site {self.name} has rows of {known} features, these have {d}")

    def _drafted(self, d: int) -> Any:
        if self._draft is None:
            self._draft = self.condenser.draft(self._state, d)
        return self._draft

    def _learn(self, table: Any, weights: Any, n_threads: int | None, trail: Trail | None) -> None:
        # only a reservoir can tell where rows go
        follow: dict[str, Any] = {} if trail is None else {"trail": trail}
        given = None if weights is None else np.asarray(weights, dtype=np.float64)
        if given is not None and given.shape != (table.n_rows,):
            raise ValueError(f"sample_weight must hold one number per row ({table.n_rows}); its shape is {given.shape}")
        start = 0
        for block in table.blocks():
            own = None if given is None else given[start : start + len(block)]
            self.condenser.learn(self._drafted(table.n_features), block, own, n_threads, **follow)
            start += len(block)

    def _known_width(self) -> int:
        bounds = getattr(self.privacy, "bounds", None)
        return self.n_features or (1 if bounds is None else len(bounds))

    def _to_parts(self, number: int, state: Any, released: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        meta: dict[str, Any] = {"site": self.name, "round": number, "network": None, "released": None}
        arrays: dict[str, Any] = {}
        if state is not None:
            meta[self.condenser.key], arrays = self.condenser.to_parts(state)
        elif released is not None:
            meta["released"], arrays = released.to_parts()
        return meta, arrays

    def _store(self, number: int, state: Any, released: Any) -> None:
        assert self.state_dir is not None
        meta, arrays = self._to_parts(number, state, released)
        persistence.write_atomic(self.state_dir / _STATE_FILE, persistence.pack("site", meta, arrays))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a description and arrays that restore this site (without its privacy mechanism)."""
        return self._to_parts(self.round, self._state, self._released)

    @classmethod
    def from_parts(
        cls,
        meta: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        privacy: AnyMechanism | None = None,
        condenser: Condenser | None = None,
    ) -> Site:
        """Rebuild a site from :meth:`to_parts`."""
        site = cls(meta["site"], privacy, condenser=condenser)
        site._restore(meta, arrays)
        return site

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if meta.get("site") != self.name:
            raise ValueError(f"this state belongs to site {meta.get('site')!r}, not to {self.name!r}")
        number = meta.get("round")
        if not isinstance(number, int) or number < 0:
            raise ValueError("this site state has no round number")
        aging = meta.get(AgingCondenser.key)
        known: tuple[Condenser, ...] = (self.condenser, CA_PLUS, _USUAL)
        if aging is not None:
            known = (AgingCondenser.of_parts(aging),)
        found = next((condenser for condenser in known if meta.get(condenser.key) is not None), None)
        if found is not None:
            if isinstance(self.privacy, NodeMechanism):
                raise ValueError(f"site {self.name} has nodes from rounds without NodeRelease; give it an empty state")
            # a site goes on with the condenser it began with, whatever it is asked for now
            self.condenser, self._state = found, found.from_parts(meta[found.key], arrays)
        if meta.get("released") is not None:
            if not isinstance(self.privacy, NodeMechanism):
                raise ValueError(f"site {self.name} has released nodes with NodeRelease; continue with NodeRelease")
            self._released = ReleasedState.from_parts(meta["released"], arrays)
        self.round = number


@lru_cache(maxsize=256)
def _shared(statement: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """One dictionary for all sites that say the same."""
    return dict(statement)
