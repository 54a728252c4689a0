"""The audit as tables and as a page of Markdown."""

import pandas as pd

from pvera.report.audit.core import CONTRADICTS, FOLLOWS, OPEN, ROUNDING, UNCHECKED, VERDICTS
from pvera.study.markdown import escape
from pvera.study.markdown import table as markdown_table

PAGE = """\
# Is the paper consistent with itself?

The audit recomputes every printed number that other printed numbers determine;
[the notebook](../../analysis/audit.ipynb) shows how. Rounding is taken in the paper's favour: a printed 71.4
stands for anything from 71.35 to 71.45. For a star's test, the page gives the least and the greatest p-value that
rounding allows.

- *follows*: the other printed numbers give it
- *within rounding*: they do not, but numbers that round to them can
- *undecidable*: some numbers that round to the printed ones give it, others give its opposite
- *does not follow*: no numbers that round to the printed ones give it
- *not checkable*: it needs data, or a definition, that the paper does not print

A finding says that two printed things disagree. It does not say which of them is wrong, and several findings can have
one cause. Reasons in the notes are conjectures from patterns; only the authors can know.
"""


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """Count the findings of each check (rows) by verdict (columns)."""
    table = pd.crosstab(findings["check"], findings["verdict"])
    table = table.reindex(index=findings["check"].unique(), columns=list(VERDICTS), fill_value=0)
    table.loc["all"] = table.sum()
    return table.rename_axis(index="check", columns=None)


def markdown(findings: pd.DataFrame) -> str:
    """Return the audit as a page: the number of findings, then each finding that does not follow, and
    the averages that do."""
    parts = [PAGE.strip(), table(summary(findings).reset_index())]
    titles = {
        CONTRADICTS: "Does not follow",
        ROUNDING: "Differs, but within rounding",
        OPEN: "Undecidable at the printed precision",
        UNCHECKED: "Not checkable from what is printed",
    }
    for verdict, title in titles.items():
        part = findings[findings["verdict"] == verdict].drop(columns="verdict")
        if len(part):
            parts += [f"## {title}", table(part)]
    follow = findings[(findings["check"] == "averages") & (findings["verdict"] == FOLLOWS)]
    if len(follow):
        parts += ["## Averages that follow", table(follow[["place", "printed", "recomputed"]])]
    return "\n\n".join(parts) + "\n"


def table(data: pd.DataFrame) -> str:
    """Return a table in Markdown, without its index."""
    rows = [[escape(str(value)) for value in row] for row in data.astype(str).to_numpy()]
    return markdown_table([escape(str(title)) for title in data], rows)
