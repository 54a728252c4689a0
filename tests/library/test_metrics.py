"""Metrics, and statistics of draws: by hand and against other libraries."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from pvera import metrics, uncertainty

METRICS = (metrics.ece, metrics.ace, metrics.nll, metrics.brier)


@st.composite
def predictions(draw):
    n, classes = draw(st.integers(1, 40)), draw(st.integers(2, 5))
    positive = st.integers(0, 8)  # few distinct values give many ties, and exact zeros and ones
    scores = draw(hnp.arrays(np.float64, (n, classes), elements=positive))
    scores[:, 0] += scores.sum(1) == 0
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    return scores / scores.sum(1, keepdims=True), labels


# Four images, confidences .9 (right), .8 (wrong), .6 (right), .6 (wrong)
HAND = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6]]), np.array([0, 1, 0, 0])


def test_by_hand():
    probabilities, labels = HAND
    assert metrics.evaluate(probabilities, labels)["accuracy"] == 0.5
    # Bins [0, .5) and [.5, 1]: all four lie in the second: |2 - 2.9| / 4
    assert metrics.ece(probabilities, labels, bins=2) == pytest.approx(0.9 / 4)
    # Bins [.6, .8) holds two .6 (one right), [.8, 1] one .8 and one .9 (one right)
    assert metrics.ece(probabilities, labels, bins=5) == pytest.approx((0.2 + 0.7) / 4)
    # Ranks {.6, .6} and {.8, .9}
    assert metrics.ace(probabilities, labels, bins=2) == pytest.approx((0.2 + 0.7) / 4)
    # Three bins: array_split gives sizes 2, 1, 1: {.6, .6}, {.8 wrong}, {.9 right}
    assert metrics.ace(probabilities, labels, bins=3) == pytest.approx((0.2 + 0.8 + 0.1) / 4)
    assert metrics.nll(probabilities, labels) == pytest.approx(-np.log([0.9, 0.2, 0.6, 0.4]).mean())
    assert metrics.brier(probabilities, labels) == pytest.approx(
        2 * (0.1**2 + 0.8**2 + 0.4**2 + 0.6**2) / 4
    )


def test_ties_share_their_answers_over_the_bins_they_span():
    same = np.full((4, 2), [0.75, 0.25])
    # Two of four are correct, whatever the order: 2 |.5 - .75| in each of two bins
    for labels in ([0, 0, 1, 1], [0, 1, 0, 1]):
        assert metrics.ace(same, np.array(labels), bins=2) == pytest.approx(0.25)
    # Ranks {.6, .75} and {.75, .75}, one of the three .75 right: |1 + 1/3 - 1.35| + |2/3 - 1.5|
    mixed = np.array([[0.75, 0.25], [0.6, 0.4], [0.75, 0.25], [0.75, 0.25]])
    assert metrics.ace(mixed, np.array([1, 0, 0, 1]), bins=2) == pytest.approx(
        (0.05 / 3 + 2.5 / 3) / 4
    )


def test_bin_edges_belong_to_the_upper_bin():
    probabilities = np.array(
        [[0.5, 0.5, 0.0], [0.49, 0.49, 0.02]]
    )  # the first right, the second wrong
    # Apart: (.5 + .49) / 2. In one bin: |1 - .99| / 2
    assert metrics.ece(probabilities, np.array([0, 2]), bins=2) == pytest.approx(0.99 / 2)


def test_nll_of_the_impossible_is_finite():
    assert metrics.nll(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(
        -np.log(np.finfo(np.float64).eps)
    )


@settings(max_examples=200, deadline=None)
@given(predictions(), st.integers(1, 20))
def test_properties(case, bins):
    probabilities, labels = case
    accuracy, confidence = metrics.evaluate(*case)["accuracy"], probabilities.max(1).mean()
    gap = abs(accuracy - confidence)
    for error in (metrics.ece, metrics.ace):
        # Splitting bins can only uncover errors that cancel; one bin is the overall gap
        assert gap - 1e-12 <= error(probabilities, labels, bins) <= 1
        assert error(probabilities, labels, 1) == pytest.approx(gap)
    assert 0 <= metrics.brier(probabilities, labels) <= 2
    order = np.random.default_rng(0).permutation(len(labels))
    for metric in METRICS:
        assert metric(probabilities[order], labels[order]) == pytest.approx(
            metric(probabilities, labels)
        )


def test_stored_predictions_in_half_precision():
    rng = np.random.default_rng(1)
    scores = np.exp(3 * rng.standard_normal((500, 7)))
    probabilities, labels = scores / scores.sum(1, keepdims=True), rng.integers(7, size=500)
    half = probabilities.astype(np.float16)
    for metric in METRICS:
        stored = metric(half, labels.astype(np.int16))
        assert stored == metric(
            half.astype(np.float64), labels
        )  # sums are not rounded to half precision
        assert stored == pytest.approx(metric(probabilities, labels), abs=2e-3)


# How an uncertainty ranks errors


def test_auroc_by_hand():
    # The wrong ones, 0.4 and 0.2, against the right ones, 0.1 and 0.2: above, above, above, equal.
    assert metrics.auroc(np.array([0.1, 0.4, 0.2, 0.2]), np.array([0, 1, 0, 1])) == pytest.approx(
        3.5 / 4
    )
    for alike in (np.zeros(3), np.ones(3)):
        assert np.isnan(metrics.auroc(np.arange(3), alike)), "there is no pair"


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60))
def test_auroc_is_the_share_of_pairs_in_order(sample):
    uncertainty, wrong = (np.array(part) for part in zip(*sample))
    pairs = uncertainty[wrong][:, None] - uncertainty[~wrong]
    expected = ((pairs > 0) + (pairs == 0) / 2).mean() if pairs.size else np.nan
    assert metrics.auroc(uncertainty, wrong) == pytest.approx(expected, nan_ok=True)


# Statistics of draws


@pytest.mark.parametrize(
    "scores, expected",
    [
        (
            [[0.6, 0.4, 0.0], [0.1, 0.9, 0.0]],
            1,
        ),  # one vote each, the second class has the higher mean
        ([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]], 0),  # equal means too: the first class wins
        ([[0.4, 0.3, 0.3], [0.0, 0.0, 1.0], [0.4, 0.3, 0.3]], 0),  # votes count more than the mean
    ],
)
def test_ties_of_the_predicted_class(scores, expected):
    estimates = uncertainty.estimate(np.array(scores)[:, None], np.array([0]))
    assert estimates.predicted.tolist() == [expected]


def test_estimates_of_a_tensor_that_numpy_cannot_read():
    scores = torch.tensor([[[0.75, 0.25]], [[0.5, 0.5]]])
    expected = uncertainty.estimate(scores.numpy(), np.array([0]))
    learned = scores.bfloat16().requires_grad_()  # as on a GPU, asarray() refuses it
    assert uncertainty.estimate(learned, np.array([0])) == expected


@given(st.integers(2, 9), st.integers(1, 5), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_against_scipy_and_a_loop(k, n, classes, seed):
    source = np.random.default_rng(seed)
    scores, labels = source.dirichlet(np.ones(classes), (k, n)), source.integers(classes, size=n)
    estimates = uncertainty.estimate(torch.from_numpy(scores), labels)
    for i in range(n):  # Algorithm 1, line by line
        highest, right = [], []
        for draw in range(k):
            right.append(scores[draw, i].argmax() == labels[i])
            highest.append(scores[draw, i].max())
        assert estimates.sd[i] == pytest.approx(np.std(highest, ddof=1))
        assert estimates.accuracy[i] == pytest.approx(np.mean(right))
        assert estimates.most_are_correct[i] == (np.mean(right) > 0.5), (
            "half of the draws is not more than half"
        )
        assert estimates.predicts_label[i] == (estimates.predicted[i] == labels[i])
        of_class = scores[:, i, estimates.predicted[i]]
        low, high = stats.t.interval(0.95, k - 1, np.mean(of_class), stats.sem(of_class))
        assert (estimates.centre[i], estimates.width[i]) == pytest.approx(
            ((low + high) / 2, high - low)
        )
        votes = np.bincount(scores[:, i].argmax(1), minlength=classes)
        assert votes[estimates.predicted[i]] == votes.max()
