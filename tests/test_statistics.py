"""Statistics against sums worked by hand and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pvera.statistics import LEVEL, binomial_p_value, binomial_star, mean_and_std


def test_p_value_by_hand():
    # P(X <= 2), X ~ Binomial(10, 1/2): (1 + 10 + 45) / 1024
    assert binomial_p_value(2, 10, 5) == pytest.approx(56 / 1024)
    # P(X <= 0), X ~ Binomial(4, 3/4) = (1/4)^4
    assert binomial_p_value(0, 4, 3) == pytest.approx(1 / 256)


def test_star_by_hand():
    assert 56 / 1024 > LEVEL > 11 / 1024
    assert not binomial_star(2, 10, 5)
    assert binomial_star(1, 10, 5)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_p_value_is_the_lower_tail(case):
    n, correct, reference = case
    assert binomial_p_value(correct, n, reference) == pytest.approx(
        binom.cdf(correct, n, reference / n), abs=1e-12
    )


@pytest.mark.parametrize("n", [1, 10, 221184])  # 3 x 73728, the largest of the paper
def test_reference_of_exactly_zero_or_one(n):
    assert not binomial_star(0, n, 0) and not binomial_star(n, n, 0)
    assert not binomial_star(n, n, n)
    assert binomial_star(n - 1, n, n)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_no_star_for_an_equal_or_better_method(case):
    n, reference = case
    assert not binomial_star(reference, n, reference)
    assert not binomial_star(n, n, reference)


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
