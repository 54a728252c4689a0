"""docs/own-data.md works: its three commands end in a number, on real photographs in every file mode."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import photographs
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own-data.md").read_text()


@pytest.fixture
def checkout(tmp_path):
    """The library and the scripts, which write below their own folder."""
    for name in ("pvera", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def execute(command: str, folder: Path) -> str:
    words = f"{sys.executable}{command.removeprefix('python')}"
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a busy machine trains slowly
def test_three_commands_from_a_clone_to_a_number(checkout, tmp_path):
    photographs.make(tmp_path / "photographs", len(photographs.MODES) * 2)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)  # the others are bash
    environment, *commands = block.strip().splitlines()
    assert environment == "source setup_env.sh"  # test_environment.py makes an environment with it
    readme = (ROOT / "README.md").read_text()
    assert len(commands) == 2 and all(f"`{command}`" in readme for command in [environment, *commands])
    training, evaluation = (execute(c.replace("FOLDER", str(tmp_path / "photographs")), checkout) for c in commands)
    assert "pictures: 4 classes; images: 40 train, 12 validation, 12 test; stratified split from seed 0" in training
    place = checkout / "results/own/benchmark/tiny/pictures"
    accuracy = json.loads((place / "pvera/seed0.json").read_text())["test"]["accuracy"]
    assert re.search(r"\| Accuracy \| (\S+) \|", evaluation)[1] == f"{accuracy:.6f}" and accuracy >= 0.5
    (last,) = re.findall(r"^adapter: (\S+);", training, re.MULTILINE)
    assert last == str(place / "pvera/seed0.safetensors")
    predicted = execute(f"python experiments/predict.py {last} {tmp_path / 'photographs/cat'}", checkout)
    assert len(predicted.splitlines()) == 1 + 2 * len(photographs.MODES)
