"""The pretraining of the small backbone end to end, on a folder of two classes."""

import json

import numpy as np
import pretrain_tiny
import pytest
import safetensors
from PIL import Image

from pvera import backbones
from pvera.errors import InputError


def test_pretraining_ends_with_weights_that_load_and_repeats_bit_for_bit(tmp_path, monkeypatch):
    """On 2 x 24 pictures of noise; brightness alone tells the classes apart."""
    noise = np.random.default_rng(0)
    for name, mean in {"dark": 90, "light": 160}.items():
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(24):
            pixels = noise.normal(mean, 40, (32, 32, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "source" / name / f"{number}.png")
    for name, value in {"HELD_OUT": 8, "BATCH_SIZE": 16, "EPOCHS": 8}.items():
        monkeypatch.setattr(pretrain_tiny, name, value)

    def pretrain(output) -> dict:
        """Train for a short time and return the metadata of the weights."""
        arguments = ["pretrain_tiny.py", "--source", tmp_path / "source", "--output", output]
        monkeypatch.setattr("sys.argv", list(map(str, arguments)))
        pretrain_tiny.main()
        with safetensors.safe_open(output, "pt") as file:
            return {key: json.loads(value) for key, value in file.metadata().items()}

    output = tmp_path / "weights.safetensors"
    metadata = pretrain(output)
    assert metadata["weights_sha256"] == backbones.load("tiny", weights=output).weights_sha256
    assert metadata["held_out_accuracy"] > 0.8
    assert pretrain(tmp_path / "again.safetensors")["weights_sha256"] == metadata["weights_sha256"]
    before = output.read_bytes()
    with pytest.raises(InputError, match="exists: remove it"):
        pretrain(output)
    assert output.read_bytes() == before
