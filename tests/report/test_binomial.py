"""The binomial test and corrections for many tests, against sums worked by hand, scipy and statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control
from statsmodels.stats.multitest import multipletests

from pvera.errors import InputError
from pvera.report.statistics import LEVEL, binomial_p_value, corrected


def test_p_value_by_hand():
    # P(X <= 2), X ~ Binomial(10, 1/2): (1 + 10 + 45) / 1024
    assert binomial_p_value(2, 10, 5) == pytest.approx(56 / 1024)
    # P(X <= 0), X ~ Binomial(4, 3/4) = (1/4)^4
    assert binomial_p_value(0, 4, 3) == pytest.approx(1 / 256)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_p_value_is_the_lower_tail(case):
    n, correct, reference = case
    assert binomial_p_value(correct, n, reference) == pytest.approx(binom.cdf(correct, n, reference / n), abs=1e-12)


@pytest.mark.parametrize("n", [1, 10, 221184])  # 3 x 73728, the largest of the paper
def test_reference_of_exactly_zero_or_one(n):
    assert binomial_p_value(0, n, 0) >= LEVEL and binomial_p_value(n, n, 0) >= LEVEL
    assert binomial_p_value(n, n, n) >= LEVEL
    assert binomial_p_value(n - 1, n, n) < LEVEL


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_no_star_for_an_equal_or_better_method(case):
    n, reference = case
    assert binomial_p_value(reference, n, reference) >= LEVEL
    assert binomial_p_value(n, n, reference) >= LEVEL


def test_corrected_by_hand():
    p = np.array([[0.01, 0.04], [math.nan, 0.03]])
    # Holm: 3 (.01), 2 (.03), then 1 (.04), but not below the one before
    np.testing.assert_allclose(corrected(p), [[0.03, 0.06], [math.nan, 0.06]])
    # Benjamini-Hochberg: 3/1 (.01), 3/2 (.03), 3/3 (.04), but not above the one after
    np.testing.assert_allclose(corrected(p, "fdr_bh"), [[0.03, 0.04], [math.nan, 0.04]])


# Few cases: statsmodels collects garbage on each call, which takes long.
P_VALUES = [np.random.default_rng(seed).choice([0, 1e-3, 0.01, 0.0125, 0.05, 0.3, 1], 5 + seed) for seed in range(3)]


@pytest.mark.parametrize("p", P_VALUES)
def test_corrected_agrees_with_scipy_and_statsmodels(p):
    np.testing.assert_allclose(corrected(p, "fdr_bh"), false_discovery_control(p))
    np.testing.assert_array_equal(corrected(p) <= LEVEL, multipletests(p, LEVEL, "holm")[0])


def holm(p):
    """Holm's step-down: the j-th smallest of m p-values times m − j + 1, monotone, at most 1."""
    adjusted, least = np.empty(len(p)), 0.0
    for j, index in enumerate(np.argsort(p)):
        least = max(least, min(1, (len(p) - j) * p[index]))
        adjusted[index] = least
    return adjusted


@pytest.mark.parametrize("p", P_VALUES)
def test_holm_agrees_with_its_definition(p):
    np.testing.assert_allclose(corrected(p), holm(p))


@pytest.mark.parametrize("p", P_VALUES)
def test_corrections_order(p):
    """No correction finds more than uncorrected tests, nor Holm more than Benjamini-Hochberg; order is kept."""
    holm, bh = corrected(p), corrected(p, "fdr_bh")
    assert (holm >= bh - 1e-12).all() and (bh >= p - 1e-12).all() and holm.max() <= 1
    np.testing.assert_allclose(corrected(p[::-1]), holm[::-1])


def test_corrected_of_no_test():
    np.testing.assert_array_equal(corrected(np.array([math.nan, math.nan])), [math.nan, math.nan])


@pytest.mark.parametrize("p, method", [([0.1], "bonferoni"), ([1.1], "holm"), ([-0.1, 0.5], "fdr_bh")])
def test_corrected_of_bad_input(p, method):
    with pytest.raises(InputError):
        corrected(p, method)
