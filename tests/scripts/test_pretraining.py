"""The pretraining of the small backbone end to end, on an archive of two classes."""

import json
import zipfile
from io import BytesIO
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pretrain_tiny
import pytest
import safetensors
import scripts
from PIL import Image

from pvera import backbones
from pvera.errors import InputError

SMALL = ("--held-out", 8, "--batch-size", 16, "--epochs", 8)


def member(source, mean, size=32):
    """Return a picture of noise around a mean."""
    pixels = source.normal(mean, 40, (size, size, 3)).clip(0, 255).astype(np.uint8)
    content = BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def members():
    """2 x 40 pictures; brightness alone tells the classes apart."""
    source, means = np.random.default_rng(0), {"dark": 90, "light": 160}
    return {f"{folder}/{n}.png": member(source, mean) for folder, mean in means.items() for n in range(40)}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def pretrain(source, output, *options):
    scripts.execute("pretrain_tiny", "--source", source, "--output", output, *SMALL, *options)
    with safetensors.safe_open(output, "pt") as file:
        return {key: json.loads(value) for key, value in file.metadata().items()}


def refused(capsys, says, source, output, *options):
    status, _, errors = scripts.outcome(
        "pretrain_tiny", capsys, "--source", source, "--output", output, *SMALL, *options
    )
    line = errors.splitlines()[-1]  # progress bars come before it
    assert status == 2 and line.startswith("error: ") and says in line, line


def test_pretraining_ends_with_weights_that_load_and_repeats_bit_for_bit(tmp_path, capsys):
    archive, output = write_zip(tmp_path / "source.zip", members()), tmp_path / "weights.safetensors"
    made = pretrain(archive, output)
    assert made["weights_sha256"] == backbones.load("tiny", weights=output).weights_sha256
    assert made["classes"] == ["dark", "light"]
    assert (made["training_images"], made["held_out_images"]) == (64, 16)
    assert made["held_out_accuracy"] > 0.8
    assert pretrain(archive, tmp_path / "again.safetensors")["weights_sha256"] == made["weights_sha256"]
    other = pretrain(archive, tmp_path / "other.safetensors", "--seed", 1)
    assert other["weights_sha256"] != made["weights_sha256"]
    before = output.read_bytes()
    refused(capsys, "exists: remove it", archive, output)
    assert output.read_bytes() == before


def test_torchvision_images_are_ordered_by_class(monkeypatch):
    pixels, names = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1), ["airplane", "automobile"]
    downloaded = MagicMock(return_value=SimpleNamespace(classes=names, targets=[1, 0, 1, 0], data=pixels))
    monkeypatch.setattr(pretrain_tiny, "CIFAR10", downloaded)
    images, labels, classes = pretrain_tiny.read(None)
    downloaded.assert_called_once_with("data", train=True, download=True)
    assert images.ravel().tolist() == [1, 3, 0, 2] and labels.tolist() == [0, 0, 1, 1] and classes == names
    downloaded.side_effect = RuntimeError("no\nnetwork")
    with pytest.raises(InputError, match=r"CIFAR-10 cannot be read \(no network\): --source takes"):
        pretrain_tiny.read(None)


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys):
    archive, output, noise = tmp_path / "source.zip", tmp_path / "weights.safetensors", np.random.default_rng(1)
    refused(capsys, "source.zip cannot be read", archive, output)
    odd = {
        "dark/portrait.png": (member(noise, 100), "'portrait'"),
        "light/40.png": (member(noise, 100, size=48), "same shape"),
        "light/41.png": (b"no image", "light/41.png"),
        "new/0.png": (member(noise, 100), "has only 1 image"),
    }
    for name, (content, says) in odd.items():
        refused(capsys, says, write_zip(archive, members() | {name: content}), output)
    refused(capsys, "--lr", archive, output, "--lr", "-1")
    assert not output.exists()
