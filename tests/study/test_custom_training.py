"""Training, analyses and tables on the user's own pictures."""

import json
from pathlib import Path

import photographs
import pytest
import scripts
from photographs import copy, listed, pictures  # noqa: F401  fixtures

from pvera.data import custom, tasks
from pvera.report import published, readings
from pvera.report.tables import against_paper, benchmark, uncertainty
from pvera.study import results
from pvera.study.experiments import list_runs
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[2]
CLASSES = sorted(photographs.CLASSES)


def train(tmp_path, *more) -> tuple:
    return (
        *("--data", tmp_path / "data", "--results", tmp_path / "results", "--device", "cpu", "--workers", 1),
        *("--epochs", 1, "--methods", "pvera", "lora", *more),
    )


def test_training_leaves_result_files_that_say_how_the_pictures_were_split(pictures, tmp_path, capsys, in_process):
    options = train(tmp_path, "--data-set", f"photos={pictures}", "--split-seed", 5)
    status, output, errors = scripts.outcome("train", capsys, *options)
    assert status == 0, errors
    assert "photos: 4 classes; images: 52 train, 12 validation, 16 test; stratified split from seed 5" in output
    runs = results.load_runs(tmp_path / "results", "own")
    assert [(run["dataset"], run["method"], run["category"]) for run in runs] == [
        ("photos", "lora", "own"),
        ("photos", "pvera", "own"),
    ]
    for run in runs:
        about = {"split": {"given": [], "drawn": custom.SHARES, "seed": 5}, "classes": CLASSES}
        assert run["own_data"].pop("pictures_sha256") and run["own_data"] == about
        assert run["test"]["images"] == 16
    again = train(tmp_path, "--data-set", f"photos={pictures}")
    status, output, _ = scripts.outcome("train", capsys, *again)
    assert status == 0 and "stratified split from seed 5" in output, "of the call before"
    for more in ((), ("--list",)):
        refusal = scripts.refusal("train", capsys, *again, "--split-seed", 0, *more)
        assert (
            f"photos is split from seed 5: give the other split another name, --data-set photos-0={pictures}" in refusal
        )
    assert scripts.outcome("train", capsys, *again)[0] == 0, "the lists are as they were"


def test_a_record_names_the_split_that_was_loaded(pictures, tmp_path):
    """Whatever becomes of the lists while the run trains."""
    custom.install(tmp_path, "photos", pictures, seed=5)
    profile = Profile.read(ROOT / "experiments/profiles/own.yaml")
    profile = profile.with_(datasets=["photos"], methods={"linear": profile.methods["linear"]}, data=str(tmp_path))
    profile = profile.with_(training=profile.training.with_(epochs=1))
    run = next(run for run in list_runs(profile, "benchmark", tmp_path / "results") if run.method == "linear")
    run.execute(on_step=lambda *_: custom.install(tmp_path, "photos", pictures, seed=9))
    assert custom.drawn_from(tasks.manifest(tmp_path, "photos")) == 9
    assert results.read(run.path)["own_data"]["split"]["seed"] == 5


def test_a_profile_without_such_runs_says_so(pictures, tmp_path, capsys):
    options = train(tmp_path, "--data-set", f"photos={pictures}", "--experiments", "rank", "position")
    status, output, _ = scripts.outcome("train", capsys, *options)
    assert status == 0 and output.endswith("profile own lists no runs of rank, position now\n")


def test_analyses_and_tables_take_own_pictures(pictures, tmp_path, capsys, in_process):
    """Two data sets with given and drawn splits share the tables."""
    given = tmp_path / "given.csv"
    given.write_text("path,label,split\n" + "".join(f"{pictures / p},{x},{s}\n" for p, x, s in listed(pictures)))
    names = ("--data-set", f"photos={pictures}", "--data-set", f"again={given}")
    for script in ("train", "analyse"):
        status, _, errors = scripts.outcome(script, capsys, *train(tmp_path, *names))
        assert status == 0, errors
    root = tmp_path / "results"
    assert {(run["dataset"], run["category"]) for run in results.load_runs(root, "own", "uncertainty")} == {
        ("photos", "own"),
        ("again", "own"),
    }
    assert results.load_runs(root, "own", "latents") and results.load_runs(root, "own", "out_of_distribution")
    runs, paper = results.load_runs(root, "own"), published.load(ROOT / "results" / "published")
    page = benchmark.main(runs).markdown()
    assert "Avg. own" in page and "photos" in page
    accuracies = {(run["dataset"], run["method"]): run["test"]["accuracy"] for run in runs}
    for method, title in (("lora", "LoRA"), ("pvera", "PVeRA")):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {title} |")]
        assert all(f"{100 * accuracies[name, method]:.1f}" in row for name in ("photos", "again"))
    assert "photos" in benchmark.detailed(runs).markdown() and benchmark.grid(runs).markdown()
    for build in (against_paper.accuracies, against_paper.detailed, against_paper.grid):
        assert "differences do not test" in build(runs, paper).caption or build(runs, paper).data.empty
    groups = uncertainty.groups(readings.load_uncertainty(root, "own"))
    assert list(groups) == [uncertainty.ALL, "again", "photos"]


def test_any_profile_takes_own_pictures(pictures, tmp_path, capsys, monkeypatch):
    """With the paper's profile, VTAB-1k has published β, and the user's data set searches it."""
    import custom_training

    monkeypatch.setattr(custom_training, "seconds_per_image", lambda *_: 0.1)
    options = train(
        tmp_path, "--data-set", f"photos={pictures}", "--profile", "paper", "--backbones", "dinov2_b", "--list"
    )
    status, output, errors = scripts.outcome("train", capsys, *options)
    assert status == 0, errors
    assert "paper, beta: 0 of 1 runs are there\n" in output and "missing: beta/dinov2_b/photos/pvera/seed0" in output
    assert "paper, benchmark: 0 of 1 runs are there" in output, "that of PVeRA follows the search"


BAD = {
    "no folder": (["--data-set", "photos"], "--data-set takes NAME=FOLDER, not 'photos'"),
    "both": (["--data-set", "a=b", "--datasets", "digits"], "known data sets and your own pictures train in separate"),
    "missing": (["--data-set", "a=/none"], "/none does not exist"),
    "seed without pictures": (["--split-seed", "1"], "--split-seed is for your own pictures"),
    "seed": (["--split-seed", "-1"], "--split-seed: Input should be greater than or equal to 0, not -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(case, tmp_path, capsys):
    options, message = BAD[case]
    assert message in scripts.refusal("train", capsys, *train(tmp_path, *options))


def test_unreadable_pictures_end_a_training_before_it_starts(copy, tmp_path, capsys):
    file = next(iter((copy / "cat").iterdir()))
    file.write_bytes(b"no picture")
    assert file.name in scripts.refusal("train", capsys, *train(tmp_path, "--data-set", f"photos={copy}"))
    assert not list((tmp_path / "results").rglob("*.json"))


def test_record_is_json_without_the_machines_paths(pictures, tmp_path):
    custom.install(tmp_path, "mine", pictures)
    assert str(pictures) not in json.dumps(custom.provenance(tmp_path, "mine"))
    assert custom.provenance(tmp_path, "digits") == {}
