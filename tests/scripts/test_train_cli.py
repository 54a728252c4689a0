"""experiments/train.py and run_all.sh from the outside: results, resuming, refusals, parts."""

import hashlib
import json
import shlex
import signal
from contextlib import suppress
from pathlib import Path

import analyse
import pytest
import run_profile
import safetensors.torch
import scripts
import torch
from small import arguments, marked, numbers, profile_with, start, until
from study_options import changed_profile, parse

from pvera import InputError, backbones, files
from pvera.data import vtab
from pvera.study.plan import ANALYSES, list_jobs


@pytest.mark.slow
def test_workers_take_weights_and_few_images(folder):
    """Two worker processes; the script itself runs in this one."""
    state = backbones.load("tiny", pretrained=False).model.state_dict()
    safetensors.torch.save_file(state, folder / "mine.safetensors")
    weights = ("--weights", f"tiny={folder / 'mine.safetensors'}")
    options = (*weights, "--methods", "lora", "--images", 16)
    scripts.execute("train", *arguments(folder, "results", *options))
    record = json.loads(
        (folder / "results/small/benchmark/tiny/vessels/lora/seed0.json").read_text()
    )
    file = hashlib.sha256((folder / "mine.safetensors").read_bytes()).hexdigest()
    assert record["environment"]["weights_file_sha256"] == file
    assert record["config"]["weights_sha256"] == files.tensors_sha256(state)
    assert (record["config"]["images"], record["test"]["images"]) == (16, 16)


