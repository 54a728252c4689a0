"""The language table on hand-made and committed records."""

import numpy as np
import pandas as pd
import pytest
from records import make_record, write_all

from pvera.report.tables import language
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
