"""Version 3 of the experiment (docs/design.md): methods tuned alike, on synthetic tasks and images of VTAB-1k."""

import numpy as np
import pandas as pd

from pvera.report import analyses
from pvera.report.scores import chosen_member, largest_class, score_frame
from pvera.report.statistics import mean_interval, over_repeats
from pvera.report.table import Table, interval, number, pivot_text, signed, title
from pvera.report.tables import components
from pvera.report.tables.benchmark import describe_runs
from pvera.report.tables.components import TITLES, TUNED, VERA_DROPOUT, Runs
from pvera.selective import auroc
from pvera.study import results

#: Profile -> what its tasks are called.
SET_TITLES = {"mini": "Synthetic tasks", "vtab_tiny": "Images of VTAB-1k",
              "vtab_small": "ViT-S/14, fine-tuned for saliency"}  # fmt: skip
#: The profiles of both sets of tasks, and that with the paper's architecture, a block of its own.
*SETS, ARCHITECTURE = SET_TITLES
#: What is compared: the first minus the second.
COMPARED = [
    *(("pvera", name) for name in TUNED if name != "pvera"),
    (VERA_DROPOUT, "vera"),
    ("no_noise", "vera"),
    ("no_kl", VERA_DROPOUT),
    *(("fixed_sigma", name) for name in ("vera", "no_noise", VERA_DROPOUT)),
]
#: The methods that say whether a task can tell methods apart.
JUDGES = ("linear", "lora", "bottleneck")
#: Searches of a hyperparameter of one method -> their row among the choices.
OWN = {"alpha": "α of VeRA", "beta": "β of PVeRA"}
DRAWS = 16
CHANCE, SATURATED = 5, 95  # points above the largest class's share, and per cent


def sets(profile: str) -> list[str]:
    """Return the profiles whose tasks the pages of a profile show: both `SETS` on those of the first."""
    return SETS if profile == SETS[0] else [profile]


def title_of(profile: str) -> str:
    """Return what the tasks of a profile are called; its name where it is no part of the design."""
    return SET_TITLES.get(profile, profile)


def load(root, profile: str) -> dict[str, list[dict]]:
    """Load the records of the methods and variants, without the tasks that `left_out` names."""
    without, runs = left_out(root, profile), components.load(root, profile)
    kept = {name: [run for run in of if run["dataset"] not in without] for name, of in runs.items()}
    return {name: of for name, of in kept.items() if of}


#: Profile -> the analysis of its PVeRA adapters' draws; of others that of the benchmark's.
DRAWN = {"vtab_tiny": "uncertainty_tuned"}


def draws_by_task(root, profile: str) -> pd.DataFrame:
    """Return error rate (%) and Cliff's delta of the spread of `DRAWS` draws, incorrect against correct: a row per data
    set of the profile's `sets`, mean over seeds, with the columns set and backbone; empty without draws."""
    rows = []
    for name in sets(profile):
        without = left_out(root, name)
        for record, arrays in analyses.load_analyses(root, name, DRAWN.get(name, "uncertainty")):
            if record["dataset"] not in without:
                of_draws = analyses.estimates(arrays)[DRAWS]
                rows.append({
                    "dataset": record["dataset"], "set": title_of(name), "backbone": record["backbone"],
                    "error": 100 * (~of_draws.right).mean(), "delta": 2 * auroc(of_draws.sd, ~of_draws.right) - 1,
                })  # fmt: skip
    places = ["dataset", "set", "backbone"]
    tasks = pd.DataFrame(rows, columns=[*places, "error", "delta"])
    return tasks.groupby(places, sort=False).mean().reset_index(places[1:])


# The rule for tasks


def judges(root, profile: str) -> pd.DataFrame:
    """Return the test accuracy (%) of `JUDGES` with seed 0, and the share (%) of the largest class: a row per data set.

    left out: why the task cannot tell methods apart, at "chance" or "saturated"; else "". Without a row where one of
    them is not trained, and empty where no predictions, whose labels are counted, are there.
    """
    runs = [run for run in results.load_runs(root, profile, "tuned") if run["method"] in JUDGES and run["seed"] == 0]
    there = [run for run in runs if results.path_of(root, run).with_suffix(results.ARRAYS).exists()]
    if not there:
        return pd.DataFrame(columns=["left out"])
    accuracies = 100 * score_frame(runs).droplevel(["category", "seed"]).reindex(columns=JUDGES).dropna()
    scores = accuracies.join(100 * pd.Series(largest_class(root, there), name="largest class"))
    chance = accuracies.max(axis=1) < scores["largest class"] + CHANCE
    saturated = accuracies.min(axis=1) > SATURATED
    return scores.assign(**{"left out": np.select([chance, saturated], ["chance", "saturated"], "")})


