"""Passages of README.md and docs/ that hold numbers or verdicts, written from result tables.

A passage stands between `<!-- program: NAME -->` and `<!-- end -->`. NAME is a key of `PASSAGES`, or the Markdown file
of a table, which is put there whole. A marker that ends its line holds paragraphs, any other a few words.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.data import vtab
from pvera.data.suite import RECIPES
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report import audit, places, published
from pvera.report.audit import CONTRADICTS, FOLLOWS
from pvera.report.tables.duration import LIMIT
from pvera.report.tables.layout import interval, plain, signed
from pvera.report.tables.names import backbone_title, machine_title, switch_title
from pvera.report.tables.verdicts import FAILS, HOLDS, UNDECIDED, VERDICTS
from pvera.study import markdown, speed
from pvera.study.experiments import EXPERIMENTS
from pvera.study.profiles import Profile

PROFILE = "mini"
TABLES = f"results/{PROFILE}/tables"
MARKED = re.compile(r"<!-- program: (\S+) -->(\n?)(.*?)<!-- end -->", re.DOTALL)

#: The claims in short: topic, and how the claim begins. Of several that begin so, e.g. for 4 and 16 draws, the last.
PRIMARY = ("Components", "PVeRA is more accurate than VeRA")
EQUAL_BUDGET = ("Components", "PVeRA is more accurate than VeRA with an equal budget")
PARTS = {
    "The noise in training": ("Components", "The noise makes PVeRA more accurate"),
    "the KL term": ("Components", "The KL term makes PVeRA more accurate"),
}
OURS = "Not in the paper: "
CALIBRATED = ("Calibration", f"{OURS}PVeRA is better calibrated than VeRA")
SPREAD = ("Uncertainty", f"{OURS}the spread")
UNCERTAINTY = (CALIBRATED, SPREAD)
SMALL = 1.0  # points of accuracy
CLAIMS = (
    PRIMARY,
    EQUAL_BUDGET,
    ("Main table", "PVeRA has the highest average"),
    ("Main table", "Linear probing has the lowest average"),
    ("Cost", "PVeRA trains fewer numbers"),
    ("Cost", "Operations that PVeRA adds"),
    ("Calibration", "LoRA, VeRA and PVeRA are all better calibrated than the other adapters"),
    CALIBRATED,
    ("Uncertainty", "Incorrect predictions have the higher standard deviation"),
    SPREAD,
    ("Out-of-distribution detection", "PVeRA's values are lower in distribution (mean value)"),
    ("Language", "PVeRA is better than VeRA on average over the tasks of our own grammar"),
)
SWITCHES_SHOWN = 3  # of the ledger, the largest
VTAB = [task for task in TASKS.values() if task.suite == "vtab"]
CORES = 2  # of the machine that the text speaks of; runs are processes of one thread


def rewrite(text: str, root: Path, up: str = "") -> str:
    """Return a page with every passage written anew; up: the root as seen from the page, e.g. "../".

    InputError for an unknown passage, and for a table that is missing or lacks what a passage shows.
    """

    def passage(match: re.Match) -> str:
        name, line_ends, _ = match.groups()
        made = content(name, root, up)
        made = f"\n\n{made}\n\n" if line_ends else made
        return f"<!-- program: {name} -->{made}<!-- end -->"

    return MARKED.sub(passage, text)


def pages(root: Path) -> dict[Path, str]:
    """Return the pages with passages, each with the root as seen from it."""
    paths = {
        root / "README.md": "",
        root / "PROTOCOL.md": "",
        **dict.fromkeys(sorted((root / "docs").glob("*.md")), "../"),
    }
    return {path: up for path, up in paths.items() if path.exists() and MARKED.search(path.read_text("utf-8"))}


def content(name: str, root: Path, up: str) -> str:
    """Return the passage `name`."""
    if name.endswith(".md"):
        return _existing(root / name).read_text(encoding="utf-8").strip()
    if name not in PASSAGES:
        raise InputError(f"there is no passage {name!r}; there are: {', '.join(PASSAGES)}")
    return PASSAGES[name](root, up)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path}: missing; the notebooks make it: experiments/execute_notebooks.py")
    return path


# Claims


def claim(root: Path, topic: str, start: str) -> pd.Series:
    """Return the row of a claim: of its first backbone the one of `topic` that reads `start`, else the last one that
    begins so.
    """
    path = _existing(root / TABLES / "claims.csv")
    words = {"scale": "", "cut": ""}
    rows = pd.read_csv(path, dtype=dict.fromkeys(words, str)).fillna(words)
    if missing := {"verdict", "low", "high", "reading", "scale", "cut"} - set(rows):
        raise InputError(f"{path}: no column {min(missing)!r}; execute the notebooks anew")
    rows = rows[(rows["topic"] == topic) & rows["claim"].str.startswith(start)]
    if rows.empty:
        raise InputError(f"{path}: no claim {start!r} of {topic}; see CLAIMS in pvera/report/front_page.py")
    rows = rows[rows["backbone"] == rows["backbone"].iloc[0]]
    equal = rows[rows["claim"] == start]
    return (rows if equal.empty else equal).iloc[-1]


def claims(root: Path, up: str) -> str:
    """Return the table of the claims in short."""
    rows = []
    for topic, start in CLAIMS:
        row = claim(root, topic, start)
        word = f"**{row.verdict}**" if row.verdict in (HOLDS, FAILS) else row.verdict
        measured_on = ", ".join(filter(None, (backbone_title(row.backbone), row.cut)))
        effect = f"{row.reading}{_interval(row, ' ')}; {measured_on}"
        link = f"[{word}]({up}analysis/{row.notebook}.ipynb)"
        rows.append([markdown.escape(row.claim), link, markdown.escape(effect)])
    return markdown.table(["Claim", "Verdict here", "Effect [95 % interval]; measured on"], rows)


def _interval(row: pd.Series, before: str = "") -> str:
    """Return the interval with the decimals of the reading, after `before`; empty for a count."""
    if pd.isna(row.low):
        return ""
    decimals = re.search(r"\d\.(\d+)", row.reading)
    return f"{before}{interval(None, row.low, row.high, len(decimals[1]) if decimals else 1)}"


WORDS = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "is undecided"}


def verdict(root: Path, up: str) -> str:
    """Answer what a visitor asks first: whether PVeRA beats VeRA here, by what, what its uncertainty is worth, and how
    all claims fare.
    """
    row = claim(root, *PRIMARY)
    judged = pd.read_csv(root / TABLES / "claims.csv")
    counts = judged["verdict"].value_counts()
    hold, fail, undecided, untestable = (counts.get(kind, 0) for kind in VERDICTS)
    holding = judged[judged["verdict"] == HOLDS]
    counts_of_cost = holding[holding["low"].isna()]
    names = holding.drop(counts_of_cost.index)["claim"].str.removeprefix(OURS)
    measured = f"{len(names)} measured ({'; '.join(names)})" if len(names) else "none measured"
    accuracy = pd.read_csv(_existing(root / TABLES / "components.csv")).groupby("component")["mean"].mean()
    parts = "; ".join(f"{part}: {_effect(claim(root, *named))}" for part, named in PARTS.items())
    uncertainty = [claim(root, *named) for named in UNCERTAINTY]
    advice = pd.read_csv(_existing(root / TABLES / "rivals_advice.csv"))
    best = advice[advice["passes"] == "any"]
    told = "; ".join(f"for {row.purpose}: {row.best} ({row.ties} of {row.others})" for row in best.itertuples())
    among = advice["among"].iloc[0]
    holds = [
        f"At the scale run here, a {backbone_title(row.backbone)} on {row.scale.replace(', ', ' with ')}, the claim "
        f"that PVeRA beats VeRA, the method it extends, **{WORDS.get(row.verdict, row.verdict)}**: test accuracy "
        f"{plain(accuracy['pvera'], 1)} % against {plain(accuracy['vera'], 1)} %, {row.reading}, 95 % interval over "
        f"data sets {_interval(row)}.{_fragile(root)} With equal budgets for tuning: "
        f"{_effect(claim(root, *EQUAL_BUDGET))}.",
        *([] if _paper_was_run(root) else [NOT_RUN]),
    ]
    said = {
        "Does it hold?": " ".join(holds),
        "What in PVeRA does it?": f"{parts} ([components]({up}analysis/components.ipynb)).",
        "What is its uncertainty worth?": " ".join(
            f"That {one.claim.removeprefix(OURS)} **{WORDS.get(one.verdict, one.verdict)}**: "
            f"{one.reading}{_interval(one, ' ')}."
            for one in uncertainty
        )
        + f" Best on the test images of all ways tried with {among}, and how many others are statistically tied with "
        f"it: {told} ([table]({up}{TABLES}/rivals_advice.md)).",
        f"[{counts.sum()} claims]({up}{TABLES}/claims.md),": "the paper's and a few of our own: "
        f"{fail} fail, {undecided} are undecided, {untestable} cannot be tested here and {hold} hold: "
        f"{len(counts_of_cost)} exact counts of cost (of {counts_of_cost['claim'].nunique()} claims, some on two "
        f"backbones) and {measured}.",
    }
    return "\n".join(f"- **{question}** {answer}" for question, answer in said.items())


def _fragile(root: Path) -> str:
    """Say how often the primary verdict stays without one of the data sets; empty where the table does not."""
    text = _existing(root / TABLES / "components_claims.md").read_text("utf-8")
    said = re.search(r"Without one of the (\d+) tasks, the first verdict stays for (\d+)", text)
    return f" When one data set is left out, the verdict stays in {said[2]} of {said[1]} cases." if said else ""


def _effect(row: pd.Series) -> str:
    """Return a claim's effect on the accuracy, in words if it is as good as none, its interval, verdict and seeds."""
    seeds = f" ({row.scale.rpartition(', ')[2]})" if row.scale else ""
    if row.verdict != UNDECIDED:
        return f"{row.reading}{_interval(row, ' ')}, {row.verdict}{seeds}"
    if max(abs(row.low), abs(row.high)) < SMALL:
        return f"less than a point either way{_interval(row, ' ')}{seeds}"
    return f"{row.reading}{_interval(row, ' ')}, undecided, as the interval contains zero{seeds}"


