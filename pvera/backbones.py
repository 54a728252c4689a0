"""Frozen backbones: ViT-Ti/8 of this package, DINOv2, and any ViT of timm that can be adapted."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import timm
import torch
from huggingface_hub import try_to_load_from_cache
from timm.models import (
    build_model_with_cfg,
    generate_default_cfgs,
    get_pretrained_cfg,
    register_model,
)
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import nn

from pvera.encoders import encoder_layers
from pvera.errors import InputError, as_input_error
from pvera.features import input_shape
from pvera.files import sha256, tensors_sha256

TINY = "vit_tiny_patch8_32"
#: DINOv2's architecture for 32x32 images: pre-norm, fused qkv, class token, position embedding and
#: layer scale.
TINY_ARCHITECTURE: dict[str, Any] = dict(
    img_size=32, patch_size=8, embed_dim=96, depth=4, num_heads=3, init_values=1.0
)

#: timm's DINOv2 reads 518 pixels; with 224 it has the paper's 257 tokens.
_DINOV2 = {"img_size": 224}
#: timm's DINOv3 pools by the mean; the paper's head reads the class token.
_DINOV3 = {"img_size": 224, "global_pool": "token"}

#: Short names of timm models, with options.
NAMES: dict[str, tuple[str, dict]] = {
    "tiny": (TINY, {}),
    "dinov2_s": ("vit_small_patch14_dinov2.lvd142m", _DINOV2),
    "dinov2_b": ("vit_base_patch14_dinov2.lvd142m", _DINOV2),
    "dinov2_l": ("vit_large_patch14_dinov2.lvd142m", _DINOV2),
    "dinov3_s": ("vit_small_patch16_dinov3.lvd1689m", _DINOV3),
    "dinov3_b": ("vit_base_patch16_dinov3.lvd1689m", _DINOV3),
    "dinov3_l": ("vit_large_patch16_dinov3.lvd1689m", _DINOV3),
}

#: Short name -> how tables and captions write it.
TITLES = {
    "tiny": "ViT-Ti/8 (32 px)",
    "dinov2_s": "DINOv2 ViT-S/14",
    "dinov2_b": "DINOv2 ViT-B/14",
    "dinov2_l": "DINOv2 ViT-L/14",
    "dinov3_s": "DINOv3 ViT-S/16",
    "dinov3_b": "DINOv3 ViT-B/16",
    "dinov3_l": "DINOv3 ViT-L/16",
}

default_cfgs = generate_default_cfgs(
    {
        f"{TINY}.cifar10": {
            "file": str(resources.files(__package__) / "weights" / f"{TINY}.safetensors"),
            "input_size": (3, 32, 32),
            "fixed_input_size": True,
            "num_classes": 0,
            # Mean and standard deviation of CIFAR-10's training pixels.
            "mean": (0.4914, 0.4822, 0.4465),
            "std": (0.2470, 0.2435, 0.2616),
            "first_conv": "patch_embed.proj",
            "classifier": "head",
            "license": "mit",
        },
    }
)


@register_model
def vit_tiny_patch8_32(pretrained: bool = False, **options) -> VisionTransformer:
    """Build ViT-Ti/8, (batch, 3, 32, 32) -> (batch, 96); see weights/vit_tiny_patch8_32.md."""
    model: Any = build_model_with_cfg(
        VisionTransformer,
        TINY,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        **TINY_ARCHITECTURE | options,
    )
    # On a CPU, separate products of 17 tokens train 2 to 8 times as fast as fused attention.
    for block in model.blocks:
        block.attn.fused_attn = False
    return model


@dataclass(frozen=True)
class Backbone:
    """A frozen model in evaluation mode, (batch, 3, image_size, image_size) -> (batch, dim)."""

    model: nn.Module
    name: str
    image_size: int
    #: Its normalisation, per channel, of pixels in [0, 1].
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    #: Of names and numbers in the model's state (`tensors_sha256`).
    weights_sha256: str
    #: Of the file that held the weights; None for random weights.
    file_sha256: str | None = None


def architecture(name: str, image_size: int | None = None) -> tuple[str, dict]:
    """Return timm's name of a backbone and its options for it.

    Args:
        name: A short name (`NAMES`) or one of timm's.
        image_size: Size of its square images in pixels; None: the name's own.

    Raises:
        InputError: The name is unknown, or the size is no multiple of the patch size.
    """
    timm_name, options = NAMES.get(name, (name, {}))
    if not timm.is_model(timm_name):
        raise InputError(
            f"unknown backbone {name!r}: not one of {', '.join(NAMES)}, nor a timm model"
        )
    if image_size is None:
        return timm_name, options
    # The size of the patches. `meta_model` asks this function for the name's own size: it returns
    # above then.
    info: Any = meta_model(name).feature_info
    patch = info[-1]["reduction"]
    if image_size % patch:
        raise InputError(f"image_size {image_size} is no multiple of {name}'s patch size {patch}")
    return timm_name, options | {"img_size": image_size}


def load(
    name: str,
    pretrained: bool = True,
    weights: str | Path | None = None,
    seed: int = 0,
    image_size: int | None = None,
) -> Backbone:
    """Load a backbone.

    Args:
        name: A short name (`NAMES`) or one of timm's.
        pretrained: False: random weights.
        weights: A .safetensors file, or a pickled one of tensors only; None: the published ones.
        seed: Seed of random weights.
        image_size: As for `architecture`; timm resamples the position embedding.

    Raises:
        InputError: Name or size is unknown, the model cannot be adapted, or the weights cannot be
            downloaded or do not fit.
    """
    model = _create(name, pretrained, weights, seed, image_size)
    model.eval().requires_grad_(False)
    config = model.pretrained_cfg
    file = weights_file(config) if pretrained or weights is not None else None
    return Backbone(
        model=model,
        name=name,
        image_size=image_size or input_shape(model)[1],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        weights_sha256=tensors_sha256(model.state_dict()),
        file_sha256=sha256(file) if file else None,
    )


def _create(
    name: str, pretrained: bool, weights: str | Path | None, seed: int, image_size: int | None
) -> Any:
    """Return timm's model. InputError says which weights are missing or do not fit."""
    timm_name, options = architecture(name, image_size)
    failed = f"cannot load {name}"
    advice = ""
    with as_input_error(failed):  # an unknown tag
        hub = getattr(get_pretrained_cfg(timm_name), "hf_hub_id", None)
    if weights is not None:
        if not Path(weights).is_file():
            raise InputError(f"{weights}: no such file")
        failed = f"{weights} does not hold the weights of {name}"
        options = options | {"pretrained_cfg_overlay": {"file": str(weights), "custom_load": False}}
        pretrained = True
    elif pretrained and hub:
        file = f"model.safetensors from https://huggingface.co/{hub}"
        advice = f"get {file} and give it with --weights {name}=FILE"
    with as_input_error(failed, advice), torch.random.fork_rng(devices=[]):
        meta_model(name)  # refuse what cannot be adapted before asking for weights
        torch.default_generator.manual_seed(seed)  # of the CPU alone; timm draws weights with it
        return timm.create_model(timm_name, pretrained=pretrained, num_classes=0, **options)


def meta_model(name: str, image_size: int | None = None) -> nn.Module:
    """Return a backbone without weights, on the meta device. Arguments and errors as `load`."""
    timm_name, options = architecture(name, image_size)
    with torch.device("meta"):
        model = timm.create_model(timm_name, num_classes=0, **options)
    encoder_layers(model)
    return model.to("meta").eval().requires_grad_(False)


def weights_file(config: dict) -> Path | None:
    """Return the file from which timm loads a model; None if it would download it.

    Args:
        config: The model's `pretrained_cfg`.
    """
    path = config.get("file")
    if not path and config.get("hf_hub_id"):
        path = try_to_load_from_cache(config["hf_hub_id"], "model.safetensors")
    # The hub's client has a marker for what is not there.
    return Path(path) if isinstance(path, (str, Path)) else None
