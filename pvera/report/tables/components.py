"""What in PVeRA helps: the methods, and variants between VeRA and PVeRA, paired by data set and seed.

Every method and variant has the equal tuning of docs/design.md.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.errors import InputError
from pvera.report.scores import capped, chosen_member, largest_class, score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import mean_interval, over_repeats
from pvera.report.table import Table, interval, number, pivot_text, plain, signed, title
from pvera.report.tables.benchmark import describe_runs, spread
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast
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

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA is VeRA with other
#: random matrices and an A that is smaller by √2, as its variance, 2 / columns, counts the columns of both halves.
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

#: Further differences of the table: the first minus the second.
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

Runs = Mapping[str, list[dict]]  # component -> records


def load(files: ResultFiles) -> dict[Setting, dict[str, list[dict]]]:
    """Load the records of the components in every setting with VeRA and PVeRA, without screened-out data sets."""
    require_known_variants(files)
    variants = {name: files.read(name) for name in VARIANTS}
    components = {}
    for setting, runs in files.read("benchmark").items():
        screened = screening(files.root, runs)["left out"]
        without = set(screened[screened != ""].index)

        by_component = {name: list[dict]() for name in TITLES}
        for run in runs:
            if run["method"] in by_component:
                by_component[run["method"]].append(run)
        for name, (method, _) in VARIANTS.items():
            by_component[name] = [
                run for run in variants[name].get(setting, []) if run["method"] == method
            ]

        kept = {
            name: [run for run in group if run["dataset"] not in without]
            for name, group in by_component.items()
        }
        kept = {name: group for name, group in kept.items() if group}
        if {"vera", "pvera"} <= kept.keys():
            components[setting] = kept
    return components


def require_known_variants(files: ResultFiles) -> None:
    """Raise InputError for a variant of a profile that no table knows by this name and title."""
    for profile in files.profiles:
        for name, heading in profile.variants.items():
            if name not in VARIANTS or TITLES[name] != heading:
                known = "; ".join(f"{each}: {TITLES[each]}" for each in VARIANTS)
                raise InputError(f"profile {profile.name}: variants.{name}: is none of {known}")


def values(runs: Runs, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (%) per component, rows (category, dataset, seed), NaN where a run is missing."""
    columns = {name: 100 * score_frame(group, metric).iloc[:, 0] for name, group in runs.items()}
    return pd.concat(columns, axis=1, sort=False)


def are_two(runs: Runs, first: str, second: str) -> bool:
    """Return whether both components have runs, and not the same ones: where β is 0, PVeRA is "no_kl"."""
    return first in runs and second in runs and runs[first] != runs[second]


@contrast
def gap(accuracies: pd.DataFrame, name: str) -> PairedDifferences:
    """Return the contrast `name` of `CONTRASTS` on `values`."""
    first, second = CONTRASTS[name]
    for component in (first, second):
        if component not in accuracies:
            raise Untestable(f"no runs of {TITLES[component]}")
    if accuracies[first].equals(accuracies[second]):
        raise Untestable("both are the same trainings")
    return {"": accuracies[first] - accuracies[second]}


