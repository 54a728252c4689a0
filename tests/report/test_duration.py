"""How long trainings last, of records made by hand."""

import numpy as np
import pytest
from records import make_record

from pvera.report.tables import duration

NAN = float("nan")
SHORT = {"max_epochs": 3, "patience": 20, "tolerance": 1e-3}


@pytest.mark.parametrize(
    ("losses", "changes", "epoch"),
    [([3, 2, 1, 0], {}, 2), ([3, 2, 1, 0], {"max_epochs": 9}, 3), ([2, 3, 3, 1], {"max_epochs": 9, "patience": 2}, 0),
     ([2, 3, 1, 3], {"max_epochs": 9, "patience": 2}, 2), ([1, 0.9995, 0.998], {}, 2), ([1, 0.9995], {}, 0),
     ([NAN, 1, NAN], {}, 1)],
)  # fmt: skip
def test_kept_by_hand(losses, changes, epoch):
    assert duration.epoch_kept(np.array(losses, dtype=float), SHORT | changes) == epoch


def test_the_limit_chooses_anew_among_the_members_of_a_grid(monkeypatch):
    """Member 0 is best after five epochs, member 1 after two; a member that diverged is not chosen."""
    monkeypatch.setattr(duration, "LIMIT", SHORT["max_epochs"])
    run = make_record("pvera", grid={"rank": [4, 8, 16]}, config=SHORT)
    curves = ([1.0, 0.9, 0.8, 0.85, 0.4, 0.5], [0.9, 0.7, 0.75], [NAN]), ([0.1] * 6, [0.2, 0.3, 0.25], [NAN])
    for member, losses, accuracies in zip(run["members"], *curves):
        member |= {"curve": {"validation_loss": losses, "validation_accuracy": accuracies}, "epochs": len(losses)}
    run["chosen"]["epoch"] = 4
    (row,) = duration.durations([run]).to_dict("records")
    assert (row["early_loss"], row["early_accuracy"]) == (0.7, 0.3) and row["loss"] == 0.4
