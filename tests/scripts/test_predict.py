"""experiments/predict.py: pictures without labels, wherever they lie and whatever their names and states."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import photographs
import pytest
import scripts
from photographs import listed, pictures  # noqa: F401  a fixture
from tiny import perturb

import pvera
from pvera import backbones
from pvera.data import custom, inputs
from pvera.study.evaluation import SavedAdapter, predict, score

CLASSES = sorted(photographs.CLASSES)
BACKBONE = ("--backbone", "tiny")
NAMED = (*BACKBONE, "--classes", *CLASSES)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """A random adapter without a record."""
    adapter = tmp_path_factory.mktemp("adapter") / "alone.safetensors"
    pvera.save(perturb(pvera.adapt(backbones.load("tiny").model, pvera.PVeRA(rank=8), 4), scale=0.3), adapter)
    return adapter


@pytest.fixture
def new(pictures, tmp_path):
    """A folder with twenty pictures."""
    folder = tmp_path / "new" / "deeper"
    folder.mkdir(parents=True)
    for path, label, _ in listed(pictures)[::4]:
        shutil.copy(pictures / path, folder / f"{label} {Path(path).name}")
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
    (split,) = inputs.load(tmp_path, "mine", frozen, ["test"])
    evaluation = score(predict(SavedAdapter(adapter, frozen), split, CLASSES), split.labels)
    known = evaluation.table().set_index(
        pd.Index([path.removeprefix("images/").replace("/", " ") for path in split.names])
    )
    table.index = [Path(path).name for path in table.path]
    both = known.index.intersection(table.index)
    assert len(table) == 20 and len(both) > 2 and (known.prediction[both] == table.prediction[both]).all()
    assert np.allclose(known.confidence[both], table.confidence[both], atol=1e-4)
    draws = ["draws_sd", "draws_prediction", "interval_low", "interval_high"]
    assert list(table) == ["path", "prediction", "confidence", *draws]
    assert (table.draws_sd > 0).all() and (table.interval_low < table.interval_high).all()
    assert set(table.draws_prediction) <= set(CLASSES)


def test_a_picture_that_cannot_be_read_is_named_and_the_rest_is_written(adapter, new, tmp_path, capsys):
    whole, _ = predicted(capsys, tmp_path, adapter, new, *NAMED, "--draws", 2)
    for index in (3, 7):
        Path(whole.path[index]).write_bytes(Path(whole.path[index]).read_bytes()[:100])
    table, errors = predicted(capsys, tmp_path, adapter, new, *NAMED, "--draws", 2, status=1)
    assert table.equals(whole.drop([3, 7]).reset_index(drop=True)), "also the draws of the others"
    assert errors.count("\n") == 1 and all(f"image {whole.path[index]} cannot be read" in errors for index in (3, 7))


def test_files_globs_and_what_is_left_out(adapter, new, tmp_path, capsys):
    elsewhere = shutil.copytree(new, tmp_path / "elsewhere")
    shutil.copytree(elsewhere, new / "@eaDir")
    (new / "more").symlink_to(elsewhere)
    (new / "notes.txt").write_text("none")
    table, errors = predicted(capsys, tmp_path, adapter, new, *NAMED)
    assert len(table) == 40 and errors == "left out: 20 hidden, 1 without an image's suffix\n"
    table, _ = predicted(capsys, tmp_path, adapter, new.parent / "**" / "*.png", *NAMED)
    assert len(table) == 2 * len(list(new.glob("*.png"))) > 0
    odd = next(new.glob("*.png")).rename(new / "@eaDir" / os.fsdecode(b"caf\xe9.png"))  # hidden, but named
    table, _ = predicted(capsys, tmp_path, adapter, odd, *NAMED)
    assert table.path.tolist() == [rf"{new}/@eaDir/caf\udce9.png"]
    assert "Name them in the order" in scripts.refusal("predict", capsys, adapter, odd, *BACKBONE)
    for wrong, message in ((tmp_path / "none", "does not exist"), (new / "notes.txt", "cannot be read")):
        assert message in scripts.refusal("predict", capsys, adapter, wrong, *NAMED)
