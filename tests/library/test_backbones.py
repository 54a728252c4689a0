"""Backbones: the packaged one, names, weights from files, and vision transformers of one's own
class.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
import safetensors
import timm
import tiny
import torch
from encoders import as_dinov2
from families import refused as refused_encoder
from pages import DOCS
from tiny import METHODS, make_images, make_vit, perturb
from torch import nn

import pvera
from pvera import InputError, backbones, encoders, files

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "pvera" / "weights" / "vit_tiny_patch8_32.safetensors"


def refused(name, **options) -> str:
    """Check that the error is one line, and return it."""
    error = tiny.refused(lambda: backbones.load(name, **options), "")
    assert len(error) < 400
    return error


def test_tiny_loads_frozen_and_in_evaluation_mode():
    tiny = backbones.load("tiny")
    assert tiny.image_size == 32 and not tiny.model.training
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in tiny.model.parameters())
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert tiny.model.forward_features(images).shape == (2, 4 * 4 + 1, 96)
    # The head reads the normalised class token.
    torch.testing.assert_close(tiny.model(images), tiny.model.forward_features(images)[:, 0])


def test_card_metadata_and_weights_agree():
    card = WEIGHTS.with_suffix(".md").read_text()
    with safetensors.safe_open(WEIGHTS, "pt") as file:
        described = {key: json.loads(value) for key, value in file.metadata().items()}
    assert WEIGHTS.stat().st_size <= 4e6
    assert described["weights_sha256"] == backbones.load("tiny").weights_sha256
    assert described["weights_sha256"] in card
    assert f"{100 * described['held_out_accuracy']:.2f} %" in card
    assert described["architecture"] == backbones.TINY_ARCHITECTURE
    assert f"| epochs | {described['epochs']}; " in card
    assert (described["training_images"], described["held_out_images"]) == (45_000, 5_000)


def test_hash_sees_names_shapes_types_and_values():
    state = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    variants = [
        state,
        {"c": state["a"], "b": state["b"]},
        state | {"a": torch.zeros(3, 2)},
        state | {"a": torch.zeros(2, 3, dtype=torch.int32)},
        state | {"b": torch.tensor([1.0, 1.0, 1.0, 1.0 + 2**-23])},
    ]
    assert len({files.tensors_sha256(v) for v in variants}) == len(variants)
    assert files.tensors_sha256(dict(reversed(state.items()))) == files.tensors_sha256(state)


def test_random_weights_come_from_the_seed_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    hashes = [
        backbones.load("tiny", pretrained=False, seed=seed).weights_sha256 for seed in (0, 0, 1)
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_dinov2_reads_weights_from_a_file(tmp_path):
    """The published weights have 37 x 37 positions and a mask token; images of 224 pixels have
    16 x 16, of 98 7 x 7.
    """
    small, file = backbones.load("dinov2_s", pretrained=False), tmp_path / "weights.safetensors"
    assert small.image_size == 224 and small.file_sha256 is None
    assert small.mean == (0.485, 0.456, 0.406) and small.std == (0.229, 0.224, 0.225)
    state = dict(small.model.state_dict())
    state["pos_embed"] = torch.full((1, 1 + 37 * 37, 384), 0.5)
    state["mask_token"] = torch.zeros(1, 384)
    safetensors.torch.save_file(state, file)
    for size, tokens in ((98, 50), (None, 257)):
        read = backbones.load("dinov2_s", weights=file, seed=1, image_size=size)
        assert read.image_size == (size or 224)
        torch.testing.assert_close(read.model.pos_embed, torch.full((1, tokens, 384), 0.5))
    assert torch.equal(read.model.blocks[5].mlp.fc1.weight, state["blocks.5.mlp.fc1.weight"])
    assert read.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


SIZED = [
    (backbones.TINY, 64, 8),
    ("xcit_nano_12_p8_224", 32, 8),
    ("naflexvit_base_patch16_gap", 64, 16),
]


@pytest.mark.parametrize("timm_name, size, patch", SIZED)
def test_a_size_of_ones_own(timm_name, size, patch, monkeypatch):
    name = "shallow"
    monkeypatch.setitem(
        backbones.NAMES, name, (timm_name, {"depth": 1, "embed_dim": 96, "num_heads": 3})
    )
    sized = backbones.load(name, pretrained=False, image_size=size)
    assert sized.image_size == size != backbones.load(name, pretrained=False).image_size
    assert sized.model(torch.zeros(1, 3, size, size)).isfinite().all()
    for load in (backbones.load, backbones.meta_model):
        for wrong in (1, size + 1):
            with pytest.raises(
                InputError,
                match=f"^image_size {wrong} is no multiple of {name}'s patch size {patch}$",
            ):
                load(name, image_size=wrong)


def test_unsuitable_names():
    messages = {
        "vit_nonsense": "unknown backbone",
        "resnet18": "ResNet has layers of another form",
        "vit_base_patch14_dinov2.nonsense": "tag",
    }
    for name, message in messages.items():
        assert message in refused(name, pretrained=False)


def test_download_without_network_says_what_to_get(monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", no_network)
    error = refused("dinov2_s")
    assert (
        "huggingface.co/timm/vit_small_patch14_dinov2.lvd142m" in error
        and "--weights dinov2_s=FILE" in error
    )
    for name in ("resnet18", "convnext_atto"):
        assert "layers of another form" in refused(name), "weights would not help"


def test_unsuitable_weights(tmp_path):
    (tmp_path / "damaged.safetensors").write_bytes(WEIGHTS.read_bytes()[:-1000])
    torch.save({"blocks": os.system}, tmp_path / "code.pth")
    torch.save({"blocks.0.norm1.weight": torch.ones(5)}, tmp_path / "other_architecture.pth")
    (tmp_path / "a.txt").write_bytes(b"no weights")
    for name in (
        "damaged.safetensors",
        "code.pth",
        "other_architecture.pth",
        "a.txt",
        "missing.pth",
    ):
        assert name in refused("tiny", weights=tmp_path / name)


def test_dinov3_gets_the_class_token_under_its_short_name():
    vit = backbones.meta_model("dinov3_s")
    assert vit.global_pool == "token"
    assert (
        timm.create_model("vit_small_patch16_dinov3.lvd1689m", device="meta").global_pool == "avg"
    )


# Vision transformers of one's own class: the section of docs/backbones.md runs, and what does
# not fit is refused


SECTIONS = (DOCS / "backbones.md").read_text().split("\n## ")
BLOCKS = [
    re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) for section in SECTIONS
]
CLASS, *USES = [block for blocks in BLOCKS for block in blocks]
NAMES: dict = {}
exec(compile(CLASS, "docs/backbones.md", "exec"), NAMES)
MyViT = NAMES["MyViT"]
MAP = dict(
    layers="layers",
    projections="attention.to_qkv",
    attention="attention",
    mlp_norm="mlp_norm",
    mlp_out="mlp.2",
)


def own(cls=MyViT, **options):
    torch.manual_seed(0)
    return cls(**options).eval()


@pytest.fixture
def register(monkeypatch):
    """Register classes for one test alone."""
    monkeypatch.setattr(encoders, "REGISTERED", dict(encoders.REGISTERED))
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
    """It starts as the identity, trains, is saved and loaded, and merges or is refused_encoder."""
    images, plain = make_images(), own()
    expected = plain(images)
    model = pvera.adapt(plain, METHODS[key], 5)
    torch.testing.assert_close(model.features(images)[0], expected)
    perturb(model)(images).square().sum().backward()
    for parameter in model.members[0].trainable_tensors().values():
        assert parameter.grad.isfinite().all() and parameter.grad.any()
    logits = model.eval()(images)
    pvera.save(model, tmp_path / "adapter.safetensors")
    loaded = pvera.load(own(), tmp_path / "adapter.safetensors")
    assert torch.equal(loaded(images), logits)
    with loaded.inference():
        torch.testing.assert_close(loaded(images), logits, rtol=1e-4, atol=1e-4)


class VisionTransformer(nn.Module):
    """DINOv2 of transformers, whose attention has three projections, in a class of one's own
    with timm's name.
    """

    img_size = 32

    def __init__(self):
        super().__init__()
        self.vit = as_dinov2(make_vit())

    def forward(self, images):
        return self.vit(images).last_hidden_state[:, 0]


def test_three_projections_compute_what_one_does(register):
    projections = [f"attention.{position}_proj" for position in "qkv"]
    register(
        VisionTransformer,
        layers="vit.encoder.layer",
        projections=projections,
        attention="layer_scale1",
    )
    models = [
        perturb(pvera.adapt(encoder, METHODS["pvera"], 5)).eval()
        for encoder in (make_vit(), VisionTransformer().eval())
    ]
    torch.testing.assert_close(models[1](make_images()), models[0](make_images()))


# ---------------------------------------------------------------- refused_encoder


@pytest.mark.parametrize(
    "names, message",
    [
        ({"layers": "blocks"}, "has no attribute `blocks`"),
        ({"layers": "norm"}, "'LayerNorm' object is not iterable"),
        ({"projections": "attention.qkv"}, "has no attribute `qkv`"),
        (
            {"projections": "attention.to_out"},
            "Linear(in_features=48, out_features=48, bias=True) is no linear layer to 3 times",
        ),
        (
            {"projections": "mlp_norm"},
            "LayerNorm((48,), eps=1e-05, elementwise_affine=True, bias=True) is no",
        ),
        (
            {"mlp_out": "mlp.1"},
            "GELU(approximate='none') is no linear layer to 1 times",
        ),
    ],
    ids=str,
)
def test_wrong_names(register, names, message):
    register(MyViT, **MAP | names)
    assert message in refused_encoder(own().train())


def with_change(**attributes):
    """Return a vision transformer of a subclass with other attributes."""
    cls = type("Changed", (MyViT,), attributes)
    pvera.register_encoder(cls, **MAP)
    return own(cls)


def test_a_registered_class_of_timms_is_checked(register):
    cls = type("Derived", (type(make_vit()),), {})
    register(cls, projections=["attn.qkv"])
    vit = make_vit()
    vit.__class__ = cls
    pvera.adapt(vit, METHODS["pvera"], 5).unload()
    vit.head = nn.Linear(vit.embed_dim, 10)
    assert "Derived returns 10 numbers for an image" in refused_encoder(vit)


def of_layer(forward):
    vit = own()
    cls = type("OtherLayer", (type(vit.layers[0]),), {"forward": forward})
    for layer in vit.layers:
        layer.__class__ = cls
    return vit


def test_encoders_that_compute_something_else(register):
    assert "Changed returns torch.float32 of shape (1, 17, 48), not one vector" in refused_encoder(
        with_change(forward=MyViT.tokens)
    )
    assert "Changed returns dict, not one vector" in refused_encoder(
        with_change(forward=lambda self, x: {"x": x})
    )
    assert "does not call its layers.0.attention.to_qkv in a pass" in refused_encoder(
        of_layer(lambda self, x: x)
    )


def test_an_encoder_says_the_size_of_its_images(register):
    vit = own()
    del vit.img_size
    assert "MyViT does not say the size of its images" in refused_encoder(vit.train())
    vit.img_size = (32, 24)
    assert "MyViT does not compute an image (3, 32, 24), the size that it names" in refused_encoder(
        vit
    )
    vit.img_size = (32, 32)
    pvera.adapt(vit, METHODS["pvera"], 5)


def test_a_backbone_for_images_of_another_size(tmp_path):
    model = pvera.adapt(make_vit(), METHODS["lora"], 5)
    pvera.save(model, tmp_path / "adapter.safetensors")
    with pytest.raises(
        InputError, match=r"for inputs \(3, 32, 32\); this VisionTransformer takes \(3, 16, 16\)"
    ):
        pvera.load(make_vit(img_size=16), tmp_path / "adapter.safetensors")


def test_projections_are_one_or_three(register):
    two = ["attention.to_qkv", "attention.to_out"]
    pvera.register_encoder(MyViT, layers="layers", projections=two)
    assert "MyViT has layers of another form" in refused_encoder(own())
