"""Timings: the record, and experiments/benchmark_speed.py on the small backbone."""

from pathlib import Path

import pandas as pd
import scripts
from benchmark_speed import Bench

RECORDS = Path(__file__).resolve().parents[2] / "results/performance"


def test_paired_measurements_have_quartiles(monkeypatch):
    """Three pairs after the warm-up; a bound that counts twice."""
    bench = Bench("tiny", "float32", "cpu", 3)
    monkeypatch.setattr(bench, "seconds", lambda function: function())
    timed, frozen = iter([9, 4, 8, 18]), iter([9, 1, 1, 1.5])
    bench.compare("step", "what", lambda: next(timed), "bound", lambda: next(frozen), 2.0)
    (row,) = bench.rows
    named = {"part": "step", "backbone": "tiny", "precision": "float32"}
    named |= {"what": "what", "bound": "bound"}
    numbers = {"value": 8, "bound_value": 2, "ratio": 4, "low": 3, "high": 5}
    assert row == named | numbers


def test_the_script_measures_each_method(tmp_path, capsys):
    options = ("--backbones", "tiny", "--precisions", "float32", "--repeats", 1)
    options = (*options, "--output", tmp_path)
    scripts.execute("benchmark_speed", *options)
    (path,) = tmp_path.glob("speed_cpu_*.csv")
    rows = pd.read_csv(path)
    assert "PVeRA, r = 32, grid of 3" in capsys.readouterr().out
    assert rows.groupby("part").size().to_dict() == {"step": 8, "evaluate": 1, "sample": 1}
    assert list(rows) == list(pd.read_csv(RECORDS / "speed_cpu_amd_epyc.csv"))
    assert (rows[["value", "bound_value", "ratio", "low"]] > 0).all(axis=None)
    products = rows["bound"].str.endswith("and its own products")
    titles = rows.loc[products, "what"].str.partition(",")[0]
    assert set(titles) == {"Bottleneck", "AdaptFormer"}

    written = path.read_bytes()
    assert "exists: choose another folder" in scripts.refusal("benchmark_speed", capsys, *options)
    assert path.read_bytes() == written
