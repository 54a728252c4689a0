"""experiments/evaluate.py: the numbers that a run recorded, on known data sets and on one's own pictures."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import photographs
import pytest
import scripts
from photographs import copy, listed, pictures  # noqa: F401  fixtures
from PIL import Image
from sklearn.metrics import accuracy_score
from tiny import METHODS, make_vit, perturb
from trained import make_profile

import pvera
from pvera import InputError, backbones
from pvera.data import custom, inputs, suite, tasks
from pvera.study import results
from pvera.study.evaluation import Adapter, evaluate
from pvera.study.plan import list_runs
from pvera.study.protocol import PROTOCOLS
from pvera.study.training import TrainingConfig

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "results" / "mini"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of the demonstration suite, with its digits."""
    root = tmp_path_factory.mktemp("demo")
    suite.write(suite.RECIPES["digits"], suite.make(suite.RECIPES["digits"]), root, lambda count: None)
    return root


def files(folder) -> list:
    return ["--predictions", folder / "p.csv", "--metrics", folder / "m.json"]


@pytest.mark.parametrize("method", ["vera", "pvera"])
def test_a_committed_adapter_gives_its_recorded_numbers(method, digits, tmp_path, capsys):
    place = "benchmark/tiny/digits"
    adapter = MINI / place / method / "seed0.safetensors"
    draws = ["--draws", 16] if method == "pvera" else []
    status, output, errors = scripts.outcome("evaluate", capsys, adapter, "--data", digits, *draws, *files(tmp_path))
    assert status == 0, errors
    recorded = results.read(adapter.with_suffix(".json"))["test"]
    made = json.loads((tmp_path / "m.json").read_text())
    assert made["metrics"]["correct"] == recorded["correct"] and made["metrics"]["images"] == 2000
    # The last digits of a float belong to the processor; counts are exact.
    assert made["metrics"] == {name: pytest.approx(value, abs=2e-6) for name, value in recorded.items()}
    assert f"| Accuracy | {recorded['accuracy']:.6f} |" in output

    table, (scores, labels) = pd.read_csv(tmp_path / "p.csv"), results.read_predictions(adapter.with_suffix(".json"))
    assert np.array_equal(table["label"], labels)
    assert np.allclose(table["confidence"], scores.max(1), atol=1e-3)
    assert accuracy_score(table["label"], table["prediction"]) == recorded["accuracy"]
    assert -np.log(table["label_score"]).mean() == pytest.approx(recorded["nll"], abs=1e-6)
    per_class = pd.DataFrame(made["classes"]).set_index("class")
    assert per_class["accuracy"].tolist() == table.groupby("label")["correct"].mean().tolist()
    if draws:
        drawn = results.read_arrays(MINI / "uncertainty/tiny/digits/pvera/seed0.json")
        sixteen = list(drawn["draws"]).index(16)
        assert np.allclose(table["draws_sd"], drawn["sd"][sixteen], atol=1e-3), "the draws of the experiment"
        assert np.mean(table["draws_prediction"] == drawn["predicted"][sixteen]) > 0.999
        assert np.allclose(table["draws_correct"], drawn["accuracy"][sixteen], atol=0.07)
        assert (table["interval_high"] > table["interval_low"]).any()


def test_numbers_are_computed_and_not_read(tmp_path, capsys):
    """On other images under the data set's name."""
    make_profile(tmp_path, ["digits"])
    adapter = MINI / "benchmark/tiny/digits/vera/seed0.safetensors"
    status, output, errors = scripts.outcome("evaluate", capsys, adapter, "--data", tmp_path / "data", *files(tmp_path))
    assert status == 0, errors
    recorded, here = results.read(adapter.with_suffix(".json"))["test"], pd.read_csv(tmp_path / "p.csv")["correct"]
    assert len(here) == 40 and here.mean() != recorded["accuracy"] and f"| Accuracy | {here.mean():.6f} |" in output
    assert json.loads((tmp_path / "m.json").read_text())["metrics"]["correct"] == here.sum()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_method_gives_the_bits_of_its_run(protocol, tmp_path):
    """What training predicts with a grid, and evaluating with one adapter, is the same, merged or not."""
    profile = make_profile(
        tmp_path,
        ["vessels"],
        seeds=[3],
        protocol=protocol,
        methods={name: {} for name in METHODS} | {"vera": {"rank": 8}, "pvera": {"rank": 8}},
        training=TrainingConfig(epochs=1),
    )
    trainings = list_runs(profile, "benchmark", tmp_path / "r")
    for run in trainings:
        run.execute()
    frozen = backbones.load("tiny")
    (split,) = inputs.load(profile.data, "vessels", frozen, ("test",))
    assert len(trainings) == len(METHODS)
    for run in trainings:
        adapter = run.path.with_suffix(".safetensors")
        evaluation = evaluate(Adapter(adapter, frozen), split, tasks.class_names("vessels"))
        assert evaluation.metrics == results.read(run.path)["test"], run.method
        stored, _ = results.read_predictions(run.path)
        assert np.array_equal(evaluation.probabilities.astype(np.float16), stored), run.method


# One's own pictures


