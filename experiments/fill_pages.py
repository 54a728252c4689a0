"""Fill the tables of README.md, docs/findings.md and PROTOCOL.md from results/.

    python experiments/fill_pages.py

A page holds `<!-- program: NAME -->` and `<!-- end -->`, and between them what this script writes.
NAME is one of `VIEWS` below, or the Markdown file of a table. Notebooks make the tables in
results/.
"""

import re
from functools import cache
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
#: The methods that PVeRA is compared with.
OTHERS = [name for name in PAPER_METHODS if name != "pvera"]
POINTS = "Points of accuracy"

#: Claim of the notebook `components` -> the difference behind it.
DIFFERENCES = {
    "PVeRA is more accurate than VeRA": "PVeRA − VeRA",
    "The noise makes PVeRA more accurate (β = 0)": "PVeRA with noise − without (β = 0)",
    "PVeRA is more accurate than VeRA with latent dropout": "PVeRA − VeRA with latent dropout",
    "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)": (
        "σ learned − σ = 1 (β = 0)"
    ),
    "VeRA is more accurate with latent dropout": "VeRA with latent dropout − VeRA",
    "The KL term makes PVeRA more accurate": "with KL term − without",
}
#: Those of the front page.
MAIN = list(DIFFERENCES)[:3]


def main() -> None:
    """Fill the pages."""
    Parser(__doc__).parse_args()
    for page in PAGES:
        write_atomically(page, filled(page.read_text()))


def filled(page: str) -> str:
    """Return the page with each marked table made from the results."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{table(mark[2])}\n\n{mark[3]}", page)


def table(name: str) -> str:
    """Return the text between the marks of `name`; results that are missing are named."""
    try:
        text = VIEWS[name]() if name in VIEWS else (ROOT / name).read_text()
    except FileNotFoundError as error:
        text = f"*No results yet: `{Path(error.filename).relative_to(ROOT)}`.*"
    return text.strip()


# Reading tables


@cache
def settings() -> list[Profile]:
    """Return the profiles of the report that compare components, in its order."""
    profiles = read_profiles(ROOT, read_report(ROOT).profiles)
    return [profile for profile in profiles if (TABLES / f"components_{profile.name}.csv").exists()]


def heading(profile: Profile) -> str:
    """Return the title of a setting without its remark in brackets."""
    return (profile.title or profile.name).partition(" (")[0]


@cache
def numbers(name: str) -> pd.DataFrame:
    """Return the CSV file of a table."""
    return pd.read_csv(TABLES / f"{name}.csv")


# From Markdown, so that pages print what the tables print: the six digits of a CSV file, rounded
# again, can give another last digit.
@cache
def cells(name: str) -> dict[str, list[str]]:
    """Return the rows of a Markdown table as label -> other cells; of two panels, the first."""
    lines = (TABLES / f"{name}.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {label: others for label, *others in reversed(rows)}


def brackets(cell: str) -> str:
    """Return the interval of a cell."""
    return "".join(re.findall(r"\[.*\]", cell))


def is_level(cell: str, tie: float = 0.0) -> bool:
    """Return whether a cell has an interval, as printed, that contains a tie."""
    bounds = [float(bound) for bound in re.findall(r"-?[\d.]+", brackets(cell).replace("−", "-"))]
    return bool(bounds) and bounds[0] <= tie <= bounds[1]


def lead(profile: str, name: str) -> str:
    """Return the cell of PVeRA minus another component; empty where that was not run."""
    return cells(f"differences_{profile}").get(f"PVeRA − {TITLES[name]}", [""])[-1]


def claimed(profile: Profile, claim: str) -> tuple[str, str, str]:
    """Return the effect of a claim on components, and its cells over seeds and data sets."""
    effect, over_seeds, over_datasets, _ = cells(f"claims_components_{profile.name}")[claim]
    return effect.removesuffix(" points"), over_seeds, over_datasets


# Writing tables


def cell(value: float, is_best: bool, is_level: bool) -> str:
    """Return a number, bold where it is the best, with ≈ where it is level with PVeRA's."""
    text = fixed(value, 1)
    if is_best:
        text = f"**{text}**"
    return f"{text} ≈" if is_level else text


