"""What the settings of an `FCAC` ask for: its server, its condenser, the engine of its rounds, the trails of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fcac._sites import SiteName, site_order
from fcac._typing import Booleans, Floats, Integers
from fcac.federation import Server, Site, readouts
from fcac.federation.aggregation_setting import parse_aggregation
from fcac.federation.condenser import Condenser, ReservoirCondenser, condenser_for
from fcac.federation.in_process import InProcess
from fcac.federation.rounds import Engine, first_server
from fcac.model.site_rows import SiteRows, rows_by_site
from fcac.nodes import Trail
from fcac.tables.schema import Schema

if TYPE_CHECKING:
    from fcac.model.fcac import FCAC


def server_of(model: FCAC, schema: Schema | None) -> Server:
    """Return the server with which a model begins."""
    if model.max_server_nodes is not None and not readouts.find(model.server).condenses:
        raise ValueError(f'max_server_nodes: server="{model.server}" reads all nodes that it is sent; leave it out')
    seed = model.random_state
    if not isinstance(seed, int | np.integer):
        seed = check_random_state(seed).randint(2**31 - 1)
    return first_server(
        model.server, int(seed), schema, model.n_clusters, model.max_server_nodes, model.scale, model.false_split_rate
    )


def condenser_of(model: FCAC) -> Condenser:
    """Return how the sites of a new model condense."""
    if model.site is not None:
        if model.max_nodes is not None or model.forgetting != "none":
            raise ValueError("site: max_nodes and forgetting are settings of the usual condenser; leave them out")
        return model.site
    kind = readouts.find(model.server).condenser
    return condenser_for(kind, model.max_nodes, forgetting=model.forgetting, scale=model.scale)


def is_summed(model: FCAC) -> bool:
    """Whether the sites are summed under secure aggregation."""
    return model.aggregation != "plain" and parse_aggregation(model.aggregation) != -1


def engine_of(
    model: FCAC,
    sites: dict[SiteName, Site],
    condenser: Condenser,
    data: Mapping[SiteName, Any] | Iterator[tuple[Any, ...]],
    record_ids: Mapping[SiteName, Any] | None = None,
    weights: Mapping[SiteName, Floats] | None = None,
    trails: Mapping[SiteName, Trail] | None = None,
) -> Engine:
    """Return the engine of sites in this process, or that of their sum; new sites are added to `sites`."""
    if is_summed(model):
        from fcac.federation.summed_round import Summed

        if weights is not None:
            raise ValueError("sample_weight: a privacy mechanism counts every row once; leave the weights out")
        if not isinstance(data, Mapping):
            data, record_ids = rows_by_site(data)
        tolerance = parse_aggregation(model.aggregation)
        return Summed(sites, data, model.privacy, tolerance=tolerance, record_ids=record_ids)
    return InProcess(
        sites, data,
        new_site=lambda name: Site(name, model.privacy, condenser=condenser),
        n_jobs=model.n_jobs, record_ids=record_ids, weights=weights, trails=trails,
    )  # fmt: skip


def trails_of(model: FCAC, data: SiteRows, weights: Mapping[SiteName, Floats] | None) -> dict[SiteName, Trail] | None:
    """Return what notes which node counts each row, where sites can tell; rows without weight are in none."""
    counted = weights is None or all((own > 0).all() for own in weights.values())
    if model.privacy is not None or not counted or not isinstance(condenser_of(model), ReservoirCondenser):
        return None
    return {name: Trail() for name in data}


#: The rows of a site: all of one table (None), or these positions of it.
Places = Sequence[tuple[SiteName, NDArray[np.int64] | None]]


def labels_by_trail(
    server: Server, sites: Mapping[SiteName, Site], trails: Mapping[SiteName, Trail], places: Places
) -> tuple[Integers, Booleans, Integers] | None:
    """Return the cluster of the node that counts each row, whether `predict` would certainly say so, and the node.

    A trail notes, while a site condenses rows, the node that counts each row. That is not always the nearest one: nodes
    move, and later rows bring nearer ones. Far from a border between clusters this makes no difference to the cluster,
    so a row is searched only if not all nodes around that node are of one cluster.

    `places` says where the rows are among all rows, None: after those of the sites before it. There is no answer if the
    server's nodes are not the sites' own, or if it cannot tell which lie at a border.
    """
    inner = server.readout.inner_nodes()
    latest = server.latest()
    order = site_order(latest)
    condensed = server.readout.counted_in
    if inner is None:
        return None
    if condensed is None and not np.array_equal(np.concatenate([latest[n].nodes for n in order]), server.nodes):
        return None
    starts = dict(zip(order, np.cumsum([0, *(len(latest[name].nodes) for name in order)]), strict=False))
    counting = [starts[name] + sites[name].nodes_of(trails[name]) for name, _ in places]
    at = np.concatenate(counting)
    if any(where is not None for _, where in places):
        turned = np.empty_like(at)
        turned[np.concatenate([where for _, where in places if where is not None])] = at
        at = turned
    if condensed is not None:
        at = condensed[at]
    labels: Any = server.node_labels[at]
    return labels, inner[at], at
