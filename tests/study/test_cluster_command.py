"""Submitting to SLURM from the command line: refusals, and the submission's record."""

import fcntl
import json
import subprocess
from types import SimpleNamespace

import pytest
import scripts
import torch
import yaml
from slurm_like import SITE, Cluster, folder, only, profile, root, slurm, states, submit, submitted  # noqa: F401  fixtures among them

from pvera.errors import InputError
from pvera.study import cluster, scheduler


def test_two_submissions_at_once(slurm, profile, root):
    (root / "small/slurm").mkdir(parents=True)
    with open(root / "small/slurm/lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="under way"):
            submit(profile, root)
    assert submit(profile, root).new == 7


def test_refusal_of_sbatch_leaves_nothing(slurm, profile, root):
    with pytest.raises(InputError, match="invalid partition specified: closed"):
        submit(profile, root, partition="closed")
    assert not submitted(root) and states(profile, root)["beta/pvera/0"] == "missing"


def test_without_an_answer_of_squeue_nothing_is_submitted(slurm, profile, root):
    submit(profile, root)
    program = "#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    (slurm.file.parent / "squeue").write_text(program)
    with pytest.raises(InputError, match="squeue failed: Unable to contact"):
        submit(profile, root)


def test_waiting_ends_when_the_cluster_has_no_more_jobs(slurm, profile, root, monkeypatch):
    submit(profile, root)
    left = [(id, i) for id, job in slurm.jobs.items() for i in range(len(job["states"]))]
    monkeypatch.setattr(cluster, "time", SimpleNamespace(sleep=lambda seconds: slurm.set(*left.pop(), "")))
    cluster.wait(profile, root)
    assert left == []


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_code_version(tmp_path):
    assert cluster.code_version(tmp_path)["commit"] is None
    (tmp_path / "pvera").mkdir()
    (tmp_path / "pvera/a.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a")
    (tmp_path / "results.json").write_text("1")
    version = cluster.code_version(tmp_path)
    assert version["commit"] == git(tmp_path, "rev-parse", "HEAD").strip() and version["dirty"] is False
    (tmp_path / "pvera/a.py").write_text("2")
    assert cluster.code_version(tmp_path)["dirty"] is True


def test_code_version_is_recorded(slurm, profile, root):
    submit(profile, root)
    record = json.loads(next(root.glob("small/slurm/*/submission.json")).read_text())
    assert record["code"] == cluster.code_version()


# The command line


def train(folder, capsys, *arguments) -> tuple[int, str, str]:
    """Run train.py and return its exit status, output and errors."""
    files = ["--profile", folder / "small.yaml", "--results", folder / "results"]
    return scripts.outcome("train", capsys, *files, *arguments)


def test_command_line(slurm, folder, capsys):
    site = folder / "site.yaml"
    site.write_text(yaml.safe_dump(SITE))
    status, output, _ = train(folder, capsys, "--slurm", site)
    assert (status, output) == (
        0,
        "small: 0 of 7 runs are there, 0 were queued or running, 7 are submitted now in 4 jobs\n",
    )
    status, output, _ = train(folder, capsys, "--status")
    assert output.splitlines()[-1].split() == ["total", "0", "0", "7", "0", "0"] and status == 0


def test_default_site_is_valid(slurm, folder, capsys):
    status, _, errors = train(folder, capsys, "--slurm")
    assert (status, errors) == (0, "")


BAD = {
    "unknown key": ({"partitions": "a"}, "partitions: unknown key; did you mean 'partition'?"),
    "no number": ({"cpus": "four"}, "cpus: must be a whole number from 1, not 'four'"),
    "no runs": ({"runs_per_job": 0}, "runs_per_job: must be a whole number from 1, not 0"),
    "negative": ({"gpus": -1}, "gpus: must be a whole number from 0, not -1"),
    "time in words": ({"minutes": "1h"}, "minutes: must be a whole number from 1, not '1h'"),
    "memory": ({"memory": 32}, "memory: must be a size such as 32G, not 32"),
    "two lines": ({"partition": "a\nb"}, "partition: must be text on one line, not 'a\\nb'"),
    "options in a list": ({"options": ["qos"]}, "options: must be a mapping, not ['qos']"),
    "list as an option": ({"options": {"qos": [1]}}, "options.qos: must be one value, not [1]"),
    "option of two lines": ({"options": {"qos": "a\n#SBATCH --x"}}, "options.qos: must be one value"),
    "option": ({"options": {"qos=1\n#SBATCH --x": 1}}, "must be text on one line"),
    "no option": ({"options": {"QoS": 1}}, "options: 'QoS' cannot stand in options"),
    "taken option": ({"options": {"job-name": "mine"}}, "'job-name' cannot stand in options"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_site_is_one_line_and_exit_code_2(case, slurm, folder, capsys):
    change, message = BAD[case]
    (folder / "site.yaml").write_text(yaml.safe_dump(SITE | change))
    refused(message, train(folder, capsys, "--slurm", folder / "site.yaml"))
    assert not slurm.jobs and not (folder / "results").exists()


def refused(message, answer) -> None:
    status, output, errors = answer
    assert status == 2 and output == ""
    assert errors.startswith("error: ") and message in errors and errors.count("\n") == 1


def test_missing_requirements_are_one_line_and_exit_code_2(slurm, folder, capsys, monkeypatch):
    refused("no_such.yaml cannot be read", train(folder, capsys, "--slurm", "no_such.yaml"))
    (folder / "binary.yaml").write_bytes(b"\x80\xff")
    refused("binary.yaml is no text", train(folder, capsys, "--slurm", folder / "binary.yaml"))
    (folder / "empty.yaml").touch()
    refused("empty.yaml: must be a mapping, not None", train(folder, capsys, "--slurm", folder / "empty.yaml"))
    refused("--wait is for --slurm", train(folder, capsys, "--wait"))
    refused("--device and --workers", train(folder, capsys, "--slurm", "--workers", "2"))
    with monkeypatch.context() as without:
        without.setattr(cluster.importlib.util, "find_spec", lambda name: None)
        refused("submitit is not installed", train(folder, capsys, "--slurm"))
    monkeypatch.setenv("PATH", str(slurm.file.parent))
    (slurm.file.parent / "sbatch").unlink()
    refused("sbatch is not on PATH", train(folder, capsys, "--slurm"))


def test_status_needs_slurm_only_once_something_was_submitted(slurm, profile, root, monkeypatch):
    with monkeypatch.context() as without:
        without.setenv("PATH", "")
        assert set(states(profile, root).values()) == {"missing"}
    submit(profile, root)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="no SLURM here: squeue is not on PATH"):
        states(profile, root)


def test_experiments_are_submitted_alone(slurm, folder, capsys, profile, root):
    _, output, _ = train(folder, capsys, "--slurm", "--experiments", "beta")
    assert output.startswith("small: 0 of 1 runs are there") and submitted(root) == [
        [["beta/tiny/vessels/pvera/seed0"]]
    ]
    train(folder, capsys, "--slurm", "--experiments", "benchmark")
    assert slurm.jobs["9"]["flags"]["dependency"] == "afterany:7", "though the search was submitted before"
    _, output, _ = train(folder, capsys, "--status", "--experiments", "benchmark")
    assert output.splitlines()[-1].split() == ["total", "0", "0", "6", "0", "0"]


# The scheduler's part


def test_workers_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert scheduler._places("cuda", 5) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert scheduler._places("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert scheduler._places("cpu", 2) == ["cpu", "cpu"]
