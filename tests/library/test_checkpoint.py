"""Saved adapters, states and copies: what was trained comes back bit for bit, and other files
are refused.
"""

import json
from dataclasses import asdict

import pytest
import tiny
import torch
from families import make, make_inputs
from safetensors import safe_open
from safetensors.torch import save, save_file
from tiny import CLASSES, METHODS, adapted, make_vit, perturb
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import pvera
from pvera import DoRA, InputError, LoRA, PVeRA, VeRA

TIMM = "vit_base_patch14_dinov2"
CONFIGURATIONS = [
    *METHODS.values(),
    PVeRA(rank=4, alpha=2.5, targets="qkv", init="uniform", kl="mean"),
    VeRA(rank=4, targets="k", init="uniform"),
    DoRA(rank=2, norm="output", train_magnitude=False, scaled=False),
    LoRA(rank=2, targets="v", same_draw=True, dropout=0.25),
    VeRA(rank=8, pair="shared"),
    PVeRA(rank=8, targets="qkv", pair="shared"),
    VeRA(rank=3, dropout=0.25, dropout_on="latent"),
    PVeRA(rank=4, sigma=1.0),
]


def trained(seed=0, method=METHODS["pvera"]):
    return adapted(method, seed).eval()


def content(path):
    """Return the tensors and description of an adapter file."""
    with safe_open(path, "pt") as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        return tensors, json.loads(file.metadata()["pvera"])


@pytest.fixture
def path(tmp_path):
    """An adapter file of `trained()`."""
    pvera.save(trained(), tmp_path / "adapter.safetensors")
    return tmp_path / "adapter.safetensors"


# ---------------------------------------------------------------- round trip


@pytest.mark.parametrize("method", CONFIGURATIONS, ids=str)
def test_round_trip(tmp_path, images, method):
    """The file holds what was trained; it loads onto a plain backbone."""
    model, path = trained(seed=3, method=method), tmp_path / "adapter.safetensors"
    pvera.save(model, path)
    tensors, described = content(path)
    assert tensors.keys() == {*model.members[0].trainable_tensors(), "frozen_features"}
    assert (described["version"], described["method"], described["seed"]) == (4, method.key, 3)
    assert described["hyperparameters"] == asdict(method)
    loaded = pvera.load(make_vit(), path)
    assert not any(module.training for module in loaded.modules())
    member = loaded.members[0]
    assert (member.method, member.seed, member.num_classes) == (method, 3, CLASSES)
    assert all(parameter.requires_grad for parameter in member.trainable_tensors().values())
    assert torch.equal(loaded(images), model(images))
    pvera.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    if member.is_stochastic:
        assert torch.equal(pvera.sample(loaded, images, k=2), pvera.sample(model, images, k=2))
    if model.members[0].mergeable:  # the backbone's hashes are those of the original weights
        pvera.save(model.merge_(), tmp_path / "merged.safetensors")
        assert (tmp_path / "merged.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "frozen", [lambda model: model, lambda model: model.members[0].head], ids=["all", "head"]
)
def test_what_was_trained_is_saved_while_it_is_frozen(path, tmp_path, frozen):
    model = trained()
    frozen(model).requires_grad_(False)
    pvera.save(model, tmp_path / "frozen.safetensors")
    assert (tmp_path / "frozen.safetensors").read_bytes() == path.read_bytes()


def test_a_head_of_ones_own_leaves_the_matrices_to_the_seed(tmp_path):
    """Buffers of the head, such as those of BatchNorm, are no random matrices."""
    model = pvera.adapt(make_vit(), METHODS["pvera"], num_classes=0)
    member = model.members[0]
    member.head = nn.Sequential(nn.BatchNorm1d(member.dim), nn.Linear(member.dim, CLASSES))
    pvera.save(model.eval(), tmp_path / "a.safetensors")
    tensors, _ = content(tmp_path / "a.safetensors")
    assert tensors.keys() == {
        "frozen_features",
        *(name for name in member.trainable_tensors() if not name.startswith("head.")),
    }


