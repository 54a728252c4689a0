"""Dropout of an adapter's input (Srivastava et al., JMLR 2014), which Monte Carlo dropout keeps at inference (Gal and
Ghahramani, ICML 2016).

    x ← x ⊙ m / (1 − p),  m ~ Bernoulli(1 − p)

The frozen product sees all of x; the adapter's product sees the rest that dropout leaves.
"""

import torch
from torch import Tensor

from pvera.adapters.stochastic import StochasticAdapter


class DropoutAdapter(StochasticAdapter):
    """An adapter that adds a linear function of its input; training drops a share `dropout` of that input.

    Subclasses implement `add`. Without dropout there is no distribution to sample from.
    """

    def __init__(self, index: int, seed: int, dropout: float):
        super().__init__(index, seed)
        self.dropout = dropout

    @property
    def is_stochastic(self) -> bool:
        return self.dropout > 0

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return y (n, t, q, d) with the adapter's function of x (n, t, d) added at its targets in `projections`."""
        raise NotImplementedError

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        return self.add(self.drop(x, projections), y, projections)

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return `project` without dropout: position embeddings belong to no sample."""
        return self.add(x, y, projections)

    def drop(self, x: Tensor, projections: str) -> Tensor:
        """Return what dropout leaves of x."""
        if not self.is_stochastic:
            return x
        now = self.settings(projections, x.device)
        if not now.sampling:
            return x
        kept = (self.draw(torch.rand, x, now) >= self.dropout).to(x.dtype) / (1 - self.dropout)
        return x * kept

    def kl_divergence(self) -> float:
        """Return zero: dropout has no KL term."""
        return 0.0
