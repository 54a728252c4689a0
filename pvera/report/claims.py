"""The registry of claims, the paper's and our own, and their verdicts on a report's results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.files import write_atomically
from pvera.report import analyses
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import NOTHING, Table, markdown_table, pivot_text
from pvera.report.tables import ablations, components, language, latents
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables import uncertainty as samples
from pvera.report.tables.verdicts import (
    RULE,
    UNTESTABLE,
    Claim,
    Judgement,
    Measure,
    judge,
    lead,
    not_tested,
)

#: What contrasts compare, by setting.
Results = Mapping[Setting, Any]

# What claims are judged on


def load_accuracy(files: ResultFiles) -> Results:
    """Return test accuracies (%) per component."""
    loaded = components.load(files)
    return {setting: components.values(runs) for setting, runs in loaded.items()}


def load_calibration(files: ResultFiles) -> Results:
    """Return ACE (points) per component with a minus sign: the higher, the better."""
    loaded = components.load(files)
    return {setting: -components.values(runs, "ace") for setting, runs in loaded.items()}


def load_official(files: ResultFiles) -> Results:
    """Return test accuracies (%) under the official code's protocol."""
    return {setting: 100 * score_frame(runs) for setting, runs in files.read("official").items()}


def load_position(files: ResultFiles) -> Results:
    """Return the best validation losses of each choice of target projections."""
    loaded = ablations.read(files, "targets")
    return {setting: ablations.losses(runs, "targets") for setting, runs in loaded.items()}


def load_tasks(files: ResultFiles) -> Results:
    """Return how well the samples find the errors of each data set."""
    loaded = files.read("uncertainty", analyses.load_analyses)
    return {setting: samples.by_task(analysed) for setting, analysed in loaded.items()}


def load_samples(files: ResultFiles) -> Results:
    """Return the samples of adapters, with the predictions of one pass."""
    return files.read("uncertainty", analyses.load_uncertainty)


def load_out_of_distribution(files: ResultFiles) -> Results:
    """Return the comparisons of latents in and out of distribution."""
    loaded = files.read("out_of_distribution", ood.load_values)
    return {setting: ood.comparisons(values) for setting, values in loaded.items()}


def load_focus(files: ResultFiles) -> Results:
    """Return how well latents find the object in an image."""
    return files.read("focus", analyses.load_analyses)


def load_text(files: ResultFiles) -> Results:
    """Return scores (%) on GLUE, and those of the majority class.

    Where a task has trainings on all its texts, they alone count.
    """
    full = files.read("full_sets", text=True)
    scores = {}
    for setting, benchmark in files.read("benchmark", text=True).items():
        runs = full.get(setting, [])
        on_all_texts = {run["dataset"] for run in runs}
        runs = [run for run in benchmark if run["dataset"] not in on_all_texts] + runs

        frame = 100 * score_frame(runs, language.score)
        majority = language.majority_class(files.root, runs)
        datasets = frame.index.get_level_values("dataset")
        scores[setting] = frame.assign(majority=100 * datasets.map(majority))
    return scores


# The registry


@dataclass(frozen=True)
class Topic:
    """Claims that are judged on the same results."""

    #: Their name in claims.csv.
    name: str
    #: Where the paper has them.
    place: str
    #: The notebook that shows them.
    notebook: str
    #: The command that makes the results.
    command: str
    #: Returns what contrasts compare.
    load: Callable[[ResultFiles], Results]
    #: The claims.
    claims: tuple[Claim, ...]


#: The place of a claim that is not the paper's.
OURS = "not in the paper"
#: The paper's methods that PVeRA is compared with.
OTHERS = tuple(name for name in PAPER_METHODS if name != "pvera")

POINTS = Measure("{signed} points")
ACE = Measure("ACE lower by {signed} points")
NATS = Measure("{signed} nats", digits=3)
AUROC = Measure("AUROC {signed}", digits=3)
ABOVE_CHANCE = Measure("AUROC − ½: {signed}", digits=3)
#: Differences of logarithms read as ratios.
RATIO = Measure("{size} times as wide", digits=2, convert=lambda log: float(np.exp(log)))

