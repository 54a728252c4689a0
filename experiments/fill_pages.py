"""Fill the tables of README.md, docs/findings.md and PROTOCOL.md from results/.

    python experiments/fill_pages.py

A page holds `<!-- program: NAME -->` and `<!-- end -->`, and between them what this script writes.
NAME is one of `VIEWS` below, or the Markdown file of a table. Notebooks make the tables in
results/.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import pandas as pd
from options import RESULTS, ROOT, Parser

from pvera.adapters import PAPER_METHODS
from pvera.errors import run_script
from pvera.files import write_atomically
from pvera.report import audit, claims
from pvera.report.contrasts import CONTRASTS, Contrast
from pvera.report.settings import read_profiles, read_report
from pvera.report.table import markdown_table
from pvera.report.tables.components import MEAN, component_titles, trained_method
from pvera.report.text import NOTHING, fixed, title
from pvera.report.verdicts import CONTRADICTED, SUPPORTED
from pvera.study.profiles import Profile

T = TypeVar("T")
PAGES = [ROOT / "README.md", ROOT / "docs/findings.md", ROOT / "PROTOCOL.md"]
TABLES = RESULTS / "tables"
MARK = re.compile(r"(<!-- program: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_RUN = "not run"
#: The methods that PVeRA is compared with.
OTHERS = [name for name in PAPER_METHODS if name != "pvera"]
POINTS = "Points of accuracy"

#: The contrasts whose claims are judged, and those of the front page.
JUDGED = [contrast for contrast in CONTRASTS.values() if contrast.claim]
MAIN = [CONTRASTS[key] for key in ("pvera_over_vera", "noise", "pvera_over_dropout")]


def main() -> None:
    """Fill the pages."""
    Parser(__doc__).parse_args()
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8")))


def filled(page: str) -> str:
    """Return the page with each marked table made from the results."""
    return MARK.sub(lambda match: f"{match[1]}\n{content_of(match[2])}\n\n{match[3]}", page)


def content_of(name: str) -> str:
    """Return the text between the marks of `name`; results that are missing are named."""
    try:
        text = VIEWS[name]() if name in VIEWS else (ROOT / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        text = f"*No results yet: `{Path(error.filename).relative_to(ROOT)}`.*"
    return text.strip()


# Reading tables


@cache
def compared_profiles() -> list[Profile]:
    """Return the profiles of the report that compare components, in its order."""
    profiles = read_profiles(ROOT, read_report(ROOT)["profiles"])
    return [profile for profile in profiles if (TABLES / f"components_{profile.name}.csv").exists()]


def heading(profile: Profile) -> str:
    """Return the title of a profile without its remark in brackets."""
    return (profile.title or profile.name).partition(" (")[0]


@cache
def numbers(name: str) -> pd.DataFrame:
    """Return the CSV file of a table; its first column labels the rows."""
    return pd.read_csv(TABLES / f"{name}.csv", index_col=0)


@cache
def printed(name: str) -> dict[str, dict[str, str]]:
    """Return the rows of a Markdown table of one panel as label -> heading -> cell.

    Pages print these: the six digits of a CSV file, rounded again, can give another last digit.
    Whether an interval contains a tie is judged by `numbers`, before rounding.
    """
    lines = (TABLES / f"{name}.md").read_text(encoding="utf-8").splitlines()
    # The header has no label.
    header, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {label: dict(zip(header, cells, strict=True)) for label, *cells in rows}


def contains(row: pd.Series, interval: str, tied_value: float) -> bool:
    """Return whether the interval from <interval>low to <interval>high contains the value of a tie.

    It is zero for a difference and one for a ratio.
    """
    return bool(row[f"{interval}low"] <= tied_value <= row[f"{interval}high"])


def is_tie(profile: Profile, component: str) -> bool:
    """Return whether the interval over seeds of PVeRA minus a component contains zero."""
    rows = numbers(f"differences_{profile.name}")
    label = f"PVeRA − {component_titles(profile)[component]}"
    return label in rows.index and contains(rows.loc[label], "", 0)


# Writing tables


def marked(text: str, is_best: bool = False, tie: bool = False) -> str:
    """Return a cell, bold where it is the best, with ≈ where it is a tie with PVeRA's."""
    if is_best:
        text = f"**{text}**"
    return f"{text} ≈" if tie else text


