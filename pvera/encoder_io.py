"""What a frozen encoder takes and returns: images or text, and the features that a head reads."""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pvera.encoders import EncoderLayer, is_own, transformers_names, uncompiled
from pvera.errors import InputError, explained

#: Features of a text: the first token, or the mean of its tokens, as sentence encoders are trained.
POOLS = ("first", "mean")


def pooled(encoder: nn.Module, output: Any, pool: str = "first", tokens: Tensor | None = None) -> Tensor:
    """Return features (batch, dim) from the encoder's output: timm's as it is; of transformers' its own pooling where
    it is read (`Names.pools`), or what `pool` of `POOLS` names.

    tokens: (batch, tokens), false where a text is padded; None without padding.
    """
    names = transformers_names(encoder)
    if names is None:
        features = output
    elif names.pools:
        features = output.pooler_output
    elif pool == "mean":
        hidden = output.last_hidden_state
        weights = torch.ones(hidden.shape[:2], device=hidden.device) if tokens is None else tokens
        weights = weights.to(hidden.dtype).unsqueeze(-1)
        features = (hidden * weights).sum(1) / weights.sum(1)
    else:
        features = output.last_hidden_state[:, 0]
    if not isinstance(features, Tensor) or features.ndim != 2:
        what = f"features of shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(
            f"{type(uncompiled(encoder)).__name__} returns {what}, not one vector for each image: of timm, create it "
            "with a global_pool; of your own, let it return the class token or a mean"
        )
    return features


def input_shape(encoder: Any) -> tuple[int, ...]:
    """Return the shape of one input: (channels, height, width) of an image, (tokens,) of a short text.

    InputError for an encoder that does not say the size of its images.
    """
    if reads_text(encoder):
        return (8,)
    places = [(getattr(encoder, "patch_embed", None), "img_size"), (encoder, "img_size"), (encoder, "image_size")]
    places.append((getattr(encoder, "config", None), "image_size"))
    sizes = [getattr(place, name, None) for place, name in places]
    sizes.append((getattr(encoder, "pretrained_cfg", None) or {}).get("input_size", ())[1:])  # of NaFlexViT
    size = next(filter(None, sizes), None)
    if size is None:
        name = type(uncompiled(encoder)).__name__
        raise InputError(f"{name} does not say the size of its images: give it an attribute img_size, such as 224")
    height, width = (size, size) if isinstance(size, int) else size
    channels = next((m.in_channels for m in encoder.modules() if isinstance(m, nn.Conv2d)), 3)
    return channels, height, width


def reads_text(encoder: nn.Module) -> bool:
    """Return whether `encoder` reads text."""
    names = transformers_names(encoder)
    return names is not None and names.text


def require_inputs(inputs: Any, encoder: nn.Module) -> None:
    """Raise InputError unless `inputs` are a batch of images, or of texts where the encoder reads text."""
    if reads_text(encoder):
        texts = list(inputs.values()) if isinstance(inputs, Mapping) else []
        if not texts or not all(isinstance(tensor, Tensor) and tensor.shape[0] for tensor in texts):
            raise InputError(
                "the model takes texts: a mapping of tensors (batch, tokens) of at least one text, as a tokenizer "
                f"returns with return_tensors='pt', not {type(inputs).__name__}"
            )
    elif not isinstance(inputs, Tensor) or inputs.ndim != 4 or not inputs.shape[0] or not inputs.is_floating_point():
        given = (
            f"{inputs.dtype} of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
        )
        raise InputError(
            "the model takes images: a floating-point tensor (batch, 3, height, width) of at least one image, not "
            + given
        )


def encode_images(encoder: nn.Module, images: Tensor) -> Tensor:
    """Return the features (batch, dim) of images. InputError where the encoder refuses their size."""
    if torch.compiler.is_compiling():
        return pooled(encoder, encoder(images))
    try:
        return pooled(encoder, encoder(images))
    except (AssertionError, ValueError, RuntimeError) as error:
        size, given = input_shape(encoder), tuple(images.shape[1:])
        if isinstance(error, (InputError, torch.OutOfMemoryError)) or size == given:
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"{type(uncompiled(encoder)).__name__} is for images {size}, not {given}: {reason}") from error


