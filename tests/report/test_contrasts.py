"""The statistics behind claims and tables, on small frames with numbers by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import cells, parsed
from records import make_record, predictions, result_files, write_all
from scipy import stats
from test_tables_by_hand import TEST

from pvera.report import claims, contrasts, paper_numbers, verdicts
from pvera.report.contrasts import Untestable
from pvera.report.scores import largest_class, score_frame
from pvera.report.settings import ResultFiles
from pvera.report.statistics import effect_of, mean_intervals
from pvera.report.tables import (
    ablations,
    components,
    language,
    latents,
    protocol,
)
from pvera.report.tables import calibration as calibration_tables
from pvera.report.tables import out_of_distribution as ood
from pvera.study import results
from pvera.study.profiles import Profile

NAN = np.nan
PAPER = paper_numbers.load_paper(Path(__file__).parents[2] / "results" / "published")


def rows_of(*keys):
    return pd.MultiIndex.from_tuples(keys, names=["category", "dataset", "seed"])


#: Two data sets of two seeds each.
ROWS = rows_of(
    ("natural", "cifar", 0),
    ("natural", "cifar", 1),
    ("structured", "kitti", 0),
    ("structured", "kitti", 1),
)
SCORES = pd.DataFrame(
    {
        "vera": [70.0, 74, 40, 44],
        "pvera": [70.0, 72, 60, 66],
    },
    ROWS,
)


def test_paired_differences_have_a_row_per_data_set_and_a_column_per_seed():
    differences = contrasts.paired_differences(SCORES, "pvera", "vera")
    assert differences.to_numpy().tolist() == [[0, -2], [20, 22]]


# Scores


def test_scores_stand_by_category_in_the_papers_order_and_methods_in_theirs():
    """One's own data sets come last, by name."""
    names = {"kitti": "structured", "zebra": "own", "svhn": "natural", "ant": "own"}
    names["cifar"] = "natural"
    runs = [
        make_record(method, seed=seed) | {"dataset": name, "category": category}
        for method in ("pvera", "linear")
        for name, category in names.items()
        for seed in (1, 0)
    ]
    scores = score_frame(runs)
    assert list(scores) == ["linear", "pvera"]
    rows = [(name, seed) for name in ("cifar", "svhn", "kitti", "ant", "zebra") for seed in (0, 1)]
    assert list(scores.droplevel("category").index) == rows


# Statistics


def test_intervals_over_data_sets_are_of_their_means():
    """Seeds differ by less than data sets do, and rows stand in any order."""
    rows = rows_of(*(("own", name, seed) for name in "zyx" for seed in (0, 1)))
    values = pd.DataFrame({"a": [1.0, 1.2, 5.0, 5.2, 3.0, 3.2]}, rows)
    found = mean_intervals(values.droplevel("category").iloc[::-1]).loc["a"]
    low, high = stats.t.interval(0.95, 2, 3.1, stats.sem([1.1, 5.1, 3.1]))
    assert found.to_dict() == pytest.approx({"mean": 3.1, "low": low, "high": high})


def test_a_unit_without_a_pair_does_not_count():
    effect = effect_of({"": pd.DataFrame([[1.0, 3.0, NAN], [NAN, NAN, NAN], [5.0, NAN, NAN]])})
    assert (effect.mean, effect.units, effect.seeds) == (3.5, 2, 2)


def test_the_largest_class_is_counted_on_the_labels_of_a_run_that_did_not_diverge(tmp_path):
    runs = [make_record("vera", chosen=None), make_record("pvera")]
    for path, record in zip(write_all(tmp_path, runs), runs):
        if record["test"]:
            results.write(
                path, record, predictions(np.full((5, 3), 1 / 3), np.array([2, 0, 2, 1, 2]))
            )
    assert largest_class(tmp_path, runs) == {"digits": 0.6}


# Calibration


@pytest.mark.parametrize("vera", ["lacks", "diverged"])
def test_a_data_set_that_one_method_lacks_enters_no_mean_of_calibration(vera):
    """Else the methods' means would be over different data sets. Both have .01 on Digits."""
    errors = {"digits": 0.01, "vessels": 0.16}
    test = {dataset: TEST | {"ace": error, "ece": error} for dataset, error in errors.items()}
    runs = [make_record("pvera", dataset, test=numbers) for dataset, numbers in test.items()]
    runs.append(make_record("vera", "digits", test=test["digits"]))
    if vera == "diverged":
        runs.append(make_record("vera", "vessels", chosen=None))
    table = calibration_tables.calibration_table(runs)
    columns = ["ace_mean", "ece_mean", "ace_ratio"]
    for _, row in table.data.set_index("method").iterrows():
        assert row[columns].tolist() == pytest.approx([0.01, 0.01, 1])
    assert "Over the 1 of 2 data sets of which every method has a run." in table.notes


# Components


