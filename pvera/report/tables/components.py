"""What in PVeRA does it: VeRA, then step by step up to PVeRA, paired by task and seed."""

from collections.abc import Mapping
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd

from pvera.report.scores import Scores, capped
from pvera.report.statistics import mean_and_std, seed_error, smallest
from pvera.report.tables.benchmark import about
from pvera.report.tables.layout import Cell, Panel, Row, Table, number, percent, plain, signed
from pvera.report.tables.names import dataset_title
from pvera.report.tables.verdicts import Claim, Statement, Untestable, judge, verdict, verdict_table
from pvera.study import results
from pvera.study.plan import COMPONENTS

#: Component -> its title.
TITLES = {
    "vera": "VeRA",
    "equal_budget": "VeRA, equal budget",
    "no_noise": "PVeRA, z = μ, β = 0",
    "no_kl": "PVeRA, z drawn, β = 0",
    "pvera": "PVeRA",
}

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA is VeRA with other
#: random draws and an A that is smaller by √2, as its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "PVeRA − VeRA": ("pvera", "vera"),
    "PVeRA − VeRA, equal budget": ("pvera", "equal_budget"),
    "z = μ − VeRA": ("no_noise", "vera"),
    "with noise − without (β = 0)": ("no_kl", "no_noise"),
    "with KL term − without": ("pvera", "no_kl"),
}

Runs = Mapping[str, list[dict]]  # component -> records


def experiments(component: str) -> tuple[str, tuple[str, ...]]:
    """Return the method of a component, and the experiments whose runs it consists of."""
    if component not in COMPONENTS:
        return "vera", (component,)
    method, changes = COMPONENTS[component]
    return method, (*(() if changes else ("benchmark",)), f"components_{component}")


def load(root, profile: str) -> dict[str, list[dict]]:
    """Load the records of each component on the profile's first backbone; one without runs is left out."""
    components = {}
    for name in TITLES:
        method, trained = experiments(name)
        runs = [run for run in results.load_runs(root, profile, *trained, optional=True) if run["method"] == method]
        if runs:
            components[name] = [run for run in runs if run["backbone"] == runs[0]["backbone"]]
    return components


def _every(runs: Runs) -> list[dict]:
    return list(chain.from_iterable(runs.values()))


def values(runs: Runs) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the test accuracy (%) per component, (tasks, seeds), NaN where a run is missing, and the tasks."""
    scores = {name: Scores.of(of_component) for name, of_component in runs.items()}
    whole = Scores.of(_every(runs))
    aligned = {}
    for name, own in scores.items():
        table = np.full((len(whole.datasets), len(whole.seeds)), np.nan)
        rows = [whole.datasets.index(dataset) for dataset in own.datasets]
        columns = [whole.seeds.index(seed) for seed in own.seeds]
        table[np.ix_(rows, columns)] = 100 * own.values[0].T
        aligned[name] = table
    return aligned, whole.datasets


def table(runs: Runs) -> Table:
    """Build the table of accuracies: a row per component, a column per task, and what its trainings chose."""
    accuracies, datasets = values(runs)
    rows, data = [], []
    for name, of_component in runs.items():
        mean, std = mean_and_std(accuracies[name], axis=1)
        whole = not np.isnan(mean).any()
        average = mean.mean() if whole else np.nan
        cells = [Cell(percent(m) if np.isnan(s) else f"{percent(m)} ± {s:.1f}") for m, s in zip(mean, std, strict=True)]
        epochs = [run["chosen"]["epoch"] + 1 for run in of_component if run["chosen"]]
        cells += [Cell(percent(average)), Cell(f"{np.median(epochs):.0f}"), Cell(str(capped(of_component)))]
        rows.append(Row(TITLES[name], tuple(cells)))
        data += [
            {"component": name, "dataset": dataset, "mean": m, "std": s, "runs": int((~np.isnan(seeds)).sum())}
            for dataset, m, s, seeds in zip(datasets, mean, std, accuracies[name], strict=True)
        ]
    header = (*map(dataset_title, datasets), "Average", "Epoch", "Capped")
    caption = (
        "Test accuracy (%) of VeRA, and of PVeRA step by step, mean ± sample standard deviation over seeds. With "
        "z = μ PVeRA still has other random draws than VeRA, and an A smaller by √2. Equal budget: VeRA's α was "
        "searched with as many configurations as PVeRA's β. Epoch: the median of the chosen ones. Capped: chosen "
        "trainings that the limit of epochs ended."
    )
    return Table("components", caption, about(_every(runs)), (Panel("", header, tuple(rows)),), pd.DataFrame(data))


def by_task(runs: Runs) -> Table:
    """Build the table of differences: a row per contrast, a column per task, with intervals for these tasks alone."""
    accuracies, datasets = values(runs)
    rows, data = [], []
    for name, (one, other) in CONTRASTS.items():
        if one not in runs or other not in runs:
            continue
        gaps = accuracies[one] - accuracies[other]  # (tasks, seeds)
        mean, std = mean_and_std(gaps, axis=1)
        pairs = (~np.isnan(gaps)).sum(1)
        half = np.array([seed_error(s[None], n) for s, n in zip(std, pairs, strict=True)])
        average, all_half = mean.mean(), seed_error(std, pairs)
        cells = [Cell(_with_half(m, h)) for m, h in zip([*mean, average], [*half, all_half], strict=True)]
        rows.append(Row(name, tuple(cells)))
        data += [
            {"contrast": name, "dataset": dataset, "difference": m, "half_width": h, "pairs": n}
            for dataset, m, h, n in zip(datasets, mean, half, pairs, strict=True)
        ]
        data.append({"contrast": name, "dataset": "average", "difference": average, "half_width": float(all_half)})
    header = (*map(dataset_title, datasets), "Average")
    caption = (
        "Differences of test accuracy (points) in pairs of seeds, ± half the 95 % interval for other seeds on these "
        "same tasks (Student's t). It says nothing about other tasks." + _said_of_kl_term(runs)
    )
    return Table(
        "components_by_task", caption, about(_every(runs)), (Panel("", header, tuple(rows)),), pd.DataFrame(data)
    )


def _with_half(mean: float, half: float) -> str:
    return signed(mean, 1) if np.isnan(half) else f"{signed(mean, 1)} ± {plain(half, 1)}"


def _contrast(name: str, runs: Runs) -> dict[str, np.ndarray]:
    for component in CONTRASTS[name]:
        if component not in runs:
            raise Untestable(f"no runs of {TITLES[component]}")
    accuracies, _ = values(runs)
    one, other = CONTRASTS[name]
    return {"": accuracies[one] - accuracies[other]}


def _kl_term_chosen(runs: Runs) -> dict[str, np.ndarray]:
    """Return the contrast of the KL term, NaN on the tasks `without_kl_term`."""
    gaps, same = _contrast("with KL term − without", runs)[""], without_kl_term(runs)
    return {"": np.where([[dataset in same] for dataset in values(runs)[1]], np.nan, gaps)}


def without_kl_term(runs: Runs) -> set[str]:
    """Return the tasks where the search chose β = 0: PVeRA's trainings are those without the KL term."""
    trained = {run["config_hash"] for run in runs.get("no_kl", ())}
    return {run["dataset"] for run in runs.get("pvera", ()) if run["config_hash"] in trained}


