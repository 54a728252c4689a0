"""Write the tables of docs/scaling.md: multiply-adds of a pass, and hours of the profile `paper`.

python experiments/scaling.py       # seconds; then experiments/front_page.py puts the tables into the page
"""

import pandas as pd
from options import Parser, read_profile

from pvera.cost import GIGA
from pvera.files import write_atomically
from pvera.report.tables.names import backbone_title
from pvera.study import cost_records, hours
from pvera.study.experiments import list_runs, of_profile
from pvera.study.markdown import table
from pvera.study.script import run


def main() -> None:
    parser = Parser(__doc__)
    parser.results()
    options = parser.parse_args()
    profile = read_profile("paper")
    runs = [one for name in of_profile(profile, "train") for one in list_runs(profile, name, options.results)]
    costs = cost_records.load_costs(options.results, cost_records.SIZES)
    tables = {"passes": passes(costs, profile.training.batch_size), "hours": hours.calculated(runs)}
    for name, text in tables.items():
        write_atomically(options.results / f"performance/scaling_{name}.md", f"{text}\n".encode())
        print(f"{text}\n")


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


if __name__ == "__main__":
    run(main)
