"""AdaptFormer: Adapting Vision Transformers for Scalable Visual Recognition.

Chen et al., NeurIPS 2022.

    x̃ = ReLU(x W_down + b_down) W_up + b_up
    x ← x + γ ⊙ MLP(LN(x)) + s x̃             (γ: the layer scale of DINOv2, else 1)
    x ← x + γ ⊙ (MLP(LN(x)) + s x̃)           (the official code)

A bottleneck of width d / ratio stands parallel to LayerNorm and MLP in every layer. The scalar s
starts at one and is trained. ReLU keeps the adapter from being merged.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import hyperparameters
from pvera.adapters.base import Adapter, Method
from pvera.adapters.bottleneck import DownUp
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class AdaptFormer(Method):
    """Hyperparameters of AdaptFormer."""

    key: ClassVar[str] = "adaptformer"
    title: ClassVar[str] = "AdaptFormer"
    colour: ClassVar[str] = "#CC79A7"
    marker: ClassVar[str] = "D"
    #: d / width of the bottleneck.
    ratio: int = hyperparameters.positive_int(8)
    #: W_up and b_up start at zero (see `Bottleneck`).
    near_identity: bool = hyperparameters.flag(True)
    #: The layer scale γ scales the branch too, as in the official code.
    inside_layer_scale: bool = hyperparameters.flag(False)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "ParallelAdapter":
        """Return the branch of one layer."""
        return ParallelAdapter(self, layer.dim, index, seed)


class ParallelAdapter(Adapter):
    """The bottleneck and s of one layer."""

    def __init__(self, method: AdaptFormer, dim: int, index: int, seed: int):
        super().__init__()
        self.inside_layer_scale = method.inside_layer_scale
        self.branch = DownUp(dim, method, (seed, "adaptformer", index))
        self.s = nn.Parameter(torch.ones(1))

    @property
    def hook_points(self) -> set[str]:
        """Where s x̃ is added: after the layer scale, or before it."""
        return {"parallel_scaled" if self.inside_layer_scale else "parallel"}

    def parallel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return y + s x̃, (n, t, d)."""
        return y + (self.s * self.branch(x)).to(x.dtype)

    parallel_scaled = parallel
