"""The README and the pages in docs/ say what the repository does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import scripts
import timm
import torch
from encoders import make_text
from families import make
from torch.nn.functional import cross_entropy

import pvera
from pvera.data.suite import COUNTS, RECIPES
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
FIGURES = (ROOT / "docs/figures.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


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
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall(README)}
    assert [page.name for page in PAGES[1:] if page not in linked] == []


def test_readme_is_short():
    """The first screen says what it is, whether it holds, and what to type."""
    assert len(README.splitlines()) <= 180
    first = README.split("docs/pvera.svg")[0]
    assert len(first.splitlines()) <= 35
    for words in ("frozen vision transformer", "| Question | Answer |", "independent", "`bash run_all.sh`"):
        assert words in " ".join(first.split())


def test_every_notebook_and_every_figure_is_listed():
    notebooks = {f"../{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "analysis").glob("*.ipynb")}
    assert notebooks - set(LINK.findall(FIGURES)) == set()
    shown = re.findall(r'<a href="([^"]+)"><img src="([^"]+)" width="\d+" alt="([^"]+)"></a>', FIGURES)
    assert FIGURES.count("<img") == len(shown) and all(link == source for link, source, _ in shown)
    figures = {f"../figures/mini/{path.name}" for path in (ROOT / "figures/mini").glob("*.png")}
    assert {source for _, source, _ in shown} == figures and figures <= set(LINK.findall(FIGURES))
    tables = {f"../results/mini/tables/{path.name}" for path in (ROOT / "results/mini/tables").glob("*.md")}
    assert tables - set(LINK.findall(FIGURES)) == set()


def test_everything_in_the_paper_has_a_row():
    first = " ".join(re.findall(r"^\| ((?:Figure|Table|Algorithm)[^|]*) \|", FIGURES, re.MULTILINE))
    for kind, count in (("Figure", 9), ("Algorithm", 2), ("Table", 8)):
        numbers = set()
        for one, between, other in re.findall(rf"{kind}s? (\d)[ab]?(?: (and|to) (\d))?", first):
            numbers |= set(range(int(one), int(other) + 1)) if between else {int(one)}
        assert numbers == set(range(1, count + 1))


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_lines_to_copy_run_unchanged(tmp_path):
    """In a process of their own: here other tests have imported more than the lines do."""
    _, code = blocks("README.md")
    assert len(code.splitlines()) <= 12
    code += "\nassert probs.shape == (16, 8, 10) and loss.isfinite() and model.merged"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "adapter.safetensors").exists()


def test_the_first_lines_run_with_a_backbone_and_a_batch(tmp_path, monkeypatch):
    first, _ = blocks("README.md")
    vit, new_vit = (timm.create_model("vit_tiny_patch8_32", num_classes=0) for _ in range(2))
    new_vit.load_state_dict(vit.state_dict())
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 99])
    monkeypatch.chdir(tmp_path)
    names = {"pvera": pvera, "cross_entropy": cross_entropy, "vit": vit, "new_vit": new_vit}
    names |= {"images": images, "labels": labels}
    exec(first, names)
    assert names["loss"].isfinite() and names["model"].eval()(images).shape == (2, 100)


def test_example_runs(tmp_path, monkeypatch):
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
    monkeypatch.chdir(tmp_path)
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


def test_noise_of_fixed_size_is_made_as_its_page_says():
    (code,) = blocks("docs/fixed-noise.md")
    names = {"pvera": pvera, "vit": timm.create_model("vit_tiny_patch8_32")}
    exec(code, names)
    assert names["model"].members[0].method.sigma == 1.0


def test_text_example_runs():
    """On a small DeBERTa-V3, with tokens in place of a tokenizer."""
    (code,) = blocks("docs/text.md")
    large = 'transformers.AutoModel.from_pretrained("microsoft/deberta-v3-base")'
    assert large in code
    text = make_text()
    names = {
        "pvera": pvera,
        "encoder": make("DebertaV2Model(share_att_key=True)"),
        "texts": None,
        "tokenizer": lambda texts, padding, return_tensors: text,
    }
    exec(code.replace(large, "encoder"), names)
    assert names["logits"].shape == (3, 2) and names["logits"].isfinite().all()


def test_suite_is_the_one_described():
    page = (ROOT / "docs/tasks.md").read_text()
    rows = [f"| {r.title} | {r.category} | {len(r.classes)} | {r.measures} |" for r in RECIPES.values()]
    assert [row for row in rows if row not in page] == []
    counts = [f"{count:,}" for count in COUNTS.values()]
    assert "{} training, {} validation and {} test".format(*counts) in " ".join(page.split())


def test_number_of_trainings():
    demo = Profile.read(ROOT / "experiments" / "profiles" / "demo.yaml")
    runs = [run for experiment in demo.experiments for run in list_runs(demo, experiment, "results")]
    assert f"{len(runs)} trainings" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page, capsys):
    """Every script that a page names is there, and has the options that the page gives it."""
    for script, rest in re.findall(
        r"(?:python|bash) ((?:experiments|tests)/[\w/]+\.(?:py|sh))([^\n`#|]*)", page.read_text()
    ):
        assert (ROOT / script).exists(), script
        if options := re.findall(r"--[\w-]+", rest):
            _, said, _ = scripts.outcome(Path(script).stem, capsys, "--help")
            assert [name for name in options if f"{name} " not in f"{said} "] == [], script
