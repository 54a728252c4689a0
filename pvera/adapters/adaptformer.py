"""AdaptFormer (Chen et al., NeurIPS 2022).

    x ← x + MLP(LN(x)) + s · (ReLU(x W_down + b_down) W_up + b_up)

one bottleneck of width d / ratio in parallel to LayerNorm and MLP, fed with the input of that LayerNorm. It
adds to the residual stream, past the layer scale of DINOv2. The scalar s starts at one and is trained. The
non-linearity keeps it from being merged.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import InputError
from .base import Adapter, Method
from .bottleneck import DownUp


@dataclass(frozen=True)
class AdaptFormer(Method):
    """Hyperparameters: the reduction ratio, and `near_identity` as in `Bottleneck`."""

    key: ClassVar[str] = "adaptformer"
    title: ClassVar[str] = "AdaptFormer"
    colour: ClassVar[str] = "#CC79A7"
    marker: ClassVar[str] = "D"
    ratio: int = 8
    near_identity: bool = True

    def adapter(self, layer, index, shared, seed) -> "AdaptFormerAdapter":
        if layer.mlp_norm is None:
            raise InputError("AdaptFormer needs a LayerNorm before the MLP, which this encoder does not have")
        return AdaptFormerAdapter(self, layer.dim, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        return 2 * shape.tokens * shape.dim * (shape.dim // self.ratio)


class AdaptFormerAdapter(Adapter):
    foldable = False

    def __init__(self, method: AdaptFormer, dim: int, index: int, seed: int):
        super().__init__()
        self.branch = DownUp(dim, method, (seed, "adaptformer", index))
        self.s = nn.Parameter(torch.ones(1))

    def beside_mlp(self, x: Tensor) -> Tensor:
        return self.s.to(x.dtype) * self.branch(x)
