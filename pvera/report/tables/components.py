"""What in PVeRA helps: accuracies of the methods and variants, and their differences.

Every method and variant has the equal tuning of docs/design.md.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.captions import caption_source
from pvera.report.contrasts import (
    CONTRASTS,
    LATENT_DROPOUT,
    Untestable,
    paired_differences,
    pool_same_images,
)
from pvera.report.scores import Records, score_columns
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import half_width_over_seeds, mean_interval
from pvera.report.table import Column, Table, pivot_text
from pvera.report.tables.benchmark import mean_and_std
from pvera.report.tables.screening import left_out_datasets
from pvera.report.text import bounds, decimal, signed, title
from pvera.study.profiles import Profile

#: The components that are compared as methods, without the variants that take PVeRA apart.
COMPARED = (*PAPER_METHODS, LATENT_DROPOUT)
#: The row of the mean over data sets.
MEAN = "Mean"


@dataclass(frozen=True)
class Components:
    """The trainings of one setting: the other methods, then VeRA, the variants, and PVeRA.

    They are without the data sets that `screening.left_out_datasets` names.
    """

    #: Component -> its records; each component has some.
    runs: Mapping[str, Records]
    #: Component -> its title, in this order, also of those without runs.
    titles: Mapping[str, str]

    @property
    def source(self) -> str:
        """The runs, for a caption."""
        return caption_source(record for records in self.runs.values() for record in records)

    def scores(self, metric: str = "accuracy") -> pd.DataFrame:
        """Return a metric of the test set (%), a key of a record's "test".

        Returns:
            Rows (category, dataset, seed), columns components; NaN where a run is missing.
        """
        return 100 * score_columns(self.runs, metric)


def component_titles(profile: Profile) -> dict[str, str]:
    """Return component -> title: the other methods, VeRA, the profile's variants, and PVeRA."""
    others = [name for name in PAPER_METHODS if name not in ("vera", "pvera")]
    titles = {name: title(name) for name in (*others, "vera")}
    return titles | profile.variants | {"pvera": title("pvera")}


def trained_method(profile: Profile, component: str) -> str:
    """Return the method that a component trains."""
    if component not in profile.variants:
        return component
    methods = profile.experiments[component].methods
    assert methods  # a profile is checked to name one
    return methods[0]


def read_components(files: ResultFiles) -> dict[Setting, Components]:
    """Read the components in every setting with VeRA and PVeRA, without screened-out data sets."""
    profiles = {profile.name: profile for profile in files.profiles}
    names = {name for profile in files.profiles for name in profile.variants}
    variants = {name: files.read(name) for name in names}
    components = {}
    for setting, benchmark in files.read("benchmark").items():
        profile = profiles[setting.profile]
        own = {name: variants[name].get(setting, []) for name in profile.variants}
        # Where methods cannot be told apart, differences would only shrink the mean.
        left_out = left_out_datasets(files.root, benchmark)
        runs = _runs_by_component(profile, benchmark, own, left_out)
        if {"vera", "pvera"} <= set(runs):
            components[setting] = Components(runs, component_titles(profile))
    return components


def _runs_by_component(
    profile: Profile, benchmark: Records, variants: Mapping[str, Records], left_out: set[str]
) -> Mapping[str, Records]:
    """Return the records of each component that has some, without those on data sets left out."""
    runs = {}
    for name in component_titles(profile):
        method = trained_method(profile, name)
        # A variant has an experiment of its own; methods share the benchmark.
        kept = [
            record
            for record in variants.get(name, benchmark)
            if record["method"] == method and record["dataset"] not in left_out
        ]
        if kept:
            runs[name] = kept
    return runs


