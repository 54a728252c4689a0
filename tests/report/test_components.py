"""Components, task screening, claims and samples, of records with known numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import cells
from records import make_record, predictions, result_files
from scipy import stats
from sklearn.metrics import roc_auc_score

from pvera.errors import InputError
from pvera.report import claims, contrasts, paper_numbers, verdicts
from pvera.report.analysis_results import Example, SampledAdapter
from pvera.report.plots import forests
from pvera.report.plots import uncertainty as plots
from pvera.report.settings import ResultFiles
from pvera.report.tables import components, screening, tuning, uncertainty
from pvera.study import results
from pvera.study.profiles import Profile
from pvera.uncertainty import Estimates

TEN_CLASSES = predictions(np.zeros((100, 10)), np.arange(100) % 10)
RATES = {"learning_rate": [1e-2, 1e-3, 1e-4]}
#: Correct images of 100 with seed 0; seed k has k more.
CORRECT = {"linear": 12, "lora": 40, "bottleneck": 30}
DATASETS = ("digits", "vessels", "sprites")


@pytest.fixture
def root(tmp_path):
    """On Sprites nothing is learned; on Vessels PVeRA gains twice as much as on Digits."""
    records = []
    for dataset, gain in zip(DATASETS, (5, 10, 50), strict=True):
        runs = [("benchmark", "vera", 40), ("latent_dropout", "vera", 38 + gain)]
        for name, correct in CORRECT.items():
            runs.append(("benchmark", name, 12 if dataset == "sprites" else correct))
        for name in ("benchmark", "no_noise", "fixed_sigma", "no_kl"):
            runs.append((name, "pvera", 40 + gain))
        for experiment, method, correct in runs:
            for seed in (0, 1):
                record = make_record(
                    method, dataset, seed, correct + seed, 100, 1, RATES, experiment=experiment
                )
                record["test"]["ace"] = 0.1 if method == "vera" else 0.08
                records.append(record)
    for record in records:
        arrays = TEN_CLASSES if record["method"] == "linear" else None
        results.write(results.path_of(tmp_path, record), record, arrays)
    return tmp_path


def load(root):
    """Return the components of the one setting."""
    (runs,) = components.read_components(result_files(root)).values()
    return runs


def left_out(root):
    scores = screening.screen_datasets(root, results.load_runs(root, "mine", "benchmark"))
    return scores["left out"][lambda reasons: reasons != ""].to_dict()


def test_a_data_set_at_chance_or_saturated_is_left_out_and_named(root):
    assert left_out(root) == {"sprites": "chance"}
    assert all(
        "sprites" not in {run["dataset"] for run in runs} for runs in load(root).runs.values()
    )
    scores = screening.screen_datasets(root, results.load_runs(root, "mine", "benchmark"))
    text = screening.screening_table(scores).markdown()
    assert "| Sprites | 10.0 | 12.0 | 12.0 | 12.0 | chance |" in text
    assert "| Digits | 10.0 | 12.0 | 40.0 | 30.0 | no |" in text
    for kept in root.glob("mine/benchmark/*/*/linear/*.npz"):
        kept.unlink()
    assert left_out(root) == {}


def test_the_screening_of_one_profile_leaves_another_alone(root, tmp_path_factory):
    """Sprites is at chance in one profile and learned in the other."""
    for record in results.load_runs(root, "mine", "benchmark"):
        better = record | {"profile": "other", "test": record["test"] | {"accuracy": 0.5}}
        results.write(results.path_of(root, better), better, TEN_CLASSES)
    mine, other = components.read_components(result_files(root, "mine", "other")).values()
    assert "sprites" not in {run["dataset"] for run in mine.runs["pvera"]}
    assert "sprites" in {run["dataset"] for run in other.runs["pvera"]}


def test_saturated_is_judged_by_the_worst_of_the_three(root, monkeypatch):
    """Linear has 12 % everywhere; nothing is saturated where the worst is just at the limit."""
    for limit, others in ((12, {}), (11, {"digits": "saturated", "vessels": "saturated"})):
        monkeypatch.setattr(screening, "SATURATED", limit)
        assert left_out(root) == {"sprites": "chance"} | others

    # Whether one is saturated is known without labels.
    for kept in root.glob("mine/benchmark/*/*/linear/*.npz"):
        kept.unlink()
    assert left_out(root) == dict.fromkeys(DATASETS, "saturated")


def test_differences(root):
    text = components.differences_table(load(root)).markdown()
    for row in (
        "| PVeRA − VeRA | +5.0 | +10.0 | +7.5 [7.5, 7.5] |",
        "| VeRA, latent dropout (p = 0.5) − VeRA | +3.0 | +8.0 | +5.5 [5.5, 5.5] |",
        "| PVeRA − LoRA | +5.0 | +10.0 | +7.5 [7.5, 7.5] |",
    ):
        assert row in text


def test_equal_accuracies_differ_by_zero():
    """VeRA and PVeRA, and nothing else, agree in every run."""
    runs = {name: [make_record(name)] for name in ("vera", "pvera")}
    equal = components.Components(runs, {"vera": "VeRA", "pvera": "PVeRA"})
    assert cells(components.differences_table(equal)) == {"PVeRA − VeRA": ["0.0", "0.0 –"]}
    figure = forests.draw_contrasts({"mine": components.contrast_frames(equal)})
    assert [ax.get_title() for ax in figure.axes] == ["PVeRA − VeRA"]


@pytest.mark.parametrize("number, last", [(3, [0, 1, 2]), (6, [2, 3, 4, 5])])
def test_contrasts_of_several_settings_may_leave_a_row_unfilled(number, last):
    """Each column has its label below the last panel that it shows."""
    frame = pd.DataFrame({"mean": [1.0, 1.0]}, ["digits", components.MEAN])
    frames = {f"contrast {i}": frame for i in range(number)}
    figure = forests.draw_contrasts({"first": frames, "second": frames})
    figure.canvas.draw()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown[:number]] == list(frames)
    labelled = [i for i, ax in enumerate(shown[number:]) if ax.get_xlabel()]
    assert len(shown) == 2 * number and labelled == last


def test_edges_of_the_searches_are_counted(root):
    table = tuning.choices_table(load(root), {})
    assert (
        table.data.query("searched == 'VeRA, latent dropout (p = 0.5)'")["chosen"].tolist()
        == [1e-3] * 2
    )
    assert not table.data[["lowest", "highest"]].any(axis=None)
    assert (
        "| VeRA, latent dropout (p = 0.5) | 0.001 | 0.001 | 0 of 2 | 0 of 2 |" in table.markdown()
    )


def test_a_benchmark_that_searches_no_rate_has_no_choice_of_one():
    runs = {"lora": [make_record("lora")], "vera": [make_record("vera")]}
    loaded = components.Components(runs, {"lora": "LoRA", "vera": "VeRA"})
    assert tuning.choices_table(loaded, {}).data["searched"].tolist() == ["VeRA"]


def test_claims_about_components(root):
    rows = pd.concat(
        table.data
        for notebook in ("components", "calibration")
        for table in claims.claim_tables(result_files(root), notebook).values()
    ).set_index("claim")
    more = rows.loc["PVeRA is more accurate than VeRA"]
    assert more["difference"] == pytest.approx(7.5) and more["scale"] == "2 data sets, 2 seeds"
    dropout = rows.loc["PVeRA is more accurate than VeRA with latent dropout"]
    assert dropout["difference"] == pytest.approx(2)
    assert rows.loc["PVeRA is better calibrated than VeRA", "difference"] == pytest.approx(2)
    assert "no runs of (IA)³" in rows.loc["PVeRA has the highest average", "reading"]


def test_the_page_of_claims_loads_each_result_once(root, monkeypatch):
    """Accuracy and calibration are claims about the same runs."""
    loads = []
    read = ResultFiles.read
    monkeypatch.setattr(
        ResultFiles,
        "read",
        lambda files, experiment, *rest, **options: (
            loads.append((experiment, options.get("text")))
            or read(files, experiment, *rest, **options)
        ),
    )
    page = claims.overview(result_files(root), ["mine"]).markdown()
    assert "PVeRA is better calibrated than VeRA" in page
    assert loads and len(set(loads)) == len(loads)


def test_equal_and_the_papers_tuning_rank_by_average(root):
    """The paper's tuning has the methods in the reverse order."""
    runs = results.load_runs(root, "mine", "benchmark")
    reverse = [
        run | {"test": run["test"] | {"accuracy": 1 - run["test"]["accuracy"]}} for run in runs
    ]
    data = tuning.tunings_table(runs, reverse).data.set_index("method")
    assert data["Equal tuning Rank"].tolist() == [5, 4, 3, 2, 1]
    assert data["The paper's tuning Rank"].tolist() == [1, 2, 3, 4, 5]

    # A data set of one tuning alone does not count.
    more = [run | {"dataset": "dmlab"} for run in reverse]
    again = tuning.tunings_table([*runs, *more], reverse).data.set_index("method")
    pd.testing.assert_frame_equal(again, data)


