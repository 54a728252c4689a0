"""Where adapters attach to a frozen encoder: its layers, and the hooks that call the adapters.

Encoders are timm's vision transformers, recognised by the names of their modules, and BERT, RoBERTa, DeBERTa-v2 and
-v3, and DINOv2 of transformers, recognised by the name of their class. Neither package is imported.

Forward hooks leave the backbone's modules and their names untouched: once the hooks are removed it is the
plain model again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from pvera.encoders import EncoderLayer, per_position  # split


def attach(layer: EncoderLayer, sites: set[str], call: Callable[..., Tensor]) -> list:
    """Hook `call(site, *tensors)` to the layer's `sites` (see `adapters.base`). Returns the hook handles.

    The hooks are plain objects, not closures: a copy or a pickle of the model carries hooks of its own.
    """
    handles = []
    if "project" in sites:
        read = _Held()
        if layer.reader is not None:
            handles.append(layer.reader.register_forward_pre_hook(read.hold))
            handles.append(layer.reader.register_forward_hook(read.release, always_call=True))
        for linear, positions in layer.projections:
            handles.append(linear.register_forward_hook(_Project(call, positions, read)))
    if "hidden" in sites:
        handles.append(layer.mlp_out.register_forward_pre_hook(_Hidden(call)))
    for site, module in (("after_attention", layer.attention), ("after_mlp", layer.mlp)):
        if site in sites:
            handles.append(module.register_forward_hook(_After(call, site)))
    for site, module in (("inside_mlp", layer.mlp), ("beside_mlp", layer.layer)):
        if site in sites:
            before = _Held()  # the residual stream between the two halves of the layer
            handles.append(layer.mlp_norm.register_forward_pre_hook(before.hold))
            handles.append(module.register_forward_hook(_Add(call, site, before)))
    return handles


class _Held:
    """The first argument of a module, from one hook to a later one."""

    tensor: Tensor | None = None

    def hold(self, module, args) -> None:
        self.tensor = args[0]

    def release(self, *_) -> None:
        self.tensor = None


@dataclass
class _Project:
    call: Callable[..., Tensor]
    positions: str
    read: _Held

    def __call__(self, module, args, y: Tensor) -> Tensor:
        site = "project" if self.read.tensor is None or args[0] is self.read.tensor else "project_positions"
        y = y.unflatten(-1, (len(self.positions), -1))
        return self.call(site, args[0], y, positions=self.positions).flatten(-2)


@dataclass
class _Hidden:
    call: Callable[..., Tensor]

    def __call__(self, module, args) -> tuple:
        return self.call("hidden", args[0]), *args[1:]


@dataclass
class _After:
    call: Callable[..., Tensor]
    site: str

    def __call__(self, module, args, y: Tensor) -> Tensor:
        return self.call(self.site, y)


@dataclass
class _Add:
    call: Callable[..., Tensor]
    site: str
    before: _Held

    def __call__(self, module, args, y: Tensor) -> Tensor:
        x = self.before.tensor
        self.before.release()
        return y + self.call(self.site, x)


@contextmanager
def cast_once(encoder: nn.Module) -> Iterator[None]:
    """Inside, frozen linear layers hold their weights in the type of autocast, which would cast them anew in every
    pass; without autocast, nothing changes. Equal bit for bit. The weights must not change inside."""
    kind = next(encoder.parameters()).device.type
    layers = [m for m in encoder.modules() if type(m) is nn.Linear and not m.weight.requires_grad]
    for layer in layers if torch.is_autocast_enabled(kind) else []:
        tensors = {"weight": layer.weight, "bias": layer.bias}
        dtype = torch.get_autocast_dtype(kind)
        cast = {name: tensor.detach().to(dtype) for name, tensor in tensors.items() if tensor is not None}
        layer.forward = partial(nn.functional.linear, **cast)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


@contextmanager
def plain_attention(model: nn.Module) -> Iterator[None]:
    """Inside, timm's attention layers compute plain products in the place of torch's fused attention."""
    layers = [module for module in model.modules() if getattr(module, "fused_attn", False)]
    for layer in layers:
        layer.fused_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.fused_attn = True


SHORT = 300  # patches; about where the backward pass of the fused attention takes less time again


def training_attention(encoder: nn.Module) -> AbstractContextManager:
    """`plain_attention` under autocast on a processor, for images of few patches: in half precision its backward pass
    takes as little as a fifth of the time of the fused one's, for which the scores are kept. Elsewhere nothing."""
    half = torch.is_autocast_enabled("cpu") and next(encoder.parameters()).device.type == "cpu"
    patches = getattr(getattr(encoder, "patch_embed", None), "num_patches", None)
    return plain_attention(encoder) if half and patches and patches < SHORT else nullcontext()


@torch.no_grad()
def fold(layer: EncoderLayer, adapter) -> list[tuple[nn.Parameter, Tensor]]:
    """Fold a foldable adapter into the layer's weights. Returns the parameters changed, with their old values."""
    changed = []
    if hasattr(adapter, "project"):
        for linear, positions in layer.projections:
            weight, bias = (t.clone() for t in per_position(linear, positions))
            weight, bias = adapter.fold_projection(weight, bias, positions)
            changed += _replace(linear.weight, weight.flatten(0, 1))
            if linear.bias is not None:
                changed += _replace(linear.bias, bias.flatten())
    if hasattr(adapter, "hidden"):
        changed += _replace(layer.mlp_out.weight, adapter.fold_hidden(layer.mlp_out.weight))
    return changed


def _replace(parameter: nn.Parameter, value: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
    old = parameter.detach().clone()
    parameter.copy_(value)
    return [(parameter, old)]
