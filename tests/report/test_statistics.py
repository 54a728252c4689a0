"""Statistics against scipy, simulations and cases by hand; verdicts, names and colours."""

import math

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import binom, mannwhitneyu, nct, sem, t, ttest_1samp, ttest_ind

from pvera.adapters import METHODS
from pvera.backbones import NAMES
from pvera.metrics import auroc
from pvera.report.plots import uncertainty
from pvera.report.statistics import (
    LEVEL,
    binomial_p_value,
    effect_of,
    half_width_over_seeds,
    half_width_over_units,
    mean_interval,
    minimum_detectable_effect,
    rank_sum,
)
from pvera.report.text import title
from pvera.report.verdicts import (
    CONTRADICTED,
    EQUIVALENT,
    INCONCLUSIVE,
    SUPPORTED,
    UNTESTABLE,
    Claim,
    Measure,
    judge,
)
from pvera.text_encoders import NAMES as TEXT_ENCODERS
from pvera.uncertainty import t_interval

NAN = np.nan
#: A few values have many ties.
few = st.integers(-3, 3).map(float)
samples = hnp.arrays(np.float64, st.integers(1, 12), elements=few)


# The binomial test


@given(st.data(), st.integers(1, 3000))
def test_binomial_p_value_is_the_lower_tail(data, n):
    correct, reference = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    expected = binom.cdf(correct, n, reference / n)
    assert binomial_p_value(correct, n, reference) == pytest.approx(expected, abs=1e-12)
    # No star for an equal or better method.
    assert binomial_p_value(max(correct, reference), n, reference) >= LEVEL


# Intervals of paired differences


@given(hnp.arrays(np.float64, (2, 4), elements=st.floats(0, 1, width=16)), st.integers(2, 4))
def test_interval_given_other_seeds_agrees_with_scipy(scores, seeds):
    """With one data set it is Student's; with two, Welch's, also where one has fewer seeds."""
    scores[:, 0] += 1
    students = t.ppf(0.975, 3) * scores[0].std(ddof=1) / 2
    assert half_width_over_seeds(scores[:1]) == pytest.approx(students)
    scores[1, seeds:] = NAN
    welch = ttest_ind(scores[0], scores[1, :seeds], equal_var=False).confidence_interval(0.95)
    # Welch's interval is that of the sum, twice the mean.
    assert 2 * half_width_over_seeds(scores) == pytest.approx((welch.high - welch.low) / 2)


def test_the_smallest_effect_decides_and_bonferroni_corrects_its_upper_bound():
    wide, narrow = pd.DataFrame([2.0, 6.0, 10.0]), pd.DataFrame([5.0, 5.1, 4.9])
    effect = effect_of({"wide": wide, "narrow": narrow})
    assert effect.name == "narrow" and effect.mean == pytest.approx(5)
    assert math.isnan(effect.minimum_detectable_effect)
    half = t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert effect.random_tasks[:2] == pytest.approx((5 - half, 5 + half))
    # The lowest lower bound is that of the wide one, the lowest upper bound that of the narrow one.
    stricter = 5 + t.ppf(1 - 0.025 / 2, 2) * 0.1 / np.sqrt(3)
    assert effect.random_tasks.deciding == pytest.approx(
        (6 - t.ppf(0.975, 2) * 4 / np.sqrt(3), stricter)
    )


@pytest.mark.parametrize("over_tasks, over_seeds", [(1.0, 0.3), (0.0, 1.0)])
def test_both_intervals_cover_as_often_as_they_say(over_tasks, over_seeds):
    """Six data sets of three seeds, whether data sets or seeds make the spread."""
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(600):
        tasks = rng.normal(1, over_tasks, (6, 1))
        values = tasks + rng.normal(0, over_seeds, (6, 3))
        effect = effect_of({"": pd.DataFrame(values)})
        random = effect.random_tasks.low <= 1 <= effect.random_tasks.high
        fixed = effect.fixed_tasks.low <= tasks.mean() <= effect.fixed_tasks.high
        covered.append((random, fixed))
    random, fixed = np.mean(covered, axis=0)
    # Where seeds alone make the spread, the bound for luckily equal means makes intervals wider.
    assert 0.925 < random < (0.975 if over_tasks else 0.995)
    assert 0.925 < fixed < 0.985


def test_means_that_agree_by_luck_are_no_surer_than_their_seeds():
    """Six equal means of three seeds each that differ by 1."""
    effect = effect_of({"": pd.DataFrame(np.tile([4.0, 5.0, 6.0], (6, 1)))})
    # Six standard deviations of two degrees of freedom each.
    half = t.ppf(0.975, 12) * 1 / np.sqrt(3 * 6)
    assert effect.random_tasks[:2] == pytest.approx((5 - half, 5 + half))
    assert effect.fixed_tasks[:2] == pytest.approx((5 - half, 5 + half))
    # One seed says nothing of its noise.
    assert half_width_over_units(np.array([[1.0], [3.0]])) == pytest.approx(t.ppf(0.975, 1))
    assert np.isnan(half_width_over_units(np.array([[1.0, 2.0]])))


