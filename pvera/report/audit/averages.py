"""Cells of the main table against the detailed one, and averages against what they average."""

from collections.abc import Iterator
from itertools import product

import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.audit.core import CONTRADICTS, EPSILON, FOLLOWS, HALF, ROUNDING, Finding, cell_title, near, titles
from pvera.report.audit.stars import plausible_counts
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published
from pvera.study.results import CATEGORIES


def check_cells(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the main table against the detailed table of the same backbone."""
    main, detailed = paper.main_table(), paper.accuracies("dinov2_b")
    for method, dataset in product(main.index, main.columns):
        printed, other = main.at[method, dataset], detailed.at[method, dataset]
        gap = abs(printed - other)
        verdict = FOLLOWS if gap < EPSILON else ROUNDING if gap <= 2 * HALF + EPSILON else CONTRADICTS
        note = "conjecture: a slip of the pen, or one table not updated" if verdict == CONTRADICTS else ""
        if verdict == ROUNDING:
            note = "one number halfway between can be printed as either"
            n = SEEDS * TASKS[dataset].test_images
            bounds = [plausible_counts(value, n) for value in (printed, other)]
            if max(low for low, _ in bounds) > min(high for _, high in bounds):
                verdict, note = CONTRADICTS, f"no count out of {n} prints as both; conjecture: rounded twice"
        yield Finding(
            "main table = detailed table", f"Table 1, {cell_title(method, dataset)}", f"{printed:.1f}",
            f"{other:.1f} in {TABLES['dinov2_b']}", verdict, note,
        )  # fmt: skip


def means(paper: Published) -> pd.DataFrame:
    """Return the averages of the detailed tables: rows (backbone, method); columns "average" and each category."""
    rows = {}
    for backbone in BACKBONES:
        table = paper.accuracies(backbone)
        for method, values in table.iterrows():
            parts = {c: values[[TASKS[d].category == c for d in table]].mean() for c in CATEGORIES}
            rows[backbone, method] = {"average": values.mean(), **parts}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["backbone", "method"])


def check_averages(paper: Published) -> Iterator[Finding]:
    """Yield the findings on averages: the main table's from its cells, the text's from the detailed tables."""
    by_backbone = means(paper)["average"]
    main = paper.main_table().mean(axis=1)
    for row in paper.averages.itertuples():
        in_table = row.source != "text"
        computed = main if in_table else by_backbone[row.backbone]
        verdict = near(row.average, computed[row.method], HALF, HALF)
        note = ""
        if verdict == CONTRADICTS:
            same = [m for m, mean in computed.items() if m != row.method and abs(mean - row.average) <= HALF + EPSILON]
            if same:
                note = f"it is the average of {titles(same)}; conjecture: taken from there"
        recomputed, other = f"{computed[row.method]:.2f}", f"{by_backbone[row.backbone, row.method]:.2f}"
        if recomputed != other:
            recomputed += f" ({other} from {TABLES[row.backbone]})"
        place = f"{row.source}, average of {METHODS[row.method].title}, {BACKBONES[row.backbone]}"
        yield Finding("averages", place, f"{row.average:.1f}", recomputed, verdict, note)
