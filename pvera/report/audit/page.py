"""The audit as tables and as a page of Markdown."""

import pandas as pd

from pvera.report.audit.core import CONTRADICTS, OPEN, ROUNDING, UNCHECKED, VERDICTS


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """How many findings of each kind have each verdict."""
    table = pd.crosstab(findings["check"], findings["verdict"])
    table = table.reindex(index=findings["check"].unique(), columns=list(VERDICTS), fill_value=0)
    table.loc["all"] = table.sum()
    return table.rename_axis(index="check", columns=None)


PAGE = """\
# Is the paper consistent with itself?

Every printed number that others determine, recomputed from those;
[the notebook](../../analysis/audit.ipynb) shows how. Rounding is taken in the paper's favour: a printed 71.4
stands for anything from 71.35 to 71.45, and of a star's test the least and the highest p-value are given that
rounding allows.

- *follows*: it is what the other numbers give
- *within rounding*: it is not, but numbers that round to the printed ones can give it
- *undecidable*: numbers that round to the printed ones give it, and others its opposite
- *does not follow*: no numbers that round to the printed ones give it
- *not checkable*: it needs data, or a definition, that the paper does not print

That two printed things disagree does not say which of them is wrong, and several findings can have one
cause. Reasons in the notes are conjectures from patterns; only the authors can know.
"""


def markdown(findings: pd.DataFrame) -> str:
    """The audit as a page: what was checked, and everything that does not simply follow."""
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
    return "\n\n".join(parts) + "\n"


def table(data: pd.DataFrame) -> str:
    """A table in Markdown, without its index."""
    rows = [list(data), [":--"] * len(data.columns), *data.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(_escaped(text) for text in row) + " |" for row in rows)


def _escaped(text: str) -> str:
    for character in "*|_^":
        text = text.replace(character, f"\\{character}")
    return text
