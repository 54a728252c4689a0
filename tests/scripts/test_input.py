"""The cost of reading images. Bounds are those of experiments/benchmark_input.py; the slow test runs all of it."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pvera.data import store

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "benchmark_input.py"


def test_batches_from_the_store_cost_little_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    share = runpy.run_path(str(SCRIPT))["share"](tmp_path, "tiny", 160)
    assert share["what"] == "share of an epoch on tiny at 32 pixels"
    assert 0 < float(share["value"].removesuffix(" %")) < 2 and share["holds"]


def test_parts_that_are_not_measured_again_stay(tmp_path):
    merge = runpy.run_path(str(SCRIPT))["merge"]
    first = pd.DataFrame({"part": ["share", "memory"], "value": ["1 %", "5 MiB"], "machine": "a"})
    merge(tmp_path / "none.csv", first).to_csv(tmp_path / "input.csv", index=False)
    second = pd.DataFrame({"part": ["preparation", "memory"], "value": ["2", "6 MiB"], "machine": "b"})
    table = merge(tmp_path / "input.csv", second)
    assert table.to_dict("list") == {
        "part": ["share", "preparation", "memory"],
        "value": ["1 %", "2", "6 MiB"],
        "machine": ["a", "b", "b"],
    }


def test_the_page_is_one_table_and_the_machines():
    row = {"what": "memory", "value": "5 MiB", "bound": "under 9 MiB", "holds": True, "machine": "cpu"}
    page = runpy.run_path(str(SCRIPT))["describe"](pd.DataFrame([row, row | {"holds": False}]))
    assert page.splitlines() == [
        "|  | measured | bound | holds |",
        "| :-- | :-- | :-- | :-- |",
        "| memory | 5 MiB | under 9 MiB | yes |",
        "| memory | 5 MiB | under 9 MiB | no |",
        "",
        "cpu. Measured by experiments/benchmark_input.py.",
    ]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_bound_holds(tmp_path):
    """It needs an idle machine and 12 GB on the disk."""
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--output", str(tmp_path / "output")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_csv(tmp_path / "output" / "input.csv")
    assert len(table) == 4 and table.holds.all()
    assert os.listdir(tmp_path) == ["output"], "the data sets are removed"
