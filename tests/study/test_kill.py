"""`kill -9` of the whole process group at twenty random moments of a demonstration run: nothing is lost, and
nothing is different.

    bash run_tests.sh -m slow -n 0 -s -k twenty

On two busy cores it took 29 minutes; 5 kills fell into decoding, 10 into training, 5 into writing, and the
results were those of the undisturbed run. -s shows where the kills fell, which differs from time to time: a
result is written in milliseconds. Python leaves the socket of its fork server in the system's temporary
folder, which is the system's to clear.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from small import command, numbers

from pvera.data import store, tasks
from pvera.study.experiments import list_runs, of_script
from pvera.study.profiles import Profile

DEMO = Path(__file__).resolve().parents[2] / "experiments" / "profiles" / "demo.yaml"
COUNTS = {"train800": 96, "val200": 32, "test": 100}
#: What the process is doing when it is killed, how often, and the longest random wait (s) after it began to.
MOMENTS = {"decoding": (5, 0.5), "training": (9, 3.0), "writing": (6, 0.002)}


@pytest.fixture
def folder(tmp_path):
    """The demonstration profile with two tasks, two seeds, three epochs and few images, which are so large
    that it takes a while to decode them."""
    source = np.random.default_rng(0)
    for name in ("digits", "vessels"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(16):
            pixels = source.integers(256, size=(25, 25, 3), dtype=np.uint8)
            pixels = pixels.repeat(32, axis=0).repeat(32, axis=1)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{i}.png", compress_level=1)
        for split, count in COUNTS.items():
            for i in range(count):
                os.link(tmp_path / "data" / name / f"{i % 16}.png", tmp_path / "data" / name / f"{split}{i}.png")
            lines = [f"{split}{i}.png {i % tasks.task(name).classes}\n" for i in source.permutation(count)]
            (tmp_path / "data" / name / f"{split}.txt").write_text("".join(lines))
    profile = yaml.safe_load(DEMO.read_text())
    profile["schedule"]["epochs"] = 3
    profile |= {"data": str(tmp_path / "data"), "datasets": ["digits", "vessels"], "seeds": [0, 1]}
    profile["ablations"]["datasets"] = ["digits"]
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(profile))
    return tmp_path


def start(folder, results: str) -> subprocess.Popen:
    names = {store.VARIABLE: str(folder / f"cache of {results}")}
    with open(folder / f"{results}.log", "a") as log:
        return subprocess.Popen(
            command(folder, results), stdout=log, stderr=log, env=os.environ | names, start_new_session=True
        )


def processes(group: int) -> int:
    """How many there are in a process group."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            count += int(path.read_text().rpartition(")")[2].split()[2]) == group
    return count


def traces(folders, *endings: str) -> set[tuple[str, int]]:
    """Files of these names in the folders, and when they changed (ns)."""
    files = set()
    for place in folders:
        with suppress(OSError):  # it is not there yet, or no longer
            files |= {(e.path, e.stat().st_mtime_ns) for e in os.scandir(place) if e.name.endswith(endings)}
    return files


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_twenty_kills_lose_nothing_and_change_nothing(folder):
    began = time.monotonic()
    assert start(folder, "whole").wait() == 0, (folder / "whole.log").read_text()
    whole, root, cache = numbers(folder, "whole"), folder / "killed", folder / "cache of killed"
    profile = Profile.read(folder / "small.yaml")
    runs = [run for experiment in of_script("train") for run in list_runs(profile, experiment, root)]
    chance = np.random.default_rng(0)
    plan = chance.permutation([kind for kind, (count, _) in MOMENTS.items() for _ in range(count)])
    assert len(plan) == 20

    look = {
        "decoding": lambda: traces((cache / "store").glob("*"), ".partial"),
        "writing": lambda: traces({run.path.parent for run in runs if not run.path.exists()}, ".tmp", ".npz"),
        # the script, its resource tracker, its fork server, and workers
        "training": lambda: set(range(3, processes(process.pid))),
    }
    fell, done = Counter(), {}
    for kind in plan:
        if kind == "decoding":  # the same pixels, but of a file that has changed
            os.utime(folder / "data" / chance.choice(profile.datasets) / "0.png")
        left = {what: look[what]() for what in ("decoding", "writing")}  # by the kills before
        process = start(folder, "killed")
        while not look[kind]() - left.get(kind, set()):
            assert process.poll() is None, f"it ended before it was killed while {kind}, of {plan}"
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, MOMENTS[kind][1]))
        at_work = look["training"]()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        seen = [what for what in left if look[what]() - left[what]] + ["training"] * bool(at_work)
        fell[(seen or ["starting"])[0]] += 1
        records = {path: path.stat().st_mtime_ns for path in root.rglob("seed*.json")}
        assert done.items() <= records.items(), "what was there is not made again"
        done = records

    assert start(folder, "killed").wait() == 0, (folder / "killed.log").read_text()
    assert numbers(folder, "killed") == whole
    files = {path.relative_to(folder / "whole") for path in (folder / "whole").rglob("*") if path.is_file()}
    written = {path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.suffix != ".tmp"}
    assert written == files, "nothing is left over"
    for path in files:
        if path.suffix != ".json":
            assert (root / path).read_bytes() == (folder / "whole" / path).read_bytes(), path
    assert len(list(cache.rglob("*.npy"))) == 2 * len(COUNTS) and not look["decoding"]()
    assert min(fell[kind] for kind in MOMENTS) > 1, fell
    print(f"\n20 kills, of which {dict(fell)}; {len(whole)} results; {time.monotonic() - began:.0f} s")
