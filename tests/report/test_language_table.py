"""The language table on hand-made and committed records."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import make_record, write_all
from scipy.stats import ttest_1samp

from pvera.data import glue
from pvera.report import claims, published
from pvera.report.tables import language
from pvera.report.tables.verdicts import Untestable
from pvera.study import results

PUBLISHED = pd.DataFrame(
    [("lora", "RTE", 76.1, True, ""), ("pvera", "RTE", 76.7, False, "best"),
     ("lora", "CoLA", 61.3, True, ""), ("pvera", "CoLA", 65.6, False, "best")],
    columns=["method", "task", "score", "star", "mark"],
)  # fmt: skip


def record(method, dataset, seed, correct, matthews):
    test = {"images": 100, "correct": correct, "accuracy": correct / 100, "matthews": matthews}
    place = dict(category="language", experiment="language", backbone="minilm", config={"data_sha256": dataset})
    return make_record(method, "digits", seed, test=test, **place) | {"dataset": dataset}


@pytest.fixture
def runs():
    records = []
    for seed in (0, 1):
        records += [record("lora", "rte", seed, 50 + 2 * seed, 0.1), record("pvera", "rte", seed, 70, 0.4)]
        records += [record("lora", "cola", seed, 71, 0.5 + 0.1 * seed), record("pvera", "cola", seed, 72, 0.3)]
    return records


MAJORITY = {"rte": 0.527, "cola": 0.0}


def stored(root, runs):
    """Write predictions of the runs below `root`; the most frequent class has the shares of `MAJORITY`."""
    for path, run in zip(write_all(root, runs), runs):
        first = round(1000 * (MAJORITY[run["dataset"]] or 0.6))
        labels = np.repeat([0, 1], [first, 1000 - first])
        results.write(path, run, np.eye(2)[labels], labels)
    return root


def test_table(runs, tmp_path):
    """RTE by accuracy, CoLA by Matthews correlation with the accuracy's star; the paper's beside them."""
    table = language.language(stored(tmp_path, runs), runs, PUBLISHED)
    here, paper = table.texts().values()
    assert list(here) == ["RTE (acc.)", "CoLA (MCC)"]
    assert here.T.to_dict("list") == {
        "Majority class": ["52.7", "0.0"],
        "LoRA": [r"51.0\* ± 1.4", "**55.0 ± 7.1**"],  # RTE: below the majority class
        "PVeRA": ["**70.0 ± 0.0**", "<ins>30.0 ± 0.0</ins>"],
    }
    assert paper.T.to_dict("list") == {"LoRA": [r"76.1\*", r"61.3\*"], "PVeRA": ["**76.7**", "**65.6**"]}


def test_contrasts(runs):
    """On GLUE VeRA is farthest below the majority class, by 7.3 points on RTE; it is 20 above on CoLA."""
    runs += [record("vera", name, seed, 60, 0.2) for name in MAJORITY for seed in (0, 1)]
    scores = language.with_majority(runs, MAJORITY)
    with pytest.raises(Untestable, match="nothing was learned"):  # LoRA is 2.7 points below, and 0.7
        language.ahead("rte")(scores)
    cola = scores.assign(lora=scores["lora"].mask(scores["majority"] == 0, 50))  # LoRA learns CoLA alone
    assert language.ahead("glue", ["vera"])(cola)["PVeRA − VeRA"].index.tolist() == [("language", "cola")]
    learned = scores.assign(lora=scores["majority"] + 5)
    assert language.ahead("glue", ["vera"])(learned)["PVeRA − VeRA"].mean(axis=None) == pytest.approx(10)
    np.testing.assert_allclose(language.ahead("rte")(learned)["PVeRA − VeRA"], [[10, 10]])
    np.testing.assert_allclose(language.ahead("cola")(learned)["PVeRA − LoRA"], [[25, 25]])
    above = language.above_majority_class("glue")(scores)
    assert above["VeRA"].mean(axis=None) == pytest.approx((7.3 + 20) / 2) and len(above) == 3
    assert list(language.above_majority_class("rte", ["lora"])(scores)) == ["LoRA"]
    with pytest.raises(Untestable, match="no runs on MRPC"):
        language.ahead("mrpc")(scores)


ROOT = Path(__file__).resolve().parents[2]


def test_a_task_that_lora_learned_is_one_by_scipys_interval():
    """On the committed trainings on all texts; the table has these alone."""
    runs = results.load_runs(ROOT / "results", "mini", "full_sets")
    scores = language.with_majority(runs, language.majority_class(ROOT / "results", runs))
    paper = published.load(ROOT / "results/published")
    rows = claims.judged(ROOT / "results", "mini", paper, "language").set_index("claim")
    for name, gaps in (scores["lora"] - scores["majority"]).groupby("dataset"):
        row = rows.loc[f"LoRA beats the majority class on {glue.GLUE[name].title}"]
        expected = [gaps.mean(), *ttest_1samp(gaps, 0).confidence_interval()]
        assert row[["difference", "these_low", "these_high"]].tolist() == pytest.approx(expected)
    assert language.language(ROOT / "results", runs, paper.language).name == "full_sets"
