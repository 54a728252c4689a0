"""Calibration, effects of the protocols' switches, and ablations, of records made by hand."""

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hand import cells, parsed
from records import make_record
from scipy.stats import t

from pvera import METHODS
from pvera.report import paper_numbers
from pvera.report.scores import score_frame
from pvera.report.tables import ablations, calibration, protocol
from pvera.study import results
from pvera.study.protocol import PROTOCOLS

# Calibration


TEST = {"images": 10, "correct": 5, "accuracy": 0.5, "nll": 1.0, "brier": 0.5}


def runs_of(errors):
    """Return records of {method: {data set: ACE per seed}}; ECE is twice ACE."""
    return [
        make_record(method, dataset, seed, test=TEST | {"ace": ace, "ece": 2 * ace})
        for method, of_method in errors.items()
        for dataset, of_seeds in of_method.items()
        for seed, ace in enumerate(of_seeds)
    ]


HAND = {
    "vera": {"digits": [0.04, 0.01], "vessels": [0.16, 0.04]},
    "pvera": {"digits": [0.01, 0.01], "vessels": [0.04, 0.04]},
}


def test_geometric_means_by_hand():
    means = calibration.geometric_means(score_frame(runs_of(HAND), "ace"))
    # (.04 .01 .16 .04)^(1/4) = .04, and (.01 .01 .04 .04)^(1/4) = .02
    np.testing.assert_allclose(means["mean"], [0.04, 0.02])
    np.testing.assert_allclose(means[["seed0", "seed1"]], [[0.08, 0.02], [0.02, 0.02]])
    np.testing.assert_allclose(means["ratio"], [2, 1])
    # PVeRA has .01 and .04, each a factor of 2 from the mean: the standard error of logs is log 2.
    half = t.ppf(0.975, 1) * math.log(2)
    np.testing.assert_allclose(means.loc["pvera", ["low", "high"]], 0.02 * np.exp([-half, half]))
    # VeRA's ratio is 2 on each data set, 4 with one seed and 1 with the other
    half = t.ppf(0.975, 2) * math.log(4) / math.sqrt(2) / math.sqrt(2 * 2)
    np.testing.assert_allclose(
        means.loc["vera", ["ratio_low", "ratio_high"]], 2 * np.exp([-half, half])
    )


# Effects of the protocols' switches


def record(switch, method="lora", dataset="digits", seed=0, accuracy=0.5):
    rules = PROTOCOLS[switch].protocol
    run = make_record(
        method,
        dataset,
        seed,
        grid={"rank": [8]},
        experiment=f"protocol_{switch}",
        protocol=rules.name,
        config={"protocol": asdict(rules)},
    )
    hyperparameters = asdict(METHODS[method]()) | rules.adapters.get(method, {})
    run["config"]["members"][0]["method"] |= hyperparameters
    run["test"] |= {"accuracy": accuracy, "ece": 0.1, "ace": 0.1}
    run["members"][0]["best_validation_loss"] = 1.0
    return run | {"config_hash": results.config_hash(run["config"])}


def paired(switch, accuracies, method="lora", reference=0.5):
    """Return {switch: runs}: runs of `switch` and of its reference, one pair per accuracy."""
    pairs = [("digits", 0), ("digits", 1), ("vessels", 0), ("vessels", 1)]
    corrected = PROTOCOLS[switch].reference
    runs = {corrected: [], switch: []}
    for (dataset, seed), accuracy in zip(pairs, accuracies, strict=False):
        runs[corrected].append(record(corrected, method, dataset, seed, reference))
        runs[switch].append(record(switch, method, dataset, seed, accuracy))
    return runs


def test_effects_by_hand():
    runs = paired("lora_same_draw", [0.52, 0.54, 0.5, 0.56]) | {
        "own_draws": paired("own_draws", [0.51, 0.49, 0.5, 0.52])["own_draws"]
    }
    table = protocol.mean_effects(protocol.switch_differences(runs)).set_index(["switch", "metric"])
    row = table.loc[("lora_same_draw", "accuracy")]
    assert row["mean"] == pytest.approx(3) and row["pairs"] == 4 and row["methods"] == 1
    spread = np.std([2, 4, 0, 6], ddof=1) / 2 * t.ppf(0.975, 3)
    assert (row["low"], row["high"]) == pytest.approx((3 - spread, 3 + spread))
    # Chance: +1, -1, 0 and +2 around zero, so ±1.70 for a mean of four.
    assert row["noise"] == pytest.approx(t.ppf(0.975, 4) * np.sqrt(6 / 4 / 4))
    assert row["mean"] > row["noise"] and not row["beyond"], "the interval contains zero"
    assert (
        not table.loc[("own_draws", "accuracy"), "beyond"]
        and table.loc[("lora_same_draw", "ece"), "mean"] == 0
    )
    runs["lora_same_draw"][0] |= {"chosen": None, "test": None}  # diverged
    pairs = protocol.switch_differences(runs)
    assert pairs.loc[pairs["switch"] == "lora_same_draw", "accuracy"].isna().tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert (
        protocol.mean_effects(pairs)
        .set_index(["switch", "metric"])
        .loc["lora_same_draw", "pairs"]
        .eq(3)
        .all()
    )