NOT_RUN = "The paper's own experiment, DINOv2 on VTAB-1k, is ready to run but was not run: no GPU was at hand."


def _paper_was_run(root: Path) -> bool:
    return (root / "results/paper/benchmark").exists()


def scale(root: Path, up: str) -> str:
    """Return sentences on the scale and the limits of what was run."""
    row = claim(root, *PRIMARY)
    accuracies = published.load(root / "results/published").accuracies("dinov2_b")
    lead = (accuracies.loc["pvera"] - accuracies.loc["vera"]).mean()
    said = [
        f"The cells of the paper's table put PVeRA {plain(lead, 1)} points above VeRA, on {backbone_title('dinov2_b')} "
        f"and the {len(accuracies.columns)} data sets of VTAB-1k. Here, on {row.scale.replace(', ', ' with ')}, a true "
        f"difference of {plain(row.could_be_shown, 1)} points would be shown in 80 of 100 repetitions; a smaller one "
        "may stay undecided."
    ]
    if runs := re.search(r"\.ipynb\)\. (Profile .+)", _existing(root / TABLES / "claims.md").read_text("utf-8")):
        said.append(f"The main table's runs: {runs[1]}")
    if not _paper_was_run(root):
        said.append(NOT_RUN)
    return " ".join(said)


def duration(root: Path, up: str) -> str:
    """Return how long PVeRA and VeRA train, and what a limit on epochs would cost each."""
    data = pd.read_csv(_existing(root / TABLES / "duration.csv"))
    data = data[data["part"] == "Images"]
    of_methods = data.groupby("method").agg({"best": "median", "early_accuracy": "mean", "accuracy": "mean"})
    gain = 100 * (of_methods["accuracy"] - of_methods["early_accuracy"])
    place = of_methods["best"].rank(ascending=False, method="min")
    said = [
        f"{METHODS[name].title} has its best epoch at {of_methods['best'][name]:.0f} in the median (place "
        f"{place[name]:.0f} of {len(place)}, the slowest first) and gains {plain(gain[name], 1)} points of validation "
        f"accuracy beyond {LIMIT} epochs"
        for name in ("pvera", "vera")
    ]
    return f"Trained until patience ends, {'; '.join(said)}. [Duration]({up}analysis/duration.ipynb)."


