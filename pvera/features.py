"""What an encoder takes, and the features that a head reads."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pvera.encoders import HELP, EncoderLayer, class_name, is_custom, transformers_names
from pvera.errors import InputError, as_input_error

#: Features of a text: its first token, or the mean of its tokens, as sentence encoders are trained.
POOLS = ("first", "mean")


def reads_text(encoder: nn.Module) -> bool:
    """Return whether `encoder` reads text."""
    names = transformers_names(encoder)
    return names is not None and names.text


def input_shape(encoder: Any) -> tuple[int, ...]:
    """Return the shape of one input.

    Returns:
        (channels, height, width) of an image, or (tokens,) of a short text.

    Raises:
        InputError: The encoder does not say the size of its images.
    """
    if reads_text(encoder):
        return (8,)  # any length serves: it is that of the text of `example_features`
    size = _image_size(encoder)
    height, width = (size, size) if isinstance(size, int) else size
    channels = (m.in_channels for m in encoder.modules() if isinstance(m, nn.Conv2d))
    return next(channels, 3), height, width


def _image_size(encoder: Any) -> Any:
    """Return the first size of images that timm or transformers give: a number, or two."""
    # In this order: a model made with `img_size=` has another size than its configuration.
    config = getattr(encoder, "pretrained_cfg", None) or {}
    sizes = (
        getattr(getattr(encoder, "patch_embed", None), "img_size", None),
        getattr(encoder, "img_size", None),
        getattr(getattr(encoder, "config", None), "image_size", None),
        config.get("input_size", ())[1:],  # NaFlexViT
    )
    for size in sizes:
        if size:
            return size
    raise InputError(
        f"{class_name(encoder)} does not say the size of its images: give it an attribute "
        "img_size, such as 224"
    )


def require_inputs(inputs: Any, encoder: nn.Module) -> None:
    """Raise InputError unless `inputs` are a batch of images, or of texts for a text encoder."""
    if reads_text(encoder):
        takes = "texts: a mapping of tensors, as a tokenizer returns with return_tensors='pt'"
        fits = isinstance(inputs, Mapping) and all(isinstance(t, Tensor) for t in inputs.values())
    else:
        takes = "images: a floating-point tensor (batch, 3, height, width)"
        fits = isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.is_floating_point()
    if not fits:
        raise InputError(f"the model takes {takes}, not {_kind(inputs)}")


def _kind(value: Any) -> str:
    """Return type and shape of a tensor, or the type of another value, for a message."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def read_token_mask(texts: Mapping[str, Tensor], pool: str) -> Tensor | None:
    """Return the attention mask (batch, tokens) as bool, or None without one.

    Raises:
        InputError: A text begins with padding, or is nothing else.
    """
    if "attention_mask" not in texts:
        return None
    token_mask = texts["attention_mask"].bool()
    is_readable = token_mask[:, 0] if pool == "first" else token_mask.any(1)
    if not is_readable.all():
        raise InputError(
            "padding comes first, or alone, in a text: pad on the right (tokenizer.padding_side)"
        )
    return token_mask


def pooled(
    encoder: nn.Module, output: Any, pool: str = "first", token_mask: Tensor | None = None
) -> Tensor:
    """Return features (batch, dim) from an encoder's output.

    timm's output has them already; transformers' is pooled by the encoder (`ModuleNames.pools`) or
    here.

    Args:
        encoder: The encoder.
        output: What it returned.
        pool: One of `POOLS`.
        token_mask: (batch, tokens), false for padding; None without padding.
    """
    names = transformers_names(encoder)
    if names is None:
        features = output
    elif names.pools:
        features = output.pooler_output
    elif pool == "mean":
        features = _mean_of_tokens(output.last_hidden_state, token_mask)
    else:
        features = output.last_hidden_state[:, 0]

    if isinstance(features, Tensor) and features.ndim == 2:
        return features
    raise InputError(
        f"{class_name(encoder)} returns {_kind(features)}, not one vector for each image: of timm, "
        "create it with a global_pool; of your own, let it return the class token or a mean"
    )


