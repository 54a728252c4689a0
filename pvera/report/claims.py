"""The registry of claims, the paper's and our own, judged on a report's results for the page and the notebooks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from pvera.report.table import NOTHING, Table, markdown_table, pivot_text
from pvera.report.tables import ablations, components, language, latents
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables import uncertainty as samples
from pvera.report.tables.verdicts import (
    FIELDS,
    RULE,
    SCOPES,
    SHOWN,
    UNTESTABLE,
    Claim,
    lead,
    scope_cell,
)

#: What contrasts take, by setting.
Results = Mapping[Setting, Any]


@dataclass(frozen=True)
class Topic:
    """Claims that share their results.

    Attributes:
        place: In the paper.
        notebook: That shows them.
        command: That makes the results.
        load: Returns what contrasts take, by setting.
    """

    place: str
    notebook: str
    command: str
    load: Callable[[ResultFiles], Results]


def load_accuracy(files: ResultFiles) -> Results:
    """Return test accuracies (%) per component."""
    return {setting: components.values(runs) for setting, runs in components.load(files).items()}


def load_calibration(files: ResultFiles) -> Results:
    """Return how far ACE (points) lies below zero, per component: the higher, the better."""
    return {
        setting: -components.values(runs, "ace") for setting, runs in components.load(files).items()
    }


def load_official(files: ResultFiles) -> Results:
    """Return test accuracies (%) under the official code's protocol."""
    return {setting: 100 * score_frame(runs) for setting, runs in files.read("official").items()}


def load_ablation(files: ResultFiles, hyperparameter: str) -> Results:
    """Return the best validation losses of each value of a hyperparameter."""
    runs = ablations.read(files, hyperparameter)
    return {
        setting: ablations.losses(of_setting, hyperparameter)
        for setting, of_setting in runs.items()
    }


def load_tasks(files: ResultFiles) -> Results:
    """Return how well the samples find the errors of each data set."""
    analysed = files.read("uncertainty", analyses.load_analyses)
    return {setting: samples.by_task(of_setting) for setting, of_setting in analysed.items()}


def load_samples(files: ResultFiles) -> Results:
    """Return the samples of adapters, in settings whose analyses hold one pass too."""
    return files.read("uncertainty", analyses.load_uncertainty)


def load_out_of_distribution(files: ResultFiles) -> Results:
    """Return the comparisons of latents in and out of distribution."""
    values = files.read("out_of_distribution", ood.load_values)
    return {setting: ood.comparisons(of_setting) for setting, of_setting in values.items()}


def load_focus(files: ResultFiles) -> Results:
    """Return how well latents find the object in an image."""
    return files.read("focus", analyses.load_analyses)


def load_text(files: ResultFiles) -> Results:
    """Return scores on GLUE, of tasks with trainings on all their texts these alone, and of the majority class (%)."""
    full = files.read("full_sets", text=True)
    scores = {}
    for setting, runs in files.read("benchmark", text=True).items():
        on_all_texts = full.get(setting, [])
        there = {run["dataset"] for run in on_all_texts}
        group = [run for run in runs if run["dataset"] not in there] + on_all_texts
        frame = 100 * score_frame(group, language.score)
        shares = language.majority_class(files.root, group)
        scores[setting] = frame.assign(
            majority=100 * frame.index.get_level_values("dataset").map(shares)
        )
    return scores


TOPICS = {
    "Accuracy": Topic("Table 1", "components", "train.py", load_accuracy),
    "Calibration": Topic("Section 4.3, Figure 4", "calibration", "train.py", load_calibration),
    "Official protocol": Topic(
        "Table 1", "protocol", "train.py --experiments official", load_official
    ),
    "Position": Topic(
        "Table 3",
        "position",
        "train.py --experiments position",
        partial(load_ablation, hyperparameter="targets"),
    ),
    "Uncertainty by task": Topic(
        "Section 4.3, Figure 5", "uncertainty", "analyse.py --experiments uncertainty", load_tasks
    ),
    "Uncertainty": Topic(
        "Section 4.3, Figure 5", "uncertainty", "analyse.py --experiments uncertainty", load_samples
    ),
    "Intervals": Topic(
        "Appendix C", "intervals", "analyse.py --experiments uncertainty", load_samples
    ),
    "Out of distribution": Topic(
        "Section 4.4, Figure 6",
        "out_of_distribution",
        "analyse.py --experiments out_of_distribution",
        load_out_of_distribution,
    ),
    "Latents": Topic(
        "Section 4.4, Figure 7", "latents", "analyse.py --experiments focus", load_focus
    ),
    "Text": Topic("Appendix D, Table 5", "language", "train.py --profile text", load_text),
}

