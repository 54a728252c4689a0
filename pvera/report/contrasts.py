"""Contrasts: the scores of one component minus those of another, paired by data set and seed.

`pvera.report` says what a component is. Scores are a frame with rows (category, dataset, seed) and
a column per component.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pandas as pd

from pvera.report.text import title
from pvera.report.verdicts import Untestable

#: The variant of VeRA that the report shows beside the methods.
LATENT_DROPOUT = "latent_dropout"


@dataclass(frozen=True)
class Contrast:
    """The scores of one component minus those of another."""

    #: Key of the component, a method or a variant.
    first: str
    #: Key of the one that is subtracted.
    second: str
    #: The words for it in figures and on pages.
    label: str
    #: The claim that it lies above zero, where that is judged.
    claim: str = ""


#: With z = μ and β = 0, PVeRA is VeRA with other random matrices and an A that is smaller by √2, as
#: its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "pvera_over_vera": Contrast(
        "pvera", "vera", "PVeRA − VeRA", "PVeRA is more accurate than VeRA"
    ),
    "noise": Contrast(
        "no_kl",
        "no_noise",
        "PVeRA: noise − none, both with β = 0",
        "The noise makes PVeRA more accurate (β = 0)",
    ),
    "pvera_over_dropout": Contrast(
        "pvera",
        LATENT_DROPOUT,
        "PVeRA − VeRA with latent dropout",
        "PVeRA is more accurate than VeRA with latent dropout",
    ),
    # With β = 0 both have the same search.
    "equal_search": Contrast(
        "no_kl", LATENT_DROPOUT, "PVeRA without KL term − VeRA with latent dropout"
    ),
    "learned_sigma": Contrast(
        "no_kl",
        "fixed_sigma",
        "σ learned − σ = 1 (β = 0)",
        "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)",
    ),
    "dropout_over_vera": Contrast(
        LATENT_DROPOUT,
        "vera",
        "VeRA with latent dropout − VeRA",
        "VeRA is more accurate with latent dropout",
    ),
    "kl": Contrast(
        "pvera", "no_kl", "with KL term − without", "The KL term makes PVeRA more accurate"
    ),
    "matrices": Contrast("no_noise", "vera", "z = μ − VeRA"),
    "fixed_noise": Contrast("fixed_sigma", "no_noise", "σ = 1 − no noise (β = 0)"),
}


def paired(scores: pd.DataFrame, first: str, second: str) -> pd.Series:
    """Return the differences of two components by data set and seed, NaN where one has no run.

    Raises:
        Untestable: A component has no runs, or both are the same trainings: where β
            is 0 already, PVeRA is "no_kl".
    """
    for component in (first, second):
        if component not in scores:
            raise Untestable(f"no runs of {title(component)}")
    are_equal = scores[first].equals(scores[second])
    if are_equal and {first, second} == {"pvera", "no_kl"}:
        raise Untestable("both are the same trainings")
    return scores[first] - scores[second]


def leads(scores: pd.DataFrame, others: Iterable[str]) -> dict[str, pd.Series]:
    """Return how far PVeRA lies above each of other methods, for a claim."""
    return {f"PVeRA − {title(name)}": paired(scores, "pvera", name) for name in others}


def all_paired(
    scores: pd.DataFrame, pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], pd.DataFrame]:
    """Return `paired` as (data sets, seeds), for pairs that have runs of their own."""
    frames = {}
    for pair in pairs:
        with suppress(Untestable):
            frames[pair] = paired(scores, *pair).unstack("seed", sort=False)
    return frames


def difference(scores: pd.DataFrame, key: str) -> pd.Series:
    """Return the differences of the contrast `key` of `CONTRASTS`, for a claim."""
    return paired(scores, CONTRASTS[key].first, CONTRASTS[key].second)
