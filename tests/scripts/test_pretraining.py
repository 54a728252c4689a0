"""Weights: the pretraining of the small backbone, and the conversion of a ViT's from ONNX."""

import numpy as np
import onnx
import pretrain_tiny
import pytest
import safetensors
import safetensors.torch
import scripts
import torch
from PIL import Image

from pvera import backbones
from pvera.errors import InputError


def test_pretraining_ends_with_weights_that_load_and_repeats_bit_for_bit(tmp_path, monkeypatch):
    """On 2 x 24 pictures of noise; brightness alone tells the classes apart.

    The last eight of each class, which are held out, have the other one's: all predictions of them
    are wrong.
    """
    noise = np.random.default_rng(0)
    for name, mean, other in (("dark", 90, 160), ("light", 160, 90)):
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(24):
            pixels = (
                noise.normal(mean if number < 16 else other, 40, (32, 32, 3))
                .clip(0, 255)
                .astype(np.uint8)
            )
            Image.fromarray(pixels).save(tmp_path / "source" / name / f"{number}.png")
    for name, value in {"HELD_OUT": 8, "BATCH_SIZE": 16, "EPOCHS": 8}.items():
        monkeypatch.setattr(pretrain_tiny, name, value)

    monkeypatch.setattr("sys.argv", ["pretrain_tiny.py", "--source", str(tmp_path / "source")])
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "vit_tiny_patch8_32.safetensors"

    def pretrain() -> dict:
        """Train for a short time and return the metadata of the weights."""
        pretrain_tiny.main()
        with safetensors.safe_open(output, "pt") as file:
            return file.metadata()

    metadata = pretrain()
    weights_sha256 = backbones.load("tiny", weights=output).weights_sha256
    assert float(metadata["held_out_accuracy"]) < 0.2
    with pytest.raises(InputError, match="exists: remove it"):
        pretrain()
    output.unlink()
    assert pretrain() == metadata
    assert backbones.load("tiny", weights=output).weights_sha256 == weights_sha256


# Conversion


SMALL = ("vit_small_patch14_dinov2", {"img_size": 28, "embed_dim": 12})
TOP = {
    "cls_token": "embeddings.cls_token",
    "patch_embed.proj.": "embeddings.patch_embeddings.projection.",
}
LAYER = {
    "attn.proj.": "attention.output.dense.",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
}


def write(file, state) -> None:
    """Write a graph of weights: matrices and positions without names, in nodes that have them."""
    nodes, initializers = [], []

    def add(name, tensor, read_by=""):
        held = f"onnx::{len(initializers)}" if read_by else name
        initializers.append(onnx.numpy_helper.from_array(tensor.numpy(), held))
        layer = name.removesuffix(".weight").replace(".", "/").replace("layer/", "layer.")
        node = f"/{layer}/{read_by}"
        nodes.append(
            onnx.helper.make_node(
                read_by or "Add", ["x", held], ["y"], node if read_by else "/other/Add"
            )
        )

    for name, tensor in state.items():
        top, _, rest = name.rpartition("blocks.")
        for old, new in (LAYER if rest else {**TOP, "norm.": "layernorm."}).items():
            name = name.replace(old, new)
        name = f"backbone.{name.replace('blocks.', 'encoder.layer.')}"
        if "qkv" in name:
            for part, third in zip(("query", "key", "value"), tensor.chunk(3)):
                matrix = third.T.contiguous() if third.ndim == 2 else third
                named = name.replace("attn.qkv", f"attention.attention.{part}")
                add(named, matrix, "MatMul" if third.ndim == 2 else "")
        elif "pos_embed" in name:
            add("backbone.embeddings", tensor[:, 1:], "Reshape")
            add("backbone.embeddings", tensor[:, :1], "Concat")
        elif tensor.ndim == 2:
            add(name, tensor.T.contiguous(), "MatMul")
        else:
            add(name, tensor)
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "vit", [], [], initializers)), file
    )


def test_each_tensor_arrives_under_timms_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(backbones.NAMES, "dinov2_s", SMALL)
    state = backbones.load("dinov2_s", pretrained=False).model.state_dict()
    source = torch.Generator().manual_seed(0)
    state = {name: torch.randn(tensor.shape, generator=source) for name, tensor in state.items()}
    write(tmp_path / "vit.onnx", state)
    scripts.execute("convert_vits", tmp_path / "vit.onnx", tmp_path / "vit.safetensors")
    converted = safetensors.torch.load_file(tmp_path / "vit.safetensors")
    assert converted.keys() == state.keys() and all(
        torch.equal(converted[name], state[name]) for name in state
    )
    loaded = backbones.load("dinov2_s", weights=tmp_path / "vit.safetensors").model.state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state)

    del state["blocks.7.ls2.gamma"]
    write(tmp_path / "vit.onnx", state)
    refusal = scripts.refusal(
        "convert_vits", capsys, tmp_path / "vit.onnx", tmp_path / "other.safetensors"
    )
    assert (
        "it lacks: 'blocks.7.ls2.gamma'" in refusal
        and not (tmp_path / "other.safetensors").exists()
    )
    refusal = scripts.refusal("convert_vits", capsys, tmp_path / "vit.onnx", tmp_path / "vit.onnx")
    assert "must be a .safetensors file" in refusal
