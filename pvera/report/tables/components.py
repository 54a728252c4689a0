"""What in PVeRA does it: VeRA, then step by step up to PVeRA, paired by task and seed."""

from collections.abc import Mapping
from itertools import chain

import numpy as np
import pandas as pd

from pvera.report.scores import capped, over_seeds, wide
from pvera.report.statistics import seed_error, smallest
from pvera.report.table import Table, crossed, number, plain, signed, title
from pvera.report.tables.benchmark import about
from pvera.report.tables.verdicts import Contrast, Untestable, verdict
from pvera.study import results
from pvera.study.plan import COMPONENTS

#: Component -> its title.
TITLES = {
    "vera": "VeRA",
    "equal_budget": "VeRA, equal budget",
    "no_noise": "PVeRA, z = μ, β = 0",
    "fixed_sigma": "PVeRA, σ = 1 fixed, β = 0",
    "no_kl": "PVeRA, σ learned, β = 0",
    "pvera": "PVeRA",
}

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA is VeRA with other
#: random draws and an A that is smaller by √2, as its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "PVeRA − VeRA": ("pvera", "vera"),
    "PVeRA − VeRA, equal budget": ("pvera", "equal_budget"),
    "z = μ − VeRA": ("no_noise", "vera"),
    "with noise − without (β = 0)": ("no_kl", "no_noise"),
    "σ = 1 − no noise (β = 0)": ("fixed_sigma", "no_noise"),
    "σ learned − σ = 1 (β = 0)": ("no_kl", "fixed_sigma"),
    "with KL term − without": ("pvera", "no_kl"),
}

Runs = Mapping[str, list[dict]]  # component -> records
KL_CHOSEN = "kl_term_chosen"


def experiments(component: str) -> tuple[str, tuple[str, ...]]:
    """Return the method of a component, and the experiments whose runs it consists of."""
    if component == "fixed_sigma":
        return "pvera", ("noise_sigma_1",)
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


def values(runs: Runs) -> pd.DataFrame:
    """Return the test accuracy (%) per component, rows (category, dataset, seed), NaN where a run is missing.

    The column `KL_CHOSEN` holds PVeRA's on the tasks where the search chose a KL term.
    """
    frame = pd.concat({name: 100 * wide(group).iloc[:, 0] for name, group in runs.items()}, axis=1, sort=False)
    if "pvera" in frame:
        without = frame.index.get_level_values("dataset").isin(without_kl_term(runs))
        frame[KL_CHOSEN] = frame["pvera"].mask(without)
    return frame


def without_kl_term(runs: Runs) -> set[str]:
    """Return the tasks where the search chose β = 0: PVeRA's trainings are those without the KL term."""
    trained = {run["config_hash"] for run in runs.get("no_kl", ())}
    return {run["dataset"] for run in runs.get("pvera", ()) if run["config_hash"] in trained}


def gap(name: str, where: str = "") -> Contrast:
    """Return the contrast `name` of `CONTRASTS` on `values`; where: the column in place of its first component's."""

    def contrast(accuracies: pd.DataFrame) -> dict[str, pd.DataFrame]:
        for component in CONTRASTS[name]:
            if component not in accuracies:
                raise Untestable(f"no runs of {TITLES[component]}")
        one, other = CONTRASTS[name]
        return {"": (accuracies[where or one] - accuracies[other]).unstack("seed", sort=False)}

    return contrast


def table(runs: Runs) -> Table:
    """Build the table of accuracies: a row per component, a column per task, and what its trainings chose."""
    accuracies = values(runs)[list(runs)]
    of_seeds = accuracies.groupby(level="dataset", sort=False)
    parts = {"mean": of_seeds.mean(), "std": of_seeds.std(), "runs": of_seeds.count()}
    errors = pd.concat({name: 100 * wide(group, "ace").iloc[:, 0] for name, group in runs.items()}, axis=1, sort=False)
    parts["ace"] = errors.groupby(level="dataset", sort=False).mean()
    data = pd.concat({name: part.T.stack(future_stack=True) for name, part in parts.items()}, axis=1)
    cells = pd.DataFrame(
        {name: [_plus_minus(plain(m, 1), s) for m, s in zip(parts["mean"][name], parts["std"][name], strict=True)]
         for name in runs}, parts["mean"].index,
    ).T  # fmt: skip
    cells["Average"] = parts["mean"].mean(skipna=False).map(lambda mean: plain(mean, 1))
    cells["ACE"] = parts["ace"].mean(skipna=False).map(lambda mean: plain(mean, 1))
    epochs = {name: [run["chosen"]["epoch"] + 1 for run in group if run["chosen"]] for name, group in runs.items()}
    cells["Epoch"] = [plain(np.median(epochs[name]), 0) for name in runs]
    cells["Capped"] = [str(capped(group)) for group in runs.values()]
    caption = (
        "Test accuracy (%) of VeRA, and of PVeRA step by step, mean ± sample standard deviation over seeds. With "
        "z = μ PVeRA still has other random draws than VeRA, and an A smaller by √2. With σ = 1 fixed no variance is "
        "trained: what is trained and computed is as much as in VeRA. Equal budget: VeRA's α was searched with as many "
        "configurations as PVeRA's β. ACE: adaptive calibration error (%), mean over tasks. Epoch: the median of the "
        "chosen ones. Capped: chosen trainings that the limit of epochs ended."
    )
    data = data.rename_axis(["component", "dataset"]).reset_index()
    return Table("components", caption, {"": cells.rename(TITLES)}, data=data, about=about(_every(runs)))