def test_a_unit_counts_once_however_many_repeats_it_has():
    """And one without any not at all: means 2 and 5."""
    row = mean_interval(pd.DataFrame([[1.0, 3.0], [5.0, NAN], [NAN, NAN]]))
    half = t.ppf(0.975, 1) * np.std([2, 5], ddof=1) / np.sqrt(2)
    assert row == pytest.approx({"mean": 3.5, "low": 3.5 - half, "high": 3.5 + half})


def test_a_minimum_detectable_effect_is_shown_in_80_of_100():
    """The power of a t-test is a tail of the noncentral t distribution."""
    values = np.array([[1.0], [2.0], [4.0], [4.0], [5.0], [8.0]])
    effect = minimum_detectable_effect(values)
    shift = effect / values.std(ddof=1) * np.sqrt(6)
    limit = t.ppf(0.975, 5)
    power = nct.sf(limit, 5, shift) + nct.cdf(-limit, 5, shift)
    assert power == pytest.approx(0.8, abs=1e-6)


def test_a_minimum_detectable_effect_needs_two_units():
    assert np.isnan(minimum_detectable_effect(np.ones((1, 1))))
    assert minimum_detectable_effect(np.ones((3, 1))) == 0


# Ranks


@given(samples, samples)
def test_rank_sum_agrees_with_scipy_and_with_pairs(x, y):
    test = rank_sum(x, y)
    pairs = np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])
    assert test.p_value == mannwhitneyu(x, y, alternative="greater").pvalue
    assert (test.superiority, test.cliffs_delta) == pytest.approx((pairs, 2 * pairs - 1))


def test_auroc_is_the_share_of_pairs_in_order_and_half_of_equal_ones():
    # 0.4 is above 0.1 and equal to 0.4; 0.9 is above both.
    assert auroc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([0, 1, 0, 1])) == (1 + 0.5 + 2) / 4


def test_ranks_without_a_pair_are_nan():
    assert math.isnan(rank_sum([], [1.0]).p_value) and math.isnan(rank_sum([1.0], []).cliffs_delta)
    assert math.isnan(auroc([0.2, 0.3], [True, True]))


# Student's interval of Monte Carlo samples


shapes = st.tuples(st.integers(2, 6), st.integers(1, 4))


@given(hnp.arrays(np.float64, shapes, elements=st.floats(0, 1)))
def test_t_interval_agrees_with_scipy(samples):
    # scipy warns of samples that are all equal.
    samples[0] += 1 + np.arange(samples.shape[1])
    expected = ttest_1samp(samples, 0, axis=0).confidence_interval(0.95)
    np.testing.assert_allclose(t_interval(samples), (expected.low, expected.high), atol=1e-14)


# Verdicts


def judged(differences, names=None, convert=float, **options):
    """Judge a claim on name -> differences (units, seeds); return the row of its CSV file."""
    scores = {}
    for name, rows in differences.items():
        frame = pd.DataFrame(rows, names, dtype=float).rename_axis("seed", axis=1)
        scores[name] = -frame.stack(future_stack=True)
    measure = Measure("{signed} points", convert=convert)
    claim = Claim("It leads", "It", tuple(differences), measure, **options)
    return judge(claim, pd.DataFrame(scores).assign(It=0)).csv_row()


@pytest.mark.parametrize(
    "rows, verdict, reading",
    [
        ([[5, 6], [6, 7], [5, 7]], SUPPORTED, "+6.0 points"),
        ([[-5, -6], [-6, -7], [-5, -7]], CONTRADICTED, "−6.0 points"),
        ([[5, 6], [-6, 1], [5, 7]], INCONCLUSIVE, "+3.0 points"),
        # No spread says nothing of the next data set.
        ([[-0.04], [-0.04]], INCONCLUSIVE, "0.0 points"),
        ([[5]], UNTESTABLE, "too few runs for an interval"),
        ([[NAN, NAN], [NAN, NAN]], UNTESTABLE, "no runs to compare"),
    ],
)
def test_an_interval_over_data_sets_decides(rows, verdict, reading):
    row = judged({"the others": rows})
    scope = "seeds" if verdict == UNTESTABLE else "tasks"
    assert (row[f"{scope}_verdict"], row["reading"]) == (verdict, reading)


