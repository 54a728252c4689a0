"""experiments/evaluate.py: the numbers that a run recorded, on known data sets and on one's own pictures."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scripts
from own_pictures import require_unseen
from photographs import copy, pictures  # noqa: F401  fixtures
from sklearn.metrics import accuracy_score
from tiny import METHODS
from trained import make_profile

from pvera import InputError, backbones
from pvera.data import custom, inputs, suite, tasks
from pvera.study import results
from pvera.study.evaluation import SavedAdapter, predict, score
from pvera.study.plan import list_runs
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


def test_a_committed_adapter_gives_its_recorded_numbers(digits, tmp_path, capsys):
    adapter = MINI / "benchmark/tiny/digits/pvera/seed0.safetensors"
    more = ("--data", digits, "--draws", 4, *files(tmp_path))
    status, output, errors = scripts.outcome("evaluate", capsys, adapter, *more)
    assert status == 0, errors
    recorded = results.read(adapter.with_suffix(".json"))["test"]
    numbers = json.loads((tmp_path / "m.json").read_text())
    assert numbers["metrics"]["correct"] == recorded["correct"] and numbers["metrics"]["images"] == 2000
    # The last digits of a float belong to the processor; counts are exact.
    assert numbers["metrics"] == {name: pytest.approx(value, abs=2e-6) for name, value in recorded.items()}
    assert f"| Accuracy | {recorded['accuracy']:.6f} |" in output

    table, (scores, labels) = pd.read_csv(tmp_path / "p.csv"), results.read_predictions(adapter.with_suffix(".json"))
    assert np.array_equal(table["label"], labels)
    assert np.allclose(table["confidence"], scores.max(1), atol=1e-3)
    assert accuracy_score(table["label"], table["prediction"]) == recorded["accuracy"]
    assert -np.log(table["label_score"]).mean() == pytest.approx(recorded["nll"], abs=1e-6)
    per_class = pd.DataFrame(numbers["classes"]).set_index("class")
    assert per_class["accuracy"].tolist() == table.groupby("label")["correct"].mean().tolist()
    drawn = results.read_arrays(MINI / "uncertainty/tiny/digits/pvera/seed0.json")
    four = list(drawn["draws"]).index(4)
    assert np.allclose(table["draws_sd"], drawn["sd"][four], atol=1e-3), "the draws of the experiment"
    assert np.mean(table["draws_prediction"] == drawn["predicted"][four]) > 0.999
    assert np.mean(table["draws_correct"] == drawn["accuracy"][four]) > 0.999


def test_every_method_gives_the_bits_of_its_run(tmp_path):
    """What training predicts with a grid, and evaluating with one adapter, is the same, merged or not."""
    profile = make_profile(
        tmp_path,
        ["vessels"],
        seeds=[3],
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
        evaluation = score(predict(SavedAdapter(adapter, frozen), split, tasks.class_names("vessels")), split.labels)
        assert evaluation.metrics == results.read(run.path)["test"], run.method
        stored, _ = results.read_predictions(run.path)
        assert np.array_equal(evaluation.predictions.probabilities.astype(np.float16), stored), run.method


# One's own pictures


SPLIT, OTHER = ({"given": [], "drawn": custom.SHARES, "seed": seed} for seed in (5, 0))


@pytest.mark.parametrize(
    "pictures_sha256, split, name, message",
    [
        ("same", SPLIT, "mine", ""),
        ("same", SPLIT, "another", ""),
        ("same", OTHER, "mine", "mine has another split .stratified split from seed 0.*training .stratified .* seed 5"),
        ("same", OTHER, "another", "another has another split .*: type --data-set NEW=FOLDER"),
        ("new", SPLIT, "mine", "the pictures of mine have changed since the adapter's training: restore them"),
        ("new", SPLIT, "another", ""),
    ],
)
def test_images_that_an_adapter_may_have_been_trained_on_are_refused(pictures_sha256, split, name, message):
    record = {"dataset": "mine", "own_data": {"pictures_sha256": "same", "split": SPLIT}}
    described = {"pictures_sha256": pictures_sha256, "split": split}
    with pytest.raises(InputError, match=message) if message else nullcontext():
        require_unseen(record, described, name)
    for known, data_set in (({"dataset": "digits"}, described), (record, None)):
        require_unseen(known, data_set, name)


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
