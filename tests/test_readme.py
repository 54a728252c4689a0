"""What the README says is what the repository does."""

import re
from pathlib import Path

import torch
from test_transformers import make_encoder, make_text
from torch.nn.functional import cross_entropy

import pvera
from pvera.data.suite import RECIPES
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_links_lead_somewhere():
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in t]
    assert targets and [t for t in targets if not (ROOT / t).exists()] == []


def test_every_notebook_and_every_figure_is_listed():
    notebooks = {path.relative_to(ROOT).as_posix() for path in (ROOT / "analysis").glob("*.ipynb")}
    assert notebooks - set(re.findall(r"\]\(([^)#]+)\)", README)) == set()
    shown = re.findall(r'<a href="([^"]+)"><img src="([^"]+)" width="\d+" alt="([^"]+)"></a>', README)
    assert README.count("<img") == len(shown) and all(link == source for link, source, _ in shown)
    assert {source for _, source, _ in shown} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "figures" / "mini").glob("*.png")
    }


def test_everything_in_the_paper_has_a_row():
    first = " ".join(re.findall(r"^\| ((?:Figure|Table|Algorithm)[^|]*) \|", README, re.MULTILINE))
    for kind, count in (("Figure", 9), ("Algorithm", 2), ("Table", 8)):
        numbers = set()
        for one, between, other in re.findall(rf"{kind}s? (\d)(?: (and|to) (\d))?", first):
            numbers |= set(range(int(one), int(other) + 1)) if between else {int(one)}
        assert numbers == set(range(1, count + 1))


def test_results_are_those_of_the_committed_runs():
    quoted = re.findall(r"<!-- (results/\S+\.md) -->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert quoted
    for file, table in quoted:
        assert table.strip() in (ROOT / file).read_text()


def test_example_runs(tmp_path, monkeypatch):
    """On the small backbone's architecture, which needs no download."""
    code, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    large = '"vit_base_patch14_dinov2.lvd142m", pretrained=True, img_size=224'
    assert large in code
    names = {
        "images": torch.randn(2, 3, 32, 32),
        "labels": torch.tensor([0, 99]),
        "cross_entropy": cross_entropy,
        "beta": 1e-6,
    }
    monkeypatch.chdir(tmp_path)
    exec(code.replace(large, '"vit_tiny_patch8_32"'), names)
    assert names["logits"].shape == (2, 100) and names["probs"].shape == (16, 2, 100)
    assert names["loss"].isfinite() and names["model"].merged and Path("adapter.safetensors").exists()


def test_text_example_runs():
    """On a small DeBERTa-V3, with tokens in place of a tokenizer."""
    _, code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    large = 'transformers.AutoModel.from_pretrained("microsoft/deberta-v3-base")'
    assert large in code
    text = make_text()
    names = {
        "pvera": pvera,
        "encoder": make_encoder("deberta-v3"),
        "texts": None,
        "tokenizer": lambda texts, padding, return_tensors: text,
    }
    exec(code.replace(large, "encoder"), names)
    assert names["logits"].shape == (3, 2) and names["logits"].isfinite().all()


def test_suite_is_the_one_described():
    rows = [f"| {r.title} | {r.category} | {len(r.classes)} | {r.measures} |" for r in RECIPES.values()]
    assert [row for row in rows if row not in README] == []


def test_number_of_trainings():
    demo = Profile.read(ROOT / "experiments" / "profiles" / "demo.yaml")
    runs = [run for experiment in demo.experiments for run in demo.runs(experiment, "results")]
    assert f"{len(runs)} trainings" in README
