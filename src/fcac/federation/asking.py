"""Asking rows: how far rows lie from prototypes that did not learn them, for novelty with a rate of false alarms.

Sites keep a fair sample of their rows. Given prototypes, each row of it is measured as if it had not been learned: a
fresh row has not been learned either. Distances are all that is made of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.codebook import Codebook
from fcac.federation.readout import ReadOut
from fcac.federation.site import Site
from fcac.nodes.sample import RowSample, joint
from fcac.novelty import Calibration
from fcac.search.exact import nearest

# Rows asked in all: at alpha = 1 % the rate then has a standard error of 0.16 %.
_MOST = 4000


def samples_of(sites: Mapping[SiteName, Site]) -> dict[SiteName, RowSample] | None:
    """Return the sample of every site; None unless all of them have one."""
    samples = {}
    for name, site in sites.items():
        sample = site.sample()
        if sample is None:
            return None
        samples[name] = sample
    return samples or None


def calibrate(readout: ReadOut, samples: Mapping[SiteName, RowSample]) -> Calibration | None:
    """Measure rows against the nodes of a server."""
    parts = dict(zip(samples, joint(list(samples.values()), _MOST), strict=True))
    asked = [
        (readout.left_out_distance(part.rows, part.weights, site), part.weights)
        for site, part in parts.items()
        if len(part.rows)
    ]
    if not asked:
        return None
    return Calibration.of(np.concatenate([d for d, _ in asked]), np.concatenate([w for _, w in asked]))


def calibrate_codebook(
    book: Codebook, samples: Mapping[SiteName, RowSample], nodes: Mapping[SiteName, Floats], masses: Floats
) -> Calibration | None:
    """Measure sampled rows against means of nodes; nodes of the sites tell which mean a row is in.

    A mean of few rows lies near each of them because they are in it. Without a row of weight w, a mean of mass m lies
    farther from this row by the factor m / (m - w).
    """
    parts = dict(zip(samples, joint(list(samples.values()), _MOST), strict=True))
    distances, weights = [], []
    for site, part in parts.items():
        if not len(part.rows):
            continue
        position, distance = book.nearest_few(part.rows, 2)
        node, _ = nearest(book.placed(nodes[site]), book.placed(part.rows), 1)
        holds = book.nearest(nodes[site])[0][node[:, 0]] == position[:, 0]
        mass = masses[position[:, 0]]
        # nothing is left of a mean of nothing else: the factor is bounded
        rest = np.maximum(mass - np.minimum(part.weights, 1.0), 0.5 * mass)
        moved = distance[:, 0] * np.divide(mass, rest, out=np.ones(len(mass)), where=rest > 0)
        distances.append(np.where(holds, np.minimum(moved, distance[:, -1]), distance[:, 0]))
        weights.append(part.weights)
    return Calibration.of(np.concatenate(distances), np.concatenate(weights)) if distances else None


def calibrated_at_site(book: Codebook, site: Site) -> Codebook:
    """Return a codebook with the false-alarm rate of a site's own rows; as it is if the site keeps no rows.

    Nobody tells a site how many rows are behind each of the means; its own rows among them are counted instead. That
    takes a row too far out of its mean rather than too little.
    """
    sample = site.sample()
    if sample is None:
        return book
    sent = site.contribute(round=site.round)
    position, _ = book.nearest(sent.nodes)
    masses = np.bincount(position, weights=sent.counts, minlength=len(book.nodes)).astype(np.float64)
    own = {site.name: sample}
    return book.replace(calibration=calibrate_codebook(book, own, {site.name: sent.nodes}, masses))
