"""`export_peft`: an adapter as PEFT loads it.

timm fuses queries, keys and values in one linear layer, which PEFT adapts as a whole. There the p targets get parts of
one adapter of rank p r:

    A' stacks their A's,   B' (3 d × p r) holds their B's in blocks,   λ_d stacks their d's,   λ_b = α b

Rows of B' and λ_b are zero for positions without an adapter. Where queries, keys and values are separate layers, LoRA,
DoRA and (IA)³ are copied. VeRA's A' and B' then stack the pairs of all targets, unless they share one, and the λ_d of a
target is zero in the others' parts. PVeRA would draw unit noise there: its mean is exported, as VeRA.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters import IA3, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.adapters.base import matching
from pvera.backbones import weights_sha256
from pvera.encoder_io import reads_text
from pvera.encoders import EncoderLayer, require_whole, uncompiled_name
from pvera.errors import InputError
from pvera.members import Member
from pvera.model import AdaptedModel, require_adapted
from pvera.peft import folder as files
from pvera.seeding import derive

#: PEFT's configuration beyond its defaults, and the tensors by name.
Export = tuple[dict[str, Any], dict[str, Tensor]]


@torch.no_grad()
def export_peft(model: AdaptedModel, folder: str | Path) -> None:
    """Write the one active member of `model` to `folder`, as `peft.PeftModel.from_pretrained` loads it.

    The head becomes PEFT's module to save `head` where the backbone has a place for it: give PEFT timm's model made
    with `num_classes`. Otherwise it lies in head.safetensors, for the encoder's features.

    InputError for AdaptFormer, Bottleneck, linear probing and methods of one's own, which PEFT does not have, for DoRA
    with norms over the output dimension, as in the published protocol, and for timm's models with biases beside
    attn.qkv (BEiT, EVA), where PEFT's adapters have no effect.
    """
    require_adapted(model, "export_peft")
    member = model.only_member("exported")
    if type(member.method) not in EXPORTS:
        raise InputError(f"PEFT has no {member.method.title}: export {', '.join(kind.title for kind in EXPORTS)}")
    files.require_calls(model._layers)
    require_whole(model)
    names = {id(module): uncompiled_name(name) for name, module in model.backbone.named_modules()}
    config, tensors = EXPORTS[type(member.method)](model._layers, member, lambda module: names[id(module)])
    head = dict(member.head.named_parameters())
    if head and not isinstance(member.head, nn.Linear):
        raise InputError("PEFT's folder holds a linear head: save this one by itself")
    one_linear = isinstance(getattr(model.backbone, "head", None), nn.Identity)  # as timm's models classify
    inside = bool(head) and one_linear and not hasattr(model.backbone, "head_dist")
    if inside:
        config["modules_to_save"] = ["head"]
        tensors |= {f"{files.PREFIX}head.{name}": tensor for name, tensor in head.items()}
    config["inference_mode"] = True
    pool = model.pool if reads_text(model.backbone) else None
    files.write(folder, config, tensors, None if inside or not head else head, pool)


def blocks(B: Tensor, at: list[int], count: int) -> Tensor:
    """Return B' (count d, p r) of B (p, r, d): block i has the rows of position at[i], out of `count`."""
    p, r, d = B.shape
    rows = B.new_zeros(count, d, p, r)
    for i, j in enumerate(at):
        rows[j, :, i] = B[i].T
    return rows.flatten(2).flatten(0, 1)


