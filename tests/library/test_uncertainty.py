"""Statistics of k draws per image: Algorithm 1 and intervals, by hand and against scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pvera import uncertainty
from pvera.errors import InputError
from pvera.uncertainty import estimate

# Scores of the first of two classes in four draws.
FIRST = {
    "sure": [0.9, 0.9, 0.9, 0.9],
    "torn": [0.6, 0.4, 0.6, 0.4],  # two draws for each class
    "mostly": [0.8, 0.7, 0.4, 0.9],
}


def by_hand(labels):
    first = np.array(list(FIRST.values())).T
    return estimate(np.stack([first, 1 - first], 2), np.array(labels))


def test_algorithm_1_by_hand():
    estimates = by_hand([0, 0, 1])
    # Highest scores: .9 four times; .6 four times; .8, .7, .6, .9 with mean .75 and squares .05 / 3.
    np.testing.assert_allclose(estimates.sd, [0, 0, np.sqrt(0.05 / 3)], atol=1e-12)
    assert estimates.accuracy.tolist() == [1, 0.5, 0.25]
    assert estimates.correct.tolist() == [True, False, False], "half of the draws is not more than half"
    np.testing.assert_allclose(estimates.sd_correct, [0], atol=1e-12)
    np.testing.assert_allclose(estimates.sd_incorrect, [0, np.sqrt(0.05 / 3)], atol=1e-12)


def test_interval_by_hand():
    """Scores of the predicted class: mean .7, deviations .1, 0, -.3, .2, so s² = .14 / 3; t(3) = 3.1824."""
    estimates = by_hand([0, 0, 1])
    assert estimates.predicted.tolist() == [0, 0, 0]
    half = 3.182446 * np.sqrt(0.14 / 3) / 2
    assert (estimates.low[2], estimates.high[2]) == pytest.approx((0.7 - half, 0.7 + half), abs=1e-6)
    assert estimates.width[2] == pytest.approx(2 * half, abs=1e-6) and estimates.width[0] == pytest.approx(0, abs=1e-12)
    assert estimates.right.tolist() == [True, True, False]


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
        assert estimates.correct[i] == (np.mean(right) > 0.5)
        of_class = scores[:, i, estimates.predicted[i]]
        low, high = stats.t.interval(0.95, k - 1, np.mean(of_class), stats.sem(of_class))
        assert (estimates.low[i], estimates.high[i]) == pytest.approx((low, high))
        votes = np.bincount(scores[:, i].argmax(1), minlength=classes)
        assert votes[estimates.predicted[i]] == votes.max()
    assert len(estimates.sd_correct) + len(estimates.sd_incorrect) == n


def test_concatenate():
    whole = by_hand([0, 0, 1])
    scores = np.array(list(FIRST.values())).T
    parts = [
        estimate(np.stack([scores[:, i : i + 1], 1 - scores[:, i : i + 1]], 2), np.array([label]))
        for i, label in enumerate([0, 0, 1])
    ]
    both = uncertainty.concatenate(parts)
    for name in ("labels", "sd", "accuracy", "predicted", "centre", "width"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))


@pytest.mark.parametrize(
    "shape, labels, message",
    [
        ((1, 2, 3), [0, 0], "k = 2 or more"),
        ((4, 2, 3), [0], r"not \(k, n, classes\)"),
        ((4, 2), [0, 0], r"not \(k, n, classes\)"),
        ((4, 0, 3), [], r"not \(k, n, classes\)"),
    ],
)
def test_bad_input(shape, labels, message):
    with pytest.raises(InputError, match=message):
        estimate(np.full(shape, 0.5), np.array(labels))


@pytest.mark.parametrize("compute", [lambda scores: estimate(scores, np.zeros(4, int)), uncertainty.decompose])
def test_logits_are_refused(compute):
    logits = 5 * np.random.default_rng(0).standard_normal((3, 4, 2))
    for scores in (logits, np.full((3, 4, 2), np.nan)):
        with pytest.raises(InputError, match="sum to one"):
            compute(scores)
    compute(np.full((3, 4, 2), 0.5))


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(InputError, match="labels 0 to 2 are not the indices of 2 classes"):
        estimate(np.full((3, 4, 2), 0.5), np.array([0, 1, 2, 0]))