def test_data_sets_of_the_same_images_are_one_unit_of_a_sample():
    names = pd.Index(["eurosat", "dsprites_loc", "dsprites_ori", "cifar"], name="dataset")
    gaps = pd.DataFrame({0: [1.0, 4.0, 6.0, 3.0], 1: [1.2, 4.1, 5.9, 2.8]}, names).rename_axis(
        columns="seed"
    )
    claim = verdicts.Claim("better", "pvera", ("vera",))
    row = verdicts.judge(claim, pd.DataFrame({"pvera": gaps.stack(), "vera": 0})).csv_row()
    means = [1.1, 5.0, 2.9]
    low, high = stats.t.interval(0.95, 2, sum(means) / 3, stats.sem(means))
    assert (row["tasks_low"], row["tasks_high"]) == pytest.approx((low, high))
    assert row["difference"] == pytest.approx(gaps.to_numpy().mean())
    assert row["seeds_low"] < row["difference"] < row["seeds_high"]


def test_the_notes_on_claims_tell_which_have_a_margin_or_several_comparisons():
    every = [claim for topic in claims.TOPICS.values() for claim in topic.claims]
    keys = ("pvera_over_dropout", "learned_sigma", "kl")
    named = [contrasts.CONTRASTS[key].claim for key in keys]
    assert {claim.text: claim.margin for claim in every if claim.margin} == dict.fromkeys(named, 1)
    assert max(len(claim.others) for claim in every) + 1 == 8
    assert (
        "within ±1 point" in claims.OVERVIEW_NOTES and "highest of eight" in claims.OVERVIEW_NOTES
    )


