"""Random numbers without global state: each tensor has a seed or a key of its own."""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def derive(*key: object) -> int:
    """Return a 63-bit seed from any printable key, for example `derive(0, "noise", layer)`."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: object) -> torch.Generator:
    """Return a new generator of the CPU for `key`. The same key gives the same numbers."""
    return torch.Generator().manual_seed(derive(*key))


def seeded_linear(inputs: int, outputs: int, *key: object) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialisation, which follows from `key`."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    rng = generator(*key)
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():  # the weight, then the bias
        nn.init.uniform_(parameter, -bound, bound, generator=rng)
    return layer


@contextmanager
def fixed_defaults() -> Iterator[None]:
    """Make tensors inside in fp32 on the CPU: a seed then gives the same numbers in any process."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
