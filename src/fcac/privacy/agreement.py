"""Sites agree on bounds, centre and spread of columns, where nobody knows them, through differentially private counts.

Two releases per site. In the first every record is counted, for every column, in one of a few public coarse bins (four
to a decade, both signs); the bins in which the counts of all sites together stand out of the noise give the range. In
the second the records are counted in equal bins over that range, which gives centre and spread. A record adds one to at
most one bin of each column, so the counts of m columns have an L2 sensitivity of the square root of m; a gap adds
nothing. The noise is OpenDP's discrete Gaussian, drawn at each site after its ledger was charged. Everything else, the
second range included, is computed from noised counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fcac._sites import SiteName, site_order
from fcac._typing import Floats, Integers
from fcac.exceptions import SchemaError
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.ledger import Ledger
from fcac.privacy.samplers import OpenDPSampler, Sampler
from fcac.privacy.zcdp import check_delta, check_epsilon, gaussian_scale, rho_from_epsilon, show
from fcac.tables.column import Column
from fcac.tables.schema import Schema, as_batch

# Public bins of the first release: four to a decade from 1e-6 to 1e9, both signs.
_EDGES = np.concatenate([-np.logspace(9, -6, 61), [0.0], np.logspace(-6, 9, 61)])
_N_FINE = 32
# A bin stands out if it holds this many standard deviations of the noise.
_STANDS_OUT = 4.0
# Shares of rho, for the two releases; rounding stays below the rest.
_SHARES = (0.5, 0.5 * (1 - 1e-9))


def agree(
    schema: Schema,
    tables: Mapping[SiteName, Any],
    epsilon: float,
    *,
    delta: float = 1e-6,
    ledgers: Mapping[SiteName, Ledger] | None = None,
    sampler: Sampler | None = None,
) -> Schema:
    """Return the schema with public bounds, centre and spread for numbers and dates that had no bounds.

    Parameters
    ----------
    schema : Schema
        Columns of kind number and of kind date (days) without min or max are agreed on; others stay as they are.
    tables : mapping of site to table
        Frames of pandas or polars, or Arrow tables; they are read at their sites only.
    epsilon : float
        Cost for one record, for both releases together, at each site.
    delta : float
    ledgers : mapping of site to Ledger, optional
        Charged before any noise is drawn.
    sampler : Sampler, optional
        None means OpenDP's exact discrete Gaussian.

    Returns
    -------
    Schema
        Agreed columns have min, max, center, spread and ``clip = true``. Its constants come from a private release, so
        they may be told to anybody: ``bounds_are_public`` is true if it holds for the other columns.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    sampler = OpenDPSampler() if sampler is None else sampler
    wanted = [column for column in schema.used if _is_unknown(column)]
    if not wanted:
        raise SchemaError("every number in the schema has bounds: there is nothing to agree on")
    values = {site: _values(tables[site], wanted) for site in site_order(tables)}
    sampler.check_ready()
    rho = rho_from_epsilon(epsilon, delta)
    for site in values:
        ledger = None if ledgers is None else ledgers.get(site)
        if ledger is not None:
            what = f"agreement on {len(wanted)} columns, eps = {epsilon:g} at delta = {show(delta)}"
            ledger.complete(ledger.charge(str(site), rho, what=what, accounting="gaussian"))
    coarse, deviation = _counted(values, [_EDGES] * len(wanted), rho * _SHARES[0], sampler)
    ranges = [_range(counts, deviation, column.name) for counts, column in zip(coarse, wanted, strict=True)]
    fine = [np.linspace(low, high, _N_FINE + 1) for low, high in ranges]
    counts, deviation = _counted(values, fine, rho * _SHARES[1], sampler)
    agreed = {
        column.name: _agreed(column, edges, own, deviation)
        for column, edges, own in zip(wanted, fine, counts, strict=True)
    }
    fields = [agreed.get(column.name, column) for column in schema.fields]
    return Schema(fields, bounds_are_public=schema.bounds_are_public, id_form=schema.id_form)


def _is_unknown(column: Column) -> bool:
    days = column.how.name == "number" or (column.how.name == "date" and column.parts is None)
    return days and (column.min is None or column.max is None)


def _values(table: Any, wanted: list[Column]) -> list[Floats]:
    """The columns as numbers in the units of the table, NaN for gaps."""
    batch = as_batch(table)
    plain = [replace(column, scaling="none", weight=1.0, missing="native", fill=None, clip=False) for column in wanted]
    rows = Schema(plain).convert(batch).block
    return [np.ascontiguousarray(rows[:, j]) for j in range(rows.shape[1])]


def _counted(
    values: Mapping[SiteName, list[Floats]], edges: list[Floats], rho: float, sampler: Sampler
) -> tuple[list[Floats], float]:
    """Noised counts of all sites together, per column, and the standard deviation of their noise."""
    scale = gaussian_scale(len(edges) * WEIGHT**2, rho)
    total: list[Any] = [0] * len(edges)
    for own in values.values():
        for j, bins in enumerate(edges):
            total[j] = total[j] + sampler.add_noise(_histogram(own[j], bins) * WEIGHT, scale)
    return [counts / WEIGHT for counts in total], scale / WEIGHT * np.sqrt(len(values))


def _histogram(values: Floats, edges: Floats) -> Integers:
    """Records per bin; those beyond the edges are in the first and the last one, gaps in none."""
    known = values[~np.isnan(values)]
    place = np.clip(np.searchsorted(edges, known, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(place, minlength=len(edges) - 1).astype(np.int64)


def _range(counts: Floats, deviation: float, name: str) -> tuple[float, float]:
    """The coarse bins that stand out, from the first to the last."""
    full = np.flatnonzero(counts > _STANDS_OUT * deviation)
    if not len(full):
        raise SchemaError(
            f"column {name!r}: too few records, or too small an epsilon, to agree on bounds: give min and max, "
            "from public knowledge, or a larger epsilon"
        )
    return float(_EDGES[full[0]]), float(_EDGES[full[-1] + 1])


def _agreed(column: Column, edges: Floats, counts: Floats, deviation: float) -> Column:
    """Bounds where records are, centre and spread from the noised counts."""
    sure = np.where(counts > _STANDS_OUT * deviation, counts, 0.0)
    if not sure.any():
        sure = np.maximum(counts, 0.0) + 1e-9
    full = np.flatnonzero(sure)
    low, high = float(edges[full[0]]), float(edges[full[-1] + 1])
    middles = 0.5 * (edges[1:] + edges[:-1])
    center = float(np.average(middles, weights=sure))
    spread = float(np.sqrt(np.average((middles - center) ** 2, weights=sure) + (edges[1] - edges[0]) ** 2 / 12.0))
    if column.scaling == "log":
        low = max(low, 1e-6 * high)
    return replace(column, min=low, max=high, center=center, spread=spread, clip=True)
