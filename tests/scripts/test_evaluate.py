"""evaluate.py and predict.py: recorded numbers, pictures without labels."""

import json
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import photographs
import pytest
import scripts
import torch
from options import Parser
from photographs import pictures  # noqa: F401  a fixture
from sklearn.metrics import accuracy_score
from tiny import perturb
from trained import make_adapters, make_profile

import pvera
from pvera import InputError, backbones, metrics
from pvera.data import custom, inputs, suite, tasks, vtab
from pvera.study import analyses, results
from pvera.study.plan import list_jobs
from pvera.study.profiles import Schedule
from pvera.study.saved_adapters import SavedAdapter, predict_images, require_unseen

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
ADAPTERS = RESULTS / "synthetic/benchmark/tiny"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of the demonstration suite, with its digits."""
    root = tmp_path_factory.mktemp("demo")
    suite.write(suite.SYNTHETIC_TASKS["digits"], root)
    return root


def test_a_committed_adapter_gives_its_recorded_numbers(digits, tmp_path, capsys):
    adapter = ADAPTERS / "digits/pvera/seed1.safetensors"
    outputs = ("--predictions", tmp_path / "p.csv", "--metrics", tmp_path / "m.json")
    more = ("--data", digits, "--draws", 4, *outputs)
    status, output, errors = scripts.outcome("evaluate", capsys, adapter, *more)
    assert status == 0, errors
    recorded = results.read_record_dict(adapter.with_suffix(".json"))["test"]
    numbers = json.loads((tmp_path / "m.json").read_text())
    assert numbers["metrics"]["correct"] == recorded["correct"]
    assert numbers["metrics"]["images"] == 2000
    # The last digits of a float belong to the processor; counts are exact.
    assert numbers["metrics"] == {
        name: pytest.approx(value, abs=2e-6) for name, value in recorded.items()
    }
    assert re.search(rf"^accuracy +{recorded['accuracy']:.6f}$", output, re.MULTILINE)

    table = pd.read_csv(tmp_path / "p.csv")
    recorded_samples = results.read_arrays(
        RESULTS / "synthetic/uncertainty/tiny/digits/pvera/seed1.json"
    )
    assert np.array_equal(table["label"], recorded_samples["labels"])
    calibration = metrics.calibration_error(
        table["confidence"].to_numpy(), table["correct"].to_numpy()
    )
    assert calibration == pytest.approx(recorded["ece"], abs=1e-6)
    assert accuracy_score(table["label"], table["prediction"]) == recorded["accuracy"]
    assert -np.log(table["label_score"]).mean() == pytest.approx(recorded["nll"], abs=1e-6)
    per_class = pd.DataFrame(numbers["classes"]).set_index("class")
    assert per_class["accuracy"].tolist() == table.groupby("label")["correct"].mean().tolist()
    four = list(recorded_samples["draws"]).index(4)
    # The samples are those of the experiment.
    assert np.allclose(table["draws_sd"], recorded_samples["sd"][four], atol=1e-3)
    assert np.mean(table["draws_prediction"] == recorded_samples["predicted"][four]) > 0.999
    assert np.mean(table["draws_correct"] == recorded_samples["accuracy"][four]) > 0.999


def test_evaluating_gives_the_bits_of_a_run(tmp_path):
    """Of the head alone, of adapters of projections and of the MLP, merged where they can be."""
    profile = make_profile(
        tmp_path,
        ["vessels"],
        seeds=[3],
        methods={"linear": {}, "pvera": {"rank": 8}, "ia3": {}, "adaptformer": {}},
        schedule=Schedule(epochs=1),
    )
    trainings = list_jobs(profile, "benchmark", tmp_path / "r")
    for run in trainings:
        run.execute()
    frozen = backbones.load("tiny")
    (split,) = inputs.load_splits(profile.data, "vessels", frozen, ("test",))
    for run in trainings:
        adapter = run.path.with_suffix(".safetensors")
        saved = SavedAdapter(adapter, frozen, {})
        probabilities = predict_images(saved, split, tasks.class_names("vessels")).probabilities
        recorded = results.read_record_dict(run.path)["test"]
        assert metrics.evaluate(probabilities, split.labels) == recorded, run.method
        stored, _ = results.read_predictions(run.path)
        assert np.array_equal(probabilities.astype(np.float16), stored), run.method


def test_samples_follow_the_seed_of_the_training(alone, tmp_path):
    """A member of a grid may have a seed of its own."""
    frozen, classes = backbones.load("tiny"), tasks.class_names("vessels")
    (split,) = inputs.load_splits(tmp_path / "data", "vessels", frozen, ("test",))
    with pvera.load(frozen.model, alone[0]).eval() as model:
        assert model.members[0].seed == 0
        data = split.data(frozen, torch.device("cpu"))
        samples = {}
        for seed in (0, 5):
            samples[seed] = analyses.sample_scores(model, data, 3, seed)
    for seed, record in ((0, {}), (5, {"seed": 5})):
        saved = SavedAdapter(alone[0], frozen, record)
        table = predict_images(saved, split, classes, 3).table
        expected = samples[seed].max(axis=2).std(axis=0, ddof=1)
        np.testing.assert_allclose(table["draws_sd"], expected, rtol=1e-4)
    assert not np.allclose(samples[0], samples[5])


def test_a_class_without_test_images_keeps_its_row(alone, tmp_path, capsys):
    lists = tmp_path / "data/vessels/test.txt"
    lists.write_text("".join(line for line in lists.open() if not line.endswith(" 2\n")))
    file = tmp_path / "m.json"
    _, output, _ = scripts.outcome("evaluate", capsys, *alone, "--metrics", file)
    name = tasks.class_names("vessels")[2]
    assert re.search(rf"^{re.escape(name)} +0 +0 +–$", output, re.MULTILINE)
    row = json.loads(file.read_text())["classes"][2]
    assert row == {"class": name, "images": 0, "correct": 0, "accuracy": None}


# An adapter and its record


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A random adapter for KITTI with its record, and the options that evaluate it on the CPU."""
    profile = make_profile(tmp_path, ["kitti"], seeds=[0], methods={"pvera": {"rank": 8}})
    monkeypatch.setattr(
        vtab, "find_differences", lambda root, name, check_files=True: []
    )  # as if it were right
    make_adapters(profile, tmp_path / "results")
    adapter = tmp_path / "results/mine/benchmark/tiny/kitti/pvera/seed0.safetensors"
    change_record(adapter, environment={"threads": 1}, config={"image_size": 32})
    return adapter, "--data", tmp_path / "data", "--device", "cpu"


