"""The pretraining of the small backbone end to end, on a folder of two classes."""

import json
from io import BytesIO
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pretrain_tiny
import pytest
import safetensors
from PIL import Image

from pvera import backbones
from pvera.errors import InputError

NOISE = np.random.default_rng(0)


def member(mean, size=32):
    """Return a picture of noise around a mean."""
    pixels = NOISE.normal(mean, 40, (size, size, 3)).clip(0, 255).astype(np.uint8)
    content = BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


@pytest.fixture
def source(tmp_path):
    """2 x 40 pictures; brightness alone tells the classes apart."""
    for name, mean in {"dark": 90, "light": 160}.items():
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(40):
            (tmp_path / "source" / name / f"{number}.png").write_bytes(member(mean))
    return tmp_path / "source"


@pytest.fixture
def pretrain(source, monkeypatch):
    """Return a function that trains for a short time and returns the metadata of the weights."""
    for name, value in {"HELD_OUT": 8, "BATCH_SIZE": 16, "EPOCHS": 8}.items():
        monkeypatch.setattr(pretrain_tiny, name, value)

    def pretrain(output, source=source):
        monkeypatch.setattr("sys.argv", ["pretrain_tiny.py", "--source", str(source), "--output", str(output)])
        pretrain_tiny.main()
        with safetensors.safe_open(output, "pt") as file:
            return {key: json.loads(value) for key, value in file.metadata().items()}

    return pretrain


def test_pretraining_ends_with_weights_that_load_and_repeats_bit_for_bit(pretrain, tmp_path, monkeypatch):
    output = tmp_path / "weights.safetensors"
    metadata = pretrain(output)
    assert metadata["weights_sha256"] == backbones.load("tiny", weights=output).weights_sha256
    assert metadata["held_out_accuracy"] > 0.8
    assert pretrain(tmp_path / "again.safetensors")["weights_sha256"] == metadata["weights_sha256"]
    monkeypatch.setattr(pretrain_tiny, "SEED", 1)
    other = pretrain(tmp_path / "other.safetensors")
    assert other["weights_sha256"] != metadata["weights_sha256"] and other["images_sha256"] == metadata["images_sha256"]
    before = output.read_bytes()
    with pytest.raises(InputError, match="exists: remove it"):
        pretrain(output)
    assert output.read_bytes() == before


def test_the_last_images_of_each_class_are_held_out(monkeypatch):
    monkeypatch.setattr(pretrain_tiny, "HELD_OUT", 8)
    mask = pretrain_tiny.split(np.repeat([0, 1], [20, 9]))
    assert np.flatnonzero(mask).tolist() == [*range(12, 20), *range(21, 29)]


def test_torchvision_images_are_ordered_by_class(monkeypatch):
    pixels, names = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1), ["airplane", "automobile"]
    downloaded = MagicMock(return_value=SimpleNamespace(classes=names, targets=[1, 0, 1, 0], data=pixels))
    monkeypatch.setattr(pretrain_tiny, "CIFAR10", downloaded)
    images, labels, classes = pretrain_tiny.read(None)
    downloaded.assert_called_once_with("data", train=True, download=True)
    assert images.ravel().tolist() == [1, 3, 0, 2] and labels.tolist() == [0, 0, 1, 1] and classes == names
    downloaded.side_effect = RuntimeError("no\nnetwork")
    with pytest.raises(InputError, match="CIFAR-10 cannot be read: no network; --source takes"):
        pretrain_tiny.read(None)


@pytest.mark.parametrize(
    "name, content, message",
    [("dark/portrait.png", member(100), "'portrait'"), ("light/40.png", member(100, size=48), "same shape"),
     ("light/41.png", b"no image", "light/41.png")],
)  # fmt: skip
def test_bad_input_is_one_line(name, content, message, source, pretrain, tmp_path):
    (source / name).write_bytes(content)
    with pytest.raises(InputError, match=f"source cannot be read: .*{message}.*; --source takes"):
        pretrain(tmp_path / "weights.safetensors")
