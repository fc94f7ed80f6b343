"""Novelty measured on rows that are at hand: how far usual rows lie from the nodes of an `FCAC`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.codebook import Codebook
from fcac.federation import Site
from fcac.federation.rounds import restate
from fcac.model.frames import next_rows
from fcac.model.site_rows import SiteRows
from fcac.novelty import MeasuredNovelty
from fcac.privacy.account import Account
from fcac.privacy.mechanism import NodeMechanism
from fcac.privacy.released_state import ReleasedState

if TYPE_CHECKING:
    from fcac.model.fcac import FCAC


def measured_novelty(
    model: FCAC, X: Any, groups: Any = None, epsilon: float | None = None, record_ids: Any = None
) -> MeasuredNovelty:
    """Measure how far usual rows lie from a model's nodes; see :meth:`fcac.FCAC.calibrate_novelty`."""
    data = next_rows(model, X, groups)
    ids = None if record_ids is None else data.by_site(record_ids, "record_ids")
    if isinstance(model.privacy, NodeMechanism):
        return _released_distances(model, data, ids, epsilon)
    return _plain_distances(model, data, epsilon, record_ids is not None)


def _plain_distances(model: FCAC, data: SiteRows, epsilon: float | None, has_units: bool) -> MeasuredNovelty:
    if model.privacy is not None:
        raise ValueError(
            f"calibrate_novelty: with {type(model.privacy).__name__} no row may be read without its noise, and rows "
            "with noise say little about others; use score_samples on rows that you may look at"
        )
    if epsilon is not None:
        raise ValueError("epsilon: this model has no privacy mechanism, and distances are taken without noise")
    if has_units:
        raise ValueError("record_ids are for NodeRelease: leave them out")
    rows = np.concatenate([np.array(block) for site in data for block in data[site].blocks()])
    nodes = model.server_.readout.export(True).calibrated(rows).calibration
    means = model.server_.export().calibrated(rows).calibration
    assert nodes is not None
    return MeasuredNovelty(nodes, means)


def _released_distances(
    model: FCAC,
    data: SiteRows,
    record_ids: Mapping[SiteName, Sequence[Any]] | None,
    epsilon: float | None,
) -> MeasuredNovelty:
    from fcac.privacy.distance_release import release_for_sites
    from fcac.privacy.mechanisms.node_release import NodeRelease

    mechanism = model.privacy
    if not isinstance(mechanism, NodeRelease):
        raise ValueError(f"calibrate_novelty needs NodeRelease, not {type(mechanism).__name__}")
    if model.aggregation != "plain":
        raise ValueError(
            "calibrate_novelty: every site would release counts of its own, and under secure aggregation nobody "
            "may see those of a single site. Each site can measure for itself: model.export().calibrated(rows)"
        )
    if epsilon is None:
        raise ValueError(
            "epsilon: say what the release of distances may cost, for instance calibrate_novelty(X, epsilon=0.5); "
            "it comes on top of what the nodes have cost"
        )
    # nodes with test noise count as not released, and protect nobody anyway
    if not model.server_.released and mechanism.sampler.secure:
        raise ValueError("calibrate_novelty: the server holds nodes that were not released with privacy")
    book: Codebook = model.server_.readout.export(True)
    rows = {name: _joined(data[name], data.n_features) for name in data}
    accounts = {name: _account(model.sites_.get(name)) for name in data}
    receipts = {name: () if account is None else account.receipts for name, account in accounts.items()}
    calibration, charges = release_for_sites(mechanism, book, rows, epsilon, record_ids, receipts)
    for name, account in accounts.items():
        if account is not None:
            model.sites_[name].note_cost(account.after(*charges[name]))
    restate(model.server_, model.sites_)
    return MeasuredNovelty(calibration, None, float(epsilon), mechanism.delta, len(rows))


def _joined(rows: Any, n_features: int) -> Floats:
    return np.concatenate([np.empty((0, n_features)), *rows.blocks()])


def _account(site: Site | None) -> Account | None:
    """What a site has spent so far; its receipts show whether a ledger is the right one. None for an unknown site."""
    state = None if site is None else site.model
    return state.account if isinstance(state, ReleasedState) else None
