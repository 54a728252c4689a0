"""The conversion of a ViT's weights from ONNX."""

import onnx
import safetensors.torch
import scripts
import torch

from pvera import backbones

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
