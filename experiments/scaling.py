"""Write the tables of docs/scaling.md: what is counted, and the runs of the profile `paper`.

    python experiments/scaling.py       # seconds; then experiments/front_page.py puts the tables into the page

The work of a run is its multiply-adds, as `pvera.study.hours` counts them.
"""

import pandas as pd
from options import ROOT, Parser

from pvera.cost import GIGA
from pvera.data import vtab
from pvera.files import write_atomically
from pvera.report.tables.names import backbone_title
from pvera.study import cost_records, hours
from pvera.study.experiments import list_runs, named, of_profile
from pvera.study.markdown import table
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.script import run

PETA = 10**15


def main() -> None:
    parser = Parser(__doc__)
    parser.results()
    options = parser.parse_args()
    profile = Profile.read(ROOT / "experiments/profiles/paper.yaml")
    started = [one for name in of_profile(profile, "train") for one in list_runs(profile, name, options.results)]
    runs = trainings(started)
    costs = cost_records.load_costs(options.results, cost_records.SIZES)
    tables = {
        "passes": passes(costs, profile.training.batch_size),
        "runs": by_experiment(runs),
        "hours": hours.calculated(started),
    }
    for name, text in tables.items():
        write_atomically(options.results / f"performance/scaling_{name}.md", f"{text}\n".encode())
        print(f"{text}\n")
    largest = runs.loc[runs["work"].idxmax()]
    print(f"The largest run has {largest.work / PETA:.1f} PMACs: {largest.method} on {largest.dataset}, "
          f"{largest.backbone}, {largest.experiment}.")  # fmt: skip


def passes(costs: pd.DataFrame, batch_size: int) -> str:
    """Return the counted multiply-adds of one image and one training step, per backbone of the paper."""
    lines = []
    for backbone, rows in costs.groupby("backbone", sort=False):
        frozen = rows["backbone_multiply_adds"].iloc[0]
        training = rows.drop_duplicates("method").set_index("method")["training"]
        shares = [f"{100 * (training[name] / frozen - 1):.1f}" for name in ("vera", "pvera")]
        step = 2 * batch_size * training["pvera"] / (1000 * GIGA)
        lines.append([backbone_title(backbone), f"{frozen / GIGA:.1f}", *shares, f"{step:.2f}"])
    header = ["Backbone", "GMACs of an image, frozen", "VeRA adds (%)", "PVeRA adds, training (%)",
              f"TMACs of PVeRA's step, {batch_size} images"]  # fmt: skip
    return table(header, lines, "lrrrr")


def trainings(runs: list[Run]) -> pd.DataFrame:
    """Return a row per training: what it is, and its `work`."""
    rows = []
    for one in runs:
        epochs = 0 if one.method == "linear" else hours.EPOCHS
        row = {name: getattr(one, name) for name in ("backbone", "dataset", "method")}
        row |= {"experiment": named(one.experiment).name, "members": len(one.candidates), "work": hours.work(one)}
        rows.append(row | {"steps": epochs * -(-vtab.TRAINING["train800"] // one.training.batch_size)})
    return pd.DataFrame(rows)


def by_experiment(runs: pd.DataFrame) -> str:
    """Return the work of the trainings by backbone and experiment."""
    sums = runs.groupby(["backbone", "experiment"], sort=False)[["members", "steps", "work"]].sum()
    sums.insert(0, "runs", runs.groupby(["backbone", "experiment"], sort=False).size())
    sums.loc[("all", ""), :] = sums.sum()
    lines = [
        [backbone_title(backbone), experiment, f"{row.runs:,.0f}", f"{row.members:,.0f}", f"{row.steps:,.0f}",
         f"{row.work / PETA:,.0f}", f"{100 * row.work / runs['work'].sum():.1f}"]
        for (backbone, experiment), row in sums.iterrows()
    ]  # fmt: skip
    return table(["Backbone", "Experiment", "Runs", "Members", "Steps", "PMACs", "Share (%)"], lines, "llrrrrr")


if __name__ == "__main__":
    run(main)
