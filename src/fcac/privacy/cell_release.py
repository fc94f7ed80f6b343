"""The release itself: a codebook that is grown from noised totals only, never from the records.

There are five steps. The first has one cell and learns where the batch lies; the following ones split the heaviest
cells and move them to noised means. A site that has released before starts from its own nodes and takes three steps.
Everything that controls a step (codewords, the radius to which residuals are clipped, the number of cells) is a public
constant or computed from totals that have already been noised, so the steps compose adaptively and their costs add up
to the rho that was charged. The proof is in docs/privacy/proof.md and uses the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fcac._typing import Floats, Integers
from fcac.privacy.cell_statistics import (
    UNIT,
    WEIGHT,
    GridBlocks,
    Totals,
    cell_totals,
    from_grid,
    ring_edges,
    to_grid,
    widest_radius,
)
from fcac.privacy.samplers import Sampler
from fcac.privacy.zcdp import gaussian_rho, gaussian_scale

# Public constants, chosen on synthetic data (benchmarks/privacy_utility.py); none was chosen on the benchmark sets.
#: Fraction of rho spent on each step.
STEP_SHARES = (0.10, 0.20, 0.20, 0.25, 0.25)
#: Cells at each step, as a fraction of the final number; the first step always has one cell.
CELL_SHARES = (0.0, 0.25, 0.5, 1.0, 1.0)
#: The same for a site that has released before: it starts from its own nodes and need not grow a new codebook.
LATER_STEP_SHARES = (0.10, 0.40, 0.50)
LATER_CELL_SHARES = (0.0, 1.0, 1.0)
#: Fractions of a step's rho for the counts and for the rings (no rings in the last step); the sums get the rest.
COUNT_SHARE, RING_SHARE = 0.12, 0.06
#: A cell is alive if its noised count exceeds this many standard deviations of the count noise.
ALIVE = 2.0
#: Fraction of records whose residuals should fit into the next radius.
RADIUS_QUANTILE = 0.35
#: Exponent of the trust (shrinkage) for the nodes that are sent. 1 would put them closest to the truth, which suits
#: k-means; 0 leaves them as far apart as the noise made them, which suits the paper's server (the bandwidth of its
#: kernel grows with the distance between nodes).
SENT_TRUST = 0.25
#: The two halves of a split cell start this far from its centre, in radii.
SPLIT = 0.3
#: Two nodes of different rounds count as the same place if they are closer than this, in units of the last radius.
VIGILANCE = 0.4
#: A value that is sent is replaced by the bound itself if it is closer to it than this many standard deviations of the
#: noise, and closer than a quarter of the range: noise clipped at a bound can only have pushed values away from it.
PULL, FARTHEST_PULL = 1.0, 0.25
#: Number of cells if it is chosen from the noised count: minimum, usual number, maximum.
FEWEST_CELLS, USUAL_CELLS, MOST_CELLS = 3, 8, 48
#: More cells than usual are used only if the noise of the sums would permit this many times as many, and if an average
#: cell has records worth this many standard deviations of the count noise.
SPARING, FILLED = 3.0, 6.0
_SMALLEST_RADIUS = UNIT // 100
# Leaves room for rounding in the fractions, so that the sum of the rounded-up costs stays below the rho charged.
_SLACK = 1.0 - 1e-9


@dataclass(frozen=True)
class Rules:
    """Public constants that depend on who is summed: one site, or all sites of a federation together.

    They are as the constants of this file of these names.
    """

    step_shares: tuple[float, ...] = STEP_SHARES
    cell_shares: tuple[float, ...] = CELL_SHARES
    alive: float = ALIVE
    usual_cells: int = USUAL_CELLS
    most_cells: int = MOST_CELLS
    sparing: float = SPARING


ONE_SITE = Rules()
#: All sites summed before anyone sees: the noise is added once, so that more and smaller cells rise above it.
ALL_SITES = Rules(
    step_shares=(0.05, 0.10, 0.15, 0.20, 0.25, 0.25),
    cell_shares=(0.0, 0.25, 0.5, 1.0, 1.0, 1.0),
    alive=1.0,
    usual_cells=40,
    most_cells=100,
    sparing=2.0,
)


class Request(NamedTuple):
    """What one step asks of the records: totals around these codewords, at this cost."""

    codebook: Integers
    bases: Integers
    radius: int
    rho: float
    last: bool


@dataclass(frozen=True)
class Step:
    """Everything that one step used and revealed. The proof covers all of it, not only the final nodes.

    Counts, sums and rings, and the scales of their noise, are in units of 1/WEIGHT.
    """

    codebook: Integers
    bases: Integers
    radius: int
    counts: Integers
    sums: Integers
    rings: Integers | None
    count_scale: float
    sum_scale: float
    ring_scale: float | None

    @property
    def rho(self) -> float:
        """Cost of the noise that was drawn, recomputed from the scales."""
        rings = 0.0 if self.ring_scale is None else gaussian_rho(WEIGHT**2, self.ring_scale)
        sums = gaussian_rho((WEIGHT * self.radius) ** 2, self.sum_scale)
        return gaussian_rho(WEIGHT**2, self.count_scale) + sums + rings

    @property
    def records(self) -> Floats:
        """Noised number of records (with ids: of people) in every cell."""
        result: Floats = self.counts / WEIGHT
        return result

    @property
    def records_noise(self) -> float:
        """Standard deviation of the noise in :attr:`records`."""
        return self.count_scale / WEIGHT


class Outcome(NamedTuple):
    """Result of one release."""

    unit_nodes: Floats
    counts: Floats
    node_noise: Floats
    count_noise: Floats
    vigilance: float
    steps: list[Step]


def release_cells(
    rows: Integers | GridBlocks,
    rho: float,
    sampler: Sampler,
    public_generator: np.random.Generator,
    n_cells: int | None = None,
    start: Floats | None = None,
    weights: Integers | None = None,
) -> Outcome:
    """Release cells of a batch on the integer grid, which may be empty, at total cost at most ``rho`` (zCDP).

    Every step reads the rows once. `public_generator` is randomness that anybody may know; it only chooses the
    directions in which cells are split. Without `n_cells` their number follows from the noised count of the first step;
    `start` are released nodes in [0, 1] to start from, the most important first, instead of the centre of the bounds.
    Weights are those of :func:`~fcac.privacy.cell_statistics.person_weights`; without, the unit is one row.
    """

    def one_step(request: Request) -> Step:
        return noised_step(
            rows, request.codebook, request.bases, request.radius, request.rho, request.last, sampler, weights
        )

    return take_steps(grow_cells(rows.shape[1], rho, public_generator, n_cells, start), one_step)


def take_steps(growth: Generator[Request, Step, Outcome], one_step: Callable[[Request], Step]) -> Outcome:
    """Answer every request of :func:`grow_cells` with a noised step, and return the outcome."""
    request = next(growth)
    while True:
        try:
            request = growth.send(one_step(request))
        except StopIteration as finished:
            outcome: Outcome = finished.value
            return outcome


def grow_cells(
    n_features: int,
    rho: float,
    public_generator: np.random.Generator,
    n_cells: int | None = None,
    start: Floats | None = None,
    rules: Rules = ONE_SITE,
) -> Generator[Request, Step, Outcome]:
    """Ask for one noised step after another and return the outcome; no record is ever seen here.

    Everything that is asked for is a function of public settings, public randomness and the noised steps that were sent
    in. Whoever has these gets the same requests: the site itself, or the hub of a federation whose sites add up their
    totals before anyone sees them. It yields the `Request` of each step, and the noised totals are to be sent in
    return.
    """
    if start is None:
        codebook, step_shares, cell_shares = np.full((1, n_features), 0.5), rules.step_shares, rules.cell_shares
    else:
        codebook = start[: n_cells or rules.most_cells]
        step_shares, cell_shares = LATER_STEP_SHARES, LATER_CELL_SHARES
    bases = codebook
    radius = widest_radius(n_features)
    final_cells = n_cells
    steps: list[Step] = []
    for number, share in enumerate(step_shares):
        last = number == len(step_shares) - 1
        step = yield Request(to_grid(codebook), to_grid(bases), radius, rho * share * _SLACK, last)
        steps.append(step)
        counts = step.records
        alive = counts > rules.alive * step.records_noise
        if not alive.any():
            alive[np.argmax(counts)] = True
        means, trust, noise = noised_means(step)
        if last:
            kept, noise = trust**SENT_TRUST, trust ** (2 * SENT_TRUST) * noise
            moved = pulled_to_bounds(from_grid(step.bases) + kept[:, None] * means, noise)
            sent = np.maximum(1.0, np.rint(counts[alive]))
            # in records, not in units of 1/WEIGHT
            count_noise = np.full(len(sent), step.records_noise**2)
            return Outcome(moved[alive], sent, noise[alive], count_noise, VIGILANCE * radius / UNIT, steps)
        moved = np.clip(from_grid(step.bases) + trust[:, None] * means, 0.0, 1.0)
        if final_cells is None:
            final_cells = _affordable_cells(float(counts.sum()), n_features, rho, rules)
        radius = _next_radius(step, n_features)
        wanted = max(2, int(np.ceil(final_cells * cell_shares[number + 1]))) if final_cells > 1 else 1
        codebook, bases = _split(moved[alive], counts[alive], wanted, radius / UNIT, public_generator)
    raise AssertionError("unreachable: the last step returns")


def noised_step(
    rows: Integers | GridBlocks,
    codebook: Integers,
    bases: Integers,
    radius: int,
    rho: float,
    last: bool,
    sampler: Sampler,
    weights: Integers | None = None,
) -> Step:
    """Compute the totals of one step and add noise; this is the only function that reads the records."""
    totals = cell_totals(rows, codebook, bases, radius, weights)
    return noised_totals(totals, Request(codebook, bases, radius, rho, last), sampler)


def noised_totals(totals: Totals, request: Request, sampler: Sampler) -> Step:
    """Add noise to the totals of one step, wherever the records were added up."""
    count_scale, sum_scale, ring_scale = noise_scales(request.radius, request.rho, request.last)
    return Step(
        codebook=request.codebook,
        bases=request.bases,
        radius=request.radius,
        counts=sampler.add_noise(totals.counts, count_scale),
        sums=sampler.add_noise(totals.sums, sum_scale),
        rings=None if ring_scale is None else sampler.add_noise(totals.rings, ring_scale),
        count_scale=count_scale,
        sum_scale=sum_scale,
        ring_scale=ring_scale,
    )


def noise_scales(radius: int, rho: float, last: bool) -> tuple[float, float, float | None]:
    """Return the scales of the noise of counts, sums and rings (None in the last step, which has none)."""
    ring_share = 0.0 if last else RING_SHARE
    return (
        gaussian_scale(WEIGHT**2, rho * COUNT_SHARE),
        gaussian_scale((WEIGHT * radius) ** 2, rho * (1.0 - COUNT_SHARE - ring_share)),
        None if last else gaussian_scale(WEIGHT**2, rho * ring_share),
    )


def noised_means(step: Step) -> tuple[Floats, Floats, Floats]:
    """Return the mean residual of every cell, its trust in [0, 1] and its noise variance, all from released values.

    The trust is the positive-part James-Stein shrinkage factor: in many dimensions, a mean that is not longer than its
    noise is mostly noise, and the cell is better left where it was.
    """
    n_features = step.codebook.shape[1]
    weight = np.maximum(step.records, 1.0) * WEIGHT
    means = step.sums / weight[:, None] / UNIT
    noise = (step.sum_scale / weight / UNIT) ** 2
    length = np.maximum((means**2).sum(axis=1), 1e-300)
    trust = np.maximum(0.0, 1.0 - max(n_features - 2, 0.5) * noise / length)
    return means, trust, noise


def pulled_to_bounds(nodes: Floats, noise: Floats) -> Floats:
    """Clip nodes to [0, 1], and replace values that differ from a bound by no more than their noise by that bound."""
    reach = np.minimum(PULL * np.sqrt(noise), FARTHEST_PULL)[:, None]
    return np.where(nodes < reach, 0.0, np.where(nodes > 1.0 - reach, 1.0, nodes))


def _affordable_cells(noised_count: float, n_features: int, rho: float, rules: Rules = ONE_SITE) -> int:
    """Return the number of cells whose means exceed the noise: more for more records, fewer features, more budget.

    The paper's server works best with few, reliable nodes, so a small site uses only some of the cells it could afford;
    a cluster that is not spherical needs many cells, and a large site can afford them.
    """
    count = max(noised_count, 1.0)
    affordable = 0.5 * count * np.sqrt(2.0 * rho / n_features)
    filled = count / (FILLED * gaussian_scale(WEIGHT**2, rho * rules.step_shares[-1] * COUNT_SHARE) / WEIGHT)
    wanted = max(min(affordable, rules.usual_cells), min(affordable / rules.sparing, filled))
    return int(np.clip(wanted, FEWEST_CELLS, rules.most_cells))


def _next_radius(step: Step, n_features: int) -> int:
    """Return the radius of the ring that contains the chosen quantile of the noised residuals."""
    assert step.rings is not None
    filled = np.cumsum(np.maximum(step.rings, 0))
    if filled[-1] == 0:
        return widest_radius(n_features)
    ring = int(np.argmax(filled >= RADIUS_QUANTILE * filled[-1]))
    squared_edges = [*ring_edges(n_features).tolist(), widest_radius(n_features) ** 2]
    return int(np.clip(int(np.sqrt(squared_edges[ring])), _SMALLEST_RADIUS, widest_radius(n_features)))


def _split(
    cells: Floats, counts: Floats, wanted: int, radius: float, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Split the heaviest cell repeatedly until there are as many cells as wanted.

    Both halves keep the old centre as their base, so that their residuals stay short.
    """
    codebook, bases, weights = list(cells), list(cells), list(counts)
    while len(codebook) < wanted:
        heaviest = int(np.argmax(weights))
        direction = generator.normal(size=cells.shape[1])
        shift = SPLIT * radius * direction / np.linalg.norm(direction)
        middle = codebook[heaviest]
        codebook[heaviest] = middle + shift
        codebook.append(middle - shift)
        bases.append(bases[heaviest])
        weights[heaviest] /= 2.0
        weights.append(weights[heaviest])
    return np.clip(codebook, 0.0, 1.0), np.array(bases)
