"""Metrics against hand-worked cases, other libraries, and properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pvera import metrics

METRICS = (metrics.ece, metrics.ace, metrics.nll, metrics.brier)


def random_predictions(seed, n=500, classes=7, sharpness=3.0):
    rng = np.random.default_rng(seed)
    scores = np.exp(sharpness * rng.standard_normal((n, classes)))
    return scores / scores.sum(1, keepdims=True), rng.integers(classes, size=n)


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
    assert metrics.brier(probabilities, labels) == pytest.approx(2 * (0.1**2 + 0.8**2 + 0.4**2 + 0.6**2) / 4)


def test_ties_share_their_answers_over_the_bins_they_span():
    same = np.full((4, 2), [0.75, 0.25])
    # Two of four are correct, whatever the order: 2 |.5 - .75| in each of two bins
    for labels in ([0, 0, 1, 1], [0, 1, 0, 1]):
        assert metrics.ace(same, np.array(labels), bins=2) == pytest.approx(0.25)
    # Ranks {.6, .75} and {.75, .75}, one of the three .75 right: |1 + 1/3 - 1.35| + |2/3 - 1.5|
    mixed = np.array([[0.75, 0.25], [0.6, 0.4], [0.75, 0.25], [0.75, 0.25]])
    assert metrics.ace(mixed, np.array([1, 0, 0, 1]), bins=2) == pytest.approx((0.05 / 3 + 2.5 / 3) / 4)


def test_reliability_by_hand():
    confidence, correct = metrics.top_label(*HAND)
    for bins, adaptive, count, accuracy, mean in (
        (4, False, [0, 0, 2, 2], [np.nan, np.nan, 0.5, 0.5], [np.nan, np.nan, 0.6, 0.85]),
        (3, True, [2, 1, 1], [0.5, 0, 1], [0.6, 0.8, 0.9]),
    ):
        reliability = metrics.reliability(confidence, correct, bins, adaptive)
        np.testing.assert_array_equal(reliability.count, count)
        np.testing.assert_allclose(reliability.accuracy, accuracy)
        np.testing.assert_allclose(reliability.confidence, mean)


def test_bin_edges_belong_to_the_upper_bin():
    probabilities = np.array([[0.5, 0.5, 0.0], [0.49, 0.49, 0.02]])  # the first right, the second wrong
    # Apart: (.5 + .49) / 2. In one bin: |1 - .99| / 2
    assert metrics.ece(probabilities, np.array([0, 2]), bins=2) == pytest.approx(0.99 / 2)


def test_nll_of_the_impossible_is_finite():
    assert metrics.nll(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(-np.log(np.finfo(np.float64).eps))


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
        assert metric(probabilities[order], labels[order]) == pytest.approx(metric(probabilities, labels))


def test_evaluate_and_half_precision():
    probabilities, labels = random_predictions(1)
    values = metrics.evaluate(probabilities, labels)
    assert values["images"] == 500 and values["bins"] == 15
    assert values["correct"] / 500 == values["accuracy"]
    for metric in METRICS:
        assert values[metric.__name__] == metric(probabilities, labels)
        # Metrics of the stored half-precision predictions
        assert metric(probabilities.astype(np.float16), labels.astype(np.int16)) == pytest.approx(
            values[metric.__name__], abs=2e-3
        )


# The errors of a calibrated model


@pytest.mark.parametrize("rounding", [3, 1])  # of confidences, for ties across the edges of equal-mass bins
def test_a_calibrated_model_has_its_floor(rounding):
    """Errors of labels drawn by this test, from `reliability`, have the same mean and spread as the floor's."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, 400).round(rounding)
    errors = metrics.calibrated_errors(confidence, draws=1000)
    for name, adaptive in (("ece", False), ("ace", True)):
        drawn = [metrics.reliability(confidence, rng.random(400) < confidence, adaptive=adaptive).error
                 for _ in range(1000)]  # fmt: skip
        assert errors[name].mean() == pytest.approx(np.mean(drawn), rel=0.04)
        assert errors[name].std() == pytest.approx(np.std(drawn), rel=0.12)
