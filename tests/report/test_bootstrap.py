"""The bootstrap against closed forms of its variance, scipy's, and cases worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import bootstrap, mannwhitneyu, norm, t

from pvera.errors import InputError
from pvera.report.statistics import averages, percentile_interval, probability_of_improvement, rank_sum, resample

NAN = math.nan


def some_scores(methods=3, seeds=3, datasets=5):
    rng = np.random.default_rng(0)
    return rng.normal(0.6, 0.2, (1, 1, datasets)) + rng.normal(0, 0.05, (methods, seeds, datasets))


def test_a_resample_has_whole_data_sets_the_same_for_all_methods():
    # The digits encode method, seed and data set
    scores = np.fromfunction(lambda m, s, d: 100 * m + 10 * s + d, (2, 3, 4))
    drawn = resample(scores, np.random.default_rng(0), 200)
    assert drawn.shape == (200, 2, 3, 4)
    method, seed, dataset = drawn // 100, drawn // 10 % 10, drawn % 10
    assert (method == np.arange(2)[:, None, None]).all() and (seed == np.arange(3)[:, None]).all()
    assert (dataset == dataset[:, :1, :1]).all()  # methods stay paired on their data set
    assert len(np.unique(dataset[:, 0, 0])) == 4


def test_the_same_generator_gives_the_same_resamples():
    scores = some_scores()
    one, other = (resample(scores, np.random.default_rng(7), 10) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_a_missing_run_is_missing_in_its_data_set_alone():
    scores = np.array([[[1.0, 14.0], [NAN, 15.0], [3.0, NAN]]])
    drawn = resample(scores, np.random.default_rng(0), 500)
    first = drawn[:, 0, 0] == 1
    np.testing.assert_array_equal(np.isnan(drawn[:, 0, 1]), first)
    np.testing.assert_array_equal(np.isnan(drawn[:, 0, 2]), ~first)


def test_variance_over_data_sets_by_its_closed_form():
    scores = some_scores()
    drawn = averages(resample(scores, np.random.default_rng(0), 40_000))
    np.testing.assert_allclose(drawn.var(0), scores.mean(1).var(-1) / 5, rtol=0.05)


def test_interval_over_data_sets_agrees_with_scipy():
    """With one run each, it is scipy's paired bootstrap of the difference of two means."""
    one, other = some_scores(methods=2, seeds=1, datasets=12)[:, 0]
    drawn = averages(resample(np.stack([one, other])[:, None], np.random.default_rng(0), 40_000))
    lead = (one - other).mean()
    low, high = percentile_interval(drawn[:, 0] - drawn[:, 1], lead, 12)
    expected = bootstrap(
        (one, other), lambda x, y, axis: (x - y).mean(axis), paired=True, method="percentile",
        n_resamples=40_000, rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    wider = math.sqrt(12 / 11) * t.ppf(0.975, 11) / norm.ppf(0.975)
    expected = [lead + wider * (bound - lead) for bound in expected]
    assert (low, high) == pytest.approx(expected, abs=(high - low) / 50)


def test_percentile_interval_by_hand():
    """The 5th and 95th percentiles lie 45 from 50; two units widen this by √2 · t(1) / z = 5.43."""
    resamples = np.array([np.arange(101.0), 2 * np.arange(101.0)]).T
    low, high = percentile_interval(resamples, [50, 100], 2, level=0.9)
    wider = math.sqrt(2) * 6.313752 / 1.644854
    np.testing.assert_allclose(low, [50 - 45 * wider, 100 - 90 * wider], rtol=1e-6)
    np.testing.assert_allclose(high, [50 + 45 * wider, 100 + 90 * wider], rtol=1e-6)
    assert np.isnan(percentile_interval(resamples, [50, 100], 1)).all()


def test_averages_by_hand():
    np.testing.assert_allclose(averages([[[1.0, 4.0], [NAN, 6.0]], [[0.0, 0.0], [1.0, 2.0]]]), [3, 0.75])


def test_probability_of_improvement_by_hand():
    one, other = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[0.0, 5.0], [2.0, 6.0]])
    # First data set: 1 > 0, 1 < 2, 2 > 0, 2 = 2: 2.5 of 4. Second: 5 = 5, 5 < 6, twice: 1 of 4
    assert probability_of_improvement(one, other) == pytest.approx((2.5 + 1) / 8)
    # Without its second run, the other has 1 > 0, 2 > 0 and 5 = 5, 5 = 5
    other[1] = NAN
    assert probability_of_improvement(one, other) == pytest.approx((1 + 0.5) / 2)


def agarwal(one, other):
    """Agarwal et al. (2021), Section 4.3: per data set, the Mann-Whitney U statistic over the pairs of runs."""
    shares = []
    for x, y in zip(one.T, other.T):
        x, y = x[~np.isnan(x)], y[~np.isnan(y)]
        shares.append(mannwhitneyu(x, y).statistic / (len(x) * len(y)))
    return np.mean(shares)


def test_probability_of_improvement_is_that_of_agarwal_et_al():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 6, (5, 7)).astype(float), rng.integers(0, 5, (3, 7)).astype(float)
    one[3:, 2], other[2, [2, 5]] = NAN, NAN  # runs are missing, on each side and on both
    assert probability_of_improvement(one, other) == pytest.approx(agarwal(one, other))
    # Data sets have equal weight, however many runs they have.
    weights = (~np.isnan(one)).sum(0) * (~np.isnan(other)).sum(0)
    of_each = [agarwal(one[:, [d]], other[:, [d]]) for d in range(7)]
    assert agarwal(one, other) != pytest.approx(np.average(of_each, weights=weights))


few = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(1, 4)),
    elements=st.integers(0, 3).map(float),
)


def all_pairs(scores):
    return probability_of_improvement(scores[..., :, None, :, :], scores[..., None, :, :, :])


@given(few)
def test_probability_of_improvement_properties(scores):
    probabilities = all_pairs(scores)
    np.testing.assert_allclose(probabilities + probabilities.T, 1)
    np.testing.assert_allclose(np.diag(probabilities), 0.5)
    np.testing.assert_array_equal(probabilities, all_pairs(np.exp(scores)))
    pairs = [rank_sum(*scores[:2, :, d]).superiority for d in range(scores.shape[2])]
    assert probabilities[0, 1] == pytest.approx(np.mean(pairs))


@given(few)
def test_statistics_of_resamples_are_those_of_each(scores):
    drawn = resample(scores, np.random.default_rng(0), 4)
    for statistic in (averages, all_pairs):
        np.testing.assert_array_equal(statistic(drawn), [statistic(one) for one in drawn])


@pytest.mark.parametrize(
    "scores, message",
    [
        (np.ones((2, 3)), "methods, seeds"),
        (np.empty((2, 0, 3)), "methods, seeds"),
        ([[[1.0, NAN]], [[1.0, 1.0]]], "leave out"),
    ],
)
def test_bad_input(scores, message):
    with pytest.raises(InputError, match=message):
        resample(scores, np.random.default_rng(0))
