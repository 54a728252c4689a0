"""What tests/slurm/run.sh does with its cluster; the argument is a folder with data/."""

import json
import subprocess
import sys
import time
from pathlib import Path

import small
import yaml

TRAIN = [sys.executable, str(Path(__file__).resolve().parents[2] / "experiments" / "train.py")]
EXPERIMENTS = {
    "rank": {"methods": ["pvera"], "inherit": ["beta"], "grid": {"rank": [4, 8]}},
    "position": {"methods": ["pvera"], "inherit": ["beta"], "grid": {"targets": ["q", "qv"]}},
}
PROFILE = small.PROFILE | {
    "datasets": ["digits", "vessels"],
    "schedule": {"epochs": 10},  # so that runs are left when a worker is cancelled
    "experiments": small.PROFILE["experiments"] | EXPERIMENTS,
}
SITE = Path(__file__).with_name("site.yaml")


def main(folder: Path) -> None:
    profile, results = folder / "check.yaml", folder / "cluster"
    profile.write_text(yaml.safe_dump(PROFILE | {"data": str(folder / "data")}))

    def train(*arguments) -> str:
        print(
            "\n$ train.py --profile check.yaml",
            *(a.name if isinstance(a, Path) else a for a in arguments),
        )
        ended = subprocess.run(
            [*TRAIN, "--profile", profile, *arguments], capture_output=True, text=True
        )
        print(ended.stdout.replace(f"{folder}/", ""), end="")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    slurm, status = ("--results", results, "--slurm", SITE), ("--results", results, "--status")
    assert "2 workers submitted" in train(*slurm)
    assert "0 workers submitted" in train(*slurm)

    cancelled = until(
        lambda: len(list(results.rglob("seed*.json"))) >= 2 and next(iter(running()), None)
    )
    command("scancel", cancelled)
    until(lambda: cancelled not in running())
    train(*status)
    assert "1 workers submitted" in train(*slurm)

    timed_out = until(lambda: next(iter(running()), None))
    command("scancel", "--signal=USR2", timed_out)  # what SLURM sends before the time limit
    until(lambda: "Restarts=1" in command("scontrol", "show", "job", timed_out, quiet=True))
    print(f"{timed_out} was requeued by itself")

    assert "0 workers submitted" in train(*slurm, "--wait")
    train(*status)
    print("\nSLURM now has", len(command("squeue", "--noheader", quiet=True).splitlines()), "jobs")
    train("--results", folder / "local", "--device", "cpu")
    expected, written = numbers(folder / "local"), numbers(results)
    assert len(expected) == 18 and written == expected
    expected, written = others(folder / "local"), others(results)
    assert expected and written == expected
    print(
        "\nThe 18 results of the cluster equal those of the local run in every number but the cost,"
    )
    print(f"and the {len(written)} files of predictions and adapters in every byte.")


def running() -> list[str]:
    """The jobs that run."""
    return command(
        "squeue", "--noheader", "--array", "--states=running,completing", "--format=%i", quiet=True
    ).split()


def command(*words: str, quiet: bool = False) -> str:
    if not quiet:
        print("\n$", *words)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def until(condition):
    """The first true value of `condition()`."""
    deadline = time.monotonic() + 1800
    while not (value := condition()):
        assert time.monotonic() < deadline, "nothing happened for half an hour"
        time.sleep(0.1)
    return value


def numbers(root: Path) -> dict[str, dict]:
    """Every record without its cost, by its place."""
    records = {
        path.relative_to(root): json.loads(path.read_text()) for path in root.rglob("seed*.json")
    }
    return {
        str(path): {k: v for k, v in record.items() if k != "cost"}
        for path, record in records.items()
    }


def others(root: Path) -> dict[str, bytes]:
    """What lies beside the records, by its place."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("seed*")
        if path.suffix != ".json"
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