def _plus_minus(text: str, half: float) -> str:
    return text if np.isnan(half) else f"{text} ± {plain(half, 1)}"


def by_task(runs: Runs) -> Table:
    """Build the table of differences: a row per contrast, a column per task, with intervals for these tasks alone."""
    accuracies = values(runs)
    cells, data = {}, []
    for name, (one, other) in CONTRASTS.items():
        if one not in runs or other not in runs:
            continue
        of_seeds = (accuracies[one] - accuracies[other]).groupby(level="dataset", sort=False)
        mean, std, pairs = of_seeds.mean(), of_seeds.std(), of_seeds.count()
        halves = [seed_error(np.array([s]), n) for s, n in zip(std, pairs, strict=True)]
        rows = pd.DataFrame({"contrast": name, "dataset": mean.index, "difference": mean.to_numpy(),
                             "half_width": halves, "pairs": pairs.to_numpy(float)})  # fmt: skip
        rows.loc[len(rows)] = [name, "average", mean.mean(skipna=False), seed_error(std.to_numpy(), pairs), np.nan]
        cells[name] = [
            _plus_minus(signed(m, 1), h) for m, h in zip(rows["difference"], rows["half_width"], strict=True)
        ]
        data.append(rows)
    caption = (
        "Differences of test accuracy (points) in pairs of seeds, ± half the 95 % interval for other seeds on these "
        "same tasks (Student's t). It says nothing about other tasks."
    )
    if same := [title(name) for name in accuracies.index.unique("dataset") if name in without_kl_term(runs)]:
        caption += f" On {' and '.join(same)} the search chose β = 0: with KL term and without are the same."
    panel = pd.DataFrame.from_dict(cells, orient="index", columns=[*accuracies.index.unique("dataset"), "Average"])
    return Table("components_by_task", caption, {"": panel}, data=pd.concat(data), about=about(_every(runs)))


def without_one_task(runs: Runs) -> str:
    """Say how often the verdict on PVeRA against VeRA stays when a task is left out."""
    gaps = gap("PVeRA − VeRA")(values(runs))[""]
    whole, tasks = verdict(smallest({"": gaps.to_numpy()}).bounds), gaps.index.unique("dataset")
    left = {task: smallest({"": gaps.drop(index=task, level="dataset").to_numpy()}) for task in tasks}
    stays = [title(task) for task, effect in left.items() if verdict(effect.bounds) == whole]
    listed = f" ({', '.join(stays)})" if stays else ""
    return f"Without one of the {len(tasks)} tasks, the first verdict stays for {len(stays)} of them{listed}."


def searched(root, profile: str) -> Table | None:
    """Build the table of the values that the searches of β and α chose, per task; None without a search."""
    found = {name: results.load_runs(root, profile, name, optional=True) for name in ("beta", "alpha")}
    runs = [run for of_search in found.values() for run in of_search]
    if not runs:
        return None
    rows = []
    for name, of_search in found.items():
        for run in of_search:
            if run["chosen"]:
                value = run["chosen"]["grid"][name]
                tried = sorted({member["grid"][name] for member in run["members"]})
                edge = value == tried[-1] or (value == tried[0] and value > 0)
                rows.append({"hyperparameter": name, "dataset": run["dataset"], "chosen": value, "edge": edge})
    datasets = over_seeds(wide(runs)).index.unique("dataset")
    data = pd.DataFrame(rows).set_index("dataset").loc[datasets].reset_index()
    data = data.sort_values("hyperparameter", ascending=False, kind="stable")[list(rows[0])]
    cells = crossed(data, "hyperparameter", "dataset", lambda row: number(row.chosen) + " (edge)" * row.edge)
    caption = (
        "The values that a search on the validation loss chose, with the first seed. Edge: no larger value was tried, "
        "or no smaller one above zero, so the best may lie beyond."
    )
    panel = cells.rename({"beta": "β of PVeRA", "alpha": "α of VeRA"})
    return Table("components_searched", caption, {"": panel}, data=data, about=about(runs))
