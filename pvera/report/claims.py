"""The registry of claims, the paper's and our own, and their verdicts on a report's results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report import analysis_results, contrasts
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import Table
from pvera.report.tables import ablations, components, language, latents
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables import uncertainty as samples
from pvera.report.tables.components import Components
from pvera.report.text import NOTHING, interval
from pvera.report.verdicts import PAIRED, RULE, Claim, Judgement, Measure, judge

#: What claims compare, by setting.
Results = Mapping[Setting, Any]

# What claims are judged on


def load_official(files: ResultFiles) -> Results:
    """Return test accuracies (%) under the official code's protocol."""
    return {setting: 100 * score_frame(runs) for setting, runs in files.read("official").items()}


def load_position(files: ResultFiles) -> Results:
    """Return the best validation losses of each choice of target projections."""
    loaded = ablations.read(files, "targets")
    return {setting: ablations.best_losses(runs, "targets") for setting, runs in loaded.items()}


def load_samples(files: ResultFiles) -> Results:
    """Return the samples of adapters, with the predictions of one pass."""
    return files.read("uncertainty", analysis_results.load_sampled_adapters)


def load_out_of_distribution(files: ResultFiles) -> Results:
    """Return the comparisons of latents in and out of distribution."""
    loaded = files.read("out_of_distribution", ood.load_values)
    return {setting: ood.compare_in_and_out(values) for setting, values in loaded.items()}


def load_focus(files: ResultFiles) -> Results:
    """Return how well latents find the object in an image."""
    return files.read("focus", analysis_results.load_analyses)


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


# What claims on components compare


def accuracy_difference(runs: Components, contrast: str) -> pd.Series:
    """Return the differences of test accuracy (points) of a contrast."""
    return contrasts.difference(runs.scores(), contrast)


def calibration_difference(runs: Components, contrast: str) -> pd.Series:
    """Return how far a contrast's first component has the lower ACE (points)."""
    return -contrasts.difference(runs.scores("ace"), contrast)


def accuracy_leads(runs: Components) -> dict[str, pd.Series]:
    """Return how far PVeRA's test accuracy (points) lies above each other method's."""
    return contrasts.leads(runs.scores(), OTHERS)


# The registry


@dataclass(frozen=True)
class Topic:
    """Claims that are judged on the same results."""

    #: Where the paper has them.
    place: str
    #: Returns what the claims compare.
    load: Callable[[ResultFiles], Results]
    #: The claims.
    claims: tuple[Claim, ...]


#: The paper's methods that PVeRA is compared with.
OTHERS = tuple(name for name in PAPER_METHODS if name != "pvera")

POINTS = Measure("{signed} points")
ACE = Measure("ACE lower by {signed} points")
NATS = Measure("{signed} nats", digits=3)
AUROC = Measure("AUROC {signed}", digits=3)
ABOVE_CHANCE = Measure("AUROC − ½: {signed}", digits=3)
#: Differences of logarithms read as ratios.
RATIO = Measure("{size} times as wide", digits=2, convert=lambda log: float(np.exp(log)))


def contrast_claim(key: str, margin: float = 0, is_main: bool = True) -> Claim:
    """Return the claim on a contrast of accuracies, a key of `CONTRASTS`."""
    compare = partial(accuracy_difference, contrast=key)
    text = contrasts.CONTRASTS[key].claim
    return Claim(text, compare, POINTS, margin=margin, is_main=is_main)


