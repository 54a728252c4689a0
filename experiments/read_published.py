"""Read the paper's published numbers from its LaTeX source into tidy CSV files.

    python experiments/read_published.py --source pvera.tex

Numbers are written as printed, so trailing zeros show their precision. The script writes only if it finds every table
and every sentence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from options import ROOT, Parser

from pvera.adapters import PAPER_METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import COLUMNS
from pvera.report.tables import PANELS
from pvera.study.results import write_atomically
from pvera.study.script import run

BACKBONES = {
    "dinov2_s": "tab:detailed_results_small",
    "dinov2_b": "tab:detailed_results",
    "dinov2_l": "tab:detailed_results_large",
}
MARKS = {"textbf": "best", "underline": "second"}

#: Sentences that the audit compares with the tables; each named group is a quote. The source is searched with single
#: blanks, with the index {q, v} as qv, and without \boldsymbol.
QUOTES = (
    r"consisting of (?P<datasets>\d+) datasets across (?P<categories>\w+) categories",
    r"compare the performance with (?P<other_adapters>\w+) other adapters",
    r"compare PVeRA with (?P<other_adapters_without_linear>\w+) other adapters and linear probing",
    r"DoRA scoring best performance across (?P<best_of_dora>\w+) datasets",
    r"PVeRA shows the (?P<stability>most stable) performance with the (?P<average>highest) average "
    r"performance",
    r"\((?P<natural>\w+) natural datasets, (?P<specialized>\w+) specialized datasets, "
    r"and (?P<structured>\w+) structured datasets\)",
    r"performance on the natural images .{1,200} is quite high, "
    r"sometimes even (?P<linear_natural>higher) than some adapters, especially those .{1,80} "
    r"\(Bottleneck and AdaptFormer\)",
    r"linear probing performance of DINOv2 is (?P<linear_shift>dropped) when there is a larger "
    r"distribution shift",
    r"remaining (?P<size>orders of magnitude smaller) than most other adapters",
    r"increase the FLOPS of the base model by \$(?P<flops_pvera>[\d.]+)\\%\$, "
    r"compared to \$(?P<flops_vera>[\d.]+)\\%\$ for VeRA",
    r"all LoRA-based methods \(LoRA, VeRA, PVeRA\) are (?P<calibration>better calibrated) than other "
    r"adapters",
    r"For wrong predictions there is a (?P<uncertainty>higher standard deviation) in the predicted softmax",
    r"narrower confidence intervals than those incorrectly classified "
    r"\(\$(?P<width_correct>[\d.]+)\$ vs. \$(?P<width_incorrect>[\d.]+)\$\)",
    r"of adaptation are (?P<out_of_distribution>significantly lower) for in distribution than "
    r"out-of-distribution, which is not the case for VeRA",
    r"run the ablations across (?P<ablation_count>\w+) randomly chosen datasets, "
    r"two from each dataset category \((?P<ablation_datasets>[^)]+)\)",
    r"a rank of \$r=(?P<best_rank>\d+)\$, even though only slighly better than "
    r"\$r\\in\\\{(?P<close_ranks>[^}]*)\\\}\$, gives the best validation loss",
    r"best validation loss is obtained when applying PVeRA on the (?P<best_targets>\w+ and \w+) components",
    r"Experiments ran for PVeRA on (?P<rank_table_targets>\$\w\$ and \$\w\$)",
    r"Experiments ran with \$r=(?P<position_table_rank>\d+)\$",
    r"We limit our grid search to the (?P<grid_main>main hyperparameter) \((?P<grid_searched>[^)]+)\), "
    r"and to (?P<grid_values>\w+) values",
    r"defined per dataset using a (?P<beta_search>grid search) on the validation loss",
    r"percentage of the (?P<configurations>\d+) configurations \((?P<grid_datasets>\d+) datasets across "
    r"(?P<grid_seeds>\w+) seeds\)",
    r"significantly lower \(\$p=(?P<level>[\d.]+)\$\) than the accuracy of PVeRA",
    r"with the second best performance being for (?P<second_s>[\w ]+) at",
    r"and the second best \((?P<second_l>\w+) with",
    r"Conclusions are similar than for a ViT-B/14, with (?P<gap_s>larger) gaps in performance",
    r"gap between the performance of PVeRA .{1,80} and the second best .{1,60} is (?P<gap_l>smaller)",
    r"rank of \$(?P<lora_rank>\d+)\$ for LoRA, "
    r"and learning rate of \$(?P<vera_learning_rate>10\^\{-\d\})\$ for VeRA",
    r"sd\\_incorrect = stds\[acc \$(?P<algorithm_incorrect>\S+)\$ 0.5\]",
    r"sd\\_correct = stds\[acc \$(?P<algorithm_correct>\S+)\$ 0.5\]",
    r"z_qv = \\epsilon \\odot (?P<equation_std>\\sigma)_qv \+ \\mu_qv",
    r"z \\gets (?P<algorithm_training_alpha>\\alpha) \\cdot \(\\mu \+ "
    r"\\epsilon \\odot (?P<algorithm_std>\\exp \(\\sigma\^2\))\)",
    r"x_\\text\{adapted\} \\gets (?P<algorithm_output>\\alpha \\cdot z \\odot b)\$",
    r"(?P<equation_output>\\alpha \( ?z_qv B_qv \\odot b_qv\))",
    r"W_qv \\leftarrow (?P<equation_merge>W_qv \+ \\alpha A_\{\\mu\\\{q, v\\\}\} B_qv \\odot b_qv)",
    r"x_\{\\\{q, k, v\\\}\} = (?P<equation_projection>x W\^T)_",
    r"B \\in \\mathbb R\^\{(?P<shape_b_lora>r\\times d)\}",
    r"B_qv \\in \\mathbb R\^\{(?P<shape_b_pvera>d\\times r)\}",
)
#: Averages in the text, of the tables that print none; the groups are backbone and methods.
AVERAGES = (
    r"PVeRA's performance being \$(?P<dinov2_s__pvera>[\d.]+)\\%\$ with the second best performance being "
    r"for LoRA and DoRA at \$(?P<dinov2_s__lora__dora>[\d.]+)\\%\$ and VeRA average performance at "
    r"\$(?P<dinov2_s__vera>[\d.]+)\\%\$",
    r"the performance of PVeRA \(\$(?P<dinov2_l__pvera>[\d.]+)\\%\$\) and the second best "
    r"\(LoRA with \$(?P<dinov2_l__lora>[\d.]+)\\%\$\)",
)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--source", type=Path, required=True, help="the paper's LaTeX file")
    parser.add_argument("--out", type=Path, default=ROOT / "results/published", help="folder of the CSV files")
    options = parser.parse_args()
    try:
        source = options.source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{options.source} cannot be read: {str(error).splitlines()[0]}") from None
    try:
        tables = read(source)
    except InputError as error:
        raise InputError(f"{options.source}: {error}") from None
    for name, table in tables.items():
        text = table.to_csv(index=False, lineterminator="\n")
        write_atomically(options.out / f"{name}.csv", text.encode())
        print(f"{options.out / name}.csv: {len(table)} rows")


def read(source: str) -> dict[str, pd.DataFrame]:
    """Return a table of `published.COLUMNS` per file name, all numbers as text."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    tabulars = environments(source)

    def tabular(label: str) -> list["Tabular"]:
        if label not in tabulars:
            raise InputError(f"there is no table {label}")
        return tabulars[label]

    main_rows, averages = main_table(tabular("tab:main")[0])
    detailed = [(backbone, *row) for backbone, label in BACKBONES.items() for row in detailed_table(tabular(label)[0])]
    for *groups, value, _ in quotes(source, AVERAGES):
        backbone, *methods = groups[0].split("__")
        averages += [(backbone, method, value, "", "text") for method in methods]
    rows = {
        "main": main_rows,
        "averages": averages,
        "detailed": detailed,
        "grid": [row for panel in tabular("tab:grid_search") for row in grid_panel(panel)],
        "rank": rank_table(tabular("tab:rank_ablation")[0]),
        "position": position_table(tabular("tab:position_ablation")[0]),
        "language": language_table(tabular("tab:nlp_results")[0]),
        "quotes": quotes(source, QUOTES),
    }
    return {name: pd.DataFrame(rows[name], columns=columns) for name, columns in COLUMNS.items()}


