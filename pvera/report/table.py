"""The one table type: frames and a column specification, written as Markdown, CSV and LaTeX."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from string import ascii_lowercase

import pandas as pd

from pvera.files import write_atomically
from pvera.report.text import NOTHING, STAR, decimal, latex_text, signed, title

#: What `marks` returns -> how Markdown shows it.
MARKED = {"best": "**{}**", "second": "<ins>{}</ins>", "": "{}"}
#: In LaTeX the titles of more columns than these are rotated.
UPRIGHT = 8


@dataclass(frozen=True)
class Column:
    """How a column of a frame is shown."""

    #: The title of the column, or a group of columns and the title within it. The key of a method,
    #: data set or backbone is printed as its title.
    title: str | tuple[str, str]
    #: The decimals of its numbers, or a function from a row to its text, which may show several
    #: columns, such as the ends of an interval.
    format: int | Callable[[pd.Series], str]
    #: Whether positive numbers have a sign.
    signed: bool = False
    #: "max" or "min" where the best two are marked.
    best: str = ""

    def cells(self, frame: pd.DataFrame, name: str) -> list[str]:
        """Return the cells of the column `name` in Markdown."""
        if callable(self.format):
            return [self.format(row).replace("*", STAR) for _, row in frame.iterrows()]

        write = signed if self.signed else decimal
        cells = [write(value, self.format) for value in frame[name]]
        if not self.best:
            return cells
        values = frame[name] if self.best == "max" else -frame[name]
        kinds = marks(values, self.format)
        return [MARKED[kind].format(cell) for kind, cell in zip(kinds, cells, strict=True)]


@dataclass(frozen=True)
class Table:
    """A table for readers, and its numbers at full precision."""

    #: The name of its files.
    name: str
    #: What the table shows, in a sentence above it.
    caption: str
    #: A frame, or several by their titles. Its index holds row labels: keys of methods or data
    #: sets, or texts.
    panels: pd.DataFrame | Mapping[str, pd.DataFrame]
    _: KW_ONLY
    #: Column of the frames -> how it is shown; without any, frames hold Markdown. They stand in
    #: this order, in the frames that have the key; where `Column.format` is a function, the key
    #: says no more than that.
    columns: Mapping[str, Column] = field(default_factory=dict)
    #: The rows of the CSV file, by default those of the one frame.
    data: pd.DataFrame | None = None
    #: The runs behind the table, see `caption_source`.
    source: str = ""
    #: Whether the paper has this table, which is then written in LaTeX too.
    has_latex: bool = False
    #: Sentences below the table, which explain it.
    notes: str = ""

    def printed_panels(self) -> dict[str, pd.DataFrame]:
        """Return the panels as they are printed: titles, row labels, and cells in Markdown."""
        printed = {}
        panels = self.panels
        if isinstance(panels, pd.DataFrame):
            panels = {"": panels}
        for i, (heading, frame) in enumerate(panels.items()):
            cells = format_frame(frame, self.columns) if self.columns else frame
            cells = cells.rename(index=title, columns=title).rename_axis(index=None)
            cells = cells.rename_axis([None] * cells.columns.nlevels, axis=1)
            # Panels have letters if there are several.
            letter = f"({ascii_lowercase[i]}) " if len(panels) > 1 else ""
            printed[letter + heading] = cells
        return printed

    def markdown(self, source: bool = True) -> str:
        """Return the caption, the panels and the notes in Markdown.

        Args:
            source: Add the runs behind the table.
        """
        # A star in a caption is a star, no emphasis.
        parts = [f"**{self.caption.replace('*', STAR)}**"]
        for heading, frame in self.printed_panels().items():
            if heading:
                parts.append(f"**{heading}**")
            parts.append(_markdown_panel(frame))
        notes = f"{self.notes} {self.source if source else ''}".strip()
        parts.append(notes.replace("*", STAR))
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self) -> str:
        """Return the table in LaTeX, one float per panel; its first line names packages."""
        parts = ["% needs the packages booktabs and graphicx\n"]
        described = " ".join(filter(None, (self.caption, self.notes, self.source)))
        for heading, frame in self.printed_panels().items():
            style = (
                frame.style.format(latex_text)
                .format_index(latex_text)
                .format_index(latex_text, axis=1)
            )
            if len(frame.columns) > UPRIGHT:
                lowest = frame.columns.nlevels - 1
                # pandas writes this as \rotatebox{90}{title}.
                style.map_index(lambda _: "rotatebox:{90}--rwrap;", axis=1, level=lowest)

            # A heading begins with "(a) " if there are several panels.
            letter = heading[1] if heading.startswith("(") else ""
            panel = style.to_latex(
                column_format="l" + "c" * len(frame.columns),
                multicol_align="c",
                hrules=True,
                environment="table*",
                position_float="centering",
                caption=latex_text(f"{heading}. {described}" if heading else described),
                label=f"tab:{self.name}:{letter}" if letter else f"tab:{self.name}",
            )
            parts.append(panel)
        return "".join(parts)

    def csv(self) -> str:
        """Return `data` as CSV, with six significant digits."""
        data = self.data
        if data is None:
            assert isinstance(self.panels, pd.DataFrame)
            data = self.panels.reset_index()
        return data.to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def write(self, folder: Path) -> None:
        """Write <folder>/<name>.md and .csv, and .tex where the paper has the table."""
        files = {"md": self.markdown(), "csv": self.csv()}
        if self.has_latex:
            files["tex"] = self.latex()
        for suffix, text in files.items():
            write_atomically(Path(folder) / f"{self.name}.{suffix}", text)


def _markdown_panel(frame: pd.DataFrame) -> str:
    header = list(frame.columns)
    rows = [list(row) for row in frame.itertuples()]
    if frame.columns.nlevels > 1:
        # Markdown has one header: it holds the groups, each above its first column.
        groups, titles = zip(*header, strict=True)
        rows.insert(0, ["", *(f"**{name}**" for name in titles)])
        header = ["" if group in groups[:i] else group for i, group in enumerate(groups)]
    return markdown_table(["", *header], rows)


def format_frame(frame: pd.DataFrame, columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return the columns that a frame has, as Markdown under their titles."""
    shown = {name: column for name, column in columns.items() if name in frame}
    cells = {name: column.cells(frame, name) for name, column in shown.items()}
    titles = [column.title for column in shown.values()]
    grouped = isinstance(titles[0], tuple)
    header = pd.MultiIndex.from_tuples(titles) if grouped else titles
    return pd.DataFrame(cells, frame.index).set_axis(header, axis=1)


