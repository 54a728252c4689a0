"""A user's ninth method works everywhere that the paper's eight methods work."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import trained

import pvera
from pvera import InputError, backbones
from pvera.adapters.base import matching
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.training import TrainingConfig


class BiasAdapter(pvera.Adapter):
    def __init__(self, method, dim):
        super().__init__()
        self.method = method
        self.bias = torch.nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x, y, positions):
        targets, at = matching(self.method.targets, positions)
        parts = list(y.unbind(2))
        for i, j in zip(targets, at):
            parts[j] = parts[j] + self.bias[i].to(y.dtype)
        return torch.stack(parts, 2)

    def merge_projection(self, weight, bias, positions):
        targets, at = matching(self.method.targets, positions)
        bias[at] += self.bias[targets]
        return weight, bias


@dataclass(frozen=True)
class Bias(pvera.Method):
    """A learned bias on some of query, key and value."""

    key: ClassVar[str] = "bias"
    title: ClassVar[str] = "Bias"
    targets: str = "qv"

    def adapter(self, layer, index, shared, seed):
        return BiasAdapter(self, layer.dim)


@pytest.fixture(scope="module", autouse=True)
def registered():
    pvera.register(Bias)
    yield
    del pvera.METHODS["bias"]


def test_it_is_trained_and_its_adapter_loads_and_merges(tmp_path):
    methods, config = {"bias": {"grid": {"targets": ["q", "qv"]}}}, TrainingConfig(epochs=2)
    profile = trained.make_profile(
        tmp_path, ["digits"], seeds=[0], training=config, methods=methods, learning_rate=1e-2
    )
    (run,) = list_runs(profile, "benchmark", tmp_path / "results")
    run.execute()
    assert run.state() == "done"
    frozen = backbones.load("tiny")
    before = {name: p.clone() for name, p in frozen.model.named_parameters()}
    model = pvera.load(frozen.model, results.beside(run.path, results.ADAPTER)).eval()
    record = results.read(run.path)
    assert model.members[0].method == Bias(**record["chosen"]["grid"])
    assert all(layer.bias.abs().max() > 0 for layer in model.members[0].layers), "it was trained"
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        adapted = model(images)
        torch.testing.assert_close(model.merge_()(images), adapted, rtol=1e-4, atol=1e-4)
        model.unmerge_().unload()
    kept, _ = results.read_predictions(run.path)
    assert len(kept) == trained.IMAGES and record["test"]["images"] == trained.IMAGES
    for name, parameter in frozen.model.named_parameters():
        torch.testing.assert_close(parameter, before[name], msg=name)


def test_refused_registrations():
    def method(**attributes) -> type:
        return dataclass(frozen=True)(type("Other", (pvera.Method,), attributes))

    class Bare(Bias):
        key: ClassVar[str] = "bare"

    before = dict(pvera.METHODS)
    for cls, says in (
        (method(key="pvera", title="Other"), "Other: the key 'pvera' is that of PVeRA; choose another"),
        (method(title="Nameless"), "Other lacks a key: write key: ClassVar"),
        (Bare, "no method: derive it from pvera.Method and decorate it as a frozen"),
        (Bias(), "no method"),
    ):
        with pytest.raises(InputError, match=says):
            pvera.register(cls)
    assert before == pvera.METHODS
    assert pvera.register(Bias) is Bias, "registering again is no error: workers and notebooks import modules again"
    assert tuple(pvera.METHODS)[:8] == pvera.PAPER_METHODS and len(pvera.PAPER_METHODS) == 8
