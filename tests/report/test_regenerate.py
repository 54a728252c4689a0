"""The committed tables of `mini` follow from the committed results."""

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pvera.data import suite
from pvera.report import effects, efficiency, published, tables
from pvera.report.tables import calibration, comparison, cost, duration, pairs, protocol
from pvera.study import cost_records, results

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results" / "mini" / "tables"
PAPER = published.load(ROOT / "results" / "published")
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def computed() -> dict[str, tables.Table]:
    """The tables of the experiments on `mini`, without a notebook."""
    (found,) = tables.of_profile(ROOT / "results", "mini", PAPER).values()
    made = list(found.values())
    for experiment, hyperparameter in (("rank", "rank"), ("position", "targets")):
        if runs := results.load_runs(ROOT / "results", "mini", experiment, optional=True):
            made += [make(runs, hyperparameter, PAPER) for make in (tables.ablation, tables.ablation_verdicts)]
    if runs := effects.load(ROOT / "results", "mini"):
        made += [protocol.switches(runs), protocol.by_method(runs)]
    runs = results.load_runs(ROOT / "results", "mini")
    costs = cost_records.load_costs(ROOT / "results", "mini", "paper")
    here = {"tiny": efficiency.of_runs(costs, runs)}
    made += [cost.cost_table(costs), cost.cost_verdicts(PAPER, efficiency.of_paper(costs, PAPER), here)]
    floors = calibration.floors(ROOT / "results", runs)
    every_seed = calibration.load(ROOT / "results", "mini")
    made += [calibration.calibration(runs, floors), calibration.calibration_verdicts(every_seed)]
    made += [pairs.image_leads_table(ROOT / "results", runs, suite.shared_units())]
    evidence = {"tiny": comparison.of_runs(runs)}
    evidence |= {f"published_{b}": comparison.of_published(PAPER, b) for b in published.BACKBONES}
    compared = {name: comparison.compare(found) for name, found in evidence.items()}
    made += [comparison.comparison(found, f"comparison_{name}") for name, found in compared.items()]
    made += [comparison.support(list(compared.values())[1:])]
    for language in tables.language_of_profile(ROOT / "results", "mini", PAPER.language).values():
        made += language
    made.append(duration.duration_table(duration.load(ROOT / "results", "mini")))
    return {table.name: table for table in made}


def test_tables_without_notebooks():
    for name, table in computed().items():
        same(table.csv(), (COMMITTED / f"{name}.csv").read_text(), f"{name}.csv")
        same(table.markdown(), (COMMITTED / f"{name}.md").read_text(), f"{name}.md")
        if getattr(table, "in_paper", False):
            same(table.latex(), (COMMITTED / f"{name}.tex").read_text(), f"{name}.tex")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_notebooks_make_the_same_tables_again(tmp_path):
    """In a copy of a fresh clone without tables and figures, notebooks give the same tables and as many figures."""
    read = [f"results/{name}" for name in ("published", "performance", "paper/cost", "mini", "bfloat16")]
    for folder in ("analysis", *read):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("tables"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    script = ROOT / "experiments" / "execute_notebooks.py"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, script, "--profile", "mini", "--inplace", "--root", tmp_path],
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    for folder in ("results/mini/tables", "figures/mini"):
        names = [sorted(p.name for p in (root / folder).iterdir()) for root in (tmp_path, ROOT)]
        assert names[0] == [name for name in names[1] if not name.endswith(".ipynb")]
    for path in COMMITTED.iterdir():
        same((tmp_path / "results/mini/tables" / path.name).read_text(), path.read_text(), path.name)


def same(new: str, committed: str, name: str) -> None:
    """Check equality up to the last digits, which depend on processors and library versions."""
    if name.endswith(".csv"):
        frames = (pd.read_csv(io.StringIO(text)) for text in (new, committed))
        pd.testing.assert_frame_equal(*frames, rtol=1e-4, check_dtype=False, obj=name)
        return
    assert NUMBER.sub("#", new) == NUMBER.sub("#", committed), name
    for one, other in zip(*(NUMBER.findall(text) for text in (new, committed))):
        unit = 10.0 ** -len(one.partition(".")[2]) if "e" not in one else 0
        one, other = (float(text.replace("−", "-")) for text in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1.01 * unit * (unit < 1), err_msg=name)


def test_the_comparison_notices_differences():
    same("a,b\n1.000001,x\n", "a,b\n1,x\n", "t.csv")
    same("| PVeRA | −1.3 |", "| PVeRA | −1.4 |", "t.md")
    for new in ("a,b\n1.01,x\n", "a,b\n1,y\n", "a\n1\n"):
        with pytest.raises(AssertionError):
            same(new, "a,b\n1,x\n", "t.csv")
    for new in ("| PVeRA | −1.5 |", "| VeRA | −1.3 |", "| PVeRA | **−1.3** |", "72 runs"):
        with pytest.raises(AssertionError):
            same(new, "71 runs" if "runs" in new else "| PVeRA | −1.3 |", "t.md")
