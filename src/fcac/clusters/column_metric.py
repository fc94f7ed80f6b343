"""A distance for tables of mixed columns: numbers count as they are, categories by what they share with other columns.

A category makes gaps in the data wherever its levels differ, and a method that looks for gaps finds every combination
of levels: diagnosis times sex. But a level that says nothing about the other columns is no sign of a group. So the
columns are put on one scale each (as in factor analysis of mixed data, where a category counts as one column whatever
its number of levels), and the components of their common correlation matrix are kept by how much several columns share
in them: an eigenvalue of one is a column on its own, an eigenvalue above what chance gives is shared. Of a category
only the shared part remains in the distance; of a number a half or a quarter remains whatever it shares, because
numbers can show groups that no other column knows of.

References
----------
J. Pages, "Multiple Factor Analysis by Example Using R", 2014 (factor analysis of mixed data).
J. L. Horn, "A rationale and test for the number of factors in factor analysis", Psychometrika 30, 1965.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.tables.kind import Block

#: Kinds of blocks: one number, several numbers that together count as one column, and the levels of a category.
KINDS = ("number", "numbers", "category")

# Share of a number that stays in the distance whatever other columns say: if no number shares anything with another
# column, and if some do. Where the groups show in several numbers, one that shares nothing is most likely noise; where
# they show in categories only, noise of numbers blurs the steps between levels, which are no borders.
_OWN_SHARE, _OWN_SHARE_AMONG_TELLING = 0.5, 0.25
# Directions in which a category hardly varies (rare levels) are not blown up beyond this share of its variance.
_RARE = 0.02


def needs_map(blocks: Sequence[Block] | None) -> bool:
    """Tell whether a table has columns of levels; a table of numbers is compared as it always was."""
    return blocks is not None and any(block.kind == "category" for block in blocks)


def check_blocks(blocks: Sequence[Sequence[Any]]) -> tuple[Block, ...]:
    """Return blocks read from a file, or say with a ``ValueError`` what is wrong with them."""
    found = []
    for entry in blocks:
        width, kind, weight = entry
        whole = isinstance(width, int) and not isinstance(width, bool) and width >= 1
        if not whole or kind not in KINDS or not isinstance(weight, int | float) or not 0 < weight < np.inf:
            raise ValueError("the columns of the stored read-out are damaged")
        found.append(Block(width, kind, float(weight)))
    return tuple(found)


def column_map(nodes: Floats, counts: Floats, blocks: Sequence[Block]) -> Floats:
    """Return a matrix (d, r) that takes features to coordinates in which distances are to be measured.

    A category that follows a number stays, one that follows nothing goes:

    >>> rng = np.random.default_rng(0)
    >>> number = rng.normal(size=2000)
    >>> told, noise = number + 0.2 * rng.normal(size=2000) > 0, rng.random(2000) < 0.5
    >>> nodes = np.column_stack([number, told, noise]).astype(float)
    >>> matrix = column_map(nodes, np.ones(2000), [Block(1, "number"), Block(1, "category"), Block(1, "category")])
    >>> told_counts, noise_counts = (float(np.linalg.norm(matrix[j])) for j in (1, 2))
    >>> told_counts > 10 * noise_counts, noise_counts < 0.1
    (True, True)
    """
    total = counts.sum()
    mean = (counts @ nodes) / total
    apart = nodes - mean
    # what rounding leaves of a constant is no spread: put on one scale with the others, it would be all that counts
    apart[:, np.abs(apart).max(axis=0) <= 1e-9 * np.abs(mean)] = 0.0
    covariance = (apart * counts[:, None]).T @ apart / total
    whitening, n_columns = whitening_of(covariance, blocks)
    values, vectors = np.linalg.eigh(whitening @ covariance @ whitening)
    n_rows = total**2 / (counts**2).sum()
    # the largest eigenvalue that columns without anything in common have by chance (Marchenko and Pastur)
    chance = (1.0 + np.sqrt(n_columns / n_rows)) ** 2
    kept = np.maximum(0.0, values - chance) / np.maximum(values, 1e-300)
    shared = (vectors * kept) @ vectors.T
    is_category = np.repeat([block.kind == "category" for block in blocks], [block.width for block in blocks])
    telling = min(1.0, 3.0 * float(np.diag(shared)[~is_category].max(initial=0.0)))
    number_share = _OWN_SHARE + telling * (_OWN_SHARE_AMONG_TELLING - _OWN_SHARE)
    own_share = np.where(is_category, 0.0, number_share)
    root_weight = np.sqrt(np.repeat([block.weight for block in blocks], [block.width for block in blocks]))
    whole = whitening @ (np.diag(own_share) + shared * (1.0 - own_share)) * root_weight
    return _compressed(whole if np.abs(whole).max() > 0 else whitening * root_weight)


def whitening_of(covariance: Floats, blocks: Sequence[Block], least: Floats | None = None) -> tuple[Floats, int]:
    """Return the matrix that puts every column on one scale, and how many features of columns that vary there are.

    A column is taken to have at least the variance `least`.
    """
    whitening = np.zeros_like(covariance)
    n_columns, starts = 0, np.cumsum([0, *(block.width for block in blocks)])
    for block, start in zip(blocks, starts[:-1], strict=True):
        here = slice(start, start + block.width)
        own = covariance[here, here]
        variance = float(np.trace(own))
        if least is not None:
            variance = max(variance, float(least[here].sum()))
        if variance <= 0:
            continue
        n_columns += block.width
        if block.kind == "category":
            values, vectors = np.linalg.eigh(own)
            values = np.maximum(values, 0.0)
            inner = np.where(values > 1e-9 * variance, 1.0 / np.sqrt(values + _RARE * variance), 0.0)
            whitening[here, here] = (vectors * inner) @ vectors.T
        else:
            whitening[here, here] = np.eye(block.width) / np.sqrt(variance)
    return whitening, n_columns


def _compressed(matrix: Floats) -> Floats:
    """A matrix of as few columns as can be that gives the same distances."""
    left, values, _ = np.linalg.svd(matrix)
    used = values > 1e-9 * values[0]
    if not used.any():
        return np.eye(len(matrix))
    # signs are arbitrary in a decomposition: the largest entry of each column is made positive
    result: Floats = left[:, : len(values)][:, used] * values[used]
    largest = result[np.abs(result).argmax(axis=0), np.arange(result.shape[1])]
    turned: Floats = result * np.sign(largest)
    return turned
