"""Each number in the prose of README, docs and notebooks is that of a result, and so are the tables in the pages.

A person who writes a number adds a line to `PROSE`: the page, the words around it, and where its numbers come from.
"""

import json
import re

import pytest
import scripts

from pvera.data import vtab
from pvera.data.tasks import TASKS
from pvera.report import published
from pvera.report.audit import CONTRADICTS
from pvera.study.experiments import list_runs, of_script
from pvera.study.profiles import Profile
from results import ROOT, cell, claim, hours, ratio, rows, table

PAPER = published.load(ROOT / "results/published").accuracies("dinov2_b")
NUMBER = re.compile(r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?")
#: Numbers that are no results: a level, a version, the paper's own number.
NAMES = re.compile(r"95 %|Python 3\.\d+|add 15\.7 %")
MAIN = {method: cell("main", "average", method=method) for method in ("pvera", "adaptformer")}
PRIMARY = claim("PVeRA is more accurate than VeRA")
KL = claim("The KL term makes PVeRA more accurate")
CALIBRATED = claim("PVeRA is better calibrated than VeRA")
WIDTHS = {k: claim(f"Within a data set, incorrect predictions have the wider intervals, {k} draws") for k in (4, 16)}
BETTER = claim("LoRA, VeRA and PVeRA are all better calibrated than the other adapters")
DRAWS = claim("PVeRA's draws have a lower NLL than one pass with its mean")
ENSEMBLE = rows("rivals", method="pvera", way="ensemble", scaled=True)["nll"].mean()
STARS = table("detailed").dropna(subset="p_value")["significantly_lower"]
GRAMMAR = claim("PVeRA is better than VeRA on average over the tasks of our own grammar", "minilm")
AUDIT = [len(table("published/audit")), len(rows("published/audit", verdict=CONTRADICTS))]


def average(component: str, column: str = "mean") -> float:
    return rows("components", component=component)[column].mean()


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


def unsigned(numbers: list[float]) -> list[float]:
    """Return a difference without its sign, which the words give, and the ends of its interval."""
    return [abs(numbers[0]), *numbers[1:]]


def auroc(way: str, draws: int) -> float:
    return rows("uncertainty_auroc", way=way, draws=draws)["auroc"].mean()


def step(what: str) -> float:
    return ratio("cpu_amd_epyc", "dinov2_s", "float32", what)


def decoded() -> float:
    """Return the size of VTAB-1k's images (GB), decoded once to 224 pixels."""
    images = sum(task.test_images + sum(vtab.TRAINING.values()) for task in TASKS.values() if task.suite == "vtab")
    return images * 224 * 224 * 3 / 1e9


def scopes(text: str) -> list[float]:
    """Return a claim's difference, its interval on these tasks, and that on tasks like these."""
    columns = ["difference", "these_low", "these_high", "low", "high"]
    return list(rows("claims", claim=text, backbone="tiny")[columns].to_numpy()[0])


def of_these(text: str) -> list[float]:
    """Return a claim's difference and its interval on these tasks."""
    return scopes(text)[:3]


def parameters(method: str) -> int:
    """Return the trainable parameters of a method on ViT-B/14, of the smallest of its grid."""
    return rows("cost", backbone="dinov2_b", method=method)["adapter_parameters"].min()


HIGHER = "{}, incorrect predictions have the higher standard deviation, 16 draws"
TIMES_AS_WIDE = "Over all images, incorrect predictions have the wider intervals, 16 draws (paper: 2.65 times as wide)"
PAPER_WIDTHS = cell("intervals", "published_wrong", draws=16, group="All data sets") / cell(
    "intervals", "published_right", draws=16, group="All data sets"
)
FOCUS = "PVeRA's latents focus more on the object in an image than VeRA's"
PUBLISHED = "PVeRA is more accurate than VeRA, trained as the published program does"
BETTER_THAN_VERA, NOISE = "PVeRA is more accurate than VeRA", "The noise makes PVeRA more accurate (β = 0)"
SPREAD = "The spread of 16 draws finds incorrect predictions better than the score of one pass"
FIXED = "Noise of fixed size, σ = 1, makes PVeRA more accurate (β = 0) †"
LEARNED = "Learning σ makes PVeRA more accurate than σ = 1 fixed (β = 0) †"
LEAD = (PAPER.loc["pvera"] - PAPER.loc["vera"]).mean()
POWER = cell("claims", "could_be_shown", claim="PVeRA is more accurate than VeRA")
LEDGER = effect("published", "accuracy", "mean", "low", "high")
ECE = effect("published", "ece", "mean", "low", "high")
SOFTMAX = [*effect("softmax_in_loss", "accuracy", "mean"), *effect("softmax_in_loss", "ece", "mean")]
SIZES = "PVeRA has fewer trainable parameters than every other adapter but VeRA"
TIMES_VERA = float(cell("claims", "reading", claim=SIZES, backbone="dinov2_b").removesuffix(" times VeRA's"))
COUNTED = rows("cost", backbone="dinov2_b", method="pvera").iloc[0]
DRAWN = 100 * (COUNTED["training"] / COUNTED["backbone_multiply_adds"] - 1)
AVERAGES = [cell("performance/demo", "average", method=name) for name in ("adaptformer", "pvera", "vera", "linear")]
RUN_ALL, RUN_TESTS = minutes("bash run_all.sh"), minutes("bash run_tests.sh")
IMAGES = {"digits", "textures", "nuclei", "vessels", "counting", "sprites"}
HOURS = [hours(*IMAGES), hours("entailment", "paraphrase", "acceptability"), hours("rte", "mrpc", "cola")]
PEFT = [
    ratio("cpu_amd_epyc", "dinov2_s", precision, "PVeRA, r = 256, step", "the step of peft")
    for precision in ("float32", "bfloat16")
]
EPOCHS = [median_epoch("pvera"), median_epoch("vera")]

#: Page -> (words of it, where the numbers among them come from), in the page's order.
PROSE = {
    "README.md": [
        ("vectors around frozen random matrices: 30,720", [parameters("pvera")]),
        ("VeRA has 24,576", [parameters("vera")]),
        ("LoRA of the paper's smallest rank 1,179,648", [parameters("lora")]),
        ("PVeRA beats VeRA by 6.4 points", scopes(BETTER_THAN_VERA)[:1]),
        ("ViT of 0.5 million", [rows("cost", backbone="tiny")["backbone_parameters"].max() / 1e6]),
        (
            "52.8 against 46.4: +6.4; the paper has +1.4 on",
            [average("pvera"), average("vera"), scopes(BETTER_THAN_VERA)[0], LEAD],
        ),
        ("| [5.7, 7.2] | [0.6, 12.3] |", scopes(BETTER_THAN_VERA)[1:]),
        ("+5.8 over VeRA | [4.5, 7.1] | [0.3, 11.3] |", scopes(PUBLISHED)),
        ("+5.2 over PVeRA without it | [3.4, 6.9] | [−0.7, 11.0] |", scopes(NOISE)),
        ("+0.4 over", scopes(LEARNED)[:1]),
        ("1 fixed | [−1.5, 2.3] | [−1.5, 2.3] |", [1, *scopes(LEARNED)[1:]]),
        ("| 0.0 | [−1.3, 1.3] | [−1.3, 1.3] |", scopes("The KL term makes PVeRA more accurate")),
        ("−3.1 against AdaptFormer | [−4.4, −1.8] | [−5.0, −1.2] |", scopes("PVeRA has the highest average")),
        ("VeRA's is 31.3 % higher | [14.2, 50.9] | [14.2, 50.9] |", scopes("PVeRA is better calibrated than VeRA")),
        ("AUROC 0.484 by their spread", [auroc("Spread of the draws", 16)]),
        (
            "0.690 by the confidence of one pass: −0.206 | [−0.227, −0.185] | [−0.282, −0.130] |",
            [auroc("1 − score of one pass", 0), *scopes(SPREAD)],
        ),
        ("figures, in 7 to 12 minutes", RUN_ALL),
        ("runs the tests in 6 to 10 minutes", RUN_TESTS),
        ("PVeRA is 1.4 points above VeRA", [LEAD]),
        ("true difference of 8.0 points", [POWER]),
        ("Of 1136 checks of the paper's printed numbers against each other, 32", AUDIT),
        ("accuracy by −3.0 points [−4.2, −1.9]", LEDGER),
        ("(ECE) by 20.2 [14.8, 25.7]", ECE),
        ("alone by −1.3 and 18.3 points", SOFTMAX),
        ("54 for AdaptFormer, 50 for PVeRA, 43 for VeRA and 40 for Linear", AVERAGES),
        ("| 7 to 12 minutes", RUN_ALL),
        ("9.3 h, text 3.1 h more", HOURS[:2]),
        ("| 6 to 10 minutes", RUN_TESTS),
    ],
    "docs/faq.md": [
        ("by 6.4 points of test accuracy [0.6, 12.3]", PRIMARY),
        ("published program trains, by 5.8 points [0.3, 11.3]", claim(PUBLISHED)),
        ("gains 6.6 points", [gain("pvera")]),
    ],
    "docs/fixed-noise.md": [
        ("it has VeRA's 24,576", [parameters("vera")]),
        ("in place of PVeRA's 30,720", [parameters("pvera")]),
        ("it is 4.7 points more accurate than training without noise, [3.5, 5.9]", of_these(FIXED)),
        ("0.4 points above it [−1.5, 2.3]", of_these(LEARNED)),
        (
            "(ACE) is 4.8 %, with a learned σ 4.7 %, without noise 6.4 %",
            [average(name, "ace") for name in ("fixed_sigma", "no_kl", "no_noise")],
        ),
    ],
    "docs/mini.md": [
        ("PVeRA is 1.4 points above VeRA", [LEAD]),
        ("true difference of 8.0 points", [POWER]),
        ("at 64 in the median and VeRA at 12", EPOCHS),
        ("gains 6.6 points", [gain("pvera")]),
        ("about 9.3 hours (18.6 core-hours)", [HOURS[0], 2 * HOURS[0]]),
        ("about 3.1 more (6.2)", [HOURS[1], 2 * HOURS[1]]),
        ("another 3.1 (6.3):", [HOURS[2], 2 * HOURS[2]]),
    ],
    "docs/paper.md": [("| 61 GB", [decoded()])],
    "analysis/audit.ipynb": [("Of 1136 checks, 32 contradict", AUDIT)],
    "analysis/calibration.ipynb": [
        ("ACE is 31.3 % higher [14.2, 50.9]", CALIBRATED),
        ("ACE is 5.1 % lower than VeRA's [−25.2, 20.5]", unsigned(BETTER)),
    ],
    "analysis/claims.ipynb": [("by 6.4 points [0.6, 12.3]", PRIMARY)],
    "analysis/components.ipynb": [
        ("6.4 points over VeRA [0.6, 12.3]", PRIMARY),
        ("the noise brings 5.2 [3.4, 6.9] on these tasks", of_these(NOISE)),
        ("and 4.7 [3.5, 5.9] if", of_these(FIXED)),
        ("the KL term 0.0 [−1.3, 1.3]", KL),
    ],
    "analysis/computational_efficiency.ipynb": [
        ("trains 1.25 times", [TIMES_VERA]),
        ("adds 15.71 % to", [DRAWN]),
    ],
    "analysis/detailed.ipynb": [("in 23 of 42 comparisons", [STARS.sum(), len(STARS)])],
    "analysis/duration.ipynb": [("gains 6.6 points", [gain("pvera")])],
    "analysis/intervals.ipynb": [
        ("are 1.00 times as wide as those of correct ones [0.93, 1.08]", of_these(TIMES_AS_WIDE)),
        ("the paper has 2.65", [PAPER_WIDTHS]),
        ("delta of 0.11 [0.04, 0.18]", WIDTHS[4]),
        ("it is 0.09 [−0.01, 0.19]", WIDTHS[16]),
    ],
    "analysis/language.ipynb": [
        ("PVeRA is 4.2 points below VeRA [−30.0, 21.6]", unsigned(GRAMMAR)),
    ],
    "analysis/latents.ipynb": [
        ("from the mean by 0.37", [cell("latents", "spread", method="pvera")]),
        ("with the mean is 0.62", [cell("latents", "correlation", method="pvera")]),
        ("AUROC is 0.108 higher [−0.001, 0.218]", claim(FOCUS)),
    ],
    "analysis/main_table.ipynb": [
        ("by 6.4 points [0.6, 12.3]", PRIMARY),
        ("average is 3.1 points higher", [MAIN["adaptformer"] - MAIN["pvera"]]),
    ],
    "analysis/out_of_distribution.ipynb": [
        ("models is 0.115 above chance [−0.041, 0.272]", claim("PVeRA's values are lower in distribution (norm)")),
        ("it is 0.010 above [−0.193, 0.214]", claim("PVeRA's values are lower in distribution (mean value)")),
    ],
    "analysis/position.ipynb": [("lose 0.020 nats", [cell("position", "above_reference", targets="qkv")])],
    "analysis/protocol.ipynb": [
        ("accuracy by −1.3 points", SOFTMAX[:1]),
        ("images by −1.2 points", effect("shuffle", "accuracy", "mean")),
        ("at once by −3.0 points", LEDGER[:1]),
        ("as well, by 5.8 points [0.3, 11.3]", claim(PUBLISHED)),
    ],
    "analysis/rank.ipynb": [("0.031 nats below", [-cell("rank", "above_reference", rank=64)])],
    "analysis/speed.ipynb": [
        ("takes 1.37 of", [step("PVeRA, r = 256")]),
        ("takes 0.85 to 1.03 of that of the package", [min(PEFT), max(PEFT)]),
        ("LoRA's 1.09, and a merged model 1.01", [step("LoRA, r = 128"), step("PVeRA, r = 256, merged")]),
    ],
    "analysis/uncertainty.ipynb": [
        ("delta is −0.12 [−0.24, 0.00]", of_these(HIGHER.format("Over all images"))),
        ("data set −0.07 [−0.11, −0.03]", of_these(HIGHER.format("Within a data set"))),
        ("an AUROC of 0.484", [auroc("Spread of the draws", 16)]),
        ("needs no draws, with 0.690", [auroc("1 − score of one pass", 0)]),
    ],
    "analysis/uncertainty_baselines.ipynb": [
        ("an NLL that is 0.010 higher than that of one pass [−0.008, 0.029]", [-DRAWS[0], -DRAWS[2], -DRAWS[1]]),
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


def value(number: str) -> str:
    return number.replace(",", "").replace("−", "-")


@pytest.mark.parametrize("page", PROSE)
def test_numbers_are_those_of_results(page):
    text = prose(page)
    for words, sources in PROSE[page]:
        assert words in text, words
        numbers = [value(number) for number in NUMBER.findall(words)]
        assert len(numbers) == len(sources), words
        for number, source in zip(numbers, sources, strict=True):
            decimals = len(number.partition(".")[2])
            assert float(number) == round(float(source), decimals), f"{words}: {source}"


@pytest.mark.parametrize("page", ["README.md", *(f"analysis/{path.name}" for path in ROOT.glob("analysis/*.ipynb"))])
def test_no_other_number_of_results_is_typed(page):
    """Decimals, percentages and points that no line of `PROSE` holds."""
    text = NAMES.sub("", prose(page))
    for words, _ in PROSE.get(page, []):
        text = text.replace(words, "")
    assert re.findall(r"\d[.,]\d|\d %|\d points", text) == []


@pytest.mark.parametrize("page, profile", [("docs/mini.md", "mini"), ("docs/paper.md", "paper")])
def test_runs_are_those_of_the_profile(page, profile):
    plan = Profile.read(ROOT / f"experiments/profiles/{profile}.yaml")
    counts = {name: len(list_runs(plan, name, ROOT / "results")) for name in of_script("train")}
    shown = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", (ROOT / page).read_text(), re.MULTILINE)
    assert dict(shown) == {name: str(count) for name, count in counts.items() if count}


def test_speed_is_as_measured():
    (table,) = re.findall(r"^\| Time of .*?\n\n", (ROOT / "docs/speed.md").read_text(), re.DOTALL | re.MULTILINE)
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line)
    for what, *cells in lines:
        for column, shown in zip(header[1:], cells, strict=True):
            _, backbone, precision = column.split(", ")
            timed = ratio("cpu_amd_epyc", f"dinov2_{backbone[-1].lower()}", precision, what)
            assert shown == ("–" if timed is None else f"{timed:.2f}"), (what, column)


def test_tables_are_those_of_the_results(tmp_path, capsys):
    stale = "run `python experiments/front_page.py`"
    assert scripts.outcome("front_page", capsys, "--check") == (0, "", ""), stale
    page = "# A\n\n<!-- program: t.md -->\n\n{}\n\n<!-- end -->\n\nB\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "t.md").write_text("new\n")
    (tmp_path / "README.md").write_text(page.format("old"))
    status, said, _ = scripts.outcome("front_page", capsys, "--check", "--root", tmp_path)
    assert (status, said) == (1, "README.md: out of date\n") and "old" in (tmp_path / "README.md").read_text()
    assert scripts.outcome("front_page", capsys, "--root", tmp_path)[:2] == (0, "README.md: written\n")
    assert (tmp_path / "README.md").read_text() == page.format("new")
    (tmp_path / "t.md").unlink()
    assert "t.md does not exist" in scripts.refusal("front_page", capsys, "--root", tmp_path)
