"""The registry of claims, the paper's and our own, and their verdicts on a report's results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report import analyses
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import NOTHING, Table, interval
from pvera.report.tables import ablations, components, language, latents
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables import uncertainty as samples
from pvera.report.tables.verdicts import RULE, Claim, Judgement, Measure, judge

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
    """Return the claim on a contrast of accuracies."""
    compare = partial(components.difference, key=key)
    text = components.CONTRASTS[key].claim
    return Claim(text, compare, POINTS, margin=margin, is_main=is_main)


#: Notebook -> the claims that it shows.
TOPICS = {
    "components": Topic(
        place="Table 1 and beyond",
        load=load_accuracy,
        claims=(
            contrast_claim("pvera"),
            contrast_claim("noise"),
            contrast_claim("latent_dropout", margin=1),
            contrast_claim("dropout", is_main=False),
            contrast_claim("learned_sigma", margin=1),
            contrast_claim("kl", margin=1),
            Claim("PVeRA has the highest average", partial(components.lead, others=OTHERS), POINTS),
        ),
    ),
    "calibration": Topic(
        place="Section 4.3, Figure 4",
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
            ),
        ),
    ),
    "protocol": Topic(
        place="Table 1, official code",
        load=load_official,
        claims=(
            Claim(
                "PVeRA is more accurate than VeRA under the official protocol",
                partial(components.lead, others=["vera"]),
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
                partial(ablations.lower, value="qv"),
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
                samples.gain,
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
                samples.times_as_wide,
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
                partial(ood.separation, kind="norm"),
                ABOVE_CHANCE,
                units="models",
            ),
            Claim(
                "PVeRA's values separate better than VeRA's (norm)",
                partial(ood.separation, kind="norm", over="vera"),
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
                latents.more_focused,
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
                partial(language.ahead, others=["vera"]),
                POINTS,
                is_main=False,
            ),
        ),
    ),
}

# Judging and showing them

#: Scope of a verdict -> its title.
SCOPES = {"seeds": "Fixed tasks", "tasks": "Random tasks"}


def tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
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
            "The claims, judged. docs/synthetic.md says how intervals and verdicts are made.",
            pd.DataFrame(rows, [claim.text for claim in topic.claims]),
            data=pd.DataFrame(map(asdict, judgements)),
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
    columns: dict[str, dict[str, str]] = {}
    for notebook, topic in TOPICS.items():
        for setting, results in topic.load(files).items():
            if setting.profile not in profiles:
                continue
            column = columns.setdefault(setting.title, {})
            for claim in topic.claims:
                if claim.is_main:
                    link = f"[{claim.text}]({notebook}.ipynb) ({topic.place})"
                    column[link] = _all_verdicts(judge(claim, results), claim.measure.digits)
    return Table("claims", RULE, pd.DataFrame(columns).fillna(NOTHING))


def _all_verdicts(judgement: Judgement, digits: int) -> str:
    """Return effect, scale, and the verdict of each scope that applies, in lines."""
    lines = [f"{judgement.reading} ({judgement.scale})" if judgement.scale else judgement.reading]
    for scope, heading in SCOPES.items():
        text = _verdict_text(judgement, scope, digits)
        if text != NOTHING:
            lines.append(f"{heading.lower()}: {text}")
    return "<br>".join(lines)
