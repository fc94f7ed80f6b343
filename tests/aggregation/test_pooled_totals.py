"""Totals of all sites, their shares of noise, and the steps that follow from them."""

import math

import numpy as np
import pytest

from fcac.aggregation import Assignment
from fcac.aggregation.pooled import PooledGrowth, read_task, share_scales, site_vector, step_cost, terms, to_task
from fcac.exceptions import AggregationRefused
from fcac.persistence import pack, unpack
from fcac.privacy import NodeRelease
from fcac.privacy.cell_release import noise_scales
from fcac.privacy.cell_statistics import to_grid
from fcac.privacy.samplers import InsecureTestSampler

BOUNDS = [[0, 1], [0, 1]]


def test_steps_cost_no_more_than_the_round():
    mechanism = NodeRelease(2, BOUNDS)
    for n_steps in (6, 3):
        costs = [step_cost(mechanism, step, n_steps) for step in range(1, n_steps + 1)]
        assert 0.999 * mechanism.rho < math.fsum(costs) < mechanism.rho
    with pytest.raises(AggregationRefused, match="no round has 5 steps"):
        step_cost(mechanism, 1, 5)


def test_terms_name_everything_that_matters():
    base = terms(NodeRelease(2, BOUNDS))
    others = [NodeRelease(3, BOUNDS), NodeRelease(2, [[0, 2], [0, 1]]), NodeRelease(2, BOUNDS, 1e-7)]
    assert len({base, *(terms(other) for other in [*others, NodeRelease(2, BOUNDS, n_cells=4)])}) == 5


def test_site_computes_the_cost_itself():
    mechanism = NodeRelease(2, BOUNDS)
    growth = PooledGrowth(mechanism, None, 1)
    request = read_task(Assignment(growth.task(), 1, 6, 5), mechanism)
    assert request.rho == step_cost(mechanism, 1, 6)
    assert not request.last
    wide = growth.request._replace(radius=10**9)
    with pytest.raises(AggregationRefused, match="outside the bounds"):
        read_task(Assignment(to_task(wide), 1, 6, 5), mechanism)
    with pytest.raises(AggregationRefused, match="does not fit"):
        read_task(Assignment(growth.task(), 1, 6, 5), NodeRelease(2, [[0, 1]]))
    with pytest.raises(AggregationRefused, match="cannot be read"):
        read_task(Assignment(b"nonsense", 1, 6, 5), mechanism)


def test_a_task_holds_every_base_once():
    """Cells that are their own base cost nothing; the base that two halves have in common is sent once."""
    mechanism = NodeRelease(2, BOUNDS)
    words = np.array([[1, 2], [3, 4], [5, 6], [1, 2]])
    for bases, n_words in ((words, 4), (words[[0, 0, 2, 2]], 4), (np.array([[9, 9], [9, 9], [5, 6], [7, 7]]), 6)):
        request = PooledGrowth(mechanism, None, 1).request._replace(codebook=words, bases=bases)
        task = to_task(request)
        read = read_task(Assignment(task, 1, 6, 5), mechanism)
        assert np.array_equal(read.codebook, words)
        assert np.array_equal(read.bases, bases)
        meta, arrays = unpack(task, kind="aggregation-task")
        assert len(arrays["words"]) == n_words
    for wrong in (-1, 6):
        arrays["base_of"][0] = wrong
        with pytest.raises(AggregationRefused, match="does not fit"):
            read_task(Assignment(pack("aggregation-task", meta, arrays), 1, 6, 5), mechanism)


def test_summed_noise_has_the_promised_scale():
    """Seven sites, two of them known to the hub: what the other five add is as wide as one site's noise would be."""
    mechanism = NodeRelease(1, BOUNDS, n_cells=40)
    growth = PooledGrowth(mechanism, None, 1)
    request = growth.request._replace(codebook=np.zeros((400, 2), np.int64), bases=np.zeros((400, 2), np.int64))
    nobody = np.empty((0, 2), np.int64)
    total = sum(site_vector(nobody, request, 5, mechanism.sampler) for _ in range(5))
    counts, sums, _ = noise_scales(request.radius, request.rho, request.last)
    for part, scale in ((total[:400], counts), (total[400:1200], sums)):
        assert abs(part.std() / scale - 1) < 5 / math.sqrt(2 * len(part))
    scales = share_scales(request, 5)
    assert scales.counts == pytest.approx(counts / math.sqrt(5))


def test_growth_is_that_of_one_site_with_all_rows():
    rng = np.random.default_rng(0)
    rows = to_grid(np.clip(rng.normal([[0.3, 0.6]], 0.1, (300, 2)), 0, 1))
    mechanism = NodeRelease(2, BOUNDS, sampler=InsecureTestSampler(3))
    shares = np.array_split(rows, 6)
    pooled, alone = PooledGrowth(mechanism, None, 1), PooledGrowth(mechanism, None, 1)
    while pooled.request is not None:
        vectors = [site_vector(own, pooled.request, 5, mechanism.sampler) for own in shares]
        silent = InsecureTestSampler(0, factor=0.0)
        noise = sum(vectors) - sum(site_vector(own, pooled.request, 5, silent) for own in shares)
        pooled.take(sum(vectors), 6, 5)
        alone.take(site_vector(rows, alone.request, 5, silent) + noise, 6, 5)
    assert pooled.released == alone.released
    with pytest.raises(ValueError, match="the last step is over"):
        pooled.task()


def test_totals_of_another_length_are_an_error():
    growth = PooledGrowth(NodeRelease(2, BOUNDS), None, 1)
    with pytest.raises(ValueError, match="were expected"):
        growth.take(np.zeros(5, np.int64), 4, 3)
