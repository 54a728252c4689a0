"""PROTOCOL.md, and the measured effects of its switches."""

import functools
import importlib
import operator
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from hand import lines
from records import make_record, write_all
from scipy.stats import t

from pvera import METHODS
from pvera.errors import InputError
from pvera.report.tables import protocol as tables
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.protocol import REFERENCES, one_at_a_time

ROOT = Path(__file__).parents[2]


def record(switch, method="lora", dataset="digits", seed=0, accuracy=0.5):
    rules = one_at_a_time()[switch].protocol
    place = {"experiment": f"protocol_{switch}", "protocol": rules.name, "config": {"protocol": asdict(rules)}}
    run = make_record(method, dataset, seed, grid={"rank": [8]}, **place)
    run["config"]["members"][0]["method"] |= asdict(METHODS[method]()) | rules.adapters.get(method, {})
    run["test"] |= {"accuracy": accuracy, "ece": 0.1, "ace": 0.1}
    run["members"][0]["best_validation_loss"] = 1.0
    return run | {"config_hash": results.config_hash(run["config"])}


def paired(switch, accuracies, method="lora", reference=0.5):
    """Return {switch: runs}: runs of `switch` and of its reference, one pair per accuracy."""
    places = [("digits", 0), ("digits", 1), ("vessels", 0), ("vessels", 1)][: len(accuracies)]
    corrected = one_at_a_time()[switch].reference
    return {
        corrected: [record(corrected, method, *place, accuracy=reference) for place in places],
        switch: [record(switch, method, *place, accuracy=value) for place, value in zip(places, accuracies)],
    }


# PROTOCOL.md

LINK = re.compile(r"\(\[`([\w.]+)`\]\(([\w/.]+)\)\) \| (.*) \|$")


def rows():
    """Return the points of PROTOCOL.md: its line, what it points to, and its switches."""
    lines = (ROOT / "PROTOCOL.md").read_text("utf-8").splitlines()
    matches = [(line, LINK.search(line)) for line in lines if LINK.search(line)]
    return [(line, match[2], match[1], re.findall(r"`(\w+)`", match[3])) for line, match in matches]


def resolve(file, name):
    """Return the value of the dotted `name` in `file`, a YAML file or a module."""
    if file.endswith(".yaml"):
        return functools.reduce(operator.getitem, name.split("."), yaml.safe_load((ROOT / file).read_text()))
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    return functools.reduce(getattr, name.split("."), module)


def test_every_switch_has_its_row():
    named = [switch for *_, switches in rows() for switch in switches]
    assert sorted(named) == sorted(one_at_a_time().keys() - {*REFERENCES, "published"})


def test_rows_point_into_the_code_and_say_what_both_protocols_do():
    for line, file, name, switches in rows():
        resolve(file, name)
        assert ("`corrected`" in line and "`published`" in line) if switches else "both" in line


# The effects


def test_effects_by_hand():
    runs = paired("lora_same_draw", [0.52, 0.54, 0.5, 0.56]) | {
        "own_draws": paired("own_draws", [0.51, 0.49, 0.5, 0.52])["own_draws"]
    }
    table = tables.summary(tables.differences(runs)).set_index(["switch", "metric"])
    row = table.loc[("lora_same_draw", "accuracy")]
    assert row["mean"] == pytest.approx(3) and row["pairs"] == 4 and row["methods"] == 1
    spread = np.std([2, 4, 0, 6], ddof=1) / 2 * t.ppf(0.975, 3)
    assert (row["low"], row["high"]) == pytest.approx((3 - spread, 3 + spread))
    # Chance: +1, -1, 0 and +2 around zero, so ±1.70 for a mean of four.
    assert row["noise"] == pytest.approx(t.ppf(0.975, 4) * np.sqrt(6 / 4 / 4))
    assert row["mean"] > row["noise"] and not row["beyond"], "the interval contains zero"
    assert not table.loc[("own_draws", "accuracy"), "beyond"] and table.loc[("lora_same_draw", "ece"), "mean"] == 0
    runs["lora_same_draw"][0] |= {"chosen": None, "test": None}  # diverged
    pairs = tables.differences(runs)
    assert pairs.loc[pairs["switch"] == "lora_same_draw", "accuracy"].isna().tolist() == [True, False, False, False]
    assert tables.summary(pairs).set_index(["switch", "metric"]).loc["lora_same_draw", "pairs"].eq(3).all()


def test_methods_are_averaged_before_pairs_are_counted():
    runs = paired("shuffle", [0.6, 0.6])
    for name, records in paired("shuffle", [0.4, 0.5], "vera").items():
        runs[name] += records
    table = tables.summary(tables.differences(runs)).set_index("metric")
    assert table.at["accuracy", "mean"] == pytest.approx(2.5) and table.at["accuracy", "pairs"] == 2
    assert np.isnan(table.at["accuracy", "noise"])  # no run shows the size of chance
    noise = [paired("own_draws", [0.51, 0.53], method)["own_draws"] for method in ("lora", "vera")]
    table = tables.summary(tables.differences(runs | {"own_draws": noise[0] + noise[1]}))
    # The bound on chance for the mean of four runs, +1 and +3 twice.
    bound = table.set_index(["switch", "metric"]).at[("shuffle", "accuracy"), "noise"]
    assert bound == pytest.approx(t.ppf(0.975, 4) * np.sqrt((1 + 9) / 2 / 4))


def test_a_switch_of_the_grid_is_compared_with_runs_of_the_grid():
    runs = paired("joint_stop", [0.52, 0.53]) | {"corrected": paired("shuffle", [0.5] * 2)["corrected"]}
    for run in (run for name in ("joint_stop", "corrected_grid") for run in runs[name]):
        run["config"]["max_epochs"] = 500  # unlike the runs of `corrected`
    pairs = tables.differences(runs)
    assert pairs["switch"].eq("joint_stop").all() and pairs["accuracy"].round(6).tolist() == [2, 3]
    (row,) = lines(tables.switches(runs))
    assert row[0] == "`joint_stop`" and "all of them" in tables.switches(runs).source


def test_each_switch_is_trained_where_it_acts():
    profile = Profile.read(ROOT / "experiments" / "profiles" / "mini.yaml")
    names = [name for name in profile.experiments if name.startswith("protocol")]
    runs = [run for name in names for run in list_runs(profile, name, ROOT / "results")]
    assert all(run.path.exists() for run in runs)
    for name, variant in one_at_a_time().items():
        of_switch = [run for run in runs if run.experiment == f"protocol_{name}"]
        assert {len(run.members) for run in of_switch} == {3 if variant.grid else 1}
        assert all(run.protocol == variant.protocol for run in of_switch)
        every = profile.experiments["protocol_joint_stop" if variant.grid else "protocol"].methods
        assert {run.method for run in of_switch} == ({variant.method} if variant.method else set(every))


def test_load(tmp_path):
    assert tables.load(tmp_path, "mine") == {}
    runs = paired("shuffle", [0.6])
    write_all(tmp_path, runs["shuffle"])
    with pytest.raises(InputError, match="protocol_shuffle need the runs of protocol_corrected$"):
        tables.load(tmp_path, "mine")
    write_all(tmp_path, runs["corrected"])
    assert list(tables.load(tmp_path, "mine")) == ["corrected", "shuffle"]
    write_all(tmp_path, paired("joint_stop", [0.6])["joint_stop"])
    with pytest.raises(InputError, match="protocol_joint_stop need the runs of protocol_corrected_grid$"):
        tables.load(tmp_path, "mine")
