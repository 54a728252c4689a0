"""Each number in the prose of README, docs and notebooks is that of a result, and so are the tables in the pages.

An effect with its interval is a row of the tables of claims or of the protocols' differences. A person who writes
another number adds a line to `PROSE`: the page, the words around it, and where its numbers come from.
"""

import json
import re
from collections import Counter
from functools import partial

import front_page
import numpy as np
import pytest
import scripts

from pvera.data import vtab
from pvera.data.suite import RECIPES
from pvera.data.tasks import TASKS
from pvera.report import published
from pvera.report.audit import CONTRADICTS
from pvera.report.tables.wall_time import named
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from results import ROOT, cell, hours, ratio, rows, table

PAPER = published.load(ROOT / "results/published").accuracies("dinov2_b")
NUMBER = re.compile(r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?")
#: Numbers that are no results: a level, a version, the paper's own number.
NAMES = re.compile(r"95 %|Python 3\.\d+|add 15\.7 %")
ENSEMBLE = rows("rivals", method="pvera", way="ensemble", scaled=True)["nll"].mean()
STARS = table("detailed").dropna(subset="p_value")["significantly_lower"]
AUDIT = [len(table("published/audit")), len(rows("published/audit", verdict=CONTRADICTS))]


def average(component: str, column: str = "mean") -> float:
    return rows("components", component=component)[column].mean()


def of_noise(component: str) -> float:
    return rows("components_noise", component=component)["mean"].mean()


def effect(switch: str, *metrics: str) -> list[float]:
    return [cell("protocol", "mean", switch=switch, metric=metric) for metric in metrics]


def median_epoch(method: str) -> float:
    return rows("duration", method=method)["best"].median()


def validated(method: str) -> tuple[float, float]:
    """Validation accuracy in percent at the limit on epochs, and at the end."""
    return tuple(100 * rows("duration", method=method)[["early_accuracy", "accuracy"]].mean())


def minutes(command: str) -> list[int]:
    return [cell("performance/commands", column, command=command) for column in ("from_minutes", "to_minutes")]


def auroc(way: str, draws: int) -> float:
    return rows("uncertainty_auroc", way=way, draws=draws)["auroc"].mean()


def of_fixed_noise(noise: str, way: str) -> float:
    seeds = rows("uncertainty_fixed_noise", noise=noise, way=way)
    return seeds.groupby("dataset")["auroc"].mean().mean()


def step(what: str) -> float:
    return ratio("cpu_amd_epyc", "dinov2_s", "float32", what)


def decoded() -> float:
    """Return the size of VTAB-1k's images (GB), decoded once to 224 pixels."""
    images = sum(task.test_images + sum(vtab.TRAINING.values()) for task in TASKS.values() if task.suite == "vtab")
    return images * 224 * 224 * 3 / 1e9


def parameters(method: str) -> int:
    """Return the trainable parameters of a method on ViT-B/14, of the smallest of its grid."""
    return rows("cost", backbone="dinov2_b", method=method)["adapter_parameters"].min()


PAPER_WIDTHS = cell("intervals", "published_wrong", draws=16, group="All data sets") / cell(
    "intervals", "published_right", draws=16, group="All data sets"
)
LEAD = (PAPER.loc["pvera"] - PAPER.loc["vera"]).mean()
POWER = cell("claims", "could_be_shown", claim="PVeRA is more accurate than VeRA")
SOFTMAX = effect("softmax_in_loss", "accuracy", "ece")
SIZES = "PVeRA has fewer trainable parameters than every other adapter but VeRA"
TIMES_VERA = float(cell("claims", "reading", claim=SIZES, backbone="dinov2_b").removesuffix(" times VeRA's"))
COUNTED = rows("cost", backbone="dinov2_b", method="pvera").iloc[0]
DRAWN = 100 * (COUNTED["training"] / COUNTED["backbone_multiply_adds"] - 1)
AVERAGES = [cell("performance/demo", "average", method=name) for name in ("adaptformer", "pvera", "vera", "linear")]
RUN_ALL, RUN_TESTS = minutes("bash run_all.sh"), minutes("bash run_tests.sh")
HOURS = [hours(*RECIPES), hours("rte", "mrpc", "cola")]
PEFT = [
    ratio("cpu_amd_epyc", "dinov2_s", precision, "PVeRA, r = 256, step", "the step of peft")
    for precision in ("float32", "bfloat16")
]
VALIDATED = validated("pvera")
EPOCHS = [median_epoch("pvera"), median_epoch("vera")]


def measured(table: str, row: str) -> list[float]:
    """Return average accuracy, ACE and median epoch of a row, as its table prints them."""
    lines = (ROOT / f"results/mini/tables/{table}.md").read_text().splitlines()
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in lines if line.startswith("|")}
    return [float(value) for value in cells[row][-4:-1]]


