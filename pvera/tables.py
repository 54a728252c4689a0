"""The benchmark's tables: what stands in them is computed first, then rendered as Markdown, LaTeX and CSV.

`main` is the paper's Table 1, `detailed` its appendix with standard deviations and stars, `grid` its table of
chosen hyperparameters, `claims` its statements about them held against these results.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd

from . import results
from .adapters import METHODS
from .data import TASKS
from .results import Scores, write_atomically
from .statistics import LEVEL, binomial_p_value, mean_and_std

REFERENCE = "pvera"
NOTHING = "–"  # an empty cell

#: Hyperparameter of a grid -> panel of the grid table, and whether its values descend there. Others follow
#: these under their own names.
PANELS = {
    "rank": ("Rank", False),
    "ratio": ("Reduction ratio", True),
    "learning_rate": ("Learning rate", True),
    "beta": ("KL weight β", True),
}


# Computing


def accuracies(scores: Scores) -> pd.DataFrame:
    """Mean over seeds in percent: rows methods; columns data sets, "average", then the categories there are.

    An average is NaN where a data set of it has no run at all, for then it would average something else.
    """
    per_dataset = 100 * mean_and_std(scores.values, axis=1)[0]  # (methods, data sets)
    columns = dict(zip(scores.datasets, per_dataset.T))
    columns |= {name: per_dataset[:, members].mean(1) for name, members in groups(scores).items()}
    return pd.DataFrame(columns, index=pd.Index(scores.methods, name="method"))


def groups(scores: Scores) -> dict[str, list[int]]:
    """Positions of the data sets behind each average: "average" (all), then each category."""
    found = {"average": list(range(len(scores.datasets)))}
    for position, category in enumerate(scores.categories):
        found.setdefault(category, []).append(position)
    return found


def marks(values: Iterable[float], decimals: int = 1) -> list[str]:
    """Of each value "best", "second" or "", as the paper marks them: by what is printed; equals share marks.

    Two best leave no second; NaN gets none.
    """
    printed = [np.nan if np.isnan(value) else float(f"{value:.{decimals}f}") for value in values]
    above = [sum(other > value for other in printed) for value in printed]
    return ["" if np.isnan(v) else {0: "best", 1: "second"}.get(n, "") for v, n in zip(printed, above)]


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: marks(column) for name, column in table.items()}, table.index)


def comparisons(runs: list[dict]) -> pd.DataFrame:
    """One row per data set and method: mean and standard deviation of the accuracy (%), test against PVeRA.

    The test pools the seeds that both methods have; p_value is NaN for PVeRA itself and where there are none.
    """
    accuracy, correct, images = (Scores.of(runs, metric) for metric in ("accuracy", "correct", "images"))
    mean, std = mean_and_std(100 * accuracy.values, axis=1)
    rows = []
    for d, dataset in enumerate(accuracy.datasets):
        for m, method in enumerate(accuracy.methods):
            p_value = np.nan
            if method != REFERENCE and REFERENCE in accuracy.methods:
                r = accuracy.methods.index(REFERENCE)
                both = ~np.isnan(correct.values[[m, r], :, d]).any(0)
                own, reference = correct.values[m, both, d].sum(), correct.values[r, both, d].sum()
                if both.any():
                    p_value = binomial_p_value(own, images.values[m, both, d].sum(), reference)
            rows.append(
                {
                    "dataset": dataset,
                    "category": accuracy.categories[d],
                    "method": method,
                    "seeds": int((~np.isnan(accuracy.values[m, :, d])).sum()),
                    "mean": mean[m, d],
                    "std": std[m, d],
                    "p_value": p_value,
                    "significantly_lower": bool(p_value < LEVEL),
                }
            )
    return pd.DataFrame(rows)


def grid_choices(runs: list[dict]) -> pd.DataFrame:
    """How often each grid value was chosen: one row per method, hyperparameter and value of its grid.

    runs: how many chose among these values; fixed: there was one value only, so nothing to choose.
    """
    rows = []
    keys = dict.fromkeys(
        [*PANELS, *(key for run in runs for member in run["members"] for key in member["grid"])]
    )
    for method, key in product(METHODS, keys):
        own = [
            run for run in runs if run["method"] == method and run["chosen"] and key in run["chosen"]["grid"]
        ]
        chosen = [run["chosen"]["grid"][key] for run in own]
        values = {member["grid"][key] for run in own for member in run["members"]}
        for value in sorted(values, reverse=_panel(key)[1]):
            row = {"method": method, "hyperparameter": key, "value": value, "chosen": chosen.count(value)}
            rows.append(row | {"runs": len(own), "fixed": len(values) == 1})
    table = pd.DataFrame(rows, columns=["method", "hyperparameter", "value", "chosen", "runs", "fixed"])
    return table.assign(share=table["chosen"] / table["runs"])


def _panel(hyperparameter: str) -> tuple[str, bool]:
    return PANELS.get(hyperparameter, (hyperparameter, False))


def claims(scores: Scores) -> pd.DataFrame:
    """What the paper says of its Table 1, held against these scores.

    difference: what must be positive for the claim to hold, over all seeds; by_seed: the same for each seed
    (NaN where a run that it needs is missing), to see whether it depends on the draw.
    """
    rows = []
    for text, unit, difference in CLAIMS:
        per_seed = [
            difference(replace(scores, values=scores.values[:, [s]], seeds=(seed,)))
            for s, seed in enumerate(scores.seeds)
        ]
        rows.append({"claim": text, "unit": unit, "difference": difference(scores), "by_seed": per_seed})
    return pd.DataFrame(rows)


def _lead(of: str, over: str | None = None) -> Callable[[Scores], float]:
    """Average accuracy of a method above that of another, or above the best of all others, in points."""

    def difference(scores: Scores) -> float:
        average = accuracies(scores)["average"]
        others = average.drop(of, errors="ignore") if over is None else average.reindex([over])
        return float(average.get(of, np.nan) - others.max(skipna=False))

    return difference


def _linear_last(scores: Scores) -> float:
    average = accuracies(scores)["average"]
    return float(average.drop("linear", errors="ignore").min(skipna=False) - average.get("linear", np.nan))


def _dora_wins_most(scores: Scores) -> float:
    table = accuracies(scores)[list(scores.datasets)]
    if "dora" not in table.index or table.isna().any(axis=None):
        return np.nan
    wins = _marked(table).eq("best").sum(axis=1)
    return float(wins["dora"] - wins.drop("dora").max())


CLAIMS: tuple[tuple[str, str, Callable[[Scores], float]], ...] = (
    ("PVeRA has the highest average", "points above the best other method", _lead("pvera")),
    ("PVeRA is better than VeRA on average", "points above VeRA", _lead("pvera", over="vera")),
    ("Linear probing has the lowest average", "points below the lowest other method", _linear_last),
    ("DoRA is best on more data sets than any other", "data sets more than the next method", _dora_wins_most),
)


# What a table is


@dataclass(frozen=True)
class Cell:
    text: str
    mark: str = ""  # "best": bold; "second": underlined


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    rule: bool = False  # a line above it


@dataclass(frozen=True)
class Panel:
    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table to be read, and `data`, the numbers in it at full precision.

    caption: what is shown; about: from which runs.
    """

    name: str
    caption: str
    about: str
    panels: tuple[Panel, ...]
    data: pd.DataFrame
    upright: bool = True  # False: column titles are turned by 90 degrees in LaTeX

    def markdown(self, about: bool = True) -> str:
        parts = []
        for panel in self.panels:
            lines = [["", *panel.header], [":--", *[":-:"] * len(panel.header)]]
            lines += [[row.label, *map(_markdown, row.cells)] for row in panel.rows]
            parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
            if panel.title:
                parts[-1] = f"**{panel.title}**\n\n{parts[-1]}"
        caption = f"{self.caption} {self.about}" if about else self.caption
        return "\n\n".join([*parts, _escape_stars(caption)]) + "\n"

    def latex(self) -> str:
        lines = ["% needs the packages booktabs, adjustbox and graphicx", r"\begin{table*}", r"\centering"]
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
                " & ".join(["", *header]) + r" \\",
                r"\midrule",
            ]
            for row in panel.rows:
                cells = [_latex_cell(cell) for cell in row.cells]
                lines += [r"\midrule"] * row.rule + [" & ".join([_latex(row.label), *cells]) + r" \\"]
            lines += [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}"]
        lines += [
            rf"\caption{{{_latex(f'{self.caption} {self.about}')}}}",
            rf"\label{{tab:{self.name}}}",
            r"\end{table*}",
        ]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        return self.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def write(self, folder) -> list[Path]:
        """Writes <folder>/<name>.{md,tex,csv} and returns the paths."""
        texts = {"md": self.markdown(), "tex": self.latex(), "csv": self.csv()}
        paths = [Path(folder) / f"{self.name}.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values()):
            write_atomically(path, text.encode())
        return paths


# The tables of the benchmark


def of_profile(root, profile: str) -> dict[str, dict[str, Table]]:
    """Backbone -> name -> table, of all results of a profile's benchmark below `root`.

    Where there are several backbones, the names under which the tables are written end in the backbone.
    InputError where there are no results, or such as cannot share a table.
    """
    runs = results.load_runs(root, profile)
    searches = results.load_runs(root, profile, "beta", optional=True)
    backbones = dict.fromkeys(run["backbone"] for run in runs)
    found = {}
    for backbone in backbones:
        own, own_searches = ([r for r in some if r["backbone"] == backbone] for some in (runs, searches))
        suffix = f"_{backbone}" if len(backbones) > 1 else ""
        built = benchmark(own, own_searches).items()
        found[backbone] = {name: replace(table, name=name + suffix) for name, table in built}
    return found


def benchmark(runs: list[dict], searches: list[dict] = ()) -> dict[str, Table]:
    """The tables of the runs of one backbone, by name; `searches` as in `grid`."""
    return {
        table.name: table for table in (main(runs), detailed(runs), grid(runs, searches), held_claims(runs))
    }


def main(runs: list[dict]) -> Table:
    """The paper's Table 1, with the average of each category added."""
    scores = Scores.of(runs)
    values = accuracies(scores)
    marked = _marked(values)
    categories = list(groups(scores))[1:]
    header = [*map(_dataset, scores.datasets), "Average", *(f"Avg. {name}" for name in categories)]
    rows = [
        Row(METHODS[m].title, tuple(Cell(_percent(values.at[m, c]), marked.at[m, c]) for c in values))
        for m in scores.methods
    ]
    caption = (
        "Test accuracy (%), mean over seeds, per data set, then averaged over all data sets and over those "
        "of each category. Best in bold, second best underlined; what prints the same shares the mark."
    )
    panel = Panel("", tuple(header), tuple(rows))
    return Table("main", caption, about(runs), (panel,), values.reset_index(), upright=False)


def detailed(runs: list[dict]) -> Table:
    """The paper's detailed tables: data sets × methods, mean ± standard deviation over seeds, stars."""
    scores = Scores.of(runs)
    data = comparisons(runs)
    by_cell = data.set_index(["dataset", "method"])
    rows = []
    for d, dataset in enumerate(scores.datasets):
        cells = []
        for method in scores.methods:
            mean, std, lower = by_cell.loc[(dataset, method), ["mean", "std", "significantly_lower"]]
            text = _percent(mean) + "*" * bool(lower)
            cells.append(Cell(text if np.isnan(std) else f"{text} ± {std:.1f}"))
        rule = d > 0 and scores.categories[d] != scores.categories[d - 1]
        rows.append(Row(_dataset(dataset), tuple(cells), rule))
    caption = (
        "Test accuracy (%), mean ± sample standard deviation (n − 1) over seeds. A star marks accuracies "
        f"significantly below PVeRA's (one-sided binomial test of the pooled seeds, p < {LEVEL})."
    )
    header = tuple(METHODS[method].title for method in scores.methods)
    return Table("detailed", caption, about(runs), (Panel("", header, tuple(rows)),), data)


def grid(runs: list[dict], searches: list[dict] = ()) -> Table:
    """The paper's table of grid choices: per method, the share of runs that chose each value.

    searches: the runs that chose PVeRA's β before the benchmark, if there were any.
    """
    choices = grid_choices([*runs, *searches])
    found = choices["hyperparameter"].unique()
    panels = []
    for key in [*(key for key in PANELS if key in found), *(key for key in found if key not in PANELS)]:
        title, descending = _panel(key)
        part = choices[choices["hyperparameter"] == key]
        columns = sorted(set(part["value"]), reverse=descending)
        rows = []
        for method, own in part.groupby("method", sort=False):
            text = {
                row.value: "fixed" if row.fixed else f"{100 * row.share:.0f}%" for row in own.itertuples()
            }
            cells = tuple(Cell(text.get(value, NOTHING)) for value in columns)
            rows.append(Row(METHODS[method].title, cells))
        letter = "abcdefgh"[len(panels)]
        panels.append(Panel(f"({letter}) {title}", tuple(map(_number, columns)), tuple(rows)))
    caption = "Share of runs in which each value of a method's grid had the lowest validation loss."
    if searches:
        caption += f" β was searched once per data set (seed {searches[0]['seed']}), before the other grids."
    without = [METHODS[m].title for m in Scores.of(runs).methods if m not in set(choices["method"])]
    if without:
        caption += f" Without a grid: {', '.join(without)}."
    return Table("grid", caption, about(runs), tuple(panels), choices)


def held_claims(runs: list[dict]) -> Table:
    """What the paper says of its Table 1, and whether it holds here."""
    scores = Scores.of(runs)
    data = claims(scores)
    rows, verdicts = [], []
    for claim in data.itertuples():
        signs = {seed_difference > 0 for seed_difference in claim.by_seed if not np.isnan(seed_difference)}
        verdict = "holds" if claim.difference > 0 else "does not hold"
        if np.isnan(claim.difference):
            verdict = "cannot be told: runs are missing"
        elif signs - {claim.difference > 0}:
            verdict += ", but depends on the seed"
        digits = 0 if claim.unit.startswith("data sets") else 1
        by_seed = ", ".join(signed(value, digits) for value in claim.by_seed)
        difference = signed(claim.difference, digits)
        if difference != NOTHING:
            difference += f" {claim.unit}"
        cells = (verdict, difference, by_seed)
        rows.append(Row(claim.claim, tuple(map(Cell, cells))))
        verdicts.append(verdict)
    by_seed = pd.DataFrame(data["by_seed"].tolist(), columns=[f"seed{seed}" for seed in scores.seeds])
    csv = pd.concat([data.drop(columns="by_seed"), pd.Series(verdicts, name="verdict"), by_seed], axis=1)
    caption = "Statements of the paper about its main table, and whether they hold here."
    return Table(
        "claims", caption, about(runs), (Panel("", ("Here", "Difference", "By seed"), tuple(rows)),), csv
    )


def about(runs: list[dict]) -> str:
    """What made these runs, which grids were fixed, and which runs are missing."""
    scores = Scores.of(runs)
    profile, protocol, backbone = (runs[0][key] for key in ("profile", "protocol", "backbone"))
    text = (
        f"Profile {profile}, {protocol} protocol, backbone {backbone}, "
        f"seeds {', '.join(map(str, scores.seeds))}, at most {runs[0]['config']['max_epochs']} epochs"
    )
    chosen = [run["members"][run["chosen"]["member"]] for run in runs if run["chosen"]]
    capped = sum(member["status"] == "epoch limit" for member in chosen)
    if capped:
        text += f" (which ended {capped} of {len(chosen)} chosen trainings before patience did)"
    choices = grid_choices(runs)
    fixed = [
        f"{METHODS[row.method].title} {_panel(row.hyperparameter)[0].lower()} {_number(row.value)}"
        for row in choices[choices["fixed"]].itertuples()
    ]
    if fixed:
        text += f". Grids fixed: {', '.join(fixed)}"
    there = {(run["method"], run["dataset"], run["seed"]) for run in runs}
    absent = [run for run in scores.missing() if run not in there]
    diverged = [run for run in scores.missing() if run in there]
    if not absent:
        text += f". All {len(runs)} runs"
    else:
        text += f". {len(runs)} of {scores.values.size} runs; missing: {_listed(absent)}"
    if diverged:
        text += f". Diverged, and left out: {_listed(diverged)}"
    return f"{text}."


def _listed(runs: list[tuple[str, str, int]]) -> str:
    """(method, data set, seed) in words, grouped by method and data set."""
    return "; ".join(
        f"{METHODS[method].title} on "
        + ", ".join(
            f"{_dataset(dataset)} (seed {', '.join(str(seed) for *_, seed in same)})"
            for dataset, same in groupby(own, key=itemgetter(1))
        )
        for method, own in groupby(
            sorted(runs, key=lambda run: list(METHODS).index(run[0])), key=itemgetter(0)
        )
    )


# Text


def _dataset(name: str) -> str:
    return TASKS[name].title if name in TASKS else name


def _percent(value: float) -> str:
    return NOTHING if np.isnan(value) else f"{value:.1f}"


def signed(value: float, digits: int) -> str:
    """A difference, with its sign."""
    return NOTHING if np.isnan(value) else f"{value:+.{digits}f}".replace("-", "−")


SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _number(value) -> str:
    """A grid value as the paper prints it: 64, and powers of ten as 10⁻³."""
    if isinstance(value, float) and value > 0:
        exponent = round(np.log10(value))
        if abs(exponent) > 1 and np.isclose(value, 10.0**exponent):
            return f"10{str(exponent).translate(SUPERSCRIPTS)}"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _escape_stars(text: str) -> str:
    return text.replace("*", r"\*")


def _markdown(cell: Cell) -> str:
    text = _escape_stars(cell.text)
    return {"best": f"**{text}**", "second": f"<ins>{text}</ins>"}.get(cell.mark, text)


def _latex_cell(cell: Cell) -> str:
    text = _latex(cell.text)
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)


LATEX = str.maketrans(
    {c: f"\\{c}" for c in "%_&#"}
    | {"±": r"$\pm$", "*": "$^*$", "–": "--", "−": "$-$", "×": r"$\times$", "β": r"$\beta$", "<": "$<$"}
)


def _latex(text: str) -> str:
    plain = {raised: chr(digit) for digit, raised in SUPERSCRIPTS.items()}
    raised = "".join(map(chr, plain))
    text = text.translate(LATEX)
    return re.sub(f"[{raised}]+", lambda m: f"$^{{{m[0].translate(plain)}}}$", text)
