"""Verdicts in words, full names for short keys, and one colour per method."""

import matplotlib.colors
import numpy as np
import pytest

from pvera.adapters import METHODS
from pvera.backbones import NAMES
from pvera.report.plots import speed, style, uncertainty
from pvera.report.tables import names
from pvera.report.tables.verdicts import Claim, answer, verdict_table
from pvera.study.protocol import one_at_a_time
from pvera.text_encoders import NAMES as TEXT_ENCODERS


def claim(difference, by_seed=(), digits=1):
    return Claim("It leads", "{} points above the others", "{} points below the others", difference, by_seed, digits)


@pytest.mark.parametrize(
    "difference, words",
    [
        (6.5, "6.5 points above the others"),
        (-6.5, "6.5 points below the others"),
        (-0.04, "no difference"),
        (np.nan, "–"),
    ],
)
def test_the_side_of_a_difference_stands_in_words(difference, words):
    made = claim(difference)
    assert made.reading == words
    (row,) = verdict_table("t", "Statements.", "", [made], []).panels[0].rows
    assert row.cells[1].text == words and not set("+−") & set(row.cells[1].text)


def test_verdicts_are_counted():
    verdicts = [claim(1, [1, 2]).verdict, claim(1, [2, -1]).verdict, claim(-1, [-1]).verdict, claim(np.nan).verdict]
    assert answer([*verdicts, "–"]) == (
        "**Answer.** Of 4 statements, 2 hold here and 1 does not; 1 cannot be told; 1 of these verdicts depends on the "
        "seed."
    )
    assert answer(["holds"]) == "**Answer.** Of 1 statement, 1 holds here and 0 do not."


def test_every_backbone_encoder_and_switch_has_a_full_name():
    for key in (*NAMES, *TEXT_ENCODERS):
        assert names.backbone_title(key) != key
    titles = [names.switch_title(name) for name in one_at_a_time() if name in names.SWITCHES]
    measured = {name for name in one_at_a_time() if not name.startswith("corrected")}
    assert measured == set(names.SWITCHES) and len(set(titles)) == len(titles)
    assert not any("_" in title for title in titles)


def test_colours_of_methods_mean_methods_alone():
    colours = {matplotlib.colors.to_hex(style(name).colour) for name in METHODS}
    others = [colour for colour, _ in speed.PRECISIONS.values()] + [uncertainty.RIGHT, uncertainty.WRONG]
    assert colours.isdisjoint(map(matplotlib.colors.to_hex, others))
