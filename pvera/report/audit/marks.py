"""Bold and underlined cells of the tables: the best and the second of their columns?"""

from collections.abc import Iterator

import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report import tables
from pvera.report.audit.core import CONTRADICTS, FOLLOWS, ROUNDING, Finding, titles
from pvera.report.published import Published


def check_marks(paper: Published) -> Iterator[Finding]:
    """Yield the findings on bold (best) and underlined (second) cells, given the printed numbers."""
    values, printed = paper.main_table(), paper.main_table("mark")
    average = paper.averages[paper.averages["source"] != "text"].set_index("method")
    columns = {f"Table 1, {TASKS[d].title}": (values[d], printed[d]) for d in values}
    columns["Table 1, Average"] = (average["average"], average["mark"])
    for task, rows in paper.language.groupby("task", sort=False):
        rows = rows.set_index("method")
        columns[f"Table 5, {task}"] = (rows["score"], rows["mark"])
    for place, (scores, marks) in columns.items():
        expected = pd.Series(tables.marks(scores), scores.index)
        verdict = FOLLOWS if expected.eq(marks).all() else ROUNDING if _breaks_ties(scores, marks) else CONTRADICTS
        note = "marks part equal printed numbers" if verdict == ROUNDING else ""
        yield Finding("bold and underline", place, _described(marks), _described(expected), verdict, note)


def _breaks_ties(scores: pd.Series, marks: pd.Series) -> bool:
    """Return whether unrounded numbers behind equal printed ones could earn these marks."""
    best, second, rest = (scores[marks == mark] for mark in ("best", "second", ""))
    if best.empty or (len(best) == 1) != (len(second) > 0):
        return False
    return best.min() >= scores[marks != "best"].max() and not second.min() < rest.max()


def _described(marks: pd.Series) -> str:
    """Return, for example, "best: PVeRA; second: DoRA and LoRA"."""
    methods = {mark: marks.index[marks == mark] for mark in ("best", "second")}
    return "; ".join(f"{mark}: {titles(keys)}" for mark, keys in methods.items() if len(keys))
