"""Fixtures that several test files share. One thread: the models are tiny, and runs are then bit-equal."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pvera  # isort: skip  # noqa: F401  before timm

import pytest
import torch
from hypothesis import settings
from tiny import make_images, make_vit

from pvera import backbones, processes
from pvera.data import store
from pvera.study import scheduler

torch.set_num_threads(1)
# On a busy machine an example may take longer than hypothesis' 200 ms.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")
# Thousands of tests and large packages stay in memory: collecting garbage among them takes a fifth of the start.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Decoded images go to a temporary folder, in this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


class OneWorker(ThreadPoolExecutor):
    """One thread instead of the scheduler's pool of processes, which take seconds to start."""

    def __init__(self, workers, context, initializer, arguments):
        super().__init__(1, initializer=initializer, initargs=arguments)


@pytest.fixture
def in_process(monkeypatch):
    """The scheduler executes runs in this process, one after the other."""
    monkeypatch.setattr(scheduler, "ProcessPoolExecutor", OneWorker)
    monkeypatch.setattr(processes, "follow_parent", lambda: None)


@pytest.fixture
def vit():
    return make_vit()


@pytest.fixture
def images():
    return make_images()


@pytest.fixture(scope="session")
def vit_b():
    """DINOv2's ViT-B without weights, for tests of shapes. Unload after adapting."""
    return backbones.shapes("dinov2_b").to_empty(device="cpu").requires_grad_()
