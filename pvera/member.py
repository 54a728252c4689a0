"""One member of a grid: a method's adapter for each layer of an encoder, and a linear head."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter, Method
from pvera.adapters.base import PARALLEL, derive, fixed_defaults, linear
from pvera.adapters.stochastic import NoiseSource
from pvera.encoders import EncoderLayer
from pvera.errors import InputError


class Member(nn.Module):
    """A method's adapter for each layer, and a linear head.

    Args:
        method: The method.
        layers: The encoder's layers.
        num_classes: Size of the head; 0: no head.
        seed: Seed of the frozen matrices, the initial values and the noise.
    """

    #: One adapter per layer.
    layers: Sequence[Adapter]

    @fixed_defaults()
    def __init__(self, method: Method, layers: Sequence[EncoderLayer], num_classes: int, seed: int):
        super().__init__()
        if type(seed) is not int:
            raise InputError(f"seed must be a whole number, or one for each member, not {seed!r}")
        if type(num_classes) is not int or num_classes < 0:
            raise InputError(f"num_classes must be a whole number from 0, not {num_classes!r}")
        self.method = method
        self.seed = seed
        self.num_classes = num_classes
        self.dim = layers[0].dim

        self.shared = method.shared(self.dim, seed)
        adapters = [method.adapter(layer, i, self.shared, seed) for i, layer in enumerate(layers)]
        for layer, adapter in zip(layers, adapters, strict=True):
            if layer.mlp_norm is None and not adapter.hook_points.isdisjoint(PARALLEL):
                raise InputError(
                    f"{method.title} needs a LayerNorm before the MLP, which this encoder does not "
                    "have"
                )
        self.layers = cast(Sequence[Adapter], nn.ModuleList(adapters))
        self.head = linear(self.dim, num_classes, seed, "head") if num_classes else nn.Identity()

        # The backbone's device and precision, at least fp32.
        frozen = layers[0].projections[0][0].weight
        self.to(frozen.device, torch.promote_types(frozen.dtype, torch.float32))
        # Of the start: a user may freeze parameters later, and save them nevertheless.
        self._trainable = {name for name, p in self.named_parameters() if p.requires_grad}

    def trainable_tensors(self) -> dict[str, nn.Parameter]:
        """Return the trainable tensors by name, also while they are frozen."""
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if name in self._trainable or name.startswith("head.")
        }

    def classify(self, features: Tensor) -> Tensor:
        """Return the head's logits (batch, classes) of features (batch, dim)."""
        # A head of your own may have another precision, or no parameters.
        weight = next(self.head.parameters(), features)
        return self.head(features.to(weight.dtype))

    def kl_divergence(self) -> Tensor | float:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass."""
        return sum(adapter.kl_divergence() for adapter in self.layers)

    def count(self) -> dict[str, int]:
        """Return the number of trained parameters in "adapter" and "head"."""
        total = sum(parameter.numel() for parameter in self.trainable_tensors().values())
        head = sum(parameter.numel() for parameter in self.head.parameters())
        return {"adapter": total - head, "head": head}

    @property
    def stochastic_layers(self) -> list[Any]:
        """The adapters that have a distribution, a `StochasticAdapter` each."""
        return [adapter for adapter in self.layers if adapter.is_stochastic]

    @property
    def is_stochastic(self) -> bool:
        """Whether every layer has a distribution."""
        return all(adapter.is_stochastic for adapter in self.layers)

    @property
    def mergeable(self) -> bool:
        """Whether every layer can be merged."""
        return all(adapter.mergeable for adapter in self.layers)

    def seed_noise(self, seed: int, on_all_ranks: bool = True) -> None:
        """Let the next noise of all layers follow from `seed` and the member's own seed."""
        for index, adapter in enumerate(self.stochastic_layers):
            key = derive(seed, "sample", self.seed, index)
            adapter.source = NoiseSource(key, on_all_ranks)