# Audit and ledger


def findings(root: Path, up: str) -> str:
    """Return what the audit found: how many checks follow, and each kind of contradiction with an example."""
    table = pd.read_csv(_existing(root / "results/published/audit.csv"), keep_default_na=False)
    wrong = table[table["verdict"] == CONTRADICTS]
    rows = []
    for check, part in wrong.groupby("check", sort=False):
        first = part.iloc[0]
        example = map(markdown.escape, (first.place, f"printed {first.printed}, recomputed {first.recomputed}"))
        rows.append([check, str(len(part)), "; ".join(example)])
    shown = markdown.table(["Printed thing", "Count", "One of them"], rows, "lcl")
    text = (
        f"Of {len(table)} checks of printed numbers against each other, {(table['verdict'] == FOLLOWS).sum()} follow "
        f"and {len(wrong)} [do not]({up}results/published/audit.md)."
    )
    exchanged = wrong["note"].str.extract(r"if (\w+) and (\w+) exchanged stars, (\d+) instead of (\d+) stars").dropna()
    if len(exchanged):
        one, other, after, before = exchanged.iloc[0]
        place = wrong.loc[exchanged.index[0], "place"].split(",")[0]
        text += (
            f" In {place}, {before} stars do not follow; if the columns of {one} and {other} exchanged theirs, {after} "
            "would be left."
        )
    return f"{text}\n\n{shown}"


