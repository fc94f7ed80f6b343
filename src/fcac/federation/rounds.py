"""One round of a federation inside one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fcac._parallel import in_threads, n_workers
from fcac._sites import SiteName, site_order
from fcac.federation.contribution import Contribution
from fcac.federation.server import Server
from fcac.federation.site import Site
from fcac.nodes import Trail


def play_round(
    server: Server,
    sites: Mapping[SiteName, Site],
    data: Mapping[SiteName, Any] | Iterable[tuple[Any, ...]],
    *,
    round: int | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    record_ids: Mapping[SiteName, Sequence[Any]] | None = None,
    weights: Mapping[SiteName, Any] | None = None,
    trails: Mapping[SiteName, Trail] | None = None,
) -> list[Contribution]:
    """Let every site that has new rows contribute, and the server absorb what they send.

    Parameters
    ----------
    server : Server
    sites : mapping of name to Site
        Must hold every site named in `data`.
    data : mapping of name to rows, or iterable of (name, rows) or (name, rows, record ids)
        A mapping gives each site its rows at once; an iterable brings them in pieces, several per site if need be, and
        is read once.
    round : int, optional
        Number of the round; by default one more than any site or the server has seen.
    n_jobs : int, optional
        Sites that work at the same time; None or -1: as many as there are processors. The result does not depend
        on it.
    progress : callable, optional
        Called with the number of sites that have contributed.
    record_ids : mapping of name to ids, optional
        With a mapping of rows: the id of each row of each site; see :meth:`Site.contribute`.
    weights : mapping of name to weights, optional
        With a mapping of rows: how many rows each row stands for.
    trails : mapping of name to Trail, optional
        With a mapping of rows: take note of where each site's rows go; see :meth:`Site.nodes_of`.

    Returns
    -------
    contributions : list of Contribution
        In the order of sites. If any site fails, the server and all sites are as before, except that a site with a
        state directory or a ledger keeps what it had already made durable.
    """
    number = round if round is not None else _next_round(server, sites)
    whole = isinstance(data, Mapping)
    if record_ids is not None and (not whole or set(record_ids) != set(data)):
        raise ValueError("record_ids must name the same sites as the rows; pieces carry theirs as (name, rows, ids)")
    try:
        if isinstance(data, Mapping):
            names = site_order(data)
            if record_ids is not None:  # all of them, before the first site is charged
                record_ids = {name: sites[name].checked_records(record_ids[name]) or [] for name in names}
        else:
            seen: set[SiteName] = set()
            for name, *piece in data:
                sites[name].observe(*piece)
                seen.add(name)
            names = site_order(seen)
        # where rows age, they do so at every site
        names = site_order({*names, *(name for name, site in sites.items() if site.condenser.ages and site.round)})

        done = itertools.count(1)
        n_threads = 1 if len(names) > 1 else n_workers(n_jobs)

        def contribute(name: SiteName) -> Contribution:
            sent = sites[name].contribute(
                data.get(name) if isinstance(data, Mapping) else None,
                number,
                record_ids=None if record_ids is None else record_ids.get(name),
                weights=None if weights is None else weights.get(name),
                n_threads=n_threads,
                trail=None if trails is None else trails.get(name),
            )
            if progress is not None:
                progress(next(done))
            return sent

        before = {name: sites[name].checkpoint() for name in names}
        try:
            contributions = in_threads(contribute, names, n_workers(n_jobs))
            server.absorb(contributions)
        except BaseException:
            for name, state in before.items():
                sites[name].roll_back(state)
            raise
    finally:
        for site in sites.values():
            site.discard()
    return contributions


def _next_round(server: Server, sites: Mapping[SiteName, Site]) -> int:
    newest = max((item.round for batch in server.log for item in batch), default=0)
    return 1 + max(newest, max((site.round for site in sites.values()), default=0))
