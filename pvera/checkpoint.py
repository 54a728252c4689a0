"""Checkpoints of the trained tensors alone: about a hundred kilobytes for PVeRA.

One safetensors file holds the trained tensors of one member in fp32, random matrices that do not
follow from a seed, and, in the backbone's precision, the features that the frozen backbone computes
of one fixed input. Its metadata hold the format version, the method with its hyperparameters, the
number of classes, the seed of the random matrices, the `pool` of text, the input's shape, and
hashes of the random matrices that follow from the seed and of the backbone's weights.

Weights and features together tell which backbone it was. The weights show a merge of a small
adapter; the features show another pooling, number of heads, activation or normalisation statistics,
which change no weight.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from pvera.adapters import METHODS, Method
from pvera.adapters.base import require_finite
from pvera.encoders import class_name, encoder_layers, require_whole_weights, uncompiled_name
from pvera.errors import InputError, as_input_error
from pvera.features import example_features, input_shape
from pvera.files import tensors_sha256, write_atomically
from pvera.grid import Member
from pvera.model import AdaptedModel, adapt, require_adapted, require_unadapted
from pvera.seeds import fixed_defaults

VERSION = 4
FEATURES = "frozen_features"
#: Largest relative difference of features that counts as rounding. Measured on small encoders: 1e-6
#: between batch sizes, threads, attentions and compilers; from 0.006 between exact and quick GELU,
#: 0.04 between numbers of heads, 0.1 between GELU and ReLU.
TOLERANCE = 0.003
#: The same in half precision, where fp16 differs from fp32 by 0.0016 and bf16 by 0.011.
HALF_TOLERANCE = 0.03


def save(model: AdaptedModel, path: str | Path) -> None:
    """Write the trained tensors of the one active member to a file, whole or not at all.

    A head of your own (`num_classes=0`) is left out: save its own `state_dict`.

    Args:
        model: The adapted model.
        path: A safetensors file.

    Raises:
        InputError: Several members are active, the head was replaced, tensors hold NaN, or the file
            cannot be written.
    """
    write_atomically(path, dumps(model))


def dumps(model: AdaptedModel) -> bytes:
    """Return the bytes that `save` writes."""
    require_adapted(model, "save")
    model.require_backbone()
    member = model.one_active_member("saved")
    require_whole_weights(model)
    member.require_original_head()

    # Random matrices that follow from the seed are not stored: `load` makes them again.
    seeded = _matrices_from_seed(member)
    matrices = dict(member.named_buffers())
    saved: dict[str, Tensor] = dict(member.trainable_tensors())
    if not _are_equal(seeded, matrices):
        saved |= matrices
    tensors = {}
    for name, tensor in saved.items():
        if member.num_classes or not name.startswith("head."):
            tensors[name] = tensor.detach().float().cpu().contiguous()
    require_finite(tensors, "save()")

    shape = input_shape(model.backbone)
    with _without_adapters(model) as backbone:
        features = example_features(backbone, shape, model.pool)
        backbone_sha256 = _backbone_sha256(backbone)
    description = {
        "version": VERSION,
        "method": member.method.key,
        "hyperparameters": asdict(member.method),
        "num_classes": member.num_classes,
        "seed": member.seed,
        "pool": model.pool,
        "input_shape": shape,
        "frozen_sha256": _sha256(seeded),
        "backbone_sha256": backbone_sha256,
    }
    tensors[FEATURES] = features.cpu().contiguous()
    return serialize(tensors, {"pvera": json.dumps(description)})


@fixed_defaults()
def _matrices_from_seed(member: Member) -> dict[str, Tensor]:
    """Return the random matrices that follow from the member's seed, in fp32."""
    shared = member.method.shared(member.dim, member.seed)
    return {} if shared is None else dict(shared.named_buffers("shared"))


def _are_equal(seeded: dict[str, Tensor], matrices: dict[str, Tensor]) -> bool:
    """Return whether the `matrices` are the `seeded` ones, up to rounding to their precision."""
    return all(
        # A head of your own, such as one with a BatchNorm, is not saved.
        name.startswith("head.")
        or (name in seeded and torch.equal(seeded[name].to(matrix), matrix))
        for name, matrix in matrices.items()
    )


@contextmanager
def _without_adapters(model: AdaptedModel) -> Iterator[nn.Module]:
    """Give the backbone, which computes inside as it did before `adapt`."""
    active = model.active
    merged = model.merged_member
    try:
        model.unmerge_()
        model.active = []
        yield model.backbone
    finally:
        if merged is not None:
            model.active = [merged]
            model.merge_()
        model.active = active


# Read a file, verify it against the backbone, and build the model