def by_setting(corner: str, rows: dict[str, list[str]]) -> str:
    """Return a table with a column for each setting.

    Args:
        corner: Title of the first column.
        rows: Label -> a cell per setting.
    """
    titles = [heading(profile) for profile in settings()]
    body = [[label, *texts] for label, texts in rows.items()]
    return markdown_table([corner, *titles], body, "l" + "c" * len(titles))


def methods() -> str:
    """Return the accuracies of all methods, with their parameters on DINOv2 ViT-B/14."""
    header = ["Method", "Parameters (thousands)", "Merges"]
    accuracies = {}
    for profile in settings():
        components = numbers(f"components_{profile.name}")
        shown = components[components["component"].isin([*PAPER_METHODS, "latent_dropout"])]
        accuracies[profile.name] = shown.groupby("component")["mean"].mean()
        seeds = _range(shown["runs"].min(), shown["runs"].max())
        datasets = shown["dataset"].nunique()
        header.append(f"{heading(profile)}: {datasets} data sets, {seeds} seeds")

    rows = []
    by_first = next(iter(accuracies.values())).sort_values(ascending=False)
    for name in by_first.index:
        row = [TITLES[name], *_costs(name)]
        for key, means in accuracies.items():
            text = NOT_RUN
            if name in means:
                is_best = means[name] == means.max()
                text = cell(means[name], is_best, is_level(lead(key, name)))
            row.append(text)
        rows.append(row)
    return markdown_table(header, rows, "l" + "c" * (len(header) - 1))


def _costs(component: str) -> tuple[str, str]:
    """Return the trainable parameters (thousands) of a component, and whether it merges."""
    method = VARIANTS[component][0] if component in VARIANTS else component
    costs = numbers("cost").query("profile == 'paper' and backbone == 'dinov2_b'")
    costs = costs[costs["method"] == method]
    sizes = costs["adapter_parameters"] / 1000
    merges = "yes" if costs["merged"].notna().all() else "no"
    return _range(f"{sizes.min():,.0f}", f"{sizes.max():,.0f}"), merges


def _range(least: object, most: object) -> str:
    """Return "3–5", or "3" where both are equal."""
    return str(least) if least == most else f"{least}–{most}"


def differences() -> str:
    """Return the main differences with their intervals over seeds.

    They are bold where the interval over data sets leaves out zero.
    """
    rows = {
        DIFFERENCES[claim]: [_difference(profile, claim) for profile in settings()]
        for claim in MAIN
    }
    return by_setting(POINTS, rows)


def _difference(profile: Profile, claim: str) -> str:
    effect, over_seeds, over_datasets = claimed(profile, claim)
    text = f"{effect} {brackets(over_seeds)}"
    is_open = over_datasets.startswith("inconclusive") or is_level(over_datasets)
    return text if is_open else f"**{text}**"


def gain() -> str:
    """Return the differences of all components, with both intervals."""
    rows = {
        label: [_with_both_intervals(profile, claim) for profile in settings()]
        for claim, label in DIFFERENCES.items()
    }
    return by_setting(POINTS, rows)


def _with_both_intervals(profile: Profile, claim: str) -> str:
    effect, over_seeds, over_datasets = claimed(profile, claim)
    return f"{effect} {brackets(over_seeds)} {brackets(over_datasets)}".strip()


def leads() -> str:
    """Return PVeRA minus each other method over seeds, and the methods that are level with it."""
    profiles = [profile.name for profile in settings()]
    rows = {
        f"PVeRA − {TITLES[name]}": [lead(profile, name) or NOT_RUN for profile in profiles]
        for name in OTHERS
    }
    ties = []
    for profile in settings():
        level = [TITLES[name] for name in OTHERS if is_level(lead(profile.name, name))]
        ties.append(f"on *{heading(profile)}* with {', '.join(level) or 'none'}")
    notes = f"An interval that contains zero is a tie. PVeRA is level {'; '.join(ties)}."
    return f"{by_setting(POINTS, rows)}\n\n{notes}"


