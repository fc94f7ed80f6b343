"""One round of a model: who contributes, in what order it is absorbed, and what it did to the clusters.

Every way of running a federation (`FCAC`, streams, Spark, the hub, sums over sites) makes its server with
:func:`first_server` and plays its rounds with :meth:`Round.play`. What differs is where contributions come from: that
is an `Engine`, and another way of running is one more of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fcac._sites import SiteName, order_key
from fcac.clusters.judge import FALSE_SPLIT_RATE
from fcac.clusters.tracking import Change, Move
from fcac.federation.contribution import Contribution
from fcac.federation.server import Server
from fcac.federation.site import Site
from fcac.privacy.released_state import ReleasedState
from fcac.tables.schema import Schema


def first_server(
    kind: str,
    seed: int,
    schema: Schema | None,
    n_clusters: int | None = None,
    max_nodes: int | None = None,
    scale: str = "auto",
    false_split_rate: float = FALSE_SPLIT_RATE,
) -> Server:
    """Return the server of a model before its first round; the only place where one is made.

    It measures distances by what the columns of the schema mean; without one, rows are plain numbers. The rest is as in
    :class:`~fcac.federation.Server`.
    """
    return Server(kind, seed, n_clusters, None if schema is None else schema.blocks, max_nodes, scale, false_split_rate)


#: What a statement says of the ledger, see :meth:`fcac.privacy.NodeRelease.statement`.
_SPENDING = ("spent", "unit", "budget", "ledger")


class Engine(ABC):
    """Brings the contributions of a round; it knows how sites are reached, and nothing of clusters."""

    @property
    def newest_round(self) -> int:
        """The latest round that any of its sites has answered."""
        return 0

    @abstractmethod
    def contribute(self, number: int) -> Iterable[Contribution]:
        """Return what the sites contribute to a round."""

    def take_back(self) -> None:  # noqa: B027  most have nothing to take back
        """Bring the sites back to where they were before :meth:`contribute`: the round has failed."""

    def close(self) -> None:  # noqa: B027
        """Let go of what was held for the round, whether it has failed or not."""


class Received(Engine):
    """Contributions that are here already: from the inbox of a hub, or from sites whose round was closed elsewhere."""

    def __init__(self, contributions: Iterable[Contribution]) -> None:
        self._contributions = list(contributions)

    @property
    def newest_round(self) -> int:
        return max((item.round for item in self._contributions), default=1) - 1

    def contribute(self, number: int) -> list[Contribution]:
        return self._contributions


def closed_sites(sites: dict[SiteName, Site], fresh: Mapping[SiteName, Site]) -> Received:
    """Return the engine of sites that have closed their round where their rows are, and take them over."""
    sites.update(fresh)
    return Received(site.contribute(round=site.round) for site in fresh.values())


@dataclass(frozen=True)
class Round:
    """A round that was played.

    Attributes
    ----------
    number : int
    sent : list of Contribution
        What was contributed, sites in order.
    accepted : list of Contribution
        What was new to the server. Nothing new: the server has closed no round.
    told_before : (int, int)
        How many changes and moves of clusters the server had told of before this round.
    changes, moves : lists
        What the round did to the clusters, where they keep their names.

    Examples
    --------
    >>> from fcac.federation import Contribution
    >>> from fcac.federation.rounds import Received, Round, first_server
    >>> server = first_server("communities", 0, None)
    >>> played = Round.play(server, Received([Contribution("a", 1, [[0.0], [1.0]], [2, 3])]))
    >>> played.number, [change.kind for change in played.changes], server.sites
    (1, ['born'], ['a'])
    """

    number: int
    sent: list[Contribution]
    accepted: list[Contribution]
    told_before: tuple[int, int]
    changes: list[Change]
    moves: list[Move]

    @classmethod
    def play(cls, server: Server, engine: Engine, number: int | None = None) -> Round:
        """Play a round: the engine's sites contribute, and the server absorbs what is new, sites in order.

        Parameters
        ----------
        server : Server
        engine : Engine
        number : int, optional
            Number of the round; by default one more than any site or the server has seen.

        Returns
        -------
        Round
            If any site or the server fails, the server and all sites are as before, except that a site with a state
            directory or a ledger keeps what it had already made durable.
        """
        if number is None:
            newest = max((item.round for item in server.latest().values()), default=0)
            number = 1 + max(newest, engine.newest_round)
        before = server.readout.n_told
        try:
            try:
                sent = sorted(engine.contribute(number), key=lambda item: (order_key(item.site), item.round))
                accepted = server.learn(sent)
            except BaseException:
                engine.take_back()
                raise
        finally:
            engine.close()
        readout = server.readout
        return cls(number, sent, accepted, before, readout.lineage[before[0] :], readout.moves[before[1] :])


def restate(server: Server, sites: Mapping[SiteName, Site]) -> None:
    """Let the newest contribution of every site say what has been spent by now.

    Sites that share a ledger pay together: what one of them has said before the next was charged is too little.
    """
    said = {name: site.statement() for name, site in sites.items()}
    server.restate({name: {key: own[key] for key in _SPENDING if key in own} for name, own in said.items()})
    for name, site in sites.items():  # what is stored with a site must say so where the ledger is not at hand
        if "spent" in said[name] and isinstance(site.model, ReleasedState):
            site.note_cost(site.model.account.told(said[name]["spent"], said[name].get("budget")))


def play_round(
    server: Server,
    sites: dict[SiteName, Site],
    data: Mapping[SiteName, Any] | Iterable[tuple[Any, ...]],
    *,
    round: int | None = None,
    **settings: Any,
) -> Sequence[Contribution]:
    """Play one round of sites in this process, and return what they contributed.

    Parameters
    ----------
    server : Server
    sites : dict of name to Site
    data : mapping of name to rows, or iterable of (name, rows) or (name, rows, record ids)
    round : int, optional
        Number of the round; by default one more than any site or the server has seen.
    **settings
        Those of :class:`fcac.federation.in_process.InProcess`.
    """
    from fcac.federation.in_process import InProcess

    return Round.play(server, InProcess(sites, data, **settings), round).sent