@torch.no_grad()
def example_features(encoder: nn.Module, shape: Sequence[int], pool: str = "first") -> Tensor:
    """Return the features (dim) of one fixed input of `shape`, as the encoder computes them in evaluation mode, in its
    own precision and without compiling anything. Its modes stay as they are.
    """
    example: Any = next(p for p in encoder.parameters() if p.is_floating_point())
    count, device, modes = math.prod(shape), example.device, {m: m.training for m in encoder.modules()}
    inputs: Any
    if reads_text(encoder):
        config: Any = encoder.config
        ids = torch.arange(count, device=device)[None] * config.vocab_size // count
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    else:  # numbers without a pattern, and without a generator that another version could change
        numbers = (torch.arange(count, dtype=torch.float64) ** 2).sin()
        inputs = numbers.view(1, *shape).to(device, example.dtype)
    compiled = "torch._dynamo" in sys.modules  # its import takes seconds
    try:
        encoder.eval()
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            with torch.autocast(device.type, enabled=False):
                output = encoder(**inputs) if isinstance(inputs, dict) else encoder(inputs)
        return pooled(encoder, output, pool)[0]
    finally:
        for module, mode in modes.items():
            module.training = mode


def require_residual_layers(encoder: nn.Module, layers: Sequence[EncoderLayer]) -> None:
    """Raise InputError unless an encoder of one's own class computes what adapters take for granted.

    It calls each part once in a pass. With the outputs of attention and MLP set to zero, the tokens are the same before
    a layer, before the norm of its MLP, and behind the layer. It returns one vector of the layers' width for an image.
    """
    if not is_own(encoder) or next(encoder.parameters()).is_meta:
        return
    title, shape = type(uncompiled(encoder)).__name__, input_shape(encoder)
    names = {module: name for name, module in encoder.named_modules()}
    calls: Counter[nn.Module] = Counter()
    tokens: list[Tensor] = []

    def require(holds: bool, module: nn.Module, what: str) -> None:
        if not holds:
            raise InputError(f"{title}: {names[module]} {what}; docs/backbones.md says what an encoder must have")

    def count(module, args, output) -> None:
        calls[module] += 1

    def to_zero(module, args, output) -> Tensor:
        fits = isinstance(output, Tensor) and output.shape == tokens[-1].shape
        require(fits, module, "does not return what a layer adds to its tokens")
        return torch.zeros_like(output)

    def require_same(module, args, output=None) -> None:
        same = torch.equal(args[0] if output is None else output, tokens[-1])
        require(same, module, "does not have the tokens to which attention and MLP alone have added")

    handles: list[Any] = []
    parts: dict[Any, None] = {}
    for layer in layers:
        linears = [*dict(layer.projections), layer.mlp_out]
        parts |= dict.fromkeys([*linears, layer.attention, layer.mlp, *([layer.mlp_norm] if layer.mlp_norm else [])])
        handles.append(layer.layer.register_forward_pre_hook(lambda module, args: tokens.append(args[0])))
        handles += [part.register_forward_hook(to_zero) for part in (layer.attention, layer.mlp)]
        if layer.mlp_norm is not None:
            handles.append(layer.mlp_norm.register_forward_pre_hook(require_same))
            handles.append(layer.layer.register_forward_hook(require_same))
    handles += [part.register_forward_hook(count) for part in parts]
    try:
        with explained(f"{title} does not compute an image {shape}, the size that it names"):
            features = example_features(encoder, shape)
    finally:
        for handle in handles:
            handle.remove()
    for part in parts:
        require(calls[part] == 1, part, f"is called {calls[part]} times in a pass, and not once")
    if features.shape != (layers[0].dim,):
        raise InputError(f"{title} returns {len(features)} numbers for an image, not {layers[0].dim}: remove its head")
