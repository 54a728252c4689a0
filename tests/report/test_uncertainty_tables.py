"""Tables of draws: cases worked by hand, and against scipy."""

from pathlib import Path

import numpy as np
import pytest
from hand import cells
from records import make_record
from scipy import stats

from pvera.report import published
from pvera.report.analyses import Example, Uncertainty
from pvera.report.plots import uncertainty as plots
from pvera.report.tables import baselines, uncertainty
from pvera.uncertainty import Estimates

RESULTS = Path(__file__).parents[2] / "results"
PAPER = published.load(RESULTS / "published")
DRAWS = {"draws": [4, 16], "truth_draws": 50}


def adapter(dataset="digits", seed=0, right=(1, 1, 0, 0), sd=(0.1, 0.2, 0.3, 0.1)):
    """Make an adapter's draws. All draws are correct on `right` images, none on the others. 16 draws have half the
    spread of 4. An interval is twice as wide as the spread."""
    right, sd = np.array(right, bool), np.array(sd)
    labels = np.zeros(len(sd), int)
    estimates = {
        k: Estimates(labels, sd / part, right.astype(float), 1 - right.astype(int), 1 - sd, 2 * sd / part)
        for k, part in ((4, 1), (16, 2))
    }
    pixels, scores = np.zeros((4, 4, 3), np.uint8), np.full((16, 2), 0.5)
    examples = [Example(dataset, pixels, 0, predicted, scores, 0.4, 0.6) for predicted in (0, 1)]
    return Uncertainty(make_record("pvera", dataset, seed, config=DRAWS), estimates, 1 - sd[::-1], right, examples)


HAND = [
    adapter(),
    adapter(seed=1, sd=(0.1, 0.2, 0.3, 0.4)),
    adapter("vessels", right=(1, 1, 1, 0), sd=(0.4, 0.2, 0.2, 0.1)),
]


def test_spread_by_hand():
    """Digits, four draws: correct .1 .2 .1 .2, incorrect .3 .1 .3 .4. In 16 pairs the incorrect one is higher in
    4 + 0 + 4 + 4 = 12, lower in 2 (.1 < .2, twice) and equal in 2: Cliff's delta is 10 / 16. Seed 0 alone has
    (2 + 0 - 1) / 4, seed 1 alone 4 / 4."""
    table = uncertainty.spread(HAND)
    right, wrong = [0.1, 0.2, 0.1, 0.2], [0.3, 0.1, 0.3, 0.4]
    p = stats.mannwhitneyu(wrong, right, alternative="greater").pvalue
    assert cells(table)["Digits"] == ["50.0", "0.1500", "0.2750", f"{p:.4f}", "+0.62", "+0.25, +1.00"]
    assert cells(table, 1)["Digits"][1:3] == ["0.0750", "0.1375"], "16 draws"
    pooled = table.data[(table.data["group"] == uncertainty.ALL) & (table.data["draws"] == 4)].iloc[0]
    both = stats.mannwhitneyu([*wrong, 0.1], [*right, 0.4, 0.2, 0.2], alternative="greater")
    assert pooled["p_value"] == pytest.approx(both.pvalue)
    assert pooled["cliffs_delta"] == pytest.approx(2 * both.statistic / (5 * 7) - 1)


def test_spreads_are_split_by_half_of_the_draws_and_widths_by_the_predicted_class():
    """Two of five and two of four draws predict the label, more than any other class."""
    image = Estimates(*map(np.array, ([0, 0], [0.1, 0.1], [0.4, 0.5], [0, 0], [0.4, 0.4], [0.2, 0.2])))
    run = Uncertainty(make_record("pvera", config=DRAWS), {5: image}, np.array([0.4, 0.4]), np.array([1, 1]) > 0, [])
    assert uncertainty.spread_of([run], 5)["right"].tolist() == [False, False]
    assert uncertainty.width_of([run], 5)["right"].tolist() == [True, True]


def test_each_score_is_held_against_its_own_predictions():
    """Draws are incorrect on images 2 and 3, one pass on image 0, where its score is the lowest."""
    run = adapter(sd=(0.1, 0.2, 0.3, 0.4))._replace(single_right=np.array([0, 1, 1, 1]) > 0)
    aurocs = uncertainty.detection([run]).set_index(["way", "draws"])["auroc"]
    assert aurocs.to_dict() == dict.fromkeys([(uncertainty.SINGLE, 0), *((way, k) for way in
        (uncertainty.SD, uncertainty.SCORE) for k in (4, 16))], 1.0)  # fmt: skip


def test_noise_of_fixed_size_is_held_against_the_same_tasks_and_seeds():
    """Fixed: the two incorrect images have .3 and .4, the others .1 and .2, so all pairs are in order. Learned, seed 0
    of Digits alone: 2 of 4 pairs are in order and one is equal. Neither Vessels nor seed 1 counts."""
    table = uncertainty.of_fixed_noise(HAND, [adapter(sd=(0.1, 0.2, 0.3, 0.4))])
    assert {name: row[0] for name, row in cells(table).items()} == {"σ learned": "0.625", "σ = 1 fixed": "1.000"}


def test_an_adapter_that_is_always_right(recwarn):
    """No answer is incorrect; every number that needs one is a dash."""
    runs = [adapter(right=(1, 1, 1, 1))]
    assert cells(uncertainty.spread(runs))["Digits"] == ["0.0", "0.1750", "–", "–", "–", "–"]
    assert set(cells(uncertainty.detection_table(runs))["Digits"]) == {"–"}
    assert cells(uncertainty.widths(runs, PAPER))["Here, 4 draws"] == ["0.3500", "–", "–"]
    for figure in (plots.spread, plots.widths, plots.detection):
        figure(runs).canvas.draw()
    assert not recwarn.list


def test_a_way_that_a_data_set_lacks_has_no_mean():
    """Else it would be compared on other data sets, as if a seed of LoRA's ensemble had diverged on one."""
    frame = baselines.load(RESULTS, "mini").frames["scores"].query("not scaled")
    chosen = frame[["method", "source", "way", "dataset"]].eq(["lora", "rivals", "ensemble", "vessels"]).all(axis=1)
    means = baselines.over_tasks(frame.assign(passes=frame["passes"].where(~chosen, 99)), "nll")
    assert means.isna().sum() == 2 and means.notna().any()