def _said_of_kl_term(runs: Runs) -> str:
    same = without_kl_term(runs)
    titles = [dataset_title(name) for name in values(runs)[1] if name in same]
    return f" On {' and '.join(titles)} the search chose β = 0: with KL term and without are the same." if same else ""


def _without_one_task(runs: Runs) -> str:
    """Say how often the first claim's verdict stays when a task is left out."""
    gaps, datasets = _contrast("PVeRA − VeRA", runs)[""], values(runs)[1]
    whole = verdict(smallest({"": gaps}))
    stays = [
        dataset_title(name)
        for place, name in enumerate(datasets)
        if verdict(smallest({"": np.delete(gaps, place, axis=0)})) == whole
    ]
    listed = f" ({', '.join(stays)})" if stays else ""
    return f" Without one of the {len(datasets)} tasks, the first verdict stays for {len(stays)} of them{listed}."


STATEMENTS = tuple(
    Statement(text, "{size} points above", "{size} points below", contrast)
    for text, contrast in (
        ("PVeRA is more accurate than VeRA", partial(_contrast, "PVeRA − VeRA")),
        ("The noise makes PVeRA more accurate (β = 0)", partial(_contrast, "with noise − without (β = 0)")),
        ("The KL term makes PVeRA more accurate", partial(_contrast, "with KL term − without")),
        ("The KL term makes PVeRA more accurate where the search chose one", _kl_term_chosen),
        ("PVeRA is more accurate than VeRA with an equal budget", partial(_contrast, "PVeRA − VeRA, equal budget")),
    )
)


def claims(runs: Runs) -> list[Claim]:
    """Judge the primary questions, and those with an equal budget and where β is not 0."""
    return judge(runs, STATEMENTS)


def claims_table(runs: Runs) -> Table:
    """Build the table of `claims`."""
    every = _every(runs)
    seeds = sorted({run["seed"] for run in every})
    caption = "Does PVeRA improve on VeRA, and what in it does so?" + _without_one_task(runs) + _said_of_kl_term(runs)
    return verdict_table("components_claims", caption, about(every), claims(runs), seeds)


def searched(root, profile: str) -> Table | None:
    """Build the table of the values that the searches of β and α chose, per task; None without a search."""
    rows, data = [], []
    found = {name: results.load_runs(root, profile, name, optional=True) for name in ("beta", "alpha")}
    runs = [run for of_search in found.values() for run in of_search]
    if not runs:
        return None
    datasets = Scores.of(runs).datasets
    for name, of_search in found.items():
        chosen = {run["dataset"]: run for run in of_search if run["chosen"]}
        cells = []
        for dataset in datasets:
            if dataset not in chosen:
                cells.append(Cell("–"))
                continue
            run = chosen[dataset]
            value = run["chosen"]["grid"][name]
            tried = sorted({member["grid"][name] for member in run["members"]})
            at_edge = value == tried[-1] or (value == tried[0] and value > 0)
            cells.append(Cell(number(value) + " (edge)" * at_edge))
            data.append({"hyperparameter": name, "dataset": dataset, "chosen": value, "edge": at_edge})
        if of_search:
            rows.append(Row({"beta": "β of PVeRA", "alpha": "α of VeRA"}[name], tuple(cells)))
    caption = (
        "The values that a search on the validation loss chose, with the first seed. Edge: no larger value was tried, "
        "or no smaller one above zero, so the best may lie beyond."
    )
    panel = Panel("", tuple(map(dataset_title, datasets)), tuple(rows))
    return Table("components_searched", caption, about(runs), (panel,), pd.DataFrame(data))
