"""The README and the pages in docs/: links lead somewhere, code and commands run."""

import re
from pathlib import Path

import peft
import pytest
import scripts
import timm
import torch
from encoders import make_text
from families import make
from torch.nn.functional import cross_entropy

import pvera

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
    exec(blocks("README.md")[1], names)
    assert names["probs"].shape == (16, 8, 10) and names["loss"].isfinite() and names["model"].merged
    assert (folder / "adapter.safetensors").exists()


def test_the_first_lines_run_with_a_backbone_and_a_batch():
    vit, new_vit = (timm.create_model("vit_tiny_patch8_32", num_classes=0) for _ in range(2))
    new_vit.load_state_dict(vit.state_dict())
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 99])
    names = {"pvera": pvera, "cross_entropy": cross_entropy, "vit": vit, "new_vit": new_vit}
    names |= {"images": images, "labels": labels}
    exec(blocks("README.md")[0], names)
    assert names["loss"].isfinite() and names["model"].eval()(images).shape == (2, 100)


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


def test_noise_of_fixed_size_is_made_as_its_page_says():
    (code,) = blocks("docs/fixed-noise.md")
    names = {"pvera": pvera, "vit": timm.create_model("vit_tiny_patch8_32")}
    exec(code, names)
    assert names["model"].members[0].method.sigma == 1.0


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
