"""Words for clusters of texts, from the public vocabulary of the encoder that made their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.exceptions import RequestError
from fcac.report.profiles import Profiles

_N_WORDS = 5
_IN_NAME = 3


def cluster_words(
    schema: Any, nodes: Floats, counts: Floats, labels: Integers, described: Sequence[int]
) -> dict[str, dict[int, list[str]]]:
    """Return, for each text column, a few words for each cluster.

    The words come from the vocabulary of the encoder, which is public, and from the means of nodes, which sites have
    sent anyway: no text is read, so this holds under privacy. Columns whose encoder has no vocabulary of its own, or is
    not installed here, are left out.

    Parameters
    ----------
    schema : Schema or None
    nodes : array of shape (n, d)
    counts, labels : arrays of shape (n,)
    described : sequence of int
        Clusters.

    Returns
    -------
    dict of column name to dict of cluster to list of str
    """
    chosen = [k for k in described if (labels == k).any()]
    if schema is None or len(chosen) < 2:
        return {}
    found: dict[str, dict[int, list[str]]] = {}
    at = 0
    for column in schema.fields:
        width = len(column.feature_names)
        features, at = slice(at, at + width), at + width
        if getattr(column, "kind", None) != "text":
            continue
        own = nodes[:, features]
        centers = np.array([np.average(own[labels == k], axis=0, weights=counts[labels == k]) for k in chosen])
        words = _nearest_words(centers, column.encoder)
        if words is not None:
            found[column.name] = dict(zip(chosen, words, strict=True))
    return found


def _nearest_words(centers: Floats, name: str | None) -> list[list[str]] | None:
    from fcac.tables.telling_words import words_from_vocabulary
    from fcac.tables.text_encoder import encoder

    try:
        known = encoder(name) if name else encoder()
        return words_from_vocabulary(centers, known, n_words=_N_WORDS)
    except (RequestError, ValueError):  # not installed or not trusted here, or without a vocabulary
        return None


def with_words(profiles: Profiles, words: dict[str, dict[int, list[str]]]) -> Profiles:
    """Return profiles whose clusters carry their words, and are named after those of the first text column."""
    if not words:
        return profiles
    first = next(iter(words.values()))
    clusters = {}
    for label, profile in profiles.clusters.items():
        mine = [(column, by_cluster[label]) for column, by_cluster in words.items() if label in by_cluster]
        said = ", ".join(first.get(label, [])[:_IN_NAME])
        more = profile.name if profile.columns and profile.name != "close to the average" else ""
        clusters[label] = replace(profile, name="; ".join(part for part in (said, more) if part), words=mine)
    return replace(profiles, clusters=clusters)
