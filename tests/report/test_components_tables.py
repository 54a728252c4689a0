"""Tables of PVeRA's components, on records with known accuracies."""

import pytest
from hand import judged
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
