"""Words that tell clusters of texts apart: from the rows, or from a public vocabulary and the clusters' centres."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fcac.tables.text_encoder import Encoder

_WORD = re.compile(r"[^\W\d_]{3,}")


def words_from_rows(texts: Sequence[str], labels: Sequence[Hashable], n_words: int = 5) -> dict[Hashable, list[str]]:
    """Return the words that are more frequent in a cluster's texts than in the others'.

    The score is the class-based TF-IDF of Grootendorst (2022, https://arxiv.org/abs/2203.05794). The words are quoted
    from the rows: do not publish them where rows must stay private.

    Parameters
    ----------
    texts : sequence of str
    labels : sequence
        The cluster of each text; texts with the label -1 or None belong to none.
    n_words : int

    Returns
    -------
    dict of label to list of str

    Examples
    --------
    >>> from fcac.tables.telling_words import words_from_rows
    >>> words_from_rows(["chest pain", "severe pain", "broken arm", "broken leg"], [0, 0, 1, 1], 1)
    {0: ['pain'], 1: ['broken']}
    """
    counts: dict[Hashable, Counter[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        if label is None or label == -1:
            continue
        counts.setdefault(label, Counter()).update(_WORD.findall(str(text).lower()))
    if not counts:
        return {}
    overall: Counter[str] = Counter()
    for found in counts.values():
        overall.update(found)
    mean = sum(overall.values()) / len(counts)
    telling: dict[Hashable, list[str]] = {}
    for label, found in counts.items():
        total = max(1, found.total())
        score = {word: n / total * np.log1p(mean / overall[word]) for word, n in found.items()}
        telling[label] = sorted(score, key=lambda word: (-score[word], word))[:n_words]
    return telling


def words_from_vocabulary(
    centers: ArrayLike, encoder: Encoder, vocabulary: Iterable[str] | None = None, n_words: int = 5
) -> list[list[str]]:
    """Return the words of a public vocabulary whose vectors are nearest to each centre, compared with all centres.

    No row is needed, only the centres that sites have already released, so this also works with privacy.

    Parameters
    ----------
    centers : array of shape (clusters, encoder.width)
        Mean vectors of the clusters.
    encoder : Encoder
        The one that made the vectors.
    vocabulary : iterable of str, optional
        Public words; by default those of the encoder itself, if it has any.
    n_words : int

    Returns
    -------
    list of list of str

    Examples
    --------
    >>> from fcac.tables.telling_words import words_from_vocabulary
    >>> from fcac.tables.text_encoder import encoder
    >>> known = encoder("wordllama")
    >>> centers = known.encode(["chest pain and cough", "invoice for the second month"])
    >>> words_from_vocabulary(centers, known, ["lung", "tax", "heart", "payment"], n_words=2)
    [['heart', 'lung'], ['payment', 'tax']]
    """
    own = getattr(encoder, "words", None)
    if vocabulary is None and own is None:
        raise ValueError(f"the encoder {encoder.name} has no vocabulary of its own: give a list of public words")
    words = list(own() if vocabulary is None and own is not None else vocabulary or [])
    points = np.asarray(centers, dtype=np.float64)
    vectors = np.nan_to_num(encoder.encode(words).astype(np.float64))
    # what all centres share tells nothing: each is compared as it differs from their mean
    apart = points - points.mean(axis=0) if len(points) > 1 else points
    apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
    scores = apart @ vectors.T
    return [[words[place] for place in np.argsort(-row, kind="stable")[:n_words]] for row in scores]
