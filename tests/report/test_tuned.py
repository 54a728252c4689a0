"""Version 3: every method tuned alike, on records with known accuracies."""

import pandas as pd
import pytest
from records import make_record, write_all
from scipy import stats

from pvera.report import claims, published
from pvera.report.tables import tuned, uncertainty, verdicts

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
                    member["curve"]["validation_accuracy"] = [0.1, 0.2, 0.3, correct / 100 + 0.02 * place]
                records.append(record)
    write_all(tmp_path, records)
    shares = pd.DataFrame({"dataset": DATASETS, "share": 0.1})
    shares.to_csv(tmp_path / "mine/largest_class.csv", index=False)
    return tmp_path


def test_a_task_at_chance_or_saturated_is_left_out_and_named(root):
    assert tuned.left_out(root, "mine") == {"sprites": "chance"}
    assert all("sprites" not in {run["dataset"] for run in runs} for runs in tuned.load(root, "mine").values())
    assert "sprites" not in tuned.all_methods(root, "mine")["tiny"].index.unique("dataset")
    text = tuned.rule_table(root, "mine", "mine").markdown()
    assert (
        "| Sprites | 10.0 | 12.0 | 12.0 | 12.0 | chance |" in text
        and "| Digits | 10.0 | 12.0 | 40.0 | 30.0 | no |" in text
    )
    (root / "mine/largest_class.csv").unlink()
    assert tuned.left_out(root, "mine") == {}


def test_saturated_is_judged_by_the_worst_of_the_three(root, monkeypatch):
    scores = pd.DataFrame({"linear": [96.0, 94.0], "lora": 99.0, "bottleneck": 99.0, "largest class": 10.0}, ["a", "b"])
    monkeypatch.setattr(tuned, "judges", lambda root, profile: scores)
    assert tuned.left_out(root, "mine") == {"a": "saturated"}


def test_edges_of_the_searches_are_counted(root):
    table = tuned.rates(root, "mine", "mine")
    assert table.data.query("searched == 'dropout'")["rate"].tolist() == [1e-3] * 3
    assert not table.data[["lowest", "highest"]].any(axis=None)
    assert "| VeRA, half of its latent dropped | 10⁻³ | 10⁻³ | 10⁻³ | 0 of 3 | 0 of 3 |" in table.markdown()


def test_choosing_by_accuracy_is_said_beside_choosing_by_loss(root):
    runs = tuned.load(root, "mine")
    for run in runs["pvera"]:
        run["members"][2]["curve"]["validation_accuracy"][0] = 0.9
    assert "is +7.5 points where the loss chooses epoch and rate, and +46.0 if" in tuned.by_accuracy(runs, "mine")


def test_claims_about_tuned_methods(root):
    rows = claims.judged(root, "mine", published.load("results/published"), "tuned").set_index("claim")
    more = rows.loc["PVeRA is more accurate than VeRA, both tuned alike"]
    assert more["difference"] == pytest.approx(7.5) and more["scale"] == "2 data sets, 2 seeds"
    dropout = rows.loc["PVeRA is more accurate than VeRA with half of its latent dropped"]
    assert dropout["difference"] == pytest.approx(2)
    assert rows.loc["PVeRA has a lower calibration error (ACE) than VeRA", "difference"] == pytest.approx(2)
    assert "no runs of (IA)³" in rows.loc["PVeRA has the highest average of eight, all tuned alike", "reading"]


def test_data_sets_of_the_same_images_are_one_unit_of_a_sample():
    names = pd.Index(["eurosat", "dsprites_loc", "dsprites_ori", "cifar"], name="dataset")
    gaps = pd.DataFrame({0: [1.0, 4.0, 6.0, 3.0], 1: [1.2, 4.1, 5.9, 2.8]}, names).rename_axis(columns="seed")
    row = verdicts.Claim("Components", "better", lambda data: {"": gaps}).judge(0)
    means = [1.1, 5.0, 2.9]
    low, high = stats.t.interval(0.95, 2, sum(means) / 3, stats.sem(means))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert row["difference"] == pytest.approx(gaps.to_numpy().mean())
    assert row["these_low"] < row["difference"] < row["these_high"]


def test_the_line_of_the_spread_is_scipys():
    tasks = pd.DataFrame({"error": [20.0, 30, 50, 70], "delta": [0.3, 0.1, -0.1, -0.35]}, ["a", "b", "c", "d"])
    line, fit = uncertainty.line(tasks, "delta", [20, 70]), stats.linregress(tasks["error"], tasks["delta"])
    assert line["mean"].tolist() == pytest.approx([fit.intercept + fit.slope * error for error in (20, 70)])
    deviations = tasks["error"] - tasks["error"].mean()
    residuals = tasks["delta"] - fit.intercept - fit.slope * tasks["error"]
    se = ((residuals**2).sum() / 2 * (1 / 4 + deviations.iloc[0] ** 2 / (deviations**2).sum())) ** 0.5
    assert line.loc[0, "high"] - line.loc[0, "mean"] == pytest.approx(stats.t.ppf(0.975, 2) * se)
    assert line["verdict"].tolist() == ["holds", "fails"]
    answer = uncertainty.marks_errors(tasks)
    assert answer.reading == "Cliff's delta +0.27 at 20 % errors, −0.36 at 70 % errors" and answer.verdict == "holds"
