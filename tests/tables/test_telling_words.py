"""Words that tell clusters of texts apart."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.tables.text_encoder import encoder, words_from_vocabulary


@pytest.mark.slow
def test_words_from_a_public_vocabulary_need_centres_only():
    pytest.importorskip("tokenizers")
    known = encoder()
    groups = [["knee pain when walking", "swollen knee"], ["wrong amount on my bill", "invoice charged twice"]]
    centers = np.array([known.encode(group).mean(axis=0) for group in groups])
    words = words_from_vocabulary(centers, known, ["joint", "refund", "leg", "price"], 2)
    assert [sorted(found) for found in words] == [["joint", "leg"], ["price", "refund"]]
    assert all(len(found) == 5 for found in words_from_vocabulary(centers, known))
    assert words_from_vocabulary(centers[:1], known, ["joint", "price"], 1) == [["joint"]]


def test_an_encoder_without_words_needs_a_list():
    class Plain:
        name = "plain"

    with pytest.raises(ValueError, match="give a list of public words"):
        words_from_vocabulary([[1.0]], Plain())
