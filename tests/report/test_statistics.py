"""Statistics against scipy, simulations, and cases by hand; verdicts by intervals, their words, names and colours."""

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
from pvera.report.plots import forests, style, uncertainty
from pvera.report.statistics import (
    LEVEL,
    binomial_p_value,
    half_width_over_seeds,
    half_width_over_units,
    mean_interval,
    minimum_detectable_effect,
    rank_sum,
    weakest_contrast,
)
from pvera.report.table import title
from pvera.report.tables.verdicts import (
    CONTRADICTED,
    EQUIVALENT,
    INCONCLUSIVE,
    SUPPORTED,
    UNTESTABLE,
    Claim,
)
from pvera.text_encoders import NAMES as TEXT_ENCODERS
from pvera.uncertainty import t_interval

few = st.integers(-3, 3).map(float)  # few values: many ties
samples = hnp.arrays(np.float64, st.integers(1, 12), elements=few)


# The binomial test


@given(
    st.integers(1, 3000).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))
    )
)
def test_binomial_p_value_is_the_lower_tail(case):
    n, correct, reference = case
    assert binomial_p_value(correct, n, reference) == pytest.approx(
        binom.cdf(correct, n, reference / n), abs=1e-12
    )
    assert (
        binomial_p_value(max(correct, reference), n, reference) >= LEVEL
    )  # no star for an equal or better method


# Intervals of paired differences


@given(hnp.arrays(np.float64, (2, 4), elements=st.floats(0, 1, width=16)), st.integers(2, 4))
def test_interval_given_other_seeds_agrees_with_scipy(scores, seeds):
    """With one data set it is Student's; with two, Welch's, also where one has fewer seeds."""
    scores[:, 0] += 1
    assert half_width_over_seeds(scores[:1]) == pytest.approx(
        t.ppf(0.975, 3) * scores[0].std(ddof=1) / 2
    )
    scores[1, seeds:] = NAN
    welch = ttest_ind(scores[0], scores[1, :seeds], equal_var=False).confidence_interval(0.95)
    assert 2 * half_width_over_seeds(scores) == pytest.approx(
        (welch.high - welch.low) / 2
    )  # of the sum, so not halved


def test_the_weakest_contrast_decides_and_bonferroni_corrects_its_upper_bound():
    wide, narrow = np.array([[2.0], [6.0], [10.0]]), np.array([[5.0], [5.1], [4.9]])
    effect = weakest_contrast({"wide": wide, "narrow": narrow})
    assert (
        effect.name == "narrow"
        and effect.mean == pytest.approx(5)
        and math.isnan(effect.minimum_detectable_effect)
    )
    half = t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert effect.others[:2] == pytest.approx((5 - half, 5 + half))
    # The lowest lower bound is that of the wide one, the lowest upper bound that of the narrow one.
    stricter = 5 + t.ppf(1 - 0.025 / 2, 2) * 0.1 / np.sqrt(3)
    assert effect.others.bounds == pytest.approx((6 - t.ppf(0.975, 2) * 4 / np.sqrt(3), stricter))


@pytest.mark.parametrize("over_tasks, over_seeds", [(1.0, 0.3), (0.0, 1.0)])
def test_both_intervals_cover_as_often_as_they_say(over_tasks, over_seeds):
    """Six data sets of three seeds, whether data sets or seeds make the spread."""
    rng, hits = np.random.default_rng(1), []
    for _ in range(600):
        tasks = rng.normal(1, over_tasks, (6, 1))
        effect = weakest_contrast({"": tasks + rng.normal(0, over_seeds, (6, 3))})
        others, these = effect.others, effect.these
        hits.append((others.low <= 1 <= others.high, these.low <= tasks.mean() <= these.high))
    of_tasks, of_these = np.mean(hits, axis=0)
    # Where seeds alone make the spread, the bound on the error of luckily equal means makes intervals wider.
    assert 0.925 < of_tasks < (0.975 if over_tasks else 0.995)
    assert 0.925 < of_these < 0.985


