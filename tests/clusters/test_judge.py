"""The judge: probabilities are probabilities, asked numbers come out, and single clusters mostly stay whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fcac import FCAC
from fcac._split_rate import FALSE_SPLIT_RATE
from fcac.clusters import Communities
from fcac.clusters.cluster_tree import Tree, _tree, tree_of
from fcac.clusters.judge import Judge
from fcac.clusters.proposals import part_of_atoms
from fcac.clusters.snn_graph import neighbours_for
from fcac.search.exact import Searcher, build_lists


def judged(X: np.ndarray, rate: float = FALSE_SPLIT_RATE) -> Tree:
    return tree_of(X, np.ones(len(X)), build_lists(Searcher(X), neighbours_for(len(X))), rate)


def blobs(seed: int, n: int = 120, apart: float = 9.0) -> np.ndarray:
    centres = apart * np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.9]])
    return np.random.default_rng(seed).normal(size=(n, 2)) + centres[np.arange(n) % 3]


def test_nested_cuts_refine_one_another_and_meet_the_found_one():
    tree = judged(blobs(0))
    cuts = [tree.nested(level) for level in range(1, 9)]
    for coarse, fine in pairwise(cuts):
        assert len({(a, b) for a, b in zip(fine.tolist(), coarse.tolist(), strict=True)}) == fine.max() + 1
    assert tree.n_clusters == 3
    assert np.array_equal(cuts[2], tree.labels())


def test_a_number_that_is_asked_for_is_what_comes_out():
    X = blobs(1)
    tree = judged(X)
    for k in (1, 2, 3, 5, 20, len(X)):
        assert tree.into(k).labels().max() + 1 == k
    with pytest.raises(ValueError, match="n_clusters is 121"):
        tree.into(121)


def test_probabilities_are_probabilities_and_the_found_number_comes_first():
    tree = judged(blobs(2))
    assert tree.probabilities().sum() == pytest.approx(1.0)
    best, *others = tree.alternatives(4)
    assert best.n_clusters == tree.n_clusters == 3
    assert np.array_equal(best.node_labels, tree.labels())
    assert [other.n_clusters for other in others] == [o.node_labels.max() + 1 for o in others]
    assert [other.probability for other in others] == sorted((o.probability for o in others), reverse=True)
    sure = tree.cluster_probability()
    assert sure.shape == (3,)
    assert (sure > 0.5).all()
    assert (sure <= 1).all()


def test_doubt_shows_where_clusters_overlap():
    clear, vague = (judged(blobs(3, apart=apart)).probabilities()[2] for apart in (9.0, 3.0))
    assert clear > vague


def test_a_higher_rate_of_false_splits_finds_more():
    fitted = Judge.fitted()
    ahead = [fitted.ahead_for(rate) for rate in (0.001, 0.01, 0.05, 0.1, 0.3, 0.9)]
    assert ahead == sorted(ahead, reverse=True)
    X = blobs(4, n=90, apart=3.2)
    assert judged(X, 0.3).n_clusters >= judged(X, 0.01).n_clusters
    for rate in (0, 1, -0.5, True):
        with pytest.raises(ValueError, match="false_split_rate"):
            Communities(false_split_rate=rate)
    with pytest.raises(ValueError, match="false_split_rate"):
        FCAC(false_split_rate=2).fit(X)


def test_joined_clusters_are_one_in_every_cut_that_follows():
    tree = judged(blobs(5))
    labels = tree.labels()
    joined = tree.joined([(0, 2)])
    assert joined.n_clusters == 2
    assert joined.probabilities()[1] >= tree.probabilities()[2]
    assert joined.probabilities().sum() == pytest.approx(1.0)
    found = joined.labels()
    assert len(np.unique(found[np.isin(labels, [0, 2])])) == 1
    assert np.array_equal(joined.nested(2), found)
    assert np.array_equal(np.unique(joined.nested(3)), [0, 1, 2])


def test_parts_below_the_components_of_a_mixture_are_those_of_a_finer_tree():
    found = judged(blobs(7, n=300, apart=3.6)).judged
    mixture = found.hierarchies[3]
    assert mixture.n_atoms < 10
    chosen = np.arange(mixture.n_atoms - 1) > 0
    tree = _tree(found, 3, chosen)
    assert tree.n_clusters == mixture.n_atoms - 1
    own = part_of_atoms(mixture.left, mixture.right, np.r_[np.zeros(mixture.n_atoms, dtype=bool), chosen])
    assert adjusted_rand_score(own[mixture.atom_of], tree.labels()) == 1.0
    for level in range(1, 40):
        assert tree.nested(level).max() + 1 == level
    assert adjusted_rand_score(mixture.atom_of, tree.nested(mixture.n_atoms)) == 1.0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_hardly_any_rows_are_one_cluster(n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    model = FCAC(random_state=0).fit(X)
    assert model.n_clusters_ == 1
    assert model.predict(X).tolist() == [0] * n


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "uniform", "exponential"])
def test_noise_of_few_rows_is_mostly_one_cluster(kind):
    found = [
        FCAC(random_state=0).fit(getattr(np.random.default_rng([seed, n]), kind)(size=(n, 4))).n_clusters_
        for n in (10, 20, 40, 60, 100)
        for seed in range(6)
    ]
    assert np.mean(np.array(found) == 1) >= 0.75


def test_more_clusters_than_distinct_rows_is_said():
    X = np.repeat([[0.0, 0.0], [1.0, 5.0], [9.0, 2.0]], 20, axis=0)
    with pytest.warns(UserWarning, match="n_clusters is 7, but there are 3 distinct places"):
        model = FCAC(n_clusters=7).fit(X)
    assert model.n_clusters_ == 3


@pytest.mark.slow
def test_one_site_and_ten_give_the_same_clusters():
    X = blobs(6, n=900)
    alone = FCAC(random_state=0).fit(X)
    together = FCAC(random_state=0).fit(X, groups=np.arange(len(X)) % 10)
    assert alone.n_clusters_ == together.n_clusters_ == 3
    assert alone.alternatives()[0].probability == together.alternatives()[0].probability
