"""Fixtures that several test files share. One thread: the models are tiny, and runs are then
bit-equal."""

import gc

import pvera  # isort: skip  # noqa: F401  before timm

import pytest
import scripts
import small
import torch
from hypothesis import settings
from tiny import make_images, make_vit

from pvera import backbones
from pvera.data import store
from pvera.study import worker
from pvera.study.plan import Plan
from pvera.study.profiles import Profile

torch.set_num_threads(1)
# On a busy machine an example may take longer than hypothesis' 200 ms.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")
# Thousands of tests and large packages stay in memory: collecting garbage among them takes a
# fifth of the start.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Decoded images go to a temporary folder, in this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_known():
    """Each test looks at weights and data anew."""
    yield
    scripts.forget()


@pytest.fixture
def in_process(monkeypatch):
    """One worker, in this process: others take seconds to start."""
    monkeypatch.setattr(
        torch.multiprocessing,
        "spawn",
        lambda function, arguments, workers, daemon: worker.work(*arguments),
    )


@pytest.fixture
def folder(tmp_path):
    """A small data set and a profile that reads it: see `small`."""
    return small.write(tmp_path)


@pytest.fixture
def plan(folder):
    """A search of β (1 run), linear, lora (4 runs), and pvera, which needs it (2)."""
    return Plan(Profile.read(folder / "small.yaml"), ("beta", "benchmark"), folder / "results")


@pytest.fixture
def vit():
    return make_vit()


@pytest.fixture
def images():
    return make_images()


@pytest.fixture(scope="session")
def vit_b():
    """DINOv2's ViT-B without weights, for tests of shapes. Unload after adapting."""
    return backbones.meta_model("dinov2_b").to_empty(device="cpu").requires_grad_()
