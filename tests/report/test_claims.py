"""The page of all claims, on committed results, on hand-made results, and without results."""

import re

import numpy as np
import pytest
from notebook import ROOT
from records import make_record, write_all

from pvera.report import claims, published
from pvera.report.tables.verdicts import UNTESTABLE, VERDICTS

PAPER = published.load(ROOT / "results" / "published")
TOPICS = list(claims.TOPICS)


@pytest.fixture(scope="module")
def mini():
    return claims.judged(ROOT / "results", "mini", PAPER)


@pytest.fixture
def root(tmp_path):
    """A folder of results with the counted costs of the paper's sizes alone."""
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/cost").symlink_to(ROOT / "results/paper/cost")
    return tmp_path


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


def test_printed_numbers_of_claims_are_the_papers():
    """The rank and the positions that are said to be best, and the percentages of cost."""
    assert PAPER.quote("best_rank") == "256" and PAPER.quote("close_ranks") == "128, 512"
    values = {"rank": PAPER.rank["rank"].tolist(), "targets": PAPER.position["targets"].tolist()}
    assert values == claims.ablations.PAPER and PAPER.position.set_index("targets")["loss"].idxmin() == "qv"
    texts = "; ".join(claims.cost.CLAIMS)
    assert all(PAPER.quote(name) in texts for name in ("size", "flops_pvera", "flops_vera"))


def test_page_links_to_notebooks_and_counts(mini):
    page, listed = claims.page(mini, "mini"), mini[mini["page"]]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) == len(listed) <= 24
    assert all((ROOT / "results/mini/tables" / link).resolve().is_file() for link in links)
    assert "nan" not in page and "{" not in page
    assert set(listed.loc[listed["topic"] == "Cost", "backbone"]) == {"dinov2_b"}


def test_without_results_every_claim_names_its_command(root):
    rows = claims.judged(root, "none", PAPER)
    assert list(rows["topic"].unique()) == TOPICS
    rest = rows[rows["topic"] != "Cost"]
    assert (rest["verdict"] == UNTESTABLE).all()
    scripts = rest["reading"].str.extract(r"^no results: python experiments/(\w+\.py)")[0]
    assert all((ROOT / "experiments" / script).is_file() for script in set(scripts))
    assert set(rows.loc[rows["topic"] == "Cost", "verdict"]) == {"holds"}  # counted on ViT-B/14


def test_two_methods_and_trainings_that_were_cut_short(root):
    """Claims about other methods are not testable, with a reason."""
    records = [
        make_record(method, dataset, seed, correct + seed, 1000)
        for method, gain in (("vera", 0), ("pvera", 90))
        for dataset, correct in (("digits", 500 + gain), ("vessels", 700 + gain), ("sprites", 300 + gain * 10 // 9))
        for seed in (0, 1)
    ]
    for record in records:
        record["test"] |= {"ace": 0.1, "ece": 0.1}
    for record in records[:3]:
        record["members"][0]["status"] = "epoch limit"
    write_all(root, records)
    claims.write(claims.judged(root, "mine", PAPER), root, "mine")
    page = (root / "mine/tables/claims.md").read_text()
    link = "](../../../analysis/main_table.ipynb) (Table 1)"
    assert f"{link} | PVeRA − VeRA: +9.3 points | undecided [9.3, 9.3] | holds [7.9, 10.8] |" in page
    (table,) = claims.tables(root, "mine", PAPER, "main_table")
    assert "no runs of DoRA" in table.markdown()
    assert table.name == "main_claims" and table.data["cut"].eq("3 of 12 trainings cut short").all()
    assert set(table.data["verdict"].dropna()) <= set(VERDICTS)
