"""Words that tell clusters of texts apart, from a public vocabulary and the clusters' centres."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from fcac.tables.text_encoder import Encoder


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
