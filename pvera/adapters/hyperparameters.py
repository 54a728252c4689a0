"""Fields of a `Method`, each with the rule that its values follow.

    rank: int = hyperparameters.positive_int(256)

`Method` checks them: "PVeRA: rank must be a positive integer, not 0".
"""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any


def checked(default: Any, must: str, is_valid: Callable[[Any], bool]) -> Any:
    """Return a field of a `Method` with a rule.

    Args:
        default: The default.
        must: The rule in words: "rank must be ...".
        is_valid: Whether a value follows it.
    """
    return field(default=default, metadata={"rule": (must, is_valid)})


def flag(default: bool) -> Any:
    """Return a field for True or False."""
    return checked(default, "True or False", lambda value: isinstance(value, bool))


def positive_int(default: int) -> Any:
    """Return a field for a positive integer."""
    return checked(default, "a positive integer", lambda value: type(value) is int and value > 0)


def positive(default: float | None) -> Any:
    """Return a field for a positive number, or None if that is the default."""

    def is_valid(value: Any) -> bool:
        if value is None:
            return default is None
        return is_number(value) and value > 0

    must = "a positive number" if default is not None else "a positive number or None"
    return checked(default, must, is_valid)


def fraction(default: float) -> Any:
    """Return a field for a number from 0 and below 1."""
    return checked(
        default,
        "a number from 0 and below 1",
        lambda value: is_number(value) and 0 <= value < 1,
    )


def target_projections(default: str) -> Any:
    """Return a field for letters of "qkv", in this order."""
    return one_of("q", "k", "v", "qk", "qv", "kv", "qkv", default=default)


def one_of(*choices: str, default: str | None = None) -> Any:
    """Return a field for one of `choices`; the default is the first, unless another is given."""
    must = f"one of {', '.join(choices)}"
    return checked(default or choices[0], must, lambda value: value in choices)


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number, which True and False are not."""
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and math.isfinite(value)
