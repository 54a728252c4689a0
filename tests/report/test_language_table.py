"""The language table on hand-made and committed records."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import judged
from records import hold_stored, make_record, write_all
from sklearn.metrics import matthews_corrcoef

from pvera.adapters import METHODS
from pvera.data import glue
from pvera.report.scores import capped
from pvera.report.tables import language as tables
from pvera.report.tables.language import majority_class
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
    return make_record(
        method,
        "digits",
        seed,
        category="language",
        experiment="language",
        test=test,
        backbone="minilm",
        config={"data_sha256": dataset},
    ) | {"dataset": dataset}


@pytest.fixture
def runs():
    made = []
    for seed in (0, 1):
        made += [record("lora", "rte", seed, 50 + 2 * seed, 0.1), record("pvera", "rte", seed, 70, 0.4)]
        made += [record("lora", "cola", seed, 71, 0.5 + 0.1 * seed), record("pvera", "cola", seed, 72, 0.3)]
        made += [record("lora", "entailment", seed, 80, 0.6), record("pvera", "entailment", seed, 79, 0.6)]
    return made


MAJORITY = {"rte": 0.527, "cola": 0.0, "entailment": 0.5}


def test_table(runs):
    """RTE by accuracy, CoLA by Matthews correlation with the accuracy's star; the paper's beside them, and tasks that
    are not GLUE's apart."""
    table = tables.language(runs, MAJORITY, PUBLISHED)
    here, grammar, paper, difference = table.panels
    assert here.header == ("RTE (acc.)", "CoLA (MCC)") and grammar.header == ("Entailment (acc.)",)
    text = {
        row.label: [cell.text for cell in row.cells + other.cells]
        for row, other in zip(here.rows, grammar.rows, strict=True)
    }
    assert text == {
        "Majority class": ["52.7", "0.0", "50.0"],
        "LoRA": ["51.0* ± 1.4", "55.0 ± 7.1", "80.0 ± 0.0"],
        "PVeRA": ["70.0 ± 0.0", "30.0 ± 0.0", "79.0 ± 0.0"],
    }
    marks = [cell.mark for cell in here.rows[1].cells + grammar.rows[1].cells]
    assert marks == ["", "best", "best"]  # RTE: below the majority class
    assert [[cell.text for cell in row.cells] for row in paper.rows] == [["76.1*", "61.3*"], ["76.7", "65.6"]]
    assert [[cell.text for cell in row.cells] for row in difference.rows] == [["−25.1", "−6.3"], ["−6.7", "−35.6"]]
    data = table.data.set_index(["dataset", "method"])
    assert data.at[("cola", "lora"), "mean"] == pytest.approx(55) and data.at[("rte", "lora"), "majority"] == 52.7
    shown = table.markdown()
    assert "(b) Here, our own grammar" in shown and "(c) The paper" in shown and "MCC" in shown


def test_missing_runs_leave_empty_cells(runs):
    runs = [run for run in runs if (run["method"], run["dataset"]) != ("lora", "rte")]
    table = tables.language(runs, MAJORITY, PUBLISHED)
    assert table.panels[0].rows[1].cells[0].text == "–" and table.panels[3].rows[0].cells[0].text == "–"


def test_claims(runs):
    """On GLUE VeRA is farthest below the majority class, by 7.3 points on RTE and 20 above on CoLA."""
    runs += [record("vera", name, seed, 60, 0.2) for name in MAJORITY for seed in (0, 1)]
    claims = judged("Language", tables.with_majority(runs, MAJORITY))
    presupposed = "Presupposed: every method beats the majority class on average over the tasks "
    assert claims.difference.dropna().to_dict() == pytest.approx({
        "PVeRA is better than VeRA on average over the tasks of GLUE": (10 + 10) / 2,
        "PVeRA has the highest score on RTE": 10,
        "PVeRA has the highest score on CoLA": -25,
        presupposed + "of GLUE": (7.3 + 20) / 2,
    })  # fmt: skip
    assert claims.loc[presupposed + "of our own grammar", "reading"] == "fewer than two data sets: no interval"
    rte = claims.loc["PVeRA has the highest score on RTE"]
    assert (rte["verdict"], rte["scale"]) == ("holds", "2 seeds")  # ten points on each seed
    assert claims.at["PVeRA has the highest score on CoLA", "seed1"] == pytest.approx(-30)
    assert claims.at["PVeRA has the highest score on CoLA", "verdict"] == "undecided"


def test_a_task_on_which_every_run_diverged(runs, tmp_path):
    """A task whose runs all diverged has no score; the other tasks keep theirs."""
    for run in runs:
        if run["dataset"] == "cola":
            run |= {"chosen": None, "test": None}
    for path, run in zip(write_all(tmp_path, runs), runs):
        labels = np.repeat([0, 1], [60, 40])
        results.write(path, run, np.eye(2)[labels], labels)
    (made,) = tables.language_of_profile(tmp_path, "mine", PUBLISHED).values()
    assert [cell.text for cell in made[0].panels[0].rows[1].cells][1] == "–"
    claims = judged("Language", tables.with_majority(runs, MAJORITY))
    assert claims.at["PVeRA has the highest score on CoLA", "verdict"] == "not testable here"


def test_of_a_profile(runs, tmp_path):
    for path, run in zip(write_all(tmp_path, runs), runs):
        labels = np.repeat([0, 1], [60, 40])
        results.write(path, run, np.eye(2)[labels], labels)
    (made,) = tables.language_of_profile(tmp_path, "mine", PUBLISHED).values()
    assert [cell.text for cell in made[0].panels[0].rows[0].cells] == ["60.0", "0.0"]
    assert tables.language_of_profile(tmp_path, "another", PUBLISHED) == {}


ROOT = Path(__file__).resolve().parents[2]
COMMITTED = results.load_runs(ROOT / "results", "mini", "language", optional=True)


@pytest.mark.skipif(not COMMITTED, reason="the language experiment has no results here")
def test_committed_results():
    """Every method has three seeds per task. Scores equal scikit-learn's on the stored predictions, and test sets have
    their sizes."""
    assert {run["dataset"] for run in COMMITTED} >= {"entailment", "paraphrase", "acceptability"}
    assert {run["method"] for run in COMMITTED} == METHODS.keys() - {"adaptformer"}
    assert len(COMMITTED) == 3 * 7 * len({run["dataset"] for run in COMMITTED})
    assert not capped(COMMITTED), "no limit on epochs ended a training"
    majority = majority_class(ROOT / "results", COMMITTED)
    known = {"rte": 52.7, "mrpc": 68.4} | dict.fromkeys(("entailment", "paraphrase"), 50)  # else Matthews correlation
    assert all(100 * share == pytest.approx(known.get(name, 0), abs=0.1) for name, share in majority.items())
    exact = 0
    for run in COMMITTED:
        scores, labels, decided = hold_stored(ROOT / "results", run)
        assert len(labels) == glue.TASKS[run["dataset"]].dev
        if decided:
            exact += 1
            assert matthews_corrcoef(labels, scores.argmax(1)) == pytest.approx(run["test"]["matthews"], abs=1e-12)
    assert exact > 0.8 * len(COMMITTED)
