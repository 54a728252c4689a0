"""The profile `paper`, shrunk, from folders of VTAB-1k's shape to the paper's tables, by the commands of a user.

`--images` has each run read a few images of every split, in one epoch. The slow test is the rehearsal
(`bash run_all.sh rehearsal`), which does every stage of `paper`.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pvera.data import tasks
from pvera.processes import cores
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]
PAPER = Profile.read(ROOT / "experiments" / "profiles" / "paper.yaml")


def test_the_rehearsal_is_the_paper_in_small():
    rehearsal = Profile.read(ROOT / "experiments/profiles/rehearsal.yaml")
    for key in ("analyses", "methods", "protocol", "precision", "learning_rate", "choose"):
        assert getattr(rehearsal, key) == getattr(PAPER, key), key
    of_paper = {name: experiment for name, experiment in PAPER.experiments.items() if not experiment.on_request}
    elsewhere = {"backbones": None, "datasets": None}
    assert {name: experiment.model_copy(update=elsewhere) for name, experiment in rehearsal.experiments.items()} == {
        name: experiment.model_copy(update=elsewhere) for name, experiment in of_paper.items()
    }
    for key in ("backbones", "datasets", "methods", "experiments"):
        assert getattr(rehearsal.language, key) == getattr(PAPER.language, key), key
    assert len({tasks.task(name).category for name in rehearsal.datasets}) == 3
    assert (rehearsal.images, rehearsal.training.epochs) == (16, 1)


@pytest.mark.parametrize("name", ["vtab_tiny", "vtab_small"])
def test_a_profile_without_a_cluster_lists_runs_of_each_experiment_that_takes_no_choice(name, tmp_path):
    profile = Profile.read(ROOT / f"experiments/profiles/{name}.yaml")
    for experiment, described in profile.experiments.items():
        assert described.take or list_runs(profile, experiment, tmp_path), experiment


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_rehearsal_makes_marked_tables_and_figures_in_ten_minutes(tmp_path):
    for name in ("pvera", "experiments", "analysis"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "results").mkdir()
    for name in ("published", "paper", "performance", "bfloat16", "mini"):
        (tmp_path / "results" / name).symlink_to(ROOT / "results" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "experiments/rehearsal.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    seconds, busy = time.monotonic() - started, max(1, os.getloadavg()[1] / cores())
    assert seconds < 600 * busy, f"{seconds:.0f} seconds, while programs shared {busy:.1f} to one core"

    runs = {
        name: results.load_runs(tmp_path / "results", "rehearsal", name) for name in ("benchmark", "rank", "position")
    }
    assert {name: len(listed) for name, listed in runs.items()} == {"benchmark": 3 * 8 * 2, "rank": 2, "position": 2}
    for name in ("uncertainty", "out_of_distribution", "latents", "cost", "language", "language_beta"):
        assert list((tmp_path / "results/rehearsal" / name).rglob("*.json")), name
    tables = list((tmp_path / "results/rehearsal/tables").glob("*.md"))
    assert {"main", "detailed", "grid", "rank", "position", "language", "uncertainty"} <= {path.stem for path in tables}
    assert all("ehearsal" in path.read_text().partition("\n")[0] for path in tables)
    main = (tmp_path / "results/rehearsal/tables/main.md").read_text()
    assert "seeds 0, 1" in main and "48 runs" in main
    assert {"main_test_vit.png", "rank.png", "main_table.ipynb"} <= {
        path.name for path in (tmp_path / "figures/rehearsal").iterdir()
    }