def ledger(root: Path, up: str) -> str:
    """Return what the protocol ledger found: its size, and the effect of all switches and of the largest ones."""
    table = pd.read_csv(_existing(root / TABLES / "protocol.csv"))
    wide = table.set_index(["switch", "metric"])
    profile = Profile.read(root / f"experiments/profiles/{PROFILE}.yaml")
    measured_on = " and ".join(TASKS[name].title for name in profile.effects.datasets)
    accuracy = table[(table["metric"] == "accuracy") & table["beyond"].astype(bool)].set_index("switch")["mean"]
    largest = accuracy.drop("published", errors="ignore").abs().nlargest(SWITCHES_SHOWN).index
    rows = []
    for name in ["published", *largest]:
        cells = []
        for metric in ("accuracy", "ece"):
            row = wide.loc[(name, metric)]
            cells.append(f"{signed(row['mean'], 1)} ({signed(row.low, 1)} to {signed(row.high, 1)})")
        rows.append([switch_title(name), *cells])
    shown = markdown.table(["What the published program does", "Accuracy (points)", "ECE (points)"], rows, "lcc")
    return (
        f"Paper and published program differ, or leave open what they do, in 29 points; [the ledger]"
        f"({up}PROTOCOL.md) lists them, and 15 switches measure them one at a time. The largest effects "
        f"of `{PROFILE}` that a change of random numbers does not explain, on {measured_on} alone, with 95 % intervals "
        f"over {wide['pairs'].iloc[0]} seeds, not over data sets:\n\n{shown}"
    )


# Times


def _hours(root: Path, suite: str) -> str:
    """Return the hours that the recorded runs on a suite's data sets take on `CORES` cores."""
    spent = pd.read_csv(_existing(root / TABLES / "spent.csv"))
    of_suite = spent["dataset"].map(lambda name: TASKS[name].suite == suite)
    return plain(spent.loc[of_suite, "seconds"].sum() / 3600 / CORES, 1)


def _minutes(root: Path, command: str) -> str:
    """Return the minutes that a command took, on the machines that it was measured on."""
    spent = pd.read_csv(root / "results/performance/commands.csv").set_index("command").loc[[command]]
    return f"{spent['from_minutes'].min()} to {spent['to_minutes'].max()} minutes"


