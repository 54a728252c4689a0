"""Saving and loading: trained tensors come back bit for bit, and other files are refused."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import CLASSES, METHODS, adapted, make_images, make_vit, perturb

import pvera
from pvera import DoRA, InputError, LoRA, PVeRA, VeRA
from pvera.checkpoint import _checksum

CONFIGURATIONS = [
    *METHODS.values(),
    PVeRA(rank=4, alpha=2.5, targets="qkv", init="uniform", kl="mean"),
    VeRA(rank=4, targets="k", init="uniform"),
    DoRA(rank=2, norm="output", train_magnitude=False, scaled=False),
    LoRA(rank=2, targets="v", same_draw=True),
    *(kind(rank=4, targets=t, pair="shared") for kind in (VeRA, PVeRA) for t in ("qv", "k", "qkv")),
    *(kind(rank=3, dropout=0.25) for kind in (LoRA, VeRA)),
    VeRA(rank=3, dropout=0.25, dropped="latent"),
    PVeRA(rank=4, sigma=1.0),
]


def trained(seed=0, method=METHODS["pvera"]):
    return adapted(method, seed).eval()


def content(path):
    """Return the tensors and description of an adapter file."""
    with safe_open(path, "pt") as file:
        return {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["pvera"])  # noqa: SIM118  it cannot be iterated


@pytest.fixture
def path(tmp_path):
    """An adapter file of `trained()`."""
    pvera.save(trained(), tmp_path / "adapter.safetensors")
    return tmp_path / "adapter.safetensors"


# ---------------------------------------------------------------- round trip


@pytest.mark.parametrize("method", CONFIGURATIONS, ids=str)
def test_round_trip(tmp_path, images, method):
    """The file loads into a plain backbone and into an adapted one with other values."""
    model, path = trained(seed=3, method=method), tmp_path / "adapter.safetensors"
    expected = model(images)
    pvera.save(model, path)
    assert [p.name for p in tmp_path.iterdir()] == ["adapter.safetensors"]
    fresh = make_vit()
    adapted = pvera.adapt(make_vit(), method, CLASSES, seed=3)
    assert pvera.load(adapted, path) is adapted
    for loaded in (pvera.load(fresh, path), adapted):
        member = loaded.members[0]
        assert (member.method, member.seed, member.num_classes) == (method, 3, CLASSES)
        for name, tensor in model.members[0].trained().items():
            assert torch.equal(member.trained()[name], tensor), name
            assert member.trained()[name].requires_grad
        assert torch.equal(loaded.eval()(images), expected)
    if model.members[0].samples:
        assert torch.equal(pvera.sample(loaded, images, k=2), pvera.sample(model, images, k=2))


def test_only_what_was_trained_is_saved(tmp_path):
    for method in CONFIGURATIONS:
        model = trained(method=method)
        pvera.save(model, tmp_path / "a.safetensors")
        tensors, described = content(tmp_path / "a.safetensors")
        assert tensors.keys() == model.members[0].trained().keys()
        assert all(t.dtype == torch.float32 for t in tensors.values())
        assert sum(t.numel() for t in tensors.values()) == sum(model.members[0].count().values())
        assert (described["method"], described["seed"], described["num_classes"]) == (method.key, 0, CLASSES)
        assert (described["version"], described["hyperparameters"]) == (1, method.describe())


def test_the_model_takes_the_seed_of_the_file(tmp_path, images):
    """Draws and the next file go by it, also where no frozen matrix does."""
    model, path = trained(seed=3, method=LoRA(rank=2, dropout=0.5)), tmp_path / "a.safetensors"
    pvera.save(model, path)
    filled = pvera.load(pvera.adapt(make_vit(), LoRA(rank=2, dropout=0.5), CLASSES, seed=7), path)
    assert filled.members[0].seed == 3
    assert torch.equal(pvera.sample(filled, images, 2), pvera.sample(pvera.load(make_vit(), path), images, 2))
    pvera.save(filled, tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == path.read_bytes()


def test_size_on_vit_b(vit_b, tmp_path):
    """PVeRA with a head of 100 classes takes at most 1.05 times its trained numbers in fp32."""
    model, path = pvera.adapt(vit_b, PVeRA(), num_classes=100), tmp_path / "adapter.safetensors"
    try:
        pvera.save(model, path)
    finally:
        model.unload()
    numbers = 30_720 + 100 * (768 + 1)
    assert numbers * 4 < path.stat().st_size <= 1.05 * numbers * 4


def test_saving_replaces_the_file_whole(path, images):
    model = perturb(trained(), seed=9)
    pvera.save(model, path)
    assert torch.equal(pvera.load(make_vit(), path).eval()(images), model(images))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_loaded_model_trains_on(path, images):
    model = pvera.load(make_vit(), path).train()
    model(images).sum().backward()
    assert all(p.grad is not None for p in model.members[0].trained().values())


def test_merged_model_saves_the_same_file(path, tmp_path):
    """The backbone's hashes are those of the original weights."""
    pvera.save(trained().merge_(), tmp_path / "merged.safetensors")
    assert (tmp_path / "merged.safetensors").read_bytes() == path.read_bytes()