def test_averages_of_components_are_of_whole_rows():
    """VeRA lacks Vessels and has no average. PVeRA: 60 and 80, then 90."""
    vera = [make_record("vera", "digits", correct=5)]
    pvera = [
        make_record("pvera", "digits", 0, correct=6),
        make_record("pvera", "digits", 1, correct=8),
        make_record("pvera", "vessels", 0, correct=9),
    ]
    for i, run in enumerate(vera + pvera):
        run["test"]["ace"] = 0.01 * i
    table = cells(
        components.accuracies_table(
            components.Components(
                {"vera": vera, "pvera": pvera}, {"vera": "VeRA", "pvera": "PVeRA"}
            )
        )
    )
    assert table["VeRA"] == ["50.0", "–", "–", "–", "1"]
    # ACE is 1 and 2 on Digits, then 3.
    assert table["PVeRA"] == ["70.0 ± 14.1", "90.0", "80.0", "2.2", "2"]


def test_each_backbone_has_components_of_its_own(tmp_path):
    runs = [
        make_record(method) | {"backbone": name}
        for name in ("dinov2_s", "tiny")
        for method in ("vera", "pvera")
    ]
    write_all(tmp_path, runs)
    loaded = components.read_components(result_files(tmp_path))
    assert [setting.backbone for setting in loaded] == ["dinov2_s", "tiny"]
    for setting, by_component in loaded.items():
        found = {run["backbone"] for runs in by_component.runs.values() for run in runs}
        assert found == {setting.backbone}


# Out of distribution


def distribution(method, seed, *outside):
    """Make an adapter of Digits; values in distribution are 1 to 5."""
    tested = {"digits": [1, 2, 3, 4, 5], "vessels": outside[0], "sprites": outside[1]}
    arrays = {}
    for name, values in tested.items():
        arrays |= {f"{name}_{kind}": np.array(values, float) for kind in ood.MEAN_AND_NORM}
    return make_record(method, seed=seed, config={"tested": list(tested)}), arrays


def test_values_in_and_out_of_distribution():
    """All of 6 to 10 lie above: p = 1 / 252. Of 3, 6 and 0, 2.5, 5 and 0 of five pairs do."""
    runs = [
        distribution("pvera", 0, [6, 7, 8, 9, 10], [3, 6]),
        distribution("pvera", 1, [0, 3], [3, 6]),
        distribution("vera", 0, [3, 6], [3, 6]),
        distribution("vera", 1, [0, 3], [0, 3]),
    ]
    data = ood.compare_in_and_out(runs)
    first = data.iloc[0]
    numbers = first[["mean_in", "mean_out", "p_value", "cliffs_delta", "auroc"]].tolist()
    assert numbers == pytest.approx([3, 8, 1 / 252, 1, 1])
    aurocs = ood.detection_aurocs(runs)
    assert aurocs["pvera"].tolist() == pytest.approx([0.875, 0.5])
    assert aurocs["vera"].tolist() == pytest.approx([0.75, 0.25])
    assert aurocs[ood.CHANCE].tolist() == [0.5, 0.5]
    row = cells(ood.out_of_distribution_table(runs))["Digits"]
    assert row == ["3.000", f"{(8 + 4.5 + 1.5 + 4.5) / 4:.3f}", "0.688", "0.88, 0.50", "1 of 4"]


# Latents


def test_samples_and_their_mean_over_the_patches():
    """Of two patches, a sample's correlation is 1 where it keeps their order, else -1."""
    # Variance 5.
    mean = np.array([[[1.0, 3.0]], [[5.0, 7.0]]])
    samples = mean + np.array([[[[-1, 1]], [[3, -3]]], [[[-1, 1]], [[-1, 1]]]])
    of_pvera = {"mu": mean, "draws": samples, "explained": np.array(0.25)}
    of_vera = of_pvera | {"draws": np.empty((0, *mean.shape))}
    analysed = [(make_record("pvera"), of_pvera), (make_record("vera"), of_vera)]
    data = parsed(latents.latents_table(analysed)).set_index("method")
    found = data.loc["pvera", ["explained", "spread", "correlation"]].tolist()
    assert found == pytest.approx([0.25, (24 / 8 / 5) ** 0.5, 0.5], rel=1e-5)
    assert data.loc["vera", ["spread", "correlation"]].isna().all()


def focus(method, seed, adapted, frozen):
    arrays = {"adapted": np.array(adapted), "frozen": np.array([frozen])}
    return make_record(method, seed=seed), arrays


def test_the_frozen_latent_is_pveras():
    analysed = [
        focus("pvera", 0, [0.6, NAN, 0.8], 0.5),
        focus("pvera", 1, [0.9, 0.9], 0.6),
        focus("vera", 0, [0.6, 0.6], 0.1),
        focus("vera", 1, [0.7, NAN], 0.1),
    ]
    aurocs = latents.focus_aurocs(analysed)
    assert (aurocs["pvera"] - aurocs["vera"]).tolist() == pytest.approx([0.1, 0.2])
    assert cells(latents.focus_table(analysed))["Digits"] == ["0.800", "0.650", "0.550"]


# Language


def text_run(method, dataset, seed, correct, experiment="benchmark", **scores):
    """Make a run on ten texts."""
    run = make_record(method, seed=seed, correct=correct, experiment=experiment)
    run["test"] |= scores
    return run | {"dataset": dataset, "category": "language"}