# LaTeX


@dataclass
class Cell:
    """A cell: text without LaTeX; mark "best" (bold), "second" (underlined) or ""; dot, the colour of a dot."""

    text: str
    mark: str = ""
    dot: str = ""


@dataclass
class Tabular:
    """One tabular: its rows of cells, and the caption of its table or subtable."""

    label: str
    caption: str = ""
    rows: list[list[Cell]] = field(default_factory=list)

    def columns(self) -> tuple[list[Cell], list[list[Cell]]]:
        """Return the header, and the rows below it. InputError for a row of another length."""
        header, *rows = self.rows
        for row in rows:
            if len(row) != len(header):
                raise InputError(
                    f"table {self.label}: row {row[0].text!r} has {len(row)} cells, its header {len(header)}"
                )
        return header, rows


def environments(source: str) -> dict[str, list[Tabular]]:
    """Return the tabulars of each labelled table environment, by label."""
    tabulars_of = {}
    for match in re.finditer(r"\\begin\{(table\*?)\}(.*?)\\end\{\1\}", source, re.DOTALL):
        label = re.search(r"\\label\{([^}]*)\}", match[2])
        if not label:
            continue
        tabulars = tabulars_of[label[1]] = []
        for body in re.finditer(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", match[2], re.DOTALL):
            _, start = argument(body[1], 0)
            caption = re.compile(r"\\caption\s*").search(match[2], body.end())
            title = argument(match[2], caption.end())[0] if caption else ""
            tabulars.append(Tabular(label[1], plain(title).text, list(rows(body[1][start:]))))
        if not tabulars or not all(t.rows for t in tabulars):
            raise InputError(f"table {label[1]} is empty")
    return tabulars_of


def rows(body: str) -> Iterator[list[Cell]]:
    """Yield the rows of a tabular's body; a \\multicolumn counts as the columns that it spans."""
    body = re.sub(r"\\(top|mid|bottom)rule(\[[^\]]*\])?|\\hline", "", body)
    body = re.sub(r"\\(cmidrule|cline)(\([^)]*\))?\{[^}]*\}", "", body)
    body = re.sub(r"\\(rowcolor|cellcolor)(\[[^\]]*\])?\{[^}]*\}(\[[^\]]*\])*", "", body)
    for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", body):
        cells = []
        for text in re.split(r"(?<!\\)&", row):
            span = re.match(r"\s*\\multicolumn\s*", text)
            count = 1
            if span:
                number, end = argument(text, span.end())
                count, (_, end) = int(number), argument(text, end)
                text = argument(text, end)[0] + text[argument(text, end)[1] :]
            cells += [plain(text)] + [Cell("")] * (count - 1)
        if any(cell.text for cell in cells):
            yield cells


def argument(text: str, start: int) -> tuple[str, int]:
    """Return the braced argument at `start`, after blanks, and its end."""
    opening = re.compile(r"\s*\{").match(text, start)
    if not opening:
        raise InputError(f"expected '{{' before {text[start : start + 30].strip()!r}")
    depth = 1
    for brace in re.compile(r"(?<!\\)[{}]").finditer(text, opening.end()):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[opening.end() : brace.start()], brace.end()
    raise InputError(f"unbalanced braces after {text[start : start + 30].strip()!r}")


#: Commands with their number of arguments; only the last argument is text.
WRAPPERS = {"textbf": 1, "underline": 1, "text": 1, "makecell": 1, "rotatebox": 2, "textcolor": 2, "multirow": 3}
SYMBOLS = {
    r"\pm": "±",
    r"\checkmark": "✓",
    r"\times": "×",
    r"\in": "∈",
    r"\leq": "≤",
    r"\odot": "⊙",
    r"\cdot": "·",
    r"\gets": "←",
    r"\leftarrow": "←",
    r"\exp": "exp",
    r"\mathbb": "",
    r"\alpha": "α",
    r"\epsilon": "ε",
    r"\mu": "μ",
    r"\sigma": "σ",
    r"\%": "%",
    r"\#": "#",
    r"\&": "&",
    r"\_": "_",
    r"\{": "{",
    r"\}": "}",
}


def plain(text: str) -> Cell:
    """Return a cell or sentence without LaTeX and thin spaces, with its mark and dot as fields."""
    mark = dot = ""
    while match := re.search(rf"\\({'|'.join(WRAPPERS)}|coloreddot)\s*(?:\[[^\]]*\])?(?=\s*\{{)", text):
        name, end = match[1], match.end()
        for _ in range(WRAPPERS.get(name, 1)):
            content, end = argument(text, end)
        if name == "coloreddot":
            dot, content = content, ""
        mark = mark or MARKS.get(name, "")
        text = text[: match.start()] + content + text[end:]
    text = re.sub(r"\\[:;,! ]", " ", text).replace("~", " ")
    text = re.sub(r"\$\^\{?(\*|\d)\}?\$", r"\1", text)  # a star, and (IA)³
    text = re.sub(r"(?<!\\)\$", "", text)
    for command, symbol in SYMBOLS.items():
        text = re.sub(re.escape(command) + (r"(?![a-zA-Z])" if command[1].isalpha() else ""), symbol, text)
    return Cell(" ".join(text.split()), mark, dot)


# The paper's tables


def main_table(table: Tabular) -> tuple[list[tuple], list[tuple]]:
    """Return rows for "main" and for "averages"."""
    header, rows = table.columns()
    accuracies, averages = [], []
    for label, *cells in rows:
        for title, cell in zip(header[1:], cells, strict=True):
            row = (number(table, cell.text), cell.mark)
            if title.text == "Average":
                averages.append(("dinov2_b", method(table, label), *row, "Table 1"))
            else:
                accuracies.append((method(table, label), dataset(table, title), title.dot, *row))
    return accuracies, averages


def detailed_table(table: Tabular) -> Iterator[tuple]:
    header, rows = table.columns()
    for label, *cells in rows:
        for title, cell in zip(header[1:], cells, strict=True):
            match = re.fullmatch(r"([\d.]+)(\*?)±([\d.]+)", cell.text.replace(" ", ""))
            if not match:
                raise InputError(f"table {table.label}: {cell.text!r} is no accuracy ± standard deviation")
            values = (number(table, match[1]), number(table, match[3]), bool(match[2]))
            yield method(table, title), dataset(table, label), label.dot, *values


def grid_panel(table: Tabular) -> Iterator[tuple]:
    keys = {title: key for key, (title, _) in PANELS.items()}
    if table.caption not in keys:
        raise InputError(f"table {table.label}: unknown hyperparameter {table.caption!r}")
    header, rows = table.columns()
    for label, *cells in rows:
        for title, cell in zip(header[1:], cells, strict=True):
            value = power(title.text)
            yield method(table, label), keys[table.caption], value, number(table, cell.text.removesuffix("%"))


def rank_table(table: Tabular) -> list[tuple]:
    lines = {cells[0].text: [number(table, cell.text) for cell in cells[1:]] for cells in table.columns()[1]}
    lines["Rank"] = [number(table, cell.text) for cell in table.rows[0][1:]]
    return list(zip(*(line(table, lines, name) for name in ("Rank", "Loss", "# Parameters")), strict=True))


def position_table(table: Tabular) -> Iterator[tuple]:
    header, rows = table.columns()
    names = [cell.text for cell in header]
    for cells in rows:
        by_name = dict(zip(names, (cell.text for cell in cells), strict=True))
        targets = "".join(name.lower() for name in "QKV" if line(table, by_name, name) == "✓")
        yield targets, *(number(table, line(table, by_name, name)) for name in ("Loss", "# Parameters"))


def language_table(table: Tabular) -> Iterator[tuple]:
    header, rows = table.columns()
    for label, *cells in rows:
        for title, cell in zip(header[1:], cells, strict=True):
            text = cell.text.removesuffix("*")
            yield method(table, label), title.text, number(table, text), cell.text.endswith("*"), cell.mark


def quotes(source: str, patterns: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Return (name, value, sentence) of each named group of the patterns; number words become numbers."""
    source = re.sub(r"\\boldsymbol(?: |\{([^{}]*)\}|)", r"\1", " ".join(source.split()))
    source = source.replace(r"_{\{q, v\}}", "_qv")
    values = []
    for pattern in patterns:
        match = re.search(pattern, source)
        if not match:
            names = re.findall(r"\?P<(\w+)>", pattern)
            raise InputError(f"there is no sentence for {', '.join(names)}")
        for name, value in match.groupdict().items():
            value = str(WORDS.index(value)) if value in WORDS else power(plain(value).text)
            values.append((name, value, plain(match[0]).text))
    return values


WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def power(text: str) -> str:
    """Return 10^{-3} as 0.001, and any other text unchanged."""
    match = re.fullmatch(r"10\^\{?(-?\d+)\}?", text)
    return f"{10.0 ** int(match[1]):g}" if match else text


def line(table: Tabular, lines: dict, name: str):
    if name not in lines:
        raise InputError(f"table {table.label} has no {name!r}")
    return lines[name]


def number(table: Tabular, text: str) -> str:
    """Return the digits of a number as printed, without blanks between thousands."""
    digits = text.replace(" ", "")
    if not re.fullmatch(r"\d+(\.\d+)?", digits):
        raise InputError(f"table {table.label}: {text!r} is no number")
    return digits


def method(table: Tabular, cell: Cell) -> str:
    key = re.sub(r"\W", "", cell.text).lower()
    if key not in PAPER_METHODS:
        raise InputError(f"table {table.label}: unknown method {cell.text!r}")
    return key


def dataset(table: Tabular, cell: Cell) -> str:
    names = [name for name, task in TASKS.items() if task.title == cell.text and task.suite == "vtab"]
    if not names:
        raise InputError(f"table {table.label}: unknown data set {cell.text!r}")
    return names[0]


if __name__ == "__main__":
    run(main)