@pytest.mark.timeout(1800)  # a busy machine takes long
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_a_killed_call_resumes_and_ends_with_the_results_of_one_worker(folder):
    scripts.execute("train", *arguments(folder, "whole", "--workers", 1))
    whole = numbers(folder, "whole")
    assert len(whole) == 1 + 3 * 2

    process = start(folder, "killed", "--workers", 2)
    until(lambda: list((folder / "killed").rglob("*.json")), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not marked(folder))  # its workers must end without a signal
    before = {p: p.stat().st_mtime_ns for p in (folder / "killed").rglob("*.json")}
    scripts.execute("train", *arguments(folder, "killed", "--workers", 1))
    assert numbers(folder, "killed") == whole
    assert all(p.stat().st_mtime_ns == t for p, t in before.items()), (
        "existing results are not rewritten"
    )
    assert {path.suffix for path in (folder / "killed").rglob("seed*")} == {
        ".json",
        ".npz",
        ".safetensors",
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_ctrl_c_ends_at_once_with_130(folder):
    process = start(folder, "stopped", "--epochs", "5000")
    until(
        lambda: any(
            reads(found, "train800-32-")
            for found in marked(folder)
            if found.name != str(process.pid)
        ),
        process,
    )
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    left = [path for path in (folder / "stopped").rglob("*") if path.is_file()]
    assert {path.suffix for path in left} <= {".lock"}, "claims that nobody holds"


def reads(process: Path, name: str) -> bool:
    """Return whether the process maps a file with `name` in its path; a training worker does."""
    with suppress(OSError):
        return name in (process / "maps").read_text()
    return False


@pytest.mark.parametrize("name", ["plain", "with blanks", "it's", 'the "best" (1)', "$HOME; [x] *"])
def test_printed_commands_can_be_pasted(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(InputError) as refused:
        vtab.require_vtab(folder, "eurosat")
    words = shlex.split(str(refused.value).split("`")[1])
    assert words[2:] == ["--root", str(folder), "--datasets", "eurosat"]


SCRIPTS = sorted(p.stem for p in scripts.EXPERIMENTS.glob("*.py") if "__main__" in p.read_text())


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script, capsys):
    status, output, errors = scripts.outcome(script, capsys, "--help")
    assert (
        (status, errors) == (0, "")
        and output.startswith(f"usage: {script}.py ")
        and len(output) > 200
    )


BAD = {
    "unknown method": (["--methods", "lara"], "unknown method 'lara'"),
    "weights without a file": (
        ["--weights", "tiny"],
        "--weights: must be NAME=FILE, not 'tiny'",
    ),
    "missing weights": (["--weights", "tiny=/a.pth"], "/a.pth: no such file"),
    "negative": (
        ["--learning-rate", "0"],
        "learning_rate: Input should be greater than 0, not 0.0",
    ),
    "part of an option": (["--learning", "1e-3"], "unrecognized arguments: --learning 1e-3"),
    "count": (["--images", "1e2"], "--images: invalid number value: '1e2'"),
    "weights of another backbone": (["--weights", "s=/a.pth"], "unknown backbone 's'; choose from"),
    "device": (["--device", "tpu"], "--device: invalid choice: 'tpu'"),
    "no GPU": (["--device", "cuda"], "--device: invalid choice: 'cuda'"),
    "results in a file": (["--results", "/dev/null"], "cannot write /dev/null"),
    "missing split": (
        lambda f: (f / "data/vessels/val200.txt").unlink(),
        "val200.txt cannot be read: [Errno 2]",
    ),
    "image": (
        lambda f: (f / "data/vessels/images/test3.png").write_bytes(b"\x89PNG no"),
        "test3.png",
    ),
}


RATES = {"linear": {}, "lora": {"rank": 2, "grid": {"learning_rate": [1e30, 1e31]}}}


def test_a_training_whose_members_all_diverge_is_named(folder, capsys):
    profile_with(folder, seeds=[0], methods=RATES, experiments={"benchmark": {}})
    options = arguments(folder, "results", "--workers", 1)
    reason = "no member has a finite loss; try a lower --learning-rate"
    named = f"benchmark/tiny/vessels/lora/seed0: {reason}"
    for _ in ("trained", "found"):
        status, output, _ = scripts.outcome("train", capsys, *options)
        last = output.splitlines()[-1]
        assert status == 0 and f"1 of 2 runs diverged, the first is {named}" in last
        alone = scripts.refusal("train", capsys, *options, "--methods", "lora")
        assert f"1 of 1 runs diverged, the first is {named}" in alone

    for look in ("--list", "--status"):
        status, output, _ = scripts.outcome("train", capsys, *options, look)
        assert status == 0 and f"diverged: {named}" in output.splitlines()[-1]

    lower = ("--learning-rate", 1e-3, "--replace")
    status, output, _ = scripts.outcome("train", capsys, *options, *lower)
    assert status == 0 and "diverged" not in output


def test_where_all_is_done_neither_data_nor_weights_are_needed(folder, capsys):
    small = {"seeds": [0], "methods": {"linear": {}}, "experiments": {"benchmark": {}}}
    profile_with(folder, **small)
    weights = folder / "mine.safetensors"
    safetensors.torch.save_file(backbones.load("tiny").model.state_dict(), weights)
    options = arguments(folder, "results", "--workers", 1, "--weights", f"tiny={weights}")
    scripts.execute("train", *options)
    before = numbers(folder, "results")
    (folder / "data").rename(folder / "elsewhere")
    weights.unlink()

    found = scripts.outcome("train", capsys, *options)
    assert found == (0, "small: 1 of 1 runs are there\n", "")
    assert "mine.safetensors: no such file" in scripts.refusal(
        "train", capsys, *options, "--replace"
    )
    for look in ("--status", "--list"):
        status, output, _ = scripts.outcome("train", capsys, *options, look)
        assert status == 0 and output.split()[-6:] == ["1", "0", "0", "0", "0", "0"]
    status, output, _ = scripts.outcome("train", capsys, *options, "--epochs", 3, "--list")
    assert status == 0
    assert output.splitlines()[-1] == "different: benchmark/tiny/vessels/linear/seed0"
    profile_with(folder, **small, image_size=64)
    assert "another configuration" in scripts.refusal("train", capsys, *options)

    more = small["experiments"] | {"other": {"set": {"learning_rate": 1e-2}}}
    profile_with(folder, **small | {"experiments": more})
    assert "mine.safetensors: no such file" in scripts.refusal("train", capsys, *options)
    (folder / "elsewhere").rename(folder / "data")
    images = folder / "data/vessels/images"
    (images / "test3.png").write_bytes((images / "test4.png").read_bytes())
    without_weights = options[:-2]  # the published ones, which are the same
    assert "another configuration" in scripts.refusal("train", capsys, *without_weights), (
        "of other images"
    )
    assert numbers(folder, "results") == before, "nothing is replaced, and nothing mixed with it"


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(folder, case, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cause, message = BAD[case]
    if callable(cause):
        cause(folder)
        cause = []
    assert message in scripts.refusal("train", capsys, *arguments(folder, "bad", *cause))
    assert not list((folder / "bad").rglob("*.json"))


def test_a_profile_says_what_is_run_and_an_option_what_else(folder, capsys):
    rank = {"methods": ["pvera"], "grid": {"rank": [2, 4]}, "on_request": True}
    profile_with(folder, experiments={"benchmark": {}, "rank": rank})
    listed = {"benchmark": [], "rank": ["--experiments", "rank"]}
    for name, options in listed.items():
        status, output, _ = scripts.outcome("train", capsys, *arguments(folder), *options, "--list")
        assert (
            status == 0
            and name in output
            and not any(other in output for other in listed if other != name)
        )


def test_one_rate_replaces_grids_and_what_experiments_set(folder):
    given = ["--learning-rate", "0.5", "--profile", str(folder / "small.yaml")]
    profile = changed_profile(parse("", given))
    for experiment in ("beta", "benchmark"):
        runs = list_jobs(profile, experiment, folder)
        rates = {
            rate for run in runs for m in run.member_configs for rate in (m.adapter_lr, m.head_lr)
        }
        assert rates == {0.5} and all("learning_rate" not in m.grid for m in runs[0].member_configs)


def test_an_experiment_may_have_the_name_of_a_rate(folder):
    profile_with(folder, experiments={"learning_rate": {"set": {"learning_rate": 1e-2}}})
    given = ["--learning-rate", "0.5", "--profile", str(folder / "small.yaml")]
    (experiment,) = changed_profile(parse("", given)).experiments.items()
    assert experiment[0] == "learning_rate" and experiment[1].set == {}


def test_the_paper_is_the_paper(capsys):
    options = ("--profile", "paper", "--status", "--data", "/nowhere", "--results", "/tmp/none")
    status, output, _ = scripts.outcome("train", capsys, *options)
    missing = {words[0]: int(words[5]) for words in map(str.split, output.splitlines()[2:])}
    expected = {"benchmark": 3 * 3 * 19 * 8}
    expected |= {f"rank_{rank}": 6 * 3 for rank in (64, 128, 256, 512)}
    expected |= {f"position_{targets}": 6 * 3 for targets in ("q", "k", "v", "qk", "qv", "qkv")}
    assert status == 0 and missing == expected | {"total": sum(expected.values())}


def test_analyses_are_those_that_the_profile_names(folder, monkeypatch):
    carried_out = []
    note = lambda profile, names, options: carried_out.append(list(names))  # noqa: E731
    monkeypatch.setattr(analyse, "carry_out", note)
    for named in (None, {}, {"uncertainty": ["benchmark"]}):
        profile_with(folder, analyses=named)
        monkeypatch.setattr("sys.argv", ["analyse.py", *arguments(folder)])
        analyse.main()
    assert carried_out == [list(ANALYSES), [], ["uncertainty"]]


def test_without_analyses_there_is_nothing_to_do(folder, capsys):
    profile_with(folder, analyses={})
    found = scripts.outcome("analyse", capsys, *arguments(folder))
    assert found == (0, "small: 0 of 0 runs are there\n", "")
    found = scripts.outcome("analyse", capsys, *arguments(folder), "--status")
    assert found == (0, "nothing can start yet\n", "")


def test_analyses_are_of_images(folder, capsys):
    message = scripts.refusal("analyse", capsys, "--profile", "text", "--results", folder)
    assert message == "error: profile 'text' is of texts: uncertainty is an analysis of images"


# run_all.sh does the parts of a profile in turn


STEPS = {
    "make_suite": "make",
    "prepare_vtab": "prepare",
    "cost": "count",
    "make_texts": "install",
    "execute_notebooks": "execute",
}


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """Return a function that does a profile in an empty folder.

    It returns the arguments of each step, in order.
    """
    (tmp_path / "results/demo/tables").mkdir(parents=True)
    for name in ("main", "main_paper", "rank"):
        (tmp_path / f"results/demo/tables/{name}.md").write_text(f"table {name}\n")
    monkeypatch.setattr(run_profile, "ROOT", tmp_path)
    monkeypatch.chdir(
        tmp_path
    )  # where it goes by itself, so that the next test starts where it did
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: True)
    done = {}
    for module, function in STEPS.items():
        record = lambda *arguments, module=module: done.update({module: arguments}) or True  # noqa: E731
        monkeypatch.setattr(getattr(run_profile, module), function, record)
    for module in (run_profile.train, run_profile.analyse):
        note = lambda options, name=module.__name__: done.update({name: options})  # noqa: E731
        monkeypatch.setattr(module, module.__name__, note)

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
    assert done["execute_notebooks"] == (tmp_path, "demo")
    printed = capsys.readouterr().out
    assert printed.startswith("table main\n\nTables: ") and "Time: " in printed
    assert "analyse" not in steps("demo", "--experiments=benchmark")


@pytest.mark.parametrize("option", ["--status", "--list", "--results=other", "--profile=paper"])
def test_what_is_for_listings_and_other_folders_is_refused(option, steps):
    with pytest.raises(InputError, match="are for experiments/train.py; here .* results/demo$"):
        steps("demo", option)


@pytest.mark.parametrize("name", ["text", "paper_text"])
def test_of_texts_there_are_no_analyses_and_no_costs(name, steps):
    done = steps(name)
    assert list(done) == ["make_texts", "train", "execute_notebooks"]
    assert done["execute_notebooks"][1] == name


def test_paper_installs_what_is_not_there_before_it_trains(steps, tmp_path):
    assert [*steps("paper")][:2] == ["prepare_vtab", "train"]
    assert steps("paper_text")["make_texts"] == (Path("data/text"),)
    assert "prepare_vtab" not in steps("paper", "--data", "elsewhere")
    given = parse("", ["--data", "x"])
    assert given.data == str(Path.cwd() / "x"), "not the repository's"
    (tmp_path / "data/vtab-1k").mkdir(parents=True)
    (tmp_path / "data/vtab-1k/vtab-1k.json").touch()
    assert [*steps("paper")][0] == "train"


def test_the_paper_asks_for_a_gpu_first(steps, monkeypatch):
    monkeypatch.setattr(run_profile.torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="^there is no GPU: type --slurm my_site.yaml"):
        steps("paper")
    for elsewhere in ("--slurm", "--device=cpu"):
        assert "train" in steps("paper", elsewhere)
    assert "train" in steps("vtab_tiny")
