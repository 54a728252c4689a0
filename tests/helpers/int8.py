"""Linear layers that hold int8 codes, as those of 8-bit libraries."""

import torch
from torch import nn
from torch.nn import functional as F


class Int8Linear(nn.Linear):
    """A linear layer whose weight is int8 codes times one scale per output row."""

    def __init__(self, linear: nn.Linear):
        super().__init__(linear.in_features, linear.out_features)
        self.scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        codes = (linear.weight.detach() / self.scale).round().to(torch.int8)
        self.weight, self.bias = nn.Parameter(codes, requires_grad=False), linear.bias

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)


def int8(vit: nn.Module) -> nn.Module:
    """Return `vit` with all linear layers in int8."""
    for name, linear in [(n, m) for n, m in vit.named_modules() if isinstance(m, nn.Linear)]:
        vit.set_submodule(name, Int8Linear(linear))
    return vit
