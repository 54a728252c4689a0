"""README and docs/: links lead somewhere, code and commands run, numbers and tables are those of results."""

import ast
import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import peft
import pytest
import scripts
import timm
import torch
from encoders import make_text
from families import make
from torch.nn.functional import cross_entropy

import pvera
from pvera.adapters import PAPER_METHODS
from pvera.data.suite import RECIPES
from pvera.report import claims, published
from pvera.report.audit import CONTRADICTS
from pvera.report.table import title
from pvera.report.tables import components, tuned
from pvera.study import results
from pvera.study.analysis_plan import ANALYSES
from pvera.study.profiles import Profile
from pvera.study.runs import list_runs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


# Links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [t for t in LINK.findall(text) + re.findall(r'(?:href|src)="([^"]+)"', text) if "://" not in t]
    for target in targets:
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_is_linked_from_the_readme():
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall(PAGES[0].read_text())}
    assert [page.name for page in PAGES[1:] if page not in linked] == []


def test_every_notebook_figure_and_table_is_listed():
    linked = {(DOCS / target).resolve() for target in LINK.findall((DOCS / "figures.md").read_text())}
    for pattern in ("analysis/*.ipynb", "figures/mini/*.png", "results/mini/tables/*.md"):
        assert set(ROOT.glob(pattern)) - linked == set()


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods ("Class.method") of a module."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_each_equation_of_the_paper_has_its_code():
    section = (ROOT / "PROTOCOL.md").read_text().split("\n## Where each equation stands\n")[1].splitlines()
    rows = [row.split("|")[1:-1] for row in section if row.startswith(("| Eq.", "| Algorithm"))]
    assert [row[0].strip() for row in rows] == [f"Eq. {i}" for i in range(1, 12)] + ["Algorithm 1", "Algorithm 2"]
    for _, _, files, names in rows:
        known = set().union(*(defined(ROOT / link) for link in LINK.findall(files)))
        assert set(re.findall(r"`(.*?)`", names)) <= known, names


# Code


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The pages' code writes files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_lines_to_copy_run_unchanged(folder):
    names = {}
    exec(*blocks("README.md"), names)
    assert names["logits"].shape == (8, 10) and names["loss"].isfinite() and names["model"].merged
    assert (folder / "adapter.safetensors").exists()


def test_the_librarys_example_runs():
    """On the small backbone's architecture, which needs no download; timm reads the merged file by itself."""
    code = "".join(blocks("docs/library.md"))
    large = '"vit_base_patch14_dinov2.lvd142m", pretrained=True, img_size=224'
    plain = '"vit_base_patch14_dinov2.lvd142m", img_size=224'
    assert large in code and plain in code
    source = torch.Generator().manual_seed(0)
    training, validation = (
        [(torch.randn(2, 3, 32, 32, generator=source), torch.tensor(labels))] for labels in ([0, 99], [1, 2])
    )
    names = {"training": training, "validation": validation}
    exec(code.replace(large, '"vit_tiny_patch8_32"').replace(plain, '"vit_tiny_patch8_32"'), names)
    assert names["logits"].shape == (2, 100) and names["probs"].shape == (16, 2, 100) and names["model"].merged
    assert names["epoch"] == names["best_epoch"] + 20, "early stopping ends it"
    ((images, labels),) = validation
    expected = names["model"](images)
    loss = cross_entropy(expected, labels, reduction="sum")
    torch.testing.assert_close(loss, names["best"], rtol=0, atol=1e-4)
    options = {"num_classes": 100, "checkpoint_path": "merged.safetensors"}
    read = timm.create_model("vit_tiny_patch8_32", **options).eval()
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(read(images), expected, rtol=0, atol=1e-5)


def test_the_text_example_runs():
    """On a small DeBERTa-V3, with tokens in place of a tokenizer."""
    (code,) = blocks("docs/text.md")
    large = 'transformers.AutoModel.from_pretrained("microsoft/deberta-v3-base")'
    assert large in code
    text, encoder = make_text(), make("DebertaV2Model(share_att_key=True)")
    names = {"pvera": pvera, "encoder": encoder, "texts": None, "tokenizer": lambda *_, **__: text}
    exec(code.replace(large, "encoder"), names)
    assert names["logits"].shape == (3, 2) and names["logits"].isfinite().all()


