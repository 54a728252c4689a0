"""PVeRA along β, from no KL term to one that outweighs the loss: accuracy, calibration, detection of errors."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pvera.report.table import Table, number
from pvera.report.tables.uncertainty_baselines import Baselines, about, joined, over_tasks

ALONG_BETA = "beta_rivals"
PUBLISHED = 1e-6  # the published program's value on more data sets than any other

PERCENT = ["accuracy", "ace", "ace_draws"]
#: Column of `along_beta` -> title and digits.
SPEC = {
    "accuracy": ("Accuracy (%)", 1),
    "nll": ("NLL", 3),
    "ace": ("ACE (%)", 1),
    "nll_draws": ("NLL, draws", 3),
    "ace_draws": ("ACE, draws (%)", 1),
    "auroc": ("AUROC, score", 3),
    "auroc_spread": ("AUROC, spread", 3),
    "mutual": ("Mutual information", 4),
}


def load(root, profile: str) -> Baselines | None:
    """Load PVeRA's draws along β, a column `beta` in each frame; None where there are none."""
    folders = sorted(path.name for path in (Path(root) / profile).glob(f"{ALONG_BETA}_*"))
    return joined(root, profile, {name: {"beta": float(name.removeprefix(f"{ALONG_BETA}_"))} for name in folders})


def beta_table(along: Baselines) -> Table:
    """Build the table of scores along β."""
    data = along_beta(along)
    shown = data.set_index("beta").rename(number)
    shown[PERCENT] *= 100
    draws = int(along.scores["passes"][along.scores["way"] == "draws"].max())
    caption = (
        f"PVeRA along β, mean over data sets and seeds. One pass with the mean, and {draws} draws. ACE in points. "
        "AUROC of incorrect predictions (0.5: chance): by 1 − the highest score of one pass, and by the standard "
        "deviation of the highest score over draws. Mutual information of label and draw in nats. The published "
        f"program takes β = {number(PUBLISHED)} more often than any other value, but averages the KL term over latent "
        "dimensions, where Eq. 9 sums it: its weight is a smaller one here."
    )
    return Table("beta_effects", caption, {"": shown}, SPEC, data, about(along))


def along_beta(along: Baselines, by: Sequence[str] = ("beta",)) -> pd.DataFrame:
    """Return the columns of `SPEC` per β, mean over data sets and seeds; by: ("beta", "seed") for each seed alone."""
    most = along.scores["passes"][along.scores["way"] == "draws"].max()

    def select(frame: pd.DataFrame, way: str) -> pd.DataFrame:
        frame = frame[(frame["way"] == way) & (frame["passes"] == (most if way == "draws" else 1))]
        return frame[~frame["scaled"]] if "scaled" in frame else frame

    once, drawn = (select(along.scores, way) for way in ("pass", "draws"))
    score, spread = select(along.detection, "pass"), select(along.detection, "draws")
    columns = {name: over_tasks(once, name, by) for name in ("accuracy", "nll", "ace")}
    columns |= {f"{name}_draws": over_tasks(drawn, name, by) for name in ("nll", "ace")}
    columns["auroc"] = over_tasks(score[score["by"] == "score"], "auroc", by)
    columns["auroc_spread"] = over_tasks(spread[spread["by"] == "spread"], "auroc", by)
    columns["mutual"] = over_tasks(drawn, "mutual", by)
    return pd.DataFrame(columns).reset_index().sort_values(list(by), ignore_index=True)
