"""The pages' numbers and verdicts come from the committed tables; outdated pages are noticed."""

import csv
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import scripts

from pvera.errors import InputError
from pvera.report import front_page, places

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "results/mini/tables"


@pytest.mark.parametrize("page", front_page.pages(ROOT), ids=lambda page: page.name)
def test_pages_are_up_to_date(page):
    text = page.read_text()
    stale = "run `python experiments/front_page.py`"
    assert front_page.rewrite(text, ROOT, front_page.pages(ROOT)[page]) == text, stale


def test_every_passage_is_shown():
    names = {name for page in front_page.pages(ROOT) for name, *_ in front_page.MARKED.findall(page.read_text())}
    assert set(front_page.PASSAGES) - names == set()
    assert {name for name in names if not name.endswith(".md")} <= set(front_page.PASSAGES)


def test_markers_within_a_line_do_not_begin_it():
    """A comment at the start of a line would end the paragraph before it."""
    for page in front_page.pages(ROOT):
        for line in page.read_text().splitlines():
            assert not line.startswith("<!--") or line.endswith("-->") and line.count("<!--") == 1, (page.name, line)


@pytest.fixture
def copy(tmp_path):
    """Copy the pages and the files that they are written from."""
    read = ("mini/tables", "published", "performance", "paper/cost")
    for name in ("docs", "experiments/profiles", *(f"results/{name}" for name in read)):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "experiments/slurm.yaml", tmp_path / "experiments")
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))


def test_a_changed_table_changes_the_page(copy, capsys):
    row = front_page.claim(copy, *front_page.PRIMARY)
    page = copy / "README.md"
    before = page.read_text()
    assert scripts.outcome("front_page", capsys, "--root", copy, "--check") == (0, "", "")
    edit(copy / "results/mini/tables/claims.csv", row.reading, "0.7 points above VeRA")
    status, said, _ = scripts.outcome("front_page", capsys, "--root", copy, "--check")
    assert status == 1 and "README.md: out of date\n" in said and page.read_text() == before
    status, said, _ = scripts.outcome("front_page", capsys, "--root", copy)
    assert status == 0 and "README.md: written\n" in said
    assert page.read_text() == before.replace(row.reading, "0.7 points above VeRA")
    assert scripts.outcome("front_page", capsys, "--root", copy) == (0, "", "")


def test_the_counted_verdicts_are_those_of_the_table(copy):
    table = (copy / "results/mini/tables/claims.csv").read_text()
    holding = [row for row in rows(TABLES / "claims.csv") if row["verdict"] == "holds"]
    measured = [row["claim"].removeprefix("Not in the paper: ") for row in holding if row["low"]]
    said = front_page.verdict(copy, "")
    assert f" {len(holding)} hold: {len(holding) - len(measured)} exact counts of cost (of " in said
    assert f" and {len(measured)} measured ({'; '.join(measured)})." in said
    (copy / "results/mini/tables/claims.csv").write_text(table.replace(",holds,", ",fails,"))
    assert " 0 hold: 0 exact counts of cost (of 0 claims, some on two backbones) and none measured." in (
        front_page.verdict(copy, "")
    )


def test_the_first_screen_has_both_accuracies_and_what_each_part_brings(copy):
    said = front_page.verdict(copy, "")
    averages = {name: [] for name in ("vera", "pvera")}
    for row in rows(TABLES / "components.csv"):
        averages.get(row["component"], []).append(float(row["mean"]))
    pvera, vera = (f"{sum(averages[name]) / len(averages[name]):.1f} %" for name in ("pvera", "vera"))
    assert f"test accuracy {pvera} against {vera}, " in said
    for part in front_page.PARTS:
        assert f"{part}: " in said
    without = re.search(r"the first verdict stays for (\d)", (TABLES / "components_claims.md").read_text())[1]
    assert f"When one data set is left out, the verdict stays in {without} of 6 cases." in said
    for topic, start in front_page.UNCERTAINTY:
        (row,) = (r for r in rows(TABLES / "claims.csv") if r["topic"] == topic and r["claim"].startswith(start))
        claim = row["claim"].removeprefix("Not in the paper: ")
        assert f"That {claim} **{front_page.WORDS.get(row['verdict'], row['verdict'])}**: {row['reading']}" in said
    best = [row for row in rows(TABLES / "rivals_advice.csv") if row["passes"] == "any"]
    told = said[said.index("Best on the test images of all ways tried with ") :]
    assert best[0]["among"] in told
    ties = [f"for {row['purpose']}: {row['best']} ({row['ties']} of {row['others']})" for row in best]
    assert len(ties) == 3 and all(text in told for text in ties)


@pytest.mark.parametrize(
    "verdict, low, high, text",
    [
        ("holds", 0.6, 12.3, "6.4 points above [0.6, 12.3], holds (3 seeds)"),
        ("fails", -9.0, -0.5, "6.4 points above [−9.0, −0.5], fails (3 seeds)"),
        ("undecided", -0.1, 12.3, "6.4 points above [−0.1, 12.3], undecided, as the interval contains zero (3 seeds)"),
        ("undecided", -0.3, 0.31, "less than a point either way [−0.3, 0.3] (3 seeds)"),
        ("not testable here", float("nan"), float("nan"), "6.4 points above, not testable here"),
    ],
)
def test_an_effect_in_words(verdict, low, high, text):
    scale = "" if verdict == "not testable here" else "6 data sets, 3 seeds"
    row = pd.Series({"reading": "6.4 points above", "verdict": verdict, "low": low, "high": high, "scale": scale})
    assert front_page._effect(row) == text


