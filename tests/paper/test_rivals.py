"""The rival algorithms: their mathematics, their interface, and what they do with awkward data."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcac.paper.rivals import MUFC, FedFCM, KFed, KMeansMerged
from fcac.paper.rivals._base import d2_seeds, lloyd, site_stream
from fcac.paper.rivals.fedfcm import fuzzy_c_means, fuzzy_memberships
from fcac.paper.rivals.kfed import clearly_owned, local_centers
from fcac.paper.rivals.mufc import Share, with_seeds, without_rows
from testing.data import draw

# A sound sampler falls below this once in 10,000 seeds. Seeds are fixed, so the outcome of a test never
# changes.
CHANCE = 1e-4
ALL = [KMeansMerged, KFed, FedFCM, MUFC]


@pytest.mark.slow
@parametrize_with_checks([algorithm() for algorithm in ALL])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    """Three well separated clusters in the unit square, at four sites of unequal size."""
    generator = np.random.default_rng(0)
    centers = np.array([[0.1, 0.1], [0.9, 0.2], [0.4, 0.9]])
    X, y = draw(generator, centers, 400, 0.03)
    groups = generator.choice(4, size=400, p=[0.4, 0.3, 0.2, 0.1])
    return X, y, groups


# the common interface


@pytest.mark.parametrize("algorithm", ALL)
def test_fit_predict_and_attributes_agree(algorithm, blobs):
    X, y, groups = blobs
    model = algorithm(n_clusters=3, random_state=0)
    labels = model.fit_predict(X, groups=groups)
    assert np.array_equal(labels, model.labels_)
    assert np.array_equal(labels, model.predict(X))
    assert model.cluster_centers_.shape == (3, 2)
    assert model.n_features_in_ == 2
    distance = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    assert np.array_equal(labels, distance.argmin(axis=1))
    # MUFC's seeds are plain rows and may start a cluster twice; ten runs at the server repair that here
    assert adjusted_rand_score(y, labels) > 0.95


@pytest.mark.parametrize("algorithm", ALL)
def test_random_state_decides_everything(algorithm, blobs):
    X, _, groups = blobs
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    first = algorithm(n_clusters=3, random_state=7).fit(X, groups=groups)
    again = clone(first).fit(X, groups=groups)
    other = clone(first).set_params(random_state=8).fit(X, groups=groups)
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    assert not np.array_equal(first.cluster_centers_, other.cluster_centers_)
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALL)
def test_clone_keeps_parameters_and_drops_what_was_learned(algorithm, blobs):
    model = algorithm(n_clusters=3, max_iter=17, random_state=1).fit(blobs[0])
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(blobs[0])


@pytest.mark.parametrize("algorithm", ALL)
def test_a_dict_of_sites_equals_groups(algorithm, blobs):
    X, _, groups = blobs
    by_dict = algorithm(n_clusters=3, random_state=0).fit({site: X[groups == site] for site in (3, 1, 0, 2)})
    order = np.argsort(groups, kind="stable")
    by_groups = algorithm(n_clusters=3, random_state=0).fit(X[order], groups=groups[order])
    assert np.array_equal(by_dict.cluster_centers_, by_groups.cluster_centers_)
    assert np.array_equal(by_dict.labels_, by_groups.labels_)


@pytest.mark.parametrize("algorithm", [KFed, FedFCM, MUFC])
def test_the_order_of_rows_of_different_sites_does_not_matter(algorithm, blobs):
    X, _, groups = blobs
    order = np.argsort(-groups, kind="stable")  # sites reversed, rows within a site as before
    first = algorithm(n_clusters=3, random_state=0).fit(X, groups=groups)
    second = algorithm(n_clusters=3, random_state=0).fit(X[order], groups=groups[order])
    assert np.array_equal(first.cluster_centers_, second.cluster_centers_)
    assert np.array_equal(first.labels_[order], second.labels_)


@pytest.mark.parametrize("algorithm", [KFed, MUFC])
def test_sites_are_sorted_as_numbers(algorithm, blobs):
    X, _, groups = blobs
    model = algorithm(n_clusters=3, random_state=0).fit(X, groups=groups * 5 + 2)
    assert list(model.site_centers_) == [2, 7, 12, 17]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_other_number_types(algorithm, dtype, blobs):
    X = (blobs[0] * 100).clip(0, 255).astype(dtype)
    labels = algorithm(n_clusters=3, random_state=0).fit_predict(X, groups=blobs[2])
    assert labels.shape == (400,)


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number of at least 1; it is 0"),
        ({"n_clusters": 2.5}, "n_clusters must be a whole number"),
        ({"n_clusters": 401}, "n_clusters=401 needs at least as many rows; got n_samples=400"),
        ({"max_iter": True}, "max_iter must be a whole number"),
    ],
)
def test_bad_parameters_are_named(algorithm, change, message, blobs):
    with pytest.raises(ValueError, match=message):
        algorithm(**({"n_clusters": 3} | change)).fit(blobs[0])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (FedFCM(3, fuzzifier=1.0), "fuzzifier must be greater than 1"),
        (FedFCM(3, tol=-1.0), "tol must not be negative"),
        (FedFCM(3, max_rounds=0), "max_rounds must be a whole number"),
        (MUFC(3, bin_width=0.0), "bin_width must be a positive number or None"),
        (MUFC(3, n_init=0), "n_init must be a whole number"),
        (KMeansMerged(3, n_init="auto"), "n_init must be a whole number"),
    ],
)
def test_bad_own_parameters_are_named(model, message, blobs):
    with pytest.raises(ValueError, match=message):
        model.fit(blobs[0])


@pytest.mark.parametrize("algorithm", ALL)
def test_bad_data_is_named(algorithm, blobs):
    X, _, groups = blobs
    model = algorithm(n_clusters=3)
    with pytest.raises(ValueError, match="not both"):
        model.fit({0: X}, groups=groups)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, groups=groups[:-1])
    with pytest.raises(ValueError, match=r"site 'b' has 1 features, site 'a' has 2"):
        model.fit({"a": X, "b": X[:, :1]})
    with pytest.raises(ValueError, match="site 'b': Found array with 0 sample"):
        model.fit({"a": X, "b": X[:0]})
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 0.9, np.nan, X), groups=groups)


# awkward data: where the published programs stop with an error


@pytest.mark.parametrize("algorithm", [KFed, FedFCM, MUFC])
def test_sites_with_few_or_equal_rows(algorithm):
    generator = np.random.default_rng(2)
    sites = {
        "all equal": np.full((20, 3), 0.5),
        "one row": np.array([[0.1, 0.2, 0.3]]),
        "two distinct": np.repeat([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], 8, axis=0),
        "normal": generator.random((50, 3)),
    }
    model = algorithm(n_clusters=4, random_state=0).fit(sites)
    assert np.isfinite(model.cluster_centers_).all()
    assert len(model.labels_) == 87


@pytest.mark.parametrize("algorithm", [KFed, FedFCM])
def test_fewer_distinct_rows_than_clusters_everywhere(algorithm):
    X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0)
    model = algorithm(n_clusters=4, random_state=0).fit(X, groups=np.arange(20) % 2)
    assert np.isfinite(model.cluster_centers_).all()
    assert len(set(model.labels_[:10])) == 1
    assert len(set(model.labels_[10:])) == 1


def test_kfed_with_fewer_features_than_clusters(blobs):
    X, _, groups = blobs
    model = KFed(n_clusters=5, random_state=0).fit(X, groups=groups)
    assert model.cluster_centers_.shape == (5, 2)


def test_kfed_server_fills_up_where_the_first_site_is_small():
    generator = np.random.default_rng(0)
    far = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    sites = {0: np.zeros((1, 2)), 1: np.repeat(far, 20, axis=0) + generator.normal(0, 0.1, (60, 2))}
    model = KFed(n_clusters=3, random_state=1).fit(sites)
    assert np.allclose(np.sort(model.cluster_centers_.sum(axis=1)), [0, 10, 10], atol=0.3)


# k-means


def inertia(X, centers):
    return ((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()


def test_lloyd_never_raises_the_sum_of_squares(blobs):
    X = blobs[0]
    centers = X[:6]
    course = [inertia(X, centers)]
    for _ in range(12):
        centers, _ = lloyd(X, centers, max_iter=1)
        course.append(inertia(X, centers))
    assert (np.diff(course) <= 1e-12).all()
    assert course[-1] < course[0]


def test_merged_kmeans_ignores_sites_and_beats_its_single_runs(blobs):
    X, _, groups = blobs
    with_sites = KMeansMerged(3, random_state=0).fit(X, groups=groups)
    without = KMeansMerged(3, random_state=0).fit(X)
    assert np.array_equal(with_sites.cluster_centers_, without.cluster_centers_)
    single = [KMeansMerged(5, n_init=1, max_iter=1, random_state=i).fit(X) for i in range(5)]
    best = KMeansMerged(5, random_state=0).fit(X)
    assert inertia(X, best.cluster_centers_) <= min(inertia(X, model.cluster_centers_) for model in single)


def test_wide_rows_take_the_faster_variant_with_the_same_answer():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(4, 70)).repeat(50, axis=0) + 0.3 * generator.normal(size=(200, 70))
    best = KMeans(4, n_init=10, random_state=0, algorithm="lloyd").fit(X)
    model = KMeansMerged(4, random_state=0).fit(X)
    assert inertia(X, model.cluster_centers_) == pytest.approx(best.inertia_)


# k-means++ seeding


def seeding_law(points, n_seeds, prefix=()):
    """The exact probability of every ordered choice of seeds, by enumeration."""
    if len(prefix) == n_seeds:
        return {prefix: 1.0}
    if prefix:
        weight = ((points[:, None] - points[list(prefix)]) ** 2).sum(axis=2).min(axis=1)
    else:
        weight = np.ones(len(points))
    if weight.sum() == 0:
        return {prefix: 1.0}
    law = {}
    for i in np.flatnonzero(weight):
        for seeds, chance in seeding_law(points, n_seeds, (*prefix, int(i))).items():
            law[seeds] = chance * weight[i] / weight.sum()
    return law


def chi_squared_p(draws, law):
    outcomes = sorted(law)
    observed = [draws.count(outcome) for outcome in outcomes]
    assert sum(observed) == len(draws)  # nothing impossible was drawn
    return stats.chisquare(observed, [len(draws) * law[outcome] for outcome in outcomes]).pvalue


@pytest.mark.slow
def test_seeds_follow_the_law_of_kmeans_plus_plus():
    points = np.array([[0.0], [1.0], [1.0], [4.0], [6.0]])
    generator = np.random.default_rng(0)
    draws = [tuple(d2_seeds(points, 2, generator)) for _ in range(20_000)]
    assert chi_squared_p(draws, seeding_law(points, 2)) > CHANCE


@pytest.mark.slow
@given(arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-3, 3)), st.data())
def test_seeds_are_distinct_points_and_stop_when_there_are_no_more(values, data):
    points = values.astype(float)
    n_seeds = data.draw(st.integers(1, 6))
    seeds = d2_seeds(points, n_seeds, np.random.default_rng(data.draw(st.integers(0, 99))))
    distinct = len(np.unique(points, axis=0))
    assert len(np.unique(points[seeds], axis=0)) == len(seeds) == min(n_seeds, distinct)


# k-FED


@pytest.mark.slow
@given(
    arrays(np.float64, (15, 2), elements=st.floats(-5, 5, width=16)),
    arrays(np.float64, (3, 2), elements=st.integers(-5, 5).map(float), unique=False),
)
def test_kfed_separation_rule(points, seeds):
    seeds = np.unique(seeds, axis=0)
    owner = clearly_owned(points, seeds)
    distance = np.linalg.norm(points[:, None] - seeds, axis=2)
    for x, r in zip(distance, owner, strict=True):
        clear = [i for i in range(len(seeds)) if all(3 * x[i] <= x[s] for s in range(len(seeds)) if s != i)]
        assert clear == ([] if r == -1 else [r])


def test_kfed_every_seed_owns_itself():
    points = np.random.default_rng(3).random((40, 4))
    seeds = points[d2_seeds(points, 5, np.random.default_rng(0))]
    assert clearly_owned(seeds, seeds).tolist() == [0, 1, 2, 3, 4]


def test_kfed_site_returns_its_rows_when_they_are_few():
    X = np.random.default_rng(0).random((4, 7))
    assert np.array_equal(local_centers(X, 4, 100, np.random.default_rng(0)), X)


def test_kfed_site_ends_where_lloyd_has_nothing_left_to_do(blobs):
    X = blobs[0]
    centers = local_centers(X, 3, 100, np.random.default_rng(0))
    assert np.allclose(centers, lloyd(X, centers, max_iter=1)[0], atol=1e-3)


def test_kfed_server_counts_every_local_centre_once(blobs):
    X, _, groups = blobs
    model = KFed(n_clusters=3, random_state=0).fit(X, groups=groups)
    sent = np.concatenate(list(model.site_centers_.values()))
    assert len(sent) == 4 * 3
    nearest = np.linalg.norm(sent[:, None] - model.cluster_centers_, axis=2).argmin(axis=1)
    means = np.stack([sent[nearest == j].mean(axis=0) for j in range(3)])
    assert np.allclose(means, model.cluster_centers_)  # unweighted: site 3 has a tenth of the rows


# FedFCM


@pytest.mark.slow
@given(
    arrays(np.float64, (12, 3), elements=st.floats(-1e3, 1e3, width=32)),
    arrays(np.float64, (4, 3), elements=st.floats(-1e3, 1e3, width=32)),
    st.floats(1.05, 5),
)
def test_memberships_are_shares_that_sum_to_one(X, centers, fuzzifier):
    degrees = fuzzy_memberships(X, centers, fuzzifier)
    assert (degrees >= 0).all()
    assert np.allclose(degrees.sum(axis=1), 1)


@pytest.mark.parametrize("fuzzifier", [1.5, 2.0, 3.0])
def test_memberships_follow_the_formula(fuzzifier, blobs):
    X, centers = blobs[0][:50], np.array([[0.0, 0.0], [1.0, 0.3], [0.2, 0.8]])
    distance = np.linalg.norm(X[:, None] - centers, axis=2)
    ratio = (distance[:, :, None] / distance[:, None, :]) ** (2 / (fuzzifier - 1))
    assert np.allclose(fuzzy_memberships(X, centers, fuzzifier), 1 / ratio.sum(axis=2))


def test_a_row_on_a_centre_belongs_to_it_alone():
    centers = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    degrees = fuzzy_memberships(np.array([[0.0, 0.0], [1.0, 1.0]]), centers, 2.0)
    assert np.allclose(degrees, [[1, 0, 0], [0, 0.5, 0.5]])


@pytest.mark.parametrize("fuzzifier", [1.3, 2.0, 4.0])
def test_fuzzy_objective_never_rises(fuzzifier, blobs):
    X, centers = blobs[0], np.random.default_rng(0).random((5, 2))

    def objective(centers, degrees):
        return (degrees**fuzzifier * ((X[:, None] - centers) ** 2).sum(axis=2)).sum()

    degrees = fuzzy_memberships(X, centers, fuzzifier)
    course = [objective(centers, degrees)]
    for _ in range(20):
        centers, degrees, _ = fuzzy_c_means(X, centers, fuzzifier, max_iter=1, tol=0.0)
        course.append(objective(centers, degrees))
    assert (np.diff(course) <= 1e-9 * course[0]).all()
    assert course[-1] < course[0]


def test_fuzzy_c_means_stops_at_its_tolerance(blobs):
    X, start = blobs[0], np.random.default_rng(0).random((3, 2))
    centers, degrees, n_iter = fuzzy_c_means(X, start, 2.0, max_iter=1000, tol=1e-4)
    _, further, _ = fuzzy_c_means(X, centers, 2.0, max_iter=1, tol=0.0)
    assert 1 < n_iter < 1000
    assert np.linalg.norm(further - degrees) < 1e-4


def test_fedfcm_server_averages_by_support():
    """Two sites, one centre each in effect: with k = 1 the global centre is the mean of all rows."""
    generator = np.random.default_rng(0)
    sites = {"a": generator.random((30, 2)), "b": generator.random((90, 2)) + 5}
    model = FedFCM(n_clusters=1, random_state=0).fit(sites)
    assert np.allclose(model.cluster_centers_[0], np.concatenate(list(sites.values())).mean(axis=0))


def test_fedfcm_begins_with_the_centres_it_is_given(blobs):
    X, _, groups = blobs
    start = np.random.RandomState(3).random_sample((3, X.shape[1]))
    given = FedFCM(3, init=start).fit(X, groups=groups)
    drawn = FedFCM(3, init=np.random.RandomState(3)).fit(X, groups=groups)
    np.testing.assert_array_equal(given.cluster_centers_, drawn.cluster_centers_)
    with pytest.raises(ValueError, match="init must be an array of finite numbers of shape"):
        FedFCM(3, init=start[:2]).fit(X, groups=groups)


def test_fedfcm_rounds_end_when_nothing_moves(blobs):
    X, _, groups = blobs
    one = FedFCM(n_clusters=3, random_state=0).fit(X, groups=groups)
    many = FedFCM(n_clusters=3, max_rounds=50, random_state=0).fit(X, groups=groups)
    assert one.n_rounds_ == 1
    assert 1 < many.n_rounds_ < 50
    assert np.allclose(many.memberships(X).sum(axis=1), 1)


# MUFC


def test_mufc_counts_add_up_and_centres_lie_on_the_grid(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=3, random_state=0).fit(X, groups=groups)
    assert model.bin_width_ == pytest.approx(1 / np.sqrt(400))
    for site in range(4):
        assert model.site_counts_[site].sum() == (groups == site).sum()
        steps = model.site_centers_[site] / model.bin_width_
        assert np.allclose(steps, np.round(steps), atol=1e-9)
        distance = np.abs(X[groups == site][:, None] - model.site_centers_[site]).max(axis=2)
        assert (distance.min(axis=0) <= model.bin_width_ / 2 + 1e-12).all()  # a rounded row of that site


def test_mufc_forget_site_equals_never_having_had_it(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=3, random_state=4).fit(X, groups=groups).forget_site(1)
    without = MUFC(n_clusters=3, random_state=4).fit(X[groups != 1], groups=groups[groups != 1])
    assert np.array_equal(model.cluster_centers_, without.cluster_centers_)
    assert np.array_equal(model.labels_, without.labels_)
    assert model.bin_width_ == without.bin_width_
    assert list(model.site_counts_) == [0, 2, 3]


SIX = np.array([[0.0], [1.0], [2.5], [4.0], [7.0], [7.5]])


def seeds_after_forgetting(steps, n_seeds, trial):
    """What a site's seeds are after these rows of SIX have been forgotten, step by step."""
    share = with_seeds(Share.of(np.arange(6)), SIX, n_seeds, site_stream(trial, 0))
    for going in steps:
        share = without_rows(share, np.array(going))
        share = with_seeds(share, SIX, n_seeds, site_stream(trial, 0, share.draws))
    return share.seeds


