"""Tools of the field beside every method: right, or refused in one line (docs/training-loops.md has the table)."""

import copy

import pytest
import torch
from families import make
from safetensors.torch import load_file, save_file
from tiny import METHODS, make_images, make_vit, perturb
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

import pvera
from pvera import DoRA, InputError, LoRA, PVeRA

CLASSES = 5
MERGEABLE = [key for key in METHODS if key not in ("bottleneck", "adaptformer")]
every_method = pytest.mark.parametrize("key", METHODS)


def adapted(method=METHODS["pvera"], seed=0, **vit):
    method = METHODS.get(method, method) if isinstance(method, str) else method
    return perturb(pvera.adapt(make_vit(**vit), method, CLASSES, seed), seed).eval()


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


class Int8Linear(nn.Linear):
    """A linear layer whose weight is int8 codes times one scale per output row, as in 8-bit libraries."""

    def __init__(self, linear: nn.Linear):
        super().__init__(linear.in_features, linear.out_features)
        self.scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        codes = (linear.weight.detach() / self.scale).round().to(torch.int8)
        self.weight, self.bias = nn.Parameter(codes, requires_grad=False), linear.bias

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)


def int8(vit):
    """Return `vit` with all linear layers in int8."""
    for name, linear in [(n, m) for n, m in vit.named_modules() if isinstance(m, nn.Linear)]:
        vit.set_submodule(name, Int8Linear(linear))
    return vit


# ---------------------------------------------------------------- torch.compile


@pytest.mark.parametrize("key", MERGEABLE)
def test_a_compiled_model_follows_merge_and_unmerge(key, images):
    model = adapted(key)
    expected, compiled = model(images), torch.compile(model, backend="eager")
    close(compiled(images), expected)
    model.merge_()
    close(compiled(images), expected)
    assert torch.equal(compiled(images), model(images))
    model.unmerge_()
    close(compiled(images), expected)
    compiled(images).sum().backward()
    assert all(p.grad is not None for n, p in model.members[0].trained().items() if key == "pvera" or "head" in n)


# ---------------------------------------------------------------- weights that are no floating-point numbers


@every_method
def test_an_int8_backbone(key, images):
    """Training, evaluation and draws are those of the same weights in fp32; a merge and DoRA need these."""
    exact, vit = make_vit(), int8(make_vit())
    for name, linear in [(n, m) for n, m in vit.named_modules() if isinstance(m, Int8Linear)]:
        exact.get_submodule(name).weight.data = linear.weight * linear.scale
    expected = perturb(pvera.adapt(exact, METHODS[key], CLASSES)).eval()
    if key == "dora":
        with pytest.raises(InputError, match="DoRA reads the frozen weights: .* holds torch.int8"):
            pvera.adapt(vit, METHODS[key], CLASSES)
        return
    model = perturb(pvera.adapt(vit, METHODS[key], CLASSES)).eval()
    close(model(images), expected(images))
    if key == "pvera":
        close(pvera.sample(model, images, 4), pvera.sample(expected, images, 4))
    if key in MERGEABLE and key != "linear":
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(InputError, match="cannot be merged: .* holds torch.int8"):
            model.merge_()
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("key", ["ia3", "lora", "pvera"])
def test_layers_that_are_replaced_after_adapting_are_noticed(key, images):
    model = adapted(key)
    int8(model.backbone)
    with pytest.raises(InputError, match="was replaced after adapt"):
        model(images)


# ---------------------------------------------------------------- one A and B


@pytest.mark.parametrize("key", ["vera", "pvera"])
def test_matrices_are_registered_once(key, images, tmp_path):
    model = adapted(key)
    state = model.state_dict()
    assert [name for name in state if name.rpartition(".")[2] in ("A", "B")] == [
        "members.0.shared.A",
        "members.0.shared.B",
    ]
    save_file(state, tmp_path / "state.safetensors")
    fresh = adapted(key, seed=1)
    fresh.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(fresh(images), model(images))
    # A state of before, with A and B in every layer.
    old = state | {f"members.0.layers.{i}.shared.{n}": state[f"members.0.shared.{n}"] for i in range(2) for n in "AB"}
    again = adapted(key, seed=1)
    again.load_state_dict(old)
    assert torch.equal(again(images), model(images))


@every_method
def test_functional_call_leaves_the_model_alone(key, images):
    model, other = adapted(key), adapted(key, seed=1)
    expected = model(images)
    tensors = dict(other.named_parameters()) | dict(other.named_buffers())
    assert torch.equal(functional_call(model, tensors, (images,)), other(images))
    assert torch.equal(model(images), expected)


@every_method
def test_vmap_over_models(key, images):
    models = [adapted(key), adapted(key, seed=1)]
    parameters, buffers = stack_module_state(models)
    outputs = vmap(lambda p, b: functional_call(models[0], (p, b), (images,)))(parameters, buffers)
    close(outputs, torch.stack([model(images) for model in models]))


# ---------------------------------------------------------------- noise


def steps(model, optimizer, count):
    for _ in range(count):
        loss = F.cross_entropy(model(make_images()), torch.arange(3)) + 1e-3 * model.kl_divergence()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("method", [METHODS["pvera"], LoRA(rank=3, dropout=0.5)], ids=lambda method: method.key)
def test_a_resumed_run_draws_on(method, tmp_path):
    def started():
        model = adapted(method).train()
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01)

    model, optimizer = started()
    steps(model, optimizer, 3)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
    steps(model, optimizer, 3)
    again, optimizer = started()
    for object_, state in zip((again, optimizer), torch.load(tmp_path / "checkpoint.pt"), strict=True):
        object_.load_state_dict(state)
    steps(again, optimizer, 3)
    for parameter, expected in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_training_noise_can_be_seeded(images):
    model = adapted().train()
    first = model.seed_noise(3)(images)
    assert not torch.equal(model(images), first)
    assert torch.equal(model.seed_noise(3)(images), first)
    assert not torch.equal(model.seed_noise(4)(images), first)


def test_the_kl_term_of_a_pass_without_gradients_is_refused_in_training(images):
    model = adapted()
    with torch.no_grad():
        model(images)
        assert model.kl_divergence() > 0
    assert model.kl_divergence() > 0
    model.train()
    with pytest.raises(RuntimeError, match="no_grad"):
        model.kl_divergence()
    model(images)
    assert model.kl_divergence().requires_grad


# ---------------------------------------------------------------- gradient checkpointing


@pytest.mark.parametrize("example", ["Dinov2Model", "vit_base_patch14_dinov2"])
def test_gradient_checkpointing_enable_computes_layers_twice(example, images):
    model, calls = pvera.adapt(make(example), METHODS["pvera"], CLASSES), []
    layer = model._layers[0].layer
    layer.register_forward_pre_hook(lambda *_: calls.append(layer))
    for enabled in (False, True):
        calls.clear()
        if enabled:
            model.gradient_checkpointing_enable()
        model.train()(images).sum().backward()
        assert len(calls) == 1 + enabled
        calls.clear()
        model.eval()(images).sum().backward()
