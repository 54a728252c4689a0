"""The adapted model: what is trained, grids side by side, modes, merging and unloading, errors."""

import copy
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from families import make
from tiny import CLASSES, METHODS, adapted, make_images, make_vit, perturb
from torch.nn import functional as F
from torch.nn.utils import prune

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, InputError, Linear, LoRA, PVeRA
from pvera.adapters.base import HOOK_POINTS, Adapter, Method, select
from pvera.adapters.stochastic import with_settings

#: Three members each, with unequal hyperparameters where the method has any.
GRIDS = {
    "linear": [Linear()] * 3,
    "bottleneck": [Bottleneck(ratio=r) for r in (2, 4, 8)],
    "ia3": [IA3()] * 3,
    "adaptformer": [AdaptFormer(ratio=r) for r in (2, 4, 8)],
    "dora": [DoRA(rank=r) for r in (2, 4, 8)],
    "lora": [LoRA(rank=r) for r in (2, 4, 8)],
    "pvera": [PVeRA(rank=r) for r in (4, 8, 16)],
    "targets": [PVeRA(rank=8, targets=t) for t in ("q", "kv", "qkv")],
}


def labels(count=4):
    return torch.arange(count) % CLASSES


def optimizer(model, lr=1e-2):
    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=1e-4
    )


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize("seeds", [0, [0, 1, 2]], ids=["one seed", "three seeds"])
@pytest.mark.parametrize("key", GRIDS)
def test_grid_trains_each_member_as_alone(key, seeds):
    methods, beta = GRIDS[key], 0.01
    together = pvera.adapt(make_vit(), methods, CLASSES, seeds)
    alone = [
        pvera.adapt(make_vit(), m, CLASSES, s)
        for m, s in zip(methods, seeds if isinstance(seeds, list) else [seeds] * 3)
    ]
    steps = [optimizer(together), *map(optimizer, alone)]
    for i in range(7):
        if i == 4:  # a stopped member
            together.active = [0, 2]
            stopped = copy.deepcopy(together.members[1].state_dict())
        images = make_images(4, seed=i)
        logits, kl = together(images), together.kl_divergence()
        assert logits.shape == (len(together.active), 4, CLASSES) and kl.shape == (
            len(together.active),
        )
        losses = torch.stack([F.cross_entropy(x, labels()) for x in logits]) + beta * kl
        for step in steps:
            step.zero_grad()
        losses.sum().backward()
        for j, m in enumerate(together.active):
            expected_logits, expected_kl = alone[m](images), alone[m].kl_divergence()
            loss = F.cross_entropy(expected_logits, labels()) + beta * expected_kl
            loss.backward()
            torch.testing.assert_close(logits[j], expected_logits, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(kl[j], expected_kl, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(losses[j], loss, rtol=1e-5, atol=1e-5)
            for name, parameter in together.members[m].trainable_tensors().items():
                expected = alone[m].members[0].trainable_tensors()[name]
                torch.testing.assert_close(
                    parameter.grad, expected.grad, rtol=1e-4, atol=1e-5, msg=name
                )
        for step in steps:
            step.step()
    for name, tensor in together.members[1].state_dict().items():
        assert torch.equal(tensor, stopped[name]), name  # not even weight decay moves it
    together.active = [0, 1, 2]
    together.eval()
    together(images)  # it is computed again once it is active


class Late(LoRA):
    """LoRA from the second layer on."""

    def adapter(self, layer, index, shared, seed):
        return super().adapter(layer, index, shared, seed) if index else Adapter()


def test_a_grid_of_a_method_that_leaves_the_first_layer_alone(images):
    methods = [Late(rank=2), Late(rank=4)]
    alone = torch.stack([adapted(method).eval()(images) for method in methods])
    grid = adapted(methods, seed=[0, 0])
    for member, method in zip(grid.members, methods, strict=True):
        member.load_state_dict(adapted(method).members[0].state_dict())
    torch.testing.assert_close(grid.eval()(images), alone, rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="must adapt the same places"):
        adapted([Late(rank=2), LoRA(rank=2)], seed=[0, 0])


class Shift(Adapter):
    """One hook point, which adds one, and no merge."""

    def __init__(self, point):
        super().__init__()
        last = 1 if point == "project" else -1
        setattr(self, point, lambda *arguments: arguments[last] + 1)


@dataclass(frozen=True)
class ShiftMethod(Method):
    title = "Shift"
    point: str = "after_mlp"

    def adapter(self, layer, index, shared, seed):
        return Shift(self.point)


@pytest.mark.parametrize("point", HOOK_POINTS)
def test_an_adapter_that_has_no_merge_is_not_merged(point, images):
    model = adapted(ShiftMethod(point)).eval()
    expected = model(images)
    with pytest.raises(InputError, match="Shift is not linear and cannot be merged"):
        model.merge_()
    with model.inference():
        torch.testing.assert_close(model(images), expected)


class Unhooked(Adapter):
    """An adapter that takes no part in a pass, though it could project."""

    hook_points = frozenset()

    def project(self, x, y, projections):
        raise AssertionError("it is not called")

    merge_projection = project


class UnhookedMethod(Method):
    title = "Unhooked"

    def adapter(self, layer, index, shared, seed):
        return Unhooked()


def test_a_merge_holds_what_the_hooks_computed(images):
    model = adapted(UnhookedMethod()).eval()
    expected = model(images)
    assert torch.equal(model.merge_()(images), expected)


@pytest.mark.parametrize("point", ["parallel", "parallel_scaled"])
def test_a_parallel_branch_needs_a_norm_before_the_mlp(point):
    with pytest.raises(InputError, match="Shift needs a LayerNorm before the MLP"):
        pvera.adapt(make("BertModel"), ShiftMethod(point), CLASSES)


class Both(Adapter):
    """A branch parallel to the MLP, and queries that are not those of position embeddings."""

    def project(self, x, y, projections):
        return y + 1

    def project_position_embeddings(self, x, y, projections):
        raise AssertionError("a ViT projects none")

    def parallel(self, x, y):
        return y + x


class BothMethod(Method):
    title = "Both"

    def adapter(self, layer, index, shared, seed):
        return Both()


def test_an_error_inside_a_layer_leaves_the_next_pass_right(images):
    model = adapted(BothMethod()).eval()
    expected = model(images)
    handle = model.encoder_layers[0].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(images)
    handle.remove()
    assert torch.equal(model(images), expected)


def test_members_are_merged_one_after_the_other():
    model = adapted(GRIDS["lora"], seed=[0, 1, 2]).eval()
    model.active = [0]
    assert model.merge_() is model.merge_()
    model.active = [1]
    with pytest.raises(RuntimeError, match="holds another member: call unmerge_"):
        model.merge_()


def test_select_keeps_the_order_of_its_index():
    letters = torch.arange(6).view(2, 3)
    for index in ([2, 1, 0], [0, 1, 2], [1], [2, 0]):
        assert torch.equal(select(letters, 1, index), letters[:, index])


def test_one_member_of_a_grid_can_be_merged(images):
    model = adapted(GRIDS["lora"], seed=[0, 1, 2]).eval()
    expected = model(images)
    with pytest.raises(InputError, match="only one member can be merged"):
        model.merge_()
    for member in range(3):
        model.active = [member]
        model.merge_()
        torch.testing.assert_close(model(images), expected[[member]], rtol=0, atol=1e-5)
        model.active = [(member + 1) % 3]  # whose adapters are not in the weights
        with pytest.raises(RuntimeError, match=f"member {member} is merged"):
            model(images)
        model.unmerge_()
    model.active = [0, 1, 2]
    assert torch.equal(model(images), expected)


@pytest.mark.parametrize("key", ["pvera", "ia3", "adaptformer", "bottleneck"])
def test_last_mlp_on_the_class_token_alone(key):
    """Skipping unread tokens in the last MLP keeps logits, KL term and gradients."""
    images, results = make_images(4), []
    for spared in (False, True):
        model = adapted(GRIDS[key], seed=[0, 1, 2])
        model.last_mlp_on_class_token = spared
        model.eval()(images)  # the first pass verifies which tokens the head reads
        model.train()
        seen = []
        model.backbone.blocks[-1].mlp.fc1.register_forward_pre_hook(
            lambda _, args, seen=seen: seen.append(args[0].shape[1])
        )
        logits, kl = model(images), model.kl_divergence()
        (sum(F.cross_entropy(x, labels()) for x in logits) + 0.01 * kl.sum()).backward()
        assert seen == [1 if spared else 17]
        gradients = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        results.append({"logits": logits, "kl": kl, **gradients})
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_a_pass_keeps_no_activation(images):
    """The adapter reads them behind the MLP."""
    model, kept = adapted("adaptformer"), []
    for layer in model.encoder_layers:
        layer.mlp_norm.register_forward_pre_hook(lambda _, args: kept.append(weakref.ref(args[0])))
    model(images)
    assert len(kept) == len(model.encoder_layers) and not any(
        activation() is not None for activation in kept
    )


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize("key", ["pvera", "ia3", "adaptformer"])
def test_backbone_stays_in_evaluation_mode(images, key):
    """Its dropout and stochastic depth are off while adapters train."""
    rates = {
        "proj_drop_rate": 0.5,
        "attn_drop_rate": 0.5,
        "drop_path_rate": 0.5,
        "pos_drop_rate": 0.5,
    }
    model = perturb(pvera.adapt(make_vit(**rates), METHODS[key], CLASSES))
    assert model.training and model.members.training
    assert not any(module.training for module in model.backbone.modules())
    model.eval()
    mean = model(images)
    torch.nn.Sequential(model).train()  # also if a parent module calls train
    assert model.training and not any(module.training for module in model.backbone.modules())
    if key == "pvera":
        with with_settings(model.members[0].stochastic_adapters, sampling=False):
            assert torch.equal(model(images), mean)
    else:
        assert torch.equal(model(images), mean)


# ---------------------------------------------------------------- merging, unloading


def test_an_unloaded_model_computes_nothing_and_leaves_its_successor_alone(vit, images):
    model = perturb(pvera.adapt(vit, METHODS["pvera"], CLASSES)).eval()
    model(images)
    model.unload()
    successor = perturb(pvera.adapt(vit, METHODS["lora"], CLASSES)).eval()
    expected = successor(images)
    for use in (
        lambda: model(images),
        lambda: pvera.sample(model, images, 2),
        model.merge_,
        model.kl_divergence,
    ):
        with pytest.raises(RuntimeError, match="was unloaded"):
            use()
    assert model.unmerge_() is model and model.unload() is vit
    with pytest.raises(InputError, match="has adapters already"):
        pvera.adapt(vit, METHODS["ia3"], CLASSES)
    assert torch.equal(successor(images), expected)


def test_as_a_context_the_model_is_unloaded(vit, images):
    expected = vit(images)
    with (
        pytest.raises(ZeroDivisionError),
        perturb(pvera.adapt(vit, METHODS["lora"], CLASSES)).eval() as model,
    ):
        assert not torch.equal(model.merge_().features(images)[0], expected)
        raise ZeroDivisionError
    assert torch.equal(vit(images), expected)
    pvera.adapt(vit, METHODS["lora"], CLASSES)


@pytest.mark.parametrize("method", [*METHODS.values(), GRIDS["ia3"]], ids=str)
def test_inference_merges_where_it_can_and_leaves_the_model_as_it_was(method, images):
    model = adapted(method).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = copy.deepcopy(model).eval()(images)
    with pytest.raises(ZeroDivisionError), model.inference() as predictor:
        assert predictor is model and not model.training and torch.is_inference_mode_enabled()
        assert model.merged is (not model.has_member_axis and model.members[0].mergeable)
        torch.testing.assert_close(predictor(images), expected, rtol=1e-4, atol=1e-4)
        raise ZeroDivisionError
    assert model.training and not model.merged
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with model.eval().inference():
        pass
    assert not model.training


def test_a_merge_that_fails_changes_nothing(images, monkeypatch):
    model = adapted().eval()
    expected, adapter = model(images), model.members[0].layers[1]
    monkeypatch.setattr(adapter, "merge_projection", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.merge_()
    assert not model.merged and torch.equal(model(images), expected)


def test_a_pruned_backbone_is_not_merged():
    """Its pass makes the weights anew from others."""
    vit = make_vit()
    prune.l1_unstructured(vit.blocks[0].attn.qkv, "weight", 0.5)
    with pytest.raises(InputError, match="be merged .*: Linear holds torch.float32 in Tensor"):
        pvera.adapt(vit, METHODS["pvera"], CLASSES).merge_()


def test_active_members_may_be_any_sequence(images):
    model = pvera.adapt(make_vit(), [pvera.LoRA(rank=2)] * 2, 3)
    model.active = (1,)
    model.eval().merge_()
    assert model(images).shape == (1, len(images), 3)


def one_parameter(first, second):
    second.weight = first.weight


def one_bias(first, second):
    second.bias = first.bias


def one_memory(first, second):
    second.weight = torch.nn.Parameter(first.weight.data)


@pytest.mark.parametrize("share", [one_parameter, one_bias, one_memory])
def test_layers_that_share_a_weight_are_not_merged(share, images):
    vit = make_vit()
    share(vit.blocks[0].attn.qkv, vit.blocks[1].attn.qkv)
    model = perturb(pvera.adapt(vit, METHODS["ia3"], CLASSES)).eval()
    before, expected = copy.deepcopy(vit.state_dict()), model(images)
    with pytest.raises(InputError, match="its layers share weights"):
        model.merge_()
    with model.inference():
        assert torch.equal(model(images), expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in vit.state_dict().items())


def test_a_shared_weight_that_the_adapter_leaves_alone_is_no_obstacle(images):
    vit = make_vit()
    vit.blocks[1].mlp.fc1.weight = vit.blocks[0].mlp.fc1.weight
    model = perturb(pvera.adapt(vit, METHODS["ia3"], CLASSES)).eval()
    expected = model(images)
    torch.testing.assert_close(model.merge_()(images), expected)


def test_inference_on_a_merged_model_leaves_it_merged():
    model = adapted().eval().merge_()
    with model.inference():
        assert model.merged
    assert model.merged and not model.training


# ---------------------------------------------------------------- precision

#: Precision of the frozen weights -> of the trained tensors, and the largest relative error of
#: the logits.
PRECISIONS = {
    torch.bfloat16: (torch.float32, 0.1),
    torch.float16: (torch.float32, 0.02),
    torch.float64: (torch.float64, 1e-4),
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("key", ["pvera", "dora", "ia3", "adaptformer"])
def test_a_backbone_of_another_precision(key, dtype):
    trained, tolerance = PRECISIONS[dtype]
    images, labels = make_images(4), torch.arange(4)
    exact = adapted(key).eval()(images)
    model = perturb(pvera.adapt(make_vit().to(dtype), METHODS[key], CLASSES)).eval()
    assert {p.dtype for p in model.members.parameters()} == {trained}
    images = images.to(dtype)

    def near(logits):
        return (logits - exact).abs().max() < tolerance * exact.abs().max()

    logits = model(images)
    assert logits.dtype == trained and near(logits) and model.kl_divergence().dtype.itemsize >= 4
    model.train()
    (F.cross_entropy(model(images), labels) + 0.01 * model.kl_divergence()).backward()
    for name, parameter in model.members[0].trainable_tensors().items():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), name
    model.eval()
    if key == "pvera":
        scores = pvera.sample(model, images, k=4)
        assert (
            scores.shape == (4, 4, CLASSES)
            and scores.isfinite().all()
            and not torch.equal(scores[0], scores[1])
        )
    if key not in ("bottleneck", "adaptformer"):
        assert near(model.merge_()(images))


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "defaults",
    [
        partial(default_dtype, torch.float64),
        partial(default_dtype, torch.float16),
        partial(torch.device, "meta"),
    ],
    ids=["float64", "float16", "meta"],
)
@pytest.mark.parametrize("key", METHODS)
def test_what_a_seed_draws_does_not_depend_on_the_defaults_of_the_process(key, defaults, tmp_path):
    """Nor what is saved, and from where it is loaded."""
    vit, other = make_vit(), make_vit()
    expected = pvera.adapt(make_vit(), METHODS[key], CLASSES)
    pvera.save(expected, tmp_path / "expected.safetensors")
    with defaults():
        model = pvera.adapt(vit, METHODS[key], CLASSES)
        pvera.save(model, tmp_path / "adapter.safetensors")
        loaded = pvera.load(other, tmp_path / "expected.safetensors")
    assert (tmp_path / "adapter.safetensors").read_bytes() == (
        tmp_path / "expected.safetensors"
    ).read_bytes()
    for each in (model, loaded):
        state = each.state_dict()
        for name, tensor in expected.state_dict().items():
            assert torch.equal(state[name], tensor) and state[name].dtype == tensor.dtype, name


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("key", ["vera", "pvera"])
def test_a_model_that_was_rounded_can_be_saved_and_loaded(key, dtype, tmp_path):
    """The seed draws the frozen random matrices again, even if the model has rounded them."""
    images = make_images().to(dtype)
    model = adapted(key).to(dtype).eval()
    pvera.save(model, tmp_path / "adapter.safetensors")
    backbone = make_vit().to(dtype)
    loaded = pvera.load(backbone, tmp_path / "adapter.safetensors").eval()
    torch.testing.assert_close(loaded(images).to(dtype), model(images), rtol=0.05, atol=0.05)
    assert model.kl_divergence().dtype.itemsize >= 4
