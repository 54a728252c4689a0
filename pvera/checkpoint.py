"""Saving what was trained, and nothing else: about a hundred kilobytes for PVeRA, not the backbone.

One safetensors file holds the trained tensors of one member in fp32; its metadata hold the format version,
the method with its hyperparameters, the number of classes, the seed from which the frozen random matrices are
drawn again, a hash of these matrices, a hash of the backbone that it belongs to, and one of all this
together.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import nn

from pvera.adapters import METHODS
from pvera.encoders import encoder_layers
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.model import AdaptedModel, Member, adapt

VERSION = 1


def save(model: AdaptedModel, path: str | Path) -> None:
    """Write the trained tensors of the one active member of `model` to `path`, whole or not at all."""
    write_atomically(path, dumps(model))


def dumps(model: AdaptedModel) -> bytes:
    """What `save` writes."""
    if len(model.active) != 1:
        raise InputError("only one member can be saved: set `active` to it first")
    member = model.members[model.active[0]]
    tensors = {n: p.detach().float().cpu().contiguous() for n, p in member.trained().items()}
    described = {
        "version": VERSION,
        "method": member.method.key,
        "hyperparameters": asdict(member.method),
        "num_classes": member.num_classes,
        "seed": member.seed,
        "frozen_sha256": _frozen_digest(member),
        "backbone_sha256": _backbone_digest(model.backbone),
    }
    described["sha256"] = _checksum(described, tensors)
    return serialize(tensors, metadata={"pvera": json.dumps(described)})


def load(model: nn.Module, path: str | Path) -> AdaptedModel:
    """Fill `model` from `path` and return it; a plain backbone is adapted first, as the file says.

    InputError, with nothing changed, for a file that is missing, damaged, of a newer version, for another
    backbone, another method or hyperparameters than the model's, or whose random matrices cannot be redrawn.
    """
    path = Path(path)
    described, tensors = _read(path)
    adapted = isinstance(model, AdaptedModel)
    if adapted and (len(model.active) != 1 or model.merged):
        raise InputError("load() fills one member that is not merged: set `active`, or call unmerge_() first")
    backbone = model.backbone if adapted else model
    if described["backbone_sha256"] != _backbone_digest(backbone):
        raise InputError(f"{path} belongs to another backbone")
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
    if adapted:
        _check(model.members[model.active[0]], method, described, tensors, path)
    else:  # adapted only once the file is known to be good
        _check(Member(method, encoder_layers(backbone), num_classes, seed), method, described, tensors, path)
        model = adapt(backbone, method, num_classes, seed)
    with torch.no_grad():
        for name, parameter in model.members[model.active[0]].trained().items():
            parameter.copy_(tensors[name])
    return model


def _check(member: Member, method, described: dict, tensors: dict, path: Path) -> None:
    """InputError unless `tensors` can go into `member`."""
    if (method, described["num_classes"]) != (member.method, member.num_classes):
        raise InputError(
            f"{path} holds {method} with {described['num_classes']} classes, not {member.method}"
            f" with {member.num_classes}"
        )
    if described["frozen_sha256"] != _frozen_digest(member):
        raise InputError(f"{path} was trained with other frozen random matrices (seed {described['seed']})")
    if {n: t.shape for n, t in tensors.items()} != {n: p.shape for n, p in member.trained().items()}:
        raise InputError(f"{path} does not hold the tensors of {method}")


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
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
            if described.pop("sha256") != _checksum(described, tensors):
                raise InputError(f"{path} is damaged: its checksum does not fit")
            return described, tensors
    except InputError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged or not an adapter file ({error})") from None


def _frozen_digest(member: Member) -> str:
    """Hash of the frozen random matrices as they were drawn; rounded to half precision they are still the same."""
    buffers = dict(member.named_buffers())
    drawn = member.method.shared(member.dim, member.seed)
    if drawn is not None:
        drawn = {f"shared.{name}": tensor for name, tensor in drawn.named_buffers()}
        if all(torch.equal(drawn[name].to(b), b) for name, b in buffers.items()):
            return _digest(drawn)
    return _digest(buffers)


def _backbone_digest(vit: nn.Module) -> str:
    """Hash of the tensors that merging never changes, so a merged and a plain backbone are the same one. A pooler,
    which nothing here reads, may be there or not."""
    folded = {id(p) for x in encoder_layers(vit) for m, _ in x.projections for p in m.parameters()}
    folded |= {id(x.mlp_out.weight) for x in encoder_layers(vit)}
    read = {n: p for n, p in vit.named_parameters() if not n.startswith("pooler.")}
    return _digest({n: p for n, p in read.items() if id(p) not in folded})


def _checksum(described: dict, tensors: dict) -> str:
    text = json.dumps(described, sort_keys=True) + _digest(tensors)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    """sha256 over names, shapes and fp32 bytes; "" for no tensors."""
    if not tensors:
        return ""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
