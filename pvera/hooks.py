"""The connection of adapters to a frozen encoder: forward hooks, and a faster attention.

Hooks leave the backbone's modules and their names untouched. They are partial functions, not
closures: a copy or a pickle of the model has hooks of its own.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters.passes import Passes
from pvera.encoders import EncoderLayer, class_name, uncompiled
from pvera.errors import InputError
from pvera.grid import Grid

#: What removes a hook.
Remover = Callable[[], None]

#: From this number on, the backward pass of the fused attention is the faster one.
MANY_PATCHES = 300


class Router:
    """Gives the adapters of each active member their part of the batch, at each hook point.

    Args:
        grid: The members and their settings.
        encoder: The frozen encoder.
        layers: Its layers.
    """

    def __init__(self, grid: Grid, encoder: nn.Module, layers: Sequence[EncoderLayer]):
        self.grid = grid
        self.layers = layers
        self.passes = [Passes() for _ in layers]
        for member in grid.members:
            for adapter, passes in zip(member.layers, self.passes, strict=True):
                adapter.passes = passes
        self._linears = _find_linears(encoder, layers)
        self._removers: list[Remover] = []
        self._hook_layers()
        self._hook_last_norm(encoder)

    def detach(self) -> None:
        """Remove the hooks."""
        for remove in self._removers:
            remove()
        self._removers = []

    def _hook_layers(self) -> None:
        for i, layer in enumerate(self.layers):
            begin = layer.layer.register_forward_pre_hook(self.passes[i].begin)
            self._removers.append(begin.remove)
            points = self.grid.members[0].layers[i].hook_points
            self._removers += attach(layer, points, partial(self._call, i))

    def _hook_last_norm(self, encoder: nn.Module) -> None:
        """A timm ViT whose features are its class token reads nothing else of the last layer."""
        norm = self.layers[-1].mlp_norm
        pool = getattr(uncompiled(encoder), "global_pool", None)
        if norm is not None and class_name(encoder) == "VisionTransformer" and pool == "token":
            handle = norm.register_forward_pre_hook(self._spare_tokens, prepend=True)
            self._removers.append(handle.remove)

    def require_layers(self) -> None:
        """Raise InputError if a hooked layer was replaced, and so has lost its adapter."""
        for children, name, linear in self._linears:
            if uncompiled(children[name]) is not linear and children[name] is not linear:
                raise InputError(
                    f"{name} was replaced after adapt(), and so has no adapter: replace it before"
                )

    def _spare_tokens(self, norm: nn.Module, args: tuple) -> Tensor | None:
        """Give the last MLP the class token alone, which is all that the head reads."""
        spared = self.grid.last_mlp_on_class_token and not self.grid.merged
        return args[0][:, :1] if spared else None

    def _call(
        self, index: int, hook_point: str, *tensors: Tensor, projections: str | None = None
    ) -> Tensor:
        """Return the new value of the last tensor, (active members · batch, ...)."""
        # torch.compile sees what a hook reads, and not whether there is one: so the hooks stay.
        if self.grid.merged:
            return tensors[-1]
        active = self.passes[index].recall("active", lambda: list(self.grid.active))
        adapters = [self.grid.members[m].layers[index] for m in active]
        if not adapters:
            return tensors[-1]

        names = () if projections is None else (projections,)
        if len(adapters) == 1:
            return getattr(adapters[0], hook_point)(*tensors, *names)
        chunks = [tensor.chunk(len(adapters)) for tensor in tensors]
        changed = []
        for adapter, *own in zip(adapters, *chunks, strict=True):
            changed.append(getattr(adapter, hook_point)(*own, *names))
        return torch.cat(changed)


def _find_linears(
    encoder: nn.Module, layers: Sequence[EncoderLayer]
) -> list[tuple[dict, str, nn.Module]]:
    """Return each linear layer that is hooked, with its parent's children and its name there."""
    hooked = {id(linear) for layer in layers for linear in layer.linears}
    found = []
    for parent in encoder.modules():
        for name, child in parent.named_children():
            if id(child) in hooked:
                found.append((parent._modules, name, child))
    return found


