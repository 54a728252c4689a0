"""Small folders with VTAB-1k's layout: its names, classes and numbers of training images, few of them distinct. Also
the fixtures of tests on them."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import scripts
from rehearsal import write_vtab as write

from pvera.data import store, vtab

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "experiments" / "prepare_vtab.py"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def call(capsys):
    """Run the script in this process; return its exit code, output and error message."""
    return partial(scripts.outcome, "prepare_vtab", capsys)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """KITTI with all of its test images; no test changes it."""
    root = tmp_path_factory.mktemp("vtab")
    write(root, ["kitti"], 711)
    return root


def accept(root: Path) -> None:
    """Record that the data sets below `root` are used as they are, as `prepare_vtab.py --accept` does."""
    findings = {name: vtab.check(root, name) for name in vtab.NAMES if (root / name).exists()}
    (root / vtab.RECORD).write_text(json.dumps(findings))


def copy(folder: Path, target: Path) -> None:
    """Copy a data set's split files; its images become links to the same files."""
    shutil.copytree(folder, target, copy_function=os.link)
    for file in target.glob("*.txt"):
        content = file.read_text()
        file.unlink()  # of the link alone
        file.write_text(content)


def edit(file: Path, change) -> None:
    """Apply `change` to the list of a split file's lines."""
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(lines)))


def state(output: str, name: str) -> str:
    """Return the state of a data set as prepare_vtab.py prints it."""
    (line,) = [line for line in output.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).strip()
