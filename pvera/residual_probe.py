"""A check that an encoder of your own class adds attention and MLP to a residual stream."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pvera.encoders import EncoderLayer, class_name, is_own
from pvera.errors import InputError, as_input_error
from pvera.features import example_features, input_shape


def require_residual_layers(encoder: nn.Module, layers: Sequence[EncoderLayer]) -> None:
    """Raise InputError unless an encoder of your own class computes what adapters rely on.

    It calls each part once in a pass. With the outputs of attention and MLP set to zero, the tokens
    are the same before a layer, before the norm of its MLP, and after the layer. It returns one
    vector of the layers' width for an image.
    """
    if is_own(encoder) and not next(encoder.parameters()).is_meta:
        ResidualProbe(encoder, layers).run()


class ResidualProbe:
    """One pass through an encoder whose attention and MLP return zeros."""

    def __init__(self, encoder: nn.Module, layers: Sequence[EncoderLayer]):
        self.encoder = encoder
        self.layers = layers
        self.title = class_name(encoder)
        self.names = {module: name for name, module in encoder.named_modules()}
        self.calls: Counter[nn.Module] = Counter()
        self.tokens = torch.empty(0)  # what entered the current layer

    def run(self) -> None:
        """Compute an image. InputError if a part does something else than expected."""
        shape = input_shape(self.encoder)
        handles = self._hook()
        try:
            message = f"{self.title} does not compute an image {shape}, the size that it names"
            with as_input_error(message):
                features = example_features(self.encoder, shape)
        finally:
            for handle in handles:
                handle.remove()

        for module in self._modules_of_layers():
            count = self.calls[module]
            self._require(count == 1, module, f"is called {count} times in a pass, and not once")
        width = self.layers[0].dim
        if features.shape != (width,):
            raise InputError(
                f"{self.title} returns {len(features)} numbers for an image, not {width}: "
                "remove its head"
            )

    def _modules_of_layers(self) -> dict[nn.Module, None]:
        """Return the modules of all layers, in order."""
        modules: list[nn.Module] = []
        for layer in self.layers:
            modules += [*layer.linears, layer.attention, layer.mlp]
            if layer.mlp_norm is not None:
                modules.append(layer.mlp_norm)
        return dict.fromkeys(modules)

    def _hook(self) -> list[Any]:
        handles: list[Any] = []
        for layer in self.layers:
            handles.append(layer.layer.register_forward_pre_hook(self._enter))
            for module in (layer.attention, layer.mlp):
                handles.append(module.register_forward_hook(self._to_zero))
            if layer.mlp_norm is not None:
                handles.append(layer.mlp_norm.register_forward_pre_hook(self._require_same))
                handles.append(layer.layer.register_forward_hook(self._require_same))
        for module in self._modules_of_layers():
            handles.append(module.register_forward_hook(self._count))
        return handles

    def _enter(self, layer: nn.Module, args: tuple) -> None:
        self.tokens = args[0]

    def _count(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.calls[module] += 1

    def _to_zero(self, module: nn.Module, args: tuple, output: Any) -> Tensor:
        fits = isinstance(output, Tensor) and output.shape == self.tokens.shape
        self._require(fits, module, "does not return what a layer adds to its tokens")
        return torch.zeros_like(output)

    def _require_same(self, module: nn.Module, args: tuple, output: Tensor | None = None) -> None:
        same = torch.equal(args[0] if output is None else output, self.tokens)
        what = "does not have the tokens to which attention and MLP alone have added"
        self._require(same, module, what)

    def _require(self, holds: bool, module: nn.Module, what: str) -> None:
        if not holds:
            advice = "docs/backbones.md says what an encoder must have"
            raise InputError(f"{self.title}: {self.names[module]} {what}; {advice}")
