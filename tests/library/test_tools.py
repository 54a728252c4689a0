"""Tools of the field beside every method: right, or refused in one line (docs/training-loops.md has the table)."""

import copy
from contextlib import nullcontext

import pytest
import timm
import torch
from families import make, make_inputs
from safetensors.torch import load_file, save_file
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from tiny import METHODS, make_images, make_vit, perturb
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

import pvera
from pvera import InputError, LoRA, PVeRA

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


# ---------------------------------------------------------------- one graph


@pytest.mark.filterwarnings("ignore")
@every_method
def test_compile_makes_one_graph(key, images):
    """Logits and gradients of the mean, in both modes, without a graph break."""
    model = adapted(key, depth=3)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    results = []
    for call in (model, compiled):
        with model.sampling(enabled=False) if key == "pvera" else nullcontext():
            logits = call(images)
            (logits.square().sum() + model.kl_divergence()).backward()
        results.append([logits, *(p.grad for p in model.members[0].trained().values())])
        model.zero_grad()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [METHODS["pvera"], LoRA(rank=3, dropout=0.5)], ids=lambda method: method.key)
def test_a_compiled_pass_draws_from_the_global_state(method):
    """It draws as widely as a pass that is not compiled, and differently in each pass."""
    model = perturb(pvera.adapt(make_vit(depth=1), method, CLASSES)).train()
    images = make_images(1).expand(2000, -1, -1, -1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.manual_seed(0)
        first, second, expected = compiled(images), compiled(images), model(images)
        torch.manual_seed(0)
        assert torch.equal(compiled(images), first)
    assert not torch.equal(second, first)
    assert (first.std(0) / expected.std(0) - 1).abs().max() < 0.1
    if method.key == "pvera":
        with model.sampling(seed=1):
            drawn = compiled(images[:4])
        with model.sampling(seed=1):
            assert torch.equal(compiled(images[:4]), drawn)


@pytest.mark.filterwarnings("ignore")
@every_method
def test_export_and_onnx_take_any_batch_size(key, images):
    model, batch = adapted(key), {"inputs": {0: torch.export.Dim("batch")}}
    program = torch.export.export(model, (images,), dynamic_shapes=batch)
    several = make_images(7)
    close(program.module()(several), model(several))
    if key in ("bottleneck", "pvera"):  # the others have no further operators, and a conversion takes seconds
        converted = torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto
        from onnx.reference import ReferenceEvaluator

        (logits,) = ReferenceEvaluator(converted).run(None, {"inputs": several.numpy()})
        close(torch.from_numpy(logits), model(several), 1e-4)


# ---------------------------------------------------------------- other tools


@every_method
def test_accumulated_gradients_are_those_of_the_whole_batch(key):
    model, images = adapted(key), make_images(4)
    model(images).square().sum().backward()
    whole = [p.grad.clone() for p in model.members[0].trained().values()]
    model.zero_grad()
    for half in images.split(2):
        model(half).square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.members[0].trained().values()], whole, rtol=1e-4, atol=1e-4)


@every_method
def test_timms_moving_average_and_optimizer(key, images):
    model = adapted(key).train()
    average = ModelEmaV3(model, decay=0.5)
    before = {name: p.detach().clone() for name, p in model.members[0].trained().items()}
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1, weight_decay=0.1)
    undecayed = {id(p) for group in optimizer.param_groups if not group["weight_decay"] for p in group["params"]}
    for name, parameter in model.members[0].trained().items():
        vector = name.rpartition(".")[2] in ("d", "b", "m", "l_kv", "l_ff", "s", "bias")
        assert (id(parameter) in undecayed) is vector, name
    model(images).square().sum().backward()
    optimizer.step()
    average.update(model)
    for name, parameter in average.module.members[0].trained().items():
        now = model.members[0].trained()[name]
        assert torch.allclose(parameter, (before[name] + now) / 2, atol=1e-6) or torch.equal(now, before[name])