def _mean_of_tokens(hidden: Tensor, token_mask: Tensor | None) -> Tensor:
    """Return the mean (batch, dim) of hidden (batch, tokens, dim), without padding."""
    if token_mask is None:
        return hidden.mean(1)
    weights = token_mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1)


# The features of one fixed input, which tell one backbone from another


@torch.no_grad()
def example_features(encoder: nn.Module, shape: Sequence[int], pool: str = "first") -> Tensor:
    """Return the features (dim) of one fixed input, as the encoder computes them in evaluation.

    They are computed in the encoder's own precision, whatever the process allows, and without
    compiling anything. The modes of its modules stay as they are.

    Args:
        encoder: The encoder.
        shape: See `input_shape`.
        pool: One of `POOLS`.
    """
    inputs = _example_inputs(encoder, shape)
    device = next(encoder.parameters()).device
    modes = {module: module.training for module in encoder.modules()}
    has_compiler = "torch._dynamo" in sys.modules  # its import takes seconds
    try:
        encoder.eval()
        eager = torch.compiler.set_stance("force_eager") if has_compiler else nullcontext()
        with eager, torch.autocast(device.type, enabled=False), exact_products():
            output = encoder(**inputs) if isinstance(inputs, dict) else encoder(inputs)
        return pooled(encoder, output, pool)[0]
    finally:
        for module, mode in modes.items():
            module.training = mode


def _example_inputs(encoder: nn.Module, shape: Sequence[int]) -> Any:
    """Return a batch of one input, without a generator that another version could change."""
    example = next(p for p in encoder.parameters() if p.is_floating_point())
    count = math.prod(shape)
    if reads_text(encoder):
        config: Any = encoder.config
        ids = torch.arange(count, device=example.device)[None] * config.vocab_size // count
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    numbers = (torch.arange(count, dtype=torch.float64, device="cpu") ** 2).sin()
    return numbers.view(1, *shape).to(example.device, example.dtype)


def require_parts_called(encoder: nn.Module, layers: Sequence[EncoderLayer]) -> None:
    """Raise InputError unless an encoder of your own class uses the parts that it names.

    It calls each of them in a pass, and returns one vector of the layers' width for an image.
    """
    if not is_custom(encoder) or next(encoder.parameters()).is_meta:
        return
    title = class_name(encoder)
    shape = input_shape(encoder)
    names = {module: name for name, module in encoder.named_modules()}
    called: set[nn.Module] = set()
    handles = []
    for module in names:
        handles.append(module.register_forward_pre_hook(lambda part, _: called.add(part)))
    try:
        with as_input_error(f"{title} does not compute an image {shape}, the size that it names"):
            features = example_features(encoder, shape)
    finally:
        for handle in handles:
            handle.remove()

    width = layers[0].dim
    if features.shape != (width,):
        raise InputError(
            f"{title} returns {len(features)} numbers for an image, not {width}: remove its head"
        )
    for layer in layers:
        for module in [*layer.linears, layer.attention, layer.mlp, layer.mlp_norm]:
            if module is not None and module not in called:
                raise InputError(f"{title} does not call its {names[module]} in a pass; {HELP}")


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute products of fp32 inside in fp32, even if the process allows TF32 or bf16 instead."""
    backends: Any = torch.backends
    if not hasattr(backends, "fp32_precision"):  # before torch 2.9
        allowed = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(allowed)
        return

    switches = [
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
    ]
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            _set_precision(switch, "ieee")
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            _set_precision(switch, value)


def _set_precision(switch: Any, value: str) -> None:
    """Set one of torch's switches.

    "none" lets it follow a more general switch, as it did before if that one has the value.
    """
    switch.fp32_precision = "none"
    if switch.fp32_precision != value:
        switch.fp32_precision = value
