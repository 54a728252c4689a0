"""The audit's suspected cells and the divisor of the standard deviations, planted and as published."""

import numpy as np
import pandas as pd
import pytest
from test_audit import FOLDER, change, consistent, row

from pvera.data.tasks import TASKS
from pvera.report import audit, published
from pvera.report.audit import CONTRADICTS, UNCHECKED


@pytest.fixture
def paper():
    return consistent()


def suspects(paper):
    return {f.place: f for f in audit.check_suspects(paper)}


def test_many_equal_cells_without_spread_are_named(paper):
    assert suspects(paper) == {}
    for backbone in ("dinov2_s", "dinov2_l"):
        for method in ("linear", "lora", "vera", "dora", "pvera"):
            for column, value in (("accuracy", 35.0), ("std", 0.0)):
                change(paper.detailed, column, value, **row(backbone, method))
    (finding,) = suspects(paper).values()
    assert (finding.place, finding.verdict) == ("Tables 6 to 8, CIFAR-100", UNCHECKED)
    assert finding.printed == "10 of 24 cells are 35.0 ± 0.0" and finding.recomputed == "0 cells below it, 14 above it"
    assert "constant answers" in finding.note and "PVeRA's on ViT-S/14 and ViT-L/14" in finding.note
    change(paper.detailed, "accuracy", 20.0, **row("dinov2_b", "ia3"))
    (finding,) = suspects(paper).values()
    assert "constant" not in finding.note
    change(paper.detailed, "std", 0.1, **row("dinov2_l", "pvera"))
    change(paper.detailed, "std", 0.1, **row("dinov2_s", "pvera"))
    assert suspects(paper) == {}  # eight of 24 are only a third


def test_a_failed_cell_and_the_average_that_it_moves(paper):
    """Bottleneck on ViT-S has 45 everywhere, except 2 and 20 (median of the column 48.5): mean 41.3, and 45 without
    them."""
    change(paper.detailed, "accuracy", 2.0, **row("dinov2_s", "bottleneck"))
    change(paper.detailed, "accuracy", 20.0, **row("dinov2_s", "bottleneck", "dtd"))
    change(paper.detailed, "accuracy", 42.0, backbone="dinov2_s", method="linear")
    cells = suspects(paper)
    assert list(cells) == [
        "Table 7 (ViT-S/14), Bottleneck on CIFAR-100", "Table 7 (ViT-S/14), average of Bottleneck"
    ]  # fmt: skip
    cell, average = cells.values()
    assert (cell.printed, cell.recomputed) == ("2.0", "median of the methods 48.5")
    assert average.printed == "Bottleneck and Linear: 41.4 and 42.0 over all data sets"
    assert average.recomputed == (
        "43.6 and 42.0 without its 1 under a tenth of the median; 45.0 and 42.0 without its 2 under half of the median"
    )
    assert average.note == "below linear probing, but not without these"


@pytest.mark.parametrize("ddof", [0, 1])
def test_the_divisor_is_found_where_a_seed_answers_at_random(paper, ddof):
    assert audit.divisor(paper) is None  # no seed failed
    pd.testing.assert_frame_equal(audit.sample_std(paper, "dinov2_b"), paper.accuracies("dinov2_b", "std"))
    for dataset in ("cifar", "dtd"):
        seeds = [80.0, 80.0, 100 / TASKS[dataset].classes]
        change(paper.detailed, "accuracy", round(np.mean(seeds), 1), **row(dataset=dataset))
        change(paper.detailed, "std", round(np.std(seeds, ddof=ddof), 1), **row(dataset=dataset))
    assert audit.divisor(paper) == ddof
    wanted = np.std([80.0, 80.0, 1.0], ddof=1)
    assert audit.sample_std(paper, "dinov2_b").at["lora", "cifar"] == pytest.approx(wanted, abs=0.1)
    finding = next(audit.audit(paper).query("place == 'Tables 6 to 8, divisor'").itertuples())
    assert finding.recomputed == ("n", "n − 1")[ddof] and finding.verdict == UNCHECKED


def test_suspected_cells_of_the_published_numbers():
    paper = published.load(FOLDER)
    cells = suspects(paper)
    assert cells["Tables 6 to 8, Retinopathy"].printed == "14 of 24 cells are 73.6 ± 0.0"
    assert "PVeRA's on ViT-L/14" in cells["Tables 6 to 8, Retinopathy"].note
    assert [f.printed for place, f in cells.items() if place.endswith("Sun397")] == ["1.1", "1.0", "3.4"]
    assert audit.divisor(paper) == 0
    halfway = [f for f in audit.check_cells(paper) if "no count" in f.note]
    assert len(halfway) == 3 and {f.verdict for f in halfway} == {CONTRADICTS}
