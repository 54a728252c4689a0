"""`export_peft`: an adapter as PEFT loads it.

timm fuses queries, keys and values in one linear layer, which PEFT adapts as a whole. There the p
targets get parts of one adapter of rank p r:

    A' stacks their A's
    B' (3 w × p r) holds their B's in blocks
    λ_d stacks their d's
    λ_b = α b

Rows of B' and λ_b are zero for projections without an adapter. Letters are those of VeRA, whose d
is a vector: w is the width, r the rank of a target.

If queries, keys and values are separate layers, LoRA, DoRA and (IA)³ are copied. VeRA's A' and B'
then stack the pairs of all targets, unless they share one, and the λ_d of a target is zero in the
others' parts. PVeRA would sample unit noise there: its mean is exported, as VeRA.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pvera.adapters import IA3, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.adapters.base import require_finite
from pvera.encoders import EncoderLayer, require_whole_weights, uncompiled_name
from pvera.errors import InputError
from pvera.features import reads_text
from pvera.files import tensors_sha256, write_atomically
from pvera.grid import Member
from pvera.model import AdaptedModel, require_adapted
from pvera.peft.folder import (
    CONFIG,
    HEAD,
    PREFIX,
    TENSORS,
    require_projections_called,
    write_tensors,
)
from pvera.seeds import derive

#: Tensors by name, of each adapted module.
ModuleTensors = dict[nn.Module, dict[str, Tensor]]


class Export(NamedTuple):
    """What PEFT holds of an adapter."""

    #: PEFT's configuration beyond its defaults.
    config: dict[str, Any]
    modules: ModuleTensors
    #: Tensors of the whole model, by name.
    tensors: dict[str, Tensor]


@torch.no_grad()
def export_peft(model: AdaptedModel, folder: str | Path) -> None:
    """Write the one active member as `peft.PeftModel.from_pretrained` loads it.

    The head becomes PEFT's module to save `head` if the backbone is one of timm's classifiers: give
    PEFT timm's model made with `num_classes`. Otherwise it lies in head.safetensors, and reads the
    encoder's features. A head of your own (`num_classes=0`) is left out.

    Args:
        model: The adapted model.
        folder: Where to write.

    Raises:
        InputError: PEFT lacks the method or an option of it (docs/peft.md), or the head was
            replaced.
    """
    require_adapted(model, "export_peft")
    member = model.one_active_member("exported")
    layers = model.encoder_layers
    cls = type(member.method)
    if cls not in EXPORTS:
        titles = ", ".join(method.title for method in EXPORTS)
        raise InputError(f"PEFT has no {member.method.title}: export {titles}")
    require_projections_called(layers)
    require_whole_weights(model)
    config, modules, tensors = EXPORTS[cls](layers, member)

    names = {module: uncompiled_name(name) for name, module in model.backbone.named_modules()}
    config["target_modules"] = [names[module] for module in modules]
    config["inference_mode"] = True
    if cls is IA3:
        config["feedforward_modules"] = [names[layer.mlp_out] for layer in layers]
    for module, of_module in modules.items():
        for name, tensor in of_module.items():
            tensors[f"{PREFIX}{names[module]}.{name}"] = tensor

    member.require_original_head()
    head = dict(member.head.named_parameters()) if member.num_classes else {}
    in_fp32 = {name: tensor.float() for name, tensor in (tensors | head).items()}
    require_finite(in_fp32, "export_peft()")
    _write(Path(folder), config, tensors, head, model)


def _write(
    folder: Path,
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    head: Mapping[str, Tensor],
    model: AdaptedModel,
) -> None:
    """Write the folder, with the head inside the adapter's file or in one of its own."""
    backbone = model.backbone
    has_one_head = isinstance(getattr(backbone, "head", None), nn.Identity)  # as timm classifies
    inside = bool(head) and has_one_head and not hasattr(backbone, "head_dist")
    if inside:
        config["modules_to_save"] = ["head"]
        tensors |= {f"{PREFIX}head.{name}": tensor for name, tensor in head.items()}

    write_tensors(folder / TENSORS, tensors)
    # Of an earlier adapter. The configuration comes last: a folder without it is no adapter.
    for name in (CONFIG, HEAD):
        (folder / name).unlink(missing_ok=True)
    if head and not inside:
        metadata = {"pool": model.pool} if reads_text(backbone) else {}
        write_tensors(folder / HEAD, head, **metadata)
    write_atomically(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def _adapted(
    layers: Sequence[EncoderLayer], member: Member
) -> Iterator[tuple[Any, nn.Linear, str]]:
    """Yield each adapter with a linear layer that it changes, and the letters of that layer."""
    for layer, adapter in zip(layers, member.adapters, strict=True):
        for linear, letters in layer.qkv_linears:
            if set(adapter.targets) & set(letters):
                yield adapter, linear, letters


def _in_blocks(B: Tensor, output_indices: Sequence[int], count: int) -> Tensor:
    """Return B' (count w, p r) of B (p, r, w): block i has the rows of output_indices[i]."""
    p, r, w = B.shape
    rows = B.new_zeros(count, w, p, r)
    for i, j in enumerate(output_indices):
        rows[j, :, i] = B[i].T
    return rows.flatten(2).flatten(0, 1)


def _rows(values: Tensor, output_indices: Sequence[int], others: Tensor) -> Tensor:
    """Return `others` (q, w) with `values` (p, w) at the indices, flat (q w)."""
    rows = others.clone()
    rows[output_indices] = values
    return rows.flatten()


# One function per method


def _vera(layers: Sequence[EncoderLayer], member: Member) -> Export:
    """Export VeRA and PVeRA."""
    method: Any = member.method
    shared: Any = member.shared
    is_fused = layers[0].is_fused
    block_of_target, output_of_block = _blocks(method, is_fused)
    block_count = len(output_of_block)

    # PEFT's PVeRA samples every block with a trained σ. So it holds the mean, as VeRA, if σ is
    # fixed, or if a separate layer has blocks of other targets, which would be noise of σ = 1.
    has_noise = isinstance(method, PVeRA) and method.sigma is None
    is_sampled = has_noise and (is_fused or block_count == 1)
    key = "pvera" if is_sampled else "vera"
    halves = 2 if is_sampled else 1

    # The one A', B' of all layers. PVeRA's A has two halves, of which the first is the mean's.
    A = shared.A.reshape(member.dim, -1, len(shared.B), method.rank)[:, :halves]
    A = A.expand(-1, -1, block_count, -1)  # (w, halves, blocks, r)
    B = shared.B.expand(block_count, -1, -1)  # (blocks, r, w)
    pair = {"A": A.flatten(1).T, "B": _in_blocks(B, output_of_block, 3 if is_fused else 1)}

    # λ_d and λ_b of each linear layer; zero where the layer has no target.
    modules: ModuleTensors = {}
    for adapter, linear, letters in _adapted(layers, member):
        target_indices, output_indices = adapter.matching(letters)
        d = adapter.d.reshape(-1, len(method.targets), method.rank)[:halves]  # (halves, p, r)
        lambda_d = d.new_zeros(halves, block_count, method.rank)
        lambda_d[:, [block_of_target[i] for i in target_indices]] = d[:, target_indices]
        b = method.alpha * adapter.b[target_indices]
        zeros = b.new_zeros(len(letters), member.dim)
        modules[linear] = {
            f"{key}_lambda_d": lambda_d.flatten(),
            f"{key}_lambda_b": _rows(b, output_indices, zeros),
        }
    config = {"peft_type": key.upper(), "r": block_count * method.rank, "save_projection": True}
    # PEFT refuses a second adapter with another key, so the key stands for the one A', B'.
    config["projection_prng_key"] = derive(tensors_sha256(pair))
    tensors = {f"base_model.{key}_{name}": tensor for name, tensor in pair.items()}
    return Export(config, modules, tensors)


def _blocks(method: Any, is_fused: bool) -> tuple[list[int], list[int]]:
    """Return the block of A' and B' that each target has, and the output that each block writes.

    layers                  blocks          outputs of one linear layer
    fused                   one per target  3: "qkv"
    separate, a pair each   one per target  1
    separate, a pair shared one             1
    """
    targets = method.targets
    own_blocks = list(range(len(targets)))
    if is_fused:
        return own_blocks, ["qkv".index(letter) for letter in targets]
    block_of_target = own_blocks if method.pair == "position" else [0] * len(targets)
    return block_of_target, [0] * (max(block_of_target) + 1)


def _low_rank(layers: Sequence[EncoderLayer], member: Member) -> Export:
    """Export LoRA and DoRA."""
    method: Any = member.method
    is_dora = isinstance(method, DoRA)
    if is_dora and method.norm == "output":
        raise InputError(
            "PEFT's DoRA has no norms over the output dimension, as the official code has: use "
            'DoRA(norm="input")'
        )
    # A fused layer holds the parts of all targets, a separate one that of one.
    rank = method.rank * (len(method.targets) if layers[0].is_fused else 1)
    first: Any = member.adapters[0]
    alpha = first.scale * rank
    modules: ModuleTensors = {}
    for adapter, linear, letters in _adapted(layers, member):
        target_indices, output_indices = adapter.matching(letters)
        if is_dora:
            A, B = adapter.factors(target_indices)  # A and B, or Bᵀ and Aᵀ
        else:
            A, B = adapter.A[:, target_indices], adapter.B[target_indices]
        tensors = {
            "lora_A.weight": A.flatten(1).T,
            "lora_B.weight": _in_blocks(B, output_indices, len(letters)),
        }
        if is_dora:
            weights, _ = adapter.layer.split(linear, letters)
            norms = weights.to(adapter.m).norm(dim=2)
            tensors["lora_magnitude_vector"] = _rows(
                adapter.m[target_indices], output_indices, norms
            )
        modules[linear] = tensors
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_dora": is_dora}
    return Export(config, modules, {})


def _ia3(layers: Sequence[EncoderLayer], member: Member) -> Export:
    modules: ModuleTensors = {}
    for adapter, linear, letters in _adapted(layers, member):
        target_indices, output_indices = adapter.matching(letters)
        ones = adapter.l_kv.new_ones(len(letters), member.dim)
        scales = _rows(adapter.l_kv[target_indices], output_indices, ones)
        modules[linear] = {"ia3_l": scales.unsqueeze(1)}
    for layer, adapter in zip(layers, member.adapters, strict=True):
        modules[layer.mlp_out] = {"ia3_l": adapter.get_parameter("l_ff").unsqueeze(0)}
    return Export({"peft_type": "IA3"}, modules, {})


EXPORTS: dict[type[Method], Any] = {
    PVeRA: _vera,
    VeRA: _vera,
    LoRA: _low_rank,
    DoRA: _low_rank,
    IA3: _ia3,
}
