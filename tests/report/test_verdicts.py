"""Verdicts by intervals, their words, full names for short keys, and one colour per method."""

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from pvera.adapters import METHODS
from pvera.backbones import NAMES
from pvera.report.plots import forests, speed, style, uncertainty
from pvera.report.table import title
from pvera.report.tables.verdicts import EQUAL, FAILS, HOLDS, UNDECIDED, UNTESTABLE, Claim
from pvera.study.protocol import one_at_a_time
from pvera.text_encoders import NAMES as TEXT_ENCODERS

NAN = np.nan


def judged(differences, **options):
    """Judge a claim on name -> differences (units, seeds)."""
    frames = {name: pd.DataFrame(rows, dtype=float).rename_axis("seed", axis=1) for name, rows in differences.items()}
    return Claim("topic", "It leads", lambda data: data, "{signed} points", **options).judge(frames)


@pytest.mark.parametrize(
    "rows, verdict, reading",
    [
        ([[5, 6], [6, 7], [5, 7]], HOLDS, "the others: +6.0 points"),
        ([[-5, -6], [-6, -7], [-5, -7]], FAILS, "the others: −6.0 points"),
        ([[5, 6], [-6, 1], [5, 7]], UNDECIDED, "the others: +3.0 points"),
        ([[-0.04], [-0.04]], UNDECIDED, "the others: 0.0 points"),  # no spread says nothing of the next data set
        ([[5, 6]], UNTESTABLE, "fewer than two data sets: no interval"),
        ([[NAN, NAN], [NAN, NAN]], UNTESTABLE, "no runs to compare"),
    ],
)
def test_an_interval_over_data_sets_decides(rows, verdict, reading):
    row = judged({"the others": rows})
    assert (row["verdict"], row["reading"]) == (verdict, reading)


def test_the_two_scopes_are_judged_apart():
    """Far ahead on one data set and hardly on the other, with seeds that agree: these tasks decide, others may not."""
    row = judged({"": [[10.0, 10.2, 9.8], [0.4, 0.5, 0.6]]})
    assert (row["these_verdict"], row["verdict"], row["scale"]) == (HOLDS, UNDECIDED, "2 data sets, 3 seeds")
    half = t.ppf(0.975, (0.2**2 + 0.1**2) ** 2 / ((0.2**4 + 0.1**4) / 2)) * np.sqrt((0.2**2 + 0.1**2) / 3) / 2
    assert (row["these_low"], row["these_high"]) == pytest.approx((5.25 - half, 5.25 + half))
    half = t.ppf(0.975, 1) * np.std([10, 0.5], ddof=1) / np.sqrt(2)
    assert (row["low"], row["difference"], row["high"]) == pytest.approx((5.25 - half, 5.25, 5.25 + half))
    assert [row[f"seed{seed}"] for seed in range(3)] == pytest.approx([5.2, 5.35, 5.2])


@pytest.mark.parametrize("margin, verdict", [(0.7, UNDECIDED), (0.8, EQUAL)])
def test_two_are_equal_where_the_interval_lies_within_the_margin(margin, verdict):
    """Three data sets, −0.3, 0.0 and 0.3: half a width of 4.30 · 0.3 / √3 = 0.745."""
    assert judged({"": [[-0.3], [0.0], [0.3]]}, margin=margin)["verdict"] == verdict
    for apart in (-0.3, 0.3):  # one end lies beyond the margin
        assert judged({"": [[apart - 0.3], [apart], [apart + 0.3]]}, margin=margin)["verdict"] == UNDECIDED
    assert judged({"": [[0.2], [0.25], [0.3]]}, margin=margin)["verdict"] == HOLDS


def test_a_claim_about_many_differences_needs_all_of_them():
    def judge(*gaps):
        return judged({str(gap): gap + np.array([[-0.5], [0.0], [0.5]]) for gap in gaps})

    assert judge(3, 4, 5)["verdict"] == HOLDS and judge(3, 0.2, 5)["verdict"] == UNDECIDED
    row = judge(3, -8, 5)
    assert (row["verdict"], row["reading"]) == (FAILS, "-8: −8.0 points")
    # Alone, -1.4 fails; among 20 comparisons such a gap may be chance.
    assert judge(-1.4)["verdict"] == FAILS and judge(*np.linspace(3, 4, 19), -1.4)["verdict"] == UNDECIDED


def test_a_measure_that_could_not_decide_is_not_testable():
    """An AUROC ends half a unit from chance: three models that differ as much as these show nothing below that."""
    models = np.array([[0.1], [0.4], [-0.3]]) * 0.61
    row = judged({"": models}, units="models", limit=0.5)
    assert row["verdict"] == UNTESTABLE
    assert row["reading"].startswith("the measure ends 0.5 from zero, and no difference")
    assert judged({"": models / 10}, units="models", limit=0.5)["verdict"] == UNDECIDED


def test_every_backbone_encoder_and_switch_has_a_full_name():
    assert all(title(key) != key for key in (*NAMES, *TEXT_ENCODERS))
    measured = {name for name in one_at_a_time() if not name.startswith("corrected")}
    assert measured == set(forests.SWITCHES)
    titles = [forests.look(name).title for name in measured]
    assert len(set(titles)) == len(titles) and not any("_" in name for name in titles)
    assert forests.look("shuffle").colour == "black" and forests.look("vera_init").colour == style("vera").colour


def test_colours_of_methods_mean_methods_alone():
    colours = {matplotlib.colors.to_hex(style(name).colour) for name in METHODS}
    others = [colour for colour, _ in speed.PRECISIONS.values()] + [uncertainty.CORRECT, uncertainty.INCORRECT]
    assert colours.isdisjoint(map(matplotlib.colors.to_hex, others))
