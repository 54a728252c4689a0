"""(IA)³: Infused Adapter by Inhibiting and Amplifying Inner Activations (Liu et al., NeurIPS 2022).

    x_k ← l_k ⊙ x_k,   x_v ← l_v ⊙ x_v,   h ← l_ff ⊙ h

for keys, values and the MLP's hidden activation h. The scales l start at one and are all that is trained.
Merged, l_k and l_v scale rows of W and b_W, and l_ff the columns of the MLP's second weight.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Adapter, Method, overlap, scale_at, take


@dataclass(frozen=True)
class IA3(Method):
    """(IA)³ has no hyperparameter; the learning rate is what the paper searches."""

    key: ClassVar[str] = "ia3"
    title: ClassVar[str] = "(IA)³"
    colour: ClassVar[str] = "#56B4E9"
    marker: ClassVar[str] = "v"

    def adapter(self, layer, index, shared, seed) -> "IA3Adapter":
        return IA3Adapter(layer.dim, layer.hidden_dim)

    def multiply_adds(self, shape, sampled=False) -> int:
        return 0


class IA3Adapter(Adapter):
    targets = "kv"

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.l_kv = nn.Parameter(torch.ones(2, dim))
        self.l_ff = nn.Parameter(torch.ones(hidden))

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.targets, positions)
        return scale_at(y, take(self.l_kv, 0, mine), theirs) if mine else y

    def hidden(self, h: Tensor) -> Tensor:
        return (h * self.l_ff).to(h.dtype)

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.targets, positions)
        weight[theirs] *= self.l_kv[mine].unsqueeze(2)
        bias[theirs] *= self.l_kv[mine]
        return weight, bias

    def fold_hidden(self, weight: Tensor) -> Tensor:
        """weight (d, 4d) of the MLP's second layer."""
        return weight * self.l_ff
