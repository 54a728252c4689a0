"""Tables of PVeRA's components, on records with known accuracies."""

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
    more, noise, fixed, _, kl, chosen, equal = judged("Components", components.values(runs)).to_dict("records")
    low, high = stats.t.interval(0.95, 1, 6, stats.sem([7, 5]))
    assert more["verdict"] == "undecided" and more["difference"] == pytest.approx(6)
    assert (more["low"], more["high"]) == pytest.approx((low, high))
    assert noise["difference"] == pytest.approx(6) and kl["difference"] == pytest.approx(0)
    assert chosen["low"] == kl["low"]
    assert fixed["reading"] == "no runs of PVeRA, σ = 1 fixed, β = 0"
    assert equal["reading"] == "no runs of VeRA, equal budget"


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


def test_noises_of_several_sizes_stand_between_none_and_a_learned_size(runs, tmp_path):
    """σ = 1 is trained on both tasks, the others on Digits alone, where all are compared."""
    assert components.noises(tmp_path, "mine", runs) == {}, "no other size"
    for method, experiment, tasks in (("pvera", "noise_sigma_1", TASKS), ("pvera", "noise_sigma_0.3", TASKS[:1]),
                                      ("vera", "noise_dropout_0.5", TASKS[:1])):  # fmt: skip
        for dataset in tasks:
            record = make_record(method, dataset, 0, 59, 100, experiment=experiment)
            record["test"]["ace"] = 0.05
            write_all(tmp_path, [record])
    runs = components.load(tmp_path, "mine")
    assert components.values(runs)["fixed_sigma"].dropna().tolist() == [59, 59]
    sizes = components.noises(tmp_path, "mine", runs)
    assert {(run["dataset"], run["seed"]) for records in sizes.values() for run in records} == {(TASKS[0], 0)}
    rows = lines(components.table(sizes, "components_noise", components.NOISES_CAPTION))
    assert [row[:2] for row in rows] == [
        ["VeRA", "50.0"], ["VeRA, dropout 0.5 of the latent", "59.0"], ["PVeRA, z = μ, β = 0", "50.0"],
        ["PVeRA, σ = 0.3 fixed, β = 0", "59.0"], ["PVeRA, σ = 1 fixed, β = 0", "59.0"],
        ["PVeRA, σ learned, β = 0", "58.0"],
    ]  # fmt: skip
