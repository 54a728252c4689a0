"""The one table type: panels of marked cells, written as Markdown and LaTeX, and its numbers as CSV."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pandas as pd

from pvera.study import markdown
from pvera.study.results import write_atomically

NOTHING = "–"  # an empty cell


@dataclass(frozen=True)
class Cell:
    """The text of one cell, and how it is marked."""

    text: str
    mark: str = ""  # "best": bold; "second": underlined


@dataclass(frozen=True)
class Row:
    """A labelled row of cells."""

    label: str
    cells: tuple[Cell, ...]
    rule: bool = False  # a line above it


@dataclass(frozen=True)
class Panel:
    """A titled grid of rows under one header.

    groups: empty, or a title for each column; equal titles of neighbours stand once, above the header.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    groups: tuple[str, ...] = ()

    def spans(self) -> list[tuple[str, int]]:
        """Return each title of `groups` once, with its number of columns."""
        return [(title, len(list(columns))) for title, columns in groupby(self.groups)]


def lettered(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """Put (a), (b), ... before the titles of several panels."""
    if len(panels) == 1:
        return tuple(panels)
    return tuple(
        replace(panel, title=f"({letter}) {panel.title}")
        for letter, panel in zip(ascii_lowercase, panels, strict=False)
    )


@dataclass(frozen=True)
class Table:
    """A table for readers, and `data`, its numbers at full precision.

    caption: what the table shows. about: the runs behind it.
    """

    name: str
    caption: str
    about: str
    panels: tuple[Panel, ...]
    data: pd.DataFrame
    upright: bool = True  # False: column titles are turned by 90 degrees in LaTeX

    def markdown(self, about: bool = True) -> str:
        """Return the caption's first sentence, the panels in Markdown, then the rest of the caption.

        about: with the runs behind the table.
        """
        title, *rest = _sentences(self.caption)
        parts = [f"**{_escape_stars(title)}**"] if title else []
        for panel in self.panels:
            rows = [[row.label, *map(_markdown, row.cells)] for row in panel.rows]
            header = ["", *panel.header]
            if panel.groups:  # Markdown has one header: the categories, each above its first column
                rows.insert(0, ["", *(f"**{title}**" for title in panel.header)])
                header = ["", *(cell for title, span in panel.spans() for cell in (title, *[""] * (span - 1)))]
            parts.append(markdown.table(header, rows, "l" + "c" * len(panel.header)))
            if panel.title:
                parts[-1] = f"**{panel.title}**\n\n{parts[-1]}"
        notes = " ".join(filter(None, [*rest, self.about if about else ""]))
        return "\n\n".join([*parts, *filter(None, [_escape_stars(notes)])]) + "\n"

    def latex(self) -> str:
        """Return the table in LaTeX, with the packages that it needs in its first line."""
        lines = ["% needs the packages booktabs, adjustbox and graphicx", r"\begin{table*}", r"\centering"]
        lines += [
            rf"\caption{{{_latex(f'{self.caption} {self.about}'.strip())}}}",
            rf"\label{{tab:{self.name}}}",
        ]
        for panel in self.panels:
            header = [_latex(title) for title in panel.header]
            if not self.upright:
                header = [rf"\rotatebox[origin=l]{{90}}{{{title}}}" for title in header]
            if panel.title:
                lines.append(rf"\par\medskip {_latex(panel.title)}\par\smallskip")
            lines += [
                r"\begin{adjustbox}{max width=\textwidth}",
                rf"\begin{{tabular}}{{l{'c' * len(header)}}}",
                r"\toprule",
                *_latex_groups(panel),
                " & ".join(["", *header]) + r" \\",
                r"\midrule",
            ]
            for row in panel.rows:
                cells = [_latex_cell(cell) for cell in row.cells]
                lines += [r"\midrule"] * row.rule + [" & ".join([_latex(row.label), *cells]) + r" \\"]
            lines += [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}"]
        lines += [
            r"\end{table*}",
        ]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Return `data` as CSV, with six significant digits."""
        return self.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def write(self, folder) -> list[Path]:
        """Write <folder>/<name>.{md,tex,csv} and return the paths."""
        texts = {"md": self.markdown(), "tex": self.latex(), "csv": self.csv()}
        paths = [Path(folder) / f"{self.name}.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_atomically(path, text.encode())
        return paths


# Text


def plain(value: float, digits: int) -> str:
    """Format a number with a true minus sign; what prints as zero has none, and NaN is an empty cell."""
    if np.isnan(value):
        return NOTHING
    text = f"{round(value, 9):.{digits}f}"  # sums in another order, equal to the last bits, print the same
    return minus(text) if text.strip("-0.") else text.lstrip("-")


def percent(value: float) -> str:
    """Format a percentage with one decimal."""
    return plain(value, 1)


def thousands(value: float) -> str:
    """Format a count as the paper does: 30 720."""
    return NOTHING if np.isnan(value) else f"{value:,.0f}".replace(",", " ")


def signed(value: float, digits: int) -> str:
    """Format a number with its sign; what prints as zero has none."""
    if np.isnan(value):
        return NOTHING
    text = plain(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def interval(value: float | None, low: float, high: float, digits: int = 1) -> str:
    """Format `value [low, high]`, or the brackets alone."""
    if np.isnan([low, high]).any():
        return NOTHING if value is None else plain(value, digits)
    bounds = f"[{low:.{digits}f}, {high:.{digits}f}]"
    return minus(bounds if value is None else f"{value:.{digits}f} {bounds}")


def p_value(value: float, digits: int = 3) -> str:
    """Format with fixed decimals, or as "< 0.001"."""
    least = 10.0**-digits
    return f"< {least:.{digits}f}" if value < least else plain(value, digits)


def minus(text: str) -> str:
    """Replace hyphens by true minus signs."""
    return text.replace("-", "−")


SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value) -> str:
    """Format a grid value as the paper does: 64, and powers of ten as 10⁻³; their small multiples as 3·10⁻³."""
    if isinstance(value, float) and value > 0:
        exponent = int(np.floor(np.log10(value) + 1e-9))
        digit = round(value / 10.0**exponent)
        if np.isclose(value, digit * 10.0**exponent) and (exponent < -1 or (exponent > 1 and digit == 1)):
            return f"{digit}·" * (digit > 1) + f"10{str(exponent).translate(SUPERSCRIPTS)}"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _sentences(caption: str) -> tuple[str, str]:
    """Split a caption after its first sentence, at a full stop before what can begin another."""
    first, *rest = re.split(r"(?<=\.)(?<!Eq\.)\s+(?=[A-Z0-9α-ω+%±(])", caption, maxsplit=1)
    return first, *rest


def _escape_stars(text: str) -> str:
    return text.replace("*", r"\*")


def _markdown(cell: Cell) -> str:
    text = _escape_stars(cell.text)
    return {"best": f"**{text}**", "second": f"<ins>{text}</ins>"}.get(cell.mark, text)


def _latex_groups(panel: Panel) -> list[str]:
    """Return the line of a panel's column groups, and the rules under it; empty without groups."""
    cells, rules, column = [""], [], 2
    for title, span in panel.spans():
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{_latex(title)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + span - 1}}}")
        column += span
    return [" & ".join(cells) + r" \\", " ".join(rules)] if panel.groups else []


def _latex_cell(cell: Cell) -> str:
    text = _latex(cell.text)
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)


LATEX = str.maketrans(
    {c: f"\\{c}" for c in "%_&#"}
    | {
        "±": r"$\pm$",
        "*": "$^*$",
        "–": "--",
        "−": "$-$",
        "×": r"$\times$",
        "β": r"$\beta$",
        "τ": r"$\tau$",
        "√": r"$\surd$",
        "<": "$<$",
    }
)


def _latex(text: str) -> str:
    plain = {raised: chr(digit) for digit, raised in SUPERSCRIPTS.items()}
    raised = "".join(map(chr, plain))
    text = re.sub("`(.*?)`", r"\\texttt{\1}", text.translate(LATEX))
    return re.sub(f"[{raised}]+", lambda m: f"$^{{{m[0].translate(plain)}}}$", text)