def rows(path: Path) -> list[dict]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_numbers_are_those_of_the_tables():
    """Each number is recomputed without the module's functions."""
    audit = rows(ROOT / "results/published/audit.csv")
    wrong = [row for row in audit if row["verdict"] == "does not follow"]
    stars = sum(row["check"] == "stars" for row in wrong)
    said = front_page.findings(ROOT, "")
    assert f"Of {len(audit)} checks" in said and f"and {len(wrong)} [do not]" in said and f"| stars | {stars} |" in said

    effects = {row["switch"]: row for row in rows(TABLES / "protocol.csv") if row["metric"] == "accuracy"}
    alone = [row for name, row in effects.items() if name != "published" and row["beyond"] == "True"]
    largest = max(alone, key=lambda row: abs(float(row["mean"])))
    table = front_page.ledger(ROOT, "").split(" :-: |\n")[1].splitlines()
    assert table[0].startswith("| All differences at once | ")
    assert f"{abs(float(largest['mean'])):.1f} (" in table[1]

    trainings = [row for row in rows(TABLES / "spent.csv") if not row["experiment"].startswith("language")]
    assert front_page.content("hours", ROOT, "") == f"{sum(float(row['seconds']) for row in trainings) / 7200:.1f}"
    for name, of_glue in (("hours_text", False), ("hours_glue", True)):
        texts = [row for row in rows(TABLES / "spent.csv") if row["experiment"].startswith("language")]
        seconds = sum(float(row["seconds"]) for row in texts if (row["dataset"] in ("rte", "mrpc", "cola")) == of_glue)
        assert front_page.content(name, ROOT, "") == f"{seconds / 7200:.1f}"

    (primary,) = (row for row in rows(TABLES / "claims.csv") if row["claim"] == front_page.PRIMARY[1])
    assert primary["topic"] == "Components"
    decimals = len(re.search(r"\.(\d+)", primary["reading"])[1])
    low, high = (f"{float(primary[end]):.{decimals}f}".replace("-", "−") for end in ("low", "high"))
    first = front_page.claims(ROOT, "").splitlines()[2]
    assert f"{primary['reading']} [{low}, {high}]; " in first
    assert re.search(rf"\[\**{primary['verdict']}\**\]\(analysis/{primary['notebook']}\.ipynb\)", first)

    record = json.loads((ROOT / "results/performance/speed_cpu_amd_epyc.json").read_text())
    (step,) = (
        row
        for row in record["rows"]
        if (row["part"], row["precision"], row["what"]) == ("step", "float32", "PVeRA, r = 256")
    )
    assert f"| PVeRA, r = 256 | forward and backward | {step['ratio']:.2f} |" in front_page.ratios(ROOT, "")


def test_trainings_to_their_end_are_compared_by_epoch_and_gain(copy):
    """In a table of two runs, PVeRA's gain is that of the data, and it takes more epochs."""
    head = "method,dataset,seed,epochs,patience,best,early_loss,loss,early_accuracy,accuracy,test,part\n"
    of_pvera = "pvera,digits,0,98,True,70,1,1,0.50,0.53,0.5,Images\n"
    of_vera = "vera,digits,0,31,True,11,1,1,0.5,0.5,0.5,Images\n"
    (copy / "results/mini/tables/duration.csv").write_text(head + of_pvera + of_vera)
    said = front_page.duration(copy, "")
    assert "PVeRA has its best epoch at 70 in the median (place 1 of 2, the slowest first) and gains 3.0 points" in said
    assert "VeRA has its best epoch at 11 in the median (place 2 of 2, the slowest first) and gains 0.0 points" in said


def test_missing_runs_are_stated_until_they_exist(copy):
    assert front_page.NOT_RUN in front_page.verdict(copy, "") and front_page.NOT_RUN in front_page.scale(copy, "")
    (copy / "results/paper/benchmark").mkdir(parents=True)
    assert front_page.NOT_RUN not in front_page.verdict(copy, "") + front_page.scale(copy, "")


def test_bad_tables_and_passages_are_named(copy):
    with pytest.raises(InputError, match="there is no passage 'weather'; there are: verdict, claims"):
        front_page.rewrite("<!-- program: weather --><!-- end -->", copy)
    with pytest.raises(InputError, match="main.md: missing; the notebooks make it"):
        (copy / "results/mini/tables/main.md").unlink()
        front_page.content("results/mini/tables/main.md", copy, "")
    with pytest.raises(InputError, match="no claim 'PVeRA sings' of Main table"):
        front_page.claim(copy, "Main table", "PVeRA sings")
    with pytest.raises(InputError, match=r"claims\.csv: no column 'reading'"):
        edit(copy / "results/mini/tables/claims.csv", "reading", "words")
        front_page.claim(copy, *front_page.PRIMARY)


def test_a_figure_without_a_place_is_named():
    assert places.place_of("calibration_accuracy_tiny").where == "Figure 4"
    assert places.place_of("out_of_distribution_claims").notebook == "out_of_distribution"
    with pytest.raises(InputError, match="no pattern in PLACES fits nowhere_tiny"):
        places.place_of("nowhere_tiny")


def test_paths_of_places_exist():
    for place in places.PLACES:
        for name in (*place.made_by, *place.more):
            assert name in places.EXPERIMENTS or (ROOT / name).exists(), name