@pytest.mark.slow
@pytest.mark.parametrize("steps", [[[1, 4]], [[0]], [[0, 3, 5]], [[4], [0, 2]]])
def test_mufc_forgotten_rows_leave_the_law_of_never_having_had_them(steps):
    """After forgetting, seeds must follow k-means++ on the rest, whose law is enumerated exactly."""
    rest = [i for i in range(6) if i not in np.concatenate(steps)]
    draws = [tuple(rest.index(seed) for seed in seeds_after_forgetting(steps, 2, trial)) for trial in range(600)]
    assert chi_squared_p(draws, seeding_law(SIX[rest], 2)) > CHANCE


@pytest.mark.slow
def test_mufc_law_test_notices_a_wrong_rule():
    """Redrawing only the forgotten seed, and not those drawn after it, is the tempting mistake."""
    rest, draws = [0, 2, 3, 5], []
    for trial in range(2000):
        share = with_seeds(Share.of(np.arange(6)), SIX, 3, site_stream(trial, 0))
        later = [seed for seed in share.seeds if seed not in (1, 4)]
        wrong = replace(share, kept=~np.isin(np.arange(6), [1, 4]), seeds=later)
        wrong = with_seeds(wrong, SIX, 3, site_stream(trial, 0, 1))
        draws.append(tuple(rest.index(seed) for seed in wrong.seeds))
    assert chi_squared_p(draws, seeding_law(SIX[rest], 3)) < 1e-6


