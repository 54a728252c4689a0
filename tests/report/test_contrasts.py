"""The statistics behind claims and tables, on small frames with numbers by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import cells, parsed
from records import make_record, write_all
from scipy import stats
from test_tables_by_hand import TEST

from pvera.adapters import PAPER_METHODS
from pvera.report import claims, published
from pvera.report.scores import largest_class, score_frame
from pvera.report.statistics import over_datasets, weakest_contrast
from pvera.report.tables import (
    ablations,
    baselines,
    benchmark,
    components,
    cost,
    language,
    latents,
    protocol,
    speed,
)
from pvera.report.tables import calibration as calibration_tables
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables.verdicts import FAILS, HOLDS, UNTESTABLE, Untestable, below, lead
from pvera.study import results

NAN = np.nan
PAPER = published.load(Path(__file__).parents[2] / "results" / "published")


def rows_of(*places):
    return pd.MultiIndex.from_tuples(places, names=["category", "dataset", "seed"])


#: Two data sets of two seeds each.
PLACES = rows_of(
    ("natural", "cifar", 0),
    ("natural", "cifar", 1),
    ("structured", "kitti", 0),
    ("structured", "kitti", 1),
)
SCORES = pd.DataFrame(
    {
        "linear": [60.0, 62, 50, 50],
        "vera": [70.0, 74, 40, 44],
        "pvera": [70.0, 72, 60, 66],
    },
    PLACES,
)
ROOT_2 = 2**0.5


AHEAD = [0, -2, 20, 22]  # PVeRA of VeRA


@pytest.mark.parametrize(
    "contrast, gaps",
    [
        (lead("pvera", "vera"), {"PVeRA − VeRA": AHEAD}),
        (below("linear", "vera"), {"VeRA − Linear": [10, 12, -10, -6]}),
        # PVeRA's ranks: 1.5 beside VeRA's equal one, 2, 1 and 1.
        (
            benchmark.ranks("pvera"),
            {"Linear − PVeRA": [1.5, 1, 1, 1], "VeRA − PVeRA": [0, -1, 2, 2]},
        ),
        # Equal best ones both count, times two data sets.
        (
            benchmark.wins("pvera"),
            {"PVeRA − Linear": [2, 0, 2, 2], "PVeRA − VeRA": [0, -2, 2, 2]},
        ),
        # Of two values, the sample standard deviation is their distance by √2.
        (
            benchmark.steadiness("pvera"),
            {"Linear − PVeRA": [0, -6 / ROOT_2], "VeRA − PVeRA": [ROOT_2, -ROOT_2]},
        ),
        (
            benchmark.second("vera", "pvera"),
            {"PVeRA − VeRA": AHEAD, "VeRA − Linear": [10, 12, -10, -6]},
        ),
        (
            benchmark.on_categories(["natural"], lead("pvera", "linear")),
            {"PVeRA − Linear": [10, 10]},
        ),
        (
            claims.calibrated(["vera", "pvera"], "linear"),
            {"Linear / VeRA": [-10, -12, 10, 6], "Linear / PVeRA": [-10, -10, -10, -16]},
        ),
    ],
)
def test_contrasts_of_scores(contrast, gaps):
    found = {name: values.tolist() for name, values in contrast(SCORES).items()}
    assert found == {name: pytest.approx(values) for name, values in gaps.items()}


@pytest.mark.parametrize("contrast", [benchmark.ranks("pvera"), benchmark.wins("pvera")])
def test_a_missing_run_leaves_out_its_data_set_and_seed(contrast):
    scores = SCORES.copy()
    scores.loc[PLACES[3], "linear"] = NAN
    for gaps in contrast(scores).values():
        assert gaps.isna().tolist() == [False, False, False, True]


# Scores


def test_scores_stand_by_category_in_the_papers_order_and_methods_in_theirs():
    """One's own data sets come last, by name."""
    names = {"kitti": "structured", "zebra": "own", "svhn": "natural", "ant": "own", "cifar": "natural"}
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
    values = pd.DataFrame(
        {"a": [1.0, 1.2, 5.0, 5.2, 3.0, 3.2]},
        rows_of(*(("own", d, s) for d in "zyx" for s in (0, 1))),
    )
    found = over_datasets(values.droplevel("category").iloc[::-1]).loc["a"]
    low, high = stats.t.interval(0.95, 2, 3.1, stats.sem([1.1, 5.1, 3.1]))
    assert found.to_dict() == pytest.approx({"mean": 3.1, "low": low, "high": high})


