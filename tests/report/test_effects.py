"""The measured effects of the protocols' switches."""

from dataclasses import asdict

import numpy as np
import pytest
from records import make_record
from scipy.stats import t

from pvera import METHODS
from pvera.report.tables import protocol as tables
from pvera.study import results
from pvera.study.protocol import one_at_a_time


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
