"""Random numbers without global state: every draw has a key of its own."""

import hashlib

import torch


def derive(*key: object) -> int:
    """Return a 63-bit seed from any printable key, for example `derive(0, "noise", layer)`."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: object) -> torch.Generator:
    """Return a new generator of the CPU for `key`. The same key gives the same numbers."""
    return torch.Generator().manual_seed(derive(*key))
