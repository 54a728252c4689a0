"""Bottleneck: Parameter-Efficient Transfer Learning for NLP (Houlsby et al., ICML 2019).

    y ← y + ReLU(y W_down + b_down) W_up + b_up

y is the output of the attention, and in a second adapter that of the MLP, before the residual
connection. The hidden width is d / ratio. ReLU keeps the adapter from being merged.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pvera.adapters import hyperparameters
from pvera.adapters.base import Adapter, Method
from pvera.encoders import EncoderLayer
from pvera.errors import InputError
from pvera.seeds import seeded_linear


@dataclass(frozen=True)
class Bottleneck(Method):
    """Hyperparameters of the bottleneck adapter."""

    key: ClassVar[str] = "bottleneck"
    title: ClassVar[str] = "Bottleneck"
    colour: ClassVar[str] = "#E69F00"
    marker: ClassVar[str] = "^"
    #: d / hidden width.
    ratio: int = hyperparameters.positive_int(8)
    #: W_up and b_up start at zero, so the adapter starts as the identity, as Houlsby et al. ask.
    #: The official code starts them with PyTorch's default.
    near_identity: bool = hyperparameters.flag(True)

    def adapter(
        self, layer: EncoderLayer, index: int, shared: Any, seed: int
    ) -> "BottleneckAdapter":
        """Return the two bottlenecks of one layer."""
        return BottleneckAdapter(self, layer.dim, index, seed)


class BottleneckAdapter(Adapter):
    """The two bottlenecks of one layer."""

    def __init__(self, method: Bottleneck, dim: int, index: int, seed: int):
        super().__init__()
        self.attention = DownUp(dim, method, (seed, "bottleneck", "attention", index))
        self.mlp = DownUp(dim, method, (seed, "bottleneck", "mlp", index))

    def after_attention(self, y: Tensor) -> Tensor:
        """Return y + bottleneck(y), (n, t, d)."""
        return y + self.attention(y)

    def after_mlp(self, y: Tensor) -> Tensor:
        """Return y + bottleneck(y), (n, t, d)."""
        return y + self.mlp(y)


class DownUp(nn.Module):
    """ReLU(x W_down + b_down) W_up + b_up; AdaptFormer's branch, too.

    Args:
        dim: Width d.
        method: A method with `ratio` and `near_identity`.
        key: What the initial values follow from.
    """

    def __init__(self, dim: int, method: Any, key: tuple):
        super().__init__()
        width = dim // method.ratio
        if width < 1:
            raise InputError(
                f"{method.title}: ratio {method.ratio} leaves no hidden unit of width {dim}"
            )
        self.down = seeded_linear(dim, width, *key, "down")
        self.up = seeded_linear(width, dim, *key, "up")
        if method.near_identity:
            for parameter in self.up.parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, t, d) in the precision of x (n, t, d)."""
        h = torch.relu(F.linear(x, self.down.weight.to(x.dtype), self.down.bias.to(x.dtype)))
        return F.linear(h, self.up.weight.to(h.dtype), self.up.bias.to(h.dtype))