def test_means_that_agree_by_luck_are_no_surer_than_their_seeds():
    """Six equal means of three seeds each that differ by 1."""
    effect = weakest_contrast({"": np.tile([4.0, 5.0, 6.0], (6, 1))})
    half = (
        t.ppf(0.975, 12) * 1 / np.sqrt(3 * 6)
    )  # six standard deviations of two degrees of freedom each
    assert effect.others[:2] == pytest.approx((5 - half, 5 + half))
    assert effect.these[:2] == pytest.approx((5 - half, 5 + half))
    assert half_width_over_units(np.array([[1.0], [3.0]])) == pytest.approx(
        t.ppf(0.975, 1)
    )  # one seed says nothing of its noise
    assert np.isnan(half_width_over_units(np.array([[1.0, 2.0]])))


def test_a_unit_counts_once_however_many_repeats_it_has():
    """And one without any not at all: means 2 and 5."""
    row = mean_interval(pd.DataFrame([[1.0, 3.0], [5.0, NAN], [NAN, NAN]]))
    half = t.ppf(0.975, 1) * np.std([2, 5], ddof=1) / np.sqrt(2)
    assert row == pytest.approx({"mean": 3.5, "low": 3.5 - half, "high": 3.5 + half})


def test_a_detectable_difference_is_shown_in_80_of_100():
    """The power of a t-test is a tail of the noncentral t distribution."""
    values = np.array([[1.0], [2.0], [4.0], [4.0], [5.0], [8.0]])
    shift, limit = (
        minimum_detectable_effect(values) / values.std(ddof=1) * np.sqrt(6),
        t.ppf(0.975, 5),
    )
    assert nct.sf(limit, 5, shift) + nct.cdf(-limit, 5, shift) == pytest.approx(0.8, abs=1e-6)
    assert (
        np.isnan(minimum_detectable_effect(np.ones((1, 1))))
        and minimum_detectable_effect(np.ones((3, 1))) == 0
    )


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


# Student's interval of Monte Carlo draws


@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=st.floats(0, 1)
    )
)
def test_t_interval_agrees_with_scipy(samples):
    samples[0] += 1 + np.arange(samples.shape[1])  # scipy warns of draws that are all equal
    expected = ttest_1samp(samples, 0, axis=0).confidence_interval(0.95)
    np.testing.assert_allclose(t_interval(samples), (expected.low, expected.high), atol=1e-14)


# Verdicts


NAN = np.nan


def judged(differences, **options):
    """Judge a claim on name -> differences (units, seeds)."""
    frames = {
        name: pd.DataFrame(rows, dtype=float).rename_axis("seed", axis=1)
        for name, rows in differences.items()
    }
    gaps = {name: frame.stack(future_stack=True) for name, frame in frames.items()}
    return Claim("topic", "It leads", lambda data: data, "{signed} points", **options).judge(gaps)


@pytest.mark.parametrize(
    "rows, verdict, reading",
    [
        ([[5, 6], [6, 7], [5, 7]], SUPPORTED, "the others: +6.0 points"),
        ([[-5, -6], [-6, -7], [-5, -7]], CONTRADICTED, "the others: −6.0 points"),
        ([[5, 6], [-6, 1], [5, 7]], INCONCLUSIVE, "the others: +3.0 points"),
        (
            [[-0.04], [-0.04]],
            INCONCLUSIVE,
            "the others: 0.0 points",
        ),  # no spread says nothing of the next data set
        ([[5]], UNTESTABLE, "fewer than two data sets: no interval"),
        ([[NAN, NAN], [NAN, NAN]], UNTESTABLE, "no runs to compare"),
    ],
)
def test_an_interval_over_data_sets_decides(rows, verdict, reading):
    row = judged({"the others": rows})
    untestable = row["seeds_verdict"] == UNTESTABLE
    assert (UNTESTABLE if untestable else row["tasks_verdict"], row["reading"]) == (
        verdict,
        reading,
    )


def test_the_two_scopes_are_judged_apart():
    """Far ahead on one data set and hardly on the other, with seeds that agree: these tasks decide, others may not."""
    row = judged({"": [[10.0, 10.2, 9.8], [0.4, 0.5, 0.6]]})
    verdicts = row["seeds_verdict"], row["tasks_verdict"]
    assert (*verdicts, row["scale"]) == (SUPPORTED, INCONCLUSIVE, "2 data sets, 3 seeds")
    half = (
        t.ppf(0.975, (0.2**2 + 0.1**2) ** 2 / ((0.2**4 + 0.1**4) / 2))
        * np.sqrt((0.2**2 + 0.1**2) / 3)
        / 2
    )
    assert (row["seeds_low"], row["seeds_high"]) == pytest.approx((5.25 - half, 5.25 + half))
    half = t.ppf(0.975, 1) * np.std([10, 0.5], ddof=1) / np.sqrt(2)
    assert (row["tasks_low"], row["difference"], row["tasks_high"]) == pytest.approx(
        (5.25 - half, 5.25, 5.25 + half)
    )