def attach(layer: EncoderLayer, points: set[str], call: Callable[..., Tensor]) -> list[Remover]:
    """Hook `call` to a layer.

    Args:
        layer: The layer.
        points: Hook points (see `adapters.base`).
        call: call(point, *tensors) returns the new value of the last tensor.

    Returns:
        What removes the hooks.
    """
    removers: list[Remover] = []
    handles: list[Any] = []
    if "project" in points:
        removers += _call_fused_layer(layer)
        first = _FirstArgument()
        if layer.reader is not None:
            handles.append(layer.reader.register_forward_pre_hook(first.keep))
            handles.append(layer.reader.register_forward_hook(first.forget, always_call=True))
        for linear, projections in layer.projections:
            hook = partial(_project, call, projections, first)
            handles.append(linear.register_forward_hook(hook))
    if "hidden" in points:
        handles.append(layer.mlp_out.register_forward_pre_hook(partial(_hidden, call)))
    for point, module in (("after_attention", layer.attention), ("after_mlp", layer.mlp)):
        if point in points:
            handles.append(module.register_forward_hook(partial(_after, call, point)))
    for point, module in (("parallel", layer.layer), ("parallel_scaled", layer.mlp)):
        if point in points and layer.mlp_norm is not None:
            first = _FirstArgument()  # the residual stream between the two halves of the layer
            handles.append(layer.mlp_norm.register_forward_pre_hook(first.keep))
            handles.append(module.register_forward_hook(partial(_parallel, call, point, first)))
    return removers + [handle.remove for handle in handles]


def _call_fused_layer(layer: EncoderLayer) -> list[Remover]:
    """Let an attention with separate biases call its fused layer, whose weight it reads by default.

    It calls the layer without a `q_bias`. An instance attribute hides the parameter, which stays in
    the state under its name.
    """
    if layer.bias_owner is None:
        return []
    layer.bias_owner.__dict__["q_bias"] = None
    hook = partial(_add_biases, layer)
    handle = layer.projections[0][0].register_forward_hook(hook)
    return [partial(object.__delattr__, layer.bias_owner, "q_bias"), handle.remove]


class _FirstArgument(threading.local):
    """The first argument of a module, for a later hook of the same thread."""

    tensor: Tensor | None = None

    def __reduce__(self):
        return _FirstArgument, ()

    def keep(self, module: nn.Module, args: tuple) -> None:
        self.tensor = args[0]

    def forget(self, *_) -> None:
        self.tensor = None


def _add_biases(layer: EncoderLayer, module: nn.Module, args: tuple, y: Tensor) -> Tensor:
    return y + layer.separate_bias.to(y.dtype)


def _project(
    call: Callable[..., Tensor],
    projections: str,
    first: _FirstArgument,
    module: nn.Module,
    args: tuple,
    y: Tensor,
) -> Tensor:
    # DeBERTa projects its position embeddings with the same layers as the tokens.
    is_input = first.tensor is None or args[0] is first.tensor
    point = "project" if is_input else "project_position_embeddings"
    y = y.unflatten(-1, (len(projections), -1))  # (n, t, p, d)
    return call(point, args[0], y, projections=projections).flatten(-2)


def _hidden(call: Callable[..., Tensor], module: nn.Module, args: tuple) -> tuple:
    return call("hidden", args[0]), *args[1:]


def _after(
    call: Callable[..., Tensor], point: str, module: nn.Module, args: tuple, y: Tensor
) -> Tensor:
    return call(point, y)


def _parallel(
    call: Callable[..., Tensor],
    point: str,
    first: _FirstArgument,
    module: nn.Module,
    args: tuple,
    y: Tensor,
) -> Tensor:
    x = first.tensor
    first.forget()  # else it would live until the next pass
    return call(point, x, y)


@contextmanager
def training_attention(encoder: nn.Module) -> Iterator[None]:
    """Compute timm's attention inside as is faster for training.

    On a CPU, under autocast and for images of few patches, that is by separate products: their
    backward pass takes down to a fifth of the time of torch's fused attention. They keep the
    attention scores in memory.
    """
    on_cpu = next(encoder.parameters()).device.type == "cpu"
    patches = getattr(getattr(encoder, "patch_embed", None), "num_patches", MANY_PATCHES)
    layers: list[Any] = []
    if on_cpu and torch.is_autocast_enabled("cpu") and patches < MANY_PATCHES:
        layers = [module for module in encoder.modules() if getattr(module, "fused_attn", False)]
    for layer in layers:
        layer.fused_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.fused_attn = True
