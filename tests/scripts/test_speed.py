"""Timings: the record, the figures, and experiments/benchmark_speed.py on the small backbone."""

import json
from pathlib import Path
from types import SimpleNamespace

import benchmark_speed
import scripts

from pvera.report.tables import speed

ROOT = Path(__file__).resolve().parents[2]


def read(path):
    return json.loads(path.read_text())


def test_committed_records_are_their_pages():
    for path in (ROOT / "results/performance").glob("speed_*.json"):
        assert speed.describe(read(path)) == path.with_suffix(".md").read_text()


def test_paired_measurements_have_quartiles(monkeypatch):
    """Three pairs after the warm-up; a bound that counts twice."""
    bench = SimpleNamespace(seconds=lambda function: function())
    timed, frozen = iter([9, 4, 8, 18]), iter([9, 1, 1, 1.5])
    part = [("what", "bound", lambda: next(timed), lambda: next(frozen), 1.25, 2.0)]
    monkeypatch.setitem(benchmark_speed.PARTS, "step", lambda _: part)
    assert list(benchmark_speed.measure(bench, "step", 3)) == [("what", "bound", 8, 2, 4, 1.25, 3, 5)]


def test_the_script_measures_each_method(tmp_path, capsys):
    options = ("--backbones", "tiny", "--precisions", "float32", "--repeats", 1, "--output", tmp_path)
    scripts.execute("benchmark_speed", *options)
    (path,) = tmp_path.glob("speed_cpu_*.json")
    assert capsys.readouterr().out.strip() == path.with_suffix(".md").read_text().strip()
    rows = speed.frame(read(path))
    assert rows.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 2}
    assert (rows[["value", "bound_value", "ratio", "low"]] > 0).all(axis=None)
    targets = rows[rows["part"] == "step"].set_index("what")["target"]
    assert targets["PVeRA, r = 32"] == targets["PVeRA, r = 32, grid of 3"] == 1.25 and targets["LoRA, r = 16"] == 1.15
