"""The model that sites receive to label their rows; it never contains another site's raw node.

Without privacy, a contributed node can be a record, and a node of the paper's server that only one contributed node has
shaped equals that node. Sites therefore receive means: every codeword is the mean of at least three different
contributed nodes that the server assigns to one cluster. A cluster of fewer nodes is omitted; its rows get the nearest
remaining cluster. If every contribution came from `NodeRelease`, the nodes are noised already, and the server's own are
sent.
"""

from __future__ import annotations

import numpy as np

from fcac.codebook import Codebook
from fcac.federation import Server

_NODES_PER_CODEWORD = 3
_MOST_CODEWORDS = 256


def for_sites(server: Server, feature_names: list[str] | None = None) -> Codebook | None:
    """Return the model that sites may fetch, or None if too few nodes have arrived to publish one.

    >>> from fcac.federation import Site
    >>> rows = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 9]], 300, axis=0)
    >>> server = Server()
    >>> _ = server.absorb([Site(name).contribute(rows[i::3]) for i, name in enumerate("abc")])
    >>> book = for_sites(server)
    >>> sent = {node.tobytes() for item in server.latest().values() for node in item.nodes}
    >>> any(codeword.tobytes() in sent for codeword in book.nodes)
    False
    """
    released = server.released
    try:
        # communities condense by themselves where nodes may not be shared
        book = server.export() if released or server.readout.nodes_are_contributed else _condensed(server)
    except ValueError:
        return None
    # checks all rounds: earlier nodes of a site may be records too
    kept = np.ones(len(book.nodes), bool) if released else ~server.was_contributed(book.nodes)
    if not kept.any():
        return None
    return book.only(kept).replace(feature_names=feature_names)


def _condensed(server: Server) -> Codebook:
    """Group the contributed nodes of each cluster of the paper's server and average each group."""
    from fcac.codebook.codebook import coarse_codebook, reaching

    whole = server.export()
    nodes = np.unique(np.concatenate([item.nodes for item in server.latest().values()]), axis=0)
    even = np.ones(len(nodes))
    position, _ = whole.nearest(nodes)
    labels = whole.labels[position]
    words = coarse_codebook(nodes, even, labels, np.ones(nodes.shape[1]), _MOST_CODEWORDS, _NODES_PER_CODEWORD)
    draft = Codebook(words.nodes, words.labels, bandwidth=whole.bandwidth)
    return reaching(draft, nodes, whole.reach[position])
