"""Timings: the record, and experiments/benchmark_speed.py on the small backbone."""

import sys
from types import SimpleNamespace

import benchmark_speed
import pandas as pd
import pytest
import scripts


def test_paired_measurements_have_quartiles(monkeypatch):
    """Three pairs after the warm-up; a bound that counts twice."""
    bench = SimpleNamespace(seconds=lambda function: function())
    timed, frozen = iter([9, 4, 8, 18]), iter([9, 1, 1, 1.5])
    part = [("what", "bound", lambda: next(timed), lambda: next(frozen), 2.0)]
    monkeypatch.setitem(benchmark_speed.PARTS, "step", lambda _: part)
    assert list(benchmark_speed.measure(bench, "step", 3)) == [("what", "bound", 8, 2, 4, 3, 5)]


def test_the_script_measures_each_method(tmp_path, capsys):
    options = (
        "--backbones",
        "tiny",
        "--precisions",
        "float32",
        "--repeats",
        1,
        "--output",
        tmp_path,
    )
    scripts.execute("benchmark_speed", *options)
    (path,) = tmp_path.glob("speed_cpu_*.csv")
    rows = pd.read_csv(path)
    assert "PVeRA, r = 32, grid of 3" in capsys.readouterr().out
    assert rows.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 2}
    assert (rows[["value", "bound_value", "ratio", "low"]] > 0).all(axis=None)
    scripts.execute(
        "benchmark_speed", *options, "--parts", "evaluate"
    )  # replaces its rows, keeps the others
    again = pd.read_csv(path)
    assert again.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 2}
    assert set(again.loc[again["part"] == "step", "value"]) == set(
        rows.loc[rows["part"] == "step", "value"]
    )


def test_steps_beside_peft_are_of_equal_adapters(tmp_path, monkeypatch, capsys):
    """Losses of two steps agree: the first has b = 0, so that draws do not matter. Without peft there is one line."""
    small = {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    monkeypatch.setattr(benchmark_speed, "SIZES", small)
    bench = benchmark_speed.Bench(benchmark_speed.BESIDE_PEFT, "float32", "cpu")
    losses = {
        what: [function(), function()]
        for what, _, function, *_ in benchmark_speed.beside_peft(bench)
    }
    pairs = [
        (losses[what], losses[there])
        for there in losses
        for what in losses
        if there.startswith(what + ", peft")
    ]
    assert len(losses) == 11 and len(pairs) == 5
    for here, there in pairs:
        assert here[0] == pytest.approx(there[0], abs=1e-5) and here[1] < here[0]
    rows = {
        what: (here, frozen)
        for what, _, here, frozen, *_ in benchmark_speed.measure(bench, "memory", 1)
    }
    with_kl, without = (rows[f"PVeRA, r = 256{end}"] for end in (", KL term", ""))
    tokens, kept = 16 * 17, 4  # images and their tokens; adapted projections
    assert with_kl[0] - without[0] == pytest.approx(4 * 256 * tokens * kept, rel=0.01)  # μ in fp32
    assert without[0] > without[1] > 0
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "peft is not" in scripts.refusal(
        "benchmark_speed", capsys, "--parts", "peft", "--output", tmp_path
    )