of_steps, of_noises = partial(measured, "components"), partial(measured, "components_noise")
SIGMA_1, LEARNED = "PVeRA, σ = 1 fixed, β = 0", "PVeRA, σ learned, β = 0"


def share(method: str, rate: float) -> float:
    """Return the share (%) of the tasks of `mini` whose search chose this learning rate."""
    return 100 * cell("grid", "share", method=method, hyperparameter="learning_rate", value=rate)


NOISES = ["σ learned", "σ = 1 fixed"]
FIXED = [of_fixed_noise(noise, "Spread of the draws") for noise in NOISES]
SIGMAS = [f"PVeRA, σ = {sigma} fixed, β = 0" for sigma in ("0.3", "1", "3")]

#: Page -> (words of it, where the numbers among them come from), in the page's order.
PROSE = {
    "README.md": [
        ("it trains 30,720", [parameters("pvera")]),
        ("VeRA trains 24,576, LoRA 1,179,648 at", [parameters("vera"), parameters("lora")]),
        ("beats VeRA by 6.2 points", [average("pvera") - average("vera")]),
        ("ViT of 0.5 million", [rows("cost", backbone="tiny")["backbone_parameters"].max() / 1e6]),
        (
            "53.3 against 47.1: +6.2; the paper has +1.4 on",
            [average("pvera"), average("vera"), average("pvera") - average("vera"), LEAD],
        ),
        ("tasks | +6.1", [average("pvera") - average("equal_budget")]),
        ("+0.5 over", [average("no_kl") - average("fixed_sigma")]),
        ("(ACE) 4.8 against 7.2 %: VeRA's is", [average("pvera", "ace"), average("vera", "ace")]),
        ("AUROC 0.492 by the spread", [auroc("Spread of the draws", 16)]),
        ("0.699 by the confidence of one pass", [auroc("1 − score of one pass", 0)]),
        ("figures, in 7 to 12 minutes", RUN_ALL),
        ("runs the tests in 6 to 10 minutes", RUN_TESTS),
        ("PVeRA is 1.4 points above VeRA", [LEAD]),
        ("true difference of 3.4 points", [POWER]),
        ("Of 1136 checks of the paper's printed numbers against each other, 32", AUDIT),
        ("alone by −1.3 and 18.3 points", SOFTMAX),
        ("54 for AdaptFormer, 50 for PVeRA, 43 for VeRA and 40 for Linear", AVERAGES),
        ("| 7 to 12 minutes", RUN_ALL),
        ("21.1 h, text 10.7 h more", HOURS),
        ("| 6 to 10 minutes", RUN_TESTS),
    ],
    "docs/faq.md": [
        ("gains 6.1 points", [VALIDATED[1] - VALIDATED[0]]),
    ],
    "docs/fixed-noise.md": [
        ("it has VeRA's 24,576", [parameters("vera")]),
        ("in place of PVeRA's 30,720", [parameters("pvera")]),
        (
            "(ACE) is 5.0 %, with a learned σ 5.2 %, without noise 6.7 %",
            [average(name, "ace") for name in ("fixed_sigma", "no_kl", "no_noise")],
        ),
        (
            "On three of the tasks with three seeds, σ of 0.3, 1 and 3 reach 49.4, 49.9 and 48.2 %",
            [0.3, 1, 3, *map(of_noise, SIGMAS)],
        ),
        ("a learned σ 50.5 %, no noise 45.1 %", [of_noise("no_kl"), of_noise("no_noise")]),
        ("AUROC of 0.465, with a learned σ 0.460", FIXED[::-1]),
        ("one pass has 0.687 and 0.682", [of_fixed_noise(noise, "1 − score of one pass") for noise in NOISES[::-1]]),
        ("VeRA reaches 45.3 %, and 50.5 % if", [of_noise("vera"), of_noise("VeRA, dropout 0.5 of the latent")]),
    ],
    "docs/library.md": [
        ("| VeRA | 47.1 | 7.2 | 11 | 45.3 | 6.6 | 14 |", of_steps("VeRA") + of_noises("VeRA")),
        ("| 52.8 | 5.0 | 58 | 49.9 | 4.8 | 49 |", of_steps(SIGMA_1) + of_noises(SIGMA_1)),
        ("| 53.3 | 5.2 | 61 | 50.5 | 4.3 | 42 |", of_steps(LEARNED) + of_noises(LEARNED)),
        ("| 50.5 | 5.1 | 64 |", of_noises("VeRA, dropout 0.5 of the latent")),
        (
            "| on 50 % of the tasks, on 50 % | each on 33 % |",
            [share("pvera", 0.01), share("pvera", 0.003), share("vera", 0.01)],
        ),
        (
            "in 67 % of the paper's runs | in 46 % |",
            [cell("published/grid", "percent", method=method, value=1e-3) for method in ("pvera", "vera")],
        ),
        ("costs it 6.1 points", [VALIDATED[1] - VALIDATED[0]]),
    ],
    "docs/mini.md": [
        ("PVeRA is 1.4 points above VeRA", [LEAD]),
        ("true difference of 3.4 points", [POWER]),
        ("at 64 in the median and VeRA at 11", EPOCHS),
        ("gains 6.1 points", [VALIDATED[1] - VALIDATED[0]]),
        ("shown PVeRA 1.3 points above VeRA, in place of 7.4", np.subtract(VALIDATED, validated("vera"))),
        ("about 21.1 hours (42.1 core-hours)", [HOURS[0], 2 * HOURS[0]]),
        ("about 10.7 more (21.4):", [HOURS[1], 2 * HOURS[1]]),
    ],
    "docs/paper.md": [("| 61 GB", [decoded()])],
    "analysis/audit.ipynb": [("Of 1136 checks, 32 contradict", AUDIT)],
    "analysis/computational_efficiency.ipynb": [
        ("trains 1.25 times", [TIMES_VERA]),
        ("adds 15.71 % to", [DRAWN]),
    ],
    "analysis/detailed.ipynb": [("in 46 of 84 comparisons", [STARS.sum(), len(STARS)])],
    "analysis/duration.ipynb": [("gains 6.1 points", [VALIDATED[1] - VALIDATED[0]])],
    "analysis/intervals.ipynb": [
        ("the paper has 2.65", [PAPER_WIDTHS]),
    ],
    "analysis/latents.ipynb": [
        ("from the mean by 0.37", [cell("latents", "spread", method="pvera")]),
        ("with the mean is 0.62", [cell("latents", "correlation", method="pvera")]),
    ],
    "analysis/position.ipynb": [
        ("loses 0.082 nats", [cell("position", "above_reference", targets="v")]),
        (
            "in 13 of 18 trainings, and all three together in 11",
            [cell("position", "failed", targets="qk"), 18, cell("position", "failed", targets="qkv")],
        ),
    ],
    "analysis/protocol.ipynb": [
        ("accuracy by −1.3 points", SOFTMAX[:1]),
        ("images by −1.2 points", effect("shuffle", "accuracy")),
        ("at once by −3.0 points", effect("published", "accuracy")),
    ],
    "analysis/rank.ipynb": [
        ("0.010 nats below", [-cell("rank", "above_reference", rank=16)]),
        ("lies 0.103 nats above", [cell("rank", "above_reference", rank=64)]),
        ("one of its 18 trainings", [18]),
    ],
    "analysis/speed.ipynb": [
        ("takes 1.37 of", [step("PVeRA, r = 256")]),
        ("takes 0.85 to 1.03 of that of the package", [min(PEFT), max(PEFT)]),
        ("LoRA's 1.09, and a merged model 1.01", [step("LoRA, r = 128"), step("PVeRA, r = 256, merged")]),
    ],
    "analysis/uncertainty.ipynb": [
        ("an AUROC of 0.492", [auroc("Spread of the draws", 16)]),
        ("needs no draws, with 0.699", [auroc("1 − score of one pass", 0)]),
        ("spread is 0.460, with σ = 1 fixed 0.465", [FIXED[0], 1, FIXED[1]]),
    ],
    "analysis/uncertainty_baselines.ipynb": [
        ("The lowest NLL, 1.060,", [ENSEMBLE]),
    ],
}


