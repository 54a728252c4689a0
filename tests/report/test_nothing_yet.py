"""Every notebook on a profile without any result: no cell fails, and one sentence names the command that
makes them."""

import re
import shutil

import pytest
from notebook import ROOT, run

NOTEBOOKS = sorted(path.name for path in (ROOT / "analysis").glob("*.ipynb"))
NEED_NO_PROFILE = {"audit.ipynb", "speed.ipynb"}


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in NEED_NO_PROFILE])
def test_no_results(name, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "results/paper/cost", tmp_path / "results/paper/cost")  # needs no run and is committed
    text, _ = run(name, tmp_path, "empty", monkeypatch)
    (command,) = re.findall(r"`python experiments/(\w+\.py) --profile empty.*?` makes them", text)
    assert (ROOT / "experiments" / command).is_file()
    assert "nan" not in text and "None" not in text
    made = {path.stem for path in (tmp_path / "results").rglob("empty/tables/*.csv")}
    assert all("published" in stem or stem in OF_THE_PAPER for stem in made)


#: Tables that hold the paper's numbers, or those of its sizes, alone.
OF_THE_PAPER = {"cost", "cost_claims", "claims"}
