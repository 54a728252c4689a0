"""Timings: the record, and experiments/benchmark_speed.py on the small backbone."""

import sys
from types import SimpleNamespace

import benchmark_speed
import pandas as pd
import pytest
import scripts
from benchmark_speed import PEFT_BACKBONE, Bench, Pair


def test_paired_measurements_have_quartiles(monkeypatch):
    """Three pairs after the warm-up; a bound that counts twice."""
    bench = SimpleNamespace(seconds=lambda function: function())
    timed, frozen = iter([9, 4, 8, 18]), iter([9, 1, 1, 1.5])
    pair = Pair("what", "bound", lambda: next(timed), lambda: next(frozen), 2.0)
    monkeypatch.setitem(benchmark_speed.PARTS, "step", lambda _: [pair])
    (measured,) = benchmark_speed.measure(bench, "step", 3)
    assert list(measured.values()) == ["what", "bound", 8, 2, 4, 3, 5]
    assert list(measured) == benchmark_speed.COLUMNS[7:]


def test_the_script_measures_each_method(tmp_path, capsys):
    options = ("--backbones", "tiny", "--precisions", "float32", "--repeats", 1)
    options = (*options, "--output", tmp_path)
    scripts.execute("benchmark_speed", *options)
    (path,) = tmp_path.glob("speed_cpu_*.csv")
    rows = pd.read_csv(path)
    assert "PVeRA, r = 32, grid of 3" in capsys.readouterr().out
    assert rows.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 1}
    assert (rows[["value", "bound_value", "ratio", "low"]] > 0).all(axis=None)

    # Another call replaces the rows of its part, and keeps the others.
    scripts.execute("benchmark_speed", *options, "--parts", "evaluate")
    again = pd.read_csv(path)
    assert again.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 1}
    steps, steps_again = (frame.loc[frame["part"] == "step", "value"] for frame in (rows, again))
    assert set(steps_again) == set(steps)


def test_steps_in_peft_are_of_equal_adapters(tmp_path, monkeypatch, capsys):
    """Losses of two steps agree: the first has b = 0, so that samples do not matter.

    Without peft there is one line.
    """
    small = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2}
    small |= {"image_size": 32, "patch_size": 8}
    monkeypatch.setattr(benchmark_speed, "SIZES", small)
    bench = Bench(PEFT_BACKBONE, "float32", "cpu")
    losses = {
        pair.what: [pair.function(), pair.function()]
        for pair in benchmark_speed.compare_with_peft(bench)
    }
    pairs = []
    for there in losses:
        here = there.partition(", peft")[0]
        if here != there:
            pairs.append((losses[here], losses[there]))
    assert len(losses) == 11 and len(pairs) == 5
    for here, there in pairs:
        assert here[0] == pytest.approx(there[0], abs=1e-5) and here[1] < here[0]

    measured = benchmark_speed.measure(bench, "memory", 1)
    rows = {row["what"]: (row["value"], row["bound_value"]) for row in measured}
    with_kl, without = (rows[f"PVeRA, r = 256{end}"] for end in (", KL term", ""))
    tokens, kept = 16 * 17, 4  # images and their tokens; adapted projections
    assert with_kl[0] - without[0] == pytest.approx(4 * 256 * tokens * kept, rel=0.01)  # μ in fp32
    assert without[0] > without[1] > 0
    monkeypatch.setitem(sys.modules, "peft", None)
    refusal = scripts.refusal("benchmark_speed", capsys, "--parts", "peft", "--output", tmp_path)
    assert "peft is not" in refusal
