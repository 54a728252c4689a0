"""How worker processes start, and locks on open files."""

import multiprocessing
import subprocess
import sys

import pytest

from pvera import processes

FORKSERVER = "forkserver" in multiprocessing.get_all_start_methods()
HOLD = """
import sys
from filelock import lock_descriptor
file = open(sys.argv[1])
print(lock_descriptor(file.fileno()), flush=True)
input()
"""


@pytest.mark.skipif(not FORKSERVER, reason="this system has no fork server")
def test_the_caller_chooses_the_imports_of_the_workers_server(monkeypatch):
    asked = []
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(type(context), "set_forkserver_preload", lambda self, modules: asked.append(modules))
    assert processes.context("json", "csv") is context and processes.context() is context
    assert asked == [["json", "csv"], []]


def test_workers_are_spawned_where_there_is_no_server(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert processes.context("json").get_start_method() == "spawn"


def test_a_lock_is_held_until_its_process_ends(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with open(tmp_path / "file") as file:
            assert not processes.lock(file)
            other.kill()
            other.wait()
            assert processes.lock(file)


def test_a_file_that_cannot_be_locked_is_not(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError("no locks available")

    monkeypatch.setattr(processes, "lock_descriptor", refuse)
    with open(tmp_path / "file", "w") as file:
        assert not processes.lock(file)
