"""README and docs/: links lead somewhere, code runs, numbers and tables are those of results."""

import re
from pathlib import Path

import fill_pages
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
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
LINKING = [*PAGES, *(ROOT / name for name in ("PROTOCOL.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")

#: The design stays as it was written, with a link to a page that docs/synthetic.md replaces.
OF_THE_DESIGN = (DOCS / "design.md", "../results/mini/README.md")


# Links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in LINK.findall(text) + re.findall(r'(?:href|src)="([^"]+)"', text):
        if "://" in target or (page, target) == OF_THE_DESIGN:
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_linked_from_the_readme():
    targets = LINK.findall(README.read_text())
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in targets}
    assert [page.name for page in PAGES[1:] if page not in linked] == []


def test_every_notebook_is_listed():
    targets = LINK.findall((DOCS / "figures.md").read_text())
    linked = {(DOCS / target).resolve() for target in targets}
    assert set(ROOT.glob("analysis/*.ipynb")) - linked == set()


def test_each_equation_of_the_paper_has_its_code():
    _, table = (ROOT / "PROTOCOL.md").read_text().split("\n## Where each equation stands\n")
    lines = [line for line in table.splitlines() if line.startswith(("| Eq.", "| Algorithm"))]
    rows = [line.split("|")[1:-1] for line in lines]
    equations = [f"Eq. {i}" for i in range(1, 12)]
    assert [row[0].strip() for row in rows] == [*equations, "Algorithm 1", "Algorithm 2"]
    for _, _, files, names in rows:
        source = "".join((ROOT / link).read_text() for link in LINK.findall(files))
        for name in re.findall(r"[\w]+", "".join(re.findall(r"`.*?`", names))):
            assert re.search(rf"^ *(?:def|class) {name}\b", source, re.MULTILINE), name


# Code


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The pages' code writes files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_lines_to_copy_print_what_their_comment_says(folder, capsys):
    (code,) = blocks("README.md")
    exec(code, {})
    assert code.rstrip().endswith(f"# {capsys.readouterr().out.strip()}")
    assert (folder / "adapter.safetensors").exists()


def test_the_librarys_example_runs():
    """On ViT-Ti/8, which needs no download; timm reads the merged file by itself."""
    code = "".join(blocks("docs/library.md")[:2])
    large = '"vit_base_patch14_dinov2.lvd142m", pretrained=True, img_size=224'
    merged = '"vit_base_patch14_dinov2.lvd142m", img_size=224'
    assert large in code and merged in code
    code = code.replace(large, '"vit_tiny_patch8_32"').replace(merged, '"vit_tiny_patch8_32"')
    source = torch.Generator().manual_seed(0)
    training = [(torch.randn(2, 3, 32, 32, generator=source), torch.tensor([0, 99]))]
    validation = [(torch.randn(2, 3, 32, 32, generator=source), torch.tensor([1, 2]))]
    names = {"training": training, "validation": validation}
    exec(code, names)
    assert names["logits"].shape == (2, 100) and names["probs"].shape == (16, 2, 100)
    assert names["model"].merged
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
    """On a small DeBERTa-V3, with tokens instead of a tokenizer."""
    (code,) = blocks("docs/library.md")[2:]
    large = 'transformers.AutoModel.from_pretrained("microsoft/deberta-v3-base")'
    assert large in code
    text, encoder = make_text(), make("DebertaV2Model(share_att_key=True)")
    names = {"pvera": pvera, "encoder": encoder, "texts": None, "tokenizer": lambda *_, **__: text}
    exec(code.replace(large, "encoder"), names)
    assert names["logits"].shape == (3, 2) and names["logits"].isfinite().all()


TRAINING = """\
for _ in range(3):
    loss = model(torch.randn(2, 3, 32, 32)).logsumexp(1).sum()
    loss.backward()
    torch.optim.AdamW(model.members[0].parameters(), lr=0.1).step()
"""


@pytest.mark.filterwarnings("ignore")
def test_the_code_with_peft_runs(folder):
    training = "...  # train\n"
    names, code = {}, blocks("docs/peft.md")
    assert len(code) == 4 and training in code[0]
    for block in code[:3]:  # the last one downloads: tests/library/test_released.py
        exec(block.replace(training, TRAINING), names)
    method = names["again"].members[0].method
    assert (method.rank, method.targets) == (16, "qv")
    assert names["probs"].shape == (16, 4, 10) and (folder / "adapter.safetensors").exists()
    assert f"PEFT {peft.__version__}" in (DOCS / "peft.md").read_text()


# Commands

COMMAND = re.compile(r"(?:python|bash) ((?:experiments|tests)/[\w/]+\.(?:py|sh))([^\n`#|]*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page, capsys):
    """Every script that a page names is there, and has the options that the page gives it."""
    text = page.read_text().replace("\\\n", "")
    for script, rest in COMMAND.findall(text):
        assert (ROOT / script).exists(), script
        options = re.findall(r"--[\w-]+", rest)
        if options:
            _, help_text, _ = scripts.outcome(Path(script).stem, capsys, "--help")
            assert [name for name in options if f"{name} " not in f"{help_text} "] == [], script


# Tables and numbers

#: Numbers that no result has: a level, values of a setting, tables of the paper.
SETTING = re.compile(
    r"95 %|[pσβ] = [\d.]+|Tables? \d(?: and \d)?|19 data sets|12 of (?:its|Resisc45's) 45 classes|"
    r"(?:32|98) pixels|Python 3.10|WACV 2026|Pixels \| 32 \| 98 \| 32"
)
NUMBER = re.compile(r"(?<![\w/.-])[−+]?\d+(?:\.\d+)?(?![\w/])")


@pytest.mark.parametrize("page", fill_pages.PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_script(page):
    text = page.read_text()
    assert text.count("<!-- program: ") == text.count("<!-- end -->") > 0
    assert fill_pages.filled(text) == text, "python experiments/fill_pages.py"


def test_ties_are_judged_before_rounding(monkeypatch):
    """A lead of 0.016 at least leaves out zero; one of 0 at least does not."""
    profile = Profile.read(ROOT / "experiments/profiles/vtab_tiny.yaml")
    rows = {"PVeRA − DoRA": (0.543, 0.016, 1.07), "PVeRA − LoRA": (0.543, 0, 1.086)}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high"])
    monkeypatch.setattr(fill_pages, "read_table", lambda name: frame)
    cells = [fill_pages.lead_cell(profile, method) for method in ("dora", "lora", "vera")]
    assert cells == ["+0.5 [0.02, 1.1]", "+0.5 [0.0, 1.1] ≈", "not run"]


def numbers(text: str) -> set[str]:
    """Return the numbers of a text without signs, and without marks between thousands."""
    joined = re.sub(r"(?<=\d)[ ,](?=\d{3}\b)", "", text)
    return {number.lstrip("−+") for number in NUMBER.findall(joined)}


def test_a_missing_row_of_components_that_were_run_is_an_error(monkeypatch):
    tables = {
        "components_synthetic": pd.DataFrame(index=["vera", "pvera"]),
        "differences_synthetic": pd.DataFrame({"mean": [1.0]}, ["another label"]),
    }
    monkeypatch.setattr(fill_pages, "read_table", tables.__getitem__)
    (profile,) = fill_pages.read_profiles(ROOT, ["synthetic"])
    with pytest.raises(KeyError, match="PVeRA − VeRA"):
        fill_pages.difference_row(profile, "pvera", "vera")
    assert fill_pages.difference_row(profile, "pvera", "lora").isna().all(), "not run"


@pytest.mark.parametrize("page", fill_pages.PAGES[:2], ids=lambda page: page.name)
def test_each_number_stands_in_a_table_of_its_section_or_in_one_that_the_section_links(page):
    for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
        sources = [mark[0] for mark in fill_pages.MARKED_TABLE.finditer(part)]
        for target in LINK.findall(part):
            linked = page.parent / target.partition("#")[0]
            if ROOT / "results" in linked.resolve().parents:
                sources.append(linked.read_text())

        prose = fill_pages.MARKED_TABLE.sub("", part)
        prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|<[^>]*>", "", prose, flags=re.DOTALL)
        prose = SETTING.sub("", " ".join(prose.split()))
        assert numbers(prose) <= numbers("\n".join(sources)), part.splitlines()[0]


def test_readme_has_the_minutes_that_were_measured():
    measured = pd.read_csv(ROOT / "results/performance/commands.csv")
    for command, _, first, last in measured.itertuples(index=False):
        (line,) = re.findall(rf"^{command} .*", README.read_text(), re.MULTILINE)
        assert f" {first} to {last} minutes" in line
