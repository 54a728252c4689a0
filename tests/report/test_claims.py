"""The page of all claims, on committed results, on hand-made results, and without results."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from notebook import ROOT
from records import make_record, write_all
from scipy.stats import t

from pvera.report import claims, published
from pvera.report.tables.verdicts import UNTESTABLE, VERDICTS, Claim
from results import table

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
    measured = mini[mini["low"].notna()]
    assert len(measured) > 25 and measured["difference"].between(measured["low"], measured["high"]).all()
    single = measured[measured["could_be_shown"].notna()]  # several comparisons are judged more strictly
    assert len(single) > 12
    for scope, part in (("", single), ("these_", single[single["these_low"].notna()])):
        low, high = part[f"{scope}low"], part[f"{scope}high"]
        within = part["claim"].str.contains("KL term|Learning σ") & (low > -1) & (high < 1)
        said = np.select([low > 0, high < 0, within], ["holds", "fails", "equal"], "undecided")
        assert (part[f"{scope}verdict"] == said).all()
    both = single[single["these_low"].notna()]
    assert len(both) > 10 and (both["low"] <= both["these_low"] + 1e-9).all(), "other tasks vary more than seeds alone"


def test_printed_numbers_of_claims_are_the_papers():
    """The rank and the positions that are said to be best, and the percentages of cost."""
    assert PAPER.quote("best_rank") == "256" and PAPER.quote("close_ranks") == "128, 512"
    assert {
        "rank": PAPER.rank["rank"].tolist(),
        "targets": PAPER.position["targets"].tolist(),
    } == claims.ablations.PAPER
    assert PAPER.position.set_index("targets")["loss"].idxmin() == "qv"
    texts = "; ".join(claims.cost.CLAIMS)
    assert all(PAPER.quote(name) in texts for name in ("size", "flops_pvera", "flops_vera"))


def test_page_links_to_notebooks_and_counts(mini):
    page, shown = claims.page(mini, "mini"), mini[mini["page"]]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) == len(shown) <= 30
    assert all((ROOT / "results/mini/tables" / link).resolve().is_file() for link in links)
    (row,) = (line for line in page.splitlines() if line.startswith("| [PVeRA is more accurate than VeRA]"))
    assert "12 data sets, 5 seeds" in row and "nan" not in page and "{" not in page
    assert set(shown.loc[shown["topic"] == "Cost", "backbone"]) == {"dinov2_b"}


def test_what_was_found_is_said_of_every_claim_and_agrees_with_its_verdict(mini):
    shown = mini[mini["page"]]
    written = pd.read_csv(ROOT / "results/mini/findings.csv")
    assert sorted(written["claim"]) == sorted(shown["claim"])
    begins = {"yes": {"holds"}, "no": {"fails"}, "third": {"fails"}, "fourth": {"fails"}}
    for row in shown.itertuples():
        first = re.match(r"\w+", row.found)[0]
        decided = {row.verdict, row.these_verdict} & {"holds", "fails"}
        assert row.found.startswith("no ") or decided == begins.get(first, set()), row.claim
        assert not row.found.startswith(("no gain", "no difference", "no clear")) or not decided, row.claim


def test_what_was_found_are_facts():
    """The places, tasks and shares that findings.csv tells."""
    main = table("main").set_index("method")
    tasks = main[["digits", "textures", "nuclei", "vessels", "counting", "sprites"]]
    places = main["average"].rank(ascending=False)
    assert (places["pvera"], places["dora"], len(places)) == (3, 4, 8)
    assert list(places.sort_values().index[:3]) == ["adaptformer", "bottleneck", "pvera"]
    assert (tasks.loc["adaptformer"] > tasks.loc["pvera"]).all() and (tasks.loc["pvera"] > tasks.loc["vera"]).all()
    assert tasks.columns[tasks.loc["vera"] < tasks.loc["linear"]].tolist() == ["textures"]
    means = table("components").pivot(index="dataset", columns="component", values="mean")
    published = [json.loads(path.read_text()) for path in (ROOT / "results/mini/published").rglob("*.json")]
    of_published = pd.DataFrame([[run["dataset"], run["method"], run["test"]["accuracy"]] for run in published])
    ahead = of_published.pivot_table(2, 0, 1)
    assert (ahead["pvera"] > ahead["vera"]).all() and len(ahead) == 12
    assert ahead.index[ahead["pvera"] > ahead["adaptformer"]].tolist() == ["landcover"]
    noise = (means["no_kl"] - means["no_noise"]).sort_values()
    assert noise.min() > 0 and set(noise.index[-2:]) == {"digits", "textures"}
    lead = means["pvera"] - means["vera"]
    rests = [lead.drop(name) for name in lead.index]
    lows = [t.interval(0.95, len(rest) - 1, rest.mean(), rest.sem())[0] for rest in rests]
    assert lead.min() > 0 and min(lows) > 0 and len(lead) == 12  # docs/faq.md: without any one of them


def test_a_measure_that_could_not_decide_is_not_testable():
    """An AUROC ends half a unit from chance: three models that differ as much as these show nothing below that."""
    models = pd.DataFrame([[0.1], [0.4], [-0.3]]) * 0.61
    row = Claim("topic", "It leads", lambda data: {"": data}, units="models", limit=0.5).judge(models)
    assert row["verdict"] == UNTESTABLE and row["reading"].startswith(
        "the measure ends 0.5 from zero, and no difference"
    )
    alike = Claim("topic", "It leads", lambda data: {"": data}, units="models", limit=0.5).judge(models / 10)
    assert alike["verdict"] == "undecided"


def test_without_results_every_claim_names_its_command(root):
    rows = claims.judged(root, "none", PAPER)
    assert list(rows["topic"].unique()) == TOPICS
    rest = rows[rows["topic"] != "Cost"]
    assert (rest["verdict"] == UNTESTABLE).all()
    assert rest["reading"].str.startswith("no results: python experiments/").all()
    for script in set(rest["reading"].str.extract(r"experiments/(\w+\.py)")[0]):
        assert (ROOT / "experiments" / script).is_file()
    assert set(rows.loc[rows["topic"] == "Cost", "verdict"]) == {"holds"}  # counted on ViT-B/14
    assert claims.tables(root, "none", PAPER, "main_table") == []


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
    assert f"{link} | no runs of DoRA | – | not testable here |" in page
    assert "3 data sets, 2 seeds, 3 of 12 trainings cut short" in page and "small ViT (32 px)" in page
    (table,) = claims.tables(root, "mine", PAPER, "main_table")
    assert table.name == "main_claims" and table.data["cut"].eq("3 of 12 trainings cut short").all()
    assert set(table.data["verdict"].dropna()) <= set(VERDICTS)