ACCURACY = Topic(
    name="Accuracy",
    place="Table 1",
    notebook="components",
    command="train.py",
    load=load_accuracy,
    claims=(
        Claim(
            "PVeRA is more accurate than VeRA",
            components.difference("PVeRA − VeRA"),
            POINTS,
        ),
        Claim(
            "The noise makes PVeRA more accurate (β = 0)",
            components.difference("noise − no noise (β = 0)"),
            POINTS,
            place=OURS,
        ),
        Claim(
            "PVeRA is more accurate than VeRA with latent dropout",
            components.difference("PVeRA − VeRA with latent dropout"),
            POINTS,
            margin=1,
            place=OURS,
        ),
        Claim(
            "VeRA is more accurate with latent dropout",
            components.difference("VeRA with latent dropout − VeRA"),
            POINTS,
            place=OURS,
            page=False,
        ),
        Claim(
            "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)",
            components.difference("σ learned − σ = 1 (β = 0)"),
            POINTS,
            margin=1,
            place=OURS,
        ),
        Claim(
            "The KL term makes PVeRA more accurate",
            components.difference("with KL term − without"),
            POINTS,
            margin=1,
            place=OURS,
        ),
        Claim(
            "PVeRA has the highest average",
            lead("pvera", *OTHERS),
            POINTS,
        ),
    ),
)
CALIBRATION = Topic(
    name="Calibration",
    place="Section 4.3, Figure 4",
    notebook="calibration",
    command="train.py",
    load=load_calibration,
    claims=(
        Claim(
            "PVeRA is better calibrated than VeRA",
            components.difference("PVeRA − VeRA"),
            ACE,
        ),
        Claim(
            "PVeRA is better calibrated than VeRA with latent dropout",
            components.difference("PVeRA − VeRA with latent dropout"),
            ACE,
            place=OURS,
        ),
    ),
)
OFFICIAL = Topic(
    name="Official protocol",
    place="Table 1",
    notebook="protocol",
    command="train.py --experiments official",
    load=load_official,
    claims=(
        Claim(
            "PVeRA is more accurate than VeRA under the official protocol",
            lead("pvera", "vera"),
            POINTS,
        ),
    ),
)
POSITION = Topic(
    name="Position",
    place="Table 3",
    notebook="rank_and_position",
    command="train.py --experiments position",
    load=load_position,
    claims=(
        Claim(
            "QV has the lowest loss",
            ablations.lower("targets", "qv"),
            NATS,
        ),
    ),
)
UNCERTAINTY_BY_TASK = Topic(
    name="Uncertainty by task",
    place="Section 4.3, Figure 5",
    notebook="uncertainty",
    command="analyse.py --experiments uncertainty",
    load=load_tasks,
    claims=(
        Claim(
            "The predictive standard deviation of 16 samples marks errors",
            samples.marks_errors,
        ),
    ),
)
UNCERTAINTY = Topic(
    name="Uncertainty",
    place="Section 4.3, Figure 5",
    notebook="uncertainty",
    command="analyse.py --experiments uncertainty",
    load=load_samples,
    claims=(
        Claim(
            "16 samples find incorrect predictions better than the score of one pass",
            samples.gain(16),
            AUROC,
            place=OURS,
        ),
    ),
)
INTERVALS = Topic(
    name="Intervals",
    place="Appendix C",
    notebook="intervals",
    command="analyse.py --experiments uncertainty",
    load=load_samples,
    claims=(
        Claim(
            "Over all images, incorrect predictions have the wider intervals, 16 samples "
            "(paper: 2.65 times as wide)",
            samples.times_as_wide(16),
            RATIO,
            units="seeds",
            page=False,
        ),
    ),
)
OUT_OF_DISTRIBUTION = Topic(
    name="Out of distribution",
    place="Section 4.4, Figure 6",
    notebook="out_of_distribution",
    command="analyse.py --experiments out_of_distribution",
    load=load_out_of_distribution,
    claims=(
        Claim(
            "PVeRA's values are lower in distribution (norm)",
            ood.separation("norm"),
            ABOVE_CHANCE,
            units="models",
        ),
        Claim(
            "PVeRA's values separate better than VeRA's (norm)",
            ood.separation("norm", "vera"),
            AUROC,
            units="models",
            page=False,
        ),
    ),
)
LATENTS = Topic(
    name="Latents",
    place="Section 4.4, Figure 7",
    notebook="latents",
    command="analyse.py --experiments focus",
    load=load_focus,
    claims=(
        Claim(
            "PVeRA's latents focus more on the object in an image than VeRA's",
            latents.more_focused("vera"),
            AUROC,
        ),
    ),
)
TEXT = Topic(
    name="Text",
    place="Appendix D, Table 5",
    notebook="language",
    command="train.py --profile text",
    load=load_text,
    claims=(
        Claim(
            "PVeRA is better than VeRA on average over the tasks of GLUE that LoRA learns",
            language.ahead("vera"),
            POINTS,
            page=False,
        ),
    ),
)

TOPICS = (
    ACCURACY,
    CALIBRATION,
    OFFICIAL,
    POSITION,
    UNCERTAINTY_BY_TASK,
    UNCERTAINTY,
    INTERVALS,
    OUT_OF_DISTRIBUTION,
    LATENTS,
    TEXT,
)

# Judging and showing them

