"""Feature scales: columns in one unit are kept as they are, columns in different units are divided by their spread."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from fcac.scaling import Columns, Scaling, check_scale, scaling_of


def scaled(rows: np.ndarray, scale: str = "auto") -> Scaling:
    return scaling_of(Columns.of(rows, np.ones(len(rows)), scale=scale), scale)


def spreads(rows: np.ndarray, scale: str = "auto") -> np.ndarray:
    return (rows * scaled(rows, scale).factors).std(axis=0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


UNITS = {
    "age and income": [15, 15_000],
    "two pairs": [1, 1, 1000, 1000],
    "one of six": [1, 1, 1, 1, 1, 1000],
    "all but one": [1, 1000, 1000, 1000],
    "one of thirty": [20, *[1] * 29],
    "random": [3e-3, 0.7, 12, 410, 6e4],
}


@pytest.mark.parametrize("units", UNITS.values(), ids=list(UNITS))
def test_columns_in_different_units_are_divided_by_their_spread(rng, units):
    rows = rng.normal(size=(300, len(units))) * units + 100
    assert scaled(rows).kind == "standard"
    assert spreads(rows).max() / spreads(rows).min() < 1.5


def one_unit(rng: np.random.Generator) -> dict[str, np.ndarray]:
    topics = rng.dirichlet(np.full(100, 0.1), size=6)[rng.integers(6, size=2000)]
    sparse = rng.random((500, 40)) < rng.uniform(0.01, 0.9, 40)
    levels = rng.choice(5, p=[0.7, 0.2, 0.06, 0.03, 0.01], size=(800, 6))
    return {
        "a table alike": rng.normal(size=(500, 8)) * np.linspace(0.8, 1.2, 8),
        "a shape five times as long as wide": rng.normal(size=(500, 2)) * [5, 1],
        "one column": rng.normal(size=(50, 1)),
        "words": rng.poisson(40 * topics).astype(float),
        "yes and no": sparse.astype(float),
        "one-hot": (levels[:, :, None] == np.arange(5)).reshape(800, 30).astype(float),
        "pixels": load_digits().data,
        "centimetres": load_iris().data,
        "embeddings": rng.normal(size=(300, 64)) * np.exp(0.3 * rng.normal(size=64)),
    }


@pytest.mark.parametrize("name", list(one_unit(np.random.default_rng(0))))
def test_columns_in_one_unit_stay_as_they_are(rng, name):
    found = scaled(one_unit(rng)[name])
    assert (found.factors == 1).all()
    assert found.kind == "none"
    assert str(found).startswith("columns as they are: ")


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_measurements_in_many_units(load):
    rows = load().data
    assert scaled(rows).kind == "standard"
    assert spreads(rows).max() / spreads(rows).min() < 1.42
    # powers of the root of two: a few new rows hardly ever change the metric
    assert np.allclose(np.log2(scaled(rows).factors) * 2 % 1, 0)


def test_a_unit_common_to_all_columns_changes_nothing(rng):
    for rows in (*one_unit(rng).values(), rng.normal(size=(300, 3)) * [1, 30, 900]):
        for unit in (2.0**-30, 2.0**40):
            there = scaled(rows * unit).factors
            here = scaled(rows).factors
            assert np.array_equal(there / there[0], here / here[0])


def test_constant_columns_do_not_matter(rng):
    nodes = rng.normal(size=(40, 3)) * [1e6, 1, 1]
    wide = np.column_stack([nodes, np.full(40, 7.0), 0.1 + np.where(rng.random(40) < 0.5, 0, 2e-17)])
    assert np.array_equal(scaled(wide).factors, [*scaled(nodes).factors, 1, 1])
    assert (scaled(np.zeros((5, 2))).factors == 1).all()


def test_what_was_asked_for_is_done_and_said(rng):
    rows = rng.normal(size=(400, 2)) * [1, 3]
    assert (scaled(rows, "none").factors == 1).all()
    assert np.ptp(np.log2(spreads(rows, "standard"))) <= 0.5
    outliers = np.concatenate([rows, np.full((8, 2), [5000.0, 0.0])])
    assert np.ptp(np.log2((rows * scaled(outliers, "robust").factors).std(axis=0))) <= 0.7
    for scale in ("none", "standard", "robust"):
        assert f'scale="{scale}"' in str(scaled(rows, scale))
        assert scaled(rows, scale).kind == scale
    # a column of mostly zeros has no middle half: its spread is taken
    rare = np.column_stack([rows, 100.0 * (rng.random(400) < 0.1)])
    assert np.ptp(np.log2(spreads(rare, "robust"))) < 1
    with pytest.raises(ValueError, match="scale must be one of 'auto', 'none', 'standard', 'robust'; it is 'max'"):
        check_scale("max")


def test_summaries_of_rows_say_the_same_as_the_rows(rng):
    rows = np.round(rng.normal(size=(600, 3)) * [1, 50, 2000], 1)
    which = rng.integers(40, size=600)
    means = np.array([rows[which == c].mean(axis=0) for c in range(40)])
    squares = np.array([((rows[which == c] - means[c]) ** 2).sum(axis=0) for c in range(40)])
    counts = np.bincount(which).astype(float)
    whole = Columns.of(rows, np.ones(600))
    for weights in (counts, np.repeat(counts[:, None], 3, axis=1)):
        parts = Columns.of(means, weights, squares)
        assert np.allclose(parts.mean, whole.mean)
        assert np.allclose(parts.variance, whole.variance)
        assert np.array_equal(scaling_of(parts).factors, scaling_of(whole).factors)
