"""Paired differences: one column of a frame of scores minus another, by data set and seed.

The frame has a row per data set and seed, and a column for each thing that is compared: most often
a component (`pvera.report` says what that is). `CONTRASTS` are the pairs of components that the
report shows.
"""

from dataclasses import dataclass

import pandas as pd

from pvera.data.tasks import SAME_IMAGES
from pvera.report.text import title

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


#: Key -> contrast. Those with a claim are judged; figures and tables of differences show all.
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
    # With z = μ and β = 0, PVeRA is VeRA with other random matrices and an A that is smaller by √2,
    # as its variance, 2 / columns, counts the columns of both halves.
    "matrices": Contrast("no_noise", "vera", "PVeRA without noise − VeRA"),
    "fixed_noise": Contrast("fixed_sigma", "no_noise", "σ = 1 − no noise (β = 0)"),
}


class Untestable(Exception):
    """Results that a difference needs are missing; the message says which."""


def paired_differences(scores: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Subtract a column of scores from another.

    Args:
        scores: The index has the level seed; the other levels are those of data sets.
        first: The column from which `second` is subtracted.
        second: The other column.

    Returns:
        A row per data set, a column per seed; NaN where one of a pair is missing.

    Raises:
        Untestable: There is no pair, or both are the same trainings: where β is 0 already, PVeRA is
            "no_kl".
    """
    for name in (first, second):
        if name not in scores:
            raise Untestable(f"no runs of {title(name)}")
    # Other components have trainings of their own, whose scores may be equal by chance.
    if {first, second} == {"pvera", "no_kl"} and scores[first].equals(scores[second]):
        raise Untestable("both are the same trainings")

    differences = scores[first] - scores[second]
    if differences.isna().all():
        raise Untestable("no runs to compare")
    return differences.unstack("seed", sort=False)


def pool_same_images(differences: pd.DataFrame) -> pd.DataFrame:
    """Return differences (data sets, seeds) with one mean for data sets of the same images."""
    # Models are no data sets: they stay apart.
    if "dataset" not in differences.index.names:
        return differences
    datasets = differences.index.get_level_values("dataset")
    images = datasets.map(lambda name: SAME_IMAGES.get(name, name))
    return differences.groupby(images).mean()
