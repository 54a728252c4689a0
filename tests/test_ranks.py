"""Rank statistics against counting pairs, scipy and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import mannwhitneyu, ranksums
from sklearn.metrics import roc_auc_score

from pvera.errors import InputError
from pvera.statistics import auroc, rank_sum

few = st.integers(-3, 3).map(float)  # few values: many ties
samples = hnp.arrays(np.float64, st.integers(1, 12), elements=few)


def pairs(x, y):
    """P(x > y) + ½ P(x = y) by looking at every pair."""
    return np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])


def test_rank_sum_by_hand():
    # All six pairs in favour; of the C(5, 2) = 10 placements of y among five ranks this is the most extreme
    found = rank_sum([3, 4, 5], [1, 2])
    assert (found.superiority, found.cliffs_delta) == (1, 1)
    assert found.p_value == pytest.approx(1 / 10)
    # Pairs: 2 > 1, 2 = 2, 4 > 1, 4 > 2
    assert rank_sum([2, 4], [1, 2]).superiority == 3.5 / 4


@given(samples, samples, st.sampled_from(["greater", "less", "two-sided"]))
def test_rank_sum_agrees_with_scipy_and_with_pairs(x, y, alternative):
    found = rank_sum(x, y, alternative)
    assert found.p_value == mannwhitneyu(x, y, alternative=alternative).pvalue
    assert found.superiority == pytest.approx(pairs(x, y))


def test_rank_sum_is_wilcoxons():
    """scipy's rank-sum test has no correction for continuity, which large samples do not need."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.05, 1, 4000), rng.normal(0, 1, 5000)
    assert rank_sum(x, y).p_value == pytest.approx(ranksums(x, y, "greater").pvalue, rel=1e-3)


@given(samples, samples)
def test_rank_sum_mirrors(x, y):
    one, other = rank_sum(x, y), rank_sum(y, x, "less")
    assert one.p_value == pytest.approx(other.p_value)
    assert one.superiority + other.superiority == pytest.approx(1)
    assert one.cliffs_delta == pytest.approx(-other.cliffs_delta)


def test_rank_sum_of_equal_samples_finds_nothing():
    assert rank_sum([1.0] * 20, [1.0] * 30).p_value == 1


@pytest.mark.parametrize("x, y", [([], [1.0]), ([1.0], []), ([math.nan], [1.0]), (np.ones((2, 2)), [1.0])])
def test_rank_sum_of_bad_input(x, y):
    with pytest.raises(InputError, match="without NaN"):
        rank_sum(x, y)


def test_rank_sum_of_unknown_alternative():
    with pytest.raises(InputError, match="more"):
        rank_sum([1.0], [2.0], "more")


def test_auroc_by_hand():
    # Positives 2 and 4, negatives 1 and 2: 2 > 1, 2 = 2, 4 > 1, 4 > 2
    assert auroc([1, 2, 2, 4], [False, True, False, True]) == 3.5 / 4
    assert auroc([0.1, 0.9], [False, True]) == 1
    assert auroc([0.1, 0.9], [True, False]) == 0


@st.composite
def scored(draw):
    scores = draw(hnp.arrays(np.float64, st.integers(2, 30), elements=few))
    positive = draw(hnp.arrays(bool, len(scores)))
    positive[0], positive[-1] = True, False
    return scores, positive


@given(scored())
def test_auroc_agrees_with_scikit_learn_and_the_rank_sum(case):
    scores, positive = case
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert auroc(scores, positive) == pytest.approx(rank_sum(scores[positive], scores[~positive]).superiority)


@given(scored())
def test_auroc_depends_on_order_alone(case):
    scores, positive = case
    for transform in (lambda x: 3 * x - 7, np.exp, np.arctan, lambda x: x**3):
        assert auroc(transform(scores), positive) == auroc(scores, positive)
    assert auroc(-scores, positive) == pytest.approx(1 - auroc(scores, positive))
    assert auroc(scores, ~positive) == pytest.approx(1 - auroc(scores, positive))


@given(samples, st.booleans())
def test_auroc_of_one_class_is_nan(scores, value):
    assert math.isnan(auroc(scores, np.full(len(scores), value)))


@pytest.mark.parametrize(
    "scores, positive",
    [([], []), ([math.nan, 1.0], [True, False]), ([1.0, 2.0], [True]), ([1.0, 2.0], [2, 0]), (1.0, True)],
)
def test_auroc_of_bad_input(scores, positive):
    with pytest.raises(InputError, match="AUROC"):
        auroc(scores, positive)
