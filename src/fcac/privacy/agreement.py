"""Sites agree on bounds, centre, spread and levels that nobody knows, by differentially private counts.

Two releases per site. In the first every record is counted, for every column of numbers, in one of a few public coarse
bins (four to a decade, both signs), and for every category by its level; the bins in which the counts of all sites
together stand out of the noise give the range, and the levels that sites may name give the list. In the second, records
are counted in equal bins over that range, which gives bounds, centre and spread. The noise is OpenDP's discrete
Gaussian, drawn at each site after its ledger was charged (:mod:`fcac.privacy.agreement_counts`). Everything here, the
second range included, is computed from noised counts.

:func:`agree` does it in one process; ``fcac federation agree`` does the same over the hub of a federation. What it
costs and how near it comes is in docs/privacy/agreement.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fcac._sites import SiteName, site_order
from fcac._typing import Floats
from fcac.exceptions import SchemaError
from fcac.privacy.agreement_counts import (
    COARSE,
    NoisedCounts,
    SiteValues,
    count_coarse,
    count_fine,
    open_categories,
    open_numbers,
)
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.ledger import Ledger
from fcac.privacy.record_ids import check_record_ids, ids_in_form
from fcac.privacy.samplers import OpenDPSampler, Sampler
from fcac.privacy.zcdp import check_delta, check_epsilon, rho_from_epsilon, show
from fcac.tables.column import Column
from fcac.tables.schema import Schema, as_batch

#: What may become of the scaling of columns that are agreed on; None leaves it as it is.
SCALINGS = ("standard", "range", "none")

#: Most levels that an agreed category lists; the others are "other".
MOST_LEVELS = 50

# A bin stands out if it holds this many standard deviations of the noise.
_STANDS_OUT = 4.0
# Equal bins over the agreed range: fewer where the noise would hide them.
_FEWEST_BINS, _MOST_BINS, _DEVIATIONS_A_BIN = 8, 64, 8.0
# Shares of a normal column below its mean minus and plus one standard deviation.
_WITHIN_ONE_DEVIATION = (0.15866, 0.84134)
# What an agreement may set.
_SETTLED = ("min", "max", "center", "spread", "scaling", "clip", "categories", "features")
# Part of delta that naming levels may take.
_NAMING = 0.1


class Prices(NamedTuple):
    """What the two releases of an agreement cost one record (with ids: one person) of a site, in rho.

    `fine` is 0 if there are no numbers to agree on; `slack` is the part of delta for naming levels, 0 without
    categories.
    """

    coarse: float
    fine: float
    slack: float


def prices(epsilon: float, delta: float, n_numbers: int, n_categories: int) -> Prices:
    """Divide an epsilon among the releases, half for each; together they cost no more than epsilon at delta."""
    slack = _NAMING * delta if n_categories else 0.0
    rho = rho_from_epsilon(check_epsilon(epsilon), check_delta(delta) - slack)
    if not n_numbers:
        return Prices(rho, 0.0, slack)
    # half of a float is exact, so the two add up to rho
    return Prices(0.5 * rho, 0.5 * rho, slack)


def agree(
    schema: Schema,
    tables: Mapping[SiteName, Any],
    epsilon: float,
    *,
    delta: float = 1e-6,
    ledgers: Mapping[SiteName, Ledger] | None = None,
    sampler: Sampler | None = None,
    record_id: str | None = None,
    levels: bool = True,
    scaling: str | None = None,
) -> Schema:
    """Return the schema with public bounds, centre, spread and levels where it had none.

    Parameters
    ----------
    schema : Schema
        Columns of kind number and of kind date (days) without min or max, and categories without a list of levels,
        are agreed on; others stay as they are.
    tables : mapping of site to table
        Frames of pandas or polars, or Arrow tables; they are read at their sites only.
    epsilon : float
        Cost for one record (with `record_id`: for one person), for both releases together, at each site.
    delta : float
    ledgers : mapping of site to Ledger, optional
        Charged before any noise is drawn.
    sampler : Sampler, optional
        None means OpenDP's exact discrete Gaussian.
    record_id : str, optional
        Column that identifies the person of each row.
    levels : bool
        Agree on the frequent levels of categories, too.
    scaling : {"standard", "range", "none"}, optional
        Scaling of the columns that were agreed on and are not on a log scale; by default it stays as it is.

    Returns
    -------
    Schema
        Agreed numbers have min, max, center, spread and ``clip = true``, agreed categories their frequent levels; a
        category of which no level is frequent stays as it was. All this comes from private releases and may be told to
        anybody, so ``bounds_are_public`` is true unless constants of other columns are not.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    sampler = OpenDPSampler() if sampler is None else sampler
    numbers, categories = open_columns(schema, levels)
    sites = {site: _read(tables[site], numbers, categories, record_id, schema) for site in site_order(tables)}
    sampler.check_ready()
    price = prices(epsilon, delta, len(numbers), len(categories))
    keep: dict[SiteName, Any] = {}
    for site, (_, people) in sites.items():
        ledger = None if ledgers is None else ledgers.get(site)
        if ledger is not None:
            what = f"agreement on {len(numbers) + len(categories)} columns, eps = {epsilon:g} at delta = {show(delta)}"
            admission = ledger.admit(
                str(site), price.coarse + price.fine, what=what, slack=price.slack,
                record_ids=people,
            )  # fmt: skip
            ledger.complete(admission.number)
            keep[site] = admission.admitted
    coarse = [
        count_coarse(values, price.coarse, price.slack, sampler, people, keep.get(site))
        for site, (values, people) in sites.items()
    ]
    edges = fine_edges(coarse, numbers)
    fine = [
        count_fine(values, edges, price.fine, sampler, people, keep.get(site))
        for site, (values, people) in sites.items()
        if numbers
    ]
    return agreed_schema(schema, numbers, categories, coarse, edges, fine, scaling)