def test_a_claim_about_models_is_not_tested_on_random_tasks():
    claim = verdicts.Claim("better", "pvera", ("vera",), units="models")
    row = verdicts.judge(claim, pd.DataFrame({"pvera": [1.0]})).csv_row()
    assert (row["seeds_verdict"], row["tasks_verdict"]) == ("", verdicts.UNTESTABLE)


# Tables of samples


PAPER = paper_numbers.load_paper(Path(__file__).parents[2] / "results" / "published")
DRAWS = {"draws": [4, 16], "truth_draws": 50}


def adapter(dataset="digits", seed=0, right=(1, 1, 0, 0), sd=(0.1, 0.2, 0.3, 0.1)):
    """Make an adapter whose samples are all correct on `right` images, none on the others.

    16 samples have half the standard deviation of 4, and intervals are twice as wide as it.
    """
    right, sd = np.array(right, bool), np.array(sd)
    estimates = {}
    for k, part in ((4, 1), (16, 2)):
        estimates[k] = Estimates(
            labels=np.zeros(len(sd), int),
            sd=sd / part,
            accuracy=right.astype(float),
            predicted=1 - right.astype(int),
            centre=1 - sd,
            width=2 * sd / part,
        )
    pixels, scores = np.zeros((4, 4, 3), np.uint8), np.full((16, 2), 0.5)
    examples = [Example(dataset, pixels, 0, predicted, scores, 0.4, 0.6) for predicted in (0, 1)]
    record = make_record("pvera", dataset, seed, config=DRAWS)
    return SampledAdapter(record, estimates, 1 - sd[::-1], right, examples)


HAND = [
    adapter(),
    adapter(seed=1, sd=(0.1, 0.2, 0.3, 0.4)),
    adapter("vessels", right=(1, 1, 1, 0), sd=(0.4, 0.2, 0.2, 0.1)),
]