def test_a_unit_without_a_pair_does_not_count():
    effect = weakest_contrast({"": np.array([[1.0, 3.0, NAN], [NAN, NAN, NAN], [5.0, NAN, NAN]])})
    assert (effect.mean, effect.units, effect.repeats) == (3.5, 2, 2)


def test_the_largest_class_is_counted_on_the_labels_of_a_run_that_did_not_diverge(tmp_path):
    runs = [make_record("vera", chosen=None), make_record("pvera")]
    for path, record in zip(write_all(tmp_path, runs), runs):
        if record["test"]:
            results.write(path, record, np.full((5, 3), 1 / 3), np.array([2, 0, 2, 1, 2]))
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
    floors = {metric: score_frame(runs, metric) / 2 for metric in ("ace", "ece")}
    table = calibration_tables.calibration(runs, floors)
    columns = ["ace_mean", "ece_mean", "ace_ratio", "ace_floor", "ece_floor"]
    for _, row in table.data.set_index("method").iterrows():
        assert row[columns].tolist() == pytest.approx([0.01, 0.01, 1, 0.005, 0.005])
    assert "Over the 1 of 2 data sets of which every method has a run." in table.caption


def test_claims_about_calibration_are_of_ratios_of_ace():
    errors = {"vera": 0.04, "pvera": 0.01}
    runs = [make_record(name, test=TEST | {"ace": ace, "ece": 0.5}) for name, ace in errors.items()]
    (gaps,) = claims.calibrated(["pvera"], "vera")(claims.logarithms(runs)).values()
    assert np.exp(gaps).tolist() == pytest.approx([4])


# Components


def test_averages_of_components_are_of_whole_rows():
    """VeRA lacks Vessels and has no average. PVeRA: 60 and 80, then 90. Epochs count from one."""
    runs = {
        "vera": [make_record("vera", "digits", correct=5)],
        "pvera": [make_record("pvera", "digits", seed, correct=c) for seed, c in ((0, 6), (1, 8))]
        + [make_record("pvera", "vessels", 0, correct=9)],
    }
    for place, run in enumerate(sum(runs.values(), [])):
        run["test"]["ace"] = 0.01 * place
        run["chosen"]["epoch"] = place**2
    runs["pvera"][2]["members"][0]["status"] = "epoch limit"
    table = cells(components.table(runs, "components", "caption"))
    assert table["VeRA"] == ["50.0", "–", "–", "–", "1", "0"]
    assert table["PVeRA"] == [
        "70.0 ± 14.1",
        "90.0",
        "80.0",
        "2.2",
        "5",
        "1",
    ]  # ACE: 1 and 2, then 3


def test_components_are_those_of_one_backbone(tmp_path):
    places = [{"backbone": name, "experiment": "tuned"} for name in ("dinov2_s", "tiny")]
    write_all(tmp_path, [make_record("vera", **place) for place in places])
    (runs,) = components.load(tmp_path, "mine").values()
    assert [run["backbone"] for run in runs] == ["dinov2_s"]


def test_noises_are_compared_on_the_tasks_and_seeds_that_all_have(tmp_path):
    """Seed 1 of PVeRA is the only one."""
    places = [(method, experiment) for _, method, experiment in components.NOISES.values()]
    runs = [make_record(method, experiment=experiment) for method, experiment in places]
    more = make_record("pvera", seed=1)
    write_all(tmp_path, [*runs, more])
    kept = components.noises(tmp_path, "mine")
    assert list(kept) == list(components.NOISES)
    assert {run["seed"] for group in kept.values() for run in group} == {0}


# Published numbers


def test_published_leads_have_students_interval():
    data = parsed(benchmark.published_leads(PAPER)).set_index(["backbone", "method"])
    accuracies = PAPER.accuracies("dinov2_s")
    test = stats.ttest_rel(accuracies.loc["pvera"], accuracies.loc["lora"])
    low, high = test.confidence_interval(0.95)
    mean = (accuracies.loc["pvera"] - accuracies.loc["lora"]).mean()
    assert data.loc[("dinov2_s", "lora")].tolist() == pytest.approx([mean, low, high], rel=1e-4)


# Uncertainty against baselines


