"""`export_peft`: an adapter as PEFT loads it.

timm fuses queries, keys and values in one linear layer, which PEFT adapts as a whole. There the p targets get parts of
one adapter of rank p r:

    A' stacks their A's,   B' (3 d × p r) holds their B's in blocks,   λ_d stacks their d's,   λ_b = α b

Rows of B' and λ_b are zero for positions without an adapter. Where queries, keys and values are separate layers, LoRA,
DoRA and (IA)³ are copied. VeRA's A' and B' then stack the pairs of all targets, unless they share one, and the λ_d of a
target is zero in the others' parts. PVeRA would draw unit noise there: its mean is exported, as VeRA.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters import IA3, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.adapters.base import derive, require_finite
from pvera.backbones import weights_sha256
from pvera.encoders import EncoderLayer, reads_text, require_whole, uncompiled_name
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.model import AdaptedModel, Member, require_adapted
from pvera.peft import folder as files

#: PEFT's configuration beyond its defaults, tensors of the whole model by name, and tensors of each adapted module.
Export = tuple[dict[str, Any], dict[str, Tensor], dict[nn.Module, dict[str, Tensor]]]


@torch.no_grad()
def export_peft(model: AdaptedModel, folder: str | Path) -> None:
    """Write the one active member of `model` to `folder`, as `peft.PeftModel.from_pretrained` loads it.

    The head becomes PEFT's module to save `head` where the backbone has a place for it: give PEFT timm's model made
    with `num_classes`. Otherwise it lies in head.safetensors, for the encoder's features.

    InputError for what PEFT does not have: docs/peft.md lists it.
    """
    require_adapted(model, "export_peft")
    member = model.only_member("exported")
    if type(member.method) not in EXPORTS:
        raise InputError(
            f"PEFT has no {member.method.title}: export {', '.join(kind.title for kind in EXPORTS)}"
        )
    files.require_calls(model._layers)
    require_whole(model)
    config, tensors, modules = EXPORTS[type(member.method)](model._layers, member)
    names = {module: uncompiled_name(name) for name, module in model.backbone.named_modules()}
    config["target_modules"] = [names[module] for module in modules]
    if type(member.method) is IA3:
        config["feedforward_modules"] = [names[layer.mlp_out] for layer in model._layers]
    for module, of_module in modules.items():
        tensors |= {
            f"{files.PREFIX}{names[module]}.{name}": tensor for name, tensor in of_module.items()
        }
    head = dict(member.head.named_parameters())
    if head and not (type(member.head) is nn.Linear and "bias" in head):
        raise InputError("PEFT's folder holds a linear head with a bias: save this one by itself")
    one_linear = isinstance(
        getattr(model.backbone, "head", None), nn.Identity
    )  # as timm's models classify
    inside = bool(head) and one_linear and not hasattr(model.backbone, "head_dist")
    if inside:
        config["modules_to_save"] = ["head"]
        tensors |= {f"{files.PREFIX}head.{name}": tensor for name, tensor in head.items()}
    config["inference_mode"] = True
    in_fp32 = {name: tensor.float() for name, tensor in (tensors | head).items()}
    require_finite(in_fp32, "export_peft()")
    folder = Path(folder)
    files.write(folder / files.TENSORS, tensors)
    (folder / files.HEAD).unlink(missing_ok=True)  # of an earlier adapter
    if head and not inside:
        files.write(
            folder / files.HEAD, head, **{"pool": model.pool} if reads_text(model.backbone) else {}
        )
    write_atomically(folder / files.CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def _blocks(B: Tensor, at: list[int], count: int) -> Tensor:
    """Return B' (count d, p r) of B (p, r, d): block i has the rows of position at[i], out of `count`."""
    p, r, d = B.shape
    rows = B.new_zeros(count, d, p, r)
    for i, j in enumerate(at):
        rows[j, :, i] = B[i].T
    return rows.flatten(2).flatten(0, 1)


def _rows(values: Tensor, at: list[int], others: Tensor) -> Tensor:
    """Return `others` (q, d) with `values` (p, d) at the positions `at`, flat."""
    rows = others.clone()
    rows[at] = values
    return rows.flatten()


def _adapted(layers: list[EncoderLayer], member: Member) -> Iterator[tuple]:
    """Yield layer, adapter, linear layer, its positions, and `adapter.matching` of them, for each adapted module."""
    for layer, adapter in zip(layers, member.layers, strict=True):
        for linear, positions in layer.projections:
            adapted, at = adapter.matching(positions)
            if adapted:
                yield layer, adapter, linear, positions, adapted, at


