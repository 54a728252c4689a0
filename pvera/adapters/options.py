"""Fields of hyperparameters, each with its default and its rule: `rank: int = options.positive_int(256)`."""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any


def option(
    default: Any, must: str, holds: Callable[[Any], bool], form: Callable[[Any], Any] = lambda value: value
) -> Any:
    """Return a dataclass's field with a default and the rule that `Method` checks.

    must: the rule in words.   holds: whether a value keeps it.   form: the one form of equal values.
    """
    return field(default=default, metadata={"rule": (must, holds, form)})


def positive_int(default: int) -> Any:
    return option(default, "a positive integer", lambda value: type(value) is int and value > 0)


def positive(default: float) -> Any:
    return option(default, "a positive number", _is_positive)


def positive_or_none() -> Any:
    return option(None, "a positive number or None", lambda value: value is None or _is_positive(value))


def share(default: float) -> Any:
    return option(default, "a number from 0 and below 1", lambda value: value == 0 or _is_positive(value) and value < 1)


def positions(default: str) -> Any:
    return option(
        default,
        "different letters out of q, k, v",
        lambda value: isinstance(value, str) and 0 < len(value) == len(set(value) & set("qkv")),
        lambda value: "".join(sorted(value, key="qkv".index)),
    )


def one_of(*choices: str) -> Any:
    """Return a field whose default is the first of `choices`."""
    return option(choices[0], f"one of {', '.join(choices)}", lambda value: value in choices)


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0
