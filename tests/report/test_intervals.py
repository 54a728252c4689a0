"""Student's interval, against scipy and cases worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import ttest_1samp

from pvera.uncertainty import t_interval


def test_t_interval_by_hand():
    # Mean .5, s = .1, k = 4: half width t(3, .975) * .1 / 2, and a table gives t = 3.182
    low, high = t_interval([0.5 - 0.1 * math.sqrt(1.5), 0.5, 0.5, 0.5 + 0.1 * math.sqrt(1.5)])
    assert (low, high) == pytest.approx((0.5 - 0.15912, 0.5 + 0.15912), abs=1e-5)


@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=st.floats(0, 1)))
def test_t_interval_agrees_with_scipy(samples):
    samples[0] += 1 + np.arange(samples.shape[1])  # scipy warns of draws that are all equal
    expected = ttest_1samp(samples, 0, axis=0).confidence_interval(0.95)
    np.testing.assert_allclose(t_interval(samples), (expected.low, expected.high), atol=1e-14)


def test_t_interval_narrows_with_the_draws():
    """It covers the mean, not the scores: sixteen draws give about half the width of four."""
    scores = np.random.default_rng(0).normal(0.5, 0.1, (16, 20000))
    width = [np.subtract(*t_interval(scores[:k])[::-1]).mean() for k in (4, 16)]
    # E[s] = c₄(k) σ, with c₄ = .9213 (k = 4) and .9835 (k = 16); t = 3.182 and 2.131
    expected = [2 * 3.182 * 0.9213 * 0.1 / 2, 2 * 2.131 * 0.9835 * 0.1 / 4]
    assert width == pytest.approx(expected, rel=0.01)


def test_t_interval_of_equal_draws_and_of_half_precision():
    low, high = t_interval(np.full((4, 3), 0.3, np.float16))
    np.testing.assert_allclose(low, np.float16(0.3), rtol=1e-12)
    np.testing.assert_allclose(high, np.float16(0.3), rtol=1e-12)
