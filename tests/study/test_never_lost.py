"""Files are written whole or not at all, and a reader that leaves early ends a script quietly."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pvera.errors import InputError
from pvera.study import results


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


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


# Notebooks


@pytest.mark.parametrize("count, end", [(1, "0"), (10**5, "0"), (1, "exit(1)")])
def test_a_reader_that_leaves_early_ends_a_script_quietly(count, end):
    """As `head` does: on the last flush, and in between."""
    code = f"from pvera.errors import run_script\nrun_script(lambda: ([print('line') for _ in range({count})], {end}))"
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, "-c", code], env=buffered, **pipes)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
