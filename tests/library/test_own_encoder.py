"""Vision transformers of one's own class: the section of docs/backbones.md runs, and what does not fit is refused."""

import re

import pytest
import torch
from encoders import as_dinov2
from families import refused
from pages import DOCS
from tiny import METHODS, make_images, make_vit, perturb
from torch import nn

import pvera
from pvera import InputError, encoders

SECTIONS = (DOCS / "backbones.md").read_text().split("\n## ")
BLOCKS = [re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) for section in SECTIONS]
CLASS, *USES = [block for blocks in BLOCKS for block in blocks]
NAMES: dict = {}
exec(compile(CLASS, "docs/backbones.md", "exec"), NAMES)
MyViT = NAMES["MyViT"]
MAP = dict(layers="layers", projections="attention.to_qkv", attention="attention", mlp_norm="mlp_norm", mlp_out="mlp.2")


def own(cls=MyViT, **options):
    torch.manual_seed(0)
    return cls(**options).eval()


@pytest.fixture
def register(monkeypatch):
    """Register classes for one test alone."""
    monkeypatch.setattr(encoders, "OWN", dict(encoders.OWN))
    return pvera.register_encoder


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = dict(NAMES)
    for block in USES:
        exec(compile(block, "docs/backbones.md", "exec"), names)
    assert names["logits"].shape == (8, 5) and names["patches"].shape == (8, 16, 48)
    assert names["features"].equal(names["tokens"][:, 0])
    assert torch.equal(names["model"].eval().members[0].head[0].weight, names["head"][0].weight)


@pytest.mark.parametrize("key", ["pvera", "ia3", "adaptformer"])
def test_methods(key, tmp_path):
    """It starts as the identity, trains, is saved and loaded, and merges or is refused."""
    images, plain = make_images(), own()
    expected = plain(images)
    model = pvera.adapt(plain, METHODS[key], 5)
    torch.testing.assert_close(model.features(images)[0], expected)
    perturb(model)(images).square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.members[0].trained().values())
    logits = model.eval()(images)
    pvera.save(model, tmp_path / "adapter.safetensors")
    loaded = pvera.load(own(), tmp_path / "adapter.safetensors")
    assert torch.equal(loaded(images), logits)
    with loaded.inference():
        torch.testing.assert_close(loaded(images), logits, rtol=1e-4, atol=1e-4)


class Own(nn.Module):
    """DINOv2 of transformers, whose attention has three projections, in a class of one's own."""

    img_size = 32

    def __init__(self):
        super().__init__()
        self.vit = as_dinov2(make_vit())

    def forward(self, images):
        return self.vit(images).last_hidden_state[:, 0]


def test_three_projections_compute_what_one_does(register):
    projections = [f"attention.{position}_proj" for position in "qkv"]
    register(Own, layers="vit.encoder.layer", projections=projections, attention="layer_scale1")
    models = [perturb(pvera.adapt(encoder, METHODS["pvera"], 5)).eval() for encoder in (make_vit(), Own().eval())]
    torch.testing.assert_close(models[1](make_images()), models[0](make_images()))


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "names, message",
    [
        ({"layers": "blocks"}, "has no attribute `blocks`"),
        ({"layers": "norm"}, "'LayerNorm' object is not iterable"),
        ({"projections": "attention.qkv"}, "has no attribute `qkv`"),
        ({"projections": "attention.to_out"}, "makes q, k, v by Linear(in_features=48, out_features=48, bias=True)"),
        ({"projections": "mlp_norm"}, "makes q, k, v by LayerNorm"),
        ({"attention": "norm"}, "layers.0.mlp_norm does not have the tokens to which attention and MLP alone"),
        ({"mlp_norm": "norm", "mlp": "attention.to_out"}, "layers.0 does not have the tokens"),
        ({"mlp_out": "mlp.1"}, "GELU(approximate='none') is no linear layer to the width 48 at an MLP's end"),
    ],
    ids=str,
)
def test_wrong_names(register, names, message):
    register(MyViT, **MAP | names)
    assert message in refused(own().train())


def with_change(**attributes):
    """Return a vision transformer of a subclass with other attributes."""
    cls = type("Changed", (MyViT,), attributes)
    pvera.register_encoder(cls, **MAP)
    return own(cls)


def twice(self, x):
    x = x + self.attention(self.norm(x))
    return x + self.mlp(self.mlp_norm(x)) / 2 + self.mlp(self.mlp_norm(x)) / 2


def of_layer(forward):
    vit = own()
    cls = type("OtherLayer", (type(vit.layers[0]),), {"forward": forward})
    for layer in vit.layers:
        layer.__class__ = cls
    return vit


def test_encoders_that_compute_something_else(register):
    assert "Changed returns features of shape (1, 17, 48), not one vector" in refused(with_change(forward=MyViT.tokens))
    assert "Changed returns dict, not one vector" in refused(with_change(forward=lambda self, x: {"x": x}))
    assert "is called 2 times in a pass, and not once" in refused(of_layer(twice))
    assert "is called 0 times in a pass" in refused(of_layer(lambda self, x: x))


def test_an_encoder_says_the_size_of_its_images(register):
    vit = own()
    del vit.img_size
    assert "MyViT does not say the size of its images" in refused(vit.train())
    vit.image_size = (32, 24)
    assert "MyViT does not compute an image (3, 32, 24), the size that it names" in refused(vit)
    vit.image_size = (32, 32)
    model = pvera.adapt(vit, METHODS["pvera"], 5)
    with pytest.raises(InputError, match=r"MyViT is for images \(3, 32, 32\), not \(3, 40, 40\)"):
        model(make_images(size=40))
    with pytest.raises(InputError, match="MyViT has no method set_grad_checkpointing"):
        model.gradient_checkpointing_enable()


def test_images_of_another_size(tmp_path):
    model = pvera.adapt(make_vit(), METHODS["lora"], 5)
    with pytest.raises(InputError, match=r"VisionTransformer is for images \(3, 32, 32\), not \(3, 64, 64\): Input"):
        model(make_images(size=64))
    pvera.save(model, tmp_path / "adapter.safetensors")
    with pytest.raises(InputError, match=r"for inputs \(3, 32, 32\); this VisionTransformer takes \(3, 16, 16\)"):
        pvera.load(make_vit(img_size=16), tmp_path / "adapter.safetensors")


@pytest.mark.parametrize("cls", [type(make_vit()), nn.Linear(2, 2), int])
def test_classes_that_are_not_ones_own(cls):
    with pytest.raises(InputError, match=r"register_encoder\(\) takes a module's class of your own"):
        pvera.register_encoder(cls)
    with pytest.raises(InputError, match="one module that makes queries, keys and values, or three"):
        pvera.register_encoder(MyViT, projections=["q", "k"])
