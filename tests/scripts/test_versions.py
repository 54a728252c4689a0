"""Two versions of the program, timed in turn: the table by hand, and the script on two copies of this version."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scripts
from trained import make_data

from pvera.errors import InputError
from pvera.report.tables import versions

ROOT = Path(__file__).resolve().parents[2]


def turns() -> pd.DataFrame:
    rows = [
        # Two runs of LoRA and one of PVeRA in each of three turns; the second turn was slow for both versions.
        *(
            (t, v, "benchmark", "lora", factor * seconds, accuracy)
            for t, factor in enumerate((1, 5, 1))
            for v, seconds in (("before", 10), ("after", 4))
            for accuracy in (0.5, 0.7)
        ),
        *(
            (t, v, "uncertainty", "pvera", seconds, accuracy)
            for t in range(3)
            for v, seconds, accuracy in (("before", 20, 0.25), ("after", 10, 0.26))
        ),
    ]
    return pd.DataFrame(rows, columns=["turn", "version", "experiment", "method", "seconds", "accuracy"])


def test_by_hand():
    data = versions.compare(turns()).set_index("experiment")
    lora, pvera, whole = (data.loc[name] for name in ("benchmark", "uncertainty", "all"))
    assert (lora["turns"], lora["runs"], lora["seconds_before"], lora["seconds_after"]) == (3, 2, 20, 8)
    assert lora["ratio"] == 0.4 and lora["apart"] == 0
    assert pvera["ratio"] == 0.5 and pvera["apart"] == pytest.approx(1)
    assert whole["runs"] == 3 and whole["ratio"] == pytest.approx(18 / 40)


def measured(**changes) -> pd.DataFrame:
    about = {"device": "cpu: mine", "profile": "demo", "before": "0012345", "after": "abcdef0"}
    return versions.compare(turns()).assign(**about | changes)


def test_repeated_measurements_replace_old_ones(tmp_path):
    file = tmp_path / "versions.csv"
    assert len(versions.merge(versions.load(file), measured())) == 3
    measured().to_csv(file, index=False)
    earlier = versions.load(file)
    again = versions.merge(earlier, measured(ratio=0.1))
    assert len(again) == 3 and (again["ratio"] == 0.1).all() and set(again["before"]) == {"0012345"}
    other = versions.merge(earlier, measured(profile="mini", ratio=0.2))
    assert len(other) == 6 and list(other["profile"]) == ["demo"] * 3 + ["mini"] * 3
    panels = versions.versions_table(other).panels
    assert [panel.title for panel in panels] == [
        "(a) cpu: mine, profile demo: abcdef0 after 0012345, 3 turns",
        "(b) cpu: mine, profile mini: abcdef0 after 0012345, 3 turns",
    ]
    cells = {row.label: [cell.text for cell in row.cells] for row in panels[1].rows}
    assert cells["Benchmark, LoRA"] == ["2", "20.0", "8.0", "0.20", "0.00"]
    assert list(cells)[-1] == "All"


@pytest.mark.slow
def test_the_script_trains_and_draws_with_both(tmp_path, capfd):
    other = tmp_path / "other"
    for name in ("pvera", "experiments"):
        shutil.copytree(ROOT / name, other / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pvera_torchvision.py", other)
    make_data(tmp_path / "data", "digits")
    scripts.execute(
        "benchmark_versions", other, "--repeats", 1, "--output", tmp_path, "--data", tmp_path / "data",
        "--datasets", "digits", "--seeds", 0, "--methods", "linear", "pvera", "--epochs", 1, "--images", 4,
    )  # fmt: skip
    data = pd.read_csv(tmp_path / "versions.csv")
    assert list(zip(data["experiment"], data["method"])) == [
        ("benchmark", "linear"), ("benchmark", "pvera"), ("beta", "pvera"), ("uncertainty", "pvera"), ("all", "all"),
    ]  # fmt: skip
    assert (data["apart"] == 0).all() and (data["runs"] == [1, 1, 1, 1, 4]).all()
    seconds = data[["seconds_before", "seconds_after", "ratio"]].to_numpy()
    assert (seconds > 0).all() and np.isfinite(seconds).all()
    assert "| Monte Carlo inference, PVeRA | 1 |" in capfd.readouterr().out


@pytest.mark.parametrize("text", ["", "device,ratio\n1,2\n", '"'])
def test_a_damaged_file_is_named(text, tmp_path):
    (tmp_path / "versions.csv").write_text(text)
    with pytest.raises(InputError, match="versions.csv: damaged file"):
        versions.load(tmp_path / "versions.csv")


@pytest.mark.parametrize(
    "files, options, says",
    [
        ([], ["--repeats", 0], "--repeats: must be a whole number from 1"),
        ([], [], "there is no experiments/train.py"),
        (["train.py", "uncertainty.py"], [], "Python takes the library from"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files, options, says, tmp_path, capsys):
    (tmp_path / "experiments").mkdir()
    for name in files:
        (tmp_path / "experiments" / name).touch()
    assert says in scripts.refusal("benchmark_versions", capsys, tmp_path, *options)
