"""The connection of adapters to a frozen encoder: forward hooks.

Hooks leave the backbone's modules and their names untouched. They are methods, not closures: a copy
or a pickle of the model has hooks of its own.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pvera.adapters import Adapter
from pvera.adapters.passes import PassHistory
from pvera.encoders import EncoderLayer, class_name, uncompiled
from pvera.errors import InputError
from pvera.grid import Grid


class ModelHooks:
    """The hooks of all layers.

    Args:
        grid: The adapted model, as the members and their settings.
        backbone: The frozen encoder.
        layers: Its layers.
    """

    def __init__(self, grid: Grid, backbone: nn.Module, layers: Sequence[EncoderLayer]):
        self.grid = grid
        self.backbone = backbone
        linears = {linear for layer in layers for linear in layer.linears}
        self._linears = [item for item in backbone.named_modules() if item[1] in linears]
        self._removers: list[Callable[[], None]] = []
        for i, layer in enumerate(layers):
            adapters = [member.adapters[i] for member in grid.members]
            # What keeps a LayerHooks alive are its hooks, which are methods.
            self._removers += LayerHooks(grid, layer, adapters).removers
        self._hook_last_norm(layers[-1].mlp_norm)

    def detach(self) -> None:
        """Remove the hooks."""
        for remove in self._removers:
            remove()
        self._removers = []

    def require_layers(self) -> None:
        """Raise InputError if a hooked layer was replaced, and so has lost its adapter."""
        for name, linear in self._linears:
            if uncompiled(self.backbone.get_submodule(name)) is not linear:
                raise InputError(
                    f"{name} was replaced after adapt(), and so has no adapter: replace it before"
                )

    def _hook_last_norm(self, norm: nn.Module | None) -> None:
        """Hook the last norm of a timm ViT whose features are its class token alone."""
        pool = getattr(uncompiled(self.backbone), "global_pool", None)
        if (
            norm is not None
            and class_name(self.backbone) == "VisionTransformer"
            and pool == "token"
        ):
            handle = norm.register_forward_pre_hook(self._spare_tokens, prepend=True)
            self._removers.append(handle.remove)

    def _spare_tokens(self, norm: nn.Module, args: tuple) -> Tensor | None:
        """Give the last MLP the class token alone, which is all that the head reads."""
        # A merged model has the backbone's own pass, with all tokens.
        spared = self.grid.last_mlp_on_class_token and not self.grid.merged
        return args[0][:, :1] if spared else None


class _FirstArgument(threading.local):
    """The first argument of a module, for a later hook of the same thread."""

    tensor: Tensor | None = None

    def __reduce__(self):
        return _FirstArgument, ()  # what is local to a thread cannot be copied otherwise

    def keep(self, module: nn.Module, args: tuple) -> None:
        self.tensor = args[0]

    def forget(self, *_) -> None:
        self.tensor = None


class LayerHooks:
    """Gives the adapters of each active member their part of the batch, at one layer.

    Args:
        grid: The members and their settings.
        layer: The layer.
        adapters: Its adapter of each member.
    """

    def __init__(self, grid: Grid, layer: EncoderLayer, adapters: Sequence[Adapter]):
        self.grid = grid
        self.layer = layer
        self.adapters = adapters
        self.passes = PassHistory()
        #: What enters the attention (DeBERTa alone), and what enters the norm before the MLP.
        self.attention_input = _FirstArgument()
        self.residual = _FirstArgument()
        for adapter in adapters:
            adapter.passes = self.passes

        handles = [layer.block.register_forward_pre_hook(self.passes.begin)]
        points = adapters[0].hook_points
        if "project" in points:
            handles += self._hook_projections()
        if "hidden" in points:
            handles.append(layer.mlp_out.register_forward_pre_hook(self._hidden))
        for point, module in (("after_attention", layer.attention), ("after_mlp", layer.mlp)):
            if point in points:
                handles.append(module.register_forward_hook(partial(self._after, point)))
        for point, module in (("parallel", layer.block), ("parallel_scaled", layer.mlp)):
            if point in points:
                # The norm gets the residual stream between the two halves of the layer.
                norm: Any = layer.mlp_norm
                handles.append(norm.register_forward_pre_hook(self.residual.keep))
                handles.append(module.register_forward_hook(partial(self._parallel, point)))
        #: What removes the hooks.
        self.removers = [handle.remove for handle in handles]
        if "project" in points and layer.separate_biases:
            # Shows the parameter that `_hook_projections` hides.
            self.removers.append(partial(object.__delattr__, layer.attention, "q_bias"))

    def _hook_projections(self) -> list[RemovableHandle]:
        layer = self.layer
        handles = []
        if layer.separate_biases:
            # timm's forward: `qkv(x)` if q_bias is None, else `F.linear(x, qkv.weight, biases)`.
            # Hooks run in the first case alone. So an instance attribute hides the parameter, which
            # stays in the state under its name, and a hook adds the biases. The attribute goes
            # with the hooks (see `removers`).
            layer.attention.__dict__["q_bias"] = None
            handles.append(layer.qkv_linears[0][0].register_forward_hook(self._add_biases))
        if layer.attention_input is not None:
            attention = layer.attention_input
            handles.append(attention.register_forward_pre_hook(self.attention_input.keep))
            handles.append(
                attention.register_forward_hook(self.attention_input.forget, always_call=True)
            )
        for linear, letters in layer.qkv_linears:
            handles.append(linear.register_forward_hook(partial(self._project, letters)))
        return handles

    def _call_adapters(
        self, hook_point: str, *tensors: Tensor, rest: tuple[str, ...] = ()
    ) -> Tensor:
        """Return the new value of the last tensor, (active members · batch, ...).

        Each adapter gets its part of the tensors, and then the `rest`, as it is.
        """
        # The hooks stay while merged: a compiled graph sees what they read, such as `merged`, but
        # would not notice that they were removed.
        if self.grid.merged:
            return tensors[-1]
        active = self.passes.compute_or_recall("active", lambda: list(self.grid.active))
        adapters = [self.adapters[m] for m in active]
        if not adapters:
            return tensors[-1]
        if len(adapters) == 1:
            return getattr(adapters[0], hook_point)(*tensors, *rest)
        chunks = [tensor.chunk(len(adapters)) for tensor in tensors]
        changed = []
        for adapter, *own in zip(adapters, *chunks, strict=True):
            changed.append(getattr(adapter, hook_point)(*own, *rest))
        return torch.cat(changed)

    def _add_biases(self, module: nn.Module, args: tuple, y: Tensor) -> Tensor:
        return y + self.layer.separate_bias.to(y.dtype)

    def _project(self, letters: str, module: nn.Module, args: tuple, y: Tensor) -> Tensor:
        # DeBERTa projects its position embeddings with the same layers as the tokens.
        reads_tokens = self.layer.attention_input is None or args[0] is self.attention_input.tensor
        point = "project" if reads_tokens else "project_position_embeddings"
        y = y.unflatten(-1, (len(letters), -1))  # (n, t, q, d)
        return self._call_adapters(point, args[0], y, rest=(letters,)).flatten(-2)

    def _hidden(self, module: nn.Module, args: tuple) -> tuple:
        return self._call_adapters("hidden", args[0]), *args[1:]

    def _after(self, point: str, module: nn.Module, args: tuple, y: Tensor) -> Tensor:
        return self._call_adapters(point, y)

    def _parallel(self, point: str, module: nn.Module, args: tuple, y: Tensor) -> Tensor:
        x: Any = self.residual.tensor
        self.residual.forget()  # else it would live until the next pass
        return self._call_adapters(point, x, y)
