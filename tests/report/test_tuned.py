"""Version 3, every method tuned alike, and tables of draws: records with known numbers, by hand and against scipy."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import cells
from records import make_record
from scipy import stats

from pvera.report import claims, published
from pvera.report.analyses import Example, Uncertainty
from pvera.report.plots import uncertainty as plots
from pvera.report.tables import tuned, uncertainty, verdicts
from pvera.study import results
from pvera.uncertainty import Estimates

RATES = {"learning_rate": [1e-2, 1e-3, 1e-4]}
#: Correct images of 100 with seed 0; seed k has k more.
CORRECT = {"linear": 12, "lora": 40, "bottleneck": 30}
DATASETS = ("digits", "vessels", "sprites")


@pytest.fixture
def root(tmp_path):
    """Three tasks; on Sprites nothing is learned, and on Vessels PVeRA gains twice as much as on Digits."""
    records = []
    for dataset, gain in zip(DATASETS, (5, 10, 50), strict=True):
        for experiment, method, correct in (
            *(("tuned", name, 12 if dataset == "sprites" else n) for name, n in CORRECT.items()),
            ("tuned", "vera", 40),
            ("tuned", "pvera", 40 + gain),
            ("tuned_dropout", "vera", 38 + gain),
            *((f"tuned_{name}", "pvera", 40 + gain) for name in ("no_noise", "sigma_1", "no_kl")),
        ):
            for seed in (0, 1):
                record = make_record(method, dataset, seed, correct + seed, 100, 1, RATES, experiment=experiment)
                record["test"]["ace"] = 0.1 if method == "vera" else 0.08
                for place, member in enumerate(record["members"]):
                    best = correct / 100 + 0.02 * place  # in the chosen epoch
                    member["curve"]["validation_accuracy"] = [0.1, 0.2, 0.3, best, 0]
                records.append(record)
    for record in records:
        predictions = (np.zeros((100, 10)), np.arange(100) % 10) if record["method"] == "linear" else ()
        results.write(results.path_of(tmp_path, record), record, *predictions)
    return tmp_path


def test_a_task_at_chance_or_saturated_is_left_out_and_named(root):
    assert tuned.left_out(root, "mine") == {"sprites": "chance"}
    assert all("sprites" not in {run["dataset"] for run in runs} for runs in tuned.load(root, "mine").values())
    text = tuned.rule_table(root, "mine").markdown()
    assert (
        "| Sprites | 10.0 | 12.0 | 12.0 | 12.0 | chance |" in text
        and "| Digits | 10.0 | 12.0 | 40.0 | 30.0 | no |" in text
    )
    for predictions in root.glob("mine/tuned/*/*/linear/*.npz"):
        predictions.unlink()
    assert tuned.left_out(root, "mine") == {}


def test_differences(root):
    text = tuned.differences(tuned.load(root, "mine")).markdown()
    for row in (
        "| PVeRA − VeRA | +5.0 | +10.0 | +7.5 [7.5, 7.5] |",
        "| VeRA, half of its latent dropped − VeRA | +3.0 | +8.0 | +5.5 [5.5, 5.5] |",
        "| PVeRA − LoRA | +5.0 | +10.0 | +7.5 [7.5, 7.5] |",
    ):
        assert row in text


def test_saturated_is_judged_by_the_worst_of_the_three(root, monkeypatch):
    """Linear has 12 % on all three; nothing is saturated where the worst is as high as the limit."""
    for limit, others in ((12, {}), (11, {"digits": "saturated", "vessels": "saturated"})):
        monkeypatch.setattr(tuned, "SATURATED", limit)
        assert tuned.left_out(root, "mine") == {"sprites": "chance"} | others


def test_edges_of_the_searches_are_counted(root):
    table = tuned.choices(root, "mine")
    assert table.data.query("searched == 'VeRA with dropout'")["chosen"].tolist() == [1e-3] * 3
    assert not table.data[["lowest", "highest"]].any(axis=None)
    assert "| VeRA, half of its latent dropped | 10⁻³ | 10⁻³ | 10⁻³ | 0 of 3 | 0 of 3 |" in table.markdown()


def test_choosing_by_accuracy_is_said_beside_choosing_by_loss(root):
    runs = tuned.load(root, "mine")
    for run in runs["pvera"]:
        run["members"][2]["curve"]["validation_accuracy"][0] = 0.9
    assert "is +7.5 points where the loss chooses epoch and rate, and +46.0 if" in tuned.by_accuracy(runs, "mine")


def test_each_set_of_tasks_is_screened_on_its_own(monkeypatch):
    """Digits of the first set and Vessels of the second are left out. Seeds err in 50 and 25 %."""
    sets = {"one": "digits", "two": "vessels"}
    predicted = ([0, 0, 1, 1], [0, 0, 0, 1])
    shared = dict.fromkeys(("accuracy", "centre", "width"), np.zeros((1, 4)))
    shared |= {"labels": np.zeros(4, int), "draws": np.array([tuned.DRAWS])}
    shared |= {"sd": np.array([[0.1, 0.3, 0.2, 0.4]])}
    arrays = [shared | {"predicted": np.array([classes])} for classes in predicted]
    runs = [(make_record(dataset=name), each) for name in sets.values() for each in arrays]
    monkeypatch.setattr(tuned, "sets", lambda profile: list(sets))
    monkeypatch.setattr(tuned, "left_out", lambda root, name: {sets[name]: "chance"})
    monkeypatch.setattr(tuned.analyses, "load_analyses", lambda *_: runs)
    tasks = tuned.draws_by_task("", "one")
    assert list(zip(tasks["set"], tasks.index)) == [("one", "vessels"), ("two", "digits")]
    assert tasks["error"].tolist() == [37.5] * 2
    # Of four pairs, three are in order; of three, all: deltas of .5 and 1.
    assert tasks["delta"].tolist() == pytest.approx([0.75] * 2)


def test_claims_about_tuned_methods(root):
    rows = claims.judged(root, "mine", "tuned").set_index("claim")
    more = rows.loc["PVeRA is more accurate than VeRA"]
    assert more["difference"] == pytest.approx(7.5) and more["scale"] == "2 data sets, 2 seeds"
    dropout = rows.loc["PVeRA is more accurate than VeRA with half of its latent dropped"]
    assert dropout["difference"] == pytest.approx(2)
    assert rows.loc["PVeRA is better calibrated than VeRA", "difference"] == pytest.approx(2)
    assert "no runs of (IA)³" in rows.loc["PVeRA has the highest average", "reading"]


def test_data_sets_of_the_same_images_are_one_unit_of_a_sample():
    names = pd.Index(["eurosat", "dsprites_loc", "dsprites_ori", "cifar"], name="dataset")
    gaps = pd.DataFrame({0: [1.0, 4.0, 6.0, 3.0], 1: [1.2, 4.1, 5.9, 2.8]}, names).rename_axis(columns="seed")
    row = verdicts.Claim("Tuned alike", "better", lambda data: {"": gaps.stack()}).judge(0)
    means = [1.1, 5.0, 2.9]
    low, high = stats.t.interval(0.95, 2, sum(means) / 3, stats.sem(means))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert row["difference"] == pytest.approx(gaps.to_numpy().mean())
    assert row["these_low"] < row["difference"] < row["these_high"]


def test_the_line_of_the_spread_is_scipys():
    tasks = pd.DataFrame({"error": [20.0, 30, 50, 70], "delta": [0.3, 0.1, -0.1, -0.35]}, ["a", "b", "c", "d"])
    line, fit = uncertainty.line(tasks, [20, 70]), stats.linregress(tasks["error"], tasks["delta"])
    assert line["mean"].tolist() == pytest.approx([fit.intercept + fit.slope * error for error in (20, 70)])
    deviations = tasks["error"] - tasks["error"].mean()
    residuals = tasks["delta"] - fit.intercept - fit.slope * tasks["error"]
    se = ((residuals**2).sum() / 2 * (1 / 4 + deviations.iloc[0] ** 2 / (deviations**2).sum())) ** 0.5
    assert line.loc[0, "high"] - line.loc[0, "mean"] == pytest.approx(stats.t.ppf(0.975, 2) * se)
    assert line["verdict"].tolist() == ["holds", "fails"]
    # Two tasks of the same images are one point, here the second.
    parted = pd.DataFrame({"error": [25.0, 35], "delta": [0.0, 0.2]}, ["clevr_count", "clevr_dist"])
    pd.testing.assert_frame_equal(uncertainty.line(pd.concat([tasks.drop("b"), parted]), [20, 70]), line)
    answer = uncertainty.marks_errors(tasks)
    (*_, auroc, _) = cells(uncertainty.at_both_ends(tasks))["Lowest error rate"]
    assert auroc.startswith("0.63 [")  # (1 + .268) / 2
    assert answer.reading == "Cliff's delta +0.27 at 20 % errors, −0.36 at 70 % errors" and answer.verdict == "holds"


# Tables of draws


PAPER = published.load(Path(__file__).parents[2] / "results" / "published")
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


#: Seed 0: means of .3 .1 .1 by those of .1 .2 .4 .2 .2, times two; seed 1: .35 by .15.
WIDER = [np.log(0.5 / 3 / 0.22), np.log(0.35 / 0.15)]


@pytest.mark.parametrize(
    "contrast, expected",
    [
        (uncertainty.deltas(uncertainty.spread_of, 4), [0.25, 1, -1]),
        # Pooled with Vessels, seed 0 has 4 of 15 pairs in order, and 1 + 4 + 4 in the other.
        (uncertainty.deltas(uncertainty.spread_of, 4, pooled=True), [-5 / 15, 1]),
        (uncertainty.times_as_wide(4), WIDER),
        # One pass has the draws' scores from the last image to the first: .375, 0 and 1.
        (uncertainty.gain(4), [0.625 - 0.375, 1, -1]),
    ],
)
def test_contrasts_of_draws_by_hand(contrast, expected):
    (gaps,) = contrast(HAND).values()
    assert gaps.tolist() == pytest.approx(expected)


def test_means_of_draws_by_hand():
    """AUROC by the spread: .625 and 1 on Digits, 0 on Vessels. Widths: 2 · 1.4 / 7 and 2 · 1.2 / 5."""
    table = cells(uncertainty.detection_table(HAND))
    assert table["Mean over 2 data sets"][0] == "0.406" and table["Digits"][0] == "0.812"
    assert cells(uncertainty.widths(HAND, PAPER))["Here, 4 draws"] == ["0.4000", "0.4800", "1.20"]


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
