"""Pages of docs/ work: what they say, done in a copy of the checkout, gives what they name."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import photographs
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
OWN_DATA = (ROOT / "docs" / "own-data.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
PLACES = {"In": "new", "At the end of": "end", "The one cell of": "cell"}
BLOCK = re.compile(rf"(?:^({'|'.join(PLACES)}) `([^`]+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)


def execute(command: str, folder: Path) -> str:
    """Execute one line of a page's commands, with this Python and the library in `folder`; return what it prints."""
    words = f"{sys.executable}{command.removeprefix('python')}"
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def follow(section: str, folder: Path) -> set[str]:
    """Follow a section of the page in `folder`; return the files that it touched."""
    touched = set()
    for place, name, language, code in BLOCK.findall(SECTIONS[section]):
        if language == "sh":
            for command in code.strip().splitlines():
                execute(command, folder)
            continue
        file = folder / name
        touched.add(name)
        assert place and file.exists() == (PLACES[place] == "end"), name
        if PLACES[place] == "cell":
            nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code.rstrip())]), file)
        else:
            with open(file, "a") as out:
                out.write(f"\n\n{code}" if PLACES[place] == "end" else code)
    return touched


@pytest.fixture
def checkout(tmp_path):
    """The library and the scripts, which write below their own folder, and a folder for notebooks."""
    for name in ("pvera", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "analysis").mkdir()
    return tmp_path


def record(checkout: Path, place: str) -> dict:
    return json.loads((checkout / "results" / place / "seed0.json").read_text())


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_extending(checkout):
    assert list(SECTIONS) == ["A data set", "A method", "A backbone", "An analysis"]

    touched = follow("A data set", checkout)
    assert touched - {"make_shades.py"} == {"pvera/data/tasks.py", "experiments/profiles/shades.yaml"}
    for method in ("vera", "pvera"):
        assert record(checkout, f"shades/benchmark/tiny/shades/{method}")["test"]["images"] == 30
    assert record(checkout, "shades/beta/tiny/shades/pvera")["chosen"]["grid"]["beta"] in (1e-4, 1e-2)

    assert len(follow("A method", checkout)) == 3
    fa, lora = (
        record(checkout, f"lorafa/benchmark/tiny/shades/{m}")["members"][0]["adapter_parameters"]
        for m in ("lorafa", "lora")
    )
    assert fa == 3072 and lora == 2 * fa

    assert follow("A backbone", checkout) == {"pvera/backbones.py"}
    assert record(checkout, "lorafa/benchmark/small/shades/lorafa")["test"]["images"] == 30

    assert len(follow("An analysis", checkout)) == 4
    assert record(checkout, "shades/entropy/tiny/shades/pvera")["config"]["draws"] == 16
    table = (checkout / "results/shades/tables/entropy.md").read_text()
    assert re.search(r"\| Shades \| \d\.\d{3} \| \d\.\d{3} \|", table), table


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a busy machine trains slowly
def test_three_commands_lead_from_own_photographs_to_a_number(checkout, tmp_path):
    photographs.make(tmp_path / "photographs", len(photographs.MODES) * 2)
    (block,) = re.findall(r"```sh\n(.*?)```", OWN_DATA, re.DOTALL)  # the others are bash
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


# The tutorial


TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs():
    notebook = nbformat.read(TUTORIAL, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute(cwd=TUTORIAL.parent)
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert float(re.search(r"test accuracy ([\d.]+) %", printed)[1]) > 30, "chance is 10 %"
    assert float(re.search(r"loading and merging: (\S+)", printed)[1]) < 1e-4