def _vera(layers: list[EncoderLayer], member: Member) -> Export:
    """Export VeRA and PVeRA."""
    method: Any = member.method
    fused, count = len(layers[0].projections) == 1, len(method.targets)
    # PEFT has no fixed σ, and λ_d of separate pairs has parts that must draw nothing: it holds the mean alone.
    draws = (
        isinstance(method, PVeRA)
        and method.sigma is None
        and (fused or method.pair == "shared" or count == 1)
    )
    key, halves = ("pvera", 2) if draws else ("vera", 1)
    shared: Any = member.shared
    A = shared.A.reshape(member.dim, -1, len(shared.B), method.rank)[
        :, :halves
    ]  # (d, halves, pairs, r)
    # One module holds one λ_d: its targets read different parts. So do targets with different pairs.
    parts = count if fused or method.pair == "position" else 1
    A, B = A.expand(-1, -1, parts, -1), shared.B.expand(parts, -1, -1)
    blocks_at = ["qkv".index(p) for p in method.targets] if fused else [0] * parts
    pair = {"A": A.flatten(1).T, "B": _blocks(B, blocks_at, 3 if fused else 1)}
    modules = {}
    for _, adapter, linear, positions, targets, at in _adapted(layers, member):
        d, b = adapter.d.reshape(-1, count, method.rank)[:halves], method.alpha * adapter.b
        lambda_d = d.new_zeros(halves, parts, method.rank)
        lambda_d[:, [i % parts for i in targets]] = d[:, targets]
        lambda_b = _rows(b[targets], at, b.new_zeros(len(positions), member.dim))
        modules[linear] = {f"{key}_lambda_d": lambda_d.flatten(), f"{key}_lambda_b": lambda_b}
    config = {"peft_type": key.upper(), "r": parts * method.rank, "save_projection": True}
    # A model of PEFT has one A', B'. PEFT refuses a second adapter by this key, so it stands for their numbers.
    config["projection_prng_key"] = derive(weights_sha256(pair))
    return config, {f"base_model.{key}_{name}": tensor for name, tensor in pair.items()}, modules


def _low_rank(layers: list[EncoderLayer], member: Member) -> Export:
    """Export LoRA and DoRA."""
    method: Any = member.method
    dora = isinstance(method, DoRA)
    if dora and method.norm == "output":
        raise InputError(
            "PEFT's DoRA has no norms over the output dimension, as the published protocol's: use DoRA(norm=\"input\")"
        )
    modules: dict[nn.Module, dict[str, Tensor]] = {}
    for layer, adapter, linear, positions, targets, at in _adapted(layers, member):
        A, B = adapter.factors(targets) if dora else (adapter.A[:, targets], adapter.B[targets])
        rank, scale = len(targets) * method.rank, adapter.scale
        modules[linear] = {
            "lora_A.weight": A.flatten(1).T,
            "lora_B.weight": _blocks(B, at, len(positions)),
        }
        if dora:
            norms = layer.per_position(linear, positions)[0].to(adapter.m).norm(dim=2)
            modules[linear]["lora_magnitude_vector"] = _rows(adapter.m[targets], at, norms)
    return (
        {"peft_type": "LORA", "r": rank, "lora_alpha": scale * rank, "use_dora": dora},
        {},
        modules,
    )


def _ia3(layers: list[EncoderLayer], member: Member) -> Export:
    modules: dict[nn.Module, dict[str, Tensor]] = {}
    for _, adapter, linear, positions, targets, at in _adapted(layers, member):
        ones = adapter.l_kv.new_ones(len(positions), member.dim)
        modules[linear] = {"ia3_l": _rows(adapter.l_kv[targets], at, ones).unsqueeze(1)}
    for layer, adapter in zip(layers, member.layers, strict=True):
        modules[layer.mlp_out] = {"ia3_l": adapter.get_parameter("l_ff").unsqueeze(0)}
    return {"peft_type": "IA3"}, {}, modules


EXPORTS: dict[type[Method], Callable[[list[EncoderLayer], Member], Export]] = {
    PVeRA: _vera,
    VeRA: _vera,
    LoRA: _low_rank,
    DoRA: _low_rank,
    IA3: _ia3,
}
