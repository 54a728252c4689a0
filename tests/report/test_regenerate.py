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
from pvera.report import claims, effects, efficiency, published, readings
from pvera.report.table import Table
from pvera.report.tables import (
    ablations,
    beta_effects,
    calibration,
    comparison,
    components,
    cost,
    duration,
    language,
    latents,
    out_of_distribution,
    pairs,
    precision,
    protocol,
    uncertainty,
    uncertainty_baselines,
    wall_time,
)
from pvera.report.tables.profile import of_runs
from pvera.study import cost_records, results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMMITTED = RESULTS / "mini" / "tables"
PAPER = published.load(RESULTS / "published")
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def of_benchmark() -> list[Table]:
    runs = results.load_runs(RESULTS, "mini")
    costs = cost_records.load_costs(RESULTS, "mini", "paper")
    here = {"tiny": efficiency.of_runs(costs, runs)}
    other = results.load_runs(RESULTS / "bfloat16", "mini")
    return [
        *of_runs(runs, results.load_runs(RESULTS, "mini", "beta"), PAPER).values(),
        cost.cost_table(costs), cost.cost_verdicts(efficiency.of_paper(costs, PAPER), here),
        calibration.calibration(runs, calibration.floors(RESULTS, runs)),
        pairs.image_leads_table(RESULTS, runs, suite.shared_units()),
        precision.precision_table(runs, other),
        wall_time.wall_time_table(wall_time.wall_times(RESULTS, "mini"), "mini"),
    ]  # fmt: skip


def of_comparison() -> list[Table]:
    evidence = {"tiny": comparison.of_runs(results.load_runs(RESULTS, "mini"))}
    evidence |= {f"published_{name}": comparison.of_published(PAPER, name) for name in published.BACKBONES}
    compared = {name: comparison.compare(found) for name, found in evidence.items()}
    return [
        *(comparison.comparison(found, f"comparison_{name}") for name, found in compared.items()),
        comparison.support(list(compared.values())[1:]),
        comparison.sizes(evidence["published_dinov2_b"], [3, 6, 12, 19]),
    ]


def of_further_trainings() -> list[Table]:
    runs, switches = components.load(RESULTS, "mini"), effects.load(RESULTS, "mini")
    ((texts,),) = language.language_of_profile(RESULTS, "mini", PAPER.language).values()
    return [
        *(ablations.ablation(results.load_runs(RESULTS, "mini", name), hyperparameter, PAPER)
          for hyperparameter, name in ablations.EXPERIMENTS.items()),
        components.table(runs), components.by_task(runs), components.searched(RESULTS, "mini"), texts,
        protocol.switches(switches), protocol.by_method(switches),
        duration.duration_table(duration.load(RESULTS, "mini")),
    ]  # fmt: skip


BASELINES = ("scores_table", "detection_table", "differences_table", "shift_table", "advice")


def of_uncertainty() -> list[Table]:
    draws, ways = readings.load_uncertainty(RESULTS, "mini"), uncertainty_baselines.load(RESULTS, "mini")
    return [
        uncertainty.spread(draws), uncertainty.detection_table(draws), uncertainty.widths(draws, PAPER),
        uncertainty.by_draws_table(draws),
        *(getattr(uncertainty_baselines, name)(ways) for name in BASELINES),
        beta_effects.beta_table(beta_effects.load(RESULTS, "mini")),
        out_of_distribution.out_of_distribution_table(out_of_distribution.load_values(RESULTS, "mini")),
        latents.latents_table(readings.load(RESULTS, "mini", "latents")),
    ]  # fmt: skip


def of_claims() -> list[Table]:
    notebooks = {topic.notebook for topic in claims.TOPICS.values()} - {"computational_efficiency"}
    return [table for name in notebooks for table in claims.tables(RESULTS, "mini", PAPER, name)]


@pytest.fixture(scope="module")
def built() -> dict[str, Table]:
    parts = (of_benchmark, of_comparison, of_further_trainings, of_uncertainty, of_claims)
    return {table.name: table for part in parts for table in part()}


def test_every_table_follows_from_the_results(built):
    assert {*built, "claims"} == {path.stem for path in COMMITTED.glob("*.csv")}
    for name, table in built.items():
        same(table.csv(), (COMMITTED / f"{name}.csv").read_text(), f"{name}.csv")
        same(table.markdown(), (COMMITTED / f"{name}.md").read_text(), f"{name}.md")
        if getattr(table, "in_paper", False):
            same(table.latex(), (COMMITTED / f"{name}.tex").read_text(), f"{name}.tex")
    rows = claims.judged(RESULTS, "mini", PAPER)
    same(claims.csv(rows), (COMMITTED / "claims.csv").read_text(), "claims.csv")
    same(claims.page(rows, "mini"), (COMMITTED / "claims.md").read_text(), "claims.md")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_notebooks_make_the_same_tables_again(tmp_path):
    """In a copy of a fresh clone without tables and figures, notebooks give the same tables and as many figures."""
    read = [f"results/{name}" for name in ("published", "performance", "paper/cost", "mini", "bfloat16")]
    for folder in ("analysis", *read):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("tables"))
    for file in (ROOT / "pyproject.toml", ROOT / "PROTOCOL.md"):
        shutil.copy(file, tmp_path)
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
