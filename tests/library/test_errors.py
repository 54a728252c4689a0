"""Errors become one line that a reader can use, files are written whole or not at all, and scripts end quietly."""

import io
import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pvera import InputError
from pvera.errors import explained, run_script
from pvera.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "message, said",
    [
        ("no  such\nfile", "no such file"),
        ("", "ValueError"),
        ("word " * 60, "word " * 39 + "…"),
        ("missing: " + "/folder" * 60, ("missing: " + "/folder" * 60)[:198] + " …"),
    ],
)
def test_long_messages_are_cut_but_not_dropped(message, said):
    with pytest.raises(InputError) as caught, explained("pets", "try again"):
        raise ValueError(message)
    assert str(caught.value) == f"pets: {said}; try again"


@pytest.mark.parametrize(
    "encoding, printed", [("ascii", r"\u03b2 caf\xe9 \udcff"), ("latin-1", "\\u03b2 café \\udcff")]
)
def test_scripts_print_on_any_terminal(encoding, printed, monkeypatch):
    """Output and an error's line, also with a file name that is no UTF-8."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}

    def main():
        print("β café \udcff")
        raise InputError("β café \udcff")

    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        run_script(main)
    assert ended.value.code == 2
    for name, prefix in (("stdout", ""), ("stderr", "error: ")):
        streams[name].flush()
        assert streams[name].buffer.getvalue().decode(encoding) == f"{prefix}{printed}\n"


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "table.md", b"old")
    # A limit on the size of files stops the write in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, hard))
    try:
        with pytest.raises(InputError, match=f"cannot write {tmp_path}/table.md: File too large"):
            write_atomically(tmp_path / "table.md", bytes(2 * 10**5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == ["table.md"] and (tmp_path / "table.md").read_bytes() == b"old"


def test_several_processes_write_one_file(tmp_path):
    path, names = tmp_path / "seed0.json", b"abcd"
    fork = multiprocessing.get_context("fork")

    def write(name: int) -> None:
        for _ in range(150):
            write_atomically(path, bytes([name]) * 1000)

    writers = [fork.Process(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == 4 * [0]
    assert path.read_bytes() in [bytes([name]) * 1000 for name in names] and files(tmp_path) == [path.name]


@pytest.mark.parametrize("count, end", [(1, "0"), (10**5, "0"), (1, "exit(1)")])
def test_a_reader_that_leaves_early_ends_a_script_quietly(count, end):
    """As `head` does: on the last flush, and in between."""
    code = "import runpy; run_script = runpy.run_path('pvera/errors.py')['run_script']\n"  # without importing torch
    code += f"run_script(lambda: ([print('line') for _ in range({count})], {end}))"
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, "-c", code], env=buffered, cwd=ROOT, **pipes)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
