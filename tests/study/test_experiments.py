"""The registry of experiments and its readers: scripts, notebooks, docs/figures.md; plans read no files."""

import builtins
import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import scripts

from pvera import InputError
from pvera.study import experiments, results
from pvera.study.experiments import EXPERIMENTS
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]
PROFILES = sorted((scripts.EXPERIMENTS / "profiles").glob("*.yaml"))


def test_each_has_its_script_which_lists_it(capsys):
    for name, experiment in EXPERIMENTS.items():
        status, text, _ = scripts.outcome(experiment.script, capsys, "--help")
        assert status == 0 and re.search(rf"^ +{name} +{re.escape(experiment.about)}$", text, re.MULTILINE)


def test_each_waits_for_an_earlier_one():
    names = list(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        if experiment.after:
            assert experiment.after is EXPERIMENTS[experiment.after.name]
            assert names.index(experiment.after.name) < names.index(name)
            assert experiment.after.keep if experiment.compute else experiment.after.searches


def test_notebooks_are_those_that_read_the_results():
    """A notebook that reads an experiment's results is in its entry; a row of docs/figures.md names both."""
    table = [line for line in (ROOT / "docs/figures.md").read_text().splitlines() if "(../analysis/" in line]
    for experiment in EXPERIMENTS.values():
        named = []
        for notebook in experiment.notebooks:
            rows = [line for line in table if f"(../analysis/{notebook}.ipynb)" in line]
            assert rows, notebook
            named += [experiment.name in row or f"{experiment.script}.py" in row for row in rows]
        assert any(named) or not named, experiment.name
    for path in (ROOT / "analysis").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        for name in re.findall(r"(?:load_runs|readings\.load)\([^)]*\"(\w+)\"", code):
            if name in EXPERIMENTS:
                assert path.stem in EXPERIMENTS[name].notebooks


def test_names_of_folders():
    assert experiments.named("benchmark").name == "benchmark"
    assert experiments.named("protocol_pvera_kl").name == "protocol"
    assert experiments.named("language_beta").name == "language_beta", "no variant of language"
    with pytest.raises(InputError, match="there is no experiment 'bench'"):
        experiments.named("bench")


def test_names_are_taken_once():
    with pytest.raises(InputError, match="there is an experiment 'rank' already"):
        experiments.register(replace(EXPERIMENTS["rank"]))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_plan_reads_nothing(path, tmp_path, monkeypatch):
    """Runs follow from the profile alone, with and without results, and no file is opened."""
    profile = Profile.read(path)
    languages = [profile.language] if profile.language else []

    def refuse(*_, **__):
        raise AssertionError("a plan opened a file")

    listed = {}
    monkeypatch.setattr(results, "read", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    for one in [profile, *languages]:
        for name, experiment in EXPERIMENTS.items():
            if experiment.text == one.text:
                runs = one.runs(name, tmp_path)
                listed[name] = len(runs)
                assert len({run.path for run in runs}) == len(runs)
    monkeypatch.undo()
    assert listed["benchmark"] == len(profile.backbones) * len(profile.datasets) * len(profile.seeds) * 8


def test_text_and_images_are_kept_apart(tmp_path):
    profile = Profile.read(scripts.EXPERIMENTS / "profiles" / "mini.yaml")
    with pytest.raises(InputError, match="language reads texts, this profile describes images"):
        profile.runs("language", tmp_path)
    with pytest.raises(InputError, match="unknown experiment 'bench'"):
        profile.runs("bench", tmp_path)
