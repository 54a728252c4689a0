"""The registry of claims, the paper's and our own, and their verdicts on a report's results.

A topic reads results by setting and makes one frame of scores of each setting. Its claims compare
columns of that frame.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.analysis_results import load_analyses, load_sampled_adapters
from pvera.report.contrasts import CONTRASTS, LATENT_DROPOUT
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import Table
from pvera.report.tables import (
    ablations,
    components,
    language,
    latents,
    out_of_distribution,
    uncertainty,
)
from pvera.report.tables.components import Components
from pvera.report.text import NOTHING, bounds
from pvera.report.verdicts import SCOPES, Claim, Judgement, Measure, Verdict, judge


@dataclass(frozen=True)
class Topic:
    """The claims of one notebook."""

    #: Where the paper has them.
    place: str
    #: Reads the results, by setting.
    read: Callable[[ResultFiles], Mapping[Setting, Any]]
    #: From the results of a setting to a frame: a row per data set (or model) and seed, a column
    #: for each thing that claims compare.
    make_scores: Callable[[Any], pd.DataFrame]
    #: The claims.
    claims: tuple[Claim, ...]

    def judge(self, results: Any) -> list[Judgement]:
        """Judge the claims on the results of one setting."""
        scores = self.make_scores(results)
        return [judge(claim, scores) for claim in self.claims]


def read_samples(files: ResultFiles) -> Mapping[Setting, Any]:
    """Read the samples of adapters, with the predictions of one pass."""
    return files.read("uncertainty", load_sampled_adapters)


#: The paper's methods that PVeRA is compared with.
OTHERS = tuple(name for name in PAPER_METHODS if name != "pvera")

POINTS = Measure("{signed} points")
#: Of claims that name the two in their effect.
NAMED_POINTS = Measure("PVeRA − VeRA: {signed} points")
ACE = Measure("ACE lower by {signed} points", lower_is_better=True)
NATS = Measure("{signed} nats", digits=3, lower_is_better=True)
AUROC = Measure("AUROC {signed}", digits=3)
ABOVE_CHANCE = Measure("AUROC − ½: {signed}", digits=3)
#: Differences of logarithms read as ratios.
RATIO = Measure("{size} times as wide", digits=2, convert=lambda log: float(np.exp(log)))


def contrast_claim(key: str, margin: float = 0, is_main: bool = True) -> Claim:
    """Return the claim on accuracies of a contrast, a key of `CONTRASTS`."""
    contrast = CONTRASTS[key]
    others = (contrast.second,)
    return Claim(contrast.claim, contrast.first, others, POINTS, margin=margin, is_main=is_main)


#: Notebook -> the claims that it shows.
TOPICS = {
    "components": Topic(
        place="Table 1 and beyond",
        read=components.read_components,
        make_scores=Components.scores,
        claims=(
            contrast_claim("pvera_over_vera"),
            contrast_claim("noise"),
            contrast_claim("pvera_over_dropout", margin=1),
            contrast_claim("dropout_over_vera", is_main=False),
            contrast_claim("learned_sigma", margin=1),
            contrast_claim("kl", margin=1),
            Claim("PVeRA has the highest average", "pvera", OTHERS, POINTS),
        ),
    ),
    "calibration": Topic(
        place="Section 4.3, Figure 4",
        read=components.read_components,
        make_scores=partial(Components.scores, metric="ace"),
        claims=(
            Claim("PVeRA is better calibrated than VeRA", "pvera", ("vera",), ACE),
            Claim(
                "PVeRA is better calibrated than VeRA with latent dropout",
                "pvera",
                (LATENT_DROPOUT,),
                ACE,
            ),
        ),
    ),
    "protocol": Topic(
        place="Table 1, official code",
        read=lambda files: files.read("official"),
        make_scores=lambda runs: 100 * score_frame(runs),
        claims=(
            Claim(
                "PVeRA is more accurate than VeRA under the official protocol",
                "pvera",
                ("vera",),
                NAMED_POINTS,
            ),
        ),
    ),
    "rank_and_position": Topic(
        place="Table 3",
        read=lambda files: files.read("position"),
        make_scores=ablations.position_losses,
        claims=(Claim("QV has the lowest loss", "QV", ("Q", "K", "V", "QK", "QKV"), NATS),),
    ),
    "uncertainty": Topic(
        place="Section 4.3, Figure 5",
        read=read_samples,
        make_scores=uncertainty.error_detection,
        claims=(
            Claim(
                "16 samples find incorrect predictions better than the score of one pass",
                "sd",
                ("single",),
                AUROC,
            ),
        ),
    ),
    "intervals": Topic(
        place="Appendix C",
        read=read_samples,
        make_scores=uncertainty.log_mean_widths,
        claims=(
            Claim(
                "Over all images, incorrect predictions have the wider intervals, 16 samples "
                "(paper: 2.65 times as wide)",
                "incorrect",
                ("correct",),
                RATIO,
                units="seeds",
                is_main=False,
            ),
        ),
    ),
    "out_of_distribution": Topic(
        place="Section 4.4, Figure 6",
        read=lambda files: files.read("out_of_distribution", out_of_distribution.load_values),
        make_scores=out_of_distribution.detection_aurocs,
        claims=(
            Claim(
                "PVeRA's values are lower in distribution (norm)",
                "pvera",
                (out_of_distribution.CHANCE,),
                ABOVE_CHANCE,
                units="models",
            ),
            Claim(
                "PVeRA's values separate better than VeRA's (norm)",
                "pvera",
                ("vera",),
                AUROC,
                units="models",
                is_main=False,
            ),
        ),
    ),
    "latents": Topic(
        place="Section 4.4, Figure 7",
        read=lambda files: files.read("focus", load_analyses),
        make_scores=latents.focus_aurocs,
        claims=(
            Claim(
                "PVeRA's latents focus more on the object in an image than VeRA's",
                "pvera",
                ("vera",),
                AUROC,
            ),
        ),
    ),
    "language": Topic(
        place="Appendix D, Table 5",
        read=language.read_scores,
        make_scores=language.learned_tasks,
        claims=(
            Claim(
                "PVeRA is better than VeRA on average over the tasks of GLUE that LoRA learns",
                "pvera",
                ("vera",),
                NAMED_POINTS,
                is_main=False,
            ),
        ),
    ),
}


def claim_tables(files: ResultFiles, notebook: str) -> dict[Setting, Table]:
    """Judge the claims of a notebook; return a table for each setting with results."""
    topic = TOPICS[notebook]
    notes = "docs/synthetic.md says how intervals and verdicts are made."
    if any(len(claim.others) > 1 for claim in topic.claims):
        notes += (
            " Of several comparisons, the closest one is shown with its own interval; the verdict "
            "is on all of them, so another interval may decide."
        )

    tables = {}
    for setting, results in topic.read(files).items():
        judgements = topic.judge(results)
        rows = []
        for judgement in judgements:
            row = {"Effect": judgement.effect_text} | verdict_texts(judgement)
            rows.append(row | {"Scale": judgement.sample_size or NOTHING})
        tables[setting] = Table(
            f"claims_{notebook}",
            "The claims, judged.",
            pd.DataFrame(rows, [claim.text for claim in topic.claims]),
            data=pd.DataFrame([judgement.csv_row() for judgement in judgements]),
            notes=notes,
        )
    return tables


def verdict_texts(judgement: Judgement) -> dict[str, str]:
    """Return the verdicts with their intervals, by scope."""
    texts = {}
    for scope in SCOPES:
        verdict = judgement.verdicts.get(scope, Verdict())
        texts[scope] = verdict.word or NOTHING
        if not np.isnan(verdict.low):
            digits = judgement.claim.measure.digits
            texts[scope] += " " + bounds(verdict.low, verdict.high, digits)
    return texts


#: The caption of the page of claims.
OVERVIEW_CAPTION = "Differences are paired by data set and seed, with 95 % intervals."
#: Its notes, which tell what `TOPICS` says of margins and of several comparisons (a test compares).
OVERVIEW_NOTES = (
    "Fixed tasks: over seeds, on these data sets. Random tasks: if these data sets were a random "
    "sample of tasks, where those of the same images count as one. An effect above zero speaks for "
    "the claim: it is supported where the interval lies above zero, and contradicted where it lies "
    "below. Where the interval contains zero, the claim is inconclusive; but for the claims that "
    "PVeRA is more accurate than VeRA with latent dropout, by learning σ, or by the KL term, the "
    "two are equivalent if it lies within ±1 point. Where several comparisons decide, such as the "
    "highest of eight, the interval is that of the closest one; the claim is supported where all "
    "intervals lie above zero, and contradicted where one lies below zero after correction for "
    "their number. Test images stay; docs/design.md says what others would add."
)


def overview(files: ResultFiles, profiles: Sequence[str]) -> Table:
    """Build the page of the main claims, whose rows link to the notebooks.

    Args:
        files: The result files.
        profiles: Names of those that have a column.
    """
    # Topics share results, which are read once.
    results_of = {read: read(files) for read in {topic.read for topic in TOPICS.values()}}
    columns: dict[str, dict[str, str]] = {}
    for notebook, topic in TOPICS.items():
        for setting, results in results_of[topic.read].items():
            if setting.profile not in profiles:
                continue
            column = columns.setdefault(setting.title, {})
            for judgement in topic.judge(results):
                claim = judgement.claim
                if claim.is_main:
                    link = f"[{claim.text}]({notebook}.ipynb) ({topic.place})"
                    column[link] = _overview_cell(judgement)
    return Table(
        "claims", OVERVIEW_CAPTION, pd.DataFrame(columns).fillna(NOTHING), notes=OVERVIEW_NOTES
    )


def _overview_cell(judgement: Judgement) -> str:
    """Return effect, sample size, and the verdict of each scope that has one, in lines."""
    size = judgement.sample_size
    lines = [f"{judgement.effect_text} ({size})" if size else judgement.effect_text]
    for scope, text in verdict_texts(judgement).items():
        if text != NOTHING:
            lines.append(f"{scope.lower()}: {text}")
    return "<br>".join(lines)