def test_ways_are_compared_on_equal_data_sets_and_seeds():
    """Draws: the most passes. An ensemble of all seeds is compared with each of them."""
    numbers = {
        (1, "pvera", "baselines", "pass"): {
            ("digits", 0): 1.0,
            ("digits", 1): 1.2,
            ("vessels", 0): 3.0,
        },
        (4, "pvera", "baselines", "draws"): {
            ("digits", 0): 9.0,
            ("digits", 1): 9.0,
            ("vessels", 0): 9.0,
        },
        (16, "pvera", "baselines", "draws"): {
            ("digits", 0): 0.9,
            ("digits", 1): 1.0,
            ("vessels", 0): 3.4,
        },
        (2, "vera", "baselines", "ensemble"): {("digits", baselines.ALL_SEEDS): 0.8},
    }
    values = pd.concat({key: pd.Series(of_way) for key, of_way in numbers.items()})
    values.index.names = [*baselines.KEY, "dataset", "seed"]
    comparison = baselines.Comparison({}, {}, pd.DataFrame({"nll": values, "auroc score": values}))

    def gaps(name, way, other):
        (found,) = baselines.better(name, way, other)(comparison).values()
        return found.dropna().to_dict()

    expected = {("digits", 0): 0.1, ("digits", 1): 0.2, ("vessels", 0): -0.4}
    assert gaps("NLL", "draws", "mean") == pytest.approx(expected), "lower is better"
    higher = {place: -gap for place, gap in expected.items()}
    assert gaps("AUROC of errors", "draws", "mean") == pytest.approx(higher)
    of_digits = {("digits", 0): -0.1, ("digits", 1): -0.2}
    assert gaps("NLL", "draws", "ensemble") == pytest.approx(of_digits)
    with pytest.raises(Untestable, match="VeRA with dropout, draws"):
        gaps("NLL", "draws", "dropout")
    means = baselines.means(comparison.measures)["nll"]
    assert means.loc[1].item() == pytest.approx((1.1 + 3) / 2), "over seeds, then over data sets"
    assert means.loc[2].isna().all(), "the ensemble lacks Vessels"


# Out of distribution


def distribution(method, seed, *outside):
    """Make an adapter of Digits; values in distribution are 1 to 5."""
    tested = {"digits": [1, 2, 3, 4, 5], "vessels": outside[0], "sprites": outside[1]}
    arrays = {
        f"{name}_{kind}": np.array(values, float)
        for name, values in tested.items()
        for kind in ood.KINDS
    }  # fmt: skip
    return make_record(method, seed=seed, config={"tested": list(tested)}), arrays


def test_values_in_and_out_of_distribution():
    """All of 6 to 10 lie above: p = 1 / 252. Of 3, 6 and 0, 2.5, 5 and 0 of five pairs do."""
    runs = [
        distribution("pvera", 0, [6, 7, 8, 9, 10], [3, 6]),
        distribution("pvera", 1, [0, 3], [3, 6]),
        distribution("vera", 0, [3, 6], [3, 6]),
        distribution("vera", 1, [0, 3], [0, 3]),
    ]
    data = ood.comparisons(runs)
    first = data.iloc[0]
    numbers = first[["mean_in", "mean_out", "p_value", "cliffs_delta", "auroc"]].tolist()
    assert numbers == pytest.approx([3, 8, 1 / 252, 1, 1])
    (gaps,) = ood.separation("mean")(data).values()
    assert gaps.tolist() == pytest.approx([0.875 - 0.5, 0.5 - 0.5])
    (gaps,) = ood.separation("norm", "vera")(data).values()
    assert gaps.tolist() == pytest.approx([0.875 - 0.75, 0.5 - 0.25])
    row = cells(ood.out_of_distribution_table(runs))["Digits"]
    assert row == ["3.000", f"{(8 + 4.5 + 1.5 + 4.5) / 4:.3f}", "0.688", "0.88, 0.50", "1 of 4"]


# Latents


def test_draws_against_their_mean_over_the_patches():
    """Of two patches, a draw's correlation is 1 where it keeps their order, else -1."""
    mean = np.array([[[1.0, 3.0]], [[5.0, 7.0]]])  # variance 5
    draws = mean + np.array([[[[-1, 1]], [[3, -3]]], [[[-1, 1]], [[-1, 1]]]])
    none = np.empty((0, *mean.shape))
    analysed = [
        (make_record(method), {"mu": mean, "draws": drawn, "explained": np.array(0.25)})
        for method, drawn in (("pvera", draws), ("vera", none))
    ]
    data = parsed(latents.latents_table(analysed)).set_index("method")
    assert data.loc["pvera", ["explained", "spread", "correlation"]].tolist() == pytest.approx(
        [0.25, (24 / 8 / 5) ** 0.5, 0.5], rel=1e-5
    )
    assert data.loc["vera", ["spread", "correlation"]].isna().all()


