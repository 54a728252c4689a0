"""Each number in README is that of a result, and the tables in the pages are those of results.

An effect with its interval is a row of the tables of claims or of the protocols' differences. Who writes another number
adds a line to `NUMBERS`: the words around it, and where it comes from.
"""

import functools
import re
from pathlib import Path

import front_page
import numpy as np
import pandas as pd
import scripts

from pvera.data.suite import RECIPES
from pvera.report import published
from pvera.report.audit import CONTRADICTS
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def table(name: str) -> pd.DataFrame:
    """Read a CSV file: of the tables of `mini`, or one with a path from results/."""
    folder = "results" if "/" in name else "results/mini/tables"
    return pd.read_csv(ROOT / folder / f"{name}.csv", keep_default_na="/" not in name)


def rows(name: str, **where) -> pd.DataFrame:
    """Return the rows of a table that have these values."""
    frame = table(name)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame), (name, where)
    return frame


def cell(name: str, column: str, **where):
    """Return the one cell of a column in the rows that have these values."""
    (value,) = rows(name, **where)[column]
    return value


def hours(*datasets: str) -> float:
    """Return the hours of the recorded runs on these data sets, on two cores."""
    spent = table("spent")
    return float(spent.loc[spent["dataset"].isin(datasets), "seconds"].sum() / 7200)


PAPER = published.load(ROOT / "results/published").accuracies("dinov2_b")
NUMBER = re.compile(r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?")
NAMES = re.compile(r"95 %|Python 3\.\d+")  # a level, a version
LEAD = (PAPER.loc["pvera"] - PAPER.loc["vera"]).mean()
POWER = cell("claims", "could_be_shown", claim="PVeRA is more accurate than VeRA")
AUDIT = [len(table("published/audit")), len(rows("published/audit", verdict=CONTRADICTS))]
SOFTMAX = [cell("protocol", "mean", switch="softmax_in_loss", metric=metric) for metric in ("accuracy", "ece")]
DEMO = Profile.read(ROOT / "experiments/profiles/demo.yaml")


def average(component: str, column: str = "mean") -> float:
    return rows("components", component=component)[column].mean()


def parameters(method: str) -> int:
    """Return the trainable parameters of a method on ViT-B/14, of the smallest of its grid."""
    return rows("cost", backbone="dinov2_b", method=method)["adapter_parameters"].min()


def noises(component: str) -> float:
    return rows("components_noise", component=component)["mean"].mean()


def minutes(command: str) -> list[int]:
    return [cell("performance/commands", column, command=command) for column in ("from_minutes", "to_minutes")]


#: Words of README, and where the numbers among them come from, in README's order.
NUMBERS = [
    (
        "dropped 50.5, PVeRA 50.5, VeRA 45.3",
        [noises(name) for name in ("VeRA, dropout 0.5 of the latent", "no_kl", "vera")],
    ),
    ("at 24 % errors", [table("uncertainty_by_error")["error"].min()]),
    ("at 71 % errors", [table("uncertainty_by_error")["error"].max()]),
    ("ViT with 0.5 million", [rows("cost", backbone="tiny")["backbone_parameters"].max() / 1e6]),
    ("figures, in 7 to 12 minutes", minutes("bash run_all.sh")),
    ("the tests, in 6 to 10 minutes", minutes("bash run_tests.sh")),
    ("trains 30,720 numbers", [parameters("pvera")]),
    ("VeRA trains 24,576, LoRA 1,179,648 with", [parameters("vera"), parameters("lora")]),
    ("PVeRA is 1.4 points above VeRA", [LEAD]),
    ("true difference of 3.4 points", [POWER]),
    ("Of 1136 checks of the paper's printed numbers against each other, 32", AUDIT),
    ("alone by −1.3 and 18.3 points", SOFTMAX),
    (
        "54 for AdaptFormer, 50 for PVeRA, 43 for VeRA and 40 for Linear",
        [cell("performance/demo", "average", method=name) for name in ("adaptformer", "pvera", "vera", "linear")],
    ),
    ("| 7 to 12 minutes", minutes("bash run_all.sh")),
    ("21.1 h without the methods tuned alike, text 10.7 h more", [hours(*RECIPES), hours("rte", "mrpc", "cola")]),
    ("| 6 to 10 minutes", minutes("bash run_tests.sh")),
]

#: Differences, and intervals of both scopes; also of the differences the other way round.
EFFECTS = [
    table("claims")[["difference", "these_low", "these_high", "low", "high"]].to_numpy(),
    *(table(name)[["mean", "low", "high", "low", "high"]].to_numpy() for name in ("protocol", "uncertainty_by_error")),
]
EFFECTS += [-part[:, [0, 2, 1, 4, 3]] for part in EFFECTS]
PAIR = r"\[([−\d.]+), ([−\d.]+)\]"
#: A difference, where no other number stands between, and its interval; two intervals are on these tasks and on others.
EFFECT = re.compile(rf"(?:(\d+\.\d+)[^\d\[]{{0,90}})?{PAIR}(?: \| {PAIR})?")


def rounds(number: str, source: float) -> bool:
    """Return whether a source prints as this number."""
    number = number.replace(",", "").replace("−", "-")
    return float(number) == round(float(source), len(number.partition(".")[2]))


def is_effect(size: str, *ends: str) -> bool:
    """Return whether one row has a difference of this size and these intervals; a single one may be of either scope."""
    ends = list(filter(None, ends))
    for difference, *row in np.concatenate(EFFECTS):
        if not size or rounds(size, abs(difference)):
            scopes = [row] if len(ends) == 4 else [row[:2], row[2:]]
            if any(all(map(rounds, ends, scope)) for scope in scopes):
                return True
    return False


def test_numbers_of_readme_are_those_of_results():
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    text = NAMES.sub("", " ".join(re.sub(r"\]\([^)]*\)", "]", text).split()))
    for words, sources in NUMBERS:
        assert words in text, words
        text = text.replace(words, "")
        for number, source in zip(NUMBER.findall(words), sources, strict=True):
            assert rounds(number, source), f"{words}: {source}"
    assert [effect[0] for effect in EFFECT.finditer(text) if not is_effect(*effect.groups(""))] == []
    assert re.findall(r"\d[.,]\d|\d %|\d points", EFFECT.sub("", text)) == [], "typed, and in no line above"


def test_readme_counts_the_trainings_of_the_demonstration():
    runs = [run for experiment in DEMO.experiments for run in list_runs(DEMO, experiment, "results")]
    assert f"{len(runs)} trainings" in (ROOT / "README.md").read_text()


FILLED = "# A\n\n<!-- program: t.md -->\n\nnew\n\n<!-- end -->\n\nB\n\n<!-- program: t.md -->\n\nnew\n\n<!-- end -->\n"


def test_tables_are_those_of_the_results(tmp_path, capsys):
    assert not front_page.outdated(ROOT), "run `python experiments/front_page.py`"
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    (tmp_path / "t.md").write_text("new\n")
    page.write_text(FILLED.replace("new", "", 1).replace("new", "old"))
    assert scripts.outcome("front_page", capsys, "--root", tmp_path)[:2] == (0, "docs/page.md: written\n")
    assert page.read_text() == FILLED
    (tmp_path / "t.md").unlink()
    assert "t.md does not exist" in scripts.refusal("front_page", capsys, "--root", tmp_path)
