"""Kernels of the reservoir: keys of rows, which rows are seeds, and what a cell knows of its rows."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np

from fcac._kernels import inner_kernel, kernel


@inner_kernel(error_model="numpy")
def _mix(z):
    """The finaliser of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel(error_model="numpy")
def keys_of(bits, salt, out):
    """A key for every row, from the bits of its values: the same on every machine, in any order of rows."""
    for r in range(bits.shape[0]):
        z = _mix(salt + np.uint64(0x9E3779B97F4A7C15))
        for j in range(bits.shape[1]):
            z = (z ^ bits[r, j]) * np.uint64(0x9E3779B97F4A7C15)
            z ^= z >> np.uint64(32)
        out[r] = _mix(z)


@kernel(error_model="numpy")
def claim(keys, bar, held, k, owner, newcomers):
    """Find the seed each row is, or make it one: its key is below the bar and no seed has it yet.

    `held` are the keys of the k seeds, to which new ones are added; owner[r] becomes the seed of row r, or -1 if the
    row is not a seed; `newcomers` takes the rows that became one. Returns the new number of seeds.
    """
    size = np.int64(64)
    while size < 2 * (k + keys.shape[0]):
        size *= 2
    places, mask = np.full(size, np.int64(-1)), np.uint64(size - 1)
    for i in range(k):
        at = held[i] & mask
        while places[at] >= 0:
            at = (at + np.uint64(1)) & mask
        places[at] = i
    before = k
    for r in range(keys.shape[0]):
        if keys[r] >= bar:
            owner[r] = -1
            continue
        at = keys[r] & mask
        while places[at] >= 0 and held[places[at]] != keys[r]:
            at = (at + np.uint64(1)) & mask
        if places[at] < 0:
            places[at], held[k], newcomers[k - before] = k, keys[r], r
            k += 1
        owner[r] = places[at]
    return k


@kernel(error_model="numpy")
def add_rows(rows, weights, owner, means, squares, totals):
    """Count rows into cells, one by one: mean and sum of squared deviations of every feature (Welford)."""
    for r in range(rows.shape[0]):
        c = owner[r]
        totals[c] += weights[r]
        share = weights[r] / totals[c]
        for j in range(rows.shape[1]):
            gap = rows[r, j] - means[c, j]
            means[c, j] += gap * share
            squares[c, j] += weights[r] * gap * (rows[r, j] - means[c, j])


@kernel(error_model="numpy")
def add_cells(which, to, means, squares, totals, to_means, to_squares, to_totals):
    """Put the cells `which` into the cells `to` of other arrays (Chan's rule)."""
    for i in range(which.shape[0]):
        a, c = which[i], to[i]
        if totals[a] == 0.0:
            continue
        both = to_totals[c] + totals[a]
        share = totals[a] / both
        for j in range(means.shape[1]):
            gap = means[a, j] - to_means[c, j]
            to_squares[c, j] += squares[a, j] + gap * gap * (to_totals[c] * share)
            to_means[c, j] += gap * share
        to_totals[c] = both


@kernel(error_model="numpy")
def add_rows_with_gaps(rows, weights, owner, means, squares, totals, present):
    """Count rows into cells where some features are gaps (NaN): `present` is the weight of the rows that have each."""
    for r in range(rows.shape[0]):
        c = owner[r]
        totals[c] += weights[r]
        for j in range(rows.shape[1]):
            if np.isnan(rows[r, j]):
                continue
            present[c, j] += weights[r]
            gap = rows[r, j] - means[c, j]
            means[c, j] += gap * (weights[r] / present[c, j])
            squares[c, j] += weights[r] * gap * (rows[r, j] - means[c, j])


@kernel(error_model="numpy")
def add_cells_with_gaps(which, to, means, squares, totals, present, to_means, to_squares, to_totals, to_present):
    """Put the cells `which` into the cells `to` of other arrays, feature by feature as far as rows had it."""
    for i in range(which.shape[0]):
        a, c = which[i], to[i]
        to_totals[c] += totals[a]
        for j in range(means.shape[1]):
            if present[a, j] == 0.0:
                continue
            both = to_present[c, j] + present[a, j]
            share = present[a, j] / both
            gap = means[a, j] - to_means[c, j]
            to_squares[c, j] += squares[a, j] + gap * gap * (to_present[c, j] * share)
            to_means[c, j] += gap * share
            to_present[c, j] = both


@kernel(error_model="numpy")
def join_small(means, squares, totals, scales, least):
    """Join cells lighter than `least` to others, lightest first; emptied cells keep a total of 0.

    The partner is the one that adds least to the spread within cells (Ward's criterion). The nearest mean would not do:
    in many dimensions a mean of several is nearer to everybody than single rows are, and would swallow them all.
    """
    n, d = means.shape
    scaled = means * scales
    alive = totals > 0.0
    n_alive = alive.sum()
    while n_alive > 1:
        a = np.int64(-1)
        for i in range(n):
            if alive[i] and totals[i] < least and (a < 0 or totals[i] < totals[a]):
                a = np.int64(i)
        if a < 0:
            break
        c, nearest = np.int64(-1), np.inf
        for i in range(n):
            if not alive[i] or i == a:
                continue
            share, gap = totals[i] * totals[a] / (totals[i] + totals[a]), 0.0
            for start in range(0, d, 16):
                for j in range(start, min(start + 16, d)):
                    step = scaled[i, j] - scaled[a, j]
                    gap += step * step
                if gap * share >= nearest:
                    break
            if gap * share < nearest:
                c, nearest = np.int64(i), gap * share
        both = totals[c] + totals[a]
        share = totals[a] / both
        for j in range(d):
            gap = means[a, j] - means[c, j]
            squares[c, j] += squares[a, j] + gap * gap * (totals[c] * share)
            means[c, j] += gap * share
            scaled[c, j] = means[c, j] * scales[j]
        totals[c], totals[a], alive[a] = both, 0.0, False
        n_alive -= 1