def test_the_frozen_latent_is_pveras():
    analysed = [
        (make_record(method, seed=seed), {"adapted": np.array(adapted), "frozen": np.array([frozen])})
        for method, seed, adapted, frozen in (
            ("pvera", 0, [0.6, NAN, 0.8], 0.5), ("pvera", 1, [0.9, 0.9], 0.6),
            ("vera", 0, [0.6, 0.6], 0.1), ("vera", 1, [0.7, NAN], 0.1),
        )
    ]  # fmt: skip
    for than, gaps in (("vera", [0.1, 0.2]), (latents.FROZEN, [0.2, 0.3])):
        (found,) = latents.more_focused(than)(analysed).values()
        assert found.tolist() == pytest.approx(gaps)
    assert cells(latents.focus_table(analysed))["Digits"] == ["0.800", "0.650", "0.550"]


# Language


def text_run(method, dataset, seed, correct, experiment="language", **scores):
    """Make a run on ten texts."""
    run = make_record(method, seed=seed, correct=correct, experiment=experiment)
    run["test"] |= scores
    return run | {"dataset": dataset, "category": "language"}


def written(root, *runs):
    """Write runs with labels of which six of ten are equal."""
    for path, run in zip(write_all(root, runs), runs):
        results.write(path, run, np.full((10, 2), 0.5), np.array([0] * 6 + [1] * 4))
    return list(runs)


def test_a_method_is_marked_where_each_of_its_seeds_beats_the_majority(tmp_path):
    """It has 60 %. PVeRA is best, and one of its seeds only as good."""
    correct = {"lora": (7, 8), "vera": (5, 9), "pvera": (6, 10)}
    runs = [
        text_run(method, "rte", seed, right)
        for method, of_seeds in correct.items()
        for seed, right in enumerate(of_seeds)
    ]
    table = language.language(tmp_path, written(tmp_path, *runs), PAPER.language)
    here, there = table.texts().values()
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
    ((_, scores),) = claims.TOPICS["Language"].load(tmp_path, "mine").values()
    assert scores.droplevel(["category", "seed"]).T.to_dict("list") == {
        "rte": [90, 60],
        "cola": [25, 0],
    }


def test_tasks_that_lora_has_not_learned_are_left_out():
    """Its interval over seeds reaches the majority on CoLA, 1 ± 4.3 · 2 / √3, not on RTE, 10 ± 2.5."""
    places = rows_of(*(("language", name, seed) for name in ("rte", "cola") for seed in range(3)))
    scores = pd.DataFrame({
        "lora": [62.0, 63, 61, 1, 3, -1],
        "vera": [60.0, 61, 62, 5, 5, 5],
        "pvera": [63.0, 65, 61, 9, 9, 9],
        "majority": [52.0, 52, 52, 0, 0, 0],
    }, places)  # fmt: skip
    assert {name: gaps.tolist() for name, gaps in language.ahead("GLUE")(scores).items()} == {
        "PVeRA − LoRA": [1, 2, 0], "PVeRA − VeRA": [3, 4, -1],
    }  # fmt: skip
    with pytest.raises(Untestable, match="nothing was learned"):
        language.ahead("cola", "vera")(scores)
    with pytest.raises(Untestable, match="no runs on MRPC"):
        language.ahead("mrpc")(scores)


# Switches of the protocols


def test_effects_are_averaged_over_methods_before_pairs():
    """Four pairs of two methods each: chance has a mean square of (1 + 9 + 4 + 4) / 4 = 4.5."""
    places = [(method, dataset) for method in ("lora", "vera") for dataset in ("digits", "vessels")]

    def part(switch, values):
        metrics = dict.fromkeys(protocol.METRICS, values)
        methods, datasets = zip(*places)
        columns = {"switch": switch, "method": methods, "dataset": datasets, "seed": 0}
        return pd.DataFrame(columns | metrics)

    chance, switched = [1.0, -3, 2, 2], [8.0, 12, 10, 14]
    pairs = pd.concat([part(protocol.NOISE, chance), part("softmax_in_loss", switched)])
    table = protocol.summary(pairs).set_index(["switch", "metric"]).loc["softmax_in_loss"]
    row = table.loc["accuracy"]
    low, high = stats.t.interval(0.95, 1, 11, stats.sem([9, 13]))
    assert (row["mean"], row["low"], row["high"], row["pairs"]) == pytest.approx((11, low, high, 2))
    assert row["noise"] == pytest.approx(stats.t.ppf(0.975, 4) * (4.5 / 4) ** 0.5)
    assert table.index[~table["comparable"]].tolist() == ["validation_loss"]