def test_spread_by_hand():
    """Digits, four samples: correct .1 .2 .1 .2, incorrect .3 .1 .3 .4.

    In 16 pairs the incorrect one is higher in 4 + 0 + 4 + 4 = 12, lower in 2 (.1 < .2, twice) and
    equal in 2: Cliff's delta is 10 / 16. Seed 0 alone has (2 + 0 - 1) / 4, seed 1 alone 4 / 4.
    """
    table = uncertainty.predictive_sds_table(HAND)
    right, wrong = [0.1, 0.2, 0.1, 0.2], [0.3, 0.1, 0.3, 0.4]
    p = stats.mannwhitneyu(wrong, right, alternative="greater").pvalue
    assert cells(table)["Digits"] == [
        "50.0",
        "0.1500",
        "0.2750",
        f"{p:.4f}",
        "+0.62",
        "+0.25, +1.00",
    ]
    assert cells(table, 1)["Digits"][1:3] == ["0.0750", "0.1375"], "16 samples"
    pooled = table.data.query("group == @uncertainty.ALL and draws == 4").iloc[0]
    both = stats.mannwhitneyu([*wrong, 0.1], [*right, 0.4, 0.2, 0.2], alternative="greater")
    assert pooled["p_value"] == pytest.approx(both.pvalue)
    assert pooled["cliffs_delta"] == pytest.approx(2 * both.statistic / (5 * 7) - 1)


#: Seed 0: means of .3 .1 .1 by those of .1 .2 .4 .2 .2, times two; seed 1: .35 by .15.
WIDER = [np.log(0.5 / 3 / 0.22), np.log(0.35 / 0.15)]


def test_contrasts_of_samples_by_hand():
    """One pass has the samples' scores from the last image to the first: .375, 0 and 1."""
    widths = uncertainty.log_mean_widths(HAND)
    assert (widths["incorrect"] - widths["correct"]).tolist() == pytest.approx(WIDER)
    assert uncertainty.error_detection(HAND)["single"].tolist() == [0.375, 0, 1]


def test_means_of_samples_by_hand():
    """AUROC: .625 and 1 on Digits, 0 on Vessels. Widths: 2 · 1.4 / 7 and 2 · 1.2 / 5."""
    assert uncertainty.error_detection(HAND)["sd"].tolist() == [0.625, 1, 0]
    assert cells(uncertainty.interval_widths_table(HAND, PAPER))["Here, 4 samples"] == [
        "0.4000",
        "0.4800",
        "1.20",
    ]


def test_standard_deviations_are_split_by_most_samples_and_widths_by_the_predicted_class():
    """Two of five and two of four draws predict the label, more than any other class."""
    images = Estimates(
        labels=np.array([0, 0]),
        sd=np.array([0.1, 0.1]),
        accuracy=np.array([0.4, 0.5]),
        predicted=np.array([0, 0]),
        centre=np.array([0.4, 0.4]),
        width=np.array([0.2, 0.2]),
    )
    run = SampledAdapter(make_record(), {5: images}, np.array([0.4, 0.4]), np.array([1, 1]) > 0, [])
    assert uncertainty.predictive_sds([run])["correct"].tolist() == [False, False]
    assert uncertainty.interval_widths([run])["correct"].tolist() == [True, True]


def test_each_predictor_is_judged_on_its_own_predictions():
    """Samples are incorrect on images 2 and 3, one pass on image 0, where its score is lowest."""
    run = adapter(sd=(0.1, 0.2, 0.3, 0.4))._replace(single_correct=np.array([0, 1, 1, 1]) > 0)
    (row,) = uncertainty.error_detection([run]).to_dict("records")
    assert (row["error"], row["sd"], row["single"]) == (50, 1, 1)


def sampled(dataset, seed, sd, wrong):
    """Return an adapter with 16 samples."""
    wrong = np.array(wrong, bool)
    return adapter(dataset, seed, right=~wrong, sd=2 * np.array(sd))


