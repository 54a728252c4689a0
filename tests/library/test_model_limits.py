"""Supported and refused arguments, inputs, and vision transformers of other shapes."""

import re

import pytest
import timm
import torch
from tiny import CLASSES, METHODS, make_images, make_vit, perturb, randomise

import pvera
from pvera import IA3, Bottleneck, InputError, Linear, LoRA, PVeRA

NO_VIT = "neither a timm vision transformer with fused attn.qkv"

# ---------------------------------------------------------------- errors


class SeparateProjections(torch.nn.Module):
    """A block as in other libraries, with separate query, key and value."""

    def __init__(self):
        super().__init__()
        self.query = self.key = self.value = torch.nn.Linear(4, 4)


def with_separate_projections():
    vit = make_vit()
    vit.blocks[1].attn = SeparateProjections()
    return vit


def of_timm(name: str):
    return lambda: timm.create_model(name, num_classes=0, device="meta")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: torch.nn.Linear(3, 3), NO_VIT),
        (lambda: make_vit(depth=0), NO_VIT),
        (with_separate_projections, NO_VIT),
        (of_timm("swin_tiny_patch4_window7_224"), NO_VIT),
        (of_timm("vit_large_patch16_sapiens2"), NO_VIT),  # fewer heads for keys and values than for queries
        (of_timm("hiera_tiny_224"), NO_VIT),
        (of_timm("samvit_base_patch16"), "pools in a head of its own"),
        (of_timm("qwen3_vit_88m_enc"), "not one vector of the layers' width"),
        (lambda: make_vit(num_classes=10), "create it with num_classes=0"),
    ],
)
def test_unsuitable_backbone_is_refused_and_left_alone(make, message):
    vit = make().train()
    with pytest.raises(InputError, match=message) as error:
        pvera.adapt(vit, PVeRA(rank=8), CLASSES)
    assert "\n" not in str(error.value)
    assert ("num_classes=0" in str(error.value)) is ("num_classes=0" in message)  # the others were made with it
    assert vit.training and all(p.requires_grad for p in vit.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in vit.modules())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_classes": -1}, "num_classes must be a whole number from 0, not -1"),
        ({"num_classes": 2.0}, "num_classes must be a whole number"),
        ({"num_classes": True}, "num_classes must be a whole number from 0, not True"),
        ({"seed": None}, "seed must be a whole number, or one for each member, not None"),
        ({"seed": "a"}, "seed must be a whole number, or one for each member, not 'a'"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"method": [LoRA(), LoRA()], "seed": [0, True]}, "seed must be a whole number"),
        ({"method": []}, "one method, or a non-empty sequence"),
        ({"method": "lora"}, "one method, or a non-empty sequence"),
        ({"method": LoRA}, "one method, or a non-empty sequence"),
        ({"method": [LoRA(), LoRA()], "seed": [0]}, "as many seeds"),
        ({"method": [LoRA(), IA3()]}, "members of a grid must adapt the same places"),
        ({"method": [Linear(), PVeRA()]}, "members of a grid must adapt the same places"),
        ({"method": Bottleneck(ratio=25)}, "ratio 25 leaves no hidden unit"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_leave_the_backbone_alone(vit, arguments, message):
    vit.train()
    with pytest.raises(InputError, match=message) as error:
        pvera.adapt(vit, **{"method": LoRA(), "num_classes": CLASSES} | arguments)
    assert "\n" not in str(error.value)
    assert vit.training and all(p.requires_grad for p in vit.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in vit.modules())


# ---------------------------------------------------------------- other vision transformers


@pytest.mark.parametrize(
    "options",
    [
        {"qkv_bias": False},
        {"qk_norm": True},
        {"reg_tokens": 4},
        {"global_pool": "avg", "class_token": False},
        {"init_values": None},
        {"mlp_ratio": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("key", METHODS)
def test_variants_of_timms_vision_transformer(images, key, options):
    """Each variant starts as its backbone, adapts, and merges if the method can."""
    vit = make_vit(**options)
    expected = vit(images)
    model = pvera.adapt(vit, METHODS[key], CLASSES).eval()
    torch.testing.assert_close(model.features(images)[0], expected, rtol=0, atol=5e-6)
    features = perturb(model).features(images)[0]
    assert ((features - expected).abs().max() > 1e-3).item() is (key != "linear")
    model.last_mlp_on_class_token = True
    torch.testing.assert_close(model.features(images)[0], features, rtol=0, atol=1e-5)
    if key not in ("bottleneck", "adaptformer"):
        model.merge_()
        torch.testing.assert_close(vit(images), features, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ([1], "the model takes images, as a tensor, not list"),
        ({"input_ids": torch.zeros(1, 4)}, "the model takes images, as a tensor, not dict"),
        (torch.zeros(0, 3, 32, 32), "at least one image, not torch.float32 of shape"),
        (torch.zeros(3, 32, 32), "(batch, 3, height, width)"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "floating-point tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inputs_that_are_no_batch_are_refused(vit, inputs, message):
    model = pvera.adapt(vit, PVeRA(rank=2), CLASSES)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        model(inputs)
    assert "\n" not in str(error.value)


#: Poolings that read more than the last layer's class token.
READS_MORE = {
    "distilled": ("deit_tiny_distilled_patch16_224", {"depth": 2, "img_size": 32}),
    "class attention": ("cait_xxs24_224", {"depth": 2, "img_size": 32}),
    "cross-covariance": ("xcit_nano_12_p16_224", {"depth": 2, "img_size": 64}),
    "mean": ("vit_tiny_patch16_224", {"depth": 2, "img_size": 32, "global_pool": "avg"}),
}


@pytest.mark.parametrize("case", READS_MORE)
def test_tokens_that_the_head_reads_are_not_skipped(case):
    name, options = READS_MORE[case]
    vit = randomise(timm.create_model(name, num_classes=0, **options), seed=1).eval()
    model = perturb(pvera.adapt(vit, METHODS["adaptformer"], CLASSES)).eval()
    images = make_images(2, size=options["img_size"])
    expected = model(images)
    model.last_mlp_on_class_token = True
    assert torch.equal(model(images), expected)