def trained_on(pictures, tmp_path, capsys, method="lora", epochs=1):
    """Train on the pictures, split by seed 5. Return the adapter and options: of scripts, data, data set."""
    data, named = ("--data", tmp_path / "data"), ("--data-set", f"mine={pictures}")
    options = (*data, "--results", tmp_path / "results", "--device", "cpu", "--workers", 1, "--methods", method)
    more = ("--split-seed", 5, "--epochs", epochs)
    status, _, errors = scripts.outcome("train", capsys, *options, *named, *more)
    assert status == 0, errors
    return tmp_path / f"results/own/benchmark/tiny/mine/{method}/seed0.safetensors", options, data, named


def metrics_of(capsys, tmp_path, *arguments) -> dict:
    status, _, errors = scripts.outcome("evaluate", capsys, *arguments, *files(tmp_path))
    assert status == 0, errors
    return json.loads((tmp_path / "m.json").read_text())["metrics"]


def test_own_pictures(pictures, tmp_path, capsys, in_process):
    trained, _, data, named = trained_on(pictures, tmp_path, capsys, epochs=3)
    recorded = results.read(trained.with_suffix(".json"))["test"]
    for more in ((), ("--data-set", "mine"), named):
        assert metrics_of(capsys, tmp_path, trained, *data, *more) == recorded
    assert set(pd.read_csv(tmp_path / "p.csv")["label"]) == set(photographs.CLASSES)

    # Without its record: the options say what it would.
    alone = shutil.copy(trained, tmp_path / "alone.safetensors")
    assert "Name it with --backbone" in scripts.refusal("evaluate", capsys, alone, *data, *named)
    assert "experiments/predict.py" in scripts.refusal("evaluate", capsys, alone, "--backbone", "tiny")
    assert metrics_of(capsys, tmp_path, alone, *data, *named, "--backbone", "tiny") == recorded


def test_pictures_without_labels(pictures, tmp_path, capsys):
    """In one folder, as a glob and as a file; the numbers are those of evaluating them."""
    adapter = tmp_path / "alone.safetensors"
    model = perturb(pvera.adapt(backbones.load("tiny").model, pvera.PVeRA(rank=8), 4), scale=0.3)
    pvera.save(model, adapter)
    options = (adapter, "--backbone", "tiny")
    named = ("--classes", *sorted(photographs.CLASSES))
    output, unlabelled = tmp_path / "new.csv", tmp_path / "unlabelled" / "deeper"
    unlabelled.mkdir(parents=True)
    for path, label, _ in listed(pictures)[::4]:
        shutil.copy(pictures / path, unlabelled / f"{label} {Path(path).name}")
    (unlabelled / "notes.txt").write_text("none")

    capsys.readouterr()
    scripts.execute("predict", *options, unlabelled.parent, *named, "--output", output)
    assert f"{output}: 20 pictures" in capsys.readouterr().out
    table = pd.read_csv(output)
    assert list(table) == ["path", "prediction", "confidence"] and set(table.prediction) <= set(photographs.CLASSES)
    metrics_of(capsys, tmp_path, *options, "--data-set", f"new={pictures}", "--data", tmp_path / "data")
    known = pd.read_csv(tmp_path / "p.csv")
    known.index = [path.removeprefix("images/").replace("/", " ") for path in known.path]
    predicted = table.set_axis([Path(path).name for path in table.path])
    both = known.index.intersection(predicted.index)
    assert len(both) > 2 and (known.prediction[both] == predicted.prediction[both]).all()
    assert np.allclose(known.confidence[both], predicted.confidence[both], atol=1e-4)

    scripts.execute("predict", *options, unlabelled / "c*.*", *named, "--output", output)
    some = [path for path in table.path if Path(path).name.startswith("c")]
    assert pd.read_csv(output).path.tolist() == sorted(some) and 0 < len(some) < 20
    capsys.readouterr()
    scripts.execute("predict", *options, table.path[0], *named, "--draws", 4)
    header, line = capsys.readouterr().out.splitlines()
    row = dict(zip(header.split(","), line.split(",")))
    assert (row["path"], row["prediction"]) == (table.path[0], table.prediction[0])
    assert float(row["draws_sd"]) > 0 and float(row["interval_low"]) < float(row["interval_high"])
    assert "Name them in the order" in scripts.refusal("predict", capsys, *options, table.path[0])
    for wrong, message in ((tmp_path / "none", "does not exist"), (unlabelled / "notes.txt", "cannot be read")):
        assert message in scripts.refusal("predict", capsys, *options, wrong, *named)