def calibration() -> str:
    """Return ACE of all methods; ≈ where the interval of the ratio to PVeRA's contains one."""
    rows: dict[str, list[str]] = {title(name): [] for name in PAPER_METHODS}
    for profile in settings():
        ratios = cells(f"calibration_{profile.name}")
        table = numbers(f"calibration_{profile.name}").set_index("method")
        means = 100 * table["ace_mean"]
        for name in PAPER_METHODS:
            text = NOT_RUN
            if name in means:
                is_best = means[name] == means.min()
                text = cell(means[name], is_best, is_level(ratios[title(name)][2], tie=1))
            rows[title(name)].append(text)
    return by_setting("ACE (%)", rows)


def official() -> str:
    """Return PVeRA − VeRA under both protocols."""
    header = ["PVeRA − VeRA, points"]
    corrected = ["Corrected protocol, equal tuning"]
    official = ["Official protocol, the paper's tuning"]
    for profile in settings():
        if not (TABLES / f"claims_protocol_{profile.name}.md").exists():
            continue
        header.append(heading(profile))
        effect, over_seeds, _ = claimed(profile, "PVeRA is more accurate than VeRA")
        corrected.append(f"{effect} {brackets(over_seeds)}")

        claims = cells(f"claims_protocol_{profile.name}")
        ((effect, over_seeds, *_),) = (row for claim, row in claims.items() if "official" in claim)
        effect = effect.removeprefix("PVeRA − VeRA: ").removesuffix(" points")
        official.append(f"{effect} {brackets(over_seeds)}")
    return markdown_table(header, [corrected, official], "lcc")


def contradictions() -> str:
    """Return the kinds of the audit's checks that some of the paper's printed numbers fail."""
    counts = audit.summary(audit.audit(published.load(RESULTS / "published")))
    failing = counts[counts[audit.CONTRADICTS] > 0]
    rows = [
        [kind.capitalize(), f"{row.sum():,}", str(row[audit.CONTRADICTS])]
        for kind, row in failing.iterrows()
    ]
    return markdown_table(["Checks of", "Number", "Contradicted"], rows, "lcc")


def trainings() -> str:
    """Return how long the trainings of the main experiments took."""
    runs = pd.read_csv(RESULTS / "runs.csv")
    runs = runs[runs["experiment"].isin(["benchmark", *VARIANTS])]
    rows = []
    for profile in settings():
        part = runs[runs["profile"] == profile.name]
        hours = part["seconds"].sum() / 3600
        devices = ", ".join(device.removeprefix("cpu: ") for device in sorted(set(part["device"])))
        rows.append([heading(profile), f"{len(part):,}", fixed(hours, 1), devices])
    header = ["Setting", "Trainings", "Hours, one after the other", "Device"]
    return markdown_table(header, rows, "lccl")


def rows_of(name: str, label: str = "") -> str:
    """Return the rows of a table that begin with a label, without its caption and notes."""
    lines = (TABLES / f"{name}.md").read_text().splitlines()
    header, rule, *rows = [line for line in lines if line.startswith("|")]
    return "\n".join([header, rule, *(row for row in rows if row.startswith(f"| {label}"))])


#: Name of a mark -> the function that returns its table.
VIEWS = {
    "methods": methods,
    "differences": differences,
    "leads": leads,
    "gain": gain,
    "calibration": calibration,
    "rivals": lambda: rows_of("rivals_vtab_tiny"),
    "official": official,
    "rank": lambda: rows_of("rank_vtab_tiny", "Loss"),
    "position": lambda: rows_of("position_vtab_tiny", "Loss"),
    "contradictions": contradictions,
    "trainings": trainings,
}


if __name__ == "__main__":
    run_script(main)
