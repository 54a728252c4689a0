"""run_all.sh runs the scripts of a profile in turn: which of them, with which options, and in which process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import run_profile

from pvera.study import scheduler

FIRST = ["data", "train", "uncertainty", "out_of_distribution", "latents"]


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The parts of a profile by name, in an empty folder; `stale`: whether a notebook is out of date."""
    monkeypatch.chdir(tmp_path)

    def plan(profile, *options, stale=False):
        monkeypatch.setattr(run_profile, "outdated", lambda root, name, in_place: [stale] * stale)
        return dict(run_profile.parts(profile, list(options)))

    return plan


def test_demo(planned):
    of_demo = ("--profile", "demo")
    parts = planned("demo")
    assert list(parts) == [*FIRST, "cost", "notebooks"]
    assert parts["data"] == [("make_suite",)] and parts["train"] == [("train", *of_demo)]
    assert parts["notebooks"] == []
    assert planned("demo", stale=True)["notebooks"] == [("execute_notebooks", *of_demo)]


def test_mini_has_text_committed_notebooks_and_the_front_page(planned):
    of_mini = ("--profile", "mini")
    parts = planned("mini", stale=True)
    assert list(parts) == [*FIRST, "rivals", "cost", "language", "notebooks"]
    assert parts["language"] == [("make_texts",), ("train_language", *of_mini)]
    assert parts["notebooks"] == [("execute_notebooks", *of_mini, "--inplace"), ("front_page",)]
    assert planned("mini")["notebooks"] == [("front_page",)]


def test_paper_prepares_what_is_not_there(planned, tmp_path):
    parts = planned("paper")
    assert list(parts) == [*FIRST, "rivals", "cost", "language", "notebooks"]
    assert parts["data"] == [("prepare_vtab", "--no-decode")] and parts["language"][0] == ("make_texts", "--glue")
    assert "data" not in planned("paper", "--data=elsewhere") and "data" not in planned("paper", "--data", "elsewhere")
    (tmp_path / "data/vtab-1k").mkdir(parents=True)
    (tmp_path / "data/vtab-1k/vtab-1k.json").touch()
    (tmp_path / "data/text/CoLA").mkdir(parents=True)
    parts = planned("paper")
    assert "data" not in parts and parts["language"][0] == ("make_texts",)


def test_options_go_to_what_trains_and_analyses(planned):
    parts = planned("paper", "--slurm", "site.yaml", "--seeds", "0")
    assert "language" not in parts, "an option may ask for a part of the others alone"
    passed = ("--profile", "paper", "--slurm", "site.yaml", "--seeds", "0", "--wait")
    for script in ("train", "uncertainty", "rivals"):
        assert parts[script] == [(script, *passed)]
    assert parts["cost"] == [("cost", "--profile", "paper")]
    chosen = planned("demo", "--experiments=rank")
    assert list(chosen) == ["data", "train", "cost", "notebooks"]


def test_command_line_and_what_is_printed_at_the_end(monkeypatch, tmp_path, capsys):
    (tmp_path / "results/demo/tables").mkdir(parents=True)
    for name in ("main_tiny", "main_paper", "rank"):
        (tmp_path / f"results/demo/tables/{name}.md").write_text(f"table {name}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_profile, "ROOT", tmp_path)
    monkeypatch.setattr(run_profile, "parts", lambda profile, options: [("train", [(profile, *options)])])
    called = []
    monkeypatch.setattr(run_profile, "call", lambda *words: called.append(words))
    options = ["--methods", "pvera", "vera", "--slurm"]
    monkeypatch.setattr(sys, "argv", ["run_profile.py", "--spent", "environment 3 s", "demo", *options])
    run_profile.main()
    assert called == [("demo", *options)]
    printed = capsys.readouterr().out
    assert printed.startswith("table main_tiny\n\nTables: ")
    assert printed.endswith("Time:    environment 3 s  train 0 s\n")


def test_scripts_run_here_and_notebooks_in_a_process_of_their_own(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(subprocess, "run", lambda command: pytest.fail("a script was started anew"))
    with pytest.raises(SystemExit) as ended:
        run_profile.call("cost", "--help")
    assert not ended.value.code and "Count parameters and multiply-adds" in capsys.readouterr().out
    started = []
    monkeypatch.setattr(
        subprocess, "run", lambda command: started.append(command) or subprocess.CompletedProcess(command, 2)
    )
    with pytest.raises(SystemExit) as ended:
        run_profile.call("execute_notebooks", "--profile", "demo")
    assert ended.value.code == 2, "that of the process"
    assert started == [
        [sys.executable, str(run_profile.ROOT / "experiments/execute_notebooks.py"), "--profile", "demo"]
    ]


def test_all_kinds_of_runs_get_workers_from_one_server(monkeypatch, tmp_path):
    """A process has one server, with what its first call asks for: it must suit the calls that follow."""
    asked = []

    def context(*modules):
        asked.extend(modules)
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler.processes, "context", context)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run_all([SimpleNamespace(results_root=tmp_path)], "one")
    program = "import sys; [__import__(name) for name in sys.argv[1:]]; print(*sys.modules)"
    command = [sys.executable, "-c", program, *(name for name in asked if name.startswith("pvera."))]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"pvera.study.runs", "pvera.study.analyses", "pvera.study.rivals", "pvera.study.profiles"} <= {*imported}