def open_columns(schema: Schema, levels: bool = True) -> tuple[list[Column], list[Column]]:
    """Return the numbers and the categories to agree on; an error if there are none."""
    numbers, categories = open_numbers(schema), open_categories(schema) if levels else []
    if not numbers and not categories:
        raise SchemaError("every number in the schema has bounds: there is nothing to agree on")
    return numbers, categories


def _read(
    table: Any, numbers: list[Column], categories: list[Column], record_id: str | None, schema: Schema
) -> tuple[SiteValues, list[str] | None]:
    batch, values = as_batch(table), SiteValues(numbers, categories)
    values.add(batch)
    if record_id is None:
        return values, None
    if record_id not in batch.schema.names:
        raise SchemaError(f"there is no column {record_id!r} of record ids")
    ids = batch.column(batch.schema.names.index(record_id)).to_pylist()
    return values, check_record_ids(ids_in_form(ids, schema.id_form))


# ------------------------------------------------------------ from noised counts


def fine_edges(coarse: Sequence[NoisedCounts], numbers: Sequence[Column]) -> list[Floats]:
    """Return the bins of the second release: equal ones over the coarse bins that stand out."""
    deviation = _deviation(coarse)
    return [_edges(_total(coarse, number), deviation, column.name) for number, column in enumerate(numbers)]


def agreed_schema(
    schema: Schema,
    numbers: Sequence[Column],
    categories: Sequence[Column],
    coarse: Sequence[NoisedCounts],
    edges: Sequence[Floats],
    fine: Sequence[NoisedCounts],
    scaling: str | None = None,
) -> Schema:
    """Return the schema that follows from what all sites have released."""
    if scaling is not None and scaling not in SCALINGS:
        raise SchemaError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}")
    deviation = _deviation(fine) if fine else 0.0
    agreed = {
        column.name: _with_bounds(column, edges[number], _total(fine, number), deviation, scaling)
        for number, column in enumerate(numbers)
    }
    agreed |= {
        column.name: _with_levels(column, [counts.levels[number] for counts in coarse], scaling)
        for number, column in enumerate(categories)
    }
    fields = [agreed.get(column.name, column) for column in schema.fields]
    public = schema.bounds_are_public or not any(_has_constants(c) for c in schema.used if c.name not in agreed)
    return Schema(fields, bounds_are_public=public, id_form=schema.id_form)