def table(runs: Runs) -> Table:
    """Build the table of accuracies: a row per component, a column per data set, and what its trainings chose."""
    accuracies = values(runs)
    of_seeds = accuracies.groupby(level="dataset", sort=False)
    parts = {"mean": of_seeds.mean(), "std": of_seeds.std(), "runs": of_seeds.count()}
    parts["ace"] = values(runs, "ace").groupby(level="dataset", sort=False).mean()
    data = pd.concat({key: part.T.stack(future_stack=True) for key, part in parts.items()}, axis=1)
    data = data.rename_axis(["component", "dataset"]).reset_index()

    cells = pivot_text(
        data, "component", "dataset", lambda row: spread(row["mean"], row["std"], False)
    )
    for part, heading in (("mean", "Average"), ("ace", "ACE")):
        cells[heading] = parts[part].mean(skipna=False).map(lambda mean: plain(mean, 1))
    cells["Seeds"] = [str(len({run["seed"] for run in group})) for group in runs.values()]
    epochs = (
        [run["chosen"]["epoch"] + 1 for run in group if run["chosen"]] for group in runs.values()
    )
    cells["Epoch"] = [plain(np.median(of_group), 0) for of_group in epochs]
    cells["Capped"] = [str(capped(group)) for group in runs.values()]

    caption = (
        "Test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample standard deviation over "
        "seeds, with equal tuning. ACE: adaptive calibration error (%), mean over data sets. Epoch: the median of the "
        "chosen ones. Capped: chosen trainings that the limit of epochs ended."
    )
    source = describe_runs(sum(runs.values(), []))
    return Table("components", caption, {"": cells.rename(TITLES)}, data=data, source=source)


def differences(runs: Runs) -> Table:
    """Build the table of the differences `COMPARED`: a column per data set, and their mean with its interval."""
    accuracies = values(runs).droplevel("category")
    rows: dict[str, dict] = {}
    for first, second in COMPARED:
        if are_two(runs, first, second):
            gaps = (accuracies[first] - accuracies[second]).unstack("seed", sort=False)
            of_datasets = gaps.mean(axis=1).to_dict()
            rows[f"{TITLES[first]} − {TITLES[second]}"] = of_datasets | mean_interval(
                gaps, over_repeats
            )
    data = pd.DataFrame(rows).T.rename_axis("difference")

    spec = {
        **{dataset: (title(dataset), "+1") for dataset in accuracies.index.unique("dataset")},
        "mean": (
            "Mean",
            lambda row: f"{signed(row['mean'], 1)} {interval(None, row['low'], row['high'])}",
        ),
    }
    caption = (
        "Differences of test accuracy (points) on the seeds that both have, and their mean with its 95 % interval over "
        "seeds."
    )
    return Table(
        "differences", caption, {"": data}, spec, source=describe_runs(sum(runs.values(), []))
    )


# Task screening

#: The methods that say whether a data set can tell methods apart.
SCREENING = ("linear", "lora", "bottleneck")
CHANCE, SATURATED = 5, 95  # points above the largest class's share, and per cent


def screening(root, runs: list[dict]) -> pd.DataFrame:
    """Return the test accuracy (%) of `SCREENING` with seed 0, and the share (%) of the largest class, by data set.

    Left out: why the data set cannot tell methods apart, at "chance" or "saturated"; else "". Without a row where one
    of them is not trained, and empty where no predictions, whose labels are counted, are there.
    """
    runs = [run for run in runs if run["method"] in SCREENING and run["seed"] == 0]
    there = [run for run in runs if results.path_of(root, run).with_suffix(results.ARRAYS).exists()]
    if not there:
        return pd.DataFrame(columns=["left out"])
    accuracies = (
        100 * score_frame(runs).droplevel(["category", "seed"]).reindex(columns=SCREENING).dropna()
    )
    scores = accuracies.join(100 * pd.Series(largest_class(root, there), name="largest class"))
    chance = accuracies.max(axis=1) < scores["largest class"] + CHANCE
    saturated = accuracies.min(axis=1) > SATURATED
    return scores.assign(
        **{"left out": np.select([chance, saturated], ["chance", "saturated"], "")}
    )


def screening_table(scores: pd.DataFrame) -> Table:
    """Build the table of `screening`."""
    spec = {
        "largest class": ("Largest class", 1),
        **{name: (title(name), 1) for name in SCREENING},
        "left out": ("Left out", lambda row: row["left out"] or "no"),
    }
    caption = (
        "Task screening: test accuracy (%) with seed 0, and the share (%) of the largest class. A data set is left out "
        f"at chance, where the best is less than {CHANCE} points above that share, and saturated, where the worst is "
        f"above {SATURATED} %."
    )
    return Table("screening", caption, {"": scores}, spec)


