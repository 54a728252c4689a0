"""The page of all claims, on committed results, on hand-made results, and without results."""

import re

import numpy as np
import pytest
from notebook import ROOT

from pvera.report import claims, published

PAPER = published.load(ROOT / "results" / "published")
TOPICS = list(claims.TOPICS)


@pytest.fixture(scope="module")
def mini():
    return claims.judged(ROOT / "results", "mini", PAPER)


def test_every_line_of_the_registry_is_judged_once(mini):
    assert {claim.topic for claim in claims.CLAIMS} == set(TOPICS) == set(mini["topic"])
    assert len(mini) == len(claims.CLAIMS) + sum(claim.topic == "Cost" for claim in claims.CLAIMS)  # on two backbones
    assert not mini.duplicated(["backbone", "claim"]).any()
    assert all((ROOT / "analysis" / f"{name}.ipynb").is_file() for name in mini["notebook"])


def test_verdicts_follow_from_intervals(mini):
    single = mini[mini["could_be_shown"].notna()]  # several comparisons are judged more strictly
    assert single["difference"].between(single["low"], single["high"]).all()
    both = single[single["these_low"].notna()]
    for scope, part in (("", single), ("these_", both)):
        low, high = part[f"{scope}low"], part[f"{scope}high"]
        within = part["claim"].str.contains("KL term|Learning σ") & (low > -1) & (high < 1)
        expected = np.select([low > 0, high < 0, within], ["holds", "fails", "equal"], "undecided")
        assert len(part) > 10 and (part[f"{scope}verdict"] == expected).all()
    assert (both["low"] <= both["these_low"] + 1e-9).all(), "other tasks vary more than seeds alone"


def test_page_links_to_notebooks_and_counts(mini):
    page, listed = claims.page(mini, "mini"), mini[mini["page"]]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) == len(listed) <= 24
    assert all((ROOT / "results/mini/tables" / link).resolve().is_file() for link in links)
    assert "nan" not in page and "{" not in page
    assert set(listed.loc[listed["topic"] == "Cost", "backbone"]) == {"dinov2_b"}
