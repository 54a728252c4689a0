"""Each number in the prose of README, docs and notebooks is that of a result; the tables in them are those of the results.

A person who writes a number adds a line to `PROSE`: the page, the words around it, and where its numbers come from.
"""

import json
import re
from pathlib import Path

import pytest
import scripts
from results import ROOT, cell, claim, hours, ratio, rows, table

from pvera.data import vtab
from pvera.data.tasks import TASKS
from pvera.report import published
from pvera.report.audit import CONTRADICTS
from pvera.study.profiles import Profile

PAPER = published.load(ROOT / "results/published").accuracies("dinov2_b")
NUMBER = re.compile(r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?")
#: What is no result: a level, a version, a name, a target, a share of one's own pictures.
NAMES = re.compile(
    r"95 %|Python 3\.\d+|PEFT 0\.\d+\.\d+|peft 0\.\d+\.\d+|arXiv:\d+\.\d+|Sapiens2[^|]*|15\.7 % to|\d\d % (?:training|validation|test)"
)
MAIN = {method: cell("main", "average", method=method) for method in ("pvera", "adaptformer")}
PRIMARY, EQUAL = claim("PVeRA is more accurate than VeRA"), claim("PVeRA is more accurate than VeRA with an equal budget")
NOISE = claim("The noise makes PVeRA more accurate (β = 0)")
KL = claim("The KL term makes PVeRA more accurate")
HIGHEST = claim("PVeRA has the highest average")
CALIBRATED = claim("Not in the paper: PVeRA is better calibrated than VeRA")
SPREAD = claim("Not in the paper: the spread of 16 draws detects incorrect predictions better than the score of one pass")
WITHIN = claim("Incorrect predictions have the higher standard deviation within a data set, 16 draws")
WIDTHS = claim("Incorrect predictions have the wider intervals within a data set, 4 draws")
LOWER = claim("PVeRA's values are lower in distribution (mean value)")
GRAMMAR = claim("PVeRA is better than VeRA on average over the tasks of our own grammar", "minilm")
AUDIT = [len(table("published/audit")), len(rows("published/audit", verdict=CONTRADICTS))]


def average(component: str) -> float:
    return rows("components", component=component)["mean"].mean()


def effect(switch: str, metric: str, *columns: str) -> list[float]:
    return [cell("protocol", column, switch=switch, metric=metric) for column in columns]


def median_epoch(method: str) -> float:
    return rows("duration", part="Images", method=method)["best"].median()


def gain(method: str) -> float:
    """Points of validation accuracy beyond the limit on epochs."""
    runs = rows("duration", part="Images", method=method)
    return 100 * (runs["accuracy"] - runs["early_accuracy"]).mean()


def minutes(command: str) -> list[int]:
    return [cell("performance/commands", column, command=command) for column in ("from_minutes", "to_minutes")]


def absolute(numbers: list[float]) -> list[float]:
    """Return a difference without its sign, which the words give, and the ends of its interval."""
    return [abs(numbers[0]), *numbers[1:]]


SCALE = [(PAPER.loc["pvera"] - PAPER.loc["vera"]).mean()]
POWER = [cell("claims", "could_be_shown", claim="PVeRA is more accurate than VeRA")]
LEDGER = effect("published", "accuracy", "mean", "low", "high")
ECE = effect("published", "ece", "mean", "low", "high")
DEMO = [cell("performance/demo", "average", method=name) for name in ("adaptformer", "pvera", "vera", "linear")]
ON_VIT_B = {"claim": "PVeRA trains fewer numbers than every other adapter but VeRA (effect: times VeRA's)", "backbone": "dinov2_b"}
PROSE = [
    ("README.md", "test accuracy of 52.8 % and VeRA, the method that it extends, 46.4 %", [average("pvera"), average("vera")]),
    ("README.md", "The difference is 6.4 points", PRIMARY[:1]),
    ("README.md", "tasks like these of [0.6, 12.3]", PRIMARY[1:]),
    ("README.md", "3.1 points above PVeRA's", [MAIN["adaptformer"] - MAIN["pvera"]]),
    ("README.md", "it seems: 5.2 points [−0.7, 11.0]", NOISE),
    ("README.md", "could be seen: 0.0 points [−1.3, 1.4]", KL),
    ("README.md", "(ACE) is 31.3 % higher [10.5, 56.0]", CALIBRATED),
    ("README.md", "an AUROC that is 0.206 lower", absolute(SPREAD)[:1]),
    ("README.md", "6.4 points above [0.6, 12.3]", PRIMARY),
    ("README.md", "6.1 points above [−0.1, 12.3]", EQUAL),
    ("README.md", "5.2 points above PVeRA without noise [−0.7, 11.0]", NOISE),
    ("README.md", "| 0.0 points [−1.3, 1.4] |", KL),
    ("README.md", "3.1 points below AdaptFormer [−5.0, 0.2]", absolute(HIGHEST)),
    ("README.md", "1.25 times VeRA's", [float(cell("claims", "reading", **ON_VIT_B))]),
    ("README.md", "15.71 % on", [operations := 100 * (2 * 3 * 257 * 256 * 768 * 12 / (12 * (12 * 257 * 768**2 + 2 * 257**2 * 768) + 256 * 3 * 14**2 * 768))]),
    ("README.md", "VeRA's ACE is 31.3 % higher [10.5, 56.0]", CALIBRATED),
    ("README.md", "AUROC 0.206 lower [−0.282, −0.130]", absolute(SPREAD)),
    ("README.md", "AUROC 0.028 below ½ [−0.499, 0.443]", absolute(LOWER)),
    ("README.md", "4.2 points below VeRA [−30.0, 21.6]", absolute(GRAMMAR)),
    ("README.md", "PVeRA 1.4 points above VeRA, on DINOv2", SCALE),
    ("README.md", "a true difference of 8.0 points", POWER),
    ("README.md", "Of 1136 checks of the paper's printed numbers against each other, 32 [", AUDIT),
    ("README.md", "accuracy by −3.0 points [−4.2, −1.9]", LEDGER),
    ("README.md", "(ECE) by 20.2 [14.8, 25.7]", ECE),
    ("README.md", "twice: −1.3 and 18.3 points", [*effect("softmax_in_loss", "accuracy", "mean"), *effect("softmax_in_loss", "ece", "mean")]),
    ("README.md", "three of these data sets in 7 to 8 minutes", minutes("bash run_all.sh")),
    ("README.md", "The second takes 6 to 7 minutes", minutes("bash run_tests.sh")),
    ("README.md", "about 54 for AdaptFormer, 50 for PVeRA, 43 for VeRA and 40 for Linear", DEMO),
    ("README.md", "| 5.9 h, text 3.1 h more |", [hours(*demo_tasks()), hours("entailment", "paraphrase", "acceptability")]),
]