def test_mufc_model_forgets_rows_by_that_rule():
    model = MUFC(n_clusters=2, n_init=1, random_state=0).fit(SIX)
    base = model._base
    for going in ([4], [0, 2]):
        model.forget_rows(0, going)
    assert model._shares[0].seeds == seeds_after_forgetting([[4], [0, 2]], 2, base)
    assert model.site_counts_[0].sum() == 3
    assert model.bin_width_ == pytest.approx(1 / np.sqrt(3))


def test_mufc_forgetting_rows_that_are_no_seeds_changes_only_counts(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=3, bin_width=0.05, random_state=0).fit(X, groups=groups)
    centers = model.site_centers_[2].copy()
    plain = [i for i in range((groups == 2).sum()) if i not in model._shares[2].seeds][:10]
    before = model.site_counts_[2].sum()
    model.forget_rows(2, plain)
    assert np.array_equal(model.site_centers_[2], centers)
    assert model.site_counts_[2].sum() == before - 10
    assert len(model.labels_) == 390


def test_mufc_forgetting_a_seed_keeps_the_seeds_drawn_before_it(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=5, random_state=0).fit(X, groups=groups)
    seeds = model._shares[0].seeds
    model.forget_rows(0, [seeds[2]])
    assert model._shares[0].seeds[:2] == seeds[:2]
    assert seeds[2] not in model._shares[0].seeds
    assert len(model._shares[0].seeds) == 5