def test_the_two_scopes_are_judged_apart():
    """Far ahead on one data set and hardly on the other, with seeds that agree."""
    row = judged({"": [[10.0, 10.2, 9.8], [0.4, 0.5, 0.6]]})
    verdicts = row["seeds_verdict"], row["tasks_verdict"]
    assert (*verdicts, row["scale"]) == (SUPPORTED, INCONCLUSIVE, "2 data sets, 3 seeds")
    # Standard deviations over seeds: 0.2 and 0.1.
    freedom = (0.2**2 + 0.1**2) ** 2 / ((0.2**4 + 0.1**4) / 2)
    half = t.ppf(0.975, freedom) * np.sqrt((0.2**2 + 0.1**2) / 3) / 2
    assert (row["seeds_low"], row["seeds_high"]) == pytest.approx((5.25 - half, 5.25 + half))
    half = t.ppf(0.975, 1) * np.std([10, 0.5], ddof=1) / np.sqrt(2)
    found = row["tasks_low"], row["difference"], row["tasks_high"]
    assert found == pytest.approx((5.25 - half, 5.25, 5.25 + half))


def test_both_scopes_are_those_of_the_named_comparison():
    """Pooled, the two data sets of the same images count as one, and B has the smallest mean."""
    names = pd.Index(["dsprites_loc", "dsprites_ori", "cifar"], name="dataset")
    rows = {"A": [[0, 1], [1, 2], [9, 10]], "B": [[6, 7], [6, 7], [2, 3]]}
    row = judged(rows, names)
    assert row["reading"].startswith("It − A: ")
    # Its units are 1 and 9.5.
    assert (row["tasks_low"] + row["tasks_high"]) / 2 == pytest.approx(5.25)


def test_one_data_set_is_judged_by_its_seeds_alone():
    row = judged({"": [[2.0, 3.0, 4.0]]})
    assert (row["seeds_verdict"], row["tasks_verdict"]) == (SUPPORTED, "")
    assert row["scale"] == "1 data set, 3 seeds"
    assert row["seeds_low"] == pytest.approx(3 - t.ppf(0.975, 2) / np.sqrt(3))
    assert np.isnan(row["tasks_low"])


def test_seeds_are_the_sample_of_a_claim_about_these_data_sets():
    """It pools their images, so it has one row; logarithms read as ratios."""
    row = judged({"": [[3.0, 4.0, 8.0]]}, units="seeds", convert=np.exp)
    low, high = t.interval(0.95, 2, 5, sem([3, 4, 8]))
    found = [row[name] for name in ("seeds_low", "difference", "seeds_high")]
    assert found == pytest.approx(np.exp([low, 5, high]))
    assert (row["seeds_verdict"], row["tasks_verdict"]) == (INCONCLUSIVE, "")
    assert row["scale"] == "3 seeds"


def test_the_minimum_detectable_effect_is_that_of_data_sets():
    differences = [[1.0], [2.0], [4.0], [8.0]]
    row = judged({"": differences}, convert=lambda points: 10 * points)
    expected = 10 * minimum_detectable_effect(np.array(differences))
    assert row["minimum_detectable_effect"] == pytest.approx(expected)


@pytest.mark.parametrize("margin, verdict", [(0.7, INCONCLUSIVE), (0.8, EQUIVALENT)])
def test_two_are_equivalent_where_the_interval_lies_within_the_margin(margin, verdict):
    """The half width of three data sets that differ by 0.3 is 4.30 · 0.3 / √3 = 0.745."""

    def around(mean):
        rows = [[mean - 0.3], [mean], [mean + 0.3]]
        return judged({"": rows}, margin=margin)["tasks_verdict"]

    assert around(0) == verdict
    # One end lies beyond the margin.
    assert around(-0.3) == around(0.3) == INCONCLUSIVE
    assert judged({"": [[0.2], [0.25], [0.3]]}, margin=margin)["tasks_verdict"] == SUPPORTED


def test_a_claim_about_many_differences_needs_all_of_them():
    def judge_all(*means):
        return judged({str(mean): mean + np.array([[-0.5], [0.0], [0.5]]) for mean in means})

    assert judge_all(3, 4, 5)["tasks_verdict"] == SUPPORTED
    assert judge_all(3, 0.2, 5)["tasks_verdict"] == INCONCLUSIVE
    row = judge_all(3, -8, 5)
    assert (row["tasks_verdict"], row["reading"]) == (CONTRADICTED, "It − -8: −8.0 points")
    # Alone, −1.4 contradicts; among 20 comparisons such a difference may be chance.
    assert judge_all(-1.4)["tasks_verdict"] == CONTRADICTED
    assert judge_all(*np.linspace(3, 4, 19), -1.4)["tasks_verdict"] == INCONCLUSIVE


def test_every_backbone_and_encoder_has_a_full_name():
    assert all(title(key) != key for key in (*NAMES, *TEXT_ENCODERS))


def test_colours_of_methods_mean_methods_alone():
    colours = {matplotlib.colors.to_hex(method.colour) for method in METHODS.values()}
    others = uncertainty.CORRECT, uncertainty.INCORRECT
    assert colours.isdisjoint(map(matplotlib.colors.to_hex, others))
