"""A finding of the audit, its verdicts, and how every check words and judges one."""

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
    check: str  # what kind of thing
    place: str  # where it is printed
    printed: str
    recomputed: str
    verdict: str
    note: str = ""


def near(printed: float, value: float, half: float, slack: float) -> str:
    """Verdict on `printed`, of precision ± `half`, against `value`, which rounding can move by `slack`."""
    gap = abs(printed - value) - EPSILON
    return FOLLOWS if gap <= half else ROUNDING if gap <= half + slack else CONTRADICTS


def above(difference: float, slack: float) -> str:
    """Verdict on a difference that is said to be positive and that rounding can move by `slack`."""
    return FOLLOWS if difference > 0 else ROUNDING if difference > -slack - EPSILON else CONTRADICTS


def exact(check: str, place: str, printed, recomputed) -> Finding:
    verdict = FOLLOWS if printed == recomputed else CONTRADICTS
    return Finding(check, place, str(printed), str(recomputed), verdict)


def titles(methods) -> str:
    return " and ".join(METHODS[m].title for m in methods)


def cell_title(method: str, dataset: str) -> str:
    return f"{METHODS[method].title} on {TASKS[dataset].title}"