def test_one_data_set_is_judged_by_its_seeds_alone():
    row = judged({"": [[2.0, 3.0, 4.0]]})
    assert (row["seeds_verdict"], row["tasks_verdict"], row["scale"]) == (
        SUPPORTED,
        None,
        "1 data set, 3 seeds",
    )
    assert row["seeds_low"] == pytest.approx(3 - t.ppf(0.975, 2) / np.sqrt(3)) and np.isnan(
        row["tasks_low"]
    )


def test_seeds_are_the_sample_of_a_claim_about_these_data_sets():
    """Means over two data sets are 3, 4 and 8; logarithms read as ratios."""
    row = judged({"": [[2.0, 3.0, 7.0], [4.0, 5.0, 9.0]]}, units="seeds", convert=np.exp)
    low, high = t.interval(0.95, 2, 5, sem([3, 4, 8]))
    found = [row[name] for name in ("seeds_low", "difference", "seeds_high")]
    assert found == pytest.approx(np.exp([low, 5, high]))
    assert (row["seeds_verdict"], row["tasks_verdict"], row["scale"]) == (
        INCONCLUSIVE,
        None,
        "3 seeds",
    )


def test_what_minimum_detectable_effect_is_that_of_data_sets():
    gaps = [[1.0], [2.0], [4.0], [8.0]]
    row = judged({"": gaps}, convert=lambda gap: 10 * gap)
    assert row["minimum_detectable_effect"] == pytest.approx(
        10 * minimum_detectable_effect(np.array(gaps))
    )


@pytest.mark.parametrize("margin, verdict", [(0.7, INCONCLUSIVE), (0.8, EQUIVALENT)])
def test_two_are_equal_where_the_interval_lies_within_the_margin(margin, verdict):
    """Three data sets, −0.3, 0.0 and 0.3: half a width of 4.30 · 0.3 / √3 = 0.745."""
    assert judged({"": [[-0.3], [0.0], [0.3]]}, margin=margin)["tasks_verdict"] == verdict
    for apart in (-0.3, 0.3):  # one end lies beyond the margin
        assert (
            judged({"": [[apart - 0.3], [apart], [apart + 0.3]]}, margin=margin)["tasks_verdict"]
            == INCONCLUSIVE
        )
    assert judged({"": [[0.2], [0.25], [0.3]]}, margin=margin)["tasks_verdict"] == SUPPORTED


def test_a_claim_about_many_differences_needs_all_of_them():
    def judge(*gaps):
        return judged({str(gap): gap + np.array([[-0.5], [0.0], [0.5]]) for gap in gaps})

    assert (
        judge(3, 4, 5)["tasks_verdict"] == SUPPORTED
        and judge(3, 0.2, 5)["tasks_verdict"] == INCONCLUSIVE
    )
    row = judge(3, -8, 5)
    assert (row["tasks_verdict"], row["reading"]) == (CONTRADICTED, "-8: −8.0 points")
    # Alone, -1.4 fails; among 20 comparisons such a gap may be chance.
    assert judge(-1.4)["tasks_verdict"] == CONTRADICTED
    assert judge(*np.linspace(3, 4, 19), -1.4)["tasks_verdict"] == INCONCLUSIVE


def test_every_backbone_and_encoder_has_a_full_name():
    assert all(title(key) != key for key in (*NAMES, *TEXT_ENCODERS))


def test_a_switch_has_the_colour_of_its_method():
    assert (
        forests.look("shuffle").colour == "black"
        and forests.look("vera_init").colour == style("vera").colour
    )


def test_colours_of_methods_mean_methods_alone():
    colours = {matplotlib.colors.to_hex(style(name).colour) for name in METHODS}
    others = uncertainty.CORRECT, uncertainty.INCORRECT
    assert colours.isdisjoint(map(matplotlib.colors.to_hex, others))
