"""What in PVeRA helps: the methods, and variants between VeRA and PVeRA, in pairs.

Every method and variant has the equal tuning of docs/design.md. Pairs share data
set and seed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.captions import caption_source
from pvera.report.scores import Records, largest_class, score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import half_width_over_seeds, mean_interval
from pvera.report.table import (
    Column,
    Table,
    fixed,
    grid_value,
    interval,
    pivot_text,
    signed,
    title,
)
from pvera.report.tables.benchmark import mean_and_std
from pvera.report.tables.verdicts import Untestable, pooled
from pvera.study import results
from pvera.study.profiles import Profile

#: Component -> records.
Runs = Mapping[str, list[dict]]


@dataclass(frozen=True)
class Components:
    """The trainings of one setting: the other methods, then VeRA, the variants, and PVeRA."""

    runs: Runs
    #: Component -> its title, in this order, also of those without runs.
    titles: Mapping[str, str]

    @property
    def source(self) -> str:
        """The runs, for a caption."""
        return caption_source(record for records in self.runs.values() for record in records)


@dataclass(frozen=True)
class Contrast:
    """The scores of one component minus those of another, paired by data set and seed."""

    first: str
    second: str
    #: In figures and on pages.
    label: str
    #: The claim that it lies above zero, where that is judged.
    claim: str = ""


#: With z = μ and β = 0, PVeRA is VeRA with other random matrices and an A that is smaller by √2, as
#: its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "pvera": Contrast("pvera", "vera", "PVeRA − VeRA", "PVeRA is more accurate than VeRA"),
    "noise": Contrast(
        "no_kl",
        "no_noise",
        "PVeRA: noise − none, both with β = 0",
        "The noise makes PVeRA more accurate (β = 0)",
    ),
    "latent_dropout": Contrast(
        "pvera",
        "latent_dropout",
        "PVeRA − VeRA with latent dropout",
        "PVeRA is more accurate than VeRA with latent dropout",
    ),
    # With β = 0 both have the same search.
    "equal_search": Contrast(
        "no_kl", "latent_dropout", "PVeRA without KL term − VeRA with latent dropout"
    ),
    "learned_sigma": Contrast(
        "no_kl",
        "fixed_sigma",
        "σ learned − σ = 1 (β = 0)",
        "Learning σ makes PVeRA more accurate than a fixed noise scale, σ = 1 (β = 0)",
    ),
    "dropout": Contrast(
        "latent_dropout",
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

#: The row of the mean over data sets.
MEAN = "Mean"


def component_titles(profile: Profile) -> dict[str, str]:
    """Return component -> title: the other methods, VeRA, the profile's variants, and PVeRA."""
    others = [name for name in PAPER_METHODS if name not in ("vera", "pvera")]
    headings = {name: title(name) for name in (*others, "vera")}
    return headings | profile.variants | {"pvera": title("pvera")}


def method_of(profile: Profile, component: str) -> str:
    """Return the method that a component trains."""
    if component not in profile.variants:
        return component
    methods = profile.experiments[component].methods
    assert methods  # a profile is checked to name one
    return methods[0]


def load(files: ResultFiles) -> dict[Setting, Components]:
    """Load the components in every setting with VeRA and PVeRA, without screened-out data sets."""
    profiles = {profile.name: profile for profile in files.profiles}
    names = {name for profile in files.profiles for name in profile.variants}
    variants = {name: files.read(name) for name in names}
    components = {}
    for setting, benchmark in files.read("benchmark").items():
        # Where methods cannot be told apart, differences would only shrink the mean.
        reasons = screening(files.root, benchmark)["left out"]
        left_out = set(reasons[reasons != ""].index)

        profile = profiles[setting.profile]
        headings = component_titles(profile)
        runs = {}
        for name in headings:
            method = method_of(profile, name)
            records = variants[name].get(setting, []) if name in profile.variants else benchmark
            records = [record for record in records if record["method"] == method]
            kept = [record for record in records if record["dataset"] not in left_out]
            if kept:
                runs[name] = kept
        if {"vera", "pvera"} <= set(runs):
            components[setting] = Components(runs, headings)
    return components


