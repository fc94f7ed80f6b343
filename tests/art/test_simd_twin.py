"""The vector kernels do, bit for bit, what the plain Python below says.

The first half is their readable specification: one number at a time, every rounding in its place. The second half
compares it with the kernels over many shapes and sizes of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from fcac.art.simd import GIVEN_UP, LANES
from testing import simd_calls

F32 = np.float32

# ---------------------------------------------------------------- the specification


def fma(a: float, b: float, c: float) -> float:
    """Return a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # nothing is rounded here, and a zero keeps its sign
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def sum_in_numpy_order(terms: list[float]) -> float:
    """Add up as NumPy does: halves of more than 128 terms apart; in each, eight running sums, then the rest."""
    n = len(terms)
    if n > 128:
        half = n // 2 // 8 * 8
        return sum_in_numpy_order(terms[:half]) + sum_in_numpy_order(terms[half:])
    whole = n // 8 * 8
    total = 0.0
    if whole > 0:
        sums = terms[:8]
        for at in range(8, whole, 8):
            sums = [a + b for a, b in zip(sums, terms[at : at + 8], strict=True)]
        while len(sums) > 1:
            sums = [sums[i] + sums[i + 1] for i in range(0, len(sums), 2)]
        total = sums[0]
    for term in terms[whole:]:
        total += term
    return total


def kernel_of(width: float) -> tuple[float, float, float]:
    """Return a power of two that brings the width into [1/2, 1), 2 s^2 in that unit, and its inverse."""
    unit = math.ldexp(1.0, min(max(-math.frexp(width)[1], -1022), 1022))
    two_s2 = 2.0 * (width * unit) * (width * unit)
    return unit, two_s2, 1.0 / two_s2


def gaussian(x: float, w: float, width: float) -> float:
    """Return exp(-(x - w)^2 / (2 s^2)); 0 from exp(-708) on, the last that is a normal number."""
    unit, two_s2, inverse = kernel_of(width)
    difference = (x - w) * unit
    square = difference * difference
    # t = square / two_s2: the product with the inverse, corrected by what it leaves
    quotient = square * inverse
    t = fma(fma(-quotient, two_s2, square), inverse, quotient)
    if not t < 708.0:  # also if t is NaN, which an infinite square leaves
        return 0.0
    # exp(-t) = 2^n exp(r), where n is the whole number next to -t / log 2; adding 1.5 * 2^52 rounds to whole numbers
    magic = 1.5 * 2.0**52
    n = fma(t, -1.4426950408889634, magic) - magic
    # r = -t - n log 2 and what r itself lost by rounding; the upper part of log 2 has 33 bits, so its product is exact
    high, low = fma(n, -0.6931471803691238, -t), n * -1.9082149292705877e-10
    r = high + low
    r_error = (high - r) + low
    # exp(r) = 1 + r + r^2 p, p by Horner's rule from 1/13! down to 1/2!
    p = 1.0 / math.factorial(13)
    for k in range(12, 1, -1):
        p = fma(p, r, 1.0 / math.factorial(k))
    one_plus = 1.0 + r
    rest = fma(r * r, p, r_error) + (r - (one_plus - 1.0))
    return math.ldexp(one_plus + rest, int(n))


def correntropy(point: np.ndarray, node: np.ndarray, width: float) -> float:
    """Return the mean of the kernel over features."""
    terms = [gaussian(x, w, width) for x, w in zip(point.tolist(), node.tolist(), strict=True)]
    return sum_in_numpy_order(terms) / len(terms)


def cim(similarity: float) -> float:
    return math.sqrt(max(1.0 - similarity, 0.0))


def spread(column: list[float]) -> float:
    """Return the standard deviation over n - 1; 0 if all values are equal, or there is only one."""
    mean, first = 0.0, column[0]
    for value in column:
        mean += value
    mean = mean / len(column) if any(value != first for value in column) else first
    total = 0.0
    for value in column:
        total += (value - mean) * (value - mean)
    return math.sqrt(total / max(len(column) - 1, 1))


