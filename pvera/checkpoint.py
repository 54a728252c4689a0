"""Checkpoints of the trained tensors alone: about a hundred kilobytes for PVeRA.

One safetensors file holds the trained tensors of one member in fp32. Its metadata hold the format version, the method
with its hyperparameters, the number of classes, the seed that draws the frozen random matrices again, hashes of these
matrices and of the backbone, and a checksum of all this. The backbone has two hashes: of the weights that merging can
change, as they are without a merge, and of all others. Files of earlier versions lack the first one.

Random matrices from elsewhere, which no seed draws, lie in the file: that is version 2. A model of text that does not
read the first token has its `pool` in the metadata: that is version 3. All else is version 1.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from pvera.adapters import METHODS
from pvera.encoders import encoder_layers, require_whole
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.members import Member
from pvera.model import AdaptedModel, adapt, require_adapted

VERSION = 3


def save(model: AdaptedModel, path: str | Path) -> None:
    """Write the trained tensors of the one active member of `model` to `path`, whole or not at all.

    A head of one's own, in the place of none (`num_classes=0`), is left out: save its own `state_dict`.
    """
    write_atomically(path, dumps(model))


def dumps(model: AdaptedModel) -> bytes:
    """Return the bytes that `save` writes."""
    require_adapted(model, "save")
    member = model.only_member("saved")
    drawn, buffers = _drawn(member), dict(member.named_buffers())
    held = dict(member.trained()) if drawn is not None else member.trained() | buffers
    own_head = "head." if not member.num_classes else ()
    tensors = {n: t.detach().float().cpu().contiguous() for n, t in held.items() if not n.startswith(own_head)}
    described = {
        "version": 3 if model.pool != "first" else 2 if drawn is None else 1,
        "method": member.method.key,
        "hyperparameters": member.method.describe(),
        "num_classes": member.num_classes,
        "seed": member.seed,
        "frozen_sha256": _digest(buffers if drawn is None else drawn),
        **_backbone_digests(model.backbone, model._replaced),
    }
    if model.pool != "first":
        described["pool"] = model.pool
    described["sha256"] = _checksum(described, tensors)
    return serialize(tensors, metadata={"pvera": json.dumps(described)})


def load(backbone: nn.Module, path: str | Path) -> AdaptedModel:
    """Adapt a plain `backbone` as the file at `path` says, fill it, and return it.

    InputError, with nothing changed, for a file that is missing, damaged or of a newer version, for another backbone,
    for a method or hyperparameters that this program does not have, and for random matrices that cannot be redrawn.
    """
    path = Path(path)
    described, tensors = _read(path)
    digests = _backbone_digests(backbone)
    if described["backbone_sha256"] != digests["backbone_sha256"]:
        raise InputError(f"{path} belongs to another backbone, or to this one in another precision")
    if described.get("merged_sha256", digests["merged_sha256"]) != digests["merged_sha256"]:
        raise InputError(f"{path} belongs to this backbone with other projections: has an adapter been merged into it?")
    if described["method"] not in METHODS:
        raise InputError(
            f"{path} holds the method {described['method']!r}, which is not registered: import the module "
            "that defines it first"
        )
    try:
        method = METHODS[described["method"]](**described["hyperparameters"])
    except TypeError as error:
        raise InputError(f"{path} holds a hyperparameter that {described['method']} does not have: {error}") from None
    num_classes, seed = described["num_classes"], described["seed"]
    member = Member(method, encoder_layers(backbone), num_classes, seed)
    named: dict[str, Tensor] = dict(member.trained())
    buffers = dict(member.named_buffers())
    if not buffers.keys().isdisjoint(tensors):
        named |= buffers
    elif described["frozen_sha256"] != _digest(buffers):
        raise InputError(f"{path} was trained with other frozen random matrices (seed {seed})")
    if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in named.items()}:
        raise InputError(f"{path} does not hold the tensors of {method}")
    model = adapt(backbone, method, num_classes, seed, described.get("pool", "first"))
    model.members[0].fill(tensors)
    return model


def _read(path: Path) -> tuple[dict, dict]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            described = json.loads((file.metadata() or {})["pvera"])
            if described["version"] > VERSION:
                raise InputError(
                    f"{path} has format version {described['version']}, newer than this program's {VERSION}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it cannot be iterated
            if described.pop("sha256") != _checksum(described, tensors):
                raise InputError(f"{path} is damaged: its checksum does not fit")
            return described, tensors
    except InputError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged or not an adapter file ({error})") from None


def _drawn(member: Member) -> dict[str, Tensor] | None:
    """Return the matrices that the seed draws; None where the member's differ by more than rounding to half."""
    shared = member.method.shared(member.dim, member.seed)
    drawn = {} if shared is None else {f"shared.{name}": tensor for name, tensor in shared.named_buffers()}
    buffers = dict(member.named_buffers())
    return drawn if all(name in drawn and torch.equal(drawn[name].to(b), b) for name, b in buffers.items()) else None


def _backbone_digests(backbone: nn.Module, replaced: Sequence[tuple[Tensor, Tensor]] = ()) -> dict[str, str]:
    """Return the hashes of the frozen weights that merging can change, and of the others, both without a merge.

    replaced: what a merge has changed. The pooler is left out: nothing here reads it. InputError for sharded weights.
    """
    require_whole(backbone)
    before = {id(p): old for p, old in replaced}
    changed = {id(p) for layer in encoder_layers(backbone) for p in layer.merged_into}
    read = {n: p for n, p in backbone.named_parameters() if not n.startswith("pooler.")}
    return {
        "backbone_sha256": _digest({n: p for n, p in read.items() if id(p) not in changed}),
        "merged_sha256": _digest({n: before.get(id(p), p) for n, p in read.items() if id(p) in changed}),
    }


def _checksum(described: dict, tensors: dict) -> str:
    text = json.dumps(described, sort_keys=True) + _digest(tensors)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of names, shapes and fp32 bytes; "" for no tensors."""
    if not tensors:
        return ""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
