"""Standard deviations over seeds: can three accuracies have them?"""

import math
from collections.abc import Iterator

import numpy as np

from pvera.data.tasks import TASKS
from pvera.report.audit.core import CONTRADICTS, FOLLOWS, HALF, Finding, cell_title
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published


def lone_seed(mean: float, std: float, ddof: int) -> tuple[float, float]:
    """Return the accuracies of one seed that fell behind and of two that agree, given the mean and std of the three.

    ddof: 0 if the standard deviation divides by 3, 1 if by 2.
    """
    gap = std * math.sqrt(4.5 if ddof == 0 else 3)
    return mean - 2 / 3 * gap, mean + 1 / 3 * gap


def check_spreads(paper: Published) -> Iterator[Finding]:
    """Yield the findings on whether three accuracies in [0, 100] can have this mean and standard deviation."""
    for row in paper.detailed.itertuples():
        total = SEEDS * row.accuracy
        extreme = [min(100, max(0, total - 100 * i)) for i in range(SEEDS)]
        widest = float(np.std(extreme, ddof=1))
        note = ""
        if row.std >= 20:
            low = [lone_seed(row.accuracy, row.std, ddof)[0] for ddof in (0, 1)]
            chance = 100 / TASKS[row.dataset].classes
            note = (
                f"two equal seeds and a lower one would put that at {low[0]:.1f} (std dividing by 3) or "
                f"{low[1]:.1f} (by 2); 1 / classes is {chance:.1f}"
            )
        yield Finding(
            "standard deviations",
            f"{TABLES[row.backbone]} ({BACKBONES[row.backbone]}), {cell_title(row.method, row.dataset)}",
            f"{row.accuracy:.1f} ± {row.std:.1f}", f"at most {widest:.1f}",
            FOLLOWS if row.std <= widest + 2 * HALF else CONTRADICTS, note,
        )  # fmt: skip