@pytest.mark.filterwarnings("ignore")
def test_the_code_with_peft_runs(folder):
    training = "...  # train\n"
    step = "for _ in range(3):\n    loss = model(torch.randn(2, 3, 32, 32)).logsumexp(1).sum()\n"
    step += "    loss.backward()\n    torch.optim.AdamW(model.members[0].parameters(), lr=0.1).step()\n"
    names, code = {}, blocks("docs/peft.md")
    assert len(code) == 3 and training in code[0]
    for block in code:
        exec(block.replace(training, step), names)
    assert names["again"].members[0].method.rank == 16 and names["again"].members[0].method.targets == "qv"
    assert names["probs"].shape == (16, 4, 10) and (folder / "adapter.safetensors").exists()
    assert f"PEFT {peft.__version__}" in (DOCS / "peft.md").read_text()


# Commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page, capsys):
    """Every script that a page names is there, and has the options that the page gives it."""
    for script, rest in re.findall(
        r"(?:python|bash) ((?:experiments|tests)/[\w/]+\.(?:py|sh))([^\n`#|]*)", page.read_text()
    ):
        assert (ROOT / script).exists(), script
        if options := re.findall(r"--[\w-]+", rest):
            _, help_text, _ = scripts.outcome(Path(script).stem, capsys, "--help")
            assert [name for name in options if f"{name} " not in f"{help_text} "] == [], script


# Numbers


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
    """Return the hours of the recorded trainings on these data sets, on two cores."""
    spent = table("spent")
    trained = spent["dataset"].isin(datasets) & ~spent["experiment"].isin(ANALYSES)
    return float(spent.loc[trained, "seconds"].sum() / 7200)


