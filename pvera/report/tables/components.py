"""Which part of PVeRA helps: VeRA, then step by step up to PVeRA, paired by task and seed."""

from collections.abc import Mapping
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.scores import capped, place, score_frame
from pvera.report.table import Table, number, pivot_text, plain, title
from pvera.report.tables.benchmark import describe_runs, spread
from pvera.report.tables.verdicts import Gaps, Untestable, contrast
from pvera.study import results

#: Component -> its title, its method, and the experiments whose runs it consists of.
COMPONENTS = {
    "vera": ("VeRA", "vera", "benchmark", "components_vera"),
    "equal_budget": ("VeRA, equal budget", "vera", "equal_budget"),
    "no_noise": ("PVeRA, z = μ, β = 0", "pvera", "components_no_noise"),
    "fixed_sigma": ("PVeRA, σ = 1 fixed, β = 0", "pvera", "noise_sigma_1"),
    "no_kl": ("PVeRA, σ learned, β = 0", "pvera", "components_no_kl"),
    "pvera": ("PVeRA", "pvera", "benchmark", "components_pvera"),
}
VERA_DROPOUT = "VeRA with dropout"
#: The eight methods and the same variants, all tuned alike, as docs/design.md plans it.
TUNED = {
    **{name: (title(name), name, "tuned") for name in PAPER_METHODS if name not in ("vera", "pvera")},
    "vera": ("VeRA", "vera", "tuned"),
    VERA_DROPOUT: ("VeRA, half of its latent dropped", "vera", "tuned_dropout"),
    "no_noise": ("PVeRA, z = μ, β = 0", "pvera", "tuned_no_noise"),
    "fixed_sigma": ("PVeRA, σ = 1 fixed, β = 0", "pvera", "tuned_sigma_1"),
    "no_kl": ("PVeRA, σ learned, β = 0", "pvera", "tuned_no_kl"),
    "pvera": ("PVeRA", "pvera", "tuned"),
}
TITLES = {name: title for name, (title, *_) in (COMPONENTS | TUNED).items()}

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA is VeRA with other
#: random draws and an A that is smaller by √2, as its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "PVeRA − VeRA": ("pvera", "vera"),
    "PVeRA − VeRA, equal budget": ("pvera", "equal_budget"),
    "PVeRA − VeRA with dropout": ("pvera", VERA_DROPOUT),
    "VeRA with dropout − VeRA": (VERA_DROPOUT, "vera"),
    "z = μ − VeRA": ("no_noise", "vera"),
    "noise − no noise (β = 0)": ("no_kl", "no_noise"),
    "σ = 1 − no noise (β = 0)": ("fixed_sigma", "no_noise"),
    "σ learned − σ = 1 (β = 0)": ("no_kl", "fixed_sigma"),
    "with KL term − without": ("pvera", "no_kl"),
}

EXPLAINED = (
    "ACE: adaptive calibration error (%), mean over tasks. Epoch: the median of the chosen ones. Capped: chosen "
    "trainings that the limit of epochs ended."
)
CAPTION = (
    "Test accuracy (%) of VeRA, and of PVeRA step by step, mean ± sample standard deviation over seeds. With "
    "z = μ PVeRA still has other random draws than VeRA, and an A smaller by √2. With σ = 1 fixed no variance is "
    "trained: what is trained and computed is as much as in VeRA. Equal budget: VeRA's α was searched with as many "
    f"configurations as PVeRA's β. {EXPLAINED}"
)
TUNED_CAPTION = (
    "test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample standard deviation over seeds. "
    f"Each searched its learning rate on each task. VeRA, PVeRA and variants have five seeds, others three. {EXPLAINED}"
)
NOISES_CAPTION = (
    "Test accuracy (%) with noises of several sizes in the latent, mean ± sample standard deviation over seeds. "
    f"{EXPLAINED}"
)

Runs = Mapping[str, list[dict]]  # component -> records
KL_CHOSEN = "kl_term_chosen"
#: Kind of noise -> the component without it, and the title of its experiment's runs, below noise_<kind>_<value>.
NOISES = {
    "dropout": ("vera", "VeRA, dropout {} of the latent"),
    "sigma": ("no_noise", "PVeRA, σ = {} fixed, β = 0"),
}


def load(root, profile: str, of: Mapping[str, tuple[str, ...]] = COMPONENTS) -> dict[str, list[dict]]:
    """Load the records of each component on the profile's first backbone; one without runs is left out."""
    read = cache(partial(results.load_runs, root, profile))  # components share experiments
    components = {}
    for name, (_, method, *trained) in of.items():
        runs = [run for run in read(*trained) if run["method"] == method]
        if runs:
            components[name] = [run for run in runs if run["backbone"] == runs[0]["backbone"]]
    return components