def to_screen(point: np.ndarray, shift: np.ndarray, rank: np.ndarray, scale: float) -> tuple[np.ndarray, float]:
    """Return a point in the units and the order of the screening copy, and the sum of its absolute values."""
    values = [(x - origin) * scale for x, origin in zip(point.tolist(), shift.tolist(), strict=True)]
    out = np.empty(len(values), F32)
    out[rank] = np.array(values).astype(F32)
    # eight running sums over the features that fill vectors; the others are added up first
    whole = len(values) // 8 * 8
    total = 0.0
    for value in values[whole:]:
        total += abs(value)
    for lane in range(8):
        lane_sum = 0.0
        for value in values[lane:whole:8]:
            lane_sum += abs(value)
        total += lane_sum
    return out, total


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, fused: bool) -> np.ndarray:
    """Return a * b + c in float32, rounded once if `fused`, else after the product too."""
    if not fused:
        return a * b + c
    # The product is exact in float64. Rounding the sum to odd (an inexact one never ends in an even bit) makes sure
    # that rounding it once more, to float32, gives what one rounding would have given.
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = (total.view(np.int64) & 1) == 0
    inexact = np.isfinite(error) & (error != 0)
    total = np.where(inexact & even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return total.astype(F32)


def screen_tile(tile, point, begin, end, slope, limit, bound, fused):
    """Return the bounds on the kernel sums of 32 nodes after the features begin..end, and who can reach the limit.

    The kernel is 2^-y with y = (x - w)^2 * slope / 2^23. An integer of 127 - y octaves, read as the bits of a float32,
    is the chord of that curve, so it never lies below it.
    """
    d, total = len(point), bound.copy() if begin > 0 else np.zeros(LANES, F32)
    one = np.full(LANES, 127 << 23, F32)

    def reaching(done):
        return total >= F32(limit) - F32(d - done)  # every feature to come can add one at most

    for start in range(begin, end, 16):
        stop = min(start + 16, end)
        for feature in range(start, stop):
            difference = point[feature] - tile[feature]
            bits = multiply_add(difference * difference, np.full(LANES, -F32(slope)), one, fused)
            bits = np.where(bits > 0, bits, F32(0))
            total = total + bits.astype(np.int32).view(F32)
        if not reaching(stop).any():
            return np.full(LANES, GIVEN_UP), 0
    return total, sum(1 << int(lane) for lane in np.flatnonzero(reaching(end)))


def moved(node: np.ndarray, point: np.ndarray, divisor: float) -> np.ndarray:
    """Return the node after 1 / divisor of the way to the point."""
    return point if divisor == 1.0 else node + (point - node) / divisor


# ---------------------------------------------------------------- numbers to try

# below, at and above the eight lanes of a vector, its multiples, and the 128 terms of one block of a sum
LENGTHS = [*range(1, 19), 31, 32, 33, 39, 40, 63, 64, 65, 100, 127, 128, 129, 136, 143, 200, 255, 256, 257, 300]

KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lattice": lambda rng, shape: rng.integers(-3, 4, shape).astype(float),
    "denormal": lambda rng, shape: rng.normal(size=shape) * 1e-310,
    "large": lambda rng, shape: rng.normal(size=shape) * 1e300,
    "overflowing": lambda rng, shape: rng.choice([-1.7e308, 1.7e308], shape),
    "mixed": lambda rng, shape: rng.normal(size=shape) * 10.0 ** rng.integers(-12, 12, shape),
    "zeros": lambda rng, shape: rng.choice([0.0, -0.0, 5e-324, 1.0], shape),
}
any_kind = pytest.mark.parametrize("kind", KINDS)
may_overflow = np.errstate(over="ignore", invalid="ignore")  # a decorator, for the NumPy parts of the twin


def assert_same_bits(found, expected, dtype=np.float64):
    """Any NaN is as good as another; everything else must agree in every bit, the sign of a zero too."""
    found, expected = np.asarray(found, dtype).ravel(), np.asarray(expected, dtype).ravel()
    assert found.shape == expected.shape
    bits = np.int64 if dtype is np.float64 else np.int32
    same = (found.view(bits) == expected.view(bits)) | (np.isnan(found) & np.isnan(expected))
    assert same.all(), (np.flatnonzero(~same)[:5], found[~same][:5], expected[~same][:5])


# ---------------------------------------------------------------- sums


