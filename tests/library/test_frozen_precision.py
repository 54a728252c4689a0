"""Backbones in bf16, fp16 and fp64: adapting, training, sampling, merging, saving."""

import pytest
import torch
from tiny import CLASSES, METHODS, adapted, make_images, make_vit, perturb
from torch.nn import functional as F

import pvera

#: Precision of the frozen weights -> of the trained tensors, and the largest relative error of the logits.
PRECISIONS = {
    torch.bfloat16: (torch.float32, 0.1),
    torch.float16: (torch.float32, 0.02),
    torch.float64: (torch.float64, 1e-4),
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("key", METHODS)
def test_a_backbone_of_another_precision(key, dtype, tmp_path):
    trained, tolerance = PRECISIONS[dtype]
    images, labels = make_images(4), torch.arange(4)
    exact = adapted(key).eval()(images)
    model = perturb(pvera.adapt(make_vit().to(dtype), METHODS[key], CLASSES)).eval()
    assert {p.dtype for p in model.members.parameters()} == {trained}
    images = images.to(dtype)

    def near(logits):
        return (logits - exact).abs().max() < tolerance * exact.abs().max()

    logits = model(images)
    assert logits.dtype == trained and near(logits)
    model.train()
    (F.cross_entropy(model(images), labels) + 0.01 * model.kl_divergence()).backward()
    for name, parameter in model.members[0].trained().items():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), name
    model.eval()
    pvera.save(model, tmp_path / "adapter.safetensors")
    loaded = pvera.load(make_vit().to(dtype), tmp_path / "adapter.safetensors").eval()
    if trained == torch.float32:
        assert torch.equal(loaded(images), logits)
    else:
        torch.testing.assert_close(loaded(images), logits, rtol=0, atol=1e-5)
    if key == "pvera":
        scores = pvera.sample(model, images, k=4)
        assert scores.shape == (4, 4, CLASSES) and scores.isfinite().all() and not torch.equal(scores[0], scores[1])
    if key not in ("bottleneck", "adaptformer"):
        assert near(model.merge_()(images))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("key", ["lora", "vera", "pvera"])
def test_a_model_that_was_rounded_can_be_saved_and_loaded(key, dtype, tmp_path):
    """The seed draws the frozen random matrices again, even if the model has rounded them."""
    images = make_images().to(dtype)
    model = adapted(key).to(dtype).eval()
    pvera.save(model, tmp_path / "adapter.safetensors")
    backbone = make_vit().to(dtype)
    loaded = pvera.load(backbone, tmp_path / "adapter.safetensors").eval()
    torch.testing.assert_close(loaded(images).to(dtype), model(images), rtol=0.05, atol=0.05)
    again = pvera.load(pvera.adapt(make_vit(), METHODS[key], CLASSES).to(dtype), tmp_path / "adapter.safetensors")
    assert torch.equal(again.eval()(images), model(images))
