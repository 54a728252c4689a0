"""Rank statistics against counting pairs, scipy and scikit-posthocs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import friedmanchisquare, mannwhitneyu, rankdata, ranksums, wilcoxon

from pvera.errors import InputError
from pvera.report.statistics import friedman, nemenyi_difference, rank_sum, signed_rank
from pvera.selective import auroc

few = st.integers(-3, 3).map(float)  # few values: many ties
samples = hnp.arrays(np.float64, st.integers(1, 12), elements=few)


def pairs(x, y):
    """Return P(x > y) + ½ P(x = y) by counting every pair."""
    return np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])


def test_rank_sum_by_hand():
    # All six pairs in favour; of the C(5, 2) = 10 placements of y among five ranks this is the most extreme
    test = rank_sum([3, 4, 5], [1, 2])
    assert (test.superiority, test.cliffs_delta) == (1, 1)
    assert test.p_value == pytest.approx(1 / 10)
    # Pairs: 2 > 1, 2 = 2, 4 > 1, 4 > 2
    assert rank_sum([2, 4], [1, 2]).superiority == 3.5 / 4


@given(samples, samples, st.sampled_from(["greater", "less", "two-sided"]))
def test_rank_sum_agrees_with_scipy_and_with_pairs(x, y, alternative):
    test = rank_sum(x, y, alternative)
    assert test.p_value == mannwhitneyu(x, y, alternative=alternative).pvalue
    assert test.superiority == pytest.approx(pairs(x, y))


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
def test_auroc_agrees_with_pairs_and_the_rank_sum(case):
    scores, positive = case
    assert auroc(scores, positive) == pytest.approx(pairs(scores[positive], scores[~positive]))
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
    with pytest.raises(InputError, match="uncertaint"):
        auroc(scores, positive)


def test_signed_rank_by_hand():
    # All n positive: one of 2^n signs
    assert signed_rank([0.1, 0.2, 0.5]) == pytest.approx(1 / 8)
    # Ranks 1, 2, 3 of |d|, the smallest negative: sums 6 and 5 of the eight are as large
    assert signed_rank([-0.1, 0.2, 0.5]) == pytest.approx(2 / 8)
    assert signed_rank([-0.1, 0.2, 0.5, 0.0]) == pytest.approx(2 / 8)
    assert signed_rank([0.0, 0.0]) == 1


@pytest.mark.parametrize("n", range(1, 9))
def test_signed_rank_is_never_below_one_in_two_to_the_n(n):
    assert signed_rank(np.arange(1.0, n + 1)) == pytest.approx(2.0**-n)


def test_signed_rank_sees_ties_through_rounding():
    a, b = np.array([71.4, 61.6, 80.0, 70.2]), np.array([71.1, 61.3, 79.8, 70.5])
    assert len(set(np.abs(a - b))) > 2  # .3, .3, .2 and .3, in floating point
    assert signed_rank(a - b) == wilcoxon([3, 3, 2, -3], alternative="greater").pvalue


@settings(max_examples=30)  # scipy goes through all signs
@given(hnp.arrays(np.float64, st.integers(1, 8), elements=st.integers(1, 9).map(float)), st.data())
def test_signed_rank_mirrors(sizes, data):
    signs = data.draw(hnp.arrays(np.float64, len(sizes), elements=st.sampled_from([-1.0, 1.0])))
    differences = sizes * signs
    assert signed_rank(differences) == pytest.approx(signed_rank(-differences, "less"))


@pytest.mark.parametrize("differences", [[], [math.nan], [[1.0]]])
def test_signed_rank_of_bad_input(differences):
    with pytest.raises(InputError, match="signed-rank"):
        signed_rank(differences)


def test_friedman_by_hand():
    """Three methods, four data sets: ranks (1 2 3), (1 3 2), (1.5 1.5 3), (2 1 3)."""
    outcome = friedman([[9, 9, 8, 7], [8, 5, 8, 9], [1, 6, 0, 2]])
    np.testing.assert_allclose(outcome.ranks, [5.5 / 4, 7.5 / 4, 11 / 4])
    # 12 / (n k (k + 1)) Σ R² − 3 n (k + 1) = 3.875, divided by 1 − Σ(t³ − t) / (n k (k² − 1)) = 1 − 6/96
    assert outcome.statistic == pytest.approx(3.875 / (1 - 6 / 96))
    assert outcome.p_value == pytest.approx(math.exp(-outcome.statistic / 2))  # χ² with two degrees of freedom
    assert outcome.critical_difference == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 4)), abs=1e-3)
    assert outcome.cliques == ((0, 1, 2),)


@pytest.mark.parametrize(
    "k, q", [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (10, 3.164)]
)
def test_critical_difference_is_that_of_demsars_table(k, q):
    """Table 5(a) of Demšar (2006), q at 0.05."""
    outcome = friedman(np.arange(float(k))[:, None].repeat(10, 1))
    assert outcome.critical_difference == pytest.approx(q * math.sqrt(k * (k + 1) / 60), abs=2e-3)


def test_critical_difference_is_that_of_scikit_posthocs():
    """Two methods whose ranks differ by the critical difference have the level as p-value
    (posthoc_nemenyi_friedman)."""
    values = [
        [71.2, 80.1, 65.0, 90.2, 55.5, 60.0],
        [70.0, 82.3, 66.1, 91.0, 57.0, 60.0],
        [65.2, 75.0, 60.3, 85.1, 50.9, 58.8],
        [72.0, 83.0, 64.0, 92.4, 58.1, 63.2],
    ]
    p_values = {(0, 1): 0.90813177, (0, 2): 0.22769676, (0, 3): 0.33583741}
    p_values |= {(1, 2): 0.04967617, (1, 3): 0.74577235, (2, 3): 0.00196612}
    outcome = friedman(values)
    for (one, other), p_value in p_values.items():
        difference = abs(outcome.ranks[one] - outcome.ranks[other])
        assert nemenyi_difference(4, 6, p_value) == pytest.approx(difference, rel=1e-6)
    assert outcome.cliques == ((3, 1, 0), (0, 2))  # two pairs are below 0.05


tables = hnp.arrays(np.float64, st.tuples(st.integers(3, 6), st.integers(2, 6)), elements=few)


@given(tables)
def test_friedman_agrees_with_scipy(values):
    outcome = friedman(values)
    np.testing.assert_allclose(outcome.ranks, np.mean([rankdata(-column) for column in values.T], axis=0))
    assert outcome.ranks.sum() == pytest.approx(len(values) * (len(values) + 1) / 2)
    if (values != values[0]).any():
        expected = friedmanchisquare(*values)
        assert (outcome.statistic, outcome.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    else:
        assert (outcome.statistic, outcome.p_value) == (0, 1)


@given(tables)
def test_friedman_depends_on_order_alone(values):
    outcome, other = friedman(values), friedman(np.exp(values) + 100 * np.arange(values.shape[1]))
    np.testing.assert_array_equal(outcome.ranks, other.ranks)
    assert outcome.cliques == other.cliques


@given(tables)
def test_cliques_are_the_maximal_groups(values):
    outcome = friedman(values, level=0.5)  # a small critical difference, so that there are groups of all sizes
    ranks, cliques = outcome.ranks, [set(clique) for clique in outcome.cliques]
    together = {(a, b) for clique in cliques for a in clique for b in clique if a != b}
    for a in range(len(ranks)):
        for b in range(len(ranks)):
            near = a != b and abs(ranks[a] - ranks[b]) < outcome.critical_difference
            assert ((a, b) in together) == near
    assert not any(one < other for one in cliques for other in cliques)
    assert all(len(clique) > 1 for clique in cliques)


def test_friedman_of_two_methods_has_ranks_but_no_p_value():
    outcome = friedman([[1, 2, 3], [0, 1, 9]])
    np.testing.assert_allclose(outcome.ranks, [4 / 3, 5 / 3])
    assert math.isnan(outcome.p_value)
    assert outcome.critical_difference == pytest.approx(1.96 / math.sqrt(3), abs=1e-3)


@pytest.mark.parametrize(
    "values", [[[1, 2, 3]], [1, 2], np.empty((3, 0)), [[1, 2], [math.nan, 3], [1, 1]], np.ones((3, 2, 2))]
)
def test_friedman_of_bad_input(values):
    with pytest.raises(InputError, match="Friedman"):
        friedman(values)