@any_kind
def test_sums_and_dot_products(kind):
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        values = KINDS[kind](rng, (2 * n,))
        first, second = values[:n].tolist(), values[n:].tolist()
        assert_same_bits(simd_calls.pairwise_sum(values, n), sum_in_numpy_order(first))
        products = [a * b for a, b in zip(first, second, strict=True)]
        assert_same_bits(simd_calls.dot(values, 0, n, n), sum_in_numpy_order(products))


@any_kind
def test_spreads(kind):
    rng = np.random.default_rng(1)
    for d in [*range(1, 18), 31, 32, 33, 40, 41, 64, 71, 100]:
        points = KINDS[kind](rng, (12, d))
        points[:, 0] = 0.1
        for n in (1, 2, 9):
            rows, out = rng.permutation(12)[:n], np.empty(d)
            simd_calls.spreads(points, rows, n, out)
            assert_same_bits(out, [spread(column) for column in points[rows].T.tolist()])


# ---------------------------------------------------------------- correntropy

WIDTHS = [5e-324, 1e-310, 2.2250738585072014e-308, 1e-170, 1e-6, 0.7, 1.0, 2.0, 3.3, 1e150, 1.7e308]


@pytest.mark.parametrize("width", WIDTHS)
def test_units_of_a_width(width):
    assert_same_bits(simd_calls.kernel_of(width), kernel_of(width))
    unit, two_s2, _ = kernel_of(width)
    assert math.frexp(unit)[0] == 0.5
    assert 0 < two_s2 < 40


@pytest.mark.parametrize("width", WIDTHS)
@may_overflow
def test_the_kernel_of_one_feature(width):
    """From equal to out of reach, in units of the width; the threshold of 708 and its neighbours among them."""
    edge = math.sqrt(2 * 708.0)
    steps = [0.0, 1e-160, 1e-9, 0.1, 0.5, 1.0, 2.0, 5.3, 37.0, np.nextafter(edge, 0), edge, edge * 1.001, 1e160]
    points = np.array([[sign * step * width] for step in steps for sign in (1, -1)])
    nodes = np.array([[0.0], [width], [-0.0]])
    out = np.empty((len(points), len(nodes)))
    simd_calls.correntropies(points, nodes, width, out)
    assert_same_bits(out, [[gaussian(x[0], w[0], width) for w in nodes.tolist()] for x in points.tolist()])


@pytest.mark.slow
@any_kind
@may_overflow
def test_correntropy(kind):
    rng = np.random.default_rng(2)
    for d in (1, 2, 7, 8, 9, 15, 17, 40, 128, 129, 200):
        points, nodes = KINDS[kind](rng, (1, d)), KINDS[kind](rng, (2, d))
        nodes[1] = points[0]
        nodes[1, rng.integers(d)] *= 1.5
        width = float(np.clip(np.abs(points).max() * rng.uniform(0.2, 2), 5e-324, 1e308))
        out = np.empty((1, 2))
        simd_calls.correntropies(points, nodes, width, out)
        assert_same_bits(out[0], [correntropy(points[0], node, width) for node in nodes])


def test_cim():
    values = np.concatenate([np.random.default_rng(3).random(200), [0.0, 1.0, 1.0 + 2**-52, 1.0 - 2**-53, 5e-324]])
    expected = [cim(value) for value in values.tolist()]
    simd_calls.cims(values)
    assert_same_bits(values, expected)


# ---------------------------------------------------------------- the screening copy


