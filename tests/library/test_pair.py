"""One pair A, B that all targets share, and adapter files that hold A and B."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from encoders import as_dinov2
from safetensors import safe_open
from tiny import make_images, make_vit, perturb

import pvera
from pvera import InputError, PVeRA, VeRA
from pvera.backbones import load as load_backbone

CLASSES = 5
RESULTS = Path(__file__).resolve().parents[2] / "results"
SHARED = [cls(rank=8, targets=targets, pair="shared") for cls in (VeRA, PVeRA) for targets in ("qv", "k", "qkv")]


def adapted(method, backbone=None, seed=0):
    return perturb(pvera.adapt(backbone or make_vit(), method, CLASSES, seed), seed).double()


def spread(method, model, backbone):
    """Return the model with one pair per position, each a copy of `model`'s shared pair."""
    cls = type(method)
    copies = pvera.adapt(backbone, cls(rank=8, targets=method.targets), CLASSES).double()
    copies.members[0].fill(model.members[0].trained())
    pairs = {f"shared.{name}": tensor for name, tensor in model.members[0].shared.named_buffers()}
    copies.members[0].fill(pairs)  # the one pair broadcasts
    return copies


@pytest.mark.parametrize("backbone", [make_vit, lambda: as_dinov2(make_vit())], ids=["fused", "separate"])
@pytest.mark.parametrize("method", SHARED, ids=str)
def test_a_shared_pair_is_the_same_pair_at_every_position(method, backbone):
    """Equal are mean, draws, KL term, gradients, draws around a merged mean, and merged weights."""
    images, results = make_images().double(), []
    model = adapted(method, backbone().double())
    for one in (model, spread(method, model, backbone().double())):
        with one.sampling(seed=1) if method.key == "pvera" else torch.enable_grad():
            logits = one(images)
        (logits.square().sum() + one.kl_divergence()).backward()
        outputs = [logits, one.kl_divergence(), *(p.grad for p in one.members[0].trained().values())]
        if method.key == "pvera":
            outputs.append(pvera.sample(one, images, k=2, seed=3))
        one.eval()
        results.append([*outputs, one(images), one.merge_()(images)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    assert model.members[0].shared.A.shape[-2] == len(model.members[0].shared.B) == 1


def test_a_pair_is_shared_or_not():
    with pytest.raises(InputError, match="pair must be one of position, shared, not 'both'"):
        PVeRA(pair="both")
    one, per_position = (pvera.adapt(make_vit(), PVeRA(rank=8, pair=p), CLASSES) for p in ("shared", "position"))
    frozen = [sum(b.numel() for b in model.members[0].buffers()) for model in (one, per_position)]
    assert 2 * frozen[0] == frozen[1]
    assert one.members[0].count() == per_position.members[0].count()


def test_the_default_leaves_descriptions_as_they_were():
    """Configurations of committed results keep their hashes, and earlier versions can read adapter files."""
    for method in (VeRA(), PVeRA()):
        assert "pair" not in method.describe()
        assert replace(method, pair="shared").describe() == method.describe() | {"pair": "shared"}


# ---------------------------------------------------------------- files


def description(path):
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["pvera"]), set(file.keys())


def with_other_matrices(seed=0):
    model = adapted(PVeRA(rank=8), seed=seed).float().eval()
    for name, buffer in model.members[0].shared.named_buffers():
        buffer.copy_(torch.randn(buffer.shape, generator=torch.Generator().manual_seed(len(name))))
    return model


def test_matrices_that_no_seed_draws_are_in_the_file(tmp_path, images):
    model, path = with_other_matrices(), tmp_path / "adapter.safetensors"
    pvera.save(model, path)
    described, names = description(path)
    assert described["version"] == 2 and {"shared.A", "shared.B"} <= names
    fresh = adapted(PVeRA(rank=8), seed=4).float()
    for loaded in (pvera.load(make_vit(), path), pvera.load(fresh, path)):
        assert torch.equal(loaded.eval()(images), model(images))
        pvera.save(loaded, tmp_path / "again.safetensors")
        assert description(tmp_path / "again.safetensors")[1] == names
    assert (tmp_path / "again.safetensors").stat().st_size > 8 * 24 * 3 * 4


def test_damaged_matrices_are_noticed(tmp_path):
    path = tmp_path / "adapter.safetensors"
    pvera.save(with_other_matrices(), path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        pvera.load(make_vit(), path)


def test_committed_files_of_version_1_load():
    path = next((RESULTS / "mini" / "benchmark" / "tiny").glob("*/pvera/seed0.safetensors"))
    described, _ = description(path)
    assert described["version"] == 1 and "pair" not in described["hyperparameters"]
    model = pvera.load(load_backbone("tiny").model, path)
    assert model.members[0].method.pair == "position"
