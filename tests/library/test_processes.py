"""How worker processes start."""

import multiprocessing

import pytest

from pvera import processes

FORKSERVER = "forkserver" in multiprocessing.get_all_start_methods()


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