def test_double_precision_is_saved_in_single(tmp_path, images):
    model = trained().double()
    pvera.save(model, tmp_path / "a.safetensors")
    loaded = pvera.load(make_vit(), tmp_path / "a.safetensors").eval()
    torch.testing.assert_close(loaded(images).double(), model(images.double()), rtol=0, atol=1e-5)


def test_one_member_of_a_grid(tmp_path, images):
    methods = [PVeRA(rank=4), PVeRA(rank=8)]
    grid, path = adapted(methods, seed=[0, 1]).eval(), tmp_path / "a.safetensors"
    expected = grid(images)
    with pytest.raises(InputError, match="only one member can be saved"):
        pvera.save(grid, path)
    assert not path.exists()
    grid.active = [1]
    pvera.save(grid, path)
    torch.testing.assert_close(pvera.load(make_vit(), path).eval()(images), expected[1], rtol=0, atol=1e-5)
    other = pvera.adapt(make_vit(), methods, CLASSES, [0, 1]).eval()
    with pytest.raises(InputError, match="fills one member"):
        pvera.load(other, path)
    untouched = other(images)[0]
    other.active = [1]
    pvera.load(other, path)
    other.active = [0, 1]
    torch.testing.assert_close(other(images), torch.stack([untouched, expected[1]]), rtol=0, atol=1e-5)


# ---------------------------------------------------------------- errors


def refused(path, message, target=None):
    """Check that loading `path` into `target` (by default both kinds) raises a one-line InputError that contains
    `message`, and leaves the target unchanged."""
    targets = [target] if target is not None else [make_vit().train(), trained(seed=0)]
    for model in targets:
        adapted = isinstance(model, pvera.AdaptedModel)
        before = {n: t.clone() for n, t in model.state_dict().items()}
        flags = [p.requires_grad for p in model.parameters()]
        mode, images = model.training, make_images()
        outputs = model(images).detach() if adapted else None
        with pytest.raises(InputError) as error:
            pvera.load(model, path)
        assert message in str(error.value) and "\n" not in str(error.value)
        assert model.state_dict().keys() == before.keys()
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        assert [p.requires_grad for p in model.parameters()] == flags and model.training is mode
        if adapted:
            assert torch.equal(model(images), outputs)
        else:
            assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
            assert pvera.adapt(model, LoRA(rank=2), CLASSES).unload() is model


def rewritten(path, change):
    """Rewrite the file after `change(tensors, described)`, like another program."""
    tensors, described = content(path)
    change(tensors, described)
    save_file(tensors, path, metadata={"pvera": json.dumps(described)})


def reseal(tensors, described):
    del described["sha256"]
    described["sha256"] = _checksum(described, tensors)


def test_missing_file(tmp_path):
    refused(tmp_path / "none.safetensors", "none.safetensors: no such file")
    refused(tmp_path, "no such file")


@pytest.mark.parametrize("vit", [{"seed": 1}, {"dim": 32}, {"depth": 3}], ids=str)
def test_another_backbone(path, vit):
    refused(path, "belongs to another backbone", make_vit(**vit))
    adapted = pvera.adapt(make_vit(**vit), METHODS["pvera"], CLASSES)
    refused(path, "belongs to another backbone", adapted.eval())


