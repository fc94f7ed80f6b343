"""Keys, masks, shares, messages and shares of noise."""

import itertools
import math

import numpy as np
import pytest

from fcac.aggregation.keys import AgreementKey, new_seed, seal, unseal
from fcac.aggregation.masks import expand, to_residues
from fcac.aggregation.member import certain_shares, threshold, witnesses_needed
from fcac.aggregation.messages import REQUEST, Message, MessageError, as_bits
from fcac.aggregation.noise import distance_to_gaussian, share_scale
from fcac.aggregation.shares import PRIME, combine, split
from fcac.privacy.cell_statistics import UNIT, WEIGHT
from fcac.privacy.zcdp import gaussian_scale


def test_x25519_and_chacha20_are_the_standards():
    # RFC 8439, 2.4.2 has another nonce; the keystream of an all-zero key and nonce is its test vector 1
    assert expand(bytes(32), 2).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    a, b = AgreementKey(new_seed()), AgreementKey(new_seed())
    assert a.agree(b.public, b"x") == b.agree(a.public, b"x") != a.agree(b.public, b"y")


def test_sealed_texts_cannot_be_changed_or_moved():
    key = new_seed() * 2
    sealed = seal(key, b"a share", b"here")
    assert unseal(key, sealed, b"here") == b"a share"
    assert unseal(key, sealed, b"there") is None
    assert unseal(key[::-1] + b"", sealed[:-1] + bytes([sealed[-1] ^ 1]), b"here") is None


def test_residues_go_there_and_back():
    values = np.array([0, 1, -1, 2**63 - 1, -(2**63)])
    assert np.array_equal(to_residues(values).view(np.int64), values)


def test_masks_are_uniform():
    mask = expand(new_seed() * 2, 5_000).view(np.uint8)
    counts = np.bincount(mask.astype(np.int64), minlength=256)
    chi_squared = ((counts - 40_000 / 256) ** 2 / (40_000 / 256)).sum()
    assert chi_squared < 255 + 8 * math.sqrt(2 * 255)


def test_no_total_of_half_a_billion_rows_wraps_around():
    widest = WEIGHT * UNIT  # what a row can add to one component of a sum
    noise = gaussian_scale((WEIGHT * 2**24) ** 2, 1e-6)
    assert 2**29 * widest + 40 * noise < 2**63


def test_any_threshold_of_shares_recovers_the_secret():
    secret = new_seed()
    shares = split(secret, 3, 5)
    for chosen in itertools.combinations(range(5), 3):
        assert combine({i: shares[i] for i in chosen}) == secret
    assert combine({0: shares[0], 1: shares[1]}) != secret
    with pytest.raises(ValueError, match="cannot share"):
        split(secret, 6, 5)


def test_fewer_shares_say_nothing():
    # with one share missing, every secret is equally possible: some value of the missing share gives it
    shares = split(bytes(16), 2, 3)
    wanted = int.from_bytes(b"another secret!!", "big")
    point = int.from_bytes(shares[0], "big")
    missing = (2 * point - wanted) % PRIME
    assert combine({0: shares[0], 1: missing.to_bytes(17, "big")}) == b"another secret!!"
    assert all(pow(a, PRIME - 1, PRIME) == 1 for a in (2, 3, 5, 7, 11, 13))


@pytest.mark.parametrize("tolerance", range(1, 34))
def test_numbers_of_shares_and_witnesses_bear_what_they_must(tolerance):
    for n_sites in range(3 * tolerance + 1, 101):
        # those that remain suffice, and colluders alone do not
        assert n_sites - tolerance >= threshold(n_sites, tolerance) > tolerance
        needed = witnesses_needed(n_sites, tolerance)
        assert n_sites - tolerance >= needed
        # honest sites sign one list, colluders two
        assert 2 * needed > n_sites + tolerance
        assert certain_shares(n_sites, tolerance) > tolerance


def test_messages_are_checked():
    message = Message("mask", 1, {"a": "text"}, {"sites": as_bits([3, 1], 4)})
    read = Message.from_bytes(message.to_bytes(REQUEST), REQUEST)
    assert read.places("sites", 4) == [1, 3]
    for broken in (
        lambda: read.places("sites", 3),
        lambda: read.places("sites", 9),
        lambda: read.places("others", 4),
        lambda: read.number("a"),
        lambda: read.blob("a"),
        lambda: read.rows("sites", 2),
        lambda: Message("other", 1, {}, {}).from_bytes(Message("other", 1, {}, {}).to_bytes(REQUEST), REQUEST),
    ):
        with pytest.raises(MessageError):
            broken()


class TestNoise:
    def test_bound_holds_against_the_exact_sum(self):
        """The sum of two discrete Gaussians, convolved exactly, against one: the log-ratio stays below the bound."""
        for scale in (0.5, 0.7, 1.0):
            reach = np.arange(-60, 61)
            one = np.exp(-(reach**2) / (2 * scale**2))
            one /= one.sum()
            together = np.convolve(one, one)
            wide = np.exp(-(np.arange(-120, 121) ** 2) / (4 * scale**2))
            wide /= wide.sum()
            middle = slice(120 - 8, 120 + 9)
            worst = np.abs(np.log(together[middle] / wide[middle])).max()
            assert worst <= distance_to_gaussian(scale, 2)
        assert distance_to_gaussian(1.0, 2) < 1e-3

    def test_shares_add_up_to_what_is_asked_for(self):
        total = gaussian_scale(WEIGHT**2, 0.01)
        for n in (3, 9, 900):
            share = share_scale(total, n, 1000)
            assert total <= math.sqrt(n) * share < total * (1 + 1e-9)
            # by the other road, Proposition 14, the cost is the same; one Gaussian gives up a little for being discrete
            tau, root = 2.0 * distance_to_gaussian(share, n), math.sqrt(n) * share
            assert 0.5 * ((WEIGHT / root) ** 2 + 2.0 * WEIGHT * tau / root + tau**2 * 1000) <= 0.01

    def test_small_shares_are_widened(self):
        assert share_scale(2.0, 100, 10) == 4.0
        with pytest.raises(ValueError, match="at least 1/2"):
            distance_to_gaussian(0.4, 2)