# What the searches chose


def choices(runs: Runs, own: Mapping[str, list[dict]]) -> Table:
    """Build the table of what seed 0 chose: learning rates, then hyperparameters of a method's own.

    Args:
        runs: The components.
        own: Hyperparameter -> the records of its search.
    """
    searches = [(TITLES[name], "learning_rate", group) for name, group in runs.items()]
    searches += [(OWN[key], key, group) for key, group in own.items()]
    rows = []
    for heading, key, group in searches:
        for run in group:
            if run["seed"] == 0 and run["chosen"] and key in run["chosen"]["grid"]:
                tried, value = (
                    [member["grid"][key] for member in run["members"]],
                    run["chosen"]["grid"][key],
                )
                rows.append(
                    (heading, run["dataset"], value, value == min(tried), value == max(tried))
                )
    data = pd.DataFrame(rows, columns=["searched", "dataset", "chosen", "lowest", "highest"])

    cells = pivot_text(data, "searched", "dataset", lambda row: number(row["chosen"]))
    edges = data.groupby("searched", sort=False)[["lowest", "highest"]].agg(["sum", "size"])
    for edge in ("lowest", "highest"):
        cells[f"At the {edge}"] = [f"{n} of {size}" for n, size in edges[edge].to_numpy()]
    caption = (
        "What seed 0 chose by its validation loss: learning rates, α and β. The last columns count how often it is the "
        "lowest or the highest tried."
    )
    return Table("choices", caption, {"": cells}, data=data)


#: Hyperparameter of one method, and experiment that searches it -> its row among the choices.
OWN = {"alpha": "α of VeRA", "beta": "β of PVeRA"}


def by_accuracy(runs: Runs) -> str:
    """Say what PVeRA − VeRA is on the validation images where loss, and where accuracy chooses epoch and rate."""
    rows = {}
    for run in [*runs["vera"], *runs["pvera"]]:
        if run["seed"] == 0 and run["chosen"]:
            by_loss = chosen_member(run)["curve"]["validation_accuracy"][run["chosen"]["epoch"]]
            best = max(max(member["curve"]["validation_accuracy"]) for member in run["members"])
            rows[run["method"], run["dataset"]] = {"loss": by_loss, "accuracy": best}
    accuracies = 100 * pd.DataFrame(rows)
    gaps = (accuracies["pvera"] - accuracies["vera"]).mean(axis=1)
    return (
        f"On the validation images of seed 0, PVeRA − VeRA is {signed(gaps['loss'], 1)} points where the loss chooses "
        f"epoch and rate, and {signed(gaps['accuracy'], 1)} where the accuracy chooses."
    )


# Equal tuning beside the paper's


def beside_paper_tuning(equal: list[dict], paper: list[dict]) -> Table:
    """Build the table of averages and ranks of the methods under equal and under the paper's tuning."""
    panels = {}
    for heading, runs in (("Equal tuning", equal), ("The paper's tuning", paper)):
        accuracies = 100 * score_frame(runs)
        over_datasets = accuracies.groupby(level="dataset").mean()
        averages = over_datasets.mean(skipna=False)
        panels[heading, "Average"] = averages
        panels[heading, "Rank"] = averages.rank(ascending=False)
    data = pd.DataFrame(panels)
    spec = {key: (key, 1, "max") if key[1] == "Average" else (key, 0) for key in data}
    caption = (
        "Test accuracy (%), mean over data sets and seeds, and rank of the methods. Equal tuning: each searches its "
        "own hyperparameter, then its learning rate, on seed 0. The paper's tuning: each searches three values of one "
        "hyperparameter. Bold: best. Underlined: second best."
    )
    flat = (
        data.set_axis([" ".join(key) for key in data], axis=1).rename_axis("method").reset_index()
    )
    return Table("paper_tuning", caption, {"": data}, spec, flat, describe_runs(paper))
