"""(IA)³: Infused Adapter by Inhibiting and Amplifying Inner Activations.

Liu et al., NeurIPS 2022.

    x_k ← l_k ⊙ x_k
    x_v ← l_v ⊙ x_v
    h ← l_ff ⊙ h
    W_k ← diag(l_k) W_k,  b_k ← l_k ⊙ b_k                  (the merge)
    W_v ← diag(l_v) W_v,  b_v ← l_v ⊙ b_v
    W_2 ← W_2 diag(l_ff)

x_k and x_v are the keys and values, h is the hidden activation of the MLP, and W_2 the MLP's second
weight. Only the scales l (d, d and 4d) are trained; they start at one.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Adapter, Method, change_at, select
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class IA3(Method):
    """(IA)³, which has no hyperparameter; the paper searches the learning rate."""

    key: ClassVar[str] = "ia3"
    title: ClassVar[str] = "(IA)³"
    colour: ClassVar[str] = "#56B4E9"
    marker: ClassVar[str] = "v"

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "IA3Adapter":
        """Return the scales of one layer."""
        return IA3Adapter(layer.dim, layer.mlp_out.in_features)


class IA3Adapter(Adapter):
    """Scales l_kv (2, d) of keys and values and l_ff (4d) of one layer."""

    targets = "kv"
    vectors = ("l_kv", "l_ff")

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.l_kv = nn.Parameter(torch.ones(2, dim))
        self.l_ff = nn.Parameter(torch.ones(hidden))

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return l_k ⊙ x_k and l_v ⊙ x_v, and the queries as they are."""
        target_indices, output_indices = self.matching(projections)
        if not target_indices:
            return y
        scale = select(self.l_kv, 0, target_indices)
        return change_at(y, output_indices, lambda i, y_i: y_i * scale[i])

    def hidden(self, h: Tensor) -> Tensor:
        """Return l_ff ⊙ h, (n, t, 4d)."""
        return (h * self.l_ff).to(h.dtype)

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        """Return the merged weights (q, d, d) and biases (q, d) of keys and values."""
        target_indices, output_indices = self.matching(projections)
        weight[output_indices] *= self.l_kv[target_indices].unsqueeze(2)
        bias[output_indices] *= self.l_kv[target_indices]
        return weight, bias

    def merge_hidden(self, weight: Tensor) -> Tensor:
        """Return the merged W_2 (d, 4d)."""
        return weight * self.l_ff