def prose(name: str) -> str:
    """Return a page's text without code, targets of links and the tables that a program puts there."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        text = "".join(cells[-1]["source"])
    text = re.sub(r"<!-- program: .*?<!-- end -->|```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


def rounds(number: str, source: float) -> bool:
    """Return whether a source prints as this number."""
    number = number.replace(",", "").replace("−", "-")
    return float(number) == round(float(source), len(number.partition(".")[2]))


#: Differences, and intervals of both scopes; also of the differences the other way round.
EFFECTS = [
    table("claims")[["difference", "these_low", "these_high", "low", "high"]].to_numpy(),
    table("protocol")[["mean", "low", "high", "low", "high"]].to_numpy(),
]
EFFECTS += [-part[:, [0, 2, 1, 4, 3]] for part in EFFECTS]
PAIR = r"\[([−\d.]+), ([−\d.]+)\]"
#: A difference, where no other number stands between, and its interval; two intervals are on these tasks and on others.
EFFECT = re.compile(rf"(?:(\d+\.\d+)[^\d\[]{{0,90}})?{PAIR}(?: \| {PAIR})?")


def is_effect(size: str, *ends: str) -> bool:
    """Return whether one row has a difference of this size and these intervals; a single one may be of either scope."""
    ends = list(filter(None, ends))
    for difference, *row in np.concatenate(EFFECTS):
        if not size or rounds(size, abs(difference)):
            scopes = [row] if len(ends) == 4 else [row[:2], row[2:]]
            if any(all(map(rounds, ends, scope)) for scope in scopes):
                return True
    return False


NOTEBOOKS = [f"analysis/{path.name}" for path in sorted(ROOT.glob("analysis/*.ipynb"))]


@pytest.mark.parametrize("page", dict.fromkeys([*PROSE, *NOTEBOOKS]))
def test_numbers_are_those_of_results(page):
    text = NAMES.sub("", prose(page))
    for words, sources in PROSE.get(page, []):
        assert words in text, words
        text = text.replace(words, "")
        for number, source in zip(NUMBER.findall(words), sources, strict=True):
            assert rounds(number, source), f"{words}: {source}"
    assert [found[0] for found in EFFECT.finditer(text) if not is_effect(*found.groups(""))] == []
    if page in ("README.md", *NOTEBOOKS):
        assert re.findall(r"\d[.,]\d|\d %|\d points", EFFECT.sub("", text)) == [], "typed, and in no line above"


@pytest.mark.parametrize("page, profile", [("docs/mini.md", "mini"), ("docs/paper.md", "paper")])
def test_runs_are_those_of_the_profile(page, profile):
    plan = Profile.read(ROOT / f"experiments/profiles/{profile}.yaml")
    counts = Counter(
        named(run.experiment)
        for name in plan.experiments
        for run in list_runs(plan, name, ROOT / "results")
        if not name.startswith("tuned")  # in training
    )
    shown = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", (ROOT / page).read_text(), re.MULTILINE)
    assert dict(shown) == {name: str(count) for name, count in counts.items()}


def test_speed_is_as_measured():
    (table,) = re.findall(r"^\| Time of .*?\n\n", (ROOT / "docs/speed.md").read_text(), re.DOTALL | re.MULTILINE)
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line)
    for what, *cells in lines:
        for column, shown in zip(header[1:], cells, strict=True):
            _, backbone, precision = column.split(", ")
            timed = ratio("cpu_amd_epyc", f"dinov2_{backbone[-1].lower()}", precision, what)
            assert shown == ("–" if timed is None else f"{timed:.2f}"), (what, column)


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