def test_one_member_of_a_grid(tmp_path, images):
    methods = [PVeRA(rank=4), PVeRA(rank=8)]
    grid, path = adapted(methods, seed=[0, 1]).eval(), tmp_path / "a.safetensors"
    expected = grid(images)
    with pytest.raises(InputError, match="only one member can be saved"):
        pvera.save(grid, path)
    grid.active = [1]
    pvera.save(grid, path)
    torch.testing.assert_close(
        pvera.load(make_vit(), path).eval()(images), expected[1], rtol=0, atol=1e-5
    )


def compiled(vit):
    return torch.compile(vit, backend="eager")


def block_compiled(vit):
    vit.blocks[1] = compiled(vit.blocks[1])
    return vit


def int8(vit):
    quantize_(vit, Int8WeightOnlyConfig())
    return vit


def bf16_numbers(vit):
    return vit.bfloat16().float()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "saved_on, loaded_onto",
    [
        (compiled, nn.Identity()),
        (nn.Identity(), compiled),
        (block_compiled, nn.Identity()),
        (int8, int8),
        (bf16_numbers, nn.Module.bfloat16),
        (nn.Module.bfloat16, bf16_numbers),
        (nn.Module.double, nn.Identity()),
    ],
)
def test_one_backbone_in_several_forms(tmp_path, images, saved_on, loaded_onto):
    """Forms that change no number, or round alone, take each other's adapters; both kinds of
    encoders do.
    """
    for example in (TIMM, "Dinov2Model"):
        if example == "Dinov2Model" and saved_on is block_compiled:
            continue
        model = perturb(pvera.adapt(saved_on(make(example)), METHODS["pvera"], CLASSES)).eval()
        pvera.save(model, tmp_path / "adapter.safetensors")
        loaded = pvera.load(loaded_onto(make(example)), tmp_path / "adapter.safetensors").eval()
        dtypes = [next(m.backbone.parameters()).dtype for m in (model, loaded)]
        ours, theirs = (
            m(images.to(dtype)).float() for m, dtype in zip((model, loaded), dtypes, strict=True)
        )
        assert (ours - theirs).norm() < (0.1 if torch.bfloat16 in dtypes else 1e-5) * ours.norm()


def test_saving_leaves_the_model_as_it_was(tmp_path, images):
    """Under autocast, after a merge and between two passes."""
    model, twin = trained().train(), trained().train()
    model.backbone.blocks[1].train()
    for each in (model, twin):
        each(images)
    before, modes = model.kl_divergence(), [module.training for module in model.modules()]
    with torch.autocast("cpu", torch.bfloat16):
        pvera.save(model, tmp_path / "a.safetensors")
    assert model.kl_divergence() is not None and torch.equal(model.kl_divergence(), before)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model(images), twin(images))  # the noise goes on as without
    merged = {n: t.clone() for n, t in model.merge_().backbone.state_dict().items()}
    pvera.save(model, tmp_path / "b.safetensors")
    assert all(torch.equal(t, merged[n]) for n, t in model.backbone.state_dict().items())
    assert len({(tmp_path / f"{name}.safetensors").read_bytes() for name in "ab"}) == 1
    model.unload()
    with pytest.raises(RuntimeError, match="was unloaded"):
        pvera.save(model, tmp_path / "c.safetensors")


#: torch's switches for products of fp32.
PRODUCTS = [
    torch.backends.cuda.matmul,
    torch.backends.cudnn.conv,
    torch.backends.mkldnn.matmul,
    torch.backends.mkldnn.conv,
]


def precisions():
    return [place.fp32_precision for place in PRODUCTS]


@pytest.fixture
def switches():
    """Set torch's switches back after the test."""
    before = precisions()
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    for place, value in zip(PRODUCTS, before, strict=True):
        place.fp32_precision = value


def each_by_itself():
    for place, value in zip(PRODUCTS, ["tf32", "tf32", "bf16", "bf16"], strict=True):
        place.fp32_precision = value


def by_the_general_switch():
    torch.backends.fp32_precision = "bf16"


def as_lightning_advises():
    torch.set_float32_matmul_precision("medium")


@pytest.mark.parametrize("lower", [each_by_itself, by_the_general_switch, as_lightning_advises])
def test_products_of_lower_precision_change_no_file(path, tmp_path, switches, lower):
    model, seen = trained(), []
    model.backbone.norm.register_forward_hook(lambda *_: seen.append(precisions()))
    lower()
    before = precisions()
    pvera.save(model, tmp_path / "lower.safetensors")
    assert seen == [["ieee"] * 4] and precisions() == before
    assert (tmp_path / "lower.safetensors").read_bytes() == path.read_bytes()