def expected(root: Path, up: str) -> str:
    """Return the averages that `demo` ends with, in words."""
    averages = pd.read_csv(root / "results/performance/demo.csv").sort_values("average", ascending=False)
    words = [f"{row.average} for {METHODS[row.method].title}" for row in averages.itertuples()]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def decoded(root: Path, up: str) -> str:
    """Return the size of VTAB-1k's images, decoded once to 224 pixels."""
    images = sum(task.test_images + vtab.TRAINING["train800val200"] for task in VTAB)
    return f"{images * 224 * 224 * 3 / 1e9:.0f} GB"


def runs(root: Path, profile: str) -> str:
    """Return the table of a profile's runs by experiment."""
    plan = Profile.read(root / f"experiments/profiles/{profile}.yaml")
    counts = {name: len(plan.runs(name, "results")) for name in plan.experiments}
    rows = [
        [f"`{name}`", EXPERIMENTS[name].about, EXPERIMENTS[name].paper or "–", str(count)]
        for name, count in counts.items()
        if count
    ]
    return markdown.table(["Experiment", "What", "In the paper", "Runs"], rows, "lllr")


def ratios(root: Path, up: str) -> str:
    """Return the tables of speed, one per precision: time over bound, a column per backbone and machine."""
    columns = {}
    for record in speed.load_records(root / "results/performance"):
        for backbone, rows in speed.by_backbone(record).items():
            rows = rows[rows["part"].isin(["step", "evaluate", "sample", "probe", "peft", "compile"])]
            rows = rows[~rows["what"].str.startswith("memory")]
            columns[f"{backbone_title(backbone)}, {machine_title(record)}"] = rows.set_index(
                ["precision", "what", "bound"]
            )["ratio"]
    table = pd.DataFrame(columns)
    table = table.loc[list(dict.fromkeys(key for column in columns.values() for key in column.index))]
    shown = []
    for precision, part in table.groupby(level="precision", sort=False):
        rows = [
            [markdown.escape(what), bound.replace("frozen ", ""), *(plain(ratio, 2) for ratio in ratios_of_row)]
            for (_, what, bound), ratios_of_row in zip(part.index, part.to_numpy(), strict=True)
        ]
        shown.append(f"**{precision}**")
        shown.append(markdown.table(["Time of", "Bound", *part.columns], rows, "ll" + "c" * len(part.columns)))
    return "\n\n".join(shown)


def targets(root: Path, up: str) -> str:
    """Return how many targets each machine meets."""
    records = speed.load_records(root / "results/performance")
    return "\n".join(f"- {machine_title(record)}: {speed.verdict(record)}" for record in records)


def suite(root: Path, up: str) -> str:
    """Return the table of the demonstration suite's tasks."""
    rows = [[recipe.title, recipe.category, str(len(recipe.classes)), recipe.measures] for recipe in RECIPES.values()]
    return markdown.table(["Task", "Category", "Classes", "What it measures"], rows)


def checks(root: Path, up: str) -> str:
    """Return the audit's table of verdicts by kind of check."""
    table = pd.read_csv(_existing(root / "results/published/audit.csv"), keep_default_na=False)
    return audit.table(audit.summary(table).reset_index())


PASSAGES: dict[str, Callable[[Path, str], str]] = {
    "verdict": verdict,
    "claims": claims,
    "scale": scale,
    "duration": duration,
    "audit": findings,
    "checks": checks,
    "ledger": ledger,
    "hours": lambda root, up: _hours(root, "demo"),
    "hours_text": lambda root, up: _hours(root, "grammar"),
    "hours_glue": lambda root, up: _hours(root, "glue"),
    "minutes_demo": lambda root, up: _minutes(root, "bash run_all.sh"),
    "minutes_tests": lambda root, up: _minutes(root, "bash run_tests.sh"),
    "expected": expected,
    "decoded": decoded,
    "runs_paper": lambda root, up: runs(root, "paper"),
    "runs_mini": lambda root, up: runs(root, "mini"),
    "speed": ratios,
    "targets": targets,
    "suite": suite,
    "places": lambda root, up: places.listing(root, PROFILE, up),
    "pictures": lambda root, up: places.pictures(root, PROFILE, up),
}
