"""Fill the tables of README.md, docs/findings.md and PROTOCOL.md from results/.

    python experiments/fill_pages.py

A page holds `<!-- program: NAME -->` and `<!-- end -->`, and between them what this script writes.
NAME is one of `PAGE_TABLES` below, or the Markdown file of a table. Notebooks make the tables in
results/.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pandas as pd
from options import RESULTS, ROOT, Parser

from pvera.adapters import PAPER_METHODS
from pvera.errors import run_script
from pvera.files import write_atomically
from pvera.report import audit
from pvera.report.claims import OTHERS
from pvera.report.contrasts import CONTRASTS
from pvera.report.settings import read_profiles, read_report
from pvera.report.table import markdown_table
from pvera.report.tables.components import COMPARED, component_titles, trained_method
from pvera.report.text import NOTHING, bounds, decimal, signed, title
from pvera.report.verdicts import CONTRADICTED, SUPPORTED
from pvera.study.profiles import Profile

PAGES = [ROOT / "README.md", ROOT / "docs/findings.md", ROOT / "PROTOCOL.md"]
TABLE_FOLDER = RESULTS / "tables"
MARKED_TABLE = re.compile(r"(<!-- program: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_RUN = "not run"

#: Contrast whose claim is judged -> its label.
JUDGED = {key: contrast.label for key, contrast in CONTRASTS.items() if contrast.claim}
#: Contrasts of the front page.
SHOWN = ("pvera_over_vera", "matrices", "dropout_over_vera", "pvera_over_dropout")


def main() -> None:
    """Fill the pages."""
    Parser(__doc__).parse_args()
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8")))


def filled(page: str) -> str:
    """Return the page with each marked table made from the results."""
    return MARKED_TABLE.sub(lambda match: f"{match[1]}\n{content_of(match[2])}\n\n{match[3]}", page)


def content_of(name: str) -> str:
    """Return the text between the marks of `name`."""
    if name in PAGE_TABLES:
        return PAGE_TABLES[name]().strip()
    return (ROOT / name).read_text(encoding="utf-8").strip()


# What several tables need


@cache
def compared_profiles() -> list[Profile]:
    """Return the profiles of the report that compare components, in its order."""
    profiles = read_profiles(ROOT, read_report(ROOT)["profiles"])
    return [
        profile
        for profile in profiles
        if (TABLE_FOLDER / f"components_{profile.name}.csv").exists()
    ]


def heading(profile: Profile) -> str:
    """Return the title of a profile without its remark in brackets."""
    return (profile.title or profile.name).partition(" (")[0]


@cache
def read_table(name: str) -> pd.DataFrame:
    """Return the CSV file of a table; its first column labels the rows."""
    return pd.read_csv(TABLE_FOLDER / f"{name}.csv", index_col=0)


def table_by_profile(
    corner: str, labels: Mapping[str, str], cell: Callable[[Profile, str], str]
) -> str:
    """Return a table with a column for each profile.

    Args:
        corner: Title of the first column.
        labels: Method or contrast -> the label of its row.
        cell: From a profile and a key of `labels` to the text.
    """
    profiles = compared_profiles()
    rows = [[label, *(cell(profile, key) for profile in profiles)] for key, label in labels.items()]
    return markdown_table([corner, *map(heading, profiles)], rows)


def decorated(text: str, is_best: bool = False, is_tie: bool = False) -> str:
    """Return a cell, bold where it is the best, with ≈ where it is a tie with PVeRA's."""
    if is_best:
        text = f"**{text}**"
    return f"{text} ≈" if is_tie else text


# Accuracies of the methods


def methods_table() -> str:
    """Return the accuracies of all methods, with their parameters in the first profile."""
    profiles = compared_profiles()
    first = profiles[0]
    backbone = title(first.backbones[0]).partition(" (")[0]
    header = ["Method", f"Parameters on {backbone}", "Merges"]
    accuracies = []
    for profile in profiles:
        components = read_table(f"components_{profile.name}")
        shown = components[components.index.isin(COMPARED)]
        accuracies.append(accuracy_cells(profile, shown))
        datasets, seeds = shown["dataset"].nunique(), _range(shown["runs"])
        header.append(f"{heading(profile)}: {datasets} data sets, {seeds} seeds")

    rows = []
    for name in accuracies[0]:
        costs = _parameters_and_merges(first, trained_method(first, name))
        cells = [texts.get(name, NOT_RUN) for texts in accuracies]
        rows.append([component_titles(first)[name], *costs, *cells])
    return markdown_table(header, rows)


