"""experiments/benchmark_throughput.py on the small backbone: rates of this processor, hours counted by
hand."""

import pandas as pd
import pytest
import scripts
import torch


def test_hours_follow_from_the_rates(tmp_path, capsys):
    options = ("--profile", "demo", "--device", "cpu", "--precision", "float32", "--batches", 4, "--epochs", 10)
    scripts.execute("benchmark_throughput", *options, "--output", tmp_path)
    (file,) = tmp_path.glob("throughput_cpu_*_float32.csv")
    total = pd.read_csv(file)["hours"].sum()
    assert capsys.readouterr().out.strip().endswith(f"{total:,.1f} hours")
    row = pd.read_csv(file).set_index("experiment").loc["benchmark"]
    assert row["backbone"] == "tiny" and row["runs"] == row["members"] == 24
    train, validate, test = (row[f"{name}_images_per_second"] for name in ("train", "validate", "test"))
    assert train < validate
    # 21 trainings of an adapter for ten epochs, 3 of a head on features, 24 tests.
    expected = 21 * 10 * (800 / train + 200 / validate) + 3 * 1000 / test + 24 * 2000 / test
    assert row["hours"] == pytest.approx(expected / 3600, rel=1e-3)


def test_runs_that_wait_for_a_search_count(tmp_path):
    options = ("--profile", "mini", "--device", "cpu", "--precision", "float32", "--batches", 1)
    scripts.execute("benchmark_throughput", *options, "--output", tmp_path)
    (file,) = tmp_path.glob("*.csv")
    rows = pd.read_csv(file).set_index("experiment")[["runs", "members"]]
    assert rows.loc["beta"].tolist() == [6, 6 * 4 * 2]  # four values of β, two learning rates
    assert rows.loc["benchmark"].tolist() == [6 * 3 * 8, 6 * 3 * 8 * 3]  # six tasks, three seeds, eight grids of three
    assert rows.loc["equal_budget"].tolist() == [6 * 3, 6 * 3 * 3]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--device", "cpu", "--epochs", "0"], "--epochs: Input should be greater than or equal to 1, not 0"),
        (["--device", "cpu", "--profile", "large"], "unknown profile 'large'"),
        (["--device", "cuda"], "there is no CUDA device here"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert says in scripts.refusal("benchmark_throughput", capsys, *arguments)
