"""The tables of the rank and position ablations."""

from pathlib import Path

import numpy as np
from hand import lines, parsed
from records import make_record
from scipy.stats import t

from pvera.report import published
from pvera.report.plots import ablations as plots
from pvera.report.tables import ablations as tables

PAPER = published.load(Path(__file__).parents[2] / "results" / "published")
RANK = PAPER.rank.set_index("rank")

# Best validation loss: data set -> seed -> rank 8, 16, 32, 64. Means over data sets, by seed:
# 1.1, 1.0, 0.8, 0.9 and 1.3, 1.0, 1.2, 1.0.
LOSSES = {
    "digits": [[1.0, 0.9, 0.5, 0.8], [1.2, 0.9, 1.0, 0.9]],
    "vessels": [[1.2, 1.1, 1.1, 1.0], [1.4, 1.1, 1.4, 1.1]],
}
RANKS = [8, 16, 32, 64]


def runs_of(losses=LOSSES, values=RANKS, name="rank", softmax_in_loss=False):
    runs = []
    for dataset, seeds in losses.items():
        for seed, losses_of_seed in enumerate(seeds):
            run = make_record(
                "pvera", dataset, seed, grid={name: values}, config={"protocol": {"softmax_in_loss": softmax_in_loss}}
            )
            for member, loss in zip(run["members"], losses_of_seed):
                member["best_validation_loss"] = loss
                member["adapter_parameters"] = 100 * (1 + values.index(member["grid"][name]))
            runs.append(run)
    return runs


def test_by_hand():
    table = tables.ablation(runs_of(), "rank", RANK)
    data = parsed(table)
    np.testing.assert_allclose(data["loss"], [1.2, 1.0, 1.0, 0.95])
    # From r = 32, by seed: +0.3, +0.2, 0, +0.1 and +0.1, -0.2, 0, -0.2.
    np.testing.assert_allclose(data["above_reference"], [0.2, 0, 0, -0.05], atol=1e-6)
    # By data set: +0.35 and +0.05, then +0.15 and -0.15; s / √2 of two values is half their distance
    half = t.ppf(0.975, 1) * 0.15
    np.testing.assert_allclose([data["low"][0], data["high"][1], data["low"][2]], [0.2 - half, half, np.nan], rtol=1e-5)
    # Equal lowest losses: the first, here 16 twice.
    assert data["lowest"].tolist() == [0, 2, 1, 1] and data["parameters"].tolist() == [100, 200, 300, 400]
    cells = {row[0]: row[1:] for row in lines(table)}
    assert cells["Loss, here"] == ["1.200", "<ins>1.000</ins>", "<ins>1.000</ins>", "**0.950**"]
    assert cells["Trainable parameters, paper"] == ["21 504", "24 576", "30 720", "43 008"]
    assert list(table.texts()[""]) == ["r = 8 (64)", "r = 16 (128)", "r = 32 (256)", "r = 64 (512)"]
    assert "takes the softmax twice" in table.caption


def test_a_pair_without_every_value_enters_no_mean():
    runs = runs_of({"digits": LOSSES["digits"], "vessels": [LOSSES["vessels"][0], [1.4, None, 1.4, 1.1]]})
    np.testing.assert_allclose(tables.by_seed(tables.losses(runs, "rank")).loc[1], LOSSES["digits"][1])
    caption = tables.ablation(runs, "rank", RANK).caption
    assert "Of 4 pairs, 3 have every value and enter the means." in caption


def test_trainings_that_learned_nothing_are_counted():
    """With ten classes, equal scores have the loss log 10 = 2.303; a training above 95 % of it learned nothing."""
    runs = runs_of({"digits": [[1.0, 2.18, 1.2, 2.3], [1.1, 2.2, 1.1, 1.0]]})
    assert parsed(tables.ablation(runs, "rank", RANK))["failed"].tolist() == [0, 1, 0, 1]
    here, _ = plots.of_runs(runs, "rank", RANK["loss"], "Rank r").axes
    assert [(text.get_position()[0], text.get_text()) for text in here.texts] == [(1, "1×"), (3, "1×")]