def by_profile(corner: str, rows: dict[str, T], cell: Callable[[Profile, T], str]) -> str:
    """Return a table with a column for each profile.

    Args:
        corner: Title of the first column.
        rows: Label -> what `cell` shows in each column.
        cell: Returns the text.
    """
    profiles = compared_profiles()
    body = [[label, *(cell(profile, row) for profile in profiles)] for label, row in rows.items()]
    header = [corner, *(heading(profile) for profile in profiles)]
    return markdown_table(header, body, "l" + "c" * len(profiles))


def methods() -> str:
    """Return the accuracies of all methods, with their parameters in the first profile."""
    header = ["Method", "Parameters on ViT-Ti/8", "Merges"]
    accuracies = []
    for profile in compared_profiles():
        components = pd.read_csv(TABLES / f"components_{profile.name}.csv")
        shown = components[components["component"].isin([*PAPER_METHODS, "latent_dropout"])]
        # (components, data sets); of one that lacks a data set there is no average.
        means = shown.pivot(index="component", columns="dataset", values="mean")
        accuracies.append(means.mean(axis=1, skipna=False))
        seeds = _range(shown["runs"].min(), shown["runs"].max())
        datasets = shown["dataset"].nunique()
        header.append(f"{heading(profile)}: {datasets} data sets, {seeds} seeds")

    if not accuracies:
        return "*No results yet.*"
    first = compared_profiles()[0]
    rows = []
    for name in accuracies[0].sort_values(ascending=False).index:
        row = [component_titles(first)[name], *_costs(first, trained_method(first, name))]
        for profile, means in zip(compared_profiles(), accuracies, strict=True):
            text = NOT_RUN
            if name in means:
                text = fixed(means[name], 1)
                text = marked(text, means[name] == means.max(), is_tie(profile, name))
            row.append(text)
        rows.append(row)
    return markdown_table(header, rows, "l" + "c" * (len(header) - 1))


def _costs(profile: Profile, method: str) -> tuple[str, str]:
    """Return the trainable parameters in a method's search, and whether it merges."""
    costs = pd.read_csv(TABLES / "cost.csv").query("method == @method")
    costs = costs[costs["profile"] == profile.name]
    # Without a search of the rank or the ratio there is the default alone.
    searched = costs[costs["grid"] != "{}"]
    sizes = (costs if searched.empty else searched)["adapter_parameters"]
    merges = "yes" if costs["merged"].notna().all() else "no"
    if not sizes.any():
        merges = NOTHING
    return _range(f"{sizes.min():,}", f"{sizes.max():,}"), merges


def _range(least: object, most: object) -> str:
    """Return "3–5", or "3" where both are equal."""
    return str(least) if least == most else f"{least}–{most}"


def difference(profile: Profile, contrast: Contrast, with_datasets: bool = False) -> str:
    """Return a difference with its interval over seeds, and over data sets if asked for.

    It is bold where the interval over data sets leaves out zero.
    """
    name = f"claims_components_{profile.name}"
    cells = printed(name)[contrast.claim]
    verdicts = cells["Fixed tasks"]
    if with_datasets:
        verdicts += cells["Random tasks"]
    text = effect_text(cells["Effect"], verdicts)
    established = numbers(name).at[contrast.claim, "tasks_verdict"] in (SUPPORTED, CONTRADICTED)
    return marked(text, established)


def effect_text(effect: str, verdicts: str) -> str:
    """Return the effect of a claim in points, with the intervals of its verdicts."""
    points = effect.rpartition(": ")[2].removesuffix(" points")
    return " ".join([points, *re.findall(r"\[.*?\]", verdicts)])