def test_each_task_has_its_own_answer_with_an_interval_over_seeds():
    """On Digits the errors have the higher values with some seeds, on Vessels the lower ones."""
    source = np.random.default_rng(0)
    wrong = [0, 0, 0, 0, 0, 0, 1, 1]
    values = [source.permutation(8) / 8 for _ in range(3)]
    digits = [sampled("digits", seed, sd, wrong) for seed, sd in enumerate(values)]
    vessels = [sampled("vessels", seed, [0.4, 0.3, 0.2, 0.1], [0, 0, 1, 1]) for seed in (0, 1)]
    tasks = uncertainty.auroc_by_dataset([*vessels, *digits])
    assert tasks.index.tolist() == ["digits", "vessels"] and tasks["error"].tolist() == [25, 50]
    aurocs = [roc_auc_score(wrong, sd) for sd in values]
    low, high = stats.t.interval(0.95, 2, np.mean(aurocs), stats.sem(aurocs))
    assert tasks.loc["digits", ["mean", "low", "high"]].tolist() == pytest.approx(
        [np.mean(aurocs), low, high]
    )
    assert tasks.loc["vessels", "mean"] == 0
    notes = uncertainty.auroc_by_dataset_table(tasks).notes
    assert "Of 2 data sets 0 have an interval above 0.5, and 1 below." in notes


def test_predictors_are_averaged_over_seeds_on_the_data_sets_that_all_have():
    def analysed(dataset, predictors, nll):
        scores = {
            name: np.full(len(predictors), 0.5)
            for name in ("accuracy", "ece", "auroc", "auroc_spread")
        }
        seeds = np.arange(len(predictors))
        arrays = {
            "predictor": np.array(predictors),
            "seed": seeds,
            "passes": np.full(len(predictors), 3),
        } | scores
        return make_record("pvera", dataset), arrays | {"nll": np.array(nll)}

    of_benchmark = [
        analysed(
            "digits", ["pass", "samples", "pass", "samples", "ensemble"], [1.0, 2.0, 3.0, 4.0, 0.5]
        ),
        analysed("vessels", ["pass", "samples", "ensemble"], [10.0, 20.0, 30.0]),
    ]
    scores = uncertainty.score_predictors(
        {
            "benchmark": of_benchmark,
            "latent_dropout": [analysed("digits", ["pass", "samples"], [7.0, 8.0])],
        }
    )
    assert scores.loc[("PVeRA, one pass with the mean", "digits"), "nll"] == 2
    assert scores.loc[("VeRA, 3 samples of latent dropout", "digits"), "nll"] == 8
    shown = cells(uncertainty.predictors_table(scores))
    assert [row[1] for row in shown.values()] == [
        "<ins>2.000</ins>",
        "3.000",
        "8.000",
        "**0.500**",
    ], "Digits alone"
    with pytest.raises(InputError, match="no data set on which every"):
        uncertainty.predictors_table(
            uncertainty.score_predictors(
                {
                    "benchmark": [analysed("digits", ["pass"], [1.0])],
                    "latent_dropout": [analysed("vessels", ["samples"], [2.0])],
                }
            )
        )


def test_an_adapter_that_is_always_right(recwarn):
    """No answer is incorrect; every number that needs one is a dash."""
    runs = [adapter(right=(1, 1, 1, 1))]
    assert cells(uncertainty.predictive_sds_table(runs))["Digits"] == [
        "0.0",
        "0.1750",
        "–",
        "–",
        "–",
        "–",
    ]
    assert cells(uncertainty.interval_widths_table(runs, PAPER))["Here, 4 samples"] == [
        "0.3500",
        "–",
        "–",
    ]
    for figure, values in (
        (plots.draw_predictive_sds, uncertainty.predictive_sds),
        (plots.draw_interval_widths, uncertainty.interval_widths),
    ):
        images = values(runs)
        figure(images, uncertainty.compare_correct_and_incorrect(images)).canvas.draw()
    assert uncertainty.error_detection(runs)[["sd", "single"]].isna().all(axis=None)
    assert not recwarn.list


def test_titles_are_those_of_the_profile(tmp_path):
    """Every committed profile has a variant for each contrast."""
    folder = Path(__file__).resolve().parents[2] / "experiments/profiles"
    for name in ("synthetic", "vtab_tiny", "vtab_small"):
        profile = Profile.read(folder / f"{name}.yaml")
        titles = components.component_titles(profile)
        assert list(titles)[-1] == "pvera" and titles["no_kl"] == "PVeRA, σ learned, β = 0"
        for contrast in contrasts.CONTRASTS.values():
            assert {contrast.first, contrast.second} <= set(titles)
        assert components.trained_method(profile, "latent_dropout") == "vera"
