"""`import_peft`: an adapter that PEFT wrote, on a backbone with fused or separate projections.

PEFT has no α: here α = 1 and b = λ_b. If PEFT adapts queries, keys and values separately, VeRA and
PVeRA share one pair. If it adapts timm's fused layer, each projection gets its rows of B' and λ_b,
and those columns of B' that are not zero: an exported adapter has its targets and its rank again,
except of DoRA.

Letters in shapes are those of VeRA, whose d is a vector: w the width, R PEFT's rank, p the targets,
r the rank of each; primes mark PEFT's matrices.
"""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters import IA3, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.encoders import EncoderLayer, class_name, encoder_layers
from pvera.errors import InputError, as_input_error
from pvera.features import reads_text
from pvera.model import AdaptedModel, adapt
from pvera.peft.folder import CONFIG, AdapterFolder, read_folder, require_projections_called

#: Classes of text encoders, and names inside a model's text encoder or decoder.
_TEXT = re.compile(r"TextModel|\.attention\.self\.|\b(text_model|decoder)\.")

#: A method, and its member's tensors by name.
Import = tuple[Method, dict[str, Tensor]]


def import_peft(
    folder: str | Path,
    backbone: nn.Module,
    num_classes: int | None = None,
    seed: int = 0,
    pool: str | None = None,
) -> AdaptedModel:
    """Adapt a backbone with PEFT's PVeRA, VeRA, LoRA, DoRA or (IA)³.

    Layers count by number, and modules by what they compute, so the backbone may be of another
    library. Dropout is PEFT's alone. PEFT's PVeRA of a fused layer samples one z for queries, keys
    and values together: its mean is read, which is a VeRA.

    Args:
        folder: PEFT's adapter folder, with a head among its modules to save or in a file.
        backbone: The backbone, without adapters.
        num_classes: Number of classes of a new head, if the folder holds none.
        seed: Seed of the new head.
        pool: Of text, as in `adapt`; None: what `export_peft` wrote, else the first token.

    Returns:
        The adapted model, in evaluation mode.

    Raises:
        InputError: The adapter is refused (docs/peft.md), or belongs to another backbone, or the
            folder holds no fitting head. The backbone is unchanged.
    """
    content = read_folder(folder)
    layers = encoder_layers(backbone)
    require_projections_called(layers)
    _require_same_kind(content, backbone)
    _require_same_projections(content, len(layers))
    head, num_classes = _head(content, layers[0].dim, num_classes)
    with as_input_error(f"{content.path / CONFIG} does not fit the tensors"):
        method, tensors = IMPORTS[content.config["peft_type"]](content, layers)
    model = adapt(backbone, method, num_classes, seed, pool=pool or content.pool or "first")
    model.members[0].load_state_dict(tensors | head, strict=False)
    return model.eval()


def _require_same_kind(content: AdapterFolder, backbone: nn.Module) -> None:
    """Raise InputError for an adapter of a text encoder on one of images, or the reverse."""
    # CLIP's two encoders can have equal names of modules: then the class alone tells them apart.
    mapping = content.config.get("auto_mapping")
    adapted_class = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    is_text = bool(_TEXT.search(f"{adapted_class} {' '.join(content.names)}"))
    if is_text != reads_text(backbone):
        owner = f" of {adapted_class}" if adapted_class else ""
        raise InputError(
            f"{content.path} adapts {content.names[0]}{owner}: that is a module of another encoder "
            f"than {class_name(backbone)}"
        )


def _require_same_projections(content: AdapterFolder, depth: int) -> None:
    """Raise InputError unless the adapter changes the same modules in each of the layers."""
    expected = {(i, place) for i in range(depth) for place in content.places}
    if content.modules.keys() != expected:
        raise InputError(
            f"{content.path} does not adapt the same projections in each of the backbone's {depth} "
            "layers"
        )


def _head(
    content: AdapterFolder, dim: int, num_classes: int | None
) -> tuple[dict[str, Tensor], int]:
    """Return the folder's head and its number of classes; of a new head, no tensors."""
    if content.head is None:
        if num_classes is None:
            raise InputError(
                f"{content.path} holds no head: give num_classes, and train the new head"
            )
        return {}, num_classes
    if num_classes is None:
        num_classes = len(content.head["bias"])
    weight = content.shaped("head.weight", content.head["weight"], (num_classes, dim))
    bias = content.shaped("head.bias", content.head["bias"], (num_classes,))
    return {"head.weight": weight, "head.bias": bias}, num_classes


# One function per method