def test_an_adapter_is_not_tested_on_the_images_of_its_training(copy, tmp_path, capsys, in_process):
    """Another split and added pictures are refused; renaming and moving pictures changes nothing."""
    trained, options, data, named = trained_on(copy, tmp_path, capsys, "pvera")
    recorded = results.read(trained.with_suffix(".json"))["test"]
    for name in ("mine", "other"):
        made = metrics_of(capsys, tmp_path, trained, *data, "--data-set", f"{name}={copy}")
        assert made == recorded, "the record's seed splits them"

    custom.install(tmp_path / "data", "mine", copy, seed=0)  # as a training with another seed
    refusal = scripts.refusal("evaluate", capsys, trained, *data)
    assert "another split (stratified split from seed 0" in refusal
    assert "training (stratified split from seed 5" in refusal
    custom.install(tmp_path / "data", "other", copy, seed=0)
    refusal = scripts.refusal("evaluate", capsys, trained, *data, "--data-set", "other")
    assert "another split (stratified split from seed 0" in refusal, "under another name as well"
    lists = {file: file.read_bytes() for file in (tmp_path / "data/mine").glob("*.*")}
    assert "mine is split from seed 0: give the" in scripts.refusal("evaluate", capsys, trained, *data, *named)
    assert lists == {file: file.read_bytes() for file in lists}, "nothing was overwritten"
    status, _, errors = scripts.outcome("analyse", capsys, *options, *named)
    last = errors.splitlines()[-1]  # after the bar
    assert status == 2 and "seed0.json: was trained on other images or splits of mine" in last
    assert not list((tmp_path / "results/own/uncertainty").rglob("*.json"))

    picture = next((copy / "cat").iterdir())
    picture.rename(picture.with_stem("renamed"))
    named = ("--data-set", f"mine={copy.rename(tmp_path / 'moved')}", "--data", tmp_path / "new")
    assert metrics_of(capsys, tmp_path, trained, *named) == recorded
    Image.new("RGB", (40, 40), (1, 2, 3)).save(tmp_path / "moved/cat/added.png")
    refusal = scripts.refusal("evaluate", capsys, trained, *named)
    assert "mine has other pictures or another split" in refusal and "type --data-set NEW=FOLDER" in refusal
    (tmp_path / "moved/cat").rename(tmp_path / "moved/lion")
    refusal = scripts.refusal("evaluate", capsys, trained, "--data-set", f"zoo={tmp_path / 'moved'}", *named[2:])
    assert "it does not know the classes of zoo" in refusal


NUCLEI = MINI / "benchmark/tiny/nuclei/vera/seed0.safetensors"
REFUSED = {
    "no file": (["/none.safetensors", "--backbone", "tiny"], "/none.safetensors: no such file"),
    "data set": ([NUCLEI, "--data-set", "nine"], "unknown data set 'nine'"),
    "other data set": ([NUCLEI, "--data-set", "vessels"], "was trained on nuclei; it does not know the classes of"),
    "texts": ([NUCLEI, "--data-set", "rte"], "'rte' is a data set of texts"),
    "draws": ([NUCLEI, "--draws", "4"], "has no distribution"),
    "one draw": ([NUCLEI, "--draws", "1"], "--draws: must be at least 2, not 1"),
    "precision": ([NUCLEI, "--precision", "float8"], "--precision: invalid choice: 'float8'"),
    "backbone": ([NUCLEI, "--backbone", "dinov9"], "unknown backbone 'dinov9'"),
    "other backbone": ([NUCLEI, "--backbone", "vit_tiny_patch16_224"], "get model.safetensors from"),
    "output": (["/none.safetensors", "--metrics", "/dev/null/m.json"], "cannot write /dev/null"),  # before anything
}


def test_unsuitable_input_is_one_line(tmp_path, capsys, monkeypatch):
    make_profile(tmp_path, ["nuclei"])

    def offline(*_, **__):
        raise OSError("no network")

    for case, (arguments, message) in REFUSED.items():
        with monkeypatch.context() as patch:
            if "backbone" in case:
                patch.setattr("timm.create_model", offline)
            assert message in scripts.refusal("evaluate", capsys, *arguments, "--data", tmp_path / "data"), case


def test_an_adapter_that_was_changed_or_does_not_fit(tmp_path, capsys):
    for suffix in (".json", ".npz", ".safetensors"):
        shutil.copy(NUCLEI.with_suffix(suffix), tmp_path / f"seed0{suffix}")
    adapter = tmp_path / "seed0.safetensors"
    adapter.write_bytes(adapter.read_bytes()[:-1] + b"x")
    assert "was changed after it was written" in scripts.refusal("evaluate", capsys, adapter)
    written = json.loads(next((MINI / "language").rglob("seed0.json")).read_text())
    record = {key: value for key, value in written.items() if key not in {"files", "sha256"}}
    results.write(tmp_path / "seed0.json", record, adapter=b"adapter")
    assert "reads text" in scripts.refusal("evaluate", capsys, adapter)

    make_profile(tmp_path, ["vessels"])
    frozen = backbones.load("tiny")
    (split,) = inputs.load(tmp_path / "data", "vessels", frozen, ("test",))
    pvera.save(pvera.adapt(make_vit(), pvera.LoRA(rank=2), 4), tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="belongs to another backbone"):
        evaluate(Adapter(tmp_path / "other.safetensors", frozen), split, tasks.class_names("vessels"))
    with pytest.raises(InputError, match="knows [0-9]+ classes, the data set has 9"):
        evaluate(Adapter(NUCLEI, frozen), split, list("abcdefghi"))
    assert not getattr(frozen.model, "_adapted", False), "the backbone is as it was"