def check_agreed(before: Schema, after: Schema) -> None:
    """Raise SchemaError unless a schema can come from an agreement on another: what was settled must be as it was."""
    opened = {column.name for column in [*open_numbers(before), *open_categories(before)]}
    if [column.name for column in before.fields] != [column.name for column in after.fields]:
        raise SchemaError("the agreed schema has other columns")
    if before.id_form != after.id_form:
        raise SchemaError("the agreed schema compares ids in another way")
    for old, new in zip(before.fields, after.fields, strict=True):
        opened_again = {key: getattr(old, key) for key in _SETTLED} if old.name in opened else {}
        if replace(new, **opened_again) != old:
            raise SchemaError(f"column {old.name!r}: the agreed schema changes what was settled")


def _total(released: Sequence[NoisedCounts], number: int) -> Floats:
    total: Floats = np.sum([counts.bins[number] for counts in released], axis=0) / WEIGHT
    return total


def _deviation(released: Sequence[NoisedCounts]) -> float:
    """Standard deviation of the noise in the counts of all sites together."""
    return float(np.sqrt(sum(counts.scale**2 for counts in released))) / WEIGHT


def _edges(counts: Floats, deviation: float, name: str) -> Floats:
    full = np.flatnonzero(counts > _STANDS_OUT * deviation)
    if not len(full):
        raise SchemaError(
            f"column {name!r}: too few records, or too small an epsilon, to agree on bounds: give min and max, "
            "from public knowledge, or a larger epsilon"
        )
    affordable = float(counts[full].sum()) / (_DEVIATIONS_A_BIN * deviation) if deviation > 0 else _MOST_BINS
    n_bins = int(np.clip(affordable, _FEWEST_BINS, _MOST_BINS))
    return np.linspace(float(COARSE[full[0]]), float(COARSE[full[-1] + 1]), n_bins + 1)


def _with_bounds(column: Column, edges: Floats, counts: Floats, deviation: float, scaling: str | None) -> Column:
    """Bounds where records are, centre and spread from the noised counts."""
    sure = np.where(counts > _STANDS_OUT * deviation, counts, 0.0)
    if not sure.any():
        sure = np.maximum(counts, 0.0) + 1e-9
    full = np.flatnonzero(sure)
    low, high = float(edges[full[0]]), float(edges[full[-1] + 1])
    middles = 0.5 * (edges[1:] + edges[:-1])
    center = float(np.average(middles, weights=sure))
    deviating = float(np.sqrt(np.average((middles - center) ** 2, weights=sure) + (edges[1] - edges[0]) ** 2 / 12.0))
    # Half the distance between two quantiles: that of a normal column is its standard deviation. How far a long tail
    # stands out from the noise is chance, and decides the standard deviation. Where one value is most of a column, the
    # quantiles meet, and half the standard deviation is the least.
    below = np.concatenate([[0.0], np.cumsum(sure) / sure.sum()])
    first, last = np.interp(_WITHIN_ONE_DEVIATION, below, edges)
    spread = max(float(last - first) / 2.0, deviating / 2.0)
    if column.scaling == "log":
        low = max(low, 1e-6 * high)
    elif scaling is not None:
        column = replace(column, min=low, max=high, center=center, spread=spread, scaling=scaling)
    return replace(column, min=low, max=high, center=center, spread=spread, clip=True)


def _with_levels(column: Column, found: Sequence[Mapping[str, int]], scaling: str | None) -> Column:
    """The levels that sites have named, the most frequent first; the column as it was if there are none."""
    totals: Counter[str] = Counter()
    for counts in found:
        totals.update(dict(counts))
    if scaling is not None:
        column = replace(column, scaling=scaling)
    if not totals:
        return column
    names = sorted(totals, key=lambda name: (-totals[name], name))[:MOST_LEVELS]
    return replace(column, categories=tuple(sorted(names)), features=None)


def _has_constants(column: Column) -> bool:
    """Whether a column states numbers or levels that may have been read off records."""
    stated = (column.min, column.max, column.center, column.spread, column.fill, column.categories)
    return any(value is not None for value in stated)