@pytest.mark.slow
def test_mufc_forgetting_all_rows_of_a_site_forgets_the_site(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=3, random_state=4).fit(X, groups=groups)
    model.forget_rows(1, np.arange((groups == 1).sum()))
    assert np.array_equal(model.cluster_centers_, clone(model).fit(X, groups=groups).forget_site(1).cluster_centers_)


def test_mufc_refuses_what_cannot_be_forgotten_and_stays_as_it_was(blobs):
    X, _, groups = blobs
    model = MUFC(n_clusters=3, random_state=0).fit(X, groups=groups)
    before = model.cluster_centers_.copy()
    with pytest.raises(ValueError, match="there is no site 9 in this model; it holds 0, 1, 2, 3"):
        model.forget_site(9)
    with pytest.raises(ValueError, match="so there is no row 1000"):
        model.forget_rows(0, [1000])
    with pytest.raises(ValueError, match="at least one whole number"):
        model.forget_rows(0, [0.5])
    with pytest.raises(ValueError, match="at least one whole number"):
        model.forget_rows(0, [])
    model.forget_rows(0, [3])
    with pytest.raises(ValueError, match="row 3 of site 0 has already been forgotten"):
        model.forget_rows(0, [3])
    lonely = MUFC(n_clusters=3, random_state=0).fit(X)
    with pytest.raises(ValueError, match="nothing was changed"):
        lonely.forget_site(0)
    assert len(lonely.labels_) == 400
    assert not np.array_equal(before, model.cluster_centers_)  # row 3 did go
    with pytest.raises(NotFittedError):
        MUFC().forget_site(0)


def test_random_streams_of_sites_do_not_collide():
    names = [0, 1, "0", "1", (0, 1), 0.5]
    first = [site_stream(3, name, draw).random() for name, draw in itertools.product(names, range(3))]
    assert len(set(first)) == len(first)