#: Alignment of a column -> the line under its title.
RULES = {"l": ":--", "c": ":-:"}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table in Markdown, without a line break at its end.

    Args:
        header: The titles of the columns.
        rows: Cells in Markdown: `escape` other text first.
        align: "l" (left) or "c" (centred) per column; by default all but the first are centred.
    """
    rules = [RULES[letter] for letter in align or "l" + "c" * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rules, *rows])


def pivot_text(
    data: pd.DataFrame, rows: str, columns: str, cell: Callable[[pd.Series], str]
) -> pd.DataFrame:
    """Arrange the rows of a tidy frame as a table of texts.

    Args:
        data: A row per cell of the table.
        rows: The column of `data` that says in which row its cell stands.
        columns: The column of `data` that says in which column.
        cell: From a row of `data` to its text.

    Returns:
        The table, its rows and columns in order of appearance; `NOTHING` where `data` has no row.
    """
    written = data.assign(text=[cell(row) for _, row in data.iterrows()])
    cells = written.pivot(index=rows, columns=columns, values="text")
    return cells.reindex(index=data[rows].unique(), columns=data[columns].unique()).fillna(NOTHING)


def marks(values: Iterable[float], decimals: int = 1) -> list[str]:
    """Mark each value "best", "second" or "", as the paper does: those that print alike share one.

    Two best leave no second; NaN has no mark.
    """
    printed = [float(f"{round(value, 9):.{decimals}f}") for value in values]
    ranks = pd.Series(printed, dtype=float).rank(ascending=False, method="min")
    return ranks.map({1: "best", 2: "second"}).fillna("").tolist()