PUBLISHED = published.load(ROOT / "results/published")
PAPER = PUBLISHED.accuracies("dinov2_b")
NUMBER = re.compile(r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?")
NAMES = re.compile(r"95 %|Python 3\.\d+")  # a level, a version
LEAD = (PAPER.loc["pvera"] - PAPER.loc["vera"]).mean()
POWER = cell("claims", "could_be_shown", topic="Tuned alike", claim="PVeRA is more accurate than VeRA")
AUDIT = [len(table("published/audit")), len(rows("published/audit", verdict=CONTRADICTS))]
SOFTMAX = [cell("protocol", "mean", switch="softmax_in_loss", metric=metric) for metric in ("accuracy", "ece")]
DEMO, TINY = (Profile.read(ROOT / f"experiments/profiles/{name}.yaml") for name in ("demo", "vtab_tiny"))
DROPOUT = TINY.experiments["tuned_dropout"].set["dropout"]


@functools.cache
def sizes(method: str) -> np.ndarray:
    """Return the fewest and the most numbers that a method's chosen configurations train on the tiny ViT."""
    files = [
        file for name in ("mini", "vtab_tiny") for file in ROOT.glob(f"results/{name}/tuned/*/*/{method}/seed0.json")
    ]
    trained = [results.read(file)["members"][0]["adapter_parameters"] for file in files]
    return np.array([min(trained), max(trained)])


LARGER = np.array([sizes(method) for method in ("lora", "dora", "bottleneck", "adaptformer")]) / sizes("pvera")


@functools.cache
def ranking() -> str:
    """Return the rows of README's table of methods, on the seeds that all of them have."""
    means = {}
    for profile in ("vtab_tiny", "mini"):
        shared = components.values(tuned.load(ROOT / "results", profile))[list(PAPER_METHODS)].dropna()
        means[profile] = shared.groupby(level="dataset").mean().mean()
    lines = []
    for key, row in pd.DataFrame(means).sort_values("vtab_tiny", ascending=False).iterrows():
        trained = " to ".join(f"{size:,}" for size in dict.fromkeys(sizes(key)))
        merges = "no" if key in ("bottleneck", "adaptformer") else "yes"
        lines.append(f"| {title(key)} | {trained} | {row['vtab_tiny']:.1f} | {row['mini']:.1f} | {merges} |\n")
    return "".join(lines)


def test_readme_ranks_the_methods():
    assert ranking() in (ROOT / "README.md").read_text(), ranking()


def averages(name: str, *components: str) -> list[float]:
    return [rows(name, component=component)["mean"].mean() for component in components or ("pvera", "vera")]


def parameters(method: str) -> int:
    """Return the trainable parameters of a method on ViT-B/14, of the smallest of its grid."""
    return rows("cost", backbone="dinov2_b", method=method)["adapter_parameters"].min()


def gain(of: str, over: str = "VeRA") -> list[float]:
    return [cell(f"tuned_differences{of}", "mean", difference=f"PVeRA − {over}")]


def edges(of: str) -> list[int]:
    rates = table(f"tuned_choices{of}").query("not searched.str.contains('α|β')")
    return [rates[["lowest", "highest"]].any(axis=1).sum(), len(rates)]


def minutes(command: str) -> list[int]:
    return [cell("performance/commands", column, command=command) for column in ("from_minutes", "to_minutes")]


#: Words of README, and where the numbers among them come from, in README's order.
NUMBERS = [
    ("it is 1.7 points above VeRA on nine", gain("_vtab_tiny")),
    ("(34.0 against 32.3 %)", averages("tuned_vtab_tiny")),
    ("and 6.0 above on twelve", gain("")),
    ("(53.4 against 47.4 %)", averages("tuned")),
    ("it is 3.3 above on three", gain("_vtab_small")),
    ("(59.8 against 56.5 %)", averages("tuned_vtab_small")),
    (
        "reaches 29.0, 42.3 and 53.1 %",
        [averages(f"tuned{of}", "linear")[0] for of in ("_vtab_tiny", "", "_vtab_small")],
    ),
    ("and 2.6 points on", gain("_vtab_small", "PVeRA, σ = 1 fixed, β = 0")),
    ("trains only 1,280 numbers", sizes("pvera")[:1]),
    ("train 4 to 30 times as many", [LARGER.min(), LARGER.max()]),
    ("gain of 1.4 points", [LEAD]),
    ("GPU, 7 to 20 minutes", minutes("bash run_all.sh")),
    ("the tests, in 6 to 10 minutes", minutes("bash run_tests.sh")),
    ("with dropout, rate fixed at 0.5)", [DROPOUT]),
    ("Of the chosen rates 16 of 144 (synthetic), 23 of 108", [*edges(""), *edges("_vtab_tiny")]),
    ("and 13 of 21", edges("_vtab_small")),
    ("where 24 % of", [table("uncertainty_by_error")["error"].min()]),
    ("where 87 %", [table("uncertainty_by_error")["error"].max()]),
    ("trains 30,720 numbers", [parameters("pvera")]),
    ("VeRA trains 24,576, LoRA 1,179,648 with", [parameters("vera"), parameters("lora")]),
    ("PVeRA is 1.4 points above VeRA", [LEAD]),
    ("true difference of 3.1 points", [POWER]),
    ("Of 1136 checks of the paper's printed numbers against each other, 32", AUDIT),
    ("accounts for −1.3 and 18.3 points", SOFTMAX),
    (
        "54 for AdaptFormer, 50 for PVeRA, 43 for VeRA, 40 for Linear",
        [cell("performance/demo", "average", method=name) for name in ("adaptformer", "pvera", "vera", "linear")],
    ),
    ("| 7 to 20 minutes", minutes("bash run_all.sh")),
    ("16.5 h without the methods tuned alike, text 10.7 h more", [hours(*RECIPES), hours("rte", "mrpc", "cola")]),
    ("| 6 to 10 minutes", minutes("bash run_tests.sh")),
]

#: With all digits: a CSV file has six, which can end on the edge of two roundings.
TUNED = [claims.judged(ROOT / "results", profile, "tuned") for profile in ("mini", "vtab_tiny")]
SCOPES = ["difference", "these_low", "these_high", "low", "high"]
MEANS = ("protocol", *(f"tuned_differences{of}" for of in ("", "_vtab_tiny", "_vtab_small", "_vtab_small_design")))
#: Differences, and intervals of both scopes; also of the differences the other way round.
EFFECTS = [
    *(part[SCOPES].to_numpy(float) for part in (table("claims"), *TUNED)),
    *(table(name)[["mean", "low", "high", "low", "high"]].to_numpy() for name in MEANS),
    table("uncertainty_by_error")[["auroc_mean", *["auroc_low", "auroc_high"] * 2]].to_numpy(),
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
    text = (ROOT / "README.md").read_text().replace(ranking(), "")
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
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


def test_readme_names_the_place_of_pvera():
    """By the differences on the seeds that two methods share: the averages of the table are over three and five."""
    words = "fourth of the eight methods on VTAB-1k.*, and third on the synthetic tasks"
    assert re.search(words, (ROOT / "README.md").read_text())
    for name, place in (("tuned_differences_vtab_tiny", 4), ("tuned_differences", 3)):
        gaps = table(name).set_index("difference")["mean"].filter(regex=r"^PVeRA − [^,]*$")
        assert len(gaps) == 7 and 1 + (gaps < 0).sum() == place
