"""Standard deviations over seeds: can three accuracies have them?"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.audit.core import CONTRADICTS, FOLLOWS, HALF, UNCHECKED, Finding, cell_title
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published


def lone_seed(mean: float, std: float, ddof: int) -> tuple[float, float]:
    """Return the accuracies of one seed that fell behind and of two that agree, given the mean and std of the three.

    ddof: 0 if the standard deviation divides by 3, 1 if by 2.
    """
    gap = std * math.sqrt(4.5 if ddof == 0 else 3)
    return mean - 2 / 3 * gap, mean + 1 / 3 * gap


WIDE = 20  # points; a standard deviation that only a seed far behind the others can give


def collapsed(paper: Published) -> pd.DataFrame:
    """Return the cells with a `WIDE` standard deviation and where their lowest seed would stand, if two seeds agree.

    by_n, by_n_less_1: its accuracy if the standard deviation divides by three, and by two. constant: 100 / classes,
    the accuracy of a constant answer in balanced classes.
    """
    wide = paper.detailed[paper.detailed["std"] >= WIDE]
    rows = zip(wide["accuracy"], wide["std"], strict=True)
    lows = [[lone_seed(mean, std, ddof)[0] for ddof in (0, 1)] for mean, std in rows]
    return wide.assign(
        by_n=[low for low, _ in lows],
        by_n_less_1=[low for _, low in lows],
        constant=[100 / TASKS[dataset].classes for dataset in wide["dataset"]],
    )


def divisor(paper: Published) -> int | None:
    """Return 0 if the paper's standard deviations seem to divide by n, 1 if by n − 1 (numpy's ddof); None without
    evidence.

    Evidence: the lowest seed of most `collapsed` cells stands nearer to a constant answer.
    """
    cells = collapsed(paper)
    if cells.empty:
        return None
    nearer = (cells["by_n"] - cells["constant"]).abs() < (cells["by_n_less_1"] - cells["constant"]).abs()
    return 0 if nearer.mean() > 0.5 else 1


def sample_std(paper: Published, backbone: str) -> pd.DataFrame:
    """Return the printed standard deviations of a backbone as ones that divide by n − 1, by `divisor`."""
    std = paper.accuracies(backbone, "std")
    return std * math.sqrt(SEEDS / (SEEDS - 1)) if divisor(paper) == 0 else std


def check_divisor(paper: Published) -> Iterator[Finding]:
    """Yield the finding on what the standard deviations divide by, which the paper does not say."""
    if (ddof := divisor(paper)) is None:
        return
    cells = collapsed(paper)
    off = [(cells[name] - cells["constant"]).abs().mean() for name in ("by_n", "by_n_less_1")]
    yield Finding(
        "standard deviations", "Tables 6 to 8, divisor", "not said", f"n{' − 1' * ddof}", UNCHECKED,
        f"in {len(cells)} cells one seed fell behind; its accuracy is {off[0]:.1f} points from 1 / classes on average "
        f"if they divide by n, {off[1]:.1f} if by n − 1",
    )  # fmt: skip


def check_spreads(paper: Published) -> Iterator[Finding]:
    """Yield the findings on whether three accuracies in [0, 100] can have this mean and standard deviation."""
    wide = collapsed(paper)
    for row in paper.detailed.itertuples():
        total = SEEDS * row.accuracy
        extreme = [min(100, max(0, total - 100 * i)) for i in range(SEEDS)]
        widest = float(np.std(extreme, ddof=1))
        note = ""
        if row.Index in wide.index:
            cell = wide.loc[row.Index]
            note = (
                f"two equal seeds and a lower one would put that at {cell['by_n']:.1f} (std dividing by 3) or "
                f"{cell['by_n_less_1']:.1f} (by 2); 1 / classes is {cell['constant']:.1f}"
            )
        yield Finding(
            "standard deviations",
            f"{TABLES[row.backbone]} ({BACKBONES[row.backbone]}), {cell_title(row.method, row.dataset)}",
            f"{row.accuracy:.1f} ± {row.std:.1f}", f"at most {widest:.1f}",
            FOLLOWS if row.std <= widest + 2 * HALF else CONTRADICTS, note,
        )  # fmt: skip
