"""Findings, their verdicts, and the rules and words that all checks share."""

from dataclasses import dataclass

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS

FOLLOWS, ROUNDING, OPEN, CONTRADICTS, UNCHECKED = VERDICTS = (
    "follows",
    "within rounding",
    "undecidable",
    "does not follow",
    "not checkable",
)
HALF = 0.05  # half a unit of the last printed digit of an accuracy
EPSILON = 1e-9


@dataclass(frozen=True)
class Finding:
    """One printed thing, its recomputed value, and the verdict."""

    check: str  # the kind of check
    place: str  # where the paper prints it
    printed: str
    recomputed: str
    verdict: str
    note: str = ""


def near(printed: float, value: float, half: float, slack: float) -> str:
    """Return the verdict on `printed`, precise to ± `half`, against `value`, which rounding can move by `slack`."""
    gap = abs(printed - value) - EPSILON
    return FOLLOWS if gap <= half else ROUNDING if gap <= half + slack else CONTRADICTS


def above(difference: float, slack: float) -> str:
    """Return the verdict on a difference that the paper calls positive and that rounding can move by `slack`."""
    return FOLLOWS if difference > 0 else ROUNDING if difference > -slack - EPSILON else CONTRADICTS


def exact(check: str, place: str, printed, recomputed) -> Finding:
    """Return the finding on two things that must be equal."""
    verdict = FOLLOWS if printed == recomputed else CONTRADICTS
    return Finding(check, place, str(printed), str(recomputed), verdict)


def titles(methods) -> str:
    """Return the titles of methods in a row: "DoRA and LoRA"."""
    return " and ".join(METHODS[m].title for m in methods)


def cell_title(method: str, dataset: str) -> str:
    """Return the name of a cell of an accuracy table: "LoRA on CIFAR-100"."""
    return f"{METHODS[method].title} on {TASKS[dataset].title}"