OTHERS = tuple(name for name in PAPER_METHODS if name != "pvera")
OURS = "not in the paper"

_accuracy = partial(Claim, "Accuracy", effect="{signed} points")
_calibration = partial(Claim, "Calibration", effect="ACE lower by {signed} points")
_spread = partial(Claim, "Uncertainty", digits=2, effect="Cliff's delta {signed}")
_out = partial(Claim, "Out of distribution", digits=3, units="models")

CLAIMS = (
    _accuracy("PVeRA is more accurate than VeRA", components.gap("PVeRA − VeRA")),
    _accuracy(
        "The noise makes PVeRA more accurate (β = 0)",
        components.gap("noise − no noise (β = 0)"),
        place=OURS,
    ),
    _accuracy(
        "PVeRA is more accurate than VeRA with latent dropout",
        components.gap("PVeRA − VeRA with latent dropout"),
        margin=1,
        place=OURS,
    ),
    _accuracy(
        "VeRA is more accurate with latent dropout",
        components.gap("VeRA with latent dropout − VeRA"),
        place=OURS,
        page=False,
    ),
    _accuracy(
        "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)",
        components.gap("σ learned − σ = 1 (β = 0)"),
        margin=1,
        place=OURS,
    ),
    _accuracy(
        "The KL term makes PVeRA more accurate",
        components.gap("with KL term − without"),
        margin=1,
        place=OURS,
    ),
    _accuracy("PVeRA has the highest average", lead("pvera", *OTHERS)),
    _accuracy(
        "PVeRA has the highest average, VeRA with latent dropout among the methods",
        lead("pvera", *OTHERS, "latent_dropout"),
        place=OURS,
        page=False,
    ),
    _calibration("PVeRA is better calibrated than VeRA", components.gap("PVeRA − VeRA")),
    _calibration(
        "PVeRA is better calibrated than VeRA with latent dropout",
        components.gap("PVeRA − VeRA with latent dropout"),
        place=OURS,
    ),
    Claim(
        "Official protocol",
        "PVeRA is more accurate than VeRA under the official protocol",
        lead("pvera", "vera"),
        "{signed} points",
    ),
    Claim(
        "Position",
        "QV has the lowest loss",
        ablations.lower("targets", ["qv"], ablations.PAPER["targets"]),
        "{signed} nats",
        3,
    ),
    Claim(
        "Uncertainty by task",
        "The predictive standard deviation of 16 samples marks errors",
        samples.marks_errors,
    ),
    Claim(
        "Uncertainty",
        "16 samples find incorrect predictions better than the score of one pass",
        samples.gain(16),
        "AUROC {signed}",
        3,
        place=OURS,
    ),
    _spread(
        "Over all images, incorrect predictions have the higher predictive standard deviation, 16 samples",
        samples.deltas(samples.predictive_sds, 16, pooled=True),
        units="seeds",
        page=False,
    ),
    Claim(
        "Intervals",
        "Over all images, incorrect predictions have the wider intervals, 16 samples (paper: 2.65 times as wide)",
        samples.times_as_wide(16),
        "{size} times as wide",
        2,
        convert=lambda log_ratio: float(np.exp(log_ratio)),
        units="seeds",
        page=False,
    ),
    _out(
        "PVeRA's values are lower in distribution (norm)",
        ood.separation("norm"),
        "AUROC − ½: {signed}",
    ),
    _out(
        "PVeRA's values separate better than VeRA's (norm)",
        ood.separation("norm", "vera"),
        "AUROC {signed}",
        page=False,
    ),
    Claim(
        "Latents",
        "PVeRA's latents focus more on the object in an image than VeRA's",
        latents.more_focused("vera"),
        "AUROC {signed}",
        3,
    ),
    Claim(
        "Text",
        "PVeRA is better than VeRA on average over the tasks of GLUE that LoRA learns",
        language.ahead("GLUE", "vera"),
        "{signed} points",
        page=False,
    ),
)


