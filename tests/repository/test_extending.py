"""docs/extending.md works: its blocks, added to a copy of the checkout, give the results that it names."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
PLACES = {"In": "new", "At the end of": "end", "The one cell of": "cell"}
BLOCK = re.compile(rf"(?:^({'|'.join(PLACES)}) `([^`]+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE)


def execute(command: str, folder: Path) -> None:
    """Execute one line of a page's commands, with this Python and the library in `folder`."""
    words = f"{sys.executable}{command.removeprefix('python')}"
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The library and the scripts, and a folder for notebooks."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pvera", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "analysis").mkdir()
    return folder


def record(checkout: Path, place: str) -> dict:
    return json.loads((checkout / "results" / place / "seed0.json").read_text())


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_the_page(checkout):
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