def accuracy_cells(profile: Profile, shown: pd.DataFrame) -> dict[str, str]:
    """Return the average accuracy of each component, from the highest to the lowest.

    Args:
        profile: The profile.
        shown: Rows of its table of components.
    """
    # (components, data sets); of one that lacks a data set there is no average.
    by_dataset = shown.pivot(columns="dataset", values="mean")
    means = by_dataset.mean(axis=1, skipna=False).sort_values(ascending=False)
    # Averages that print alike share the mark of the best.
    best = decimal(means.max(), 1)
    cells = {}
    for name, mean in means.items():
        text = decimal(mean, 1)
        # PVeRA has no lead over itself, and so no tie.
        is_tie = name != "pvera" and contains_zero(difference_row(profile, "pvera", name))
        cells[name] = decorated(text, text == best, is_tie)
    return cells


def _parameters_and_merges(profile: Profile, method: str) -> tuple[str, str]:
    """Return the trainable parameters in a method's search, and whether it merges."""
    costs = read_table("cost").query("profile == @profile.name and method == @method")
    # Without a search of the rank or the ratio there is the default alone.
    searched = costs[costs["grid"] != "{}"]
    sizes = (costs if searched.empty else searched)["adapter_parameters"]
    merges = "yes" if costs["merged"].notna().all() else "no"
    if not sizes.any():
        merges = NOTHING
    return _range(sizes), merges


def _range(counts: pd.Series) -> str:
    """Return "3–5", or "3" where all are equal."""
    least, most = counts.min(), counts.max()
    return f"{least:,}" if least == most else f"{least:,}–{most:,}"


# PVeRA against each method


def difference_row(profile: Profile, first: str, second: str) -> pd.Series:
    """Return the numbers of one component minus another, NaN where one of them was not run."""
    titles = component_titles(profile)
    label = f"{titles[first]} − {titles[second]}"
    differences = read_table(f"differences_{profile.name}")
    components = read_table(f"components_{profile.name}").index
    # Two components that were run have a row: without it, KeyError names the label.
    if not {first, second} <= set(components):
        differences = differences.reindex([label])
    return differences.loc[label]


def contains_zero(difference: pd.Series) -> bool:
    """Return whether the interval over seeds contains zero."""
    return difference["low"] <= 0 <= difference["high"]


def difference_text(difference: pd.Series) -> str:
    """Return a difference with its interval over seeds."""
    if pd.isna(difference["mean"]):
        return NOT_RUN
    interval = bounds(difference["low"], difference["high"])
    return f"{signed(difference['mean'], 1)} {interval}"


def comparison_cell(profile: Profile, key: str) -> str:
    """Return the difference of a contrast with its interval over seeds."""
    contrast = CONTRASTS[key]
    return difference_text(difference_row(profile, contrast.first, contrast.second))


def lead_cell(profile: Profile, method: str) -> str:
    """Return PVeRA minus another method, with ≈ where it is a tie."""
    row = difference_row(profile, "pvera", method)
    return decorated(difference_text(row), is_tie=contains_zero(row))


def calibration_cell(profile: Profile, method: str) -> str:
    """Return ACE; ≈ where the interval of the ratio to PVeRA's contains one."""
    rows = read_table(f"calibration_{profile.name}")
    if method not in rows.index:
        return NOT_RUN
    row = rows.loc[method]
    text = decimal(100 * row["ace_mean"], 1)
    # Errors that print alike share the mark of the best.
    is_best = text == decimal(100 * rows["ace_mean"].min(), 1)
    is_tie = method != "pvera" and row["ace_ratio_low"] <= 1 <= row["ace_ratio_high"]
    return decorated(text, is_best, is_tie)


# Contrasts, by the tables of claims


def claim_row(profile: Profile, key: str) -> pd.Series:
    """Return the row of a contrast in the table of claims."""
    return read_table(f"claims_components_{profile.name}").loc[CONTRASTS[key].claim]


