"""Checkpoints of the trained tensors alone: about a hundred kilobytes for PVeRA.

One safetensors file holds the trained tensors of one member in fp32, random matrices that no seed draws, and, in the
backbone's precision, the features that the frozen backbone computes of one fixed input. Its metadata hold the format
version, the method with its hyperparameters, the number of classes, the seed that draws the frozen random matrices
again, the `pool` of text, the input's shape, hashes of the random matrices and of the backbone's weights, and a
checksum of all this.

Weights and features together say which backbone it was. The weights show a merge of a small adapter; the features show
another pooling, number of heads, activation or normalisation statistics, which change no weight.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from pvera.adapters import METHODS
from pvera.adapters.base import fixed_defaults, require_finite
from pvera.backbones import weights_sha256
from pvera.encoders import (
    encoder_layers,
    example_features,
    input_shape,
    require_whole,
    uncompiled,
    uncompiled_name,
)
from pvera.errors import InputError, as_input_error
from pvera.files import write_atomically
from pvera.model import AdaptedModel, Member, adapt, require_adapted, require_plain

VERSION = 4
FEATURES = "frozen_features"
#: Largest relative difference of features that counts as rounding, in fp32 and fp64, and in half precision. Measured on
#: small encoders: 1e-6 between batch sizes, threads, attentions and compilers, 0.0016 of fp16 and 0.011 of bf16 from
#: fp32; from 0.006 between exact and quick GELU, 0.04 between numbers of heads, 0.1 between GELU and ReLU.
TOLERANCE, HALF_TOLERANCE = 0.003, 0.03


def save(model: AdaptedModel, path: str | Path) -> None:
    """Write the trained tensors of the one active member of `model` to `path`, whole or not at all.

    A head of one's own, in the place of none (`num_classes=0`), is left out: save its own `state_dict`.
    """
    write_atomically(path, dumps(model))


def dumps(model: AdaptedModel) -> bytes:
    """Return the bytes that `save` writes."""
    require_adapted(model, "save")
    member = model.only_member("saved")
    require_whole(model)
    drawn, buffers = _drawn(member), dict(member.named_buffers())
    held = dict(member.trained()) if drawn is not None else member.trained() | buffers
    head = member.head
    as_made = (
        type(head) is nn.Linear
        and head.bias is not None
        and head.out_features == member.num_classes
    )
    if member.num_classes and not as_made:
        raise InputError("the head was replaced; for a head of your own adapt with num_classes=0")
    own_head = "head." if not member.num_classes else ()
    tensors = {
        n: t.detach().float().cpu().contiguous()
        for n, t in held.items()
        if not n.startswith(own_head)
    }
    require_finite(tensors, "save()")
    shape = input_shape(model.backbone)
    with model.frozen() as backbone:
        tensors[FEATURES] = example_features(backbone, shape, model.pool).cpu().contiguous()
        weights = _weights_sha256(backbone)
    described = {
        "version": VERSION,
        "method": member.method.key,
        "hyperparameters": asdict(member.method),
        "num_classes": member.num_classes,
        "seed": member.seed,
        "pool": model.pool,
        "input_shape": shape,
        "frozen_sha256": _digest(buffers if drawn is None else drawn),
        "backbone_sha256": weights,
    }
    return encode(described, tensors)


def encode(described: dict, tensors: dict[str, Tensor]) -> bytes:
    """Return the bytes of a file with this description and these tensors."""
    return serialize(
        tensors, {"pvera": json.dumps(described | {"sha256": _checksum(described, tensors)})}
    )


def load(backbone: nn.Module, path: str | Path) -> AdaptedModel:
    """Adapt a plain `backbone` as the file at `path` says, fill it, and return it in evaluation mode.

    InputError, with nothing changed, for a file that is missing, damaged or of another version, for a backbone of other
    weights or one that computes something else from them, for a method or hyperparameters that this program does not
    have, and for random matrices that cannot be redrawn.
    """
    path = Path(path)
    described, tensors = _read(path)
    require_plain(backbone)
    layers = encoder_layers(backbone)
    require_whole(backbone)
    if described["backbone_sha256"] != _weights_sha256(backbone):
        title, inputs = type(uncompiled(backbone)).__name__, tuple(described["input_shape"])
        raise InputError(
            f"{path} belongs to another backbone, for inputs {inputs}; this {title} takes {input_shape(backbone)}, "
            "or is another model, in another precision, or with an adapter merged into it"
        )
    shape, expected = described["input_shape"], tensors.pop(FEATURES)
    with as_input_error(
        f"{path}: the backbone does not take inputs of shape {tuple(shape)}, as it did in training"
    ):
        features = example_features(backbone, shape, described["pool"]).cpu()
    half = {features.dtype, expected.dtype} & {torch.float16, torch.bfloat16}
    difference = (features.double() - expected.double()).norm()
    if (
        not difference <= (HALF_TOLERANCE if half else TOLERANCE) * expected.double().norm()
    ):  # NaN is another one
        raise InputError(
            f"{path}: the backbone has the weights of training, but computes something else from them: look at its "
            "pooling, number of heads, activation, and statistics of normalisation"
        )
    if (key := described["method"]) not in METHODS:
        raise InputError(
            f"{path} holds the method {key!r}, which is not registered: import its module first"
        )
    try:
        method = METHODS[key](**described["hyperparameters"])
    except TypeError as error:
        raise InputError(
            f"{path} holds a hyperparameter that {key} does not have: {error}"
        ) from None
    num_classes, seed = described["num_classes"], described["seed"]
    member = Member(method, layers, num_classes, seed)
    named: dict[str, Tensor] = dict(member.trained())
    buffers = dict(member.named_buffers())
    if not buffers.keys().isdisjoint(tensors):
        named |= buffers
    elif described["frozen_sha256"] != _digest(buffers):
        raise InputError(f"{path} was trained with other frozen random matrices (seed {seed})")
    if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in named.items()}:
        raise InputError(f"{path} does not hold the tensors of {method}")
    require_finite(tensors, str(path))
    model = adapt(backbone, method, num_classes, seed, described["pool"])
    model.members[0].fill(tensors)
    return model.eval()


def _read(path: Path) -> tuple[dict, dict]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with as_input_error(f"{path} is damaged or not an adapter file"), safe_open(path, "pt") as file:
        described = json.loads((file.metadata() or {})["pvera"])
        if described["version"] != VERSION:
            raise InputError(
                f"{path} has format version {described['version']}, not {VERSION}: use the pvera that wrote it"
            )
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it cannot be iterated
        if described.pop("sha256") != _checksum(described, tensors):
            raise InputError(f"{path} is damaged: its checksum does not fit")
        return described, tensors


@fixed_defaults()
def _drawn(member: Member) -> dict[str, Tensor] | None:
    """Return the matrices that the seed draws; None where the member's differ by more than rounding to half."""
    shared = member.method.shared(member.dim, member.seed)
    drawn = (
        {}
        if shared is None
        else {f"shared.{name}": tensor for name, tensor in shared.named_buffers()}
    )
    buffers = dict(member.named_buffers())
    return (
        drawn
        if all(name in drawn and torch.equal(drawn[name].to(b), b) for name, b in buffers.items())
        else None
    )


def _weights_sha256(backbone: nn.Module) -> str:
    """Return the hash of the backbone's weights without its pooler, which nothing here reads."""
    named = {uncompiled_name(name): weight for name, weight in backbone.named_parameters()}
    return _digest(
        {name: weight for name, weight in named.items() if not name.startswith("pooler.")}
    )


def _checksum(described: dict, tensors: dict) -> str:
    text = json.dumps(described, sort_keys=True) + _digest(tensors)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return the hash of tensors by name, in fp32: of the numbers, and not of their precision or codes."""
    return weights_sha256(
        {name: tensor.detach().dequantize().float() for name, tensor in tensors.items()}
    )
