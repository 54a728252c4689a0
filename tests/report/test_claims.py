"""The page of all claims, on committed results, on hand-made results, and without results."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from notebook import ROOT, run
from records import make_record, write_all

from pvera.errors import InputError
from pvera.report import claims, published
from pvera.report.tables import benchmark, pairs
from pvera.report.tables.verdicts import UNTESTABLE, VERDICTS
from pvera.study import results

PAPER = published.load(ROOT / "results" / "published")
TOPICS = ["Main table", "Components", "Rank", "Position", "Cost", "Calibration", "Uncertainty",
    "Uncertainty against rivals", "Intervals",
          "Out-of-distribution detection", "Latents", "Language"]  # fmt: skip


@pytest.fixture(scope="module")
def mini():
    return claims.topics(ROOT / "results", "mini", PAPER)


def test_every_topic_has_claims_from_the_committed_results(mini):
    assert [part.title for part in mini] == TOPICS
    data = claims.frame(mini)
    assert set(data["verdict"]) <= set(VERDICTS) and set(data["topic"]) == set(TOPICS)
    assert all((ROOT / "analysis" / f"{name}.ipynb").is_file() for name in data["notebook"])
    assert data["claim"][0] == "PVeRA is better than VeRA on average"
    judged = data[data["low"].notna()]
    assert len(judged) > 25 and (judged["low"] <= judged["difference"]).all()
    assert (judged["difference"] <= judged["high"]).all()
    wanted = np.select([judged["low"] > 0, judged["high"] < 0], ["holds", "fails"], "undecided")
    assert (judged["verdict"] == wanted).all()


def test_verdicts_are_those_of_the_notebooks_tables(mini):
    table = benchmark.main_verdicts(results.load_runs(ROOT / "results", "mini")).data
    page = claims.frame(mini[:1])
    pd.testing.assert_frame_equal(page[["claim", "verdict", "low", "high"]], table[["claim", "verdict", "low", "high"]])


def test_page_links_to_notebooks_and_counts(mini):
    page = claims.page(mini, "mini")
    folder = ROOT / "results" / "mini" / "tables"
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) == len(TOPICS) and all((folder / link).resolve().is_file() for link in links)
    rows = [line for line in page.splitlines() if line.startswith("| PVeRA is better than VeRA on average |")]
    assert len(rows) == 1 and "6 data sets, 3 seeds" in rows[0]
    data = claims.frame(mini)
    counts = {verdict: int((data["verdict"] == verdict).sum()) for verdict in VERDICTS}
    assert f"Of {len(data)} claims, {counts['holds']} hold" in page
    assert "nan" not in page and "{" not in page


def test_without_results_every_claim_names_its_command(tmp_path):
    costs = tmp_path / "paper" / "cost"
    costs.mkdir(parents=True)
    for source in (ROOT / "results/paper/cost").iterdir():
        (costs / source.name).write_bytes(source.read_bytes())
    data = claims.frame(claims.topics(tmp_path, "none", PAPER))
    assert list(data["topic"].unique()) == TOPICS
    rest = data[data["topic"] != "Cost"]
    assert (rest["verdict"] == UNTESTABLE).all()
    assert rest["reading"].str.startswith("no results: python experiments/").all()
    for script in set(rest["reading"].str.extract(r"experiments/(\w+\.py)")[0]):
        assert (ROOT / "experiments" / script).is_file()
    assert set(data.loc[data["topic"] == "Cost", "verdict"]) == {"holds"}  # counted on ViT-B/14


def test_notebook_writes_the_page(tmp_path, monkeypatch):
    """With two methods and three data sets, claims about other methods are not testable, with a reason."""
    (tmp_path / "results/paper").mkdir(parents=True)
    (tmp_path / "results/paper/cost").symlink_to(ROOT / "results/paper/cost")
    records = [
        make_record(method, dataset, seed, correct + seed, 1000) for method, gain in (("vera", 0), ("pvera", 90))
        for dataset, correct in (("digits", 500 + gain), ("vessels", 700 + gain), ("sprites", 300 + gain * 10 // 9))
        for seed in (0, 1)
    ]  # fmt: skip
    for record in records:
        record["test"] |= {"ace": 0.1, "ece": 0.1}
    write_all(tmp_path / "results", records)
    text, _ = run("claims.ipynb", tmp_path, "mine", monkeypatch)
    page = (tmp_path / "results/mine/tables/claims.md").read_text()
    assert "| PVeRA is better than VeRA on average | holds | 9.3 points above VeRA | [7.9, 10.8] |" in page
    assert "| DoRA has the second highest average | not testable here | no runs of DoRA |" in page
    assert "[main_table](main_table.ipynb)" in text and "(../../../analysis/main_table.ipynb)" in page
    data = pd.read_csv(io.StringIO((tmp_path / "results/mine/tables/claims.csv").read_text()))
    assert len(data) == page.count("\n| ") - 2 * len(TOPICS) - 2 - len(TOPICS)


def test_a_claim_says_how_many_trainings_were_cut_short(tmp_path):
    records = [
        make_record(method, dataset, seed, 500 + seed, 1000)
        for method in ("vera", "pvera") for dataset in ("digits", "vessels") for seed in (0, 1)
    ]  # fmt: skip
    for record in records:
        record["test"] |= {"ace": 0.1, "ece": 0.1}
    for record in records[:3]:
        record["members"][0]["status"] = "epoch limit"
    write_all(tmp_path, records)
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/cost").symlink_to(ROOT / "results/paper/cost")
    topics = claims.topics(tmp_path, "mine", PAPER)
    cut = claims.frame(topics).set_index("topic")["cut"]
    assert cut["Main table"].iloc[0] == "3 of 8 trainings cut short"
    assert not cut.drop(["Main table", "Components", "Calibration"]).any()
    assert "2 data sets, 2 seeds, 3 of 8 trainings cut short" in claims.page(topics, "mine")


# Leads on each data set


def write_answers(root, correct):
    """Write predictions on two classes from method -> data set -> seed -> whether each test image is answered
    correctly."""
    records = []
    for method, of_method in correct.items():
        for dataset, of_seeds in of_method.items():
            for seed, right in enumerate(of_seeds):
                record = make_record(method, dataset, seed, int(np.sum(right)), len(right))
                path = results.run_path(root, *(record[key] for key in results.IDENTITY))
                labels = np.arange(len(right)) % 2
                results.write(path, record, np.eye(2)[np.where(right, labels, 1 - labels)], labels)
                records.append(record)
    return records


def test_leads_by_hand(tmp_path):
    """PVeRA is correct on 3 of 4 images with each seed, VeRA on 2 and 1: leads of 25 and 50 points."""
    runs = write_answers(tmp_path, {
        "vera": {"digits": [[1, 1, 0, 0], [1, 0, 0, 0]]}, "pvera": {"digits": [[1, 1, 1, 0], [1, 1, 1, 0]]},
    })  # fmt: skip
    (row,) = pairs.image_leads(tmp_path, runs).itertuples()
    assert (row.method, row.lead, row.seeds, row.images, row.units) == ("vera", 37.5, 2, 4, 4)
    assert row.low < 37.5 < row.high and row.star  # 3 of 8 against 6 of 8
    (row,) = pairs.image_leads(tmp_path, runs, {"digits": np.array([7, 7, 9, 9])}).itertuples()
    assert row.units == 2  # leads of 25 and 50 in two regions of two images
    assert row.lead == 37.5 and row.low < 0 < row.high
    table = pairs.image_leads_table(tmp_path, runs, {"digits": np.array([7, 7, 9, 9])})
    assert "Units that several images share: digits (2 of 4 images)." in table.about
    assert table.texts()[""].loc["Digits", "VeRA"].startswith(r"+37.5\* [")


def test_regions_widen_the_interval_and_the_star_stays(tmp_path):
    ahead = np.repeat(np.arange(20) < 12, 50)  # of each region, PVeRA alone answers all images or none
    runs = write_answers(tmp_path, {"vera": {"vessels": [~ahead]}, "pvera": {"vessels": [ahead]}})
    images, regions = (
        next(pairs.image_leads(tmp_path, runs, units).itertuples())
        for units in (None, {"vessels": np.repeat(np.arange(20), 50)})
    )
    assert images.lead == regions.lead == 20 and images.star and regions.star
    assert images.low > 0 > regions.low
    assert regions.high - regions.low > 5 * (images.high - images.low)


def test_other_images_are_not_paired(tmp_path):
    runs = write_answers(tmp_path, {"vera": {"digits": [[1, 0, 1]]}, "pvera": {"digits": [[1, 1, 1]]}})
    path = results.run_path(tmp_path, *(runs[1][key] for key in results.IDENTITY))
    results.write(path, runs[1], np.eye(2)[[1, 0, 1]], np.array([1, 0, 1]))
    with pytest.raises(InputError, match="tested on other images"):
        pairs.image_leads(tmp_path, runs)