# The rank and position ablations


PAPER = paper_numbers.load_paper(Path(__file__).parents[2] / "results" / "published")
RANK = PAPER.rank.set_index("rank")

# Best validation loss: data set -> seed -> rank 8, 16, 32, 64. Means over data sets, by seed:
# 1.1, 1.0, 0.8, 0.9 and 1.3, 1.0, 1.2, 1.0.
LOSSES = {
    "digits": [[1.0, 0.9, 0.5, 0.8], [1.2, 0.9, 1.0, 0.9]],
    "vessels": [[1.2, 1.1, 1.1, 1.0], [1.4, 1.1, 1.4, 1.1]],
}
RANKS = [8, 16, 32, 64]


def ablation_runs(losses=LOSSES, values=RANKS, name="rank"):
    """Return a run per value; its second learning rate has the loss, the first one more."""
    runs = []
    for dataset, seeds in losses.items():
        for seed, losses_of_seed in enumerate(seeds):
            for value, loss in zip(values, losses_of_seed):
                config = {"protocol": {"softmax_in_loss": False}}
                run = make_record(
                    "pvera", dataset, seed, experiment=f"{name}_{value}", config=config
                )
                for i, member in enumerate(run["members"]):
                    run["config"]["members"][i]["method"] = {name: value}
                    member["best_validation_loss"] = None if loss is None else loss + (1 - i)
                    member["adapter_parameters"] = 100 * (1 + values.index(value))
                runs.append(run)
    return runs


def test_by_hand():
    table = ablations.ablation_table(ablation_runs(), "rank", RANK)
    data = parsed(table)
    np.testing.assert_allclose(data["loss"], [1.2, 1.0, 1.0, 0.95])
    # From r = 32, by seed: +0.3, +0.2, 0, +0.1 and +0.1, -0.2, 0, -0.2.
    np.testing.assert_allclose(data["above_reference"], [0.2, 0, 0, -0.05], atol=1e-6)
    # By data set: +0.35 and +0.05, then +0.15 and -0.15; s / √2 of two values is half their
    # distance.
    half = t.ppf(0.975, 1) * 0.15
    np.testing.assert_allclose(
        [data["low"][0], data["high"][1], data["low"][2]], [0.2 - half, half, np.nan], rtol=1e-5
    )
    assert data["parameters"].tolist() == [100, 200, 300, 400]
    losses = ["1.200", "<ins>1.000</ins>", "<ins>1.000</ins>", "**0.950**"]
    assert cells(table)["Loss, here"] == losses
    assert cells(table)["Trainable parameters, paper"] == ["21 504", "24 576", "30 720", "43 008"]
    names = ["r = 8 (64)", "r = 16 (128)", "r = 32 (256)", "r = 64 (512)"]
    assert list(table.printed_panels()[""]) == names
    assert "applies the softmax twice" in table.notes


def test_a_pair_without_every_value_enters_no_mean():
    lacking = [LOSSES["vessels"][0], [1.4, None, 1.4, 1.1]]
    runs = ablation_runs({"digits": LOSSES["digits"], "vessels": lacking})
    table = ablations.ablation_table(runs, "rank", RANK)
    # Vessels has seed 0 alone; data sets count equally.
    datasets = [np.mean(LOSSES["digits"], axis=0), LOSSES["vessels"][0]]
    means = np.mean(datasets, axis=0)
    numbers = parsed(table)
    np.testing.assert_allclose(numbers["loss"], means)
    difference = numbers["loss"] - numbers["loss"].min()
    best = numbers["above_reference"] - numbers["above_reference"].min()
    np.testing.assert_allclose(difference, best, atol=1e-12)
    assert "Of 4 pairs, 3 have every value and enter the means." in table.notes


def test_a_grid_of_another_length_stands_without_the_papers_values():
    two_ranks = {"digits": [[1.0, 0.5], [1.2, 1.0]]}
    table = ablations.ablation_table(ablation_runs(two_ranks, values=[8, 40]), "rank", RANK)
    assert list(table.printed_panels()[""]) == ["r = 8", "r = 40"]
    assert cells(table)["Loss, here"] == ["<ins>1.100</ins>", "**0.750**"]
