"""Training, analyses and tables on the user's own pictures: what is trained unless more is said, how long it takes, and
where it lies."""

import json
import re
from pathlib import Path

import photographs
import pytest
import safetensors.torch
import scripts
from photographs import copy, listed, pictures  # noqa: F401  fixtures

from pvera import backbones
from pvera.data import custom
from pvera.report import analyses, published
from pvera.report.tables import against_paper, benchmark, uncertainty
from pvera.study import results

ROOT = Path(__file__).resolve().parents[2]
CLASSES = sorted(photographs.CLASSES)


def options(tmp_path, *more) -> tuple:
    folders = ("--data", tmp_path / "data", "--results", tmp_path / "results")
    return *folders, "--device", "cpu", "--workers", 1, *more


def test_the_folder_alone_trains_pvera_with_one_seed_under_the_corrected_protocol(
    pictures, tmp_path, capsys, in_process
):
    weights = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(backbones.load("tiny").model.state_dict(), weights)
    more = ("--data-set", f"photos={pictures}", "--epochs", 3, "--weights", f"tiny={weights}")
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, *more))
    assert status == 0, errors
    first, last = output.splitlines()[1], output.splitlines()[-1]
    assert first.startswith(
        "protocol corrected; backbone tiny; methods pvera; seeds 0; grids pvera learning_rate 0.01, "
        "0.001, 0.0001; 1 trainings of at most 3 epochs"
    )
    assert "photos/pvera/seed0 3/3" in errors
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert (run["method"], run["seed"], run["protocol"]) == ("pvera", 0, "corrected")
    adapter, command = re.fullmatch(r"adapter: (\S+); evaluate it: python experiments/evaluate.py (.+)", last).groups()
    assert adapter == str(tmp_path / "results/own/benchmark/tiny/photos/pvera/seed0.safetensors")
    assert command == f"{adapter} --weights {weights} --data {tmp_path / 'data'}"
    scripts.execute("evaluate", *command.split(), "--metrics", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["metrics"] == run["test"]


def listed_runs(tmp_path, pictures, capsys, *more) -> list[str]:
    plain = options(tmp_path, "--data-set", f"photos={pictures}", "--list", *more)
    status, output, errors = scripts.outcome("train", capsys, *plain)
    assert status == 0, errors
    assert not list((tmp_path / "results").rglob("*.json"))
    return output.splitlines()


@pytest.mark.parametrize(
    "more, line",
    [
        (("--backbone", "dinov2_b"), "protocol corrected; backbone dinov2_b; methods pvera; seeds 0"),
        (("--methods", "pvera", "linear"), "2 trainings of at most 100 epochs"),
        (("--protocol", "published"), "protocol published; backbone tiny"),
        (("--learning-rate", "0.01", "--batch-size", 4, "--seeds", 0, 1), "seeds 0, 1; grids none"),
    ],
)  # fmt: skip
def test_options_change_what_is_trained(more, line, pictures, tmp_path, capsys):
    assert any(line in printed for printed in listed_runs(tmp_path, pictures, capsys, *more))


def test_result_files_say_how_the_pictures_were_split(pictures, tmp_path, capsys, in_process):
    photos = ("--data-set", f"photos={pictures}")
    more = ("--epochs", 1, "--methods", "linear", "--learning-rate", 0.02, "--batch-size", 4)
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, *photos, "--split-seed", 5, *more))
    assert status == 0, errors
    assert "photos: 4 classes; images: 52 train, 12 validation, 16 test; stratified split from seed 5" in output
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert (run["dataset"], run["method"], run["category"], run["test"]["images"]) == ("photos", "linear", "own", 16)
    own_data = {"split": {"given": [], "drawn": custom.SHARES, "seed": 5}, "classes": CLASSES}
    assert run["own_data"].pop("pictures_sha256") and run["own_data"] == own_data
    assert str(pictures) not in json.dumps(run)
    assert run["config"]["batch_size"] == 4
    assert [member["adapter_lr"] for member in run["config"]["members"]] == [0.02]

    status, output, _ = scripts.outcome("train", capsys, *options(tmp_path, *photos, *more))
    assert status == 0 and "stratified split from seed 5" in output, "of the call before"
    for other in ((), ("--list",)):
        refusal = scripts.refusal("train", capsys, *options(tmp_path, *photos, "--split-seed", 0, *other))
        assert "photos is split from seed 5: give the other split another name" in refusal
        assert f"--data-set photos-0={pictures}" in refusal


def test_analyses_and_tables_take_own_pictures(pictures, tmp_path, capsys, in_process):
    """Two data sets with given and drawn splits share the tables."""
    given = tmp_path / "given.csv"
    given.write_text("path,label,split\n" + "".join(f"{pictures / p},{x},{s}\n" for p, x, s in listed(pictures)))
    names = ("--data-set", f"photos={pictures}", "--data-set", f"again={given}")
    of_two = options(tmp_path, "--epochs", 1, "--methods", "pvera", "lora", *names)
    for script in ("train", "analyse"):
        status, _, errors = scripts.outcome(script, capsys, *of_two)
        assert status == 0, errors
    root = tmp_path / "results"
    drawn = {(run["dataset"], run["category"]) for run in results.load_runs(root, "own", "uncertainty")}
    assert drawn == {("photos", "own"), ("again", "own")}
    assert results.load_runs(root, "own", "latents") and results.load_runs(root, "own", "out_of_distribution")
    runs, paper = results.load_runs(root, "own"), published.load(ROOT / "results" / "published")
    page = benchmark.main(runs).markdown()
    assert "Avg. own" in page and "photos" in page
    accuracies = {(run["dataset"], run["method"]): run["test"]["accuracy"] for run in runs}
    for method, title in (("lora", "LoRA"), ("pvera", "PVeRA")):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {title} |")]
        assert all(f"{100 * accuracies[name, method]:.1f}" in row for name in ("photos", "again"))
    assert "photos" in benchmark.detailed(runs).markdown() and benchmark.grid(runs).markdown()
    assert "differences do not test" in against_paper.accuracies(runs, paper).caption
    assert uncertainty.datasets(analyses.load_uncertainty(root, "own")) == ["again", "photos"]
    assert "unknown experiment 'rank'" in scripts.refusal("train", capsys, *of_two, "--experiments", "rank")


def test_bad_input_is_one_line_before_anything_trains(copy, tmp_path, capsys):
    file = next(iter((copy / "cat").iterdir()))
    file.write_bytes(b"no picture")
    for more, message in (
        (["--data-set", "photos"], "--data-set takes NAME=FOLDER, not 'photos'"),
        (["--data-set", "a=b", "--datasets", "digits"], "known data sets and your own pictures train in separate"),
        (["--split-seed", "-1"], "--split-seed: must be at least 0, not -1"),
        (["--data-set", f"photos={copy}"], file.name),
    ):
        assert message in scripts.refusal("train", capsys, *options(tmp_path, *more))
    assert not list((tmp_path / "results").rglob("*.json"))
