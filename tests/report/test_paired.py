"""Intervals of paired differences: coverage in simulations, and cases worked by hand."""

import numpy as np
import pytest
from scipy.stats import t

from pvera.errors import InputError
from pvera.report.statistics import (
    averages,
    cluster_interval,
    detectable,
    percentile_interval,
    resample,
    smallest,
    standard_error,
)

NAN = np.nan


def test_interval_of_one_contrast_is_students_over_the_means_of_data_sets():
    effect = smallest({"VeRA": np.array([[1.0, 3.0], [4.0, 4.0], [6.0, 6.0]])})
    half = t.ppf(0.975, 2) * 2 / np.sqrt(3)  # means 2, 4 and 6 have the standard deviation 2
    assert (effect.low, effect.mean, effect.high) == pytest.approx((4 - half, 4, 4 + half))
    assert (effect.name, effect.units, effect.repeats) == ("VeRA", 3, 2)
    assert effect.bootstrap_low < 4 < effect.bootstrap_high


def test_the_smallest_contrast_decides_and_bonferroni_corrects_its_upper_bound():
    wide, narrow = np.array([[2.0], [6.0], [10.0]]), np.array([[5.0], [5.1], [4.9]])
    effect = smallest({"wide": wide, "narrow": narrow})
    assert effect.name == "narrow" and effect.mean == pytest.approx(5)
    # The lowest lower bound is that of the wide one, the lowest upper bound that of the narrow one.
    assert effect.low == pytest.approx(6 - t.ppf(0.975, 2) * 4 / np.sqrt(3))
    assert effect.high == pytest.approx(5 + t.ppf(1 - 0.025 / 2, 2) * 0.1 / np.sqrt(3))


def test_missing_pairs_leave_a_data_set_its_other_seeds():
    effect = smallest({"": np.array([[1.0, NAN], [NAN, NAN], [3.0, 5.0]])})
    assert effect.mean == 2.5 and (effect.units, effect.repeats) == (2, 2)
    single = smallest({"": np.array([[1.0, 2.0]])})
    assert single.mean == 1.5 and np.isnan([single.low, single.high, single.detectable, single.bootstrap_low]).all()
    with pytest.raises(InputError, match="no pair of runs for VeRA"):
        smallest({"VeRA": np.full((2, 2), NAN)})
    with pytest.raises(InputError, match="needs a contrast"):
        smallest({})


def simulated(rng, tasks, seeds, over_tasks, over_seeds, mean=1.0):
    """Paired differences (tasks, seeds) with normal spread of both kinds."""
    return mean + rng.normal(0, over_tasks, (tasks, 1)) + rng.normal(0, over_seeds, (tasks, seeds))


@pytest.mark.parametrize("over_tasks, over_seeds", [(1.0, 0.3), (0.0, 1.0)])
def test_both_intervals_cover_as_often_as_they_say(over_tasks, over_seeds):
    """Six data sets of three seeds, whether data sets or seeds make the spread; percentiles as they come cover in 86 of
    100 cases."""
    rng, hits = np.random.default_rng(1), []
    for _ in range(600):
        effect = smallest({"": simulated(rng, 6, 3, over_tasks, over_seeds)})
        hits.append((effect.low <= 1 <= effect.high, effect.bootstrap_low <= 1 <= effect.bootstrap_high))
    students, bootstraps = np.mean(hits, axis=0)
    # Where seeds alone make the spread, the bound on the error of luckily equal means makes intervals wider.
    assert 0.925 < students < (0.975 if over_tasks else 0.995)
    assert 0.92 < bootstraps < (0.98 if over_tasks else 0.995)


def test_means_that_agree_by_luck_are_no_surer_than_their_seeds():
    """Six equal means of three seeds each that differ by 1."""
    differences = np.tile([4.0, 5.0, 6.0], (6, 1))
    effect = smallest({"": differences})
    half = t.ppf(0.975, 5) * 1 / np.sqrt(3 * 6)
    assert (effect.low, effect.high) == pytest.approx((5 - half, 5 + half))
    assert standard_error(differences) == pytest.approx(1 / np.sqrt(18))
    assert standard_error(np.array([[1.0], [3.0]])) == 1  # one seed says nothing of its noise
    assert np.isnan(standard_error(np.array([[1.0, 2.0]])))


def test_two_contrasts_have_no_single_difference_that_could_be_shown():
    one = np.array([[1.0], [2.0], [4.0]])
    assert smallest({"one": one}).detectable > 0 and np.isnan(smallest({"one": one, "other": one + 1}).detectable)