def _vera(layers: list[EncoderLayer], member: Member, name: Callable[[nn.Module], str]) -> Export:
    """Export VeRA and PVeRA."""
    method: Any = member.method
    fused, count = len(layers[0].projections) == 1, len(method.targets)
    # PEFT has no fixed σ, and λ_d of separate pairs has parts that must draw nothing: it holds the mean alone.
    draws = isinstance(method, PVeRA) and method.sigma is None and (fused or method.pair == "shared" or count == 1)
    key, halves = ("pvera", 2) if draws else ("vera", 1)
    shared: Any = member.shared
    A = shared.A.reshape(member.dim, -1, len(shared.B), method.rank)[:, :halves]  # (d, halves, pairs, r)
    # One module holds one λ_d: its targets read different parts. So do targets with different pairs.
    parts = count if fused or method.pair == "position" else 1
    A, B = A.expand(-1, -1, parts, -1), shared.B.expand(parts, -1, -1)
    blocks_at = ["qkv".index(p) for p in method.targets] if fused else [0] * parts
    tensors = {
        f"base_model.{key}_A": A.flatten(1).T,
        f"base_model.{key}_B": blocks(B, blocks_at, 3 if fused else 1),
    }
    modules = []
    adapter: Any
    for layer, adapter in zip(layers, member.layers, strict=True):
        d, b = adapter.d.reshape(-1, count, method.rank)[:halves], method.alpha * adapter.b
        for linear, positions in layer.projections:
            targets, at = matching(method.targets, positions)
            if not targets:
                continue
            lambda_d, lambda_b = d.new_zeros(halves, parts, method.rank), b.new_zeros(len(positions), member.dim)
            lambda_d[:, [i % parts for i in targets]], lambda_b[at] = d[:, targets], b[targets]
            modules.append(name(linear))
            start = f"{files.PREFIX}{modules[-1]}.{key}_lambda"
            tensors |= {f"{start}_d": lambda_d.flatten(), f"{start}_b": lambda_b.flatten()}
    config = {"peft_type": key.upper(), "r": parts * method.rank, "target_modules": modules, "save_projection": True}
    # A model of PEFT has one A', B'. PEFT refuses a second adapter by this key, so it stands for their numbers.
    config["projection_prng_key"] = derive(weights_sha256({x: tensors[f"base_model.{key}_{x}"] for x in "AB"}))
    return config, tensors


def _low_rank(layers: list[EncoderLayer], member: Member, name: Callable[[nn.Module], str]) -> Export:
    """Export LoRA and DoRA."""
    method: Any = member.method
    dora = isinstance(method, DoRA)
    if dora and method.norm == "output":
        raise InputError(
            "PEFT's DoRA has no norms over the output dimension, as the published protocol's: use DoRA(norm=\"input\")"
        )
    tensors, modules, rank = {}, [], 0
    adapter: Any
    for layer, adapter in zip(layers, member.layers, strict=True):
        for linear, positions in layer.projections:
            targets, at = matching(method.targets, positions)
            if not targets:
                continue
            A, B = adapter.factors(targets) if dora else (adapter.A[:, targets], adapter.B[targets])
            rank = len(targets) * method.rank
            modules.append(name(linear))
            start = files.PREFIX + modules[-1]
            tensors[f"{start}.lora_A.weight"] = A.flatten(1).T
            tensors[f"{start}.lora_B.weight"] = blocks(B, at, len(positions))
            if dora:
                weight, _ = layer.per_position(linear, positions)
                magnitudes = weight.to(adapter.m).norm(dim=2)
                magnitudes[at] = adapter.m[targets]
                tensors[f"{start}.lora_magnitude_vector"] = magnitudes.flatten()
    alpha = adapter.scale * rank
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": modules, "use_dora": dora}
    return config, tensors


def _ia3(layers: list[EncoderLayer], member: Member, name: Callable[[nn.Module], str]) -> Export:
    tensors, modules, feedforward = {}, [], []
    adapter: Any
    for layer, adapter in zip(layers, member.layers, strict=True):
        for linear, positions in layer.projections:
            targets, at = matching(adapter.targets, positions)
            if targets:
                scales = adapter.l_kv.new_ones(len(positions), member.dim)
                scales[at] = adapter.l_kv[targets]
                modules.append(name(linear))
                tensors[f"{files.PREFIX}{modules[-1]}.ia3_l"] = scales.reshape(-1, 1)
        feedforward.append(name(layer.mlp_out))
        tensors[f"{files.PREFIX}{feedforward[-1]}.ia3_l"] = adapter.l_ff.reshape(1, -1)
    config = {"peft_type": "IA3", "target_modules": modules + feedforward, "feedforward_modules": feedforward}
    return config, tensors


EXPORTS: dict[type[Method], Callable[[list[EncoderLayer], Member, Callable[[nn.Module], str]], Export]] = {
    PVeRA: _vera,
    VeRA: _vera,
    LoRA: _low_rank,
    DoRA: _low_rank,
    IA3: _ia3,
}
