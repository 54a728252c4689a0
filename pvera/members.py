"""The members of a grid: what each of them trains."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter, Method
from pvera.adapters.base import linear
from pvera.adapters.stochastic import Source
from pvera.encoders import EncoderLayer
from pvera.errors import InputError
from pvera.seeding import derive


class Member(nn.Module):
    """One member of a grid: a method's adapter for each layer, and a linear head."""

    layers: Sequence[Adapter]

    def __init__(self, method: Method, layers: Sequence[EncoderLayer], num_classes: int, seed: int):
        super().__init__()
        if type(num_classes) is not int or num_classes < 0:
            raise InputError(f"num_classes must be a whole number from 0, not {num_classes!r}")
        self.dim = dim = layers[0].dim
        self.method, self.seed, self.num_classes = method, seed, num_classes
        self.shared = method.shared(dim, seed)
        adapters = [method.adapter(layer, i, self.shared, seed) for i, layer in enumerate(layers)]
        for adapter in adapters:  # they refer to the shared module, which is registered here alone
            for name in [name for name, child in adapter._modules.items() if child is self.shared]:
                object.__setattr__(adapter, name, adapter._modules.pop(name))
        self.layers = cast(Sequence[Adapter], nn.ModuleList(adapters))
        self.head = linear(dim, num_classes, seed, "head") if num_classes else nn.Identity()
        frozen = layers[0].projections[0][0].weight
        self.to(frozen.device, torch.promote_types(frozen.dtype, torch.float32))

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trainable tensors by name; a saved adapter holds these."""
        return {n: p for n, p in self.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy `tensors` into the member's parameters and buffers of these names. KeyError for an unknown name."""
        named = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, tensor in tensors.items():
            named[name].copy_(tensor)

    def classify(self, features: Tensor) -> Tensor:
        """Return the head's logits of features (batch, dim)."""
        weight = next(self.head.parameters(), features)
        return self.head(features.to(weight.dtype))

    def kl_divergence(self) -> Tensor | float:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass."""
        return sum(adapter.kl_divergence() for adapter in self.layers)

    def count(self) -> dict[str, int]:
        """Return the number of trained parameters in the adapters and in the head."""
        total = sum(p.numel() for p in self.trained().values())
        head = sum(p.numel() for p in self.head.parameters())
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
        """Let the next draws of all layers follow from `seed` and the member's own."""
        for index, adapter in enumerate(self.stochastic_layers):
            adapter.source = Source(derive(seed, "sample", self.seed, index), on_all_ranks)


def grid(method: Method | Sequence[Method], seed: int | Sequence[int]) -> tuple[list[Method], list[int]]:
    """Return the members' methods and seeds. InputError unless there are as many of both."""
    methods = list(method) if isinstance(method, Sequence) else [method]
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(methods)
    if not methods or len(seeds) != len(methods) or not all(isinstance(m, Method) for m in methods):
        raise InputError("adapt() takes one method, or a non-empty sequence of methods and as many seeds")
    if odd := [value for value in seeds if type(value) is not int]:
        raise InputError(f"seed must be a whole number, or one for each member, not {odd[0]!r}")
    return methods, seeds