def left_out(root, profile: str) -> dict[str, str]:
    """Return the data sets that cannot tell methods apart, and why."""
    return judges(root, profile)["left out"].loc[lambda reasons: reasons != ""].to_dict()


def rule_table(root, profile: str) -> Table | None:
    """Build the table of the rule for tasks; None where it cannot be applied yet."""
    scores = judges(root, profile)
    if scores.empty:
        return None
    spec = {
        "largest class": ("Largest class", 1),
        **{name: (title(name), 1) for name in JUDGES},
        "left out": ("Left out", lambda row: row["left out"] or "no"),
    }
    caption = (
        "Which tasks can tell methods apart: test accuracy (%) with seed 0, and the share (%) of the largest class. A "
        f"task is left out at chance, where the best is less than {CHANCE} points above that share, and saturated, "
        f"where the worst is above {SATURATED} %."
    )
    return Table("tuned_tasks", caption, {"": scores}, spec)


# The differences


def differences(runs: Runs) -> Table:
    """Build the table of the differences `COMPARED`: a column per data set, and their mean with its interval."""
    accuracies, rows = components.values(runs).droplevel("category"), {}
    for first, second in (pair for pair in COMPARED if runs.keys() >= {*pair}):
        gaps = (accuracies[first] - accuracies[second]).unstack("seed", sort=False)
        rows[f"{TITLES[first]} − {TITLES[second]}"] = gaps.mean(axis=1).to_dict() | mean_interval(gaps, over_repeats)
    data = pd.DataFrame(rows).T.rename_axis("difference")
    spec = {
        **{dataset: (title(dataset), "+1") for dataset in gaps.index},
        "mean": ("Mean", lambda row: f"{signed(row['mean'], 1)} {interval(None, row['low'], row['high'])}"),
    }
    caption = (
        "Differences of test accuracy (points) on the seeds that both have, and their mean with its 95 % interval if "
        "seeds were drawn anew."
    )
    return Table("tuned_differences", caption, {"": data}, spec, source=describe_runs(sum(runs.values(), [])))


# What the searches chose


def choices(root, profile: str) -> Table | None:
    """Build the table of what the searches chose, learning rates before α and β; None without."""
    named = {experiment: name for name, (*_, experiment) in TUNED.items() if experiment != "tuned"} | OWN
    rows = []
    for experiment in ("tuned", *named):
        key = experiment if experiment in OWN else "learning_rate"
        for run in results.load_runs(root, profile, experiment):
            if run["seed"] == 0 and run["chosen"]:
                tried, value = [member["grid"][key] for member in run["members"]], run["chosen"]["grid"][key]
                name = named.get(experiment, run["method"])
                rows.append((name, run["dataset"], value, value == min(tried), value == max(tried)))
    if not rows:
        return None
    data = pd.DataFrame(rows, columns=["searched", "dataset", "chosen", "lowest", "highest"])
    cells = pivot_text(data, "searched", "dataset", lambda row: number(row["chosen"]))
    edges = data.groupby("searched", sort=False)[["lowest", "highest"]].agg(["sum", "size"])
    for edge in ("lowest", "highest"):
        cells[f"At the {edge}"] = [f"{n} of {size}" for n, size in edges[edge].to_numpy()]
    caption = (
        f"{title_of(profile)}: what seed 0 chose by its validation loss; learning rates but for α and β. "
        "The last columns count how often it is the lowest or the highest tried."
    )
    return Table("tuned_choices", caption, {"": cells.rename(TITLES)}, data=data)


def by_accuracy(runs: Runs, profile: str) -> str:
    """Say what PVeRA − VeRA is on the validation images where loss, and where accuracy chooses epoch and rate."""
    rows = {}
    for run in [*runs["vera"], *runs["pvera"]]:
        if run["seed"] == 0 and run["chosen"]:
            by_loss = chosen_member(run)["curve"]["validation_accuracy"][run["chosen"]["epoch"]]
            best = max(max(member["curve"]["validation_accuracy"]) for member in run["members"])
            rows[run["method"], run["dataset"]] = {"loss": by_loss, "accuracy": best}
    accuracies = 100 * pd.DataFrame(rows)
    gap = (accuracies["pvera"] - accuracies["vera"]).mean(axis=1)
    return (
        f"{title_of(profile)}: on the validation images of seed 0, PVeRA − VeRA is {signed(gap['loss'], 1)} "
        f"points where the loss chooses epoch and rate, and {signed(gap['accuracy'], 1)} if the accuracy chose."
    )