@pytest.mark.parametrize("method", [METHODS["vera"], METHODS["ia3"]], ids=str)
def test_backbone_with_a_merged_adapter(path, method):
    """Merged weights that were kept are another backbone; a file of before this hash cannot tell them."""
    merged = make_vit()
    merged.load_state_dict(trained(method=method).merge_().backbone.state_dict())
    refused(path, "has an adapter been merged into it?", merged.train())

    def earlier(tensors, described):
        del described["merged_sha256"]
        reseal(tensors, described)

    rewritten(path, earlier)
    pvera.load(merged, path)


def test_truncated_file(path):
    whole = path.read_bytes()
    for kept in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        refused(path, "damaged")


def test_damaged_file(path):
    """One changed byte is noticed in the length, the header, the description and the tensors."""
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    at = [
        0,
        9,
        whole.index(b"alpha") + 9,
        whole.index(b"layers.0.d") + 7,
        header,
        header + 50,
        len(whole) - 1,
    ]
    for position in at:
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        refused(path, "damaged", make_vit())
    path.write_bytes(bytes(len(whole)))
    refused(path, "damaged")
    path.write_bytes(whole)
    pvera.load(make_vit(), path)


def test_other_safetensors_file(path):
    save_file({"weight": torch.zeros(2)}, path)
    refused(path, "not an adapter file")
    save_file({"weight": torch.zeros(2)}, path, metadata={"pvera": "[1, 2]"})
    refused(path, "not an adapter file")
    save_file({"weight": torch.zeros(2)}, path, metadata={"pvera": '{"version": 1}'})
    refused(path, "not an adapter file")


def test_newer_version(path):
    rewritten(path, lambda tensors, described: described.update(version=4))
    refused(path, "format version 4, newer than this program's 3")


@pytest.mark.parametrize(
    "method, classes",
    [
        (PVeRA(rank=16), CLASSES),
        (PVeRA(rank=8, alpha=8.0), CLASSES),
        (PVeRA(rank=8, targets="qk"), CLASSES),
        (PVeRA(rank=8, init="uniform"), CLASSES),
        (VeRA(rank=8), CLASSES),
        (METHODS["pvera"], 6),
    ],
    ids=str,
)
def test_other_method_or_head_than_the_models(path, method, classes):
    refused(path, "adapter.safetensors holds PVeRA(rank=8", pvera.adapt(make_vit(), method, classes).eval())


def test_other_random_matrices(path):
    refused(path, "other frozen random matrices (seed 0)", trained(seed=1))


def test_random_matrices_that_cannot_be_drawn_again(path, monkeypatch):
    """Another version of PyTorch may draw other numbers."""
    from pvera.adapters import vera

    draw = vera.generator
    monkeypatch.setattr(vera, "generator", lambda *key: draw("other version", *key))
    refused(path, "other frozen random matrices (seed 0)", make_vit().train())


def test_merged_target(path):
    refused(path, "not merged", trained().merge_())


@pytest.mark.parametrize(
    "described, tensors, message",
    [
        ({"method": "pvera2"}, {}, "is not registered"),
        ({"hyperparameters": {"rank": 8, "depth": 1}}, {}, "a hyperparameter that pvera does not have"),
        ({"hyperparameters": {"rank": 0}}, {}, "rank must be a positive integer"),
        ({"num_classes": -1}, {}, "num_classes must be a whole number from 0"),
        ({}, {"layers.0.d": torch.zeros(2, 2, 4)}, "does not hold the tensors"),
        ({}, {"layers.9.d": torch.zeros(2, 2, 8)}, "does not hold the tensors"),
    ],
)
def test_consistent_file_with_wrong_content(path, described, tensors, message):
    """Inconsistent content is refused even with a correct checksum."""

    def change(old_tensors, old):
        old_tensors.update(tensors)
        old.update(described)
        reseal(old_tensors, old)

    rewritten(path, change)
    refused(path, message, make_vit().train())


def test_backbone_of_another_size_of_image(path):
    """At another resolution the position embedding differs, so the backbone is another one."""
    refused(path, "belongs to another backbone", make_vit(img_size=16))
