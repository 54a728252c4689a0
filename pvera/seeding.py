"""Random numbers without global state: every draw names what it is for."""

import hashlib

import torch


def derive(*key) -> int:
    """A 63-bit seed from any printable key, for example ``derive(0, "noise", layer)``."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for `key`: the same key gives the same numbers on the same kind of device."""
    return torch.Generator(device).manual_seed(derive(*key))
