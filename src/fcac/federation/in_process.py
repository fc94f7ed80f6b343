"""Sites in this process: their rows at once or in pieces, several sites at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fcac._parallel import in_threads, n_workers
from fcac._sites import SiteName, plain_site, site_order
from fcac.federation.contribution import Contribution
from fcac.federation.rounds import Engine
from fcac.federation.site import Site
from fcac.nodes import Trail


class InProcess(Engine):
    """Lets every site that has new rows contribute, several at a time if `n_jobs` says so, with the same result.

    A mapping gives each site its rows at once, with record ids, weights and trails of the same shape; an iterable of
    (name, rows) or (name, rows, record ids) brings them in pieces, several per site if need be, and is read once.
    `new_site` makes the site of a name that is not among the sites; None: all must be there. `progress` is called with
    the number of sites that have contributed.
    """

    def __init__(
        self,
        sites: dict[SiteName, Site],
        data: Mapping[SiteName, Any] | Iterable[tuple[Any, ...]],
        *,
        new_site: Callable[[SiteName], Site] | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int], None] | None = None,
        record_ids: Mapping[SiteName, Sequence[Any]] | None = None,
        weights: Mapping[SiteName, Any] | None = None,
        trails: Mapping[SiteName, Trail] | None = None,
    ) -> None:
        if record_ids is not None and (not isinstance(data, Mapping) or set(record_ids) != set(data)):
            raise ValueError(
                "record_ids must name the same sites as the rows; pieces carry theirs as (name, rows, ids)"
            )
        self.sites, self.data = sites, data
        self.n_jobs, self._progress, self._new_site = n_jobs, progress, new_site
        self._record_ids = record_ids
        self._weights, self._trails = weights or {}, trails or {}
        self._before: dict[SiteName, Any] = {}

    @property
    def newest_round(self) -> int:
        return max((site.round for site in self.sites.values()), default=0)

    def contribute(self, number: int) -> list[Contribution]:
        given = self._take_rows()
        # where rows age, they do so at every site
        names = site_order({*given, *(name for name, site in self.sites.items() if site.condenser.ages and site.round)})
        rows: Mapping[SiteName, Any] = self.data if isinstance(self.data, Mapping) else {}
        ids = self._checked_ids(names)
        done, n_threads = itertools.count(1), 1 if len(names) > 1 else n_workers(self.n_jobs)

        def contribution(name: SiteName) -> Contribution:
            sent = self.sites[name].contribute(
                rows.get(name),
                number,
                record_ids=ids.get(name),
                weights=self._weights.get(name),
                n_threads=n_threads,
                trail=self._trails.get(name),
            )
            if self._progress is not None:
                self._progress(next(done))
            return sent

        self._before = {name: self.sites[name].checkpoint() for name in names}
        return in_threads(contribution, names, n_workers(self.n_jobs))

    def _take_rows(self) -> set[SiteName]:
        """Find every site that has rows; those in pieces are handed to their sites as they come."""
        if isinstance(self.data, Mapping):
            for name in self.data:
                self._site(name)
            return set(self.data)
        seen = set()
        for given, *piece in self.data:
            name = plain_site(given)
            self._site(name).observe(*piece)
            seen.add(name)
        return seen

    def _site(self, name: SiteName) -> Site:
        if name not in self.sites and self._new_site is not None:
            self.sites[name] = self._new_site(name)
        return self.sites[name]

    def _checked_ids(self, names: Sequence[SiteName]) -> dict[SiteName, list[str]]:
        """Check the ids of all sites, before the first is charged."""
        if self._record_ids is None:
            return {}
        given = self._record_ids
        return {n: self.sites[n].checked_records(given[n]) or [] for n in names if n in given}

    def take_back(self) -> None:
        for name, state in self._before.items():
            self.sites[name].roll_back(state)

    def close(self) -> None:
        for site in self.sites.values():
            site.discard()