@every_method
def test_torchaos_int8(key, images):
    """Training and draws work on torchao's weights, and the adapter's file comes back."""
    torchao = pytest.importorskip("torchao.quantization")
    model = adapted(key)
    torchao.quantize_(model.backbone, torchao.Int8WeightOnlyConfig())
    if key == "dora":  # adapted before, its reading of W notices codes
        with pytest.raises((InputError, RuntimeError, NotImplementedError)):
            pvera.adapt(model.unload(), METHODS[key], CLASSES)
        return
    assert (model(images) - adapted(key)(images)).abs().max() < 0.5
    model.train()(images).sum().backward()
    assert all(p.grad is not None for p in model.members[0].trained().values())
    if key == "pvera":
        mean = pvera.sample(model.eval(), images, 64).mean(0)
        assert (mean - model(images).softmax(-1)).abs().max() < 0.1
    if key in MERGEABLE and key != "linear":
        with pytest.raises(InputError, match="cannot be merged"):
            model.eval().merge_()


def test_torchs_dynamic_quantisation_is_refused(images):
    vit = torch.ao.quantization.quantize_dynamic(make_vit(), inplace=True)
    with pytest.raises(InputError, match="is quantised by torch"):
        pvera.adapt(vit, METHODS["pvera"], CLASSES)


# ---------------------------------------------------------------- names that tools expect


def test_inputs_by_name_and_labels(images):
    model, labels = adapted(), torch.tensor([0, 1, 2])
    assert torch.equal(model(pixel_values=images), model(images))
    loss, logits = model(pixel_values=images, labels=labels)
    close(loss, F.cross_entropy(logits, labels))
    model.beta = 0.5
    assert torch.equal(model(images, labels=labels).loss, loss), "the loss of an evaluation has no KL term"
    twin = copy.deepcopy(model).train()
    loss, logits = model.train()(images, labels=labels)
    close(loss, F.cross_entropy(twin(images), labels) + 0.5 * twin.kl_divergence())
    with pytest.raises(InputError, match="labels= gives one loss"):
        pvera.adapt(make_vit(), [PVeRA(rank=2)] * 2, CLASSES)(images, labels=labels)
    text = pvera.adapt(make("BertModel"), METHODS["pvera"], CLASSES).eval()
    tokens = make_inputs(text.backbone)
    assert torch.equal(text(**tokens), text(tokens))


def test_without_classes_or_with_a_head_of_ones_own(images, tmp_path):
    model = perturb(pvera.adapt(make_vit(), METHODS["pvera"], num_classes=0)).eval()
    close(model(images), model.features(images)[0], 0)
    assert model.members[0].count()["head"] == 0
    pvera.save(model, tmp_path / "adapter.safetensors")
    again = pvera.load(make_vit(), tmp_path / "adapter.safetensors").eval()
    assert torch.equal(again(images), model(images))
    features = model(images)
    model.members[0].head = head = nn.Sequential(nn.Linear(24, 7), nn.ReLU(), nn.Linear(7, 3))
    close(model(images), head(features), 0)
    pvera.save(model, tmp_path / "own.safetensors")
    fresh = pvera.adapt(make_vit(), METHODS["pvera"], num_classes=0).eval()
    fresh.members[0].head = copy.deepcopy(head).requires_grad_()
    perturb(fresh, seed=4)
    assert torch.equal(pvera.load(fresh, tmp_path / "own.safetensors")(images), model(images))
    with pytest.raises(InputError, match="linear head"):
        pvera.export_peft(model, tmp_path / "folder")


def test_timm_resolves_the_backbones_data_config():
    vit = timm.create_model("vit_tiny_patch8_32", num_classes=0)
    expected = timm.data.resolve_model_data_config(vit)
    assert timm.data.resolve_model_data_config(pvera.adapt(vit, METHODS["pvera"], CLASSES)) == expected
    assert expected["input_size"] == (3, 32, 32)
    assert not hasattr(pvera.adapt(make("Dinov2Model"), METHODS["pvera"], CLASSES), "pretrained_cfg")
