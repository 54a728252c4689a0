"""Pages of docs/ and profiles work: done in a copy of the checkout, they give what they name."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import photographs
import pytest
import safetensors.torch
import scripts
from nbclient import NotebookClient
from rehearsal import write_vtab

from pvera import backbones
from pvera.data import tasks, vtab
from pvera.study import results
from pvera.study.profiles import Profile
from pvera.study.worker import cores

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
OWN_DATA = (ROOT / "docs" / "own-data.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
#: Words before a block of code -> where it goes in the file that they name.
PARTS = {"In": "new", "At the end of": "end", "The one cell of": "cell"}
BLOCK = re.compile(
    rf"(?:^({'|'.join(PARTS)}) `([^`]+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL | re.MULTILINE
)


def execute(command: str, folder: Path) -> str:
    """Execute one command of a page with the library in `folder`; return what it prints."""
    done = subprocess.run(
        f"{sys.executable}{command.removeprefix('python')}",
        shell=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def follow(section: str, folder: Path) -> set[str]:
    """Follow a section of the page in `folder`; return the files that it touched."""
    touched = set()
    for words, name, language, code in BLOCK.findall(SECTIONS[section]):
        if language == "sh":
            for command in code.strip().splitlines():
                execute(command, folder)
            continue
        file = folder / name
        part = PARTS[words]
        assert file.exists() == (part == "end"), name
        if part == "cell":
            cell = nbformat.v4.new_code_cell(code.rstrip())
            nbformat.write(nbformat.v4.new_notebook(cells=[cell]), file)
        else:
            with open(file, "a") as out:
                out.write(f"\n\n{code}" if part == "end" else code)
        touched.add(name)
    return touched


@pytest.fixture
def checkout(tmp_path):
    """The library, the scripts, which write below their own folder, and a folder of notebooks."""
    for name in ("pvera", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "analysis").mkdir()
    shutil.copy(ROOT / "analysis/report.yaml", tmp_path / "analysis")
    return tmp_path


def record(checkout: Path, folder: str) -> dict:
    return json.loads((checkout / "results" / folder / "seed0.json").read_text())


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_extending(checkout):
    assert list(SECTIONS) == ["A data set", "A method", "A backbone", "An analysis"]

    touched = follow("A data set", checkout)
    touched.remove("make_shades.py")
    assert touched == {"pvera/data/tasks.py", "experiments/profiles/shades.yaml"}
    for method in ("vera", "pvera"):
        assert record(checkout, f"shades/benchmark/tiny/shades/{method}")["test"]["images"] == 30
    chosen = record(checkout, "shades/beta/tiny/shades/pvera")["chosen"]
    assert chosen["grid"]["beta"] in (1e-4, 1e-2)

    assert len(follow("A method", checkout)) == 3
    sizes = {}
    for method in ("lorafa", "lora"):
        (member, *_) = record(checkout, f"lorafa/benchmark/tiny/shades/{method}")["members"]
        sizes[method] = member["adapter_parameters"]
    assert sizes == {"lorafa": 3072, "lora": 2 * 3072}

    assert follow("A backbone", checkout) == {"pvera/backbones.py"}
    assert record(checkout, "lorafa/benchmark/small/shades/lorafa")["test"]["images"] == 30

    assert len(follow("An analysis", checkout)) == 4
    assert record(checkout, "shades/entropy/tiny/shades/pvera")["config"]["samples"] == 16
    table = (checkout / "results/shades/tables/entropy.md").read_text()
    assert re.search(r"\| Shades \| \d\.\d{3} \| \d\.\d{3} \|", table), table


# A busy machine trains slowly.
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_commands_lead_from_own_photographs_to_a_number(checkout, tmp_path):
    photographs.make(tmp_path / "photographs", len(photographs.MODES) * 2)
    # The other blocks are bash.
    (block,) = re.findall(r"```sh\n(.*?)```", OWN_DATA, re.DOTALL)
    environment, *commands = block.strip().splitlines()
    # test_environment.py makes an environment with it.
    assert environment == "source setup_env.sh"
    readme = (ROOT / "README.md").read_text()
    assert len(commands) == 2
    assert environment in readme and commands[0] in readme

    training, evaluation = (
        execute(command.replace("FOLDER", str(tmp_path / "photographs")), checkout)
        for command in commands
    )
    images = "images: 40 train, 12 validation, 12 test; given splits: none"
    assert re.search(rf"pictures: 4 classes .*; {images}", training)
    folder = checkout / "results/own/benchmark/tiny/pictures/pvera"
    accuracy = json.loads((folder / "seed0.json").read_text())["test"]["accuracy"]
    printed = re.search(r"^accuracy +(\S+)$", evaluation, re.MULTILINE)
    assert printed[1] == f"{accuracy:.6f}"
    assert accuracy >= 0.5

    (last,) = re.findall(r"^adapter: (\S+)$", training, re.MULTILINE)
    assert last == str(folder / "seed0.safetensors")
    cats = tmp_path / "photographs/cat"
    execute(f"python experiments/predict.py {last} {cats} --output new.csv", checkout)
    predictions = (checkout / "new.csv").read_text().splitlines()
    assert len(predictions) == 1 + 2 * len(photographs.MODES)


# The tutorial


TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs():
    notebook = nbformat.read(TUTORIAL, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute(cwd=TUTORIAL.parent)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert float(re.search(r"test accuracy ([\d.]+) %", printed)[1]) > 30, "chance is 10 %"
    assert float(re.search(r"loading and merging: (\S+)", printed)[1]) < 1e-4


# The profile `paper`, shrunk: the rehearsal does every stage of it


def read(name: str) -> Profile:
    return Profile.read(ROOT / f"experiments/profiles/{name}.yaml")


def test_the_rehearsal_is_the_paper_in_small():
    rehearsal, paper = read("rehearsal"), read("paper")
    for key in (
        "analyses",
        "methods",
        "protocol",
        "precision",
        "learning_rate",
        "choose",
        "is_text",
    ):
        assert getattr(rehearsal, key) == getattr(paper, key), key
    elsewhere = {"backbones": None, "datasets": None}
    listed = {
        name: experiment
        for name, experiment in paper.experiments.items()
        if not experiment.on_request
    }
    assert rehearsal.experiments.keys() == listed.keys()
    for name, experiment in listed.items():
        small = rehearsal.experiments[name].model_copy(update=elsewhere)
        assert small == experiment.model_copy(update=elsewhere), name
    categories = {tasks.find_data_set(name).category for name in rehearsal.datasets}
    assert len(categories) == 3
    assert (rehearsal.images, rehearsal.schedule.epochs, rehearsal.gpu) == (16, 1, False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["vtab_tiny", "vtab_small"])
def test_the_profiles_without_a_cluster_train_all_that_they_list(name, tmp_path):
    """Two data sets that differ from VTAB-1k: searches first, then what inherits their choices."""
    data, datasets = tmp_path / "data", ["eurosat", "kitti"]
    write_vtab(data, datasets, suffix="jpg", side=64)
    scripts.execute("prepare_vtab", "--root", data, "--datasets", *datasets, "--accept")
    options = ["--profile", name, "--datasets", *datasets, "--data", data]
    options += ["--results", tmp_path / "results", "--device", "cpu", "--workers", 1]
    options += ["--epochs", 1, "--images", 16, "--seeds", 0]
    if name == "vtab_small":
        weights = tmp_path / "random.safetensors"
        random = backbones.load("dinov2_s", pretrained=False).model.state_dict()
        safetensors.torch.save_file(random, weights)
        options += ["--weights", f"dinov2_s={weights}", "--precision", "float32"]
    scripts.execute("train", *options)

    profile = read(name)
    for key, experiment in profile.experiments.items():
        listed = set(datasets).intersection(experiment.datasets or datasets)
        for folder in experiment.folders(key):
            runs = results.load_runs(tmp_path / "results", name, folder)
            assert {run["dataset"] for run in runs} == listed, folder
            assert {run["data_copy"] for run in runs} == {vtab.DIFFERS}
    benchmark = results.load_runs(tmp_path / "results", name, "benchmark")
    rates = {run["method"]: len(run["members"]) for run in benchmark if run["seed"] == 0}
    grids = {key: options["grid"]["learning_rate"] for key, options in profile.methods.items()}
    assert rates == {key: len(grid) for key, grid in grids.items()}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_rehearsal_makes_marked_tables_and_figures_in_ten_minutes(checkout, tmp_path):
    shutil.copytree(ROOT / "analysis", tmp_path / "analysis", dirs_exist_ok=True)
    (tmp_path / "results").mkdir()
    for name in ("published", "paper", "performance"):
        (tmp_path / "results" / name).symlink_to(ROOT / "results" / name)
    started = time.monotonic()
    execute("python experiments/rehearsal.py", checkout)
    seconds = time.monotonic() - started
    busy = max(1, os.getloadavg()[1] / cores())
    assert seconds < 600 * busy, f"{seconds:.0f} seconds, {busy:.1f} programs to one core"

    counts = {"benchmark": 3 * 8 * 2, "rank_256": 2, "position_qv": 2}
    for name, count in counts.items():
        assert len(results.load_runs(tmp_path / "results", "rehearsal", name)) == count, name
    for folder in ("uncertainty", "latents", "cost", "out_of_distribution"):
        assert list((tmp_path / "results/rehearsal" / folder).rglob("*.json")), folder

    tables = list((tmp_path / "results/rehearsal/tables").glob("*.md"))
    expected = {"main", "detailed", "grid", "rank", "position", "uncertainty"}
    assert expected <= {path.stem for path in tables}
    others = ("cost", "published", "spent")
    of_results = [path for path in tables if path.stem.partition("_")[0] not in others]
    assert all("ehearsal" in path.read_text().partition("\n")[0] for path in of_results)
    main = (tmp_path / "results/rehearsal/tables/main.md").read_text()
    assert "seeds 0, 1" in main and "48 runs" in main
    figures = {path.name for path in (tmp_path / "figures/rehearsal").iterdir()}
    assert {"calibration.png", "main_table.ipynb"} <= figures
