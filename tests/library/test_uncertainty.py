"""Statistics of k draws per image: Algorithm 1 and intervals, by hand and against scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pvera.uncertainty import estimate


@pytest.mark.parametrize(
    "scores, expected",
    [
        ([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0]], 1),  # one vote each, the second class has the higher mean
        ([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]], 0),  # equal means too: the first class wins
        ([[0.4, 0.3, 0.3], [0.0, 0.0, 1.0], [0.4, 0.3, 0.3]], 0),  # votes count more than the mean
    ],
)
def test_ties_of_the_predicted_class(scores, expected):
    estimates = estimate(np.array(scores)[:, None], np.array([0]))
    assert estimates.predicted.tolist() == [expected]


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(1, 5), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_against_scipy_and_a_loop(k, n, classes, seed):
    source = np.random.default_rng(seed)
    scores, labels = source.dirichlet(np.ones(classes), (k, n)), source.integers(classes, size=n)
    estimates = estimate(torch.from_numpy(scores), labels)
    for i in range(n):  # Algorithm 1, line by line
        highest, right = [], []
        for draw in range(k):
            right.append(scores[draw, i].argmax() == labels[i])
            highest.append(scores[draw, i].max())
        assert estimates.sd[i] == pytest.approx(np.std(highest, ddof=1))
        assert estimates.accuracy[i] == pytest.approx(np.mean(right))
        assert estimates.correct[i] == (np.mean(right) > 0.5), "half of the draws is not more than half"
        assert estimates.right[i] == (estimates.predicted[i] == labels[i])
        of_class = scores[:, i, estimates.predicted[i]]
        low, high = stats.t.interval(0.95, k - 1, np.mean(of_class), stats.sem(of_class))
        assert (estimates.low[i], estimates.high[i]) == pytest.approx((low, high))
        votes = np.bincount(scores[:, i].argmax(1), minlength=classes)
        assert votes[estimates.predicted[i]] == votes.max()
