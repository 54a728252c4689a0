"""The connection of adapters to a frozen encoder: forward hooks, the merge, a faster attention, and a check of an
encoder of one's own.

Hooks leave the backbone's modules and their names untouched. Without the hooks it is the plain model again.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter
from pvera.encoders import EncoderLayer, example_features, input_shape, is_own, uncompiled
from pvera.errors import InputError, as_input_error

#: Parameters that were changed, with their old values.
Replaced = list[tuple[Tensor, Tensor]]


#: What undoes a hook.
Handle = Callable[[], None]


def attach(layer: EncoderLayer, sites: set[str], call: Callable[..., Tensor]) -> list[Handle]:
    """Hook `call(site, *tensors)`, which returns the new value of the last tensor, to the layer's `sites` (see
    `adapters.base`), and return what undoes this.

    The hooks are partial functions, not closures: a copy or a pickle of the model carries hooks of its own.
    """
    handles: list[Any] = []
    undo: list[Handle] = []
    if "project" in sites:
        read = _Held()
        if layer.bias_owner is not None:
            # Without a `q_bias`, the attention calls its fused layer; else it reads that layer's weight beside it. An
            # instance attribute hides the parameter, which stays in the state under its name.
            layer.bias_owner.__dict__["q_bias"] = None
            undo.append(partial(object.__delattr__, layer.bias_owner, "q_bias"))
            handles.append(
                layer.projections[0][0].register_forward_hook(partial(_add_biases, layer))
            )
        if layer.reader is not None:
            handles.append(layer.reader.register_forward_pre_hook(read.hold))
            handles.append(layer.reader.register_forward_hook(read.release, always_call=True))
        for linear, positions in layer.projections:
            handles.append(linear.register_forward_hook(partial(_project, call, positions, read)))
    if "hidden" in sites:
        handles.append(layer.mlp_out.register_forward_pre_hook(partial(_hidden, call)))
    for site, module in (("after_attention", layer.attention), ("after_mlp", layer.mlp)):
        if site in sites:
            handles.append(module.register_forward_hook(partial(_after, call, site)))
    for site, module in (("parallel", layer.layer), ("parallel_scaled", layer.mlp)):
        if site in sites and layer.mlp_norm is not None:
            before = _Held()  # the residual stream between the two halves of the layer
            handles.append(layer.mlp_norm.register_forward_pre_hook(before.hold))
            handles.append(module.register_forward_hook(partial(_add, call, site, before)))
    return undo + [handle.remove for handle in handles]


class _Held(threading.local):
    """The first argument of a module, kept for a later hook of the same thread."""

    tensor: Tensor | None = None

    def __reduce__(self):
        return _Held, ()

    def hold(self, module, args) -> None:
        self.tensor = args[0]

    def release(self, *_) -> None:
        self.tensor = None


def _add_biases(layer: EncoderLayer, module, args, y: Tensor) -> Tensor:
    return y + layer.bias_apart.to(y.dtype)


def _project(
    call: Callable[..., Tensor], positions: str, read: _Held, module, args, y: Tensor
) -> Tensor:
    site = (
        "project"
        if read.tensor is None or args[0] is read.tensor
        else "project_position_embeddings"
    )
    y = y.unflatten(-1, (len(positions), -1))
    return call(site, args[0], y, projections=positions).flatten(-2)


def _hidden(call: Callable[..., Tensor], module, args) -> tuple:
    return call("hidden", args[0]), *args[1:]


def _after(call: Callable[..., Tensor], site: str, module, args, y: Tensor) -> Tensor:
    return call(site, y)


def _add(call: Callable[..., Tensor], site: str, before: _Held, module, args, y: Tensor) -> Tensor:
    x = before.tensor
    before.release()
    return call(site, x, y)


SHORT = 300  # patches; with more, the backward pass of the fused attention is the faster one


@contextmanager
def training_attention(encoder: nn.Module) -> Iterator[None]:
    """Compute the attention of timm's encoder inside as is faster for training: by plain products, not by torch's fused
    attention, under autocast on a CPU for images of few patches.

    In half precision their backward pass takes down to a fifth of the time. They keep the attention scores in memory.
    """
    half = torch.is_autocast_enabled("cpu") and next(encoder.parameters()).device.type == "cpu"
    plain = half and getattr(getattr(encoder, "patch_embed", None), "num_patches", SHORT) < SHORT
    layers: list[Any] = [
        module for module in encoder.modules() if plain and getattr(module, "fused_attn", False)
    ]
    for layer in layers:
        layer.fused_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.fused_attn = True


@torch.no_grad()
def merge(layer: EncoderLayer, adapter: Adapter, replaced: Replaced) -> None:
    """Merge a mergeable adapter into the layer's weights; add the changed parameters and old values to `replaced`."""
    if hasattr(adapter, "project"):
        for linear, positions in layer.projections:
            weight, bias = (t.clone() for t in layer.per_position(linear, positions))
            weight, bias = adapter.merge_projection(weight, bias, positions)
            _replace(linear.weight, weight.flatten(0, 1), replaced)
            if linear.bias is not None:
                _replace(linear.bias, bias.flatten(), replaced)
            for position, parameter in layer.biases.items():
                _replace(parameter, bias[positions.index(position)], replaced)
    if hasattr(adapter, "hidden"):
        _replace(layer.mlp_out.weight, adapter.merge_hidden(layer.mlp_out.weight), replaced)


def _replace(parameter: Tensor, value: Tensor, replaced: Replaced) -> None:
    replaced.append((parameter, parameter.detach().clone()))
    parameter.copy_(value)


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
            raise InputError(
                f"{title}: {names[module]} {what}; docs/backbones.md says what an encoder must have"
            )

    def count(module, args, output) -> None:
        calls[module] += 1

    def to_zero(module, args, output) -> Tensor:
        fits = isinstance(output, Tensor) and output.shape == tokens[-1].shape
        require(fits, module, "does not return what a layer adds to its tokens")
        return torch.zeros_like(output)

    def require_same(module, args, output=None) -> None:
        same = torch.equal(args[0] if output is None else output, tokens[-1])
        require(
            same, module, "does not have the tokens to which attention and MLP alone have added"
        )

    handles: list[Any] = []
    parts: dict[Any, None] = {}
    for layer in layers:
        norm = [layer.mlp_norm] if layer.mlp_norm else []
        parts |= dict.fromkeys([*layer.linears, layer.attention, layer.mlp, *norm])
        handles.append(
            layer.layer.register_forward_pre_hook(lambda module, args: tokens.append(args[0]))
        )
        handles += [part.register_forward_hook(to_zero) for part in (layer.attention, layer.mlp)]
        if layer.mlp_norm is not None:
            handles.append(layer.mlp_norm.register_forward_pre_hook(require_same))
            handles.append(layer.layer.register_forward_hook(require_same))
    handles += [part.register_forward_hook(count) for part in parts]
    try:
        with as_input_error(f"{title} does not compute an image {shape}, the size that it names"):
            features = example_features(encoder, shape)
    finally:
        for handle in handles:
            handle.remove()
    for part in parts:
        require(calls[part] == 1, part, f"is called {calls[part]} times in a pass, and not once")
    if features.shape != (layers[0].dim,):
        raise InputError(
            f"{title} returns {len(features)} numbers for an image, not {layers[0].dim}: remove its head"
        )
