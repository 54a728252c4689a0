"""A full or read-only disk gives a one-line error, exit code 2 and no incomplete file."""

import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import scripts
import vtab_like
from execution_root import execute as execute_notebooks
from execution_root import notebook
from execution_root import root as notebooks  # noqa: F401  a fixture
from small import arguments

from pvera.errors import InputError
from pvera.study import results, runs

FULL = "No space left on device"


@contextmanager
def mounted(place: Path, size: str, *options: str):
    """Mount a file system of this size at `place`; skip the test without the right to mount."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def small(tmp_path):
    """An empty disk of 64 KiB."""
    with mounted(tmp_path / "disk", "64k") as place:
        yield place


@pytest.fixture
def read_only(tmp_path):
    """A read-only folder: only a mount stops root from writing."""
    with mounted(tmp_path / "disk", "64k", "ro") as place:
        yield place


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


def train(folder, capsys, *more) -> tuple[str, int]:
    """Run train.py; return the last line of its errors, and its exit status."""
    status, _, text = scripts.outcome("train", capsys, *arguments(folder), *more)
    assert "Traceback" not in text
    return (text.splitlines() or [""])[-1], status


# Results


def test_full_disk_while_results_are_written(small, folder, in_process, capsys):
    line, status = train(folder, capsys, "--results", small, "--epochs", 1)
    assert status == 2 and line.startswith(f"error: cannot write {small}/small/") and line.endswith(FULL)
    whole = list(small.rglob("*.json"))
    assert whole and all(results.read(path) for path in whole)
    assert not [name for name in files(small) if name.endswith(".tmp")]
    assert all(results.beside(path, suffix) for path in whole for suffix in results.read(path)["files"])

    subprocess.run(["mount", "-o", "remount,size=1m", str(small)], check=True)
    assert train(folder, capsys, "--results", small, "--epochs", 1)[1] == 0
    assert len(list(small.rglob("*.json"))) == 7


def test_read_only_results_are_refused_before_any_training(read_only, folder, in_process, capsys, monkeypatch):
    monkeypatch.setattr(runs.Run, "execute", None)
    line, status = train(folder, capsys, "--results", read_only)
    assert status == 2 and line.startswith(f"error: cannot write {read_only}: ")
    assert files(read_only) == []


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    results.write_atomically(tmp_path / "table.md", b"old")
    # A limit on the size of files stops the write in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, hard))
    try:
        with pytest.raises(InputError, match=f"cannot write {tmp_path}/table.md: File too large"):
            results.write_atomically(tmp_path / "table.md", bytes(2 * 10**5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == ["table.md"] and (tmp_path / "table.md").read_bytes() == b"old"


def test_several_processes_write_one_file(tmp_path):
    path = tmp_path / "seed0.json"
    code = (
        "import sys; from pvera.files import write_atomically\n"
        "for i in range(150): write_atomically(sys.argv[1], sys.argv[2].encode() * 1000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == 4 * [0]
    assert path.read_bytes() in [name.encode() * 1000 for name in "abcd"] and files(tmp_path) == [path.name]


# Decoded images


def test_data_that_cannot_be_written_to_is_checked_all_the_same(tmp_path, capsys):
    with mounted(tmp_path / "disk", "1m") as disk:
        vtab_like.write(disk, ["kitti"])
        before = files(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        scripts.execute("prepare_vtab", "--root", disk, "--datasets", "kitti", "--accept")
        printed = capsys.readouterr().out
        assert f"not recorded: cannot write {disk}/vtab-1k.json: Read-only file system" in printed
        assert "1 of 1 data sets can be used" in printed
        assert files(disk) == before


# Notebooks


@pytest.mark.parametrize("source", ["open('table', 'wb').write(bytes(10**5))", "print('x' * 10**5)"])
def test_full_disk_while_notebooks_are_executed(source, notebooks, tmp_path, capsys):
    """A cell fills the disk, or the executed notebook does."""
    notebook(notebooks, source)
    with mounted(tmp_path / "disk", "64k") as disk:
        shutil.copytree(notebooks, disk, dirs_exist_ok=True, ignore=shutil.ignore_patterns("disk"))
        with pytest.raises(SystemExit) as ended:
            execute_notebooks(disk)
        line = capsys.readouterr().err.splitlines()[-1]
        assert ended.value.code == 2 and line.startswith("error: ") and FULL in line and "count.ipynb" in line
        assert not [name for name in files(disk / "figures") if name.startswith("count")]


@pytest.mark.parametrize("count, end", [(1, "0"), (10**5, "0"), (1, "exit(1)")])
def test_a_reader_that_leaves_early_ends_a_script_quietly(count, end):
    """As `head` does: on the last flush, and in between."""
    code = f"from pvera.errors import run_script\nrun_script(lambda: ([print('line') for _ in range({count})], {end}))"
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, "-c", code], env=buffered, **pipes)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
