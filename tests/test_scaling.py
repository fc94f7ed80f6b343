"""Feature scales: as far as features would go unheard, they are brought to one scale."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits, load_wine

from fcac.scaling import feature_scales


def test_scales_are_evened_out_the_more_the_fewer_features_would_be_heard():
    generator = np.random.default_rng(0)
    alike = generator.normal(size=(500, 8)) * np.linspace(0.8, 1.2, 8)
    assert (feature_scales(alike, np.ones(500)) == 1).all()
    # digits: two thirds of the pixels are heard, so a quarter of the way
    digits = load_digits().data
    spread = digits.std(axis=0)
    factors = feature_scales(digits, np.ones(len(digits)))
    assert np.allclose(factors[spread > 0], np.exp2(np.rint(2 * np.log2(spread[spread > 0])) / -8))
    assert (factors[spread == 0] == 1).all()
    wine = load_wine().data
    factors = feature_scales(wine, np.ones(len(wine)))
    spread = (wine * factors).std(axis=0)
    assert spread.max() / spread.min() < 1.42
    assert np.allclose(np.log2(factors) * 2 % 1, 0)


def test_constant_features_do_not_matter():
    nodes = np.random.default_rng(0).normal(size=(40, 3)) * [1e6, 1, 1]
    wide = np.column_stack([nodes, np.full(40, 7.0)])
    assert np.array_equal(feature_scales(wide, np.ones(40))[:3], feature_scales(nodes, np.ones(40)))
    assert np.isfinite(feature_scales(wide, np.ones(40))).all()
