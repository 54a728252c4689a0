"""Verdicts by intervals, their words, full names for short keys, and one colour per method."""

import matplotlib.colors
import numpy as np
import pytest
from scipy.stats import t

from pvera.adapters import METHODS
from pvera.backbones import NAMES
from pvera.report.plots import speed, style, uncertainty
from pvera.report.tables import names
from pvera.report.tables.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNTESTABLE,
    Statement,
    Untestable,
    answer,
    leads,
    verdict_table,
)
from pvera.study.protocol import one_at_a_time
from pvera.text_encoders import NAMES as TEXT_ENCODERS

NAN = np.nan


def statement(**changes):
    fields = {
        "text": "It leads", "above": "{size} points above {name}", "below": "{size} points below {name}",
        "contrasts": lambda contrasts: contrasts,
    }  # fmt: skip
    return Statement(**fields | changes)


def judged(*rows, **changes):
    """Return the verdict on one contrast of differences (data sets, seeds)."""
    return statement(**changes).judge({"the others": np.array(rows, float)})


@pytest.mark.parametrize(
    "rows, verdict",
    [
        ([[5, 6], [6, 7], [5, 7]], HOLDS),
        ([[-5, -6], [-6, -7], [-5, -7]], FAILS),
        ([[5, 6], [-6, 1], [5, 7]], UNDECIDED),
        ([[5, 6]], UNTESTABLE),
        ([[NAN, NAN], [NAN, NAN]], UNTESTABLE),
        ([[1, 1], [1, 1]], UNDECIDED),  # no spread at all says nothing about the next data set
        ([[0, 0], [0, 0]], UNDECIDED),
    ],
)
def test_an_interval_over_data_sets_decides(rows, verdict):
    assert judged(*rows).verdict == verdict


def test_seeds_that_agree_do_not_make_up_for_few_data_sets():
    """On twenty seeds the method is far ahead on one data set and not ahead on the other."""
    rows = np.tile([[10.0], [0.1]], 20) + np.random.default_rng(0).normal(0, 0.01, (2, 20))
    claim = judged(*rows)
    assert claim.verdict == UNDECIDED and min(claim.by_seed) > 4
    assert claim.scale == "2 data sets, 20 seeds"
    half = t.ppf(0.975, 1) * np.std(rows.mean(1), ddof=1) / np.sqrt(2)
    assert claim.effect.high - claim.effect.mean == pytest.approx(half)


def test_a_claim_about_many_differences_needs_all_of_them():
    def verdict(*gaps):
        spread = np.array([[-0.5], [0.0], [0.5]])
        return statement().judge({str(gap): gap + spread for gap in gaps})

    assert verdict(3, 4, 5).verdict == HOLDS
    claim = verdict(3, -8, 5)
    assert (claim.verdict, claim.reading) == (FAILS, "8.0 points below -8")
    assert verdict(3, 0.2, 5).verdict == UNDECIDED
    # Alone, -1.4 fails; among 20 comparisons such a gap may be chance.
    assert verdict(-1.4).verdict == FAILS and verdict(*np.linspace(3, 4, 19), -1.4).verdict == UNDECIDED


def test_missing_methods_and_runs_are_not_testable_with_a_reason():
    values = {"vera": np.ones((2, 1)), "pvera": np.full((2, 1), 3.0)}
    assert leads(values, "pvera")["VeRA"].tolist() == [[2], [2]]
    with pytest.raises(Untestable, match="no runs of DoRA"):
        leads(values, "dora")
    with pytest.raises(Untestable, match="no runs of LoRA"):
        leads(values, "pvera", ["lora"])
    with pytest.raises(Untestable, match="no method beside PVeRA"):
        leads({"pvera": np.ones((2, 1))}, "pvera")
    claim = statement(contrasts=lambda scores: leads(scores, "dora")).judge(values)
    assert (claim.verdict, claim.reading, claim.interval) == (UNTESTABLE, "no runs of DoRA", "–")
    gone = {"LoRA": np.full((2, 2), NAN), "VeRA": np.ones((2, 2))}
    assert statement().judge(gone).reading == "no runs to compare with LoRA"


