"""How long trainings last, of records made by hand."""

import numpy as np
import pytest
from hand import lines, parsed
from records import make_record

from pvera.report.tables import duration

NAN = float("nan")
LIMIT = 3
SHORT = {"max_epochs": LIMIT, "patience": 20, "tolerance": 1e-3}


def trained(method, losses, seed=0, dataset="digits", correct=5, status="stopped early"):
    """A run with one member; its validation accuracy is the epoch in percent."""
    run = make_record(method, dataset, seed, correct, grid={"rank": [4]})
    curve = {"validation_loss": losses, "validation_accuracy": [i / 100 for i in range(1, len(losses) + 1)]}
    run["members"][0] |= {"curve": curve, "epochs": len(losses), "status": status}
    run["chosen"]["epoch"] = int(np.nanargmin(losses))
    run["config"] |= SHORT
    return run


RUNS = [
    trained("pvera", [1.0, 0.9, 0.8, 0.85, 0.4, 0.5]),
    trained("pvera", [1.0, 0.9, 0.6, 0.7], seed=1, correct=7, status="epoch limit"),
    trained("vera", [0.7, 0.5, 0.9], correct=6),
    trained("vera", [0.5, 0.7], seed=1, correct=6),
]


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr(duration, "LIMIT", LIMIT)


@pytest.mark.parametrize(
    ("losses", "changes", "epoch"),
    [([3, 2, 1, 0], {}, 2), ([3, 2, 1, 0], {"max_epochs": 9}, 3), ([2, 3, 3, 1], {"max_epochs": 9, "patience": 2}, 0),
     ([2, 3, 1, 3], {"max_epochs": 9, "patience": 2}, 2), ([1, 0.9995, 0.998], {}, 2), ([1, 0.9995], {}, 0),
     ([NAN, 1, NAN], {}, 1)],
)  # fmt: skip
def test_kept_by_hand(losses, changes, epoch):
    assert duration.epoch_kept(np.array(losses, dtype=float), SHORT | changes) == epoch


def test_by_hand():
    table = duration.duration_table(RUNS)
    assert "3 of 4 ended by patience" in table.caption
    # PVeRA: epochs 5 and 3; the loss falls from 0.8 to 0.4 and stays at 0.6. VeRA is chosen before epoch 3.
    assert {row[0]: row[1:] for row in lines(table)} == {
        "VeRA": ["2 (1 to 2)", "0.00", "<ins>1.5</ins>", "<ins>1.5</ins>", "**60.0**"],
        "PVeRA": ["4 (3 to 5)", "−0.20", "**3.0**", "**4.0**", "**60.0**"],
    }
    data = parsed(table)
    assert data["early_loss"].tolist() == [0.8, 0.6, 0.5, 0.5] and data["loss"].tolist() == [0.4, 0.6, 0.5, 0.5]
    assert data["early_accuracy"].tolist() == [0.03, 0.03, 0.02, 0.01], "at the epoch that the shorter training keeps"


def test_the_limit_chooses_anew_among_the_members_of_a_grid():
    """Member 0 is best after five epochs, member 1 after two; a member that diverged is not chosen."""
    run = trained("pvera", [1.0, 0.9, 0.8, 0.85, 0.4, 0.5])
    member = run["members"][0]
    curve = {"validation_loss": [0.9, 0.7, 0.75], "validation_accuracy": [0.2, 0.3, 0.25]}
    diverged = {"validation_loss": [NAN], "validation_accuracy": [NAN]}
    run["members"] += [member | {"curve": curve, "epochs": 3}, member | {"curve": diverged, "epochs": 1}]
    (row,) = duration.durations([run]).to_dict("records")
    assert (row["early_loss"], row["early_accuracy"]) == (0.7, 0.3) and row["loss"] == 0.4
