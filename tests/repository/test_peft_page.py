"""The code and version of docs/peft.md; test_readme.py checks its links and commands."""

import re
from pathlib import Path

import peft
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "peft.md").read_text()


@pytest.mark.filterwarnings("ignore")
def test_its_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    training = "...  # train\n"
    assert training in blocks[0]
    step = "for _ in range(3):\n    loss = model(torch.randn(2, 3, 32, 32)).logsumexp(1).sum()\n"
    step += "    loss.backward()\n    torch.optim.AdamW(model.members[0].parameters(), lr=0.1).step()\n"
    for block in blocks:
        exec(block.replace(training, step), names)
    assert names["again"].members[0].method.rank == 16 and names["again"].members[0].method.targets == "qv"
    assert names["probs"].shape == (16, 4, 10) and Path("adapter.safetensors").exists()


def test_it_names_the_version_that_is_tested():
    assert f"PEFT {peft.__version__}" in PAGE
