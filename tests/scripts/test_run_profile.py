"""run_all.sh does the parts of a profile in turn: which of them, and with which options."""

import socket
import subprocess

import pytest
import run_profile

MODULES = ("make_suite", "prepare_vtab", "train", "analyse", "cost", "make_texts", "train_language", "front_page")


@pytest.fixture
def done(monkeypatch, tmp_path, capsys):
    """Return the calls of a command line in an empty folder; `stale`: whether a notebook is out of date."""
    (tmp_path / "results/demo/tables").mkdir(parents=True)
    for name in ("main_tiny", "main_paper", "rank"):
        (tmp_path / f"results/demo/tables/{name}.md").write_text(f"table {name}\n")
    monkeypatch.setattr(run_profile, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)  # where it goes by itself, so that the next test starts where it did
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(run_profile, "online", lambda: True)
    called = []
    for name in MODULES:
        monkeypatch.setattr(getattr(run_profile, name), "main", lambda words, name=name: called.append((name, *words)))

    def run(command):
        called.append(("python", *command[1:]))
        return subprocess.CompletedProcess(command, 0)

    def do(*words, stale=False):
        called.clear()
        monkeypatch.setattr(run_profile, "outdated", lambda root, name, in_place: [stale] * stale)
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["run_profile.py", *words])
            patch.setattr(subprocess, "run", run)
            run_profile.main()
        return list(called)

    return do


def test_demo(done, capsys):
    of_demo = ("--profile", "demo")
    made = ("make_suite", "--task", "digits", "nuclei", "counting")
    parts = [made, ("train", *of_demo), ("analyse", *of_demo), ("cost", *of_demo)]
    assert done("demo") == parts
    printed = capsys.readouterr().out
    assert printed.startswith("table main_tiny\n\nTables: ") and "Time: " in printed
    assert done("demo", stale=True) == [*parts, ("python", "experiments/execute_notebooks.py", *of_demo)]
    alone = done("demo", "--experiments=rank")
    assert [name for name, *_ in alone] == ["make_suite", "train", "cost"]


def test_mini_has_text_committed_notebooks_and_the_front_page(done):
    names = [name for name, *_ in done("mini")]
    assert names == ["make_suite", "make_texts", "train", "analyse", "cost", "train_language", "front_page"]
    *_, notebooks, front_page = done("mini", stale=True)
    assert notebooks == ("python", "experiments/execute_notebooks.py", "--profile", "mini", "--inplace")
    assert front_page == ("front_page",)


def test_paper_installs_what_is_not_there_before_it_trains(done, tmp_path):
    assert done("paper")[:2] == [("prepare_vtab",), ("make_texts", "--root", "data/text", "--glue")]
    for given in (["--data=elsewhere"], ["--data", "elsewhere"]):
        assert done("paper", *given)[0][0] == "train"
    (tmp_path / "data/vtab-1k").mkdir(parents=True)
    (tmp_path / "data/vtab-1k/vtab-1k.json").touch()
    (tmp_path / "data/text/CoLA").mkdir(parents=True)
    paper = done("paper")
    assert [name for name, *_ in paper[:2]] == ["make_texts", "train"] and "--glue" not in paper[0]


def test_all_that_the_paper_lacks_is_said_at_once(done, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(run_profile, "online", lambda: False)
    monkeypatch.setattr(run_profile.backbones, "weights_file", lambda config: "small" in config["architecture"])

    def said(*options) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            done("paper", *options)
        assert ended.value.code == 2
        return [line.removeprefix("missing: ").split(".")[0] for line in capsys.readouterr().err.splitlines()]

    gpu, data, weights = "a GPU", "VTAB-1k, without network", "weights of DINOv2, without network"
    assert said() == [gpu, data, weights, "GLUE, without network"]
    assert said("--slurm") == said("--device=cpu") == [data, weights] and said("--data", "x") == [gpu, weights]
    assert done("paper", "--slurm", "--data", "x", "--weights", "dinov2_b=a")[0][0] == "train"
    monkeypatch.setattr(run_profile, "online", lambda: True)
    assert said() == [gpu]


def test_the_hub_is_reached_or_not(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, connect = server.getsockname()[1], socket.create_connection
        asked = []

        def local(place, timeout):
            asked.append(place)
            return connect(("127.0.0.1", port), timeout)

        monkeypatch.setattr(run_profile.socket, "create_connection", local)
        monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
        assert run_profile.online() and asked == [("mirror.example", 443)]
    assert not run_profile.online()


def test_options_go_to_what_trains_and_analyses(done):
    options = ("--slurm", "site.yaml", "--seeds", "0")
    parts = {name: tuple(words) for name, *words in done("paper", *options)}
    assert "train_language" not in parts, "an option may ask for a part of the others alone"
    assert parts["train"] == parts["analyse"] == ("--profile", "paper", *options, "--wait")
    assert parts["cost"] == ("--profile", "paper")
