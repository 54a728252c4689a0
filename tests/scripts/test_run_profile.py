"""run_all.sh does the parts of a profile in turn: which of them, and with which options."""

from pathlib import Path

import pytest
import run_profile

STEPS = {
    "make_suite": "make",
    "prepare_vtab": "prepare",
    "cost": "count",
    "make_texts": "install",
    "execute_notebooks": "execute",
    "front_page": "write",
}


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """Return a function that does a profile in an empty folder and returns step -> its arguments, in order."""
    (tmp_path / "results/demo/tables").mkdir(parents=True)
    for name in ("main_tiny", "main_paper", "rank"):
        (tmp_path / f"results/demo/tables/{name}.md").write_text(f"table {name}\n")
    monkeypatch.setattr(run_profile, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)  # where it goes by itself, so that the next test starts where it did
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(run_profile, "online", lambda: True)
    done = {}
    for module, function in STEPS.items():
        record = lambda *arguments, module=module: done.update({module: arguments}) or True  # noqa: E731
        monkeypatch.setattr(getattr(run_profile, module), function, record)
    monkeypatch.setattr(run_profile.train, "start", lambda options: done.update({options.script: options}))

    def do(*words):
        done.clear()
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["run_profile.py", *words])
            run_profile.main()
        return dict(done)

    return do


def test_demo(steps, capsys, tmp_path):
    done = steps("demo")
    assert list(done) == ["make_suite", "train", "analyse", "cost", "execute_notebooks"]
    assert done["make_suite"][1] == ["digits", "nuclei", "counting"]
    assert done["execute_notebooks"] == (tmp_path, "demo", False)
    printed = capsys.readouterr().out
    assert printed.startswith("table main_tiny\n\nTables: ") and "Time: " in printed
    assert "analyse" not in steps("demo", "--experiments=benchmark")


def test_mini_has_text_committed_notebooks_and_the_front_page(steps, tmp_path):
    done = steps("mini")
    assert list(done) == ["make_suite", "train", "analyse", "cost", "make_texts", "train_language",
                          "execute_notebooks", "front_page"]  # fmt: skip
    assert done["execute_notebooks"] == (tmp_path, "mini", True)


def test_paper_installs_what_is_not_there_before_it_trains(steps, tmp_path):
    assert [*steps("paper")][:2] == ["prepare_vtab", "train"] and steps("paper")["make_texts"] == (Path("data/text"),)
    assert "prepare_vtab" not in steps("paper", "--data", "elsewhere")
    (tmp_path / "data/vtab-1k").mkdir(parents=True)
    (tmp_path / "data/vtab-1k/vtab-1k.json").touch()
    assert [*steps("paper")][0] == "train"


def test_all_that_the_paper_lacks_is_said_at_once(steps, monkeypatch, capsys):
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(run_profile, "online", lambda: False)
    monkeypatch.setattr(run_profile.backbones, "weights_file", lambda config: "small" in config["architecture"])

    def missing(*options) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            steps("paper", *options)
        assert ended.value.code == 2
        return [line.removeprefix("missing: ").split(".")[0] for line in capsys.readouterr().err.splitlines()]

    gpu, data, weights = "a GPU", "VTAB-1k, without network", "weights of DINOv2, without network"
    assert missing() == [gpu, data, weights, "GLUE, without network"]
    assert missing("--slurm") == missing("--device=cpu") == [data, weights]
    assert missing("--data", "x") == [gpu, weights]
    assert "train" in steps("paper", "--slurm", "--data", "x", "--weights", "dinov2_b=a")
    monkeypatch.setattr(run_profile, "online", lambda: True)
    assert missing() == [gpu]
