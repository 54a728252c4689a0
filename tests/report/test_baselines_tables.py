"""Tables and contrasts of the uncertainty baselines, on committed results; `test_regenerate` holds all cells."""

import pytest

from pvera.report.tables import baselines as tables
from results import ROOT

ENSEMBLE = ("vera", "rivals", "ensemble")


@pytest.fixture(scope="module")
def loaded():
    return tables.load(ROOT / "results", "mini")


def test_cells_are_means_over_seeds_then_data_sets(loaded):
    scores = loaded.frames["scores"].query("method == 'pvera' and way == 'draws' and passes == 4 and not scaled")
    row = tables.scores_table(loaded).texts()["(c) 4 forward passes"].loc["PVeRA, 4 draws"]
    assert row["NLL"] == f"{scores.groupby('dataset')['nll'].mean().mean():.3f}"
    floor = 100 * scores.groupby("dataset")["ece_floor"].mean().mean()
    assert row["ECE (%)"].endswith(f" ({floor:.1f})"), "a calibration error stands beside its floor"


def test_an_ensemble_is_compared_with_each_seed(loaded):
    values = tables.compared(loaded, "NLL")
    (passes,) = {key[0] for key in values.index if key[1:4] == ENSEMBLE}
    ensemble = values.loc[(passes, *ENSEMBLE)]
    assert len(ensemble.columns) == passes and ensemble.nunique(axis=1).eq(1).all()
    gap = (ensemble - values.loc[tables.REFERENCE]).mean(axis=1).mean()
    row = tables.differences_table(loaded).data.set_index([*tables.KEY, "score"]).loc[(passes, *ENSEMBLE, "NLL")]
    assert row["mean"] == pytest.approx(gap) and row["low"] < gap < row["high"]


def test_a_way_that_a_data_set_lacks_has_no_mean(loaded):
    """Else it would be compared on other data sets, as if a seed of LoRA's ensemble had diverged on one."""
    frame = loaded.frames["scores"].query("not scaled")
    chosen = frame[["method", "source", "way", "dataset"]].eq(["lora", "rivals", "ensemble", "vessels"]).all(axis=1)
    means = tables.over_tasks(frame.assign(passes=frame["passes"].where(~chosen, 99)), "nll")
    assert means.isna().sum() == 2 and means.notna().any()
