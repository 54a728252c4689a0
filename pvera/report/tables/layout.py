"""The former table type, of marked cells; `pvera.report.table` replaces it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase

import pandas as pd

from pvera.report.table import (  # noqa: F401
    NOTHING,
    interval,
    minus,
    number,
    p_value,
    percent,
    plain,
    signed,
    thousands,
)
from pvera.study import markdown
from pvera.study.results import write_atomically


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

    def csv(self) -> str:
        """Return `data` as CSV, with six significant digits."""
        return self.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def write(self, folder) -> list[Path]:
        """Write <folder>/<name>.{md,csv} and return the paths."""
        texts = {"md": self.markdown(), "csv": self.csv()}
        paths = [Path(folder) / f"{self.name}.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_atomically(path, text.encode())
        return paths


def _sentences(caption: str) -> tuple[str, str]:
    """Split a caption after its first sentence, at a full stop before what can begin another."""
    first, *rest = re.split(r"(?<=\.)(?<!Eq\.)\s+(?=[A-Z0-9α-ω+%±(])", caption, maxsplit=1)
    return first, *rest


def _escape_stars(text: str) -> str:
    return text.replace("*", r"\*")


def _markdown(cell: Cell) -> str:
    text = _escape_stars(cell.text)
    return {"best": f"**{text}**", "second": f"<ins>{text}</ins>"}.get(cell.mark, text)