def load(backbone: nn.Module, path: str | Path) -> AdaptedModel:
    """Adapt a backbone as a file says.

    Args:
        backbone: The backbone of the training, without adapters.
        path: A file that `save` wrote.

    Returns:
        The adapted model, in evaluation mode.

    Raises:
        InputError: The file is missing, damaged or of another version; the backbone has other
            weights, or computes something else from them; this program lacks the method or a
            hyperparameter; or the random matrices do not follow from the seed. Nothing is changed.
    """
    path = Path(path)
    description, expected_features, tensors = _read(path)
    require_unadapted(backbone)
    layers = encoder_layers(backbone)
    require_whole_weights(backbone)
    _require_weights(path, description, backbone)
    _require_features(path, description, expected_features, backbone)

    method = _method(path, description)
    num_classes = description["num_classes"]
    seed = description["seed"]
    # Checked with a member of its own, before `adapt` changes the backbone.
    _require_tensors(path, description, tensors, Member(method, layers, num_classes, seed))
    model = adapt(backbone, method, num_classes, seed, description["pool"])
    model.members[0].load_state_dict(tensors, strict=False)
    return model.eval()


def _read(path: Path) -> tuple[dict, Tensor, dict[str, Tensor]]:
    """Return the description in a file, the backbone's features, and the member's tensors."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with as_input_error(f"{path} is damaged or not an adapter file"), safe_open(path, "pt") as file:
        description = json.loads((file.metadata() or {})["pvera"])
        if description["version"] != VERSION:
            raise InputError(
                f"{path} has format version {description['version']}, not {VERSION}: use the pvera "
                "that wrote it"
            )
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        return description, tensors.pop(FEATURES), tensors


def _require_weights(path: Path, description: dict, backbone: nn.Module) -> None:
    """Raise InputError unless the backbone has the weights of the training."""
    if description["backbone_sha256"] != _backbone_sha256(backbone):
        inputs = tuple(description["input_shape"])
        raise InputError(
            f"{path} belongs to another backbone, for inputs {inputs}; this {class_name(backbone)} "
            f"takes {input_shape(backbone)}, or is another model, in another precision, or with an "
            "adapter merged into it"
        )


def _require_features(path: Path, description: dict, expected: Tensor, backbone: nn.Module) -> None:
    """Raise InputError unless the backbone computes the features of the training."""
    shape = tuple(description["input_shape"])
    message = f"the backbone does not take inputs of shape {shape}, as it did in training"
    with as_input_error(f"{path}: {message}"):
        features = example_features(backbone, shape, description["pool"]).cpu()

    is_half = {features.dtype, expected.dtype} & {torch.float16, torch.bfloat16}
    tolerance = HALF_TOLERANCE if is_half else TOLERANCE
    difference = (features.double() - expected.double()).norm()
    if not difference <= tolerance * expected.double().norm():  # also NaN
        raise InputError(
            f"{path}: the backbone has the weights of training, but computes something else from "
            "them: look at its pooling, number of heads, activation, and statistics of "
            "normalisation"
        )


def _method(path: Path, description: dict) -> Method:
    key = description["method"]
    if key not in METHODS:
        raise InputError(
            f"{path} holds the method {key!r}, which is not registered: import its module first"
        )
    with as_input_error(f"{path} holds a hyperparameter that {key} does not have"):
        return METHODS[key](**description["hyperparameters"])


def _require_tensors(
    path: Path, description: dict, tensors: dict[str, Tensor], member: Member
) -> None:
    """Raise InputError unless `tensors` are what such a member holds."""
    expected: dict[str, Tensor] = dict(member.trainable_tensors())
    matrices = dict(member.named_buffers())
    if not matrices.keys().isdisjoint(tensors):
        expected |= matrices
    elif description["frozen_sha256"] != _sha256(matrices):
        raise InputError(
            f"{path} was trained with other frozen random matrices (seed {member.seed})"
        )
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != {name: tensor.shape for name, tensor in expected.items()}:
        raise InputError(f"{path} does not hold the tensors of {member.method}")
    require_finite(tensors, str(path))


# Hashes


def _backbone_sha256(backbone: nn.Module) -> str:
    """Return the hash of the backbone's weights without its pooler, which nothing here reads."""
    weights = {}
    for name, weight in backbone.named_parameters():
        name = uncompiled_name(name)
        if not name.startswith("pooler."):
            weights[name] = weight
    return _sha256(weights)


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the hash of tensors by name, in fp32, whatever their precision or codes."""
    return tensors_sha256(
        {name: tensor.detach().dequantize().float() for name, tensor in tensors.items()}
    )