def values(runs: Runs, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (%) per component.

    Returns:
        Rows (category, dataset, seed), columns components; NaN where a run is
        missing.
    """
    columns = {
        name: 100 * score_frame(records, metric).iloc[:, 0] for name, records in runs.items()
    }
    return pd.concat(columns, axis=1, sort=False)


def paired(accuracies: pd.DataFrame, first: str, second: str) -> pd.Series:
    """Return the differences of two components on `values`, NaN where one has no run.

    Raises:
        Untestable: A component has no runs, or both are the same trainings: where β
            is 0 already, PVeRA is "no_kl".
    """
    for component in (first, second):
        if component not in accuracies:
            raise Untestable(f"no runs of {title(component)}")
    are_equal = accuracies[first].equals(accuracies[second])
    if are_equal and {first, second} == {"pvera", "no_kl"}:
        raise Untestable("both are the same trainings")
    return accuracies[first] - accuracies[second]


def lead(scores: pd.DataFrame, others: Iterable[str]) -> dict[str, pd.Series]:
    """Return how far PVeRA lies above each of other methods, for a claim.

    Args:
        scores: Rows (category, dataset, seed), columns methods.
        others: The others.
    """
    return {f"PVeRA − {title(name)}": paired(scores, "pvera", name) for name in others}


def all_paired(
    accuracies: pd.DataFrame, pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], pd.DataFrame]:
    """Return `paired` as (data sets, seeds), for pairs that have runs of their own."""
    frames = {}
    for pair in pairs:
        with suppress(Untestable):
            frames[pair] = paired(accuracies, *pair).unstack("seed", sort=False)
    return frames


def difference(accuracies: pd.DataFrame, key: str) -> pd.Series:
    """Return the differences of the contrast `key` of `CONTRASTS`, for a claim."""
    return paired(accuracies, CONTRASTS[key].first, CONTRASTS[key].second)


def contrast_frames(
    components: Components, keys: Iterable[str] = CONTRASTS
) -> dict[str, pd.DataFrame]:
    """Return the differences of contrasts (points) in the shape that `plots.forest` draws.

    Args:
        components: Of one setting.
        keys: Of `CONTRASTS`; those without runs are left out.

    Returns:
        Label -> rows data sets, then `MEAN`; columns mean, low, high and seed<k>.
        low, high: the interval over seeds, of `MEAN` alone; low_tasks, high_tasks:
        the one over data sets, if they are three or more.
    """
    labels = {(CONTRASTS[key].first, CONTRASTS[key].second): CONTRASTS[key].label for key in keys}
    frames = {}
    for pair, differences in all_paired(values(components.runs), labels).items():
        seeds = differences.droplevel("category").add_prefix("seed")
        mean = mean_interval(differences, half_width_over_seeds)

        units = pooled(differences).dropna(how="all")
        if len(units) > 2:  # the interval over two data sets would span the figure
            sample = mean_interval(units)
            mean |= {"low_tasks": sample["low"], "high_tasks": sample["high"]}
        datasets = seeds.assign(mean=differences.mean(axis=1).to_numpy())
        frames[labels[pair]] = pd.concat([datasets, pd.DataFrame(mean, [MEAN])])
    return frames


def table(components: Components) -> Table:
    """Build the table of accuracies: a row per component, a column per data set."""
    runs = components.runs
    by_dataset = values(runs).groupby(level="dataset", sort=False)
    aces = values(runs, "ace").groupby(level="dataset", sort=False).mean()
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
        cells[heading] = [fixed(mean, 1) for mean in means.mean(skipna=False)]
    seeds = [{record["seed"] for record in records} for records in runs.values()]
    cells["Seeds"] = [str(len(found)) for found in seeds]

    caption = (
        "Test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample "
        "standard deviation over seeds, with equal tuning. ACE: adaptive calibration error (%), "
        "mean over data sets."
    )
    cells = cells.rename(components.titles)
    return Table("components", caption, cells, data=data, source=components.source)


def differences_table(components: Components) -> Table:
    """Build the table of PVeRA minus each component, and of the other `CONTRASTS`.

    It has a column per data set, and one of their mean.
    """
    accuracies = values(components.runs).droplevel("category")
    pairs = [("pvera", name) for name in components.titles if name != "pvera"]
    contrasts = CONTRASTS.values()
    pairs += [(each.first, each.second) for each in contrasts if each.first != "pvera"]
    rows = {}
    for (first, second), differences in all_paired(accuracies, pairs).items():
        by_dataset = differences.mean(axis=1).to_dict()
        name = f"{components.titles[first]} − {components.titles[second]}"
        rows[name] = by_dataset | mean_interval(differences, half_width_over_seeds)
    data = pd.DataFrame(rows).T.rename_axis("difference")

    columns = {
        dataset: Column(title(dataset), 1, signed=True)
        for dataset in accuracies.index.unique("dataset")
    }
    columns["mean"] = Column(
        MEAN, lambda row: f"{signed(row['mean'], 1)} {interval(None, row['low'], row['high'])}"
    )
    caption = (
        "Differences of test accuracy (points) on the seeds that both have, and their mean with "
        "its 95 % interval over seeds."
    )
    return Table("differences", caption, data, columns, source=components.source)


# Task screening

#: The methods that say whether a data set can tell methods apart.
SCREENING = ("linear", "lora", "bottleneck")
#: Points above the share of the largest class; the best of `SCREENING` is at chance below it.
CHANCE = 5
#: Per cent; a data set is saturated where the worst of `SCREENING` is above it.
SATURATED = 95


def screening(root: Path, records: Records) -> pd.DataFrame:
    """Return the numbers that decide whether a data set can tell methods apart.

    Args:
        root: Folder of the results, with the predictions whose labels are counted.
        records: The runs of the benchmark.

    Returns:
        Rows data sets; columns test accuracies (%) of `SCREENING` with seed 0,
        "largest class", its share (%), and "left out": "chance", "saturated" or "".
        Without a row where one of them is not trained; empty without predictions.
    """
    records = [
        record for record in records if record["method"] in SCREENING and record["seed"] == 0
    ]
    # Labels are stored with the predictions, which a clone may lack.
    with_labels = [
        record
        for record in records
        if results.path_of(root, record).with_suffix(results.ARRAYS).exists()
    ]
    if not with_labels:
        return pd.DataFrame(columns=["left out"])

    accuracies = 100 * score_frame(records).droplevel(["category", "seed"])
    accuracies = accuracies.reindex(columns=SCREENING).dropna()
    shares = 100 * pd.Series(largest_class(root, with_labels), name="largest class")
    scores = accuracies.join(shares)
    chance = accuracies.max(axis=1) < scores["largest class"] + CHANCE
    saturated = accuracies.min(axis=1) > SATURATED
    scores["left out"] = np.select([chance, saturated], ["chance", "saturated"], "")
    return scores


def screening_table(scores: pd.DataFrame) -> Table:
    """Build the table of `screening`."""
    columns = {
        "largest class": Column("Largest class", 1),
        **{name: Column(title(name), 1) for name in SCREENING},
        "left out": Column("Left out", lambda row: row["left out"] or "no"),
    }
    caption = (
        "Task screening: test accuracy (%) with seed 0, and the share (%) of the largest class. A "
        f"data set is left out at chance, where the best is less than {CHANCE} points above that "
        f"share, and saturated, where the worst is above {SATURATED} %."
    )
    return Table("screening", caption, scores, columns)


# What the searches chose

#: Hyperparameter of one method, and experiment that searches it -> its row among the choices.
OWN = {"alpha": "α of VeRA", "beta": "β of PVeRA"}


def choices(components: Components, own: Mapping[str, list[dict]]) -> Table:
    """Build the table of what seed 0 chose: learning rates, then hyperparameters of a method's own.

    Args:
        components: Of one setting.
        own: Hyperparameter -> the records of its search.
    """
    searches = [
        (components.titles[name], "learning_rate", records)
        for name, records in components.runs.items()
    ]
    searches += [(OWN[key], key, records) for key, records in own.items()]
    # A row per search of a data set; other seeds inherit the choice of seed 0.
    rows = []
    for heading, key, records in searches:
        for record in records:
            if record["seed"] == 0 and record["chosen"] and key in record["chosen"]["grid"]:
                tried = [member["grid"][key] for member in record["members"]]
                chosen = record["chosen"]["grid"][key]
                is_lowest, is_highest = chosen == min(tried), chosen == max(tried)
                rows.append((heading, record["dataset"], chosen, is_lowest, is_highest))
    data = pd.DataFrame(rows, columns=["searched", "dataset", "chosen", "lowest", "highest"])

    cells = pivot_text(data, "searched", "dataset", lambda row: grid_value(row["chosen"]))
    by_search = data.groupby("searched", sort=False)
    # A choice at the edge of the grid may have wanted to go further.
    for edge in ("lowest", "highest"):
        counts = zip(by_search[edge].sum(), by_search.size(), strict=True)
        cells[f"At the {edge}"] = [f"{count} of {size}" for count, size in counts]
    caption = (
        "What seed 0 chose by its validation loss: learning rates, α and β. The last columns count "
        "how often it is the lowest or the highest tried."
    )
    return Table("choices", caption, cells, data=data)


# Equal tuning and the paper's


def compare_tunings(equal: Records, paper: Records) -> Table:
    """Build the table of averages and ranks of the methods under equal and the paper's tuning."""
    # Both on the same seeds.
    seeds = {record["seed"] for record in paper}
    equal = [record for record in equal if record["seed"] in seeds]

    statistics = {}
    for heading, records in (("Equal tuning", equal), ("The paper's tuning", paper)):
        accuracies = 100 * score_frame(records)
        # Over seeds, then over data sets.
        averages = accuracies.groupby(level="dataset").mean().mean(skipna=False)
        statistics[heading, "Average"] = averages
        statistics[heading, "Rank"] = averages.rank(ascending=False)
    panel = pd.DataFrame(statistics)

    columns = {}
    for key in panel:
        is_average = key[1] == "Average"
        columns[key] = Column(key, 1, best="max") if is_average else Column(key, 0)
    caption = (
        "Test accuracy (%), mean over data sets and seeds, and rank of the methods. Equal tuning: "
        "each searches its own hyperparameter, then its learning rate, on seed 0. The paper's "
        "tuning: each searches three values of one hyperparameter. Bold: best. Underlined: second "
        "best."
    )
    # The CSV file has one header: "Equal tuning Average".
    data = panel.set_axis([" ".join(key) for key in panel], axis=1)
    data = data.rename_axis("method").reset_index()
    return Table("paper_tuning", caption, panel, columns, data, caption_source(paper))
