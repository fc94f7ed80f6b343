"""A small private release: how far rows lie from the nodes of a finished model, for novelty with a false-alarm rate.

Nodes that were released say little about how far rows lie from them. So every site counts its rows by their distance to
the nearest node, in public bins, and adds noise; from the noised counts of all sites together follows a
:class:`~fcac.novelty.Calibration`.

The bins depend on released nodes and public bounds only: eight to an octave (more with many features), down from a
distance that no row within the bounds exceeds; what lies farther is in the last bin, what lies nearer than all of them
in the first. The bin of a row depends on that row and on released nodes, never on other rows: distances are summed
feature by feature, and gaps are filled row by row. So a row changes one count, by its weight. A person's rows share one
weight, as in :mod:`fcac.privacy.cell_statistics`. Adding or removing one person (without ids: one row) changes the
counts by at most ``WEIGHT`` in the Euclidean norm, and the discrete Gaussian noise is that of the other releases; see
docs/privacy/proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Booleans, Floats, Integers
from fcac.codebook import Codebook
from fcac.exceptions import BudgetExceeded, PrivacyError
from fcac.novelty import SHARES, Calibration
from fcac.novelty.distance_curve import smooth_counts
from fcac.privacy.account import Receipt
from fcac.privacy.agreement_counts import histogram
from fcac.privacy.cell_statistics import WEIGHT, person_weights
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.record_ids import canonical_id
from fcac.privacy.samplers import Sampler
from fcac.privacy.zcdp import check_epsilon, gaussian_scale, rho_from_epsilon, show
from fcac.search.gaps import GapFiller

# Bins to an octave of distances, and octaves.
_BINS_AN_OCTAVE, _OCTAVES = 8, 10
# With more features than these the distances of rows differ less, and bins become finer.
_MANY_FEATURES = 50
# The metric of the paper's server ends at 1, where nearly all rows may lie; see DistanceBins.
_FARTHEST_STRETCHED, _OCTAVES_STRETCHED = 128.0, 14


@dataclass(frozen=True)
class DistanceBins:
    """Public bins of distances to the nodes of a codebook, in equal steps of the logarithm.

    With a bandwidth, of the distance d stretched to d / sqrt(1 - d^2): the correntropy-induced metric ends at 1, and
    rows of many features all lie close to it.
    """

    edges: Floats
    stretched: bool

    @classmethod
    def of(cls, book: Codebook, bounds: Floats) -> DistanceBins:
        """Return the bins for released nodes and public bounds of shape (d, 2)."""
        stretched = book.bandwidth is not None
        farthest = _FARTHEST_STRETCHED if stretched else _farthest(book, bounds)
        finely = math.ceil(_BINS_AN_OCTAVE * math.sqrt(max(1.0, book.n_features / _MANY_FEATURES)))
        steps = np.arange(-finely * (_OCTAVES_STRETCHED if stretched else _OCTAVES), 1) / finely
        return cls(farthest * 2.0**steps, stretched)

    def place(self, distances: Floats) -> Floats:
        """Return distances on the scale of the edges."""
        if not self.stretched:
            return distances
        return distances / np.sqrt(np.maximum(1.0 - distances**2, 1e-300))

    def distance(self, placed: Floats) -> Floats:
        """Return distances from the scale of the edges."""
        return placed / np.sqrt(1.0 + placed**2) if self.stretched else placed


def _farthest(book: Codebook, bounds: Floats) -> float:
    """Return a distance that no row within the bounds exceeds: that of the farthest corner from any one node."""
    apart = np.maximum(np.abs(book.nodes - bounds[:, 0]), np.abs(bounds[:, 1] - book.nodes))
    if book.map is None:
        farthest = np.sqrt(((apart * book.scales) ** 2).sum(axis=1))
    else:
        farthest = apart @ np.sqrt((book.map**2).sum(axis=1))
    return max(float(farthest.min()), np.finfo(np.float64).tiny * 2.0**_OCTAVES)


def distances_alone(book: Codebook, rows: Floats) -> Floats:
    """Return the distance of every row to its nearest node, the same whatever the other rows are.

    Matrix products may round the same row differently among other rows, so there are none here.
    """
    if not len(rows):
        return np.empty(0)
    if book.bandwidth is not None:
        return book.nearest(rows)[1]
    holes = np.flatnonzero(np.isnan(rows).any(axis=1))
    if len(holes):
        filler, rows = GapFiller(book.nodes), rows.copy()
        for row in holes:
            rows[row] = filler.fill(rows[row : row + 1])[0]
    if book.map is not None:
        placed = np.zeros((len(rows), book.map.shape[1]))
        for feature, direction in enumerate(book.map):
            placed += rows[:, feature, None] * direction
        book, rows = Codebook(book.placed(book.nodes), book.labels), placed
    return book.nearest(rows)[1]


@dataclass(frozen=True)
class NoisedDistances:
    """What a site releases: noised counts of its rows by distance, in units of 1/WEIGHT of a row, and their noise."""

    counts: Integers
    scale: float


def count_distances(
    distances: Floats,
    bins: DistanceBins,
    record_ids: Sequence[str] | None = None,
    admitted: Booleans | None = None,
) -> Integers:
    """Return the weight of a site's rows in every bin, before noise.

    Of people, one for each row, only those with budget left are admitted.
    """
    weights = None if record_ids is None else person_weights([canonical_id(name) for name in record_ids])
    if admitted is not None:
        # the weight of a row depends on the rows of its own person alone, who is kept or left out as a whole
        weights = np.where(admitted, WEIGHT if weights is None else weights, 0).astype(np.int64)
    return histogram(bins.place(distances), bins.edges, weights)


def release_distances(counts: Integers, rho: float, sampler: Sampler) -> NoisedDistances:
    """Add noise that costs rho. The ledger must have been charged before."""
    scale = gaussian_scale(WEIGHT**2, rho)
    return NoisedDistances(sampler.add_noise(counts, scale), scale)


class Charge(NamedTuple):
    """What a site's release of distances was charged with; the arguments of :meth:`fcac.privacy.account.Account.after`.

    What is from the ledger is None without one.
    """

    rho: float
    unit: str
    spent: float | None = None
    budget: float | None = None
    receipt: Receipt | None = None


def release_for_sites(
    mechanism: NodeRelease,
    book: Codebook,
    rows: Mapping[SiteName, Floats],
    epsilon: float,
    record_ids: Mapping[SiteName, Sequence[Any]] | None = None,
    receipts: Mapping[SiteName, Sequence[Receipt]] | None = None,
) -> tuple[Calibration, dict[SiteName, Charge]]:
    """Let every site release its distances, and return the calibration that follows and what each site was charged.

    The mechanism's bounds, delta, ledger and sampler are used, not its epsilon: each site's rows (with ids: people) pay
    this one. Receipts are for what has left each site, so that an older copy of a ledger is noticed.
    """
    epsilon = check_epsilon(epsilon)
    ledger = mechanism.ledger
    rho = rho_from_epsilon(epsilon, mechanism.delta) if ledger is None else ledger.rho_of(epsilon)
    # everything that can go wrong with rows and ids does so here, before anything is charged
    prepared = {
        site: mechanism.prepare(own, site=str(site), record_ids=None if record_ids is None else record_ids[site])
        for site, own in rows.items()
    }
    bins = DistanceBins.of(book, mechanism.bounds)
    distances = {site: distances_alone(book, own) for site, own in rows.items()}
    if ledger is not None and record_ids is None:
        _check_budget(mechanism, rho, len(rows))
    released, charges = [], {}
    for site, own in prepared.items():
        admitted, number = None, None
        charges[site] = Charge(rho, "row" if own.record_ids is None else "person")
        if ledger is not None:
            admission = ledger.admit(
                own.site, rho, batch=own.given_rows, record_ids=own.record_ids,
                what=f"distances for novelty, eps = {epsilon:g} at delta = {show(mechanism.delta)}",
                receipts=() if receipts is None else receipts[site],
            )  # fmt: skip
            admitted, number = admission.admitted, admission.number
            charges[site] = Charge(rho, charges[site].unit, admission.spent, ledger.budget, admission.receipt)
        counts = count_distances(distances[site], bins, own.record_ids, admitted)
        released.append(release_distances(counts, rho, mechanism.sampler))
        if ledger is not None and number is not None:
            ledger.complete(number)
    return calibration_from(released, bins), charges


def _check_budget(mechanism: NodeRelease, rho: float, n_sites: int) -> None:
    """Refuse what could not be paid for all sites, before any is charged; with ids, people are left out instead."""
    ledger = mechanism.ledger
    assert ledger is not None
    if ledger.spent_rho() + n_sites * rho * (1.0 - 1e-9) > rho_from_epsilon(ledger.budget, ledger.delta):
        raise BudgetExceeded(
            f"the release of distances by {n_sites} site{'s' if n_sites > 1 else ''} would exceed the budget of "
            f"eps = {ledger.budget:g}; nothing was charged or drawn. A smaller epsilon costs less; or raise the budget"
        )


def calibration_from(released: Iterable[NoisedDistances], bins: DistanceBins) -> Calibration:
    """Return the calibration that follows from what all sites have released; a PrivacyError if noise hides all rows."""
    sites = list(released)
    counts = np.sum([site.counts for site in sites], axis=0) / WEIGHT
    variance = sum(site.scale**2 for site in sites) / WEIGHT**2
    places = np.log(bins.edges)
    expected = smooth_counts(counts, variance, 0.5 * (places[1:] + places[:-1]))
    if expected is None:
        raise PrivacyError(
            f"the noise (a deviation of {np.sqrt(variance):,.0f} rows in a bin) hides how far rows lie: a larger "
            "epsilon, or more rows, would show it. What was released is charged; the model is as it was"
        )
    return Calibration(bins.distance(np.exp(_exceeded(expected, places))))


def _exceeded(expected: Floats, places: Floats) -> Floats:
    """Return the place that each share of rows exceeds, for the shares that a calibration keeps."""
    beyond = np.append(np.cumsum(expected[::-1])[::-1], 0.0) / expected.sum()
    # within a bin the logarithm of the share is taken to fall evenly
    found: Floats = np.interp(-np.log(SHARES), -np.log(np.maximum(beyond, 1e-12)), places)
    return found