def effect_and_intervals(claim: pd.Series, prefixes: Sequence[str] = ("seeds",)) -> str:
    """Return the effect of a judged claim in points, with its interval in each scope.

    Args:
        claim: Row of the CSV file of a table of claims, see `verdicts.Judgement`.
        prefixes: Those of the scopes, see `verdicts.SCOPES`.
    """
    if pd.isna(claim["difference"]):
        return claim["reading"]
    intervals = [bounds(claim[f"{scope}_low"], claim[f"{scope}_high"]) for scope in prefixes]
    return " ".join([signed(claim["difference"], 1), *intervals])


def contrast_cell(profile: Profile, key: str) -> str:
    """Return the effect of a contrast, bold where the interval over data sets leaves out zero."""
    claim = claim_row(profile, key)
    is_bold = claim["tasks_verdict"] in (SUPPORTED, CONTRADICTED)
    return decorated(effect_and_intervals(claim, ("seeds", "tasks")), is_bold)


def protocols_table() -> str:
    """Return PVeRA − VeRA under both protocols."""
    header = ["PVeRA − VeRA, points"]
    corrected_row = ["Corrected protocol, equal tuning"]
    official_row = ["Official protocol, the paper's tuning"]
    for profile in compared_profiles():
        if (TABLE_FOLDER / f"claims_protocol_{profile.name}.csv").exists():
            header.append(heading(profile))
            corrected_row.append(effect_and_intervals(claim_row(profile, "pvera_over_vera")))
            # The official protocol has this claim alone.
            official = read_table(f"claims_protocol_{profile.name}").iloc[0]
            official_row.append(effect_and_intervals(official))
    return markdown_table(header, [corrected_row, official_row])


# The audit, times, and rows of other tables


def contradictions_table() -> str:
    """Return the kinds of the audit's checks that some of the paper's printed numbers fail.

    Its last row counts all checks.
    """
    counts = audit.summary(pd.read_csv(RESULTS / "published/audit.csv"))
    failing = counts[counts[audit.DOES_NOT_FOLLOW] > 0]
    rows = [
        [kind.capitalize(), f"{row.sum():,}", str(row[audit.DOES_NOT_FOLLOW])]
        for kind, row in failing.iterrows()
    ]
    return markdown_table(["Checks of", "Number", "Contradicted"], rows)


def trainings_table() -> str:
    """Return how long the trainings of the main experiments took."""
    runs = pd.read_csv(RESULTS / "runs.csv")
    rows = []
    for profile in compared_profiles():
        is_main = runs["experiment"].isin(["benchmark", *profile.variants])
        part = runs[is_main & (runs["profile"] == profile.name)]
        hours = decimal(part["seconds"].sum() / 3600, 1)
        devices = sorted(part["device"].str.removeprefix("cpu: ").unique())
        rows.append([heading(profile), f"{len(part):,}", hours, ", ".join(devices)])
    header = ["Setting", "Trainings", "Hours, one after the other", "Device"]
    return markdown_table(header, rows, "lccl")


def table_rows(name: str, label: str = "") -> str:
    """Return the rows that begin with a label, of a table of the report's first profile."""
    first = read_report(ROOT)["profiles"][0]
    lines = (TABLE_FOLDER / f"{name}_{first}.md").read_text(encoding="utf-8").splitlines()
    # The header has no label, and a line of dashes follows.
    shown = ("|  |", "| :-", f"| {label}")
    return "\n".join(line for line in lines if line.startswith(shown))


POINTS_TITLE = "Points of accuracy"
#: Name of a mark -> the function that returns its table.
PAGE_TABLES = {
    "methods": methods_table,
    "comparisons": lambda: table_by_profile(
        POINTS_TITLE, {key: CONTRASTS[key].label for key in SHOWN}, comparison_cell
    ),
    "contrasts": lambda: table_by_profile(POINTS_TITLE, JUDGED, contrast_cell),
    "leads": lambda: table_by_profile(
        POINTS_TITLE, {name: f"PVeRA − {title(name)}" for name in OTHERS}, lead_cell
    ),
    "calibration": lambda: table_by_profile(
        "ACE (%)", {name: title(name) for name in PAPER_METHODS}, calibration_cell
    ),
    "rivals": lambda: table_rows("rivals"),
    "official": protocols_table,
    "rank": lambda: table_rows("rank", "Loss, here"),
    "position": lambda: table_rows("position", "Loss, here"),
    "contradictions": contradictions_table,
    "trainings": trainings_table,
}


if __name__ == "__main__":
    run_script(main)
