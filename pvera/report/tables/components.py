"""What in PVeRA helps: the methods, and variants between VeRA and PVeRA, in pairs.

Every method and variant has the equal tuning of docs/design.md. Pairs share data
set and seed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.errors import InputError
from pvera.report.captions import caption_source
from pvera.report.scores import Records, largest_class, reached_max_epochs, score_frame
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
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast, pooled
from pvera.study import results

#: Experiment -> its method and title: VeRA with noise, and PVeRA without one of its parts.
VARIANTS = {
    "latent_dropout": ("vera", "VeRA, latent dropout (p = 0.5)"),
    "no_noise": ("pvera", "PVeRA, z = μ, β = 0"),
    "fixed_sigma": ("pvera", "PVeRA, fixed noise scale (σ = 1), β = 0"),
    "no_kl": ("pvera", "PVeRA, σ learned, β = 0"),
}

#: Component -> its title: the other methods, then VeRA, the variants, and PVeRA.
TITLES = {
    **{name: title(name) for name in PAPER_METHODS if name not in ("vera", "pvera")},
    "vera": "VeRA",
    **{name: heading for name, (_, heading) in VARIANTS.items()},
    "pvera": "PVeRA",
}

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA
#: is VeRA with other random matrices and an A that is smaller by √2, as its variance, 2 / columns,
#: counts the columns of both halves.
CONTRASTS = {
    "PVeRA − VeRA": ("pvera", "vera"),
    "PVeRA − VeRA with latent dropout": ("pvera", "latent_dropout"),
    "VeRA with latent dropout − VeRA": ("latent_dropout", "vera"),
    "z = μ − VeRA": ("no_noise", "vera"),
    "noise − no noise (β = 0)": ("no_kl", "no_noise"),
    "σ = 1 − no noise (β = 0)": ("fixed_sigma", "no_noise"),
    "σ learned − σ = 1 (β = 0)": ("no_kl", "fixed_sigma"),
    "with KL term − without": ("pvera", "no_kl"),
}

#: The rows of the table of differences: the first component minus the second.
COMPARED = [
    *(("pvera", name) for name in TITLES if name != "pvera"),
    ("latent_dropout", "vera"),
    ("no_noise", "vera"),
    ("no_kl", "latent_dropout"),
    ("no_kl", "no_noise"),
    ("fixed_sigma", "vera"),
    ("fixed_sigma", "no_noise"),
    ("fixed_sigma", "latent_dropout"),
]

#: The row of the mean over data sets.
MEAN = "Mean"

#: Component -> records.
Runs = Mapping[str, list[dict]]


def load(files: ResultFiles) -> dict[Setting, dict[str, list[dict]]]:
    """Load the components in every setting with VeRA and PVeRA, without screened-out data sets."""
    require_known_variants(files)
    variants = {name: files.read(name) for name in VARIANTS}
    components = {}
    for setting, benchmark in files.read("benchmark").items():
        groups = {name: list[dict]() for name in TITLES}
        for record in benchmark:
            if record["method"] in groups:
                groups[record["method"]].append(record)
        for name, (method, _) in VARIANTS.items():
            records = variants[name].get(setting, [])
            groups[name] = [record for record in records if record["method"] == method]

        # Where methods cannot be told apart, differences would only shrink the mean.
        reasons = screening(files.root, benchmark)["left out"]
        left_out = set(reasons[reasons != ""].index)
        kept = {}
        for name, records in groups.items():
            kept[name] = [record for record in records if record["dataset"] not in left_out]
        kept = {name: records for name, records in kept.items() if records}
        if {"vera", "pvera"} <= set(kept):
            components[setting] = kept
    return components


def require_known_variants(files: ResultFiles) -> None:
    """Check that the profiles' variants have the names and titles of the tables.

    Raises:
        InputError: A variant has another name or title.
    """
    for profile in files.profiles:
        for name, heading in profile.variants.items():
            if name not in VARIANTS or TITLES[name] != heading:
                known = "; ".join(f"{each}: {TITLES[each]}" for each in VARIANTS)
                raise InputError(f"profile {profile.name}: variants.{name}: is none of {known}")


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


def are_different(runs: Runs, first: str, second: str) -> bool:
    """Return whether both components have runs, and other ones.

    They share their runs where β is 0 already: there PVeRA is "no_kl".
    """
    return first in runs and second in runs and runs[first] != runs[second]


@contrast
def difference(accuracies: pd.DataFrame, name: str) -> PairedDifferences:
    """Return the contrast `name` of `CONTRASTS` on `values`.

    Raises:
        Untestable: A component has no runs, or both have the same.
    """
    first, second = CONTRASTS[name]
    for component in (first, second):
        if component not in accuracies:
            raise Untestable(f"no runs of {TITLES[component]}")
    if accuracies[first].equals(accuracies[second]):
        raise Untestable("both are the same trainings")
    return {"": accuracies[first] - accuracies[second]}


def contrast_frames(runs: Runs, names: Iterable[str] = CONTRASTS) -> dict[str, pd.DataFrame]:
    """Return the differences of contrasts (points) in the shape that `plots.forest` draws.

    Args:
        runs: The components.
        names: Of `CONTRASTS`; those without runs are left out.

    Returns:
        Contrast -> rows data sets, then `MEAN`; columns mean, low, high and
        seed<k>. low, high: the interval over seeds, of `MEAN` alone; low_tasks,
        high_tasks: the one over data sets, if they are three or more.
    """
    accuracies = values(runs)
    frames = {}
    for name in names:
        first, second = CONTRASTS[name]
        if not are_different(runs, first, second):
            continue
        # (data sets, seeds), as in the table of differences.
        differences = (accuracies[first] - accuracies[second]).unstack("seed", sort=False)
        seeds = differences.droplevel("category").add_prefix("seed")
        mean = mean_interval(differences, half_width_over_seeds)

        units = pooled(differences).dropna(how="all")
        if len(units) > 2:  # the interval over two data sets would span the figure
            sample = mean_interval(units)
            mean |= {"low_tasks": sample["low"], "high_tasks": sample["high"]}
        datasets = seeds.assign(mean=differences.mean(axis=1).to_numpy())
        frames[name] = pd.concat([datasets, pd.DataFrame(mean, [MEAN])])
    return frames


def table(runs: Runs) -> Table:
    """Build the table of accuracies: a row per component, a column per data set."""
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
    groups = list(runs.values())
    cells["Seeds"] = [str(len({record["seed"] for record in records})) for records in groups]
    cells["Epoch"] = [fixed(_median_epoch(records), 0) for records in groups]
    cells["At the limit"] = [str(reached_max_epochs(records)) for records in groups]

    caption = (
        "Test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample "
        "standard deviation over seeds, with equal tuning. ACE: adaptive calibration error (%), "
        "mean over data sets. Epoch: median of the chosen ones. At the limit: chosen trainings "
        "that reached the limit on epochs."
    )
    source = caption_source(record for records in groups for record in records)
    return Table("components", caption, {"": cells.rename(TITLES)}, data=data, source=source)


def _median_epoch(records: Records) -> float:
    """Return the median of the chosen epochs, which count from one."""
    return np.median([record["chosen"]["epoch"] + 1 for record in records if record["chosen"]])


def differences_table(runs: Runs) -> Table:
    """Build the table of the differences `COMPARED`: a column per data set, and their mean."""
    accuracies = values(runs).droplevel("category")
    rows: dict[str, dict] = {}
    for first, second in COMPARED:
        if are_different(runs, first, second):
            # (data sets, seeds), NaN where one of the two has no run.
            pairs = (accuracies[first] - accuracies[second]).unstack("seed", sort=False)
            by_dataset = pairs.mean(axis=1).to_dict()
            name = f"{TITLES[first]} − {TITLES[second]}"
            rows[name] = by_dataset | mean_interval(pairs, half_width_over_seeds)
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
    source = caption_source(record for records in runs.values() for record in records)
    return Table("differences", caption, {"": data}, columns, source=source)


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
    return Table("screening", caption, {"": scores}, columns)


# What the searches chose

#: Hyperparameter of one method, and experiment that searches it -> its row among the choices.
OWN = {"alpha": "α of VeRA", "beta": "β of PVeRA"}


def choices(runs: Runs, own: Mapping[str, list[dict]]) -> Table:
    """Build the table of what seed 0 chose: learning rates, then hyperparameters of a method's own.

    Args:
        runs: The components.
        own: Hyperparameter -> the records of its search.
    """
    searches = [(TITLES[name], "learning_rate", records) for name, records in runs.items()]
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
    return Table("choices", caption, {"": cells}, data=data)


def by_accuracy(runs: Runs) -> str:
    """Say what PVeRA − VeRA is on validation images if loss, or accuracy, chooses."""
    columns = {}
    for record in [*runs["vera"], *runs["pvera"]]:
        if record["seed"] == 0 and record["chosen"]:
            curves = [member["curve"]["validation_accuracy"] for member in record["members"]]
            chosen = record["chosen"]
            by_loss = curves[chosen["member"]][chosen["epoch"]]
            # Over all epochs of all learning rates.
            best = max(max(curve) for curve in curves)
            columns[record["method"], record["dataset"]] = {"loss": by_loss, "accuracy": best}
    accuracies = 100 * pd.DataFrame(columns)
    lead = (accuracies["pvera"] - accuracies["vera"]).mean(axis=1)
    return (
        f"On the validation images of seed 0, PVeRA − VeRA is {signed(lead['loss'], 1)} points "
        "where the loss chooses epoch and rate, and "
        f"{signed(lead['accuracy'], 1)} where the accuracy chooses."
    )


# Equal tuning and the paper's


def compare_tunings(equal: Records, paper: Records) -> Table:
    """Build the table of averages and ranks of the methods under equal and the paper's tuning."""
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
    return Table("paper_tuning", caption, {"": panel}, columns, data, caption_source(paper))
