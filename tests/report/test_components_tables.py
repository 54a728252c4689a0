"""Tables of PVeRA's components, on records with known accuracies."""

import numpy as np
import pytest
from hand import judged, lines
from records import make_record, write_all
from scipy import stats

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


def test_noise_of_fixed_size_stands_between_no_noise_and_a_learned_size(tmp_path):
    """It comes from an experiment of its own; on these tasks only seeds vary (Student's t, by hand)."""
    for name in CORRECT:
        write_all(tmp_path, list(records(name)))
    for dataset, counts in zip(TASKS, [[56, 59, 62], [44, 45, 46]], strict=True):
        write_all(tmp_path, [make_record("pvera", dataset, seed, correct, 100, experiment="noise_sigma_1")
                             for seed, correct in enumerate(counts)])  # fmt: skip
    runs = components.load(tmp_path, "mine")
    rows = judged("Components", components.values(runs))
    assert components.noises(tmp_path, "mine", runs) == {}, "no other size"
    fixed, learned = (rows[rows.index.str.contains(words)].iloc[0] for words in ("fixed size", "Learning σ"))
    assert fixed["difference"] == pytest.approx(5.5) and learned["difference"] == pytest.approx(0.5)
    std = np.std([6, 7, 8], ddof=1)  # on Digits; on Sprites all seeds differ by 4
    half = stats.t.ppf(0.975, 2) * std / np.sqrt(3) / 2
    assert fixed[["these_low", "these_high"]].tolist() == pytest.approx([5.5 - half, 5.5 + half])


def test_noises_of_several_sizes_stand_beside_the_components_of_their_tasks(tmp_path):
    """σ = 1 is trained on both tasks, the others on Digits alone."""
    for name in CORRECT:
        write_all(tmp_path, list(records(name)))
    for method, experiment, tasks in (("pvera", "noise_sigma_1", TASKS), ("pvera", "noise_sigma_0.3", TASKS[:1]),
                                      ("vera", "noise_dropout_0.5", TASKS[:1])):  # fmt: skip
        for dataset in tasks:
            record = make_record(method, dataset, 0, 50, 100, experiment=experiment)
            record["test"]["ace"] = 0.05
            write_all(tmp_path, [record])
    found = components.noises(tmp_path, "mine", components.load(tmp_path, "mine"))
    assert {(run["dataset"], run["seed"]) for runs in found.values() for run in runs} == {(TASKS[0], 0)}
    table = components.table(found, "components_noise", components.NOISES_CAPTION)
    assert [row[0] for row in lines(table)] == [
        "VeRA", "VeRA, dropout 0.5 of the latent", "PVeRA, z = μ, β = 0", "PVeRA, σ = 0.3 fixed, β = 0",
        "PVeRA, σ = 1 fixed, β = 0", "PVeRA, σ learned, β = 0",
    ]  # fmt: skip
    assert lines(table)[1][1] == "50.0"
