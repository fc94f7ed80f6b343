"""`NodeRelease` over rows that are condensed elsewhere: totals of partitions, for any engine.

The owner of all partitions releases once: every partition adds up its totals around codewords that are public, the
engine adds up those of all partitions, and the noise is added to the sum, where the ledger is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fcac._typing import Floats, Integers
from fcac.exceptions import DataError
from fcac.federation import Site
from fcac.model.fcac import FCAC
from fcac.model.partitions import WHOLE, Plan, converted_rows, finish_round
from fcac.privacy.bounds import check_rows, to_unit
from fcac.privacy.cell_release import Request
from fcac.privacy.cell_statistics import N_RINGS, WEIGHT, Totals, cell_totals, to_grid
from fcac.privacy.mechanisms.node_release import BatchElsewhere, NodeRelease
from fcac.privacy.record_ids import canonical_id, check_record_ids, ids_in_form
from fcac.privacy.released_state import ReleasedState
from fcac.tables.schema import Schema


class Gridded(NamedTuple):
    """Rows on the integer grid of the public bounds, with the person of each where ids are named.

    `ids` are as they are spelled, `people` as they are compared.
    """

    rows: Integers
    ids: list[str] | None
    people: list[str] | None


@dataclass(frozen=True)
class GridPlan:
    """What a worker has to know in order to put rows on the grid: the schema as TOML, public
    bounds, the column of ids.
    """

    schema: str
    bounds: Floats
    id_column: str | None

    def gridded(self, batch: pa.RecordBatch) -> Gridded:
        """Return the rows of a batch on the grid; rows that the schema drops are left out, with their ids."""
        schema = Schema.from_toml(self.schema)
        converted = converted_rows(schema, batch)
        rows = check_rows(converted.block, len(self.bounds), gaps=True)
        grid = to_grid(to_unit(rows, self.bounds))
        if self.id_column is None:
            return Gridded(grid, None, None)
        named = batch.column(batch.schema.names.index(self.id_column))
        if converted.kept is not None:
            named = named.filter(pa.array(converted.kept))
        if named.null_count:
            raise DataError(f"{named.null_count:,} rows have no id in column {self.id_column!r}: every row needs one")
        ids = check_record_ids(ids_in_form(named.to_pylist(), schema.id_form))
        return Gridded(grid, ids, [canonical_id(text) for text in ids])


def weights_of(turn: Integers, rows_of_person: Integers) -> Integers:
    """Return the weights of rows, given which of how many rows of its person each is.

    As :func:`fcac.privacy.cell_statistics.person_weights`, where an engine has counted: a person's rows weigh
    ``WEIGHT`` together, in however many partitions they are.

    >>> weights_of(np.array([0, 1, 2]), np.array([3, 3, 3])).tolist()
    [341, 341, 342]
    """
    weights: Integers = ((turn + 1) * WEIGHT) // rows_of_person - (turn * WEIGHT) // rows_of_person
    return weights


def flat_totals(parts: Iterable[tuple[Integers, Integers | None]], request: Request) -> Integers:
    """Add up the totals of blocks of rows (with their weights, or None) as one vector: counts, sums, rings."""
    n_cells, n_features = request.codebook.shape
    total = np.zeros(n_cells * (1 + n_features) + N_RINGS, dtype=np.int64)
    for rows, weights in parts:
        found = cell_totals(rows, request.codebook, request.bases, request.radius, weights)
        total += np.concatenate([found.counts, found.sums.ravel(), found.rings])
    return total


def whole_totals(values: Iterable[tuple[int, int]], request: Request) -> Totals:
    """Return the totals of a step from (place, sum over all partitions) pairs.

    A sum beyond 64 bits is a DataError: the owner has too many rows for one release.
    """
    n_cells, n_features = request.codebook.shape
    flat = np.zeros(n_cells * (1 + n_features) + N_RINGS, dtype=np.int64)
    for place, value in values:
        if abs(value) >= 2**62:
            raise DataError("too many rows for one release: release parts of them, each in a round of its own")
        flat[place] = value
    counts, sums, rings = np.split(flat, [n_cells, n_cells * (1 + n_features)])
    return Totals(counts, sums.reshape(n_cells, n_features), rings)


def check_release(model: FCAC, schema: Schema, site_column: str | None) -> NodeRelease:
    """Return the mechanism of a model, or raise an error that says why its rows cannot be released in partitions."""
    mechanism = model.privacy
    if not isinstance(mechanism, NodeRelease):
        raise ValueError(
            f"privacy: {type(mechanism).__name__} changes single rows; of rows in partitions only NodeRelease can be "
            "released, as one sum"
        )
    if site_column is not None:
        raise ValueError(
            "site_column: NodeRelease releases the rows of one owner as one sum; leave out the column of sites"
        )
    if len(mechanism.bounds) != schema.n_features:
        raise ValueError(
            f"privacy: its bounds describe {len(mechanism.bounds)} features, the schema has {schema.n_features}; use "
            "NodeRelease(epsilon, schema.require_bounds())"
        )
    return mechanism


def play_release(
    model: FCAC,
    plan: Plan,
    batch: BatchElsewhere,
    schema: Schema,
    *,
    keep_schema: bool,
) -> FCAC:
    """Play the next round of a model with the release of rows that are elsewhere; see
    :func:`fcac.model.partitions.play`.
    """
    mechanism = check_release(model, schema, plan.site_column)
    before = model.sites_.get(WHOLE) if hasattr(model, "server_") else None
    site = Site(WHOLE, mechanism, condenser=plan.condenser)
    state = None
    if before is not None:
        site = Site.from_parts(*before.to_parts(), mechanism, plan.condenser)
        state = before.model if isinstance(before.model, ReleasedState) else None
    released = mechanism.release_elsewhere(batch, state, str(WHOLE), plan.round)
    site.adopt(released, plan.round)
    return finish_round(model, plan, {WHOLE: site}, schema, keep_schema=keep_schema)