#: Column of the rows of `judged` -> its title in a notebook.
SHOWN = {
    "reading": "Effect",
    "fixed_tasks": "Fixed tasks",
    "random_tasks": "Random tasks",
    "scale": "Scale",
}
#: Columns of a topic, before those of a judgement, in claims.csv.
TOPIC_COLUMNS = ["topic", "place", "notebook", "setting"]
#: Further columns of `judged` that no CSV file has.
TEXT_COLUMNS = ["page", "fixed_tasks", "random_tasks"]


def judged(files: ResultFiles, *notebooks: str) -> pd.DataFrame:
    """Judge claims in every setting with results.

    Args:
        files: The result files.
        notebooks: Names of those whose claims are judged; without any, all.

    Returns:
        A row per claim and setting: `TOPIC_COLUMNS` (setting None without results), the columns of
        `Judgement.row`, and `TEXT_COLUMNS`. A claim without results is not tested; its reading has
        the command that makes them.
    """
    rows = []
    for topic in TOPICS:
        if notebooks and topic.notebook not in notebooks:
            continue
        results = topic.load(files)
        for setting, data in results.items():
            rows += [_row(topic, setting, judge(claim, data)) for claim in topic.claims]
        if not results:
            reason = f"no results: python experiments/{topic.command}"
            rows += [_row(topic, None, not_tested(claim, reason)) for claim in topic.claims]
    return pd.DataFrame(rows)


def _row(topic: Topic, setting: Setting | None, judgement: Judgement) -> dict[str, Any]:
    claim = judgement.claim
    return {
        "topic": topic.name,
        "place": claim.place or topic.place,
        "notebook": topic.notebook,
        "setting": setting,
        **judgement.row(),
        "page": claim.page,
        "fixed_tasks": judgement.fixed_tasks.write(claim.measure.digits),
        "random_tasks": judgement.random_tasks.write(claim.measure.digits),
    }


def tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
    """Build the table of a notebook's claims in each setting."""
    rows = judged(files, notebook)
    rows = rows[rows["setting"].notna()]
    built = {}
    for setting in dict.fromkeys(rows["setting"]):
        part = rows[rows["setting"] == setting]
        cells = part.set_index("claim")[list(SHOWN)].rename(columns=SHOWN)
        built[setting] = Table(
            f"claims_{notebook}",
            "The claims, judged. docs/synthetic.md says how intervals and verdicts are made.",
            {"": cells.replace("", NOTHING)},
            data=part.drop(columns=[*TOPIC_COLUMNS, *TEXT_COLUMNS]),
        )
    return built


def page(rows: pd.DataFrame, columns: list[str], notebooks: str) -> str:
    """Return the page of claims without its title.

    Args:
        rows: Rows of `judged`.
        columns: The profiles that have a column.
        notebooks: Folder of the notebooks, as seen from the page.
    """
    rows = rows[rows["page"] & rows["setting"].notna()]
    rows = rows[[setting.profile in columns for setting in rows["setting"]]]
    if rows.empty:
        return f"{RULE}\n"

    links = [
        f"[{row.claim}]({notebooks}{row.notebook}.ipynb) ({row.place})" for row in rows.itertuples()
    ]
    rows = rows.assign(link=links, column=[setting.title for setting in rows["setting"]])
    cells = pivot_text(rows, "link", "column", _cell)
    header = ["Claim", *cells.columns]
    body = [[link, *cells.loc[link]] for link in cells.index]
    note = (
        f"{NOTHING}: not asked there. Intervals are not corrected for the number of claims. "
        "Further claims stand in the notebooks, to which the links lead."
    )
    return "\n\n".join([markdown_table(header, body), RULE, note]) + "\n"


def _cell(row: pd.Series) -> str:
    """Return effect, scale, and the verdict of each scope that applies, in lines."""
    if row["seeds_verdict"] == UNTESTABLE:
        return f"{UNTESTABLE}: {row['reading']}"
    lines = [f"{row['reading']} ({row['scale']})"]
    for scope in ("fixed_tasks", "random_tasks"):
        if row[scope] != NOTHING:
            lines.append(f"{SHOWN[scope].lower()}: {row[scope]}")
    return "<br>".join(lines)


def write(rows: pd.DataFrame, columns: list[str], folder: Path, notebooks: str) -> None:
    """Write the page and the rows of `judged` to <folder>/claims.md and claims.csv.

    Args:
        rows: Rows of `judged`.
        columns: The profiles that have a column on the page.
        folder: Of both files.
        notebooks: Folder of the notebooks, as seen from the page.
    """
    write_atomically(folder / "claims.md", f"# The claims\n\n{page(rows, columns, notebooks)}")

    titles = [setting.title if setting else "" for setting in rows["setting"]]
    data = rows.assign(setting=titles).drop(columns=TEXT_COLUMNS)
    numbers = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(folder / "claims.csv", numbers)
