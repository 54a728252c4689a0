"""Training, analyses and tables on the user's own pictures: what is trained unless more is said, how long it takes, and
where it lies."""

import json
import re
import shutil

import photographs
import scripts
from photographs import copy, listed, pictures  # noqa: F401  fixtures

from pvera.data import custom
from pvera.report import analyses
from pvera.report.tables import benchmark, uncertainty
from pvera.study import results

CLASSES = sorted(photographs.CLASSES)


def options(tmp_path, *more) -> tuple:
    folders = ("--data", tmp_path / "data", "--results", tmp_path / "results")
    return *folders, "--device", "cpu", "--workers", 1, *more


def test_the_folder_alone_trains_pvera_and_its_record_says_how_it_was_split(pictures, tmp_path, capsys, in_process):
    """One seed, the corrected protocol; the printed command evaluates the adapter."""
    more = ("--data-set", f"photos={pictures}", "--split-seed", 5, "--epochs", 1)
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, *more))
    assert status == 0, errors
    counts, planned, *_, last = output.splitlines()
    assert counts == custom.describe("photos", custom.current(tmp_path / "data", "photos"))
    assert planned.startswith(
        "protocol corrected; backbone tiny; methods pvera; seeds 0; grids pvera learning_rate 0.01, "
    )
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert (run["method"], run["seed"], run["category"], run["test"]["images"]) == ("pvera", 0, "own", 16)
    own_data = {"split": {"given": [], "drawn": custom.SHARES, "seed": 5}, "classes": CLASSES}
    assert run["own_data"].pop("pictures_sha256") and run["own_data"] == own_data
    assert str(pictures) not in json.dumps(run)
    (command,) = re.findall(r"evaluate it: python experiments/evaluate.py (.+)", last)
    renamed = shutil.copytree(pictures, tmp_path / "renamed")  # which the record's seed splits alike
    for index, file in enumerate(sorted(renamed.rglob("*.*"))):
        file.rename(file.with_stem(str(index)))
    elsewhere = (command.split()[0], "--data", tmp_path / "elsewhere", "--data-set", f"new={renamed}")
    for arguments in (command.split(), elsewhere):
        scripts.execute("evaluate", *arguments, "--metrics", tmp_path / "m.json")
        assert json.loads((tmp_path / "m.json").read_text())["metrics"] == run["test"]
    (renamed / "cat").rename(renamed / "lion")
    elsewhere = (*elsewhere[:-1], f"zoo={renamed}")
    assert "it does not know the classes of zoo" in scripts.refusal("evaluate", capsys, *elsewhere)
    for other in ((), ("--list",)):
        refusal = scripts.refusal("train", capsys, *options(tmp_path, *more[:2], "--split-seed", 0, *other))
        assert "photos is split from seed 5: give the other split another name" in refusal


def test_analyses_and_tables_take_own_pictures(pictures, tmp_path, capsys, in_process):
    """Two data sets with given and drawn splits share the tables."""
    given = tmp_path / "given.csv"
    given.write_text("path,label,split\n" + "".join(f"{pictures / p},{x},{s}\n" for p, x, s in listed(pictures)))
    names = ("--data-set", f"photos={pictures}", "--data-set", f"again={given}", "--epochs", 1, "--learning-rate", 0.01)
    for script in ("train", "analyse"):
        status, _, errors = scripts.outcome(script, capsys, *options(tmp_path, *names))
        assert status == 0, errors
    root = tmp_path / "results"
    assert uncertainty.datasets(analyses.load_uncertainty(root, "own")) == ["again", "photos"]
    assert results.load_runs(root, "own", "latents") and results.load_runs(root, "own", "out_of_distribution")
    page = benchmark.main(results.load_runs(root, "own")).markdown()
    assert "Avg. own" in page and "photos" in page and "| PVeRA |" in page
