"""The language table on hand-made and committed records."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import hold_stored, make_record, write_all
from scipy.stats import ttest_1samp
from sklearn.metrics import matthews_corrcoef

from pvera.adapters import METHODS
from pvera.data import glue
from pvera.report import claims, published
from pvera.report.scores import capped
from pvera.report.tables import language
from pvera.report.tables.verdicts import Untestable
from pvera.study import results

PUBLISHED = pd.DataFrame(
    [
        ("lora", "RTE", 76.1, True, ""),
        ("pvera", "RTE", 76.7, False, "best"),
        ("vera", "RTE", 72.8, True, ""),
        ("lora", "CoLA", 61.3, True, ""),
        ("pvera", "CoLA", 65.6, False, "best"),
        ("vera", "CoLA", 62.4, True, ""),
    ],
    columns=["method", "task", "score", "star", "mark"],
)


def record(method, dataset, seed, correct, matthews):
    test = {"images": 100, "correct": correct, "accuracy": correct / 100, "matthews": matthews}
    place = dict(category="language", experiment="language", backbone="minilm", config={"data_sha256": dataset})
    return make_record(method, "digits", seed, test=test, **place) | {"dataset": dataset}


@pytest.fixture
def runs():
    made = []
    for seed in (0, 1):
        made += [record("lora", "rte", seed, 50 + 2 * seed, 0.1), record("pvera", "rte", seed, 70, 0.4)]
        made += [record("lora", "cola", seed, 71, 0.5 + 0.1 * seed), record("pvera", "cola", seed, 72, 0.3)]
    return made


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
    here, paper, difference = table.texts().values()
    assert list(here) == ["RTE (acc.)", "CoLA (MCC)"]
    assert here.T.to_dict("list") == {
        "Majority class": ["52.7", "0.0"],
        "LoRA": [r"51.0\* ± 1.4", "**55.0 ± 7.1**"],  # RTE: below the majority class
        "PVeRA": ["**70.0 ± 0.0**", "<ins>30.0 ± 0.0</ins>"],
    }
    assert paper.T.to_dict("list") == {"LoRA": [r"76.1\*", r"61.3\*"], "PVeRA": ["**76.7**", "**65.6**"]}
    assert difference.T.to_dict("list") == {"LoRA": ["−25.1", "−6.3"], "PVeRA": ["−6.7", "−35.6"]}
    data = table.data.set_index(["dataset", "method"])
    assert data.at[("cola", "lora"), "mean"] == pytest.approx(55) and data.at[("rte", "lora"), "majority"] == 52.7
    shown = table.markdown()
    assert "(b) The paper" in shown and "MCC" in shown


def test_contrasts(runs):
    """On GLUE VeRA is farthest below the majority class, by 7.3 points on RTE; it is 20 above on CoLA."""
    runs += [record("vera", name, seed, 60, 0.2) for name in MAJORITY for seed in (0, 1)]
    scores = language.with_majority(runs, MAJORITY)
    with pytest.raises(Untestable, match="nothing was learned"):  # LoRA is 2.7 points below, and 0.7
        language.ahead("rte")(scores)
    one = scores.assign(lora=scores["lora"].mask(scores["majority"] == 0, 50))  # LoRA learns CoLA alone
    assert language.ahead("glue", ["vera"])(one)["PVeRA − VeRA"].index.tolist() == [("language", "cola")]
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
PAPER = published.load(ROOT / "results/published")
COMMITTED = results.load_runs(ROOT / "results", "mini", "language", optional=True)


@pytest.mark.skipif(not COMMITTED, reason="the language experiment has no results here")
def test_committed_results():
    """Every method has three seeds per task. Scores equal scikit-learn's on the stored predictions, and test sets have
    their sizes."""
    assert {run["dataset"] for run in COMMITTED} == {"rte", "mrpc", "cola"}
    assert {run["method"] for run in COMMITTED} == METHODS.keys() - {"adaptformer"}
    assert len(COMMITTED) == 3 * 7 * len({run["dataset"] for run in COMMITTED})
    assert not capped(COMMITTED), "no limit on epochs ended a training"
    majority = language.majority_class(ROOT / "results", COMMITTED)
    known = {"rte": 52.7, "mrpc": 68.4}  # else Matthews correlation
    assert all(100 * share == pytest.approx(known.get(name, 0), abs=0.1) for name, share in majority.items())
    exact = 0
    for run in COMMITTED:
        scores, labels, decided = hold_stored(ROOT / "results", run)
        assert len(labels) == glue.TASKS[run["dataset"]].dev
        if decided:
            exact += 1
            assert matthews_corrcoef(labels, scores.argmax(1)) == pytest.approx(run["test"]["matthews"], abs=1e-12)
    assert exact > 0.8 * len(COMMITTED)


FULL = results.load_runs(ROOT / "results", "mini", "full_sets", optional=True)


@pytest.mark.skipif(not FULL, reason="the trainings on all texts have no results here")
def test_committed_results_on_all_texts():
    """Whether LoRA has learned a task is scipy's t interval over its seeds; the table has the trainings alone."""
    assert not capped(FULL) and all(run["config"]["images"] is None for run in FULL)
    for run in FULL:
        _, labels, _ = hold_stored(ROOT / "results", run)
        assert len(labels) == glue.TASKS[run["dataset"]].dev
    majority = language.majority_class(ROOT / "results", FULL)
    rows = claims.judged(ROOT / "results", "mini", PAPER, "language").set_index("claim")
    scores = language.with_majority(FULL, majority)
    for name, gaps in (scores["lora"] - scores["majority"]).groupby("dataset"):
        row = rows.loc[f"LoRA beats the majority class on {glue.TASKS[name].title}"]
        interval = ttest_1samp(gaps, 0).confidence_interval()
        np.testing.assert_allclose(
            row[["difference", "these_low", "these_high"]].astype(float), [gaps.mean(), *interval]
        )
    table = language.language(ROOT / "results", FULL, PAPER.language)
    assert table.name == "full_sets" and set(table.data["method"]) == {run["method"] for run in FULL}