def change_record(adapter: Path, **changes) -> None:
    file = adapter.with_suffix(".json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("script", ["evaluate", "predict"])
def test_an_adapter_that_is_not_the_one_of_its_record_is_refused(trained, script, tmp_path, capsys):
    adapter, *options = trained
    output = tmp_path / {"evaluate": "output.json", "predict": "output.csv"}[script]
    arguments = {
        "evaluate": (*options, "--metrics", output),
        "predict": (tmp_path / "data/kitti/images", "--device", "cpu", "--output", output),
    }[script]
    adapter.write_bytes(adapter.read_bytes() + b" ")
    message = scripts.refusal(script, capsys, adapter, *arguments)
    assert (
        f"{adapter}: is gone, or was changed after it was written" in message
        and not output.exists()
    )


FINDINGS = ["val200: 4 images, not 200"]


@pytest.mark.parametrize("trained_on", [[], FINDINGS, ["test: no such file"]])
@pytest.mark.parametrize("present", [[], FINDINGS])
def test_the_adapter_of_another_copy_is_refused(trained, trained_on, present, tmp_path, capsys):
    """Of data that differ from VTAB-1k and were accepted, and of those that are right."""
    (tmp_path / "data" / vtab.ACCEPTED_FILE).write_text(
        json.dumps({"kitti": present} if present else {})
    )
    change_record(trained[0], **({"data_differs": trained_on} if trained_on else {}))
    if trained_on == present:
        status, output, _ = scripts.outcome("evaluate", capsys, *trained)
        assert status == 0 and ("kitti (differs from VTAB-1k)" in output) == bool(present)
    else:
        message = scripts.refusal("evaluate", capsys, *trained)
        assert "data/kitti is another copy than that of the adapter's training" in message


# One's own pictures


SPLIT, OTHER = ({"given": [], "drawn": custom.SHARES, "seed": seed} for seed in (5, 0))


@pytest.mark.parametrize(
    "pictures_sha256, split, name, message",
    [
        ("same", SPLIT, "mine", ""),
        ("same", SPLIT, "another", ""),
        ("same", OTHER, "mine", "mine is split otherwise than in the adapter's training"),
        (
            "same",
            OTHER,
            "another",
            "another is split otherwise .*: split it as then, or train again",
        ),
        (
            "new",
            SPLIT,
            "mine",
            "the pictures of mine have changed since the adapter's training: restore them",
        ),
        ("new", SPLIT, "another", ""),
    ],
)
def test_images_that_an_adapter_may_have_been_trained_on_are_refused(
    pictures_sha256, split, name, message
):
    record = {"dataset": "mine", "own_data": {"pictures_sha256": "same", "split": SPLIT}}
    described = {"pictures_sha256": pictures_sha256, "split": split}
    with pytest.raises(InputError, match=message) if message else nullcontext():
        require_unseen(record, described, name)
    for known, data_set in (({"dataset": "digits"}, described), (record, None)):
        require_unseen(known, data_set, name)


EUROSAT = RESULTS / "vtab_tiny/benchmark/tiny/eurosat/pvera/seed0.safetensors"
NUCLEI = ADAPTERS / "nuclei/vera/seed1.safetensors"
REFUSED = {
    "no file": (["/none.safetensors", "--backbone", "tiny"], "/none.safetensors: no such file"),
    "data set": ([NUCLEI, "--data-set", "nine"], "unknown data set 'nine'"),
    "other data set": (
        [NUCLEI, "--data-set", "vessels"],
        "was trained on nuclei; it does not know the classes of",
    ),
    "data": ([EUROSAT], "eurosat is not VTAB-1k's EuroSAT: no such folder"),
    "texts": ([NUCLEI, "--data-set", "rte"], "'rte' is a data set of texts"),
    "draws": ([NUCLEI, "--draws", "4"], "has no distribution"),
    "one draw": ([NUCLEI, "--draws", "1"], "--draws: must be at least 2, not 1"),
    "backbone": ([NUCLEI, "--backbone", "dinov9"], "unknown backbone 'dinov9'"),
    "other backbone": (
        [NUCLEI, "--backbone", "vit_tiny_patch16_224"],
        "get model.safetensors from",
    ),
    "output": (
        ["/none.safetensors", "--metrics", "/dev/null/m.json"],
        "cannot write /dev/null",
    ),  # before anything
    "record": (
        ["/none.safetensors", "--metrics", "/none.json"],
        "/none.json is the record of the adapter",
    ),
}


def test_unsuitable_input_is_one_line(tmp_path, capsys, monkeypatch):
    make_profile(tmp_path, ["nuclei"])

    def offline(*_, **__):
        raise OSError("no network")

    for case, (arguments, message) in REFUSED.items():
        with monkeypatch.context() as patch:
            if "backbone" in case:
                patch.setattr("timm.create_model", offline)
            assert message in scripts.refusal(
                "evaluate", capsys, *arguments, "--data", tmp_path / "data"
            ), case


def test_the_record_is_known_by_other_paths_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for adapter, file in (("a.safetensors", tmp_path / "a.json"), (tmp_path / "a.bin", "a.json")):
        message = scripts.refusal("evaluate", capsys, adapter, "--metrics", file)
        assert f"{file} is the record of the adapter" in message


# Pictures without labels, wherever they lie and whatever their names and states


NAMES = sorted(photographs.CLASSES)
BACKBONE = ("--backbone", "tiny")
NAMED = (*BACKBONE, "--classes", *NAMES)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """A random adapter without a record."""
    adapter = tmp_path_factory.mktemp("adapter") / "alone.safetensors"
    pvera.save(
        perturb(pvera.adapt(backbones.load("tiny").model, pvera.PVeRA(rank=8), 4), scale=0.3),
        adapter,
    )
    return adapter


@pytest.fixture
def new(pictures, tmp_path):
    """A folder with twenty pictures."""
    folder = tmp_path / "new" / "deeper"
    folder.mkdir(parents=True)
    for path in sorted(pictures.rglob("*.*"))[::4]:
        shutil.copy(path, folder / f"{path.parent.name} {path.name}")
    return folder


def predicted(capsys, tmp_path, *arguments, status=0) -> tuple[pd.DataFrame, str]:
    """Return the table that predict.py wrote, and its errors."""
    output = tmp_path / "new.csv"
    ended, printed, errors = scripts.outcome("predict", capsys, *arguments, "--output", output)
    assert ended == status, errors
    table = pd.read_csv(output)
    assert f"{output}: {len(table)} pictures" in printed
    return table, errors


def test_predictions_are_those_of_evaluating(adapter, new, pictures, tmp_path, capsys):
    table, _ = predicted(capsys, tmp_path, adapter, new.parent, *NAMED, "--draws", 4)
    custom.install(tmp_path, "mine", pictures)
    frozen = backbones.load("tiny")
    (split,) = inputs.load_splits(tmp_path, "mine", frozen, ["test"])
    known = predict_images(SavedAdapter(adapter, frozen, {}), split, NAMES).table
    known.index = [path.removeprefix("images/").replace("/", " ") for path in split.names]
    table.index = [Path(path).name for path in table.path]
    both = known.index.intersection(table.index)
    assert (
        len(table) == 20
        and len(both) > 2
        and (known.prediction[both] == table.prediction[both]).all()
    )
    assert np.allclose(known.confidence[both], table.confidence[both], atol=1e-4)
    draws = ["draws_sd", "draws_prediction", "interval_low", "interval_high"]
    assert list(table) == ["path", "prediction", "confidence", *draws]
    assert (table.draws_sd > 0).all() and (table.interval_low < table.interval_high).all()
    few, _ = predicted(capsys, tmp_path, adapter, new.parent, *NAMED, "--draws", 2)
    assert few.interval_low.min() == 0 and few.interval_high.max() == 1, (
        "a score has no other values"
    )
    assert set(table.draws_prediction) <= set(NAMES)


def test_pictures_that_cannot_be_read_are_named(adapter, new, tmp_path, capsys):
    broken = sorted(new.glob("*.*"))[3:5]
    for path in broken:
        path.write_bytes(path.read_bytes()[:100])
    output = tmp_path / "new.csv"
    message = scripts.refusal("predict", capsys, adapter, new, *NAMED, "--output", output)
    assert all(f"image {path} cannot be read" in message for path in broken)
    assert not output.exists()


def test_files_and_what_is_left_out(adapter, new, tmp_path, capsys):
    elsewhere = shutil.copytree(new, tmp_path / "elsewhere")
    shutil.copytree(elsewhere, new / "@eaDir")
    (new / "more").symlink_to(elsewhere)
    (new / "notes.txt").write_text("none")
    table, errors = predicted(capsys, tmp_path, adapter, new, *NAMED)
    assert len(table) == 40 and errors == "left out: 1 files that Pillow does not read\n"
    odd = next(new.glob("*.png")).rename(
        new / "@eaDir" / os.fsdecode(b"caf\xe9.png")
    )  # hidden, but named
    table, _ = predicted(capsys, tmp_path, adapter, odd, *NAMED)
    assert table.path.tolist() == [rf"{new}/@eaDir/caf\udce9.png"]
    output = ("--output", tmp_path / "refused.csv")
    assert "Name them in the order" in scripts.refusal(
        "predict", capsys, adapter, odd, *BACKBONE, *output
    )
    for wrong, message in (
        (tmp_path / "none", "does not exist"),
        (new / "notes.txt", "cannot be read"),
    ):
        assert message in scripts.refusal("predict", capsys, adapter, wrong, *NAMED, *output)


def test_an_output_replaces_no_input(adapter, pictures, tmp_path, capsys):
    """Pictures, weights, lists and records have other suffixes than tables and metrics."""
    picture = next(pictures.rglob("*.jpg"))
    record = tmp_path / "a.json"
    linked_adapter = shutil.copy(adapter, tmp_path / "a.safetensors")
    record.write_text("{}")
    link = tmp_path / "link.csv"
    link.symlink_to(picture)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}
    for output in (picture, link, record, linked_adapter, tmp_path / "test.txt"):
        predict_one = (linked_adapter, picture, *NAMED, "--output", output)
        refused = scripts.refusal("predict", capsys, *predict_one)
        assert f"--output: must be a .csv file, not {output}" in refused
    for output, message in ((picture, "must be a .json file"), (record, "is the record of")):
        refused = scripts.refusal("evaluate", capsys, linked_adapter, "--metrics", output)
        assert message in refused
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}


def test_pipes_may_be_any_output(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    parser = Parser(None)
    parser.add_output("--output", suffix=".csv")
    assert parser.parse_args(["--output", str(pipe)]).output == pipe


# An adapter without its record


@pytest.fixture
def alone(tmp_path):
    """PVeRA with random weights, without a record, and the options that replace the record."""
    profile = make_profile(tmp_path, ["vessels"], seeds=[0], methods={"pvera": {"rank": 8}})
    make_adapters(profile, tmp_path / "results")
    adapter = tmp_path / "results/mine/benchmark/tiny/vessels/pvera/seed0.safetensors"
    data = ("--data", tmp_path / "data", "--data-set", "vessels")
    data += ("--backbone", "tiny", "--device", "cpu")
    return (shutil.copy(adapter, tmp_path / "alone.safetensors"), *data)