def lead(profile: Profile, method: str) -> str:
    """Return PVeRA minus another method with its interval over seeds."""
    row = printed(f"differences_{profile.name}").get(f"PVeRA − {title(method)}")
    return marked(row[MEAN], tie=is_tie(profile, method)) if row else NOT_RUN


def calibration_error(profile: Profile, method: str) -> str:
    """Return ACE; ≈ where the interval of the ratio to PVeRA's contains one."""
    rows = numbers(f"calibration_{profile.name}")
    if method not in rows.index:
        return NOT_RUN
    row = rows.loc[method]
    tie = method != "pvera" and contains(row, "ace_ratio_", 1)
    is_best = row["ace_mean"] == rows["ace_mean"].min()
    return marked(fixed(100 * row["ace_mean"], 1), is_best, tie)


def official() -> str:
    """Return PVeRA − VeRA under both protocols."""
    (claim,) = claims.TOPICS["protocol"].claims
    header = ["PVeRA − VeRA, points"]
    corrected_row = ["Corrected protocol, equal tuning"]
    official_row = ["Official protocol, the paper's tuning"]
    for profile in compared_profiles():
        if not (TABLES / f"claims_protocol_{profile.name}.md").exists():
            continue
        header.append(heading(profile))
        corrected_row.append(difference(profile, CONTRASTS["pvera_over_vera"]).strip("*"))
        cells = printed(f"claims_protocol_{profile.name}")[claim.text]
        official_row.append(effect_text(cells["Effect"], cells["Fixed tasks"]))
    return markdown_table(header, [corrected_row, official_row], "l" + "c" * (len(header) - 1))


def contradictions() -> str:
    """Return the kinds of the audit's checks that some of the paper's printed numbers fail."""
    counts = audit.summary(pd.read_csv(RESULTS / "published/audit.csv"))
    failing = counts[counts[audit.CONTRADICTS] > 0]
    rows = [
        [kind.capitalize(), f"{row.sum():,}", str(row[audit.CONTRADICTS])]
        for kind, row in failing.iterrows()
    ]
    return markdown_table(["Checks of", "Number", "Contradicted"], rows, "lcc")


def trainings() -> str:
    """Return how long the trainings of the main experiments took."""
    runs = pd.read_csv(RESULTS / "runs.csv")
    rows = []
    for profile in compared_profiles():
        main = runs["experiment"].isin(["benchmark", *profile.variants])
        part = runs[main & (runs["profile"] == profile.name)]
        hours = part["seconds"].sum() / 3600
        devices = ", ".join(device.removeprefix("cpu: ") for device in sorted(set(part["device"])))
        rows.append([heading(profile), f"{len(part):,}", fixed(hours, 1), devices])
    header = ["Setting", "Trainings", "Hours, one after the other", "Device"]
    return markdown_table(header, rows, "lccl")


def rows_of(name: str, label: str = "") -> str:
    """Return the rows of a table that begin with a label, without its caption and notes."""
    lines = (TABLES / f"{name}.md").read_text(encoding="utf-8").splitlines()
    header, rule, *rows = [line for line in lines if line.startswith("|")]
    return "\n".join([header, rule, *(row for row in rows if row.startswith(f"| {label}"))])


#: Name of a mark -> the function that returns its table.
VIEWS = {
    "methods": methods,
    "differences": lambda: by_profile(POINTS, {each.label: each for each in MAIN}, difference),
    "leads": lambda: by_profile(POINTS, {f"PVeRA − {title(name)}": name for name in OTHERS}, lead),
    "gain": lambda: by_profile(
        POINTS,
        {each.label: each for each in JUDGED},
        partial(difference, with_datasets=True),
    ),
    "calibration": lambda: by_profile(
        "ACE (%)", {title(name): name for name in PAPER_METHODS}, calibration_error
    ),
    "rivals": lambda: rows_of("rivals_vtab_tiny"),
    "official": official,
    "rank": lambda: rows_of("rank_vtab_tiny", "Loss, here"),
    "position": lambda: rows_of("position_vtab_tiny", "Loss, here"),
    "contradictions": contradictions,
    "trainings": trainings,
}


if __name__ == "__main__":
    run_script(main)
