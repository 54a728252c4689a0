"""Means and their intervals, against scipy and cases worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import ttest_1samp, ttest_ind

from pvera.errors import InputError
from pvera.report.statistics import coverage, mean_and_std, seed_error
from pvera.uncertainty import t_interval


def test_mean_and_std_by_hand():
    mean, std = mean_and_std(np.array([[1.0, 2.0, 4.0]]), axis=1)
    assert mean == pytest.approx(7 / 3)
    assert std == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))


@pytest.mark.filterwarnings("error")
def test_mean_and_std_of_missing_runs():
    nan = math.nan
    mean, std = mean_and_std(np.array([[1.0, nan, 3.0], [nan, 5.0, nan], [nan, nan, nan]]), axis=1)
    np.testing.assert_array_equal(mean, [2, 5, nan])
    np.testing.assert_array_equal(std, [math.sqrt(2), nan, nan])


def test_seed_error_by_hand():
    # Two data sets, s = .2 and .1 of three runs each: variance (.04 + .01) / 3 / 4, degrees of freedom
    # .05² / (.04² + .01²) · 2 = 2.94, for which tables give t between 3.182 (3) and 4.303 (2)
    half = seed_error(np.array([0.2, 0.1]), 3)
    assert half / math.sqrt(0.05 / 12) == pytest.approx(3.22, abs=0.01)


@given(hnp.arrays(np.float64, (2, 4), elements=st.floats(0, 1, width=16)))
def test_seed_error_agrees_with_scipy(samples):
    """With one data set it is Student's interval; with equally many runs of two methods, Welch's."""
    samples[:, 0] += 1
    low, high = t_interval(samples, axis=1)
    std = samples.std(1, ddof=1)
    np.testing.assert_allclose(seed_error(std[:, None], 4), (high - low) / 2)
    welch = ttest_ind(*samples, equal_var=False).confidence_interval(0.95)
    assert 2 * seed_error(std, 4) == pytest.approx((welch.high - welch.low) / 2)  # of the sum, so not halved


def test_seed_error_covers_as_often_as_it_says():
    runs = np.random.default_rng(0).normal(0, [0.1, 0.3, 0.2, 0.2], (3, 20000, 4))
    mean, std = mean_and_std(runs)
    half = seed_error(std, 3)
    assert coverage(mean.mean(-1) - half, mean.mean(-1) + half, 0) == pytest.approx(0.95, abs=0.02)


@pytest.mark.filterwarnings("error")
def test_seed_error_without_spread_or_with_one_run():
    half = seed_error(np.array([[0.0, 0.0], [math.nan, 0.1]]), np.array([[3, 3], [1, 3]]))
    np.testing.assert_array_equal(half, [0, math.nan])


def test_t_interval_by_hand():
    # Mean .5, s = .1, k = 4: half width t(3, .975) * .1 / 2, and a table gives t = 3.182
    low, high = t_interval([0.5 - 0.1 * math.sqrt(1.5), 0.5, 0.5, 0.5 + 0.1 * math.sqrt(1.5)])
    assert (low, high) == pytest.approx((0.5 - 0.15912, 0.5 + 0.15912), abs=1e-5)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=st.floats(0, 1)),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_t_interval_agrees_with_scipy(samples, level):
    samples[0] += 1 + np.arange(samples.shape[1])  # scipy warns of draws that are all equal
    expected = ttest_1samp(samples, 0, axis=0).confidence_interval(level)
    for ours in (t_interval(samples, level=level), t_interval(samples.T, axis=1, level=level)):
        np.testing.assert_allclose(ours, (expected.low, expected.high), atol=1e-14)


def test_t_interval_narrows_with_the_draws():
    """It covers the mean, not the scores: sixteen draws give about half the width of four."""
    scores = np.random.default_rng(0).normal(0.5, 0.1, (16, 20000))
    width = [np.subtract(*t_interval(scores[:k])[::-1]).mean() for k in (4, 16)]
    # E[s] = c₄(k) σ, with c₄ = .9213 (k = 4) and .9835 (k = 16); t = 3.182 and 2.131
    expected = [2 * 3.182 * 0.9213 * 0.1 / 2, 2 * 2.131 * 0.9835 * 0.1 / 4]
    assert width == pytest.approx(expected, rel=0.01)


def test_t_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(0.5, 0.1, (5, 20000))
    for level in (0.8, 0.95):
        # Standard error of the share: below .003
        assert coverage(*t_interval(draws, level=level), 0.5) == pytest.approx(level, abs=0.012)


def test_t_interval_of_equal_draws_and_of_half_precision():
    low, high = t_interval(np.full((4, 3), 0.3, np.float16))
    np.testing.assert_allclose(low, np.float16(0.3), rtol=1e-12)
    np.testing.assert_allclose(high, np.float16(0.3), rtol=1e-12)


@pytest.mark.parametrize(
    "samples, level, message",
    [
        ([0.5], 0.95, "two draws"),
        (0.5, 0.95, "two draws"),
        (np.empty((0, 3)), 0.95, "two draws"),
        ([0.1, math.nan], 0.95, "finite"),
        ([0.1, math.inf], 0.95, "finite"),
        ([0.1, 0.2], 1.0, "level"),
        ([0.1, 0.2], 95, "level"),
    ],
)
def test_t_interval_of_bad_input(samples, level, message):
    with pytest.raises(InputError, match=message):
        t_interval(samples, level=level)


def test_coverage_by_hand():
    # Inside, on the bound, above, below
    assert coverage([0, 0, 0, 0], [1, 1, 1, 1], [0.5, 1, 1.1, -0.1]) == 0.5
    assert coverage([0.2], [0.4], [0.3, 0.5, 0.6, 0.7]) == 0.25


@pytest.mark.parametrize(
    "low, high, truth", [([], [], []), ([1], [0], [0.5]), ([math.nan], [1], [0]), ([0], [1], [math.nan])]
)
def test_coverage_of_bad_input(low, high, truth):
    with pytest.raises(InputError, match="coverage"):
        coverage(low, high, truth)