def _vera(content: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    """Read VeRA and PVeRA."""
    key = content.config["peft_type"].lower()
    rank = content.config["r"]
    dim = layers[0].dim
    halves = 2 if key == "pvera" else 1
    outputs = 3 if content.is_fused else 1
    shapes = {f"{key}_A": (halves * rank, dim), f"{key}_B": (outputs * dim, rank)}
    A, B = _matrices(content, shapes)
    lambda_d = content.by_projection(f"{key}_lambda_d", halves * rank)  # by letter
    lambda_b = content.by_projection(f"{key}_lambda_b", dim, rows=True)

    A = A.unflatten(0, (halves, rank)).movedim(2, 0)  # (w, halves, R)
    d = torch.stack(list(lambda_d.values()), 1)  # (layers, p, halves · R)
    d = d.unflatten(2, (halves, rank)).movedim(2, 1)  # (layers, halves, p, R)
    b = torch.stack(list(lambda_b.values()), 1)  # (layers, p, w)
    if content.is_fused:
        # λ_d is the same for queries, keys and values: one of three equal copies.
        return _fused_vera(content, A, B, d[:, :, 0], b)
    return _as_vera("".join(lambda_b), "shared", A.unsqueeze(2), B.T.unsqueeze(0), d, b)


def _fused_vera(content: AdapterFolder, A: Tensor, B: Tensor, d: Tensor, b: Tensor) -> Import:
    """Divide A (w, halves, R), B (3 w, R), d (layers, halves, R) and b (layers, 3, w) by target."""
    rows = B.unflatten(0, (3, -1))
    columns = _columns(content, dict(zip("qkv", rows, strict=True)))
    targets = ["qkv".index(letter) for letter in columns]
    index = torch.tensor(list(columns.values()))  # (p, r)
    if len(index.unique()) < index.numel():
        # Several projections read one z: the mean alone has a counterpart.
        A, d = A[:, :1], d[:, :1]
    B = torch.stack([rows[i, :, column].T for i, column in zip(targets, index, strict=True)])
    A = A[..., index]  # (w, halves, p, r)
    return _as_vera("".join(columns), "position", A, B, d[..., index], b[:, targets])


def _as_vera(targets: str, pair: str, A: Tensor, B: Tensor, d: Tensor, b: Tensor) -> Import:
    """Return PVeRA of two halves, VeRA of one, whose tensors have no axis of halves.

    Args:
        targets: The targets, letters of "qkv".
        pair: As in `VeRA`.
        A: (w, halves, p or 1, r).
        B: (p or 1, r, w).
        d: (layers, halves, p, r).
        b: (layers, p, w).
    """
    cls: Any = PVeRA
    if A.shape[1] == 1:
        cls, A, d = VeRA, A[:, 0], d[:, 0]
    tensors = _by_layer(d=d, b=b) | {"shared.A": A, "shared.B": B}
    return cls(rank=B.shape[1], alpha=1.0, targets=targets, pair=pair), tensors


def _by_layer(**stacked: Tensor) -> dict[str, Tensor]:
    """Return a member's tensors of each layer, from those of all layers (layers, ...)."""
    tensors = {}
    for name, of_layers in stacked.items():
        for i, tensor in enumerate(of_layers):
            tensors[f"layers.{i}.{name}"] = tensor
    return tensors


def _columns(content: AdapterFolder, B: dict[str, Tensor]) -> dict[str, list[int]]:
    """Return the columns of B (..., w, R) that each target projection reads, equally many.

    In an exported adapter of a fused layer, each target reads columns of its own, and the rest of B
    is zero. Any other adapter reads all columns for all projections.
    """
    columns = {}
    for letter, rows in B.items():
        columns[letter] = rows.flatten(0, -2).any(0).nonzero().flatten().tolist()
    targets = {letter: index for letter, index in columns.items() if index}
    counts = {len(index) for index in targets.values()}
    if content.is_fused and len(counts) == 1:
        return targets
    return dict.fromkeys(B, list(range(content.config["r"])))


def _matrices(content: AdapterFolder, shapes: dict[str, tuple[int, int]]) -> list[Tensor]:
    """Return A' and B' of the folder, or the ones that PEFT makes from its seed."""
    if content.matrices or content.config.get("save_projection", True):
        return [
            content.shaped(name, content.matrices.get(name), shape)
            for name, shape in shapes.items()
        ]
    rng = torch.Generator().manual_seed(content.config["projection_prng_key"])
    matrices = []
    for shape in shapes.values():
        empty = torch.empty(shape, dtype=torch.float32, device="cpu")
        matrices.append(nn.init.kaiming_uniform_(empty, generator=rng))
    return matrices


def _low_rank(content: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    """Read LoRA and DoRA."""
    dim = layers[0].dim
    rank = content.config["r"]
    is_dora = bool(content.config.get("use_dora"))
    A = content.by_projection("lora_A", rank, dim)  # by letter: (layers, R, w)
    B = content.by_projection("lora_B", dim, rank, rows=True)  # (layers, w, R)
    columns = _columns(content, B)
    if is_dora:
        m = content.by_projection("lora_magnitude_vector", dim, rows=True)  # (layers, w)
        # A projection may have nothing but other magnitudes.
        columns = dict.fromkeys(B, list(range(rank)))

    all_A = torch.stack([A[letter][:, columns[letter]] for letter in columns], 1)
    all_B = torch.stack([B[letter][:, :, columns[letter]] for letter in columns], 1)
    # (layers, w, p, r) and (layers, p, r, w)
    tensors = _by_layer(A=all_A.movedim(3, 1), B=all_B.mT)
    if is_dora:
        tensors |= _by_layer(m=torch.stack([m[letter] for letter in columns], 1))

    divisor = rank**0.5 if content.config.get("use_rslora") else rank
    scale = content.config["lora_alpha"] / divisor
    r = all_B.shape[3]
    cls = DoRA if is_dora else LoRA
    return cls(rank=r, alpha=scale * r, targets="".join(columns)), tensors


def _ia3(content: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    if content.places not in (["qkv", "mlp"], ["k", "v", "mlp"]):
        raise InputError(
            f"{content.path}: (IA)³ scales keys, values and the MLP's hidden activation, not "
            f"{content.places}"
        )
    scales = content.by_projection("ia3_l", layers[0].dim, 1, rows=True)  # (layers, w, 1)
    if "q" in scales and not torch.equal(scales["q"], torch.ones_like(scales["q"])):
        raise InputError(f"{content.path} scales queries, which (IA)³ does not")
    hidden = content.stack("ia3_l", "mlp", 1, layers[0].mlp_out.in_features)  # (layers, 1, 4w)
    l_kv = torch.stack([scales["k"], scales["v"]], 1)  # (layers, 2, w, 1)
    return IA3(), _by_layer(l_kv=l_kv[..., 0], l_ff=hidden[:, 0])


IMPORTS = {
    "PVERA": _vera,
    "VERA": _vera,
    "LORA": _low_rank,
    "IA3": _ia3,
}
