"""AdaptFormer (Chen et al., NeurIPS 2022).

    x ← x + MLP(LN(x)) + s · (ReLU(x W_down + b_down) W_up + b_up)

one bottleneck of width d / ratio in parallel to LayerNorm and MLP, fed with the input of that LayerNorm. It
adds to the residual stream, past the layer scale γ of DINOv2; the published program puts it before that,
x ← x + γ ⊙ (MLP(LN(x)) + s · ...). The scalar s starts at one and is trained. The non-linearity keeps it from
being merged.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Adapter, Method
from pvera.adapters.bottleneck import DownUp
from pvera.errors import InputError


@dataclass(frozen=True)
class AdaptFormer(Method):
    """Hyperparameters: the reduction ratio, and `near_identity` as in `Bottleneck`.

    inside_layer_scale: the branch adds to the MLP's output, before the layer scale, as in the published program.
    Without layer scale both places are the same.
    """

    key: ClassVar[str] = "adaptformer"
    title: ClassVar[str] = "AdaptFormer"
    colour: ClassVar[str] = "#CC79A7"
    marker: ClassVar[str] = "D"
    ratio: int = 8
    near_identity: bool = True
    inside_layer_scale: bool = False

    def adapter(self, layer, index, shared, seed) -> "ParallelBranch":
        if layer.mlp_norm is None:
            raise InputError("AdaptFormer needs a LayerNorm before the MLP, which this encoder does not have")
        place = InsideMLP if self.inside_layer_scale else BesideMLP
        return place(self, layer.dim, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        return 2 * shape.tokens * shape.dim * (shape.dim // self.ratio)


class ParallelBranch(Adapter):
    foldable = False

    def __init__(self, method: AdaptFormer, dim: int, index: int, seed: int):
        super().__init__()
        self.branch = DownUp(dim, method, (seed, "adaptformer", index))
        self.s = nn.Parameter(torch.ones(1))

    def added(self, x: Tensor) -> Tensor:
        return (self.s * self.branch(x)).to(x.dtype)


class BesideMLP(ParallelBranch):
    def beside_mlp(self, x: Tensor) -> Tensor:
        return self.added(x)


class InsideMLP(ParallelBranch):
    def inside_mlp(self, x: Tensor) -> Tensor:
        return self.added(x)
