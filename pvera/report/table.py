"""The one table type: tidy frames and a column specification, written as Markdown, CSV and LaTeX."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.files import write_atomically
from pvera.report.scores import record_of

NOTHING = "–"  # an empty cell
STAR = r"\*"  # in Markdown
MARKED = {"best": "**{}**", "second": "<ins>{}</ins>", "": "{}"}  # the marks of `marks`
UPRIGHT = 8  # columns with upright titles in LaTeX; the titles of more are rotated

#: Column -> its title, its format, and "max" or "min" where the best two are marked. A title may be (group, title). A
#: format is a number of decimals, "+1" for one decimal and a sign, or a function from the row to its text.
Spec = Mapping[str, tuple]


@dataclass(frozen=True)
class Table:
    """A table for readers, and `data`, its numbers at full precision.

    caption: what the table shows; its first sentence stands above. panels: title -> frame; the index holds the row
    labels, as keys of methods or data sets or as texts. spec: the columns that are shown, of the frames that have them;
    without it the frames hold Markdown. data: the CSV file, by default the one panel. source: the runs behind
    the table. in_paper: the paper has this table, so it is written in LaTeX too.
    """

    name: str
    caption: str
    panels: Mapping[str, pd.DataFrame]
    spec: Spec = field(default_factory=dict)
    data: pd.DataFrame | None = None
    source: str = ""
    in_paper: bool = False

    def texts(self) -> dict[str, pd.DataFrame]:
        """Return the panels as they are printed: titles, row labels, column titles, and cells in Markdown."""
        letters = [f"({letter}) " for letter in ascii_lowercase] if len(self.panels) > 1 else [""]
        printed = {}
        for letter, (heading, frame) in zip(letters, self.panels.items(), strict=False):
            cells = texts(frame, self.spec) if self.spec else frame
            cells = cells.rename_axis(index=None).rename_axis(
                [None] * cells.columns.nlevels, axis=1
            )
            printed[letter + heading] = cells.rename(index=title, columns=title)
        return printed

    def markdown(self, source: bool = True) -> str:
        """Return the caption's first sentence, the panels in Markdown, then the rest of the caption.

        source: with the runs behind the table.
        """
        first, stop, rest = self.caption.replace("*", r"\*").partition(". ")
        parts = [f"**{first}{stop.strip()}**"] if first else []
        for heading, frame in self.texts().items():
            header, rows = list(frame.columns), [list(row) for row in frame.itertuples()]
            if (
                frame.columns.nlevels > 1
            ):  # Markdown has one header: the groups, each above its first column
                groups, titles = zip(*header, strict=True)
                rows.insert(0, ["", *map("**{}**".format, titles)])
                header = ["" if group in groups[:i] else group for i, group in enumerate(groups)]
            parts += [f"**{heading}**"] if heading else []
            parts.append(markdown_table(["", *header], rows, "l" + "c" * len(header)))
        notes = " ".join(filter(None, [rest, self.source.replace("*", r"\*") if source else ""]))
        return "\n\n".join(filter(None, [*parts, notes])) + "\n"

    def latex(self) -> str:
        """Return the table in LaTeX, one float per panel, with the packages that it needs in its first line."""
        parts = ["% needs the packages booktabs and graphicx\n"]
        for heading, frame in self.texts().items():
            style = frame.style.format(_latex).format_index(_latex).format_index(_latex, axis=1)
            if len(frame.columns) > UPRIGHT:
                style.map_index(
                    lambda _: "rotatebox:{90}--rwrap;", axis=1, level=frame.columns.nlevels - 1
                )
            parts.append(
                style.to_latex(
                    column_format="l" + "c" * len(frame.columns),
                    multicol_align="c",
                    hrules=True,
                    environment="table*",
                    position_float="centering",
                    caption=_latex(
                        ". ".join(filter(None, [heading, f"{self.caption} {self.source}".strip()]))
                    ),
                    label=":".join(filter(None, ["tab", self.name, heading[1:2]])),
                )
            )
        return "".join(parts)

    def csv(self) -> str:
        """Return `data` as CSV, with six significant digits."""
        data = self.data
        if data is None:
            (panel,) = self.panels.values()
            data = panel.reset_index()
        return data.to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def write(self, folder) -> None:
        """Write <folder>/<name>.md and .csv, and .tex where the paper has the table."""
        files = {"md": self.markdown(), "csv": self.csv()} | (
            {"tex": self.latex()} if self.in_paper else {}
        )
        for ending, text in files.items():
            write_atomically(Path(folder) / f"{self.name}.{ending}", text)


def update_csv(file: Path, rows: pd.DataFrame, key: Sequence[str], **options) -> pd.DataFrame:
    """Write rows to a CSV file in place of those with the same `key`; others stay. Return them all.

    options: of `pandas.DataFrame.to_csv`.
    """
    if file.exists():
        rows = pd.concat([pd.read_csv(file), rows]).drop_duplicates(key, keep="last")
    write_atomically(file, rows.to_csv(index=False, **options))
    return rows


def texts(frame: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the columns of `spec` that a frame has, as Markdown under their titles."""
    keys = [key for key in spec if key in frame]
    written = {}
    for key in keys:
        _, form, *best = spec[key]
        if callable(form):
            cells = [form(row) for _, row in frame.iterrows()]
        else:
            write = signed if str(form).startswith("+") else plain
            cells = [write(value, int(form)) for value in frame[key]]
        cells = [cell.replace("*", r"\*") for cell in cells]
        if best:
            kinds = marks(frame[key] if best == ["max"] else -frame[key], int(form))
            cells = [MARKED[kind].format(cell) for kind, cell in zip(kinds, cells, strict=True)]
        written[key] = cells
    titles = [spec[key][0] for key in keys]
    grouped = isinstance(titles[0], tuple)
    return pd.DataFrame(written, frame.index).set_axis(
        pd.MultiIndex.from_tuples(titles) if grouped else titles, axis=1
    )


