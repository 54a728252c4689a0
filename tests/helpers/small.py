"""A small profile of images, and experiments/train.py on it in processes of their own."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import scripts
import trained
import yaml

PROFILE = {
    "backbones": ["tiny"],
    "datasets": ["vessels"],
    "seeds": [0, 1],
    "protocol": "corrected",
    "schedule": {"epochs": 2},
    "experiments": {
        "beta": {
            "methods": ["pvera"],
            "seeds": [0],
            "set": {"learning_rate": 1e-3},
            "grid": {"beta": [1e-2, 1e-6]},
        },
        "benchmark": {"inherit": ["beta"]},
    },
    "methods": {
        "linear": {"grid": {"learning_rate": [1e-3, 1e-4]}},
        "lora": {"grid": {"rank": [2, 4]}},
        "pvera": {
            "rank": 8,
            "grid": {"learning_rate": [1e-3, 1e-4]},
            "default": {"learning_rate": 1e-3},
        },
    },
}


def write(folder: Path) -> Path:
    """Write a small data set named like one of the demonstration suite, and a profile that
    reads it."""
    trained.make_data(folder / "data", "vessels", train=64, validation=32)
    profile_with(folder)
    return folder


def profile_with(folder: Path, **changes) -> None:
    """Write the profile with other values."""
    (folder / "small.yaml").write_text(
        yaml.safe_dump(PROFILE | {"data": str(folder / "data")} | changes)
    )


def arguments(folder: Path, results: str = "results", *more) -> list[str]:
    """Return arguments of train.py with two workers and results in that folder."""
    files = ["--profile", str(folder / "small.yaml"), "--results", str(folder / results)]
    return [*files, "--device", "cpu", "--workers", "2", *map(str, more)]


def start(folder: Path, *more) -> subprocess.Popen:
    """Start train.py; `marked` finds its processes."""
    return scripts.start(
        "train", *arguments(folder, *more), env=os.environ | {"STARTED_BY_TEST": str(folder)}
    )


def marked(folder: Path) -> list[Path]:
    """Return the /proc folders of the running processes that `start` started."""
    places = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if f"STARTED_BY_TEST={folder}\0".encode() in (place / "environ").read_bytes():
                places.append(place)
    return places


def until(condition, process: subprocess.Popen | None = None) -> None:
    """Wait for `condition` while `process` runs; the test's timeout ends an endless wait."""
    while not condition():
        assert process is None or process.poll() is None, "it ended too early"
        time.sleep(0.05)


def numbers(folder: Path, results: str) -> dict:
    """Return every record by path, without time and memory."""
    root = folder / results
    records = {
        str(path.relative_to(root)): json.loads(path.read_text())
        for path in sorted(root.rglob("*.json"))
    }
    return {
        path: {k: v for k, v in record.items() if k not in ("cost", "sha256")}
        for path, record in records.items()
    }