def judged(files: ResultFiles, *notebooks: str) -> pd.DataFrame:
    """Judge the claims of some notebooks, or all, in every setting with results.

    Returns:
        A row per claim and setting: topic, place, notebook, setting (None without results), `FIELDS` and digits. A
        claim without results is not tested, with the command that makes them.
    """
    rows = []
    for name, topic in TOPICS.items():
        if notebooks and topic.notebook not in notebooks:
            continue
        missing = f"no results: python experiments/{topic.command}"
        for setting, data in (topic.load(files) or {None: None}).items():
            for claim in CLAIMS:
                if claim.topic == name:
                    place = {
                        "topic": name,
                        "notebook": topic.notebook,
                        "setting": setting,
                        "page": claim.page,
                    }
                    place["place"] = claim.place or topic.place
                    rows.append(place | claim.judge(data, missing))
    return pd.DataFrame(rows)


def tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
    """Build the table of a notebook's claims in each setting."""
    rows = judged(files, notebook)
    rows = rows[rows["setting"].notna()]
    built = {}
    for setting in dict.fromkeys(rows["setting"]):
        part = rows[rows["setting"] == setting].drop(columns="setting")
        built[setting] = Table(
            f"claims_{notebook}",
            "The claims, judged. docs/synthetic.md says how intervals and verdicts are made.",
            {"": part.set_index("claim")},
            SHOWN,
            part[list(FIELDS)],
        )
    return built


def page(rows: pd.DataFrame, columns: list[str], notebooks: str) -> str:
    """Return the page of claims without its title.

    Args:
        rows: Of `judged`.
        columns: The profiles that have a column.
        notebooks: Their folder, as seen from the page.
    """
    rows = rows[rows["page"] & rows["setting"].notna()]
    rows = rows[[setting.profile in columns for setting in rows["setting"]]]
    if rows.empty:
        return f"{RULE}\n"
    links = (
        "["
        + rows["claim"]
        + f"]({notebooks}"
        + rows["notebook"]
        + ".ipynb) ("
        + rows["place"]
        + ")"
    )
    rows = rows.assign(link=links, column=[setting.title for setting in rows["setting"]])

    ordered = [claim.text for claim in CLAIMS if claim.text in set(rows["claim"])]
    cells = pivot_text(rows, "link", "column", _cell)
    by_claim = rows.drop_duplicates("claim").set_index("claim")["link"]
    cells = cells.reindex(by_claim[ordered])
    header = ["Claim", *cells.columns]
    body = [[link, *cells.loc[link]] for link in cells.index]
    note = (
        f"{NOTHING}: not asked there. Intervals are not corrected for the number of claims. Further claims stand in "
        "the notebooks, to which the links lead."
    )
    return "\n\n".join([markdown_table(header, body), RULE, note]) + "\n"


def _cell(row: pd.Series) -> str:
    """Return effect, scale, and the verdict of each scope that has one, in lines."""
    if row["seeds_verdict"] == UNTESTABLE:
        return f"{UNTESTABLE}: {row['reading']}"
    lines = [f"{row['reading']} ({row['scale']})"]
    for scope, heading in SCOPES.items():
        cell = scope_cell(row, scope)
        if cell != NOTHING:
            lines.append(f"{heading.lower()}: {cell}")
    return "<br>".join(lines)


def write(rows: pd.DataFrame, columns: list[str], folder: Path, notebooks: str) -> None:
    """Write the page and the rows of `judged` to <folder>/claims.{md,csv}; other arguments: as in `page`."""
    write_atomically(folder / "claims.md", f"# The claims\n\n{page(rows, columns, notebooks)}")
    titles = [setting.title if setting else "" for setting in rows["setting"]]
    data = rows.assign(setting=titles)[["topic", "place", "notebook", "setting", *FIELDS]]
    numbers = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(folder / "claims.csv", numbers)