def test_seeds_may_be_the_replicated_unit():
    claim = judged([1.0, 2.0, 3.0], units="seeds")
    assert claim.scale == "3 seeds" and claim.by_seed == (1, 2, 3)
    assert claim.effect.low == pytest.approx(2 - t.ppf(0.975, 2) / np.sqrt(3))


def test_other_units_keep_the_verdict():
    """Log ratios shown in percent."""
    logs = np.log([[1.1], [1.2], [1.3]])
    claim = statement(shown=lambda log: 100 * np.expm1(log)).judge({"VeRA": logs})
    assert claim.effect.mean == pytest.approx(100 * ((1.1 * 1.2 * 1.3) ** (1 / 3) - 1))
    assert claim.verdict == (HOLDS if claim.effect.low > 0 else UNDECIDED)


@pytest.mark.parametrize(
    "difference, words",
    [
        (6.5, "6.5 points above the others"),
        (-6.5, "6.5 points below the others"),
        (-0.04, "a difference of 0.0"),
        (NAN, "no runs to compare with the others"),
    ],
)
def test_the_side_of_a_difference_is_stated_in_words(difference, words):
    made = judged([difference], [difference])
    assert made.reading == words
    (row,) = verdict_table("t", "Claims.", "", [made], []).panels[0].rows
    assert row.cells[1].text == words and not set("+−") & set(row.cells[1].text)


def test_table_by_hand():
    claims = [judged([1.0, 3.0], [4.0, 4.0]), judged([1.0, 3.0])]
    table = verdict_table("t", "Claims.", "", claims, (0, 1))
    assert table.markdown().startswith("**Claims.**\n")
    first, second = ([cell.text for cell in row.cells] for row in table.panels[0].rows)
    assert first[:3] == ["undecided", "3.0 points above the others", "[−9.7, 15.7]"]
    assert first[5] == "+2.5, +3.5"  # means of 1 and 4, and of 3 and 4
    assert second == [UNTESTABLE, "fewer than two data sets: no interval", "–", "–", "–", "–"]
    data = table.data
    assert data["verdict"].tolist() == [UNDECIDED, UNTESTABLE] and data["seed1"].tolist()[0] == 3.5
    assert data["scale"].tolist() == ["2 data sets, 2 seeds", ""] and np.isnan(data["low"][1])


def test_verdicts_are_counted():
    assert answer([HOLDS, HOLDS, FAILS, UNDECIDED, UNTESTABLE]) == (
        "**Answer.** Of 5 claims, 2 hold, 1 fails, 1 is undecided and 1 is not testable here."
    )
    assert answer([HOLDS]) == "**Answer.** Of 1 claim, 1 holds."
    assert answer([HOLDS, FAILS, FAILS]) == "**Answer.** Of 3 claims, 1 holds and 2 fail."


def test_every_backbone_encoder_and_switch_has_a_full_name():
    for key in (*NAMES, *TEXT_ENCODERS):
        assert names.backbone_title(key) != key
    titles = [names.switch_title(name) for name in one_at_a_time() if name in names.SWITCHES]
    measured = {name for name in one_at_a_time() if not name.startswith("corrected")}
    assert measured == set(names.SWITCHES) and len(set(titles)) == len(titles)
    assert not any("_" in title for title in titles)


def test_colours_of_methods_mean_methods_alone():
    colours = {matplotlib.colors.to_hex(style(name).colour) for name in METHODS}
    others = [colour for colour, _ in speed.PRECISIONS.values()] + [uncertainty.CORRECT, uncertainty.INCORRECT]
    assert colours.isdisjoint(map(matplotlib.colors.to_hex, others))