def test_saving_leaves_the_general_switch_in_command(path, switches):
    """A switch without a value of its own goes on following it."""
    by_the_general_switch()
    pvera.save(trained(), path)
    torch.backends.fp32_precision = "ieee"
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize("example", ["xcit_nano_12_p8_224", "BertModel"])
def test_a_backbone_in_training_mode(tmp_path, example):
    """Its file is that of evaluation mode, without dropout and with the statistics that
    BatchNorm keeps.
    """
    model = perturb(pvera.adapt(make(example), METHODS["vera"], CLASSES)).eval()
    pvera.save(model, tmp_path / "adapter.safetensors")
    backbone = make(example).train()
    loaded = pvera.load(backbone, tmp_path / "adapter.safetensors")
    plain = make(example).state_dict()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in backbone.state_dict().items())
    inputs = make_inputs(backbone)
    assert torch.equal(loaded(inputs), model(inputs))


# ---------------------------------------------------------------- files that are refused


def refused(path, message, target):
    """Check that loading raises a one-line InputError that contains `message`, and leaves the
    target unchanged.
    """
    before = {n: t.clone() for n, t in target.state_dict().items()}
    flags, mode = [p.requires_grad for p in target.parameters()], target.training
    tiny.refused(lambda: pvera.load(target, path), message)
    assert target.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())
    assert [p.requires_grad for p in target.parameters()] == flags and target.training is mode
    assert pvera.adapt(target, LoRA(rank=2), CLASSES).unload() is target


def merged_weights():
    """Merged weights that were kept are another backbone."""
    vit = make_vit()
    vit.load_state_dict(trained(method=METHODS["ia3"]).merge_().backbone.state_dict())
    return vit


def changed(name, *places, **values):
    """Return an encoder, and one of equal weights in which modules at `places` have other
    attributes.
    """
    plain, other = make(name), make(name)
    for place in places:
        for attribute, value in values.items():
            setattr(other.get_submodule(place), attribute, value)
    return plain, other


def other_statistics():
    plain, other = changed("xcit_nano_12_p8_224")
    for module in other.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.fill_(2.0)
    return plain, other


EACH_MLP = ("blocks.0.mlp", "blocks.1.mlp")
#: Pairs of encoders with equal weights that compute different features.
SAME_WEIGHTS = {
    "pooling": lambda: changed(TIMM, "", global_pool="avg"),
    "heads": lambda: changed(TIMM, "blocks.0.attn", num_heads=4, head_dim=12),
    "ReLU": lambda: changed(TIMM, *EACH_MLP, act=nn.ReLU()),
    "ReLU of BERT": lambda: changed(
        "BertModel", "encoder.layer.1.intermediate", intermediate_act_fn=nn.ReLU()
    ),
    "statistics": other_statistics,
    "not a number": lambda: changed(TIMM, "blocks.0.norm1", eps=float("nan")),
    "rotary positions": lambda: changed("vit_base_patch16_dinov3", "rope", periods=torch.ones(6)),
}


@pytest.mark.parametrize("make_both", SAME_WEIGHTS.values(), ids=SAME_WEIGHTS)
def test_a_backbone_that_computes_something_else_from_the_same_weights(tmp_path, make_both):
    plain, other = make_both()
    pvera.save(pvera.adapt(plain, METHODS["vera"], CLASSES), tmp_path / "adapter.safetensors")
    refused(tmp_path / "adapter.safetensors", "computes something else from them", other)


ANOTHER = "belongs to another backbone"


@pytest.mark.parametrize(
    "message, make",
    [
        (ANOTHER, lambda: make_vit(seed=1)),
        (ANOTHER, lambda: make_vit(dim=32)),
        (ANOTHER, lambda: make_vit(depth=3)),
        ("with an adapter merged into it", merged_weights),
    ],
)
def test_targets_that_a_file_does_not_fit(path, message, make):
    refused(path, message, make())


def test_a_backbone_that_has_an_adapter(path):
    model = adapted()
    with pytest.raises(InputError, match="unload"):
        pvera.load(model.backbone, path)
    with pytest.raises(InputError, match="AdaptedModel has layers of another form"):
        pvera.load(model, path)