def contrast_frames(
    components: Components, keys: Iterable[str] = CONTRASTS
) -> dict[str, pd.DataFrame]:
    """Return the differences of contrasts (points) in the shape that `plots.base.forest` draws.

    Args:
        components: The components of one setting.
        keys: Keys of `CONTRASTS`; those without runs are left out.

    Returns:
        Label -> rows data sets, then `MEAN`; columns mean, low, high and seed<k>. low, high: the
        interval over seeds, of `MEAN` alone; tasks_low, tasks_high: the one over data sets, if they
        are three or more.
    """
    accuracies = components.scores()
    frames = {}
    for key in keys:
        contrast = CONTRASTS[key]
        with suppress(Untestable):
            differences = paired_differences(accuracies, contrast.first, contrast.second)
            frames[contrast.label] = _forest_frame(differences)
    return frames


def _forest_frame(differences: pd.DataFrame) -> pd.DataFrame:
    """Return differences (data sets, seeds) in the shape of `contrast_frames`."""
    mean = mean_interval(differences, half_width_over_seeds)
    # As a sample of tasks, data sets of the same images count once.
    units = pool_same_images(differences).dropna(how="all")
    if len(units) > 2:  # the interval over two data sets would span the figure
        sample = mean_interval(units)
        mean |= {"tasks_low": sample["low"], "tasks_high": sample["high"]}

    datasets = differences.droplevel("category").add_prefix("seed")
    datasets["mean"] = differences.mean(axis=1).to_numpy()
    return pd.concat([datasets, pd.DataFrame(mean, [MEAN])])


def accuracies_table(components: Components) -> Table:
    """Build the table of accuracies: a row per component, a column per data set."""
    by_dataset = components.scores().groupby(level="dataset", sort=False)
    aces = components.scores("ace").groupby(level="dataset", sort=False).mean()
    statistics = {
        "mean": by_dataset.mean(),
        "std": by_dataset.std(),
        "runs": by_dataset.count(),
        "ace": aces,
    }
    # Each is (data sets, components), and becomes a column of a row per component and data set.
    stacked = {name: frame.T.stack(future_stack=True) for name, frame in statistics.items()}
    data = pd.concat(stacked, axis=1).rename_axis(["component", "dataset"]).reset_index()

    cells = pivot_text(
        data, "component", "dataset", lambda row: mean_and_std(row["mean"], row["std"])
    )
    for heading, means in {"Average": statistics["mean"], "ACE": aces}.items():
        cells[heading] = means.mean(skipna=False).map(lambda mean: decimal(mean, 1))
    # As text, so that a count has no decimals.
    for name, records in components.runs.items():
        cells.loc[name, "Seeds"] = str(len({record["seed"] for record in records}))

    caption = (
        "Test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample "
        "standard deviation over seeds, with equal tuning."
    )
    notes = "ACE: adaptive calibration error (%), mean over data sets."
    cells = cells.rename(components.titles)
    return Table("components", caption, cells, data=data, source=components.source, notes=notes)


def differences_table(components: Components) -> Table:
    """Build the table of PVeRA minus each component, and of the other `CONTRASTS`.

    It has a column per data set, and one of their mean.
    """
    accuracies = components.scores().droplevel("category")
    pairs = [("pvera", name) for name in components.titles if name != "pvera"]
    pairs += [(each.first, each.second) for each in CONTRASTS.values() if each.first != "pvera"]
    rows = {}
    for first, second in pairs:
        with suppress(Untestable):
            differences = paired_differences(accuracies, first, second)
            name = f"{components.titles[first]} − {components.titles[second]}"
            by_dataset = differences.mean(axis=1).to_dict()
            rows[name] = by_dataset | mean_interval(differences, half_width_over_seeds)
    data = pd.DataFrame(rows).T.rename_axis("difference")

    columns = {
        dataset: Column(title(dataset), 1, signed=True)
        for dataset in accuracies.index.unique("dataset")
    }
    columns["mean"] = Column(
        MEAN, lambda row: f"{signed(row['mean'], 1)} {bounds(row['low'], row['high'])}"
    )
    caption = (
        "Differences of test accuracy (points) on the seeds that both have, and their mean with "
        "its 95 % interval over seeds."
    )
    return Table("differences", caption, data, columns=columns, source=components.source)