@any_kind
@may_overflow
def test_to_screen_and_moving_nodes(kind):
    rng = np.random.default_rng(4)
    for d in [*range(1, 18), 31, 32, 33, 40, 64, 71]:
        points, shift, rank = KINDS[kind](rng, (3, d)), KINDS[kind](rng, (d,)), rng.permutation(d)
        nodes, screen = KINDS[kind](rng, (2 * LANES, d)), rng.random((2, d, LANES)).astype(F32)
        probe_points = np.zeros((2, d), F32)
        for scale, divisor in ((1.0, 1.0), (2.0**-20, 7.0), (0.3, 1e17), (2.0**40, 1.5)):
            expected, reach = to_screen(points[1], shift, rank, scale)
            assert_same_bits(simd_calls.to_screen(points, 1, shift, rank, scale, probe_points, 1), reach)
            assert_same_bits(probe_points[1], expected, F32)
            k = int(rng.integers(2 * LANES))
            expected_nodes, expected_screen = nodes.copy(), screen.copy()
            expected_nodes[k] = moved(nodes[k], points[2], divisor)
            expected_screen[k // LANES, :, k % LANES] = to_screen(expected_nodes[k], shift, rank, scale)[0]
            simd_calls.move_node(nodes, screen, shift, rank, scale, k, points, 2, divisor)
            assert_same_bits(nodes, expected_nodes)
            assert_same_bits(screen, expected_screen, F32)
        assert not probe_points[0].any()


def screened(screen, tile, point, begin, end, slope, limit, start=0.0):
    """Call the kernel; return the bounds of the tile and the mask, having checked that other bounds stay."""
    points, bound = np.stack([point + F32(1), point]), np.full((2, len(screen) * LANES), start, F32)
    inside = slice(tile * LANES, (tile + 1) * LANES)
    mask = simd_calls.screen_tile(screen, tile, points, 1, begin, end, slope, limit, bound)
    changed = bound[1, inside].copy()
    bound[1, inside] = start
    assert (bound == F32(start)).all()
    return changed, mask


@pytest.fixture(scope="module")
def fused():
    """Whether this machine multiplies and adds in one step, which the kernel leaves to it."""
    rng = np.random.default_rng(5)
    tile, point, slope = rng.normal(size=(1, 1, LANES)).astype(F32), rng.normal(size=1).astype(F32), 3e8
    found, _ = screened(tile, 0, point, 0, 1, slope, 0.0)
    expected = {
        way: screen_tile(tile[0], point, 0, 1, slope, 0.0, np.zeros(LANES, F32), way)[0] for way in (True, False)
    }
    assert (expected[True] != expected[False]).any()
    return bool((found == expected[True]).all())


SCALES = {"usual": 1.0, "lattice": 0.0, "denormal": 1e-40, "small": 1e-20, "large": 1e15, "overflowing": 1e30}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCALES)
@may_overflow
def test_screening(kind, fused):
    rng = np.random.default_rng(6)
    given_up = 0
    for d in [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 50, 64, 65]:
        if kind == "lattice":
            screen, point = (rng.integers(-3, 4, shape).astype(F32) for shape in ((3, d, LANES), d))
        else:
            screen, point = ((rng.normal(size=shape) * SCALES[kind]).astype(F32) for shape in ((3, d, LANES), d))
        screen[1, :, 5] = point
        begins = [(0, d), (0, d // 2), (d // 2, d)]
        for (begin, end), share, slope in zip(
            begins * 2, (-1, 0.3, 0.5, 0.7, 0.9, 1.2), (3e5, 6e6, 1e8) * 2, strict=True
        ):
            for tile in range(3):
                start = F32(0 if begin == 0 else 0.4 * begin)
                expected, mask = screen_tile(
                    screen[tile], point, begin, end, slope, share * d, np.full(LANES, start), fused
                )
                found, found_mask = screened(screen, tile, point, begin, end, slope, share * d, start)
                assert_same_bits(found, expected, F32)
                assert found_mask == mask
                given_up += mask == 0
    assert given_up > 0


def test_the_bound_is_one_where_a_node_is_the_point(fused):
    point = np.array([0.1, -7.0, 1e-40], F32)
    screen = np.repeat(point[None, :, None], LANES, axis=2)
    found, mask = screened(screen, 0, point, 0, 3, 1e6, 3.0)
    assert_same_bits(found, np.full(LANES, 3.0), F32)
    assert mask == (1 << LANES) - 1


def test_the_top_of_a_tile():
    bound = np.random.default_rng(7).normal(size=(2, 3 * LANES)).astype(F32)
    bound[1, LANES : 2 * LANES] = GIVEN_UP
    for b in range(2):
        for tile in range(3):
            expected = max(bound[b, tile * LANES : (tile + 1) * LANES].tolist())
            assert_same_bits(simd_calls.tile_top(bound, b, tile), expected, F32)


def test_the_lowest_bit():
    for bit in range(63):
        assert simd_calls.lowest_bit(1 << bit) == bit
        assert simd_calls.lowest_bit((1 << 62) | (1 << bit)) == bit