# Ablations


def test_values_of_the_paper_are_compared_by_their_places_in_the_grid():
    row = rows_of(("natural", "digits", 0))
    losses = pd.DataFrame({8: [1.5], 16: [1.2], 32: [1.0], 64: [1.4]}, row)
    gaps = ablations.lower("rank", [256], [64, 256, 512])(losses)
    assert {name: values.item() for name, values in gaps.items()} == pytest.approx(
        {"r = 8 − r = 32": 0.5, "r = 64 − r = 32": 0.4}
    )
    assert ablations.of_ranks("{0} before {1}", [[256], [64, 128]], losses) == (
        "r = 256 (here r = 32) before r = 64 and r = 128 (here r = 8 and r = 16)"
    )
    with pytest.raises(Untestable, match="no counterpart of r = 256"):
        ablations.lower("rank", [256], [64])(losses.drop(columns=64))
    losses[8] = 2.3  # equal scores for ten classes have 2.303
    with pytest.raises(Untestable, match="r = 8 learned nothing in 100 % of trainings"):
        ablations.lower("rank", [256], [64])(losses)


# Cost


#: Additions (%) in training, with the mean and merged, and trained parameters; all of
#: `cost.CLAIMS` hold. Four of the six others are at least 10^1.5 = 31.6 times as large as PVeRA.
ADDED = {
    "linear": (0, 0, 0, 0), "bottleneck": (1, 1, NAN, 9000), "adaptformer": (1, 1, NAN, 3100),
    "lora": (3, 3, 0, 3200), "dora": (3, 3, 0, 9000), "ia3": (0, 0, 0, 9000),
    "vera": (10.5, 10.54, 0, 50), "pvera": (15.74, 12, 0, 100),
}  # fmt: skip


@pytest.mark.parametrize(
    "place, method, changed, reading",
    [
        (0, "lora", (3, 3, 0, 99), "2.00 times VeRA's"),
        (1, "ia3", (0, 0, 0, 3100), "(IA)³ 31.0"),
        (2, "pvera", (15.76, 12, 0, 100), "15.76 %"),
        (3, "vera", (10.5, 10.56, 0, 50), "10.56 %"),
        (4, "vera", (10.5, 10.5, -0.1, 50), "0.10 %"),
        (5, "bottleneck", (1, 1, 0, 9000), "Bottleneck 1.00 %"),
    ],
)
def test_claims_about_costs(place, method, changed, reading):
    def answer(added):
        columns = ["training", "inference", "merged", "adapter_parameters"]
        points = pd.DataFrame(added, columns).T.loc[list(PAPER_METHODS)]
        points[columns[:3]] = 200 * (1 + points[columns[:3]] / 100)
        return cost.count(cost.CLAIMS[place], (points.assign(backbone_multiply_adds=200), True))

    assert answer(ADDED).verdict == HOLDS
    found = answer(ADDED | {method: changed})
    assert found.verdict == FAILS and reading in found.reading


def test_a_printed_percentage_is_not_held_against_another_backbone():
    points = pd.DataFrame(
        1.0,
        list(PAPER_METHODS),
        ["adapter_parameters", "backbone_multiply_adds", *cost.PASSES, "training"],
    )
    assert cost.count(cost.CLAIMS[2], (points, False)).verdict == UNTESTABLE


def test_wall_times_are_summed_by_experiment(tmp_path):
    """The longest name that fits; trainings that shared their cores are left out."""
    seconds = {
        "benchmark": 60,
        "protocol_shuffle": 30,
        "dropout": 10,
        "dropout_baselines": 20,
        "tuned_alpha": 999,
    }
    seconds |= {"beta_baselines_0": 40, "mine": 40}
    places = [{"experiment": name} for name in seconds] + [{"seed": 1}]
    for place, spent in zip(places, [*seconds.values(), 180]):
        write_all(tmp_path, [make_record(cost={"wall_seconds": spent}, **place)])
    table = cells(speed.wall_time_table(speed.wall_times(tmp_path, "mine"), "mine"))
    assert table["Benchmark"] == ["2", "4.0", "63.2", "120.0"]
    assert len(table) == 6 and table["Baselines along β"] == table["mine"] == [
        "1",
        "0.7",
        "10.5",
        "40.0",
    ]
    assert table["Dropout"] == ["1", "0.2", "2.6", "10.0"] and table["Baselines, dropout"][0] == "1"
