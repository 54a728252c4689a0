"""The pretraining of the small backbone end to end, on a folder of two classes."""

import json
from io import BytesIO

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


def test_pretraining_ends_with_weights_that_load_and_repeats_bit_for_bit(pretrain, tmp_path):
    output = tmp_path / "weights.safetensors"
    metadata = pretrain(output)
    assert metadata["weights_sha256"] == backbones.load("tiny", weights=output).weights_sha256
    assert metadata["held_out_accuracy"] > 0.8
    assert pretrain(tmp_path / "again.safetensors")["weights_sha256"] == metadata["weights_sha256"]
    before = output.read_bytes()
    with pytest.raises(InputError, match="exists: remove it"):
        pretrain(output)
    assert output.read_bytes() == before