@pytest.mark.parametrize("over_tasks, over_seeds", [(0.1, 0.03), (0.0, 0.1)])
def test_resampled_leads_of_two_methods_cover_as_often_as_they_say(over_tasks, over_seeds):
    rng, hits = np.random.default_rng(2), []
    for _ in range(400):
        one = rng.uniform(0, 1, (1, 6)) + rng.normal(0, over_seeds, (3, 6))
        other = one + simulated(rng, 6, 3, over_tasks, over_seeds, 0.2).T
        scores = np.stack([one, other])
        drawn, means = averages(resample(scores, rng, 1000)), averages(scores)
        low, high = percentile_interval(drawn[:, 1] - drawn[:, 0], means[1] - means[0], 6)
        hits.append(low <= 0.2 <= high)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.033)


def test_the_interval_of_the_smallest_covers_the_smallest():
    """Three leads, two of them equally small: the smallest true lead is 1."""
    rng, hits = np.random.default_rng(3), []
    for _ in range(400):
        effect = smallest({str(lead): simulated(rng, 6, 3, 1.0, 0.3, lead) for lead in (1.0, 1.00001, 1.5)})
        hits.append((effect.low <= 1, effect.high >= 1))
    below, above = np.mean(hits, axis=0)
    assert below > 0.955 and above > 0.955  # each side may miss in 2.5 of 100, with an error of 0.8


def test_a_detectable_difference_is_shown_in_80_of_100():
    rng, values = np.random.default_rng(4), np.array([[1.0], [2.0], [4.0], [4.0], [5.0], [8.0]])
    true = detectable(values) / values.std(ddof=1)
    shown = [smallest({"": simulated(rng, 6, 1, 1.0, 0.0, true)}).low > 0 for _ in range(500)]
    assert np.mean(shown) == pytest.approx(0.8, abs=0.055)
    assert np.isnan(detectable(np.ones((1, 1)))) and detectable(np.ones((3, 1))) == 0


# Test images


def clustered(rng, regions, images, spread):
    """Differences of images (regions × images) in {-1, 0, 1} whose rate differs by region, and their units."""
    rate = np.clip(0.1 + rng.normal(0, spread, regions), -1, 1)
    p = np.stack([(1 - rate) / 2, (1 + rate) / 2])[:, :, None]
    return np.where(rng.random((regions, images)) < p[1], 1, -1).ravel(), np.repeat(np.arange(regions), images)


def test_regions_are_drawn_whole():
    """Twelve regions of 40 images: images taken as independent cover the mean in about half of the cases."""
    rng, hits = np.random.default_rng(5), []
    for _ in range(400):
        differences, units = clustered(rng, 12, 40, 0.3)
        intervals = cluster_interval(differences, units, count=1000), cluster_interval(differences, count=1000)
        hits.append([low <= 0.1 <= high for low, high in intervals])
    of_regions, of_images = np.mean(hits, axis=0)
    assert of_regions == pytest.approx(0.95, abs=0.035)
    assert of_images < 0.75


def test_independent_images_have_the_interval_of_their_mean():
    differences = np.random.default_rng(6).integers(-3, 4, 5000) / 3
    low, high = cluster_interval(differences)
    half = 1.96 * differences.std(ddof=1) / np.sqrt(5000)
    assert (low, high) == pytest.approx((differences.mean() - half, differences.mean() + half), abs=half / 20)
    assert cluster_interval(differences, np.arange(5000)) == (low, high)
    shuffled = np.random.default_rng(7).permutation(5000)
    assert cluster_interval(differences[shuffled], shuffled) == pytest.approx((low, high))


def test_units_of_unequal_size_weigh_by_their_images():
    """Two units, one of three images that all gain and one of one that loses: the mean is that over the images."""
    low, high = cluster_interval([1.0, 1.0, 1.0, -1.0], ["a", "a", "a", "b"])
    assert low < 0.5 < high
    assert np.isnan(cluster_interval([1.0, 0.0], [3, 3])).all()  # one region has no spread


@pytest.mark.parametrize(
    "differences, units, message",
    [([[1.0]], None, r"\(n,\) and \(n,\)"), ([1.0, 2.0], [1], r"\(n,\) and \(n,\)"), ([NAN], None, "NaN")],
)
def test_bad_input(differences, units, message):
    with pytest.raises(InputError, match=message):
        cluster_interval(differences, units)
