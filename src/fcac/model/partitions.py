"""A model whose rows are condensed elsewhere, partition by partition: what any engine needs, and no engine.

An engine hands :func:`condense` the batches of a partition wherever they are, brings the states that come out to one
place, through :func:`merge` if partitions are not sites, and gives them to :func:`play`. :mod:`fcac.spark` is one such
engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fcac import persistence
from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.exceptions import DataError
from fcac.federation import Site, readouts
from fcac.federation.condenser import AgingCondenser, Condenser, ReservoirCondenser, condenser_for
from fcac.federation.rounds import closed_sites
from fcac.model.fcac import FCAC
from fcac.nodes import Reservoir
from fcac.nodes.aging import Aged
from fcac.tables.find_tables import site_from_text
from fcac.tables.schema import Schema, describe_problems

#: Name of the only site if rows have none, as in `FCAC.fit`.
WHOLE: SiteName = 0


@dataclass(frozen=True)
class Plan:
    """What a worker has to know in order to condense a partition: settings of `FCAC`, and the schema as TOML.

    With a `site_column`, the rows of a site come one after the other; `weight_column` says how many rows each row
    stands for.
    """

    server: str
    max_nodes: int | None
    forgetting: str
    schema: str
    site_column: str | None
    round: int
    weight_column: str | None = None
    scale: str = "auto"

    @property
    def condenser(self) -> Condenser:
        """How sites condense."""
        kind = readouts.find(self.server).condenser
        return condenser_for(kind, self.max_nodes, forgetting=self.forgetting, scale=self.scale)

    def check(self) -> None:
        """Refuse what cannot be condensed in pieces."""
        if self.site_column is None and not isinstance(self.condenser, ReservoirCondenser | AgingCondenser):
            raise ValueError(
                f'site_column: server="{self.server}" learns a site\'s rows in one pass, so that partitions of one '
                'site cannot be merged; name the column of sites, or use server="communities"'
            )


class Condensed(NamedTuple):
    """What has become of the rows of a site, or of a partition of it.

    `state` is that of the site, or of a reservoir of this round's rows where partitions are to be merged.
    """

    site: SiteName
    state: bytes
    n_rows: int
    n_dropped: int
    n_nodes: int


def plan_for(model: FCAC, schema: Schema, site_column: str | None, weight_column: str | None = None) -> Plan:
    """Return the plan of the next round of a model, fitted or not."""
    started = hasattr(model, "server_")
    plan = Plan(
        server=model.server,
        max_nodes=model.max_nodes,
        forgetting=model.forgetting,
        schema=schema.to_toml(),
        site_column=site_column,
        round=1 + (max(site.round for site in model.sites_.values()) if started else 0),
        weight_column=weight_column,
        scale=model.scale,
    )
    if model.privacy is None:
        plan.check()
    elif weight_column is not None:
        raise ValueError("weight_column: a privacy mechanism counts every row once; leave the weights out")
    return plan


# ---------------------------------------------------------------- where the rows are


def condense(
    plan: Plan, batches: Iterable[pa.RecordBatch], before: Mapping[SiteName, bytes] | None = None
) -> Iterator[Condensed]:
    """Condense the rows of a partition: yield one state for each site, or one in all without sites.

    All rows of a site must be in one partition, one after the other; `before` holds the states of sites before this
    round.
    """
    schema = _schema(plan.schema)
    closed: set[SiteName] = set()
    now: _Open | None = None
    for batch in batches:
        for site, rows in _by_site(batch, plan.site_column):
            if now is None or site != now.site:
                if now is not None:
                    closed.add(now.site)
                    yield now.close()
                if site in closed:
                    raise DataError(f"the rows of site {site} are not next to each other in their partition")
                now = _Open(plan, site, (before or {}).get(site))
            now.take(schema, rows)
    if now is not None:
        yield now.close()


class _Open:
    """A site whose rows are being learned."""

    def __init__(self, plan: Plan, site: SiteName, before: bytes | None) -> None:
        self.site, self._plan = site, plan
        self._n_rows = self._n_dropped = 0
        self._site: Site | None = None
        self._part: Reservoir | None = None
        if plan.site_column is not None:
            self._site = Site(site, condenser=plan.condenser) if before is None else _site_of(before, plan)

    def take(self, schema: Schema, rows: pa.RecordBatch) -> None:
        converted = converted_rows(schema, rows)
        self._n_rows += len(converted.block)
        self._n_dropped += rows.num_rows - len(converted.block)
        weights = None
        if self._plan.weight_column is not None:
            weights = weights_of(rows, self._plan.weight_column)
            weights = weights if converted.kept is None else weights[converted.kept]
        if self._site is not None:
            self._site.observe(converted.block, weights=weights, n_threads=1)
            return
        if self._part is None:
            most = getattr(self._plan.condenser, "max_nodes", None)
            self._part = Reservoir(schema.n_features, most)  # type: ignore[arg-type]
        self._part.learn(converted.block, weights, n_threads=1)

    def close(self) -> Condensed:
        state, n_nodes = b"", 0
        if self._n_rows and self._site is not None:
            n_nodes = len(self._site.contribute(round=self._plan.round, n_threads=1).nodes)
            state = persistence.pack("site", *self._site.to_parts())
        elif self._n_rows and self._part is not None:
            n_nodes = self._part.n_nodes
            state = persistence.pack("site", *self._part.to_parts())
        return Condensed(self.site, state, self._n_rows, self._n_dropped, n_nodes)


def merge(states: Iterable[bytes]) -> bytes:
    """Merge the states of partitions; their order matters no more than the order of rows does."""
    found = [Reservoir.from_parts(*persistence.unpack(state, kind="site")) for state in states if state]
    return persistence.pack("site", *Reservoir.merge(found).to_parts()) if found else b""


def converted_rows(schema: Schema, batch: pa.RecordBatch) -> Any:
    """Convert a batch by the schema; what does not fit is an error that names the column."""
    converted = schema.convert(batch)
    if converted.missing or converted.unknown:
        raise DataError(describe_problems(converted.missing, converted.unknown, batch.num_rows))
    return converted


def weights_of(batch: pa.RecordBatch, column: str) -> Floats:
    """Return how many rows each row of a batch stands for."""
    values = batch.column(batch.schema.names.index(column))
    if values.null_count:
        raise DataError(f"{values.null_count:,} rows have no weight in column {column!r}: every row needs one")
    try:
        found: Floats = np.asarray(values.cast(pa.float64()))
    except pa.ArrowInvalid:
        raise DataError(f"column {column!r} must hold weights, which are numbers") from None
    if not np.isfinite(found).all() or (found < 0).any():
        raise DataError(f"column {column!r} must hold weights, which are finite and not below zero")
    return found


def _by_site(batch: pa.RecordBatch, column: str | None) -> Iterator[tuple[SiteName, pa.RecordBatch]]:
    """Cut a batch into runs of rows of one site."""
    if batch.num_rows == 0:
        return
    if column is None:
        yield WHOLE, batch
        return
    names = batch.column(batch.schema.names.index(column))
    if names.null_count:
        raise DataError(f"{names.null_count:,} rows have no site in column {column!r}: every row needs one")
    values = names.to_pylist()
    starts = [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
    for start, stop in pairwise(starts):
        yield site_name(values[start], column), batch.slice(start, stop - start)


def site_name(value: Any, column: str) -> SiteName:
    """Return a value of the site column as the name of a site."""
    if isinstance(value, str):
        return site_from_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise DataError(f"column {column!r} must name sites by text or whole numbers")


@cache
def _schema(text: str) -> Schema:
    return Schema.from_toml(text)


def _site_of(state: bytes, plan: Plan) -> Site:
    return Site.from_parts(*persistence.unpack(state, kind="site"), condenser=plan.condenser)


# ---------------------------------------------------------------- where the model is


def states_of(model: FCAC, plan: Plan) -> dict[SiteName, bytes]:
    """Return the states that workers go on from; none if partitions are merged."""
    if plan.site_column is None or not hasattr(model, "server_"):
        return {}
    return {name: persistence.pack("site", *site.to_parts()) for name, site in model.sites_.items()}


def play(model: FCAC, plan: Plan, condensed: Iterable[Condensed], schema: Schema, *, keep_schema: bool) -> FCAC:
    """Play the next round of a model with rows that were condensed elsewhere, and return the model.

    A repeated site counts once. With `keep_schema` the schema stays with the model; otherwise only its names do.
    """
    found = {item.site: item.state for item in condensed if item.state}
    if not found:
        raise DataError("no rows to learn: the table is empty, or every row was dropped for its gaps")
    before = model.sites_ if hasattr(model, "server_") else {}
    fresh = {
        name: _site_of(state, plan) if plan.site_column is not None else _merged_site(before, state, plan)
        for name, state in found.items()
    }
    return finish_round(model, plan, fresh, schema, keep_schema=keep_schema)


def finish_round(model: FCAC, plan: Plan, fresh: Mapping[SiteName, Site], schema: Schema, *, keep_schema: bool) -> FCAC:
    """Let the server absorb the sites of this round, and the model take everything over."""
    started = hasattr(model, "server_")
    if started and schema.n_features != model.n_features_in_:
        raise ValueError(f"the rows have {schema.n_features} features, the model has {model.n_features_in_}")
    model._play_round(
        lambda sites, _: closed_sites(sites, fresh),
        schema.n_features, schema if keep_schema else None, reset=not started,
    )  # fmt: skip
    if not started:
        model._keep_columns(schema if keep_schema else None, schema.feature_names, site_column=plan.site_column)
    model._last_rows = None
    return model


def _merged_site(sites: Mapping[SiteName, Site], state: bytes, plan: Plan) -> Site:
    """Return the only site after a round: its state before, and what the partitions were merged to."""
    fresh = Reservoir.from_parts(*persistence.unpack(state, kind="site"))
    before = sites.get(WHOLE)
    condenser = plan.condenser
    known: Any = None if before is None else before.model
    if isinstance(condenser, AgingCondenser):
        start = Aged(fresh.n_features, 0, ()) if known is None else known
        whole: Any = start.after(plan.round, fresh, condenser.forgetting)
    else:
        whole = fresh if known is None else Reservoir.merge([known, fresh])
    meta, arrays = condenser.to_parts(whole)
    return Site.from_parts(
        {"site": WHOLE, "round": plan.round, "network": None, "released": None, condenser.key: meta},
        arrays,
        condenser=condenser,
    )


# ---------------------------------------------------------------- labels


class Labels(NamedTuple):
    """Labels of the rows of a batch; rows that the schema drops have none."""

    label: pa.Array
    confidence: pa.Array
    distance: pa.Array
    novel: pa.Array


def label(model: Any, schema: Schema, batch: pa.RecordBatch, alpha: float | None = None) -> Labels:
    """Label a batch of rows, and say which are novel; see :meth:`fcac.FCAC.is_novel`."""
    converted = converted_rows(schema, batch)
    n, kept = batch.num_rows, converted.kept
    places = np.arange(n) if kept is None else np.flatnonzero(kept)
    found = np.zeros(n, np.int64), np.full(n, np.nan), np.zeros(n), np.zeros(n, bool)
    if len(places):
        label, distance, novel = model.label_rows(converted.block, alpha)
        found[0][places], found[2][places], found[3][places] = label, distance, novel
        with suppress(AttributeError):  # not every server knows soft membership
            found[1][places] = model.predict_with_confidence(converted.block)[1]
    empty = np.ones(n, bool)
    empty[places] = False
    return Labels(
        pa.array(found[0], pa.int64(), mask=empty),
        pa.array(found[1], pa.float64(), mask=np.isnan(found[1])),
        pa.array(found[2], pa.float64(), mask=empty),
        pa.array(found[3], pa.bool_(), mask=empty),
    )
