"""The recipes of docs/training-loops.md run as they stand, on random images."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "training-loops.md").read_text()
START, *SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
DATASET = """
import torch
source = torch.Generator().manual_seed(0)
dataset = [(torch.randn(3, 32, 32, generator=source), i % 10) for i in range(20)]
"""


def code(text: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


START = DATASET + code(START).replace("epochs, beta = 50", "epochs, beta = 2")
RECIPES = {section.partition("\n")[0]: code(section) for section in SECTIONS if "```python" in section}
#: What a recipe leaves in its folder.
LEAVES = {
    "Plain PyTorch: train, save, resume, load": {"run.pt", "adapter.safetensors"},
    "transformers' Trainer": {"runs", "adapter.safetensors"},
    "accelerate": {"run"},
    "Several processes: DDP": {"adapter.safetensors"},
    "Lightning": {"runs", "adapter.safetensors"},
    "timm's optimizer, scheduler and moving average": {"adapter.safetensors"},
    "A frozen backbone in 8 bit": set(),
    "torch.compile and export": {"model.onnx"},
}
SLOW = ("torch.compile and export", "Several processes: DDP", "transformers' Trainer", "Lightning")


def test_every_recipe_is_run():
    assert RECIPES.keys() == LEAVES.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow, pytest.mark.timeout(1800)] * (n in SLOW)) for n in LEAVES]
)
def test_recipe(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "Several processes: DDP":
        (tmp_path / "train.py").write_text(START + RECIPES[name])
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        (tmp_path / "train.py").unlink()
    else:
        names: dict = {"__name__": "recipe"}
        exec(compile(START + RECIPES[name], name, "exec"), names)
        if name.startswith("Plain"):
            check_plain(names)
        if "average" in names:
            decayed = [len(p) for group in names["optimizer"].param_groups for p in [group["params"]]]
            assert sum(decayed) == len(names["model"].members[0].trained())
            undecayed = next(g["params"] for g in names["optimizer"].param_groups if g["weight_decay"] == 0)
            assert all(any(p is vector for p in undecayed) for vector in (names["model"].members[0].layers[0].d,))
    assert LEAVES[name] <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", METHODS)
@pytest.mark.parametrize("name", ["transformers' Trainer", "accelerate", "Lightning"])
def test_recipe_with_every_method(name, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = (START + RECIPES[name]).replace("pvera.PVeRA(rank=16)", f"pvera.{METHODS[key]!r}")
    exec(compile(program, name, "exec"), {"__name__": "recipe"})
    assert LEAVES[name] <= {path.name for path in tmp_path.iterdir()}


def check_plain(names: dict) -> None:
    """Resume the finished run: nothing is left to train, and the adapter is the saved one."""
    logits = names["model"](names["images"])
    states = torch.load("run.pt")
    assert states["epoch"] == 2
    model = names["adapted"]().eval()
    model.load_state_dict(states["model"])
    assert torch.equal(model(names["images"]), logits)
    assert names["probabilities"].sum(1).allclose(torch.ones(len(logits)))
