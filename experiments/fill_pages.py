"""Fill the tables of README.md, docs/findings.md and PROTOCOL.md from results/; notebooks make the tables there.

    python experiments/fill_pages.py

A page holds `<!-- program: NAME -->` and `<!-- end -->`, and between them what this script writes. NAME is one of
`VIEWS` below, or the Markdown file of a table.
"""

import re
from functools import cache, partial
from pathlib import Path

import pandas as pd
from options import RESULTS, ROOT, Parser

from pvera.adapters import PAPER_METHODS
from pvera.errors import run_script
from pvera.files import write_atomically
from pvera.report import audit, published
from pvera.report.settings import read_profiles, read_report
from pvera.report.table import fixed, markdown_table, title
from pvera.report.tables.components import TITLES, VARIANTS
from pvera.study.profiles import Profile

PAGES = [ROOT / "README.md", ROOT / "docs/findings.md", ROOT / "PROTOCOL.md"]
TABLES = RESULTS / "tables"
MARK = re.compile(r"(<!-- program: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_RUN = "not run"
SHOWN = [*PAPER_METHODS, "latent_dropout"]

#: Claim of the notebook `components` -> the difference behind it.
DIFFERENCES = {
    "PVeRA is more accurate than VeRA": "PVeRA − VeRA",
    "The noise makes PVeRA more accurate (β = 0)": "PVeRA with noise − without (β = 0)",
    "PVeRA is more accurate than VeRA with latent dropout": "PVeRA − VeRA with latent dropout",
    "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)": "σ learned − σ = 1 (β = 0)",
    "VeRA is more accurate with latent dropout": "VeRA with latent dropout − VeRA",
    "The KL term makes PVeRA more accurate": "with KL term − without",
}


def filled(page: str) -> str:
    """Return the page with each marked table made from the results."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{table(mark[2])}\n\n{mark[3]}", page)


def table(name: str) -> str:
    """Return what stands between the marks; results that are still missing are named."""
    try:
        text = VIEWS[name]() if name in VIEWS else (ROOT / name).read_text()
    except FileNotFoundError as error:
        text = f"*No results yet: `{Path(error.filename).relative_to(ROOT)}`.*"
    return text.strip()


# What the tables are made of


@cache
def settings() -> list[Profile]:
    """Return the profiles of the report that compare components, in its order."""
    profiles = read_profiles(ROOT, read_report(ROOT).profiles)
    return [profile for profile in profiles if (TABLES / f"components_{profile.name}.csv").exists()]


def heading(profile: Profile) -> str:
    """Return the title of a setting without its remark."""
    return profile.title.partition(" (")[0]


@cache
def numbers(name: str) -> pd.DataFrame:
    return pd.read_csv(TABLES / f"{name}.csv")


@cache
def cells(name: str) -> dict[str, list[str]]:
    """Return row -> its other cells as they are printed, of a table in Markdown; of two panels, the first one's."""
    lines = (TABLES / f"{name}.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {label: others for label, *others in reversed(rows)}


def brackets(cell: str) -> str:
    """Return the interval of a cell."""
    return "".join(re.findall(r"\[.*\]", cell))


def lead(profile: str, name: str) -> str:
    """Return the cell of PVeRA minus another component, empty where one was not run."""
    return cells(f"differences_{profile}").get(f"PVeRA − {TITLES[name]}", [""])[-1]


def is_level(cell: str, tie: float = 0.0) -> bool:
    """Return whether a cell has an interval that contains a tie, as it is printed."""
    bounds = [float(bound) for bound in re.findall(r"-?[\d.]+", brackets(cell).replace("−", "-"))]
    return bool(bounds) and bounds[0] <= tie <= bounds[1]


def cell(value: float, is_best: bool, is_level: bool) -> str:
    """Return a number, bold where it is the best, with ≈ where it is level with PVeRA's."""
    text = fixed(value, 1)
    return (f"**{text}**" if is_best else text) + (" ≈" if is_level else "")


def by_setting(corner: str, rows: list[list[str]]) -> str:
    """Return a table with a column for each setting."""
    titles = [heading(profile) for profile in settings()]
    return markdown_table([corner, *titles], rows, "l" + "c" * len(titles))


# The tables


def methods() -> str:
    """The accuracies of all methods in all settings, with their parameters on DINOv2 ViT-B/14."""
    costs = (
        numbers("cost").query("profile == 'paper' and backbone == 'dinov2_b'").set_index("method")
    )
    header = ["Method", "Parameters (thousands)", "Merges"]
    accuracies = {}
    for profile in settings():
        components = numbers(f"components_{profile.name}")
        components = components[components["component"].isin(SHOWN)]
        accuracies[profile.name] = components.groupby("component")["mean"].mean()

        seeds = "–".join(
            map(str, dict.fromkeys([components["runs"].min(), components["runs"].max()]))
        )
        header.append(
            f"{heading(profile)}: {components['dataset'].nunique()} data sets, {seeds} seeds"
        )

    rows = []
    by_first = next(iter(accuracies.values())).sort_values(ascending=False)
    for name in by_first.index:
        of_method = costs.loc[[VARIANTS[name][0] if name in VARIANTS else name]]
        sizes = of_method["adapter_parameters"].agg(["min", "max"]) / 1000
        row = [TITLES[name], "–".join(dict.fromkeys(f"{size:,.0f}" for size in sizes))]
        row.append("yes" if of_method["merged"].notna().all() else "no")
        for profile, means in accuracies.items():
            best = name in means and means[name] == means.max()
            row.append(
                cell(means[name], best, is_level(lead(profile, name))) if name in means else NOT_RUN
            )
        rows.append(row)
    return markdown_table(header, rows, "l" + "c" * (len(header) - 1))


def differences() -> str:
    """The three main differences with their intervals over seeds; bold where the one over data sets leaves out zero."""
    rows = []
    for claim in list(DIFFERENCES)[:3]:
        row = [DIFFERENCES[claim]]
        for profile in settings():
            effect, over_seeds, over_tasks, _ = cells(f"claims_components_{profile.name}")[claim]
            text = f"{effect.removesuffix(' points')} {brackets(over_seeds)}"
            row.append(
                text
                if over_tasks.startswith("inconclusive") or is_level(over_tasks)
                else f"**{text}**"
            )
        rows.append(row)
    return by_setting("Points of accuracy", rows)


def gain() -> str:
    """The differences of all components, with both intervals."""
    rows = []
    for claim, label in DIFFERENCES.items():
        row = [label]
        for profile in settings():
            effect, over_seeds, over_tasks, _ = cells(f"claims_components_{profile.name}")[claim]
            row.append(
                f"{effect.removesuffix(' points')} {brackets(over_seeds)} {brackets(over_tasks)}".strip()
            )
        rows.append(row)
    return by_setting("Points of accuracy", rows)


def leads() -> str:
    """PVeRA minus each other method, with intervals over seeds, and which methods are level with it."""
    others = [name for name in PAPER_METHODS if name != "pvera"]
    rows = [
        [
            f"PVeRA − {TITLES[name]}",
            *(lead(profile.name, name) or NOT_RUN for profile in settings()),
        ]
        for name in others
    ]
    ties = []
    for profile in settings():
        level = [TITLES[name] for name in others if is_level(lead(profile.name, name))]
        ties.append(f"on *{heading(profile)}* with {', '.join(level) or 'none'}")
    notes = f"An interval that contains zero is a tie. PVeRA is level {'; '.join(ties)}."
    return f"{by_setting('Points of accuracy', rows)}\n\n{notes}"


def calibration() -> str:
    """ACE of all methods; ≈ where the interval of the ratio to PVeRA's contains one."""
    columns = []
    for profile in settings():
        ratios = cells(f"calibration_{profile.name}")
        means = 100 * numbers(f"calibration_{profile.name}").set_index("method")["ace_mean"]
        columns.append(
            {
                name: cell(ace, ace == means.min(), is_level(ratios[title(name)][2], 1))
                for name, ace in means.items()
            }
        )
    rows = [
        [title(name), *(column.get(name, NOT_RUN) for column in columns)] for name in PAPER_METHODS
    ]
    return by_setting("ACE (%)", rows)


def official() -> str:
    """PVeRA − VeRA under both protocols."""
    shown = [
        profile
        for profile in settings()
        if (TABLES / f"claims_protocol_{profile.name}.md").exists()
    ]
    rows = [["Corrected protocol, equal tuning"], ["Official protocol, the paper's tuning"]]
    for profile in shown:
        corrected = cells(f"claims_components_{profile.name}")["PVeRA is more accurate than VeRA"]
        (as_official,) = (
            row
            for claim, row in cells(f"claims_protocol_{profile.name}").items()
            if "official" in claim
        )
        for row, (effect, over_seeds, *_) in zip(rows, (corrected, as_official), strict=True):
            row.append(
                f"{effect.removeprefix('PVeRA − VeRA: ').removesuffix(' points')} {brackets(over_seeds)}"
            )
    return markdown_table(
        ["PVeRA − VeRA, points", *(heading(profile) for profile in shown)], rows, "lcc"
    )


def contradictions() -> str:
    """The kinds of the audit's checks that some of the paper's printed numbers fail."""
    counts = audit.summary(audit.audit(published.load(RESULTS / "published")))
    failing = counts[counts[audit.CONTRADICTS] > 0]
    rows = [
        [kind.capitalize(), f"{row.sum():,}", str(row[audit.CONTRADICTS])]
        for kind, row in failing.iterrows()
    ]
    return markdown_table(["Checks of", "Number", "Contradicted"], rows, "lcc")


def trainings() -> str:
    """How long the trainings of the main experiments took."""
    runs = pd.read_csv(RESULTS / "runs.csv")
    rows = []
    for profile in settings():
        part = runs[
            (runs["profile"] == profile.name) & runs["experiment"].isin(["benchmark", *VARIANTS])
        ]
        devices = ", ".join(device.removeprefix("cpu: ") for device in sorted(set(part["device"])))
        rows.append(
            [heading(profile), f"{len(part):,}", fixed(part["seconds"].sum() / 3600, 1), devices]
        )
    return markdown_table(
        ["Setting", "Trainings", "Hours, one after the other", "Device"], rows, "lccl"
    )


def rows_of(name: str, labels: str = "") -> str:
    """Return a table of results/tables without its caption and notes, and of its rows those that begin with a label."""
    lines = (TABLES / f"{name}.md").read_text().splitlines()
    header, rule, *rows = [line for line in lines if line.startswith("|")]
    return "\n".join([header, rule, *(row for row in rows if row.startswith(f"| {labels}"))])


VIEWS = {
    "methods": methods,
    "differences": differences,
    "leads": leads,
    "gain": gain,
    "calibration": calibration,
    "rivals": partial(rows_of, "rivals_vtab_tiny"),
    "official": official,
    "rank": partial(rows_of, "rank_vtab_tiny", "Loss"),
    "position": partial(rows_of, "position_vtab_tiny", "Loss"),
    "contradictions": contradictions,
    "trainings": trainings,
}


def main() -> None:
    Parser(__doc__).parse_args()
    for page in PAGES:
        write_atomically(page, filled(page.read_text()))


if __name__ == "__main__":
    run_script(main)
