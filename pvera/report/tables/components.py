"""Which part of PVeRA helps: the methods, and variants between VeRA and PVeRA, paired by task and seed."""

from collections.abc import Mapping
from operator import itemgetter

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.scores import capped, score_frame
from pvera.report.table import Table, pivot_text, plain, title
from pvera.report.tables.benchmark import describe_runs, spread
from pvera.report.tables.verdicts import Gaps, Untestable, contrast
from pvera.study import results

VERA_DROPOUT = "VeRA with dropout"
#: Component -> its title, its method, its experiment: the eight methods and variants, tuned alike (docs/design.md).
TUNED = {
    **{name: (title(name), name, "tuned") for name in PAPER_METHODS if name not in ("vera", "pvera")},
    "vera": ("VeRA", "vera", "tuned"),
    VERA_DROPOUT: ("VeRA, half of its latent dropped", "vera", "tuned_dropout"),
    "no_noise": ("PVeRA, z = μ, β = 0", "pvera", "tuned_no_noise"),
    "fixed_sigma": ("PVeRA, σ = 1 fixed, β = 0", "pvera", "tuned_sigma_1"),
    "no_kl": ("PVeRA, σ learned, β = 0", "pvera", "tuned_no_kl"),
    "pvera": ("PVeRA", "pvera", "tuned"),
}
#: The same for noises of several sizes in the latent, with the paper's search.
NOISES = {
    "paper_vera": ("VeRA", "vera", "benchmark"),
    "dropout_0.1": ("VeRA, dropout 0.1 of the latent", "vera", "noise_dropout_0.1"),
    "dropout_0.5": ("VeRA, dropout 0.5 of the latent", "vera", "noise_dropout_0.5"),
    "sigma_0.3": ("PVeRA, σ = 0.3 fixed, β = 0", "pvera", "noise_sigma_0.3"),
    "sigma_1": ("PVeRA, σ = 1 fixed, β = 0", "pvera", "noise_sigma_1"),
    "sigma_3": ("PVeRA, σ = 3 fixed, β = 0", "pvera", "noise_sigma_3"),
    "paper_pvera": ("PVeRA", "pvera", "benchmark"),
}
TITLES = {name: title for name, (title, *_) in (TUNED | NOISES).items()}

#: Name of a contrast -> (component, the one that it is compared with). With z = μ and β = 0, PVeRA is VeRA with other
#: random draws and an A that is smaller by √2, as its variance, 2 / columns, counts the columns of both halves.
CONTRASTS = {
    "PVeRA − VeRA": ("pvera", "vera"),
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
TUNED_CAPTION = (
    "test accuracy (%) of the methods and of variants of VeRA and PVeRA, mean ± sample standard deviation over seeds. "
    f"Each searched its learning rate on each task. VeRA, PVeRA and variants have five seeds, others three. {EXPLAINED}"
)
NOISES_CAPTION = (
    "Test accuracy (%) with noises of several sizes in the latent, with the paper's search, mean ± sample standard "
    f"deviation over seeds. {EXPLAINED}"
)

Runs = Mapping[str, list[dict]]  # component -> records


def load(root, profile: str, of: Mapping[str, tuple[str, str, str]] = TUNED) -> dict[str, list[dict]]:
    """Load the records of each component on the profile's first backbone; one without runs is left out."""
    read = {name: results.load_runs(root, profile, name) for name in {experiment for *_, experiment in of.values()}}
    components = {}
    for name, (_, method, experiment) in of.items():
        runs = [run for run in read[experiment] if run["method"] == method]
        if runs:
            components[name] = [run for run in runs if run["backbone"] == runs[0]["backbone"]]
    return components


def noises(root, profile: str) -> dict[str, list[dict]]:
    """Load `NOISES` on the tasks and seeds that all of them have; empty where one has no runs."""
    runs, pair = load(root, profile, NOISES), itemgetter("dataset", "seed")
    if runs.keys() != NOISES.keys():
        return {}
    shared = set.intersection(*(set(map(pair, group)) for group in runs.values()))
    return {name: [run for run in group if pair(run) in shared] for name, group in runs.items()}


def values(runs: Runs, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (%) per component, rows (category, dataset, seed), NaN where a run is missing."""
    return pd.concat(
        {name: 100 * score_frame(group, metric).iloc[:, 0] for name, group in runs.items()}, axis=1, sort=False
    )


@contrast
def gap(accuracies: pd.DataFrame, name: str) -> Gaps:
    """Return the contrast `name` of `CONTRASTS` on `values`."""
    first, second = CONTRASTS[name]
    for component in (first, second):
        if component not in accuracies:
            raise Untestable(f"no runs of {TITLES[component]}")
    return {"": accuracies[first] - accuracies[second]}


def table(runs: Runs, name: str, caption: str) -> Table:
    """Build the table of accuracies: a row per component, a column per task, and what its trainings chose."""
    accuracies = values(runs)
    of_seeds = accuracies.groupby(level="dataset", sort=False)
    parts = {"mean": of_seeds.mean(), "std": of_seeds.std(), "runs": of_seeds.count()}
    parts["ace"] = values(runs, "ace").groupby(level="dataset", sort=False).mean()
    data = pd.concat({key: part.T.stack(future_stack=True) for key, part in parts.items()}, axis=1)
    data = data.rename_axis(["component", "dataset"]).reset_index()
    cells = pivot_text(data, "component", "dataset", lambda row: spread(row["mean"], row["std"], False))
    for part, heading in (("mean", "Average"), ("ace", "ACE")):
        cells[heading] = parts[part].mean(skipna=False).map(lambda mean: plain(mean, 1))
    epochs = ([run["chosen"]["epoch"] + 1 for run in group if run["chosen"]] for group in runs.values())
    cells["Epoch"] = [plain(np.median(of_group), 0) for of_group in epochs]
    cells["Capped"] = [str(capped(group)) for group in runs.values()]
    source = describe_runs(sum(runs.values(), []))
    return Table(name, caption, {"": cells.rename(TITLES)}, data=data, source=source)