def written(root, *runs):
    """Write runs with labels of which six of ten are equal."""
    for path, run in zip(write_all(root, runs), runs):
        results.write(path, run, predictions(np.full((10, 2), 0.5), np.array([0] * 6 + [1] * 4)))
    return list(runs)


def test_a_method_is_marked_where_each_of_its_seeds_beats_the_majority(tmp_path):
    """It has 60 %. PVeRA is best, and one of its seeds only as good."""
    runs = []
    for method, seeds in {"lora": (7, 8), "vera": (5, 9), "pvera": (6, 10)}.items():
        runs += [text_run(method, "rte", seed, correct) for seed, correct in enumerate(seeds)]
    table = language.language_table(tmp_path, written(tmp_path, *runs), PAPER.language)
    here, there = table.printed_panels().values()
    assert here["RTE (acc.)"].to_dict() == {
        "Majority class": "60.0",
        "LoRA": "<ins>75.0 ± 7.1</ins>",
        "VeRA": "70.0 ± 28.3",
        "PVeRA": "80.0 ± 28.3",
    }
    assert list(there.index) == ["LoRA", "VeRA", "PVeRA"]


def test_trainings_on_all_texts_replace_others_and_a_majority_has_no_correlation(tmp_path):
    written(
        tmp_path,
        text_run("lora", "rte", 0, 6),
        text_run("lora", "rte", 1, 6),
        text_run("lora", "cola", 0, 6, matthews=0.25),
        text_run("lora", "rte", 0, 9, experiment="full_sets"),
    )
    settings = {"name": "mine", "data": "d", "backbones": ["minilm"], "datasets": ["rte"]}
    settings |= {"seeds": [0], "protocol": "corrected", "methods": {"lora": {}}}
    profile = Profile.build(settings)
    (scores,) = language.read_scores(ResultFiles(tmp_path, (profile,))).values()
    found = scores.droplevel(["category", "seed"]).T.to_dict("list")
    assert found == {"rte": [90, 60], "cola": [25, 0]}


def test_tasks_that_lora_has_not_learned_are_left_out():
    """Its interval over seeds reaches the majority on CoLA, not on RTE.

    They are 1 ± 4.3 · 2 / √3 and 10 ± 2.5.
    """
    rows = rows_of(*(("language", name, seed) for name in ("rte", "cola") for seed in range(3)))
    columns = {
        "lora": [62.0, 63, 61, 1, 3, -1],
        "vera": [60.0, 61, 62, 5, 5, 5],
        "pvera": [63.0, 65, 61, 9, 9, 9],
        "majority": [52.0, 52, 52, 0, 0, 0],
    }
    scores = pd.DataFrame(columns, rows)
    pd.testing.assert_frame_equal(language.learned_tasks(scores), scores.query("dataset == 'rte'"))

    nothing = language.learned_tasks(scores.query("dataset == 'cola'"))
    with pytest.raises(Untestable, match="no runs to compare"):
        contrasts.paired_differences(nothing, "pvera", "vera")


# Switches of the protocols


def test_effects_are_averaged_over_methods_before_pairs():
    """Four pairs of two methods each: chance has a mean square of (1 + 9 + 4 + 4) / 4 = 4.5."""
    methods = ["lora", "lora", "vera", "vera"]
    datasets = ["digits", "vessels", "digits", "vessels"]

    def part(switch, values):
        metrics = dict.fromkeys(protocol.METRICS, values)
        columns = {"switch": switch, "method": methods, "dataset": datasets, "seed": 0}
        return pd.DataFrame(columns | metrics)

    chance, switched = [1.0, -3, 2, 2], [8.0, 12, 10, 14]
    pairs = pd.concat([part(protocol.NOISE, chance), part("softmax_in_loss", switched)])
    table = protocol.mean_effects(pairs).set_index(["switch", "metric"]).loc["softmax_in_loss"]
    row = table.loc["accuracy"]
    low, high = stats.t.interval(0.95, 1, 11, stats.sem([9, 13]))
    assert (row["mean"], row["low"], row["high"], row["pairs"]) == pytest.approx((11, low, high, 2))
    assert row["noise"] == pytest.approx(stats.t.ppf(0.975, 4) * (4.5 / 4) ** 0.5)
    assert table.index[~table["comparable"]].tolist() == ["validation_loss"]


# Ablations


def test_positions_are_compared_with_all_others_of_the_paper():
    """QV has the lowest loss; QKV is the closest, with a difference of 0.1 and of 0.2."""
    values = {"q": 1.5, "k": 1.6, "v": 1.3, "qk": 1.4, "qkv": 1.1, "qv": 1.0}
    losses = pd.DataFrame(values, rows_of(("own", "digits", 0), ("own", "vessels", 0)))
    losses.loc[("own", "vessels", 0), "qkv"] = 1.2
    losses = losses.rename(columns=ablations.value_title)
    (claim,) = claims.TOPICS["rank_and_position"].claims
    assert set(claim.others) | {claim.first} == set(losses)
    assert verdicts.judge(claim, losses).effect_text == "QKV − QV: +0.150 nats"
    missing = verdicts.judge(claim, losses.drop(columns="QV"))
    assert missing.effect_text == "no runs of QV"