def test_damaged_files(path, tmp_path):
    """A file that was cut, and one changed byte in length or header."""
    whole = path.read_bytes()
    damaged = [whole[:kept] for kept in (0, 4, 100, len(whole) // 2, len(whole) - 1)] + [
        bytes(len(whole))
    ]
    for at in (0, 9):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for content_ in damaged:
        path.write_bytes(content_)
        refused(path, "damaged", make_vit())
    for metadata in (None, {"pvera": "[1, 2]"}):
        save_file({"weight": torch.zeros(2)}, path, metadata=metadata)
        refused(path, "not an adapter file", make_vit())
    path.write_bytes(whole)
    with safe_open(path, "pt") as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        metadata = file.metadata()
    del tensors["frozen_features"]
    save_file(tensors, path, metadata=metadata)
    refused(path, "not an adapter file", make_vit())
    refused(tmp_path / "none.safetensors", "none.safetensors: no such file", make_vit())
    refused(tmp_path, "no such file", make_vit())


def test_random_matrices_that_cannot_be_drawn_again(path, monkeypatch):
    """Another version of PyTorch may draw other numbers."""
    from pvera.adapters import vera

    draw = vera.generator
    monkeypatch.setattr(vera, "generator", lambda *key: draw("other version", *key))
    refused(path, "other frozen random matrices (seed 0)", make_vit())


@pytest.mark.parametrize(
    "described, tensors, message",
    [
        ({"version": 3}, {}, "format version 3, not 4: use the pvera that wrote it"),
        ({"method": "pvera2"}, {}, "is not registered"),
        (
            {"hyperparameters": {"rank": 8, "depth": 1}},
            {},
            "a hyperparameter that pvera does not have",
        ),
        ({"hyperparameters": {"rank": 0}}, {}, "rank must be a positive integer"),
        ({"num_classes": -1}, {}, "num_classes must be a whole number from 0"),
        ({}, {"layers.0.d": torch.zeros(2, 2, 4)}, "does not hold the tensors"),
        ({}, {"layers.9.d": torch.zeros(2, 2, 8)}, "does not hold the tensors"),
        (
            {},
            {"layers.1.b": torch.full((2, 24), float("nan"))},
            "layers.1.b holds NaN or infinite numbers",
        ),
    ],
)
def test_wrong_content(path, described, tensors, message):
    old_tensors, old = content(path)
    metadata = {"pvera": json.dumps(old | described)}
    path.write_bytes(save(old_tensors | tensors, metadata))
    refused(path, message, make_vit())


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_diverged_adapter_is_not_saved(path, number):
    model, before = trained(), path.read_bytes()
    with torch.no_grad():
        model.members[0].head.bias[2] = float(number)
    tiny.refused(lambda: pvera.save(model, path), "save(): head.bias holds NaN or infinite numbers")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "part", [lambda model: model, lambda model: model.members], ids=["all", "adapters"]
)
def test_a_model_without_numbers(path, part):
    backbone = make_vit().to("meta")
    tiny.refused(lambda: pvera.load(backbone, path), "on the meta device, and has no numbers here")
    model, before = trained(), path.read_bytes()
    part(model).to("meta")
    tiny.refused(lambda: pvera.save(model, path), "on the meta device, and has no numbers here")
    assert path.read_bytes() == before


# ---------------------------------------------------------------- copies and states


@pytest.mark.parametrize(
    "parent", [lambda model: model, nn.Sequential], ids=["alone", "in a parent"]
)
@pytest.mark.parametrize("key", ["ia3", "pvera"])
def test_a_merged_model_has_no_state(key, parent, images):
    model = trained(method=METHODS[key])
    expected, state = model(images), parent(model).state_dict()
    fresh = pvera.adapt(make_vit(seed=2), METHODS[key], CLASSES, seed=1).eval()
    parent(fresh).load_state_dict(state)
    assert torch.equal(fresh(images), expected)
    model.merge_()
    merged = model.backbone.state_dict()  # the backbone alone is what is merged
    assert not all(torch.equal(t, fresh.backbone.state_dict()[n]) for n, t in merged.items())
    for use in (parent(model).state_dict, lambda: parent(model).load_state_dict(state)):
        with pytest.raises(RuntimeError, match=r"unmerge_\(\) first"):
            use()