def noises(root, profile: str, of: Runs) -> dict[str, list[dict]]:
    """Load VeRA with part of its latent dropped and PVeRA with several σ, between the components `of` these.

    All have the tasks and seeds that these noises share. Empty where there is no noise but σ = 1.
    """
    pair, rows, pairs = itemgetter("dataset", "seed"), {}, []
    for kind, (without, heading) in NOISES.items():
        rows[without] = of[without]
        for folder in sorted((Path(root) / profile).glob(f"noise_{kind}_*")):
            runs = results.load_runs(root, profile, folder.name)
            rows[heading.format(folder.name.rpartition("_")[2])] = runs
            pairs.append(set(map(pair, runs)))
    if len(pairs) < 2:
        return {}
    shared = set.intersection(*pairs)
    rows["no_kl"] = of["no_kl"]
    return {name: [run for run in runs if pair(run) in shared] for name, runs in rows.items()}


def values(runs: Runs, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (%) per component, rows (category, dataset, seed), NaN where a run is missing.

    The column `KL_CHOSEN` holds PVeRA's on the tasks where the search chose a KL term.
    """
    frame = pd.concat(
        {name: 100 * score_frame(group, metric).iloc[:, 0] for name, group in runs.items()}, axis=1, sort=False
    )
    if "pvera" in frame:  # where the search chose β = 0, PVeRA's trainings are those without the KL term
        trained = {run["config_hash"] for run in runs.get("no_kl", ())}
        without = {run["dataset"] for run in runs["pvera"] if run["config_hash"] in trained}
        frame[KL_CHOSEN] = frame["pvera"].mask(frame.index.isin(without, level="dataset"))
    return frame


@contrast
def gap(accuracies: pd.DataFrame, name: str, where: str = "") -> Gaps:
    """Return the contrast `name` of `CONTRASTS` on `values`; where: the column in place of its first component's."""
    for component in CONTRASTS[name]:
        if component not in accuracies:
            raise Untestable(f"no runs of {TITLES[component]}")
    first, second = CONTRASTS[name]
    return {"": accuracies[where or first] - accuracies[second]}


def table(runs: Runs, name: str = "components", caption: str = CAPTION) -> Table:
    """Build the table of accuracies: a row per component, a column per task, and what its trainings chose."""
    accuracies = values(runs)[list(runs)]
    of_seeds = accuracies.groupby(level="dataset", sort=False)
    parts = {"mean": of_seeds.mean(), "std": of_seeds.std(), "runs": of_seeds.count()}
    parts["ace"] = values(runs, "ace")[list(runs)].groupby(level="dataset", sort=False).mean()
    data = pd.concat({key: part.T.stack(future_stack=True) for key, part in parts.items()}, axis=1)
    data = data.rename_axis(["component", "dataset"]).reset_index()
    cells = pivot_text(data, "component", "dataset", lambda row: spread(row["mean"], row["std"], False))
    for part, heading in (("mean", "Average"), ("ace", "ACE")):
        cells[heading] = parts[part].mean(skipna=False).map(lambda mean: plain(mean, 1))
    epochs = ([run["chosen"]["epoch"] + 1 for run in group if run["chosen"]] for group in runs.values())
    cells["Epoch"] = [plain(np.median(of_group), 0) for of_group in epochs]
    cells["Capped"] = [str(capped(group)) for group in runs.values()]
    source = describe_runs(list(chain(*runs.values())))
    return Table(name, caption, {"": cells.rename(TITLES)}, data=data, source=source)


def searched(root, profile: str) -> Table | None:
    """Build the table of the values that the searches of β and α chose, per task; None without a search."""
    runs = results.load_runs(root, profile, "beta", "alpha")
    if not runs:
        return None
    rows = []
    for run in sorted(runs, key=lambda run: (run["experiment"] != "beta", place(run))):
        if run["chosen"]:
            name = run["experiment"]
            value, tried = run["chosen"]["grid"][name], sorted({member["grid"][name] for member in run["members"]})
            rows.append((name, run["dataset"], value, value == tried[-1] or (value == tried[0] and value > 0)))
    data = pd.DataFrame(rows, columns=["hyperparameter", "dataset", "chosen", "edge"])
    cells = pivot_text(
        data, "hyperparameter", "dataset", lambda row: number(row.chosen) + (" (edge)" if row.edge else "")
    )
    caption = (
        "The values that a search on the validation loss chose, with the first seed. Edge: no larger value was tried, "
        "or no smaller one above zero, so the best may lie beyond."
    )
    panel = cells.rename({"beta": "β of PVeRA", "alpha": "α of VeRA"})
    searches = [list(group) for _, group in groupby(runs, itemgetter("experiment"))]
    return Table("components_searched", caption, {"": panel}, data=data, source=" ".join(map(describe_runs, searches)))