#: Notebook -> the claims that it shows.
TOPICS = {
    "components": Topic(
        place="Table 1 and beyond",
        load=components.load,
        claims=(
            contrast_claim("pvera_over_vera"),
            contrast_claim("noise"),
            contrast_claim("pvera_over_dropout", margin=1),
            contrast_claim("dropout_over_vera", is_main=False),
            contrast_claim("learned_sigma", margin=1),
            contrast_claim("kl", margin=1),
            Claim("PVeRA has the highest average", accuracy_leads, POINTS),
        ),
    ),
    "calibration": Topic(
        place="Section 4.3, Figure 4",
        load=components.load,
        claims=(
            Claim(
                "PVeRA is better calibrated than VeRA",
                partial(calibration_difference, contrast="pvera_over_vera"),
                ACE,
            ),
            Claim(
                "PVeRA is better calibrated than VeRA with latent dropout",
                partial(calibration_difference, contrast="pvera_over_dropout"),
                ACE,
            ),
        ),
    ),
    "protocol": Topic(
        place="Table 1, official code",
        load=load_official,
        claims=(
            Claim(
                "PVeRA is more accurate than VeRA under the official protocol",
                partial(contrasts.leads, others=["vera"]),
                POINTS,
            ),
        ),
    ),
    "rank_and_position": Topic(
        place="Table 3",
        load=load_position,
        claims=(
            Claim(
                "QV has the lowest loss",
                partial(ablations.loss_differences, value="qv"),
                NATS,
            ),
        ),
    ),
    "uncertainty": Topic(
        place="Section 4.3, Figure 5",
        load=load_samples,
        claims=(
            Claim(
                "16 samples find incorrect predictions better than the score of one pass",
                samples.auroc_gain,
                AUROC,
            ),
        ),
    ),
    "intervals": Topic(
        place="Appendix C",
        load=load_samples,
        claims=(
            Claim(
                "Over all images, incorrect predictions have the wider intervals, 16 samples "
                "(paper: 2.65 times as wide)",
                samples.log_width_ratios,
                RATIO,
                units="seeds",
                is_main=False,
            ),
        ),
    ),
    "out_of_distribution": Topic(
        place="Section 4.4, Figure 6",
        load=load_out_of_distribution,
        claims=(
            Claim(
                "PVeRA's values are lower in distribution (norm)",
                partial(ood.auroc_differences, kind="norm"),
                ABOVE_CHANCE,
                units="models",
            ),
            Claim(
                "PVeRA's values separate better than VeRA's (norm)",
                partial(ood.auroc_differences, kind="norm", over="vera"),
                AUROC,
                units="models",
                is_main=False,
            ),
        ),
    ),
    "latents": Topic(
        place="Section 4.4, Figure 7",
        load=load_focus,
        claims=(
            Claim(
                "PVeRA's latents focus more on the object in an image than VeRA's",
                latents.auroc_differences,
                AUROC,
            ),
        ),
    ),
    "language": Topic(
        place="Appendix D, Table 5",
        load=load_text,
        claims=(
            Claim(
                "PVeRA is better than VeRA on average over the tasks of GLUE that LoRA learns",
                partial(language.leads_on_learned_tasks, others=["vera"]),
                POINTS,
                is_main=False,
            ),
        ),
    ),
}

# Judging and showing them

#: Scope of a verdict -> its title.
SCOPES = {"seeds": "Fixed tasks", "tasks": "Random tasks"}


def claim_tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
    """Judge the claims of a notebook; return a table for each setting with results."""
    topic = TOPICS[notebook]
    built = {}
    for setting, results in topic.load(files).items():
        judgements = [judge(claim, results) for claim in topic.claims]
        rows = []
        for claim, judgement in zip(topic.claims, judgements, strict=True):
            row = {"Effect": judgement.reading}
            for scope, heading in SCOPES.items():
                row[heading] = _verdict_text(judgement, scope, claim.measure.digits)
            rows.append(row | {"Scale": judgement.scale or NOTHING})
        built[setting] = Table(
            f"claims_{notebook}",
            "The claims, judged.",
            pd.DataFrame(rows, [claim.text for claim in topic.claims]),
            data=pd.DataFrame(map(asdict, judgements)),
            notes="docs/synthetic.md says how intervals and verdicts are made.",
        )
    return built


def _verdict_text(judgement: Judgement, scope: str, digits: int) -> str:
    """Return the verdict in a scope of `SCOPES` with its interval."""
    word, low, high = (getattr(judgement, f"{scope}_{name}") for name in ("verdict", "low", "high"))
    if word is None:
        return NOTHING
    return word if np.isnan(low) else f"{word} {interval(None, low, high, digits)}"


def overview(files: ResultFiles, profiles: Sequence[str]) -> Table:
    """Build the page of the main claims, whose rows link to the notebooks.

    Args:
        files: The result files.
        profiles: Names of those that have a column.
    """
    # Topics share results, which are loaded once.
    loaded = {load: load(files) for load in {topic.load for topic in TOPICS.values()}}
    columns: dict[str, dict[str, str]] = {}
    for notebook, topic in TOPICS.items():
        for setting, results in loaded[topic.load].items():
            if setting.profile not in profiles:
                continue
            column = columns.setdefault(setting.title, {})
            for claim in topic.claims:
                if claim.is_main:
                    link = f"[{claim.text}]({notebook}.ipynb) ({topic.place})"
                    column[link] = _all_verdicts(judge(claim, results), claim.measure.digits)
    return Table("claims", PAIRED, pd.DataFrame(columns).fillna(NOTHING), notes=RULE)


def _all_verdicts(judgement: Judgement, digits: int) -> str:
    """Return effect, scale, and the verdict of each scope that applies, in lines."""
    lines = [f"{judgement.reading} ({judgement.scale})" if judgement.scale else judgement.reading]
    for scope, heading in SCOPES.items():
        text = _verdict_text(judgement, scope, digits)
        if text != NOTHING:
            lines.append(f"{heading.lower()}: {text}")
    return "<br>".join(lines)
