"""The pretraining of the small backbone end to end, on an archive of two classes."""

import json
import runpy
import time
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import safetensors
import scripts
import torch
from PIL import Image

from pvera import backbones, processes

SCRIPT = Path(__file__).parents[2] / "experiments" / "pretrain_tiny.py"
EPOCHS = 8


def metadata(path):
    with safetensors.safe_open(path, "pt") as file:
        return {key: json.loads(value) for key, value in file.metadata().items()}


# The pretraining, on 2 x 40 images of noise around each class's mean.


def member(rng, mean, size=32):
    pixels = rng.normal(mean, 40, (size, size, 3)).clip(0, 255).astype(np.uint8)
    content = BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


@pytest.fixture(scope="module")
def members():
    rng = np.random.default_rng(0)
    return {
        f"{folder}/{n:03}.png": member(rng, mean) for folder, mean in (("dark", 90), ("light", 160)) for n in range(40)
    }


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory, members):
    return write_zip(tmp_path_factory.mktemp("source") / "source.zip", members)


def arguments(source, output, *options):
    small = ("--held-out", "8", "--batch-size", "16", "--warmup-epochs", "0", "--epochs", str(EPOCHS))
    return ["--source", str(source), "--output", str(output), *small, *options]


def pretrain(*args):
    scripts.execute("pretrain_tiny", *arguments(*args))


@pytest.fixture(scope="module")
def trained(archive, tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "weights.safetensors"
    pretrain(archive, output)
    return output


@pytest.mark.xdist_group("fork server")
def test_pretraining_ends_with_weights_that_load(trained):
    made = metadata(trained)
    assert made["weights_sha256"] == backbones.load("tiny", weights=trained).weights_sha256
    assert made["classes"] == ["dark", "light"]
    assert (made["training_images"], made["held_out_images"]) == (64, 16)
    assert made["held_out_accuracy"] > 0.8  # brightness alone tells the classes apart
    assert [p.name for p in trained.parent.iterdir()] == [trained.name]


@pytest.mark.xdist_group("fork server")
@pytest.mark.slow
def test_pretraining_repeats_and_resumes_bit_for_bit(archive, trained, tmp_path, capsys):
    """A run is killed after its first epoch; another resumes from its checkpoint."""
    output = tmp_path / "weights.safetensors"
    checkpoint = output.with_suffix(".checkpoint")
    context = processes.context("pvera.study.runs")  # one server serves all tests of the group
    process = context.Process(target=pretrain, args=(archive, output))
    process.start()
    while not checkpoint.exists() and process.is_alive():
        time.sleep(0.005)
    process.kill()
    process.join()
    assert 1 <= torch.load(checkpoint, weights_only=True)["epoch"] < EPOCHS and not output.exists()
    pretrain(archive, output)
    assert "epoch 1:" not in capsys.readouterr().out
    assert metadata(output)["weights_sha256"] == metadata(trained)["weights_sha256"]


def refused(capsys, args, *says):
    status, _, errors = scripts.outcome("pretrain_tiny", capsys, *arguments(*args))
    error = errors.splitlines()[-1]  # progress bars come before it
    assert status == 2 and error.startswith("error: ") and all(s in error for s in says), error


@pytest.mark.xdist_group("fork server")
def test_existing_weights_are_kept(archive, trained, capsys):
    before = trained.read_bytes()
    refused(capsys, (archive, trained), "--force")
    assert trained.read_bytes() == before


def test_a_checkpoint_of_other_arguments_is_not_resumed(archive, tmp_path, capsys):
    output = tmp_path / "weights.safetensors"
    torch.save({"config": "{}"}, output.with_suffix(".checkpoint"))
    refused(capsys, (archive, output), "other arguments")
    output.with_suffix(".checkpoint").write_bytes(b"damaged")
    refused(capsys, (archive, output), "damaged")
    assert not output.exists()


@pytest.mark.parametrize(
    "option, value", [("--epochs", "0"), ("--lr", "-1"), ("--crop-scale", "2"), ("--held-out", "40")]
)
def test_arguments_out_of_range(archive, tmp_path, capsys, option, value):
    refused(capsys, (archive, tmp_path / "weights.safetensors", option, value), option)
    assert not any(tmp_path.iterdir())


ODD = {
    "name": ({"dark/portrait.png": b""}, "'dark/portrait.png' is not named"),
    "size": ({"light/040.png": member(np.random.default_rng(1), 100, size=48)}, "light/040.png has (48, 48)"),
    "broken": ({"light/040.png": b"no image"}, "cannot read light/040.png"),
    "large": ({"light/040.png": bytes(1 << 21)}, "light/040.png has 2097152 bytes"),
    "few": ({"new/000.png": member(np.random.default_rng(1), 100)}, "has only 1 image"),
}


@pytest.mark.parametrize("odd, says", ODD.values(), ids=ODD)
def test_archives_with_an_odd_member(members, tmp_path, capsys, odd, says):
    source = write_zip(tmp_path / "source.zip", members | odd)
    refused(capsys, (source, tmp_path / "weights.safetensors"), says)
    assert not list(tmp_path.glob("weights*"))


def test_torchvision_images_are_ordered_by_class(monkeypatch):
    class Downloaded:
        classes = ["airplane", "automobile"]
        targets = [1, 0, 1, 0]
        data = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)

        def __init__(self, folder, train, download):
            assert train and download

    monkeypatch.setattr("torchvision.datasets.CIFAR10", Downloaded)
    images, labels, classes = runpy.run_path(str(SCRIPT))["read_torchvision"]("folder")
    assert images.ravel().tolist() == [1, 3, 0, 2] and labels.tolist() == [0, 0, 1, 1]
    assert classes == Downloaded.classes


def test_sources_that_are_no_archive_of_classes(members, tmp_path, capsys):
    output = tmp_path / "weights.safetensors"
    refused(capsys, (tmp_path / "missing.zip", output), "missing.zip: no such file")
    (tmp_path / "text.zip").write_text("no archive")
    refused(capsys, (tmp_path / "text.zip", output), "text.zip: not a readable zip archive")
    write_zip(tmp_path / "one.zip", {k: v for k, v in members.items() if k.startswith("dark")})
    refused(capsys, (tmp_path / "one.zip", output), "two classes")