RULES = {"l": ":--", "c": ":-:", "r": "--:"}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table of texts in Markdown, without a line break at its end.

    align: "l", "c" or "r" per column; all columns are left-aligned where it is empty. Cells are Markdown: `escape`
    plain text first.
    """
    lines = [header, [RULES[letter] for letter in align or "l" * len(header)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape(text: str) -> str:
    """Return plain text with Markdown's special characters escaped."""
    return re.sub(r"([*|_^])", r"\\\1", text)


def pivot_text(
    data: pd.DataFrame, rows: str, columns: str, cell: Callable[[pd.Series], str]
) -> pd.DataFrame:
    """Return the text `cell` of each row of tidy data at its values of `rows` and `columns`, in order of appearance."""
    written = data.assign(text=[cell(row) for _, row in data.iterrows()])
    cells = written.pivot(index=rows, columns=columns, values="text")
    return cells.reindex(index=data[rows].unique(), columns=data[columns].unique()).fillna(NOTHING)


def marks(values: Iterable[float], decimals: int = 1) -> list[str]:
    """Mark each value "best", "second" or "", as the paper does: values that print alike share a mark.

    Two best leave no second; NaN has no mark.
    """
    printed = pd.Series([float(f"{round(value, 9):.{decimals}f}") for value in values], dtype=float)
    places = printed.rank(ascending=False, method="min")
    return places.map({1: "best", 2: "second"}).fillna("").tolist()


# Text

BACKBONES = {
    "tiny": "ViT-Ti/8 (32 px)",
    "dinov2_s": "DINOv2 ViT-S/14",
    "dinov2_b": "DINOv2 ViT-B/14",
    "dinov2_l": "DINOv2 ViT-L/14",
    "dinov3_s": "DINOv3 ViT-S/16",
    "dinov3_b": "DINOv3 ViT-B/16",
    "dinov3_l": "DINOv3 ViT-L/16",
    "minilm": "MiniLM-L6",
    "deberta_v3_base": "DeBERTa-V3-base",
    "bert_base": "BERT-base",
    "roberta_base": "RoBERTa-base",
}


def title(key) -> str:
    """Return the title of a method, data set or backbone, or the key as text where it is none of them."""
    named = METHODS.get(key) or TASKS.get(key)
    return named.title if named else BACKBONES.get(key, str(key))


def origin(results: Iterable, datasets: Iterable[str] = ()) -> str:
    """Name for a caption the profile, protocol, seeds and data sets that its numbers come from.

    results: records of one backbone, or tuples that begin with one.
    """
    records = list(map(record_of, results))
    seeds, first = sorted({record["seed"] for record in records}), records[0]
    text = f"Profile {first['profile']}, {first['protocol']} protocol, "
    text += f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    names = ", ".join(map(title, datasets))
    return f"{text}; data sets: {names}" if names else text


def listed(values: pd.Series, form: str) -> str:
    """List values by their keys' titles: "LoRA 1.5, VeRA 2.0"."""
    return ", ".join(f"{title(key)} {form.format(value)}" for key, value in values.items())


def plain(value: float, digits: int) -> str:
    """Format a number with a true minus sign; what prints as zero has none, and NaN is an empty cell."""
    if np.isnan(value):
        return NOTHING
    text = f"{round(value, 9):.{digits}f}"  # sums in another order, equal to the last bits, print the same
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")


def thousands(value: float) -> str:
    """Format a count as the paper does: 30 720."""
    return NOTHING if np.isnan(value) else f"{value:,.0f}".replace(",", " ")


def signed(value: float, digits: int) -> str:
    """Format a number with its sign; what prints as zero has none."""
    text = plain(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def interval(value: float | None, low: float, high: float, digits: int = 1) -> str:
    """Format `value [low, high]`, or the brackets alone."""
    bounds = "" if np.isnan([low, high]).any() else f"[{plain(low, digits)}, {plain(high, digits)}]"
    return (
        " ".join(filter(None, ["" if value is None else plain(value, digits), bounds])) or NOTHING
    )


RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"


def number(value) -> str:
    """Format a grid value as the paper does: 64, and powers of ten as 10⁻³; their small multiples as 3·10⁻³."""
    if isinstance(value, float) and value > 0:
        exponent = int(np.floor(np.log10(value) + 1e-9))
        digit = round(value / 10.0**exponent)
        if np.isclose(value, digit * 10.0**exponent) and (
            exponent < -1 or (exponent > 1 and digit == 1)
        ):
            power = f"10{str(exponent).translate(str.maketrans('0123456789-', RAISED))}"
            return power if digit == 1 else f"{digit}·{power}"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#"}
    | {
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "×": r"$\times$",
        "β": r"$\beta$",
        "τ": r"$\tau$",
        "<": "$<$",
        "*": "$^*$",
    }
)


def _latex(text: str) -> str:
    """Return Markdown as LaTeX: marks, code, stars, signs and superscripts."""
    text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", text)
    text = re.sub("<ins>(.*?)</ins>", r"\\underline{\1}", text)
    text = re.sub("`(.*?)`", r"\\texttt{\1}", text).replace(r"\*", "*").translate(LATEX)
    lower = str.maketrans(RAISED, "0123456789-")
    return re.sub(f"[{RAISED}]+", lambda digits: f"$^{{{digits[0].translate(lower)}}}$", text)
