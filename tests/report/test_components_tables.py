"""Tables and figure of PVeRA's components, on records with known accuracies."""

import numpy as np
import pytest
from hand import judged
from matplotlib import pyplot as plt
from records import make_record, write_all
from scipy import stats

from pvera.report.plots import forests as plots
from pvera.report.tables import components

TASKS = ("digits", "sprites")
#: Correct images of 100 per component, task and seed.
CORRECT = {
    "vera": [[50, 52, 54], [40, 41, 42]],
    "no_noise": [[50, 52, 54], [40, 41, 42]],
    "no_kl": [[58, 60, 62], [44, 45, 46]],
    "pvera": [[57, 59, 61], [45, 46, 47]],
}


def records(name: str):
    """Return records. Seeds 0 and 1 of VeRA and PVeRA come from the benchmark, seed 2 from a component."""
    method = "vera" if name == "vera" else "pvera"
    for dataset, counts in zip(TASKS, CORRECT[name], strict=True):
        for seed, correct in enumerate(counts):
            experiment = "benchmark" if name == method and seed < 2 else f"components_{name}"
            config = {"beta": 0.0 if name == "no_kl" else 1e-4}
            record = make_record(method, dataset, seed, correct, 100, experiment=experiment, config=config)
            record["test"]["ace"] = correct / 1000
            yield record


@pytest.fixture
def runs(tmp_path):
    for name in CORRECT:
        write_all(tmp_path, list(records(name)))
    return components.load(tmp_path, "mine")


def test_rows_join_the_benchmark_and_further_seeds(runs):
    accuracies = components.values(runs)
    assert tuple(accuracies.index.unique("dataset")) == TASKS
    for name, counts in CORRECT.items():
        np.testing.assert_allclose(accuracies[name], np.ravel(counts))
    shown = components.table(runs).texts()[""]
    assert list(shown.index) == [components.TITLES[name] for name in CORRECT]
    assert shown.iloc[0, 0] == "52.0 ± 2.0" and shown.loc["PVeRA", ["Average", "ACE"]].tolist() == ["52.5", "5.2"]


def test_claims_are_judged_over_tasks(runs):
    more, noise, fixed, learned, kl, chosen, equal = judged("Components", components.values(runs)).to_dict("records")
    gaps = [7, 5]
    low, high = stats.t.interval(0.95, 1, np.mean(gaps), stats.sem(gaps))
    assert more["verdict"] == "undecided" and more["difference"] == pytest.approx(6)
    assert (more["low"], more["high"]) == pytest.approx((low, high))
    assert noise["difference"] == pytest.approx(6) and kl["difference"] == pytest.approx(0)
    assert chosen["low"] == kl["low"]
    assert fixed["reading"] == learned["reading"] == "no runs of PVeRA, σ = 1 fixed, β = 0"
    assert equal["verdict"] == "not testable here" and equal["reading"] == "no runs of VeRA, equal budget"


def test_tasks_without_a_kl_term_are_named_and_left_out(runs):
    """Where the search chose β = 0, PVeRA's trainings are those without the KL term."""
    hashes = {run["seed"]: run["config_hash"] for run in runs["pvera"] if run["dataset"] == "sprites"}
    runs["no_kl"] = [
        run | {"config_hash": hashes[run["seed"]]} if run["dataset"] == "sprites" else run for run in runs["no_kl"]
    ]
    assert components.without_kl_term(runs) == {"sprites"}
    *_, kl, chosen, _ = judged("Components", components.values(runs)).to_dict("records")
    assert kl["difference"] == pytest.approx(0)  # −1 on Digits, +1 on Sprites
    assert chosen["reading"] == "fewer than two data sets: no interval"


def test_figure_shows_every_seed_of_every_contrast(runs):
    figure = plots.contrasts(runs)
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in panels] == [
        "PVeRA − VeRA", "z = μ − VeRA", "with noise − without (β = 0)", "with KL term − without"
    ]  # fmt: skip
    dots = [line.get_xdata() for line in panels[0].lines if line.get_markersize() == 2]
    np.testing.assert_allclose(dots[: len(TASKS)], [[7, 7, 7], [5, 5, 5]])
    plt.close(figure)


def test_searches_state_their_choice_and_whether_it_is_at_the_edge(tmp_path):
    values = [0.0, 1e-3, 1e-2]
    for task, chosen in zip(TASKS, (1, 2), strict=True):
        write_all(tmp_path, [make_record("pvera", task, 0, grid={"beta": values}, chosen=chosen, experiment="beta")])
    table = components.searched(tmp_path, "mine")
    assert table.texts()[""].loc["β of PVeRA"].tolist() == ["10⁻³", "10⁻² (edge)"]
    assert components.searched(tmp_path, "other") is None


def test_noise_of_fixed_size_stands_between_no_noise_and_a_learned_size(tmp_path):
    """It comes from an experiment of its own; on these tasks only seeds vary (Student's t, by hand)."""
    for name in CORRECT:
        write_all(tmp_path, list(records(name)))
    for dataset, counts in zip(TASKS, [[56, 59, 62], [44, 45, 46]], strict=True):
        write_all(tmp_path, [make_record("pvera", dataset, seed, correct, 100, experiment="noise_sigma_1")
                             for seed, correct in enumerate(counts)])  # fmt: skip
    rows = judged("Components", components.values(components.load(tmp_path, "mine")))
    fixed, learned = (rows[rows.index.str.contains(words)].iloc[0] for words in ("fixed size", "Learning σ"))
    assert fixed["difference"] == pytest.approx(5.5) and learned["difference"] == pytest.approx(0.5)
    std = np.std([6, 7, 8], ddof=1)  # on Digits; on Sprites all seeds differ by 4
    half = stats.t.ppf(0.975, 2) * std / np.sqrt(3) / 2
    assert fixed[["these_low", "these_high"]].tolist() == pytest.approx([5.5 - half, 5.5 + half])
