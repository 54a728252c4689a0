"""The registry of claims, the paper's and our own, and their verdicts on a report's results."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.files import write_atomically
from pvera.report import analyses
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import NOTHING, Table, interval, markdown_table, pivot_text
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

#: What claims compare, by setting.
Results = Mapping[Setting, Any]

# What claims are judged on


def load_accuracy(files: ResultFiles) -> Results:
    """Return test accuracies (%) per component."""
    loaded = components.load(files)
    return {setting: components.values(each.runs) for setting, each in loaded.items()}


def load_calibration(files: ResultFiles) -> Results:
    """Return ACE (points) per component with a minus sign: the higher, the better."""
    loaded = components.load(files)
    return {setting: -components.values(each.runs, "ace") for setting, each in loaded.items()}


def load_official(files: ResultFiles) -> Results:
    """Return test accuracies (%) under the official code's protocol."""
    return {setting: 100 * score_frame(runs) for setting, runs in files.read("official").items()}


def load_position(files: ResultFiles) -> Results:
    """Return the best validation losses of each choice of target projections."""
    loaded = ablations.read(files, "targets")
    return {setting: ablations.losses(runs, "targets") for setting, runs in loaded.items()}


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
    #: Returns what the claims compare.
    load: Callable[[ResultFiles], Results]
    #: The claims.
    claims: tuple[Claim, ...]
    #: The command that makes the results.
    command: str = "train.py"


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


def about(key: str, place: str = OURS, **options: Any) -> Claim:
    """Return the claim on a contrast of accuracies; options: of `Claim`."""
    compare = partial(components.difference, key=key)
    return Claim(components.CONTRASTS[key].claim, compare, POINTS, place=place, **options)


ACCURACY = Topic(
    name="Accuracy",
    place="Table 1",
    notebook="components",
    load=load_accuracy,
    claims=(
        about("pvera", place=""),
        about("noise"),
        about("latent_dropout", margin=1),
        about("dropout", page=False),
        about("learned_sigma", margin=1),
        about("kl", margin=1),
        Claim("PVeRA has the highest average", partial(lead, others=OTHERS), POINTS),
    ),
)
CALIBRATION = Topic(
    name="Calibration",
    place="Section 4.3, Figure 4",
    notebook="calibration",
    load=load_calibration,
    claims=(
        Claim(
            "PVeRA is better calibrated than VeRA",
            partial(components.difference, key="pvera"),
            ACE,
        ),
        Claim(
            "PVeRA is better calibrated than VeRA with latent dropout",
            partial(components.difference, key="latent_dropout"),
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
            partial(lead, others=["vera"]),
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
            partial(ablations.lower, hyperparameter="targets", value="qv"),
            NATS,
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
            partial(samples.gain, k=16),
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
            partial(samples.times_as_wide, k=16),
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
            partial(ood.separation, kind="norm"),
            ABOVE_CHANCE,
            units="models",
        ),
        Claim(
            "PVeRA's values separate better than VeRA's (norm)",
            partial(ood.separation, kind="norm", over="vera"),
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
            partial(latents.more_focused, than="vera"),
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
            partial(language.ahead, others=["vera"]),
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
    UNCERTAINTY,
    INTERVALS,
    OUT_OF_DISTRIBUTION,
    LATENTS,
    TEXT,
)

# Judging and showing them

#: Scope of a verdict -> its title.
SCOPES = {"seeds": "Fixed tasks", "tasks": "Random tasks"}
#: Columns of a topic, before those of a judgement, in claims.csv.
TOPIC_COLUMNS = ["topic", "place", "notebook", "setting"]
#: Columns of `judged` that say how a claim is shown; no CSV file has them.
SHOWN_AS = ["page", "digits"]


def judged(files: ResultFiles, *notebooks: str) -> pd.DataFrame:
    """Judge claims in every setting with results.

    Args:
        files: The result files.
        notebooks: Names of those whose claims are judged; without any, all.

    Returns:
        A row per claim and setting: `TOPIC_COLUMNS` (setting None without results), the fields of
        `Judgement`, and `SHOWN_AS`. A claim without results is not tested; its reading has the
        command that makes them.
    """
    rows = []
    for topic in TOPICS:
        if notebooks and topic.notebook not in notebooks:
            continue
        results = topic.load(files)
        for setting, data in results.items():
            rows += [_row(topic, setting, claim, judge(claim, data)) for claim in topic.claims]
        if not results:
            reason = f"no results: python experiments/{topic.command}"
            for claim in topic.claims:
                rows.append(_row(topic, None, claim, not_tested(claim, reason)))
    return pd.DataFrame(rows)


def _row(
    topic: Topic, setting: Setting | None, claim: Claim, judgement: Judgement
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "place": claim.place or topic.place,
        "notebook": topic.notebook,
        "setting": setting,
        **asdict(judgement),
        "page": claim.page,
        "digits": claim.measure.digits,
    }


def scope_text(row: pd.Series, scope: str) -> str:
    """Return the verdict in a scope of `SCOPES` with its interval."""
    word, low, high = (row[f"{scope}_{name}"] for name in ("verdict", "low", "high"))
    if pd.isna(word):
        return NOTHING
    return word if np.isnan(low) else f"{word} {interval(None, low, high, row['digits'])}"


def tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
    """Build the table of a notebook's claims in each setting."""
    rows = judged(files, notebook)
    rows = rows[rows["setting"].notna()]
    built = {}
    for setting in dict.fromkeys(rows["setting"]):
        part = rows[rows["setting"] == setting]
        cells = {"Effect": part["reading"]}
        for scope, heading in SCOPES.items():
            cells[heading] = part.apply(scope_text, axis=1, scope=scope)
        cells["Scale"] = part["scale"].replace("", NOTHING)
        built[setting] = Table(
            f"claims_{notebook}",
            "The claims, judged. docs/synthetic.md says how intervals and verdicts are made.",
            pd.DataFrame(cells).set_axis(part["claim"]),
            data=part.drop(columns=[*TOPIC_COLUMNS, *SHOWN_AS]),
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
    for scope, heading in SCOPES.items():
        text = scope_text(row, scope)
        if text != NOTHING:
            lines.append(f"{heading.lower()}: {text}")
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
    data = rows.assign(setting=titles).drop(columns=SHOWN_AS)
    numbers = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(folder / "claims.csv", numbers)
