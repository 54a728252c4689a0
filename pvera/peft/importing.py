"""`import_peft`: an adapter that PEFT wrote, on a backbone with fused or separate projections.

PEFT has no α: here α = 1 and b = λ_b. Where PEFT adapts queries, keys and values apart, VeRA and PVeRA share one pair.
Where it adapts timm's fused layer, each position gets its rows of B' and λ_b, and those columns of B' that are not
zero: an exported adapter has its targets and its rank again.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from pvera.adapters import IA3, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.encoders import EncoderLayer, encoder_layers, uncompiled, uncompiled_name
from pvera.errors import InputError
from pvera.model import AdaptedModel, adapt
from pvera.peft.folder import AdapterFolder, read, require_calls

#: Classes of text encoders, and names inside a model's text encoder or decoder; BERT's kin have other names.
_TEXT = re.compile(r"TextModel|\b(text_model|decoder)\.")

#: A method, and its member's tensors by name.
Import = tuple[Method, dict[str, Tensor]]


def import_peft(
    folder: str | Path,
    backbone: nn.Module,
    num_classes: int | None = None,
    seed: int = 0,
    pool: str | None = None,
) -> AdaptedModel:
    """Adapt `backbone` with PEFT's PVeRA, VeRA, LoRA, DoRA or (IA)³ in `folder`, and return the model.

    The backbone's library and the version that wrote the folder need not agree: layers count by number and position.
    The head is that of `folder`: a module to save of width d, or a file of weight (classes, d) and bias (classes).
    The model is in evaluation mode; dropout is PEFT's alone. PEFT's PVeRA of a fused layer draws one z for queries,
    keys and values together: its mean is read, which is a VeRA.

    num_classes: number of classes of a new head, from `seed`, where the folder holds none.
    pool: of text, as `adapt` takes it; None: what `export_peft` wrote into the folder, else the first token.

    InputError, with the backbone unchanged, for all that docs/peft.md lists as refused, for an adapter of another
    backbone's width or depth, and for a head that the folder lacks or that does not read d features.
    """
    adapter = read(folder)
    layers = encoder_layers(backbone)
    require_calls(layers)
    _require_kin(adapter, backbone, layers)
    if adapter.head_inside and hasattr(backbone, "head_dist"):
        raise InputError(
            f"{folder}: its head reads the class token alone, and distilled DeiT has two heads"
        )
    if adapter.modules.keys() != {(i, p) for i in range(len(layers)) for p in adapter.positions}:
        raise InputError(
            f"{folder} does not adapt the same projections in each of the backbone's {len(layers)} layers"
        )
    if adapter.config["peft_type"] != "IA3" and "mlp" in adapter.positions:
        raise InputError(
            f"{folder} adapts the MLP: only adapters of queries, keys and values can be read"
        )
    method, tensors = IMPORTS[adapter.config["peft_type"]](adapter, layers)
    if adapter.head is not None:
        classes, width = adapter.head["weight"].shape
        if width != layers[0].dim:
            raise InputError(
                f"{folder}: its head reads {width} features, and the backbone has {layers[0].dim}"
            )
        if num_classes not in (None, classes):
            raise InputError(f"{folder}: its head has {classes} classes, not {num_classes}")
        num_classes, tensors = (
            classes,
            tensors | {f"head.{name}": tensor for name, tensor in adapter.head.items()},
        )
    if num_classes is None:
        raise InputError(f"{folder} holds no head: give num_classes, and train the new head")
    model = adapt(backbone, method, num_classes, seed, pool=pool or adapter.pool or "first")
    model.members[0].fill(tensors)
    return model.eval()


def _require_kin(adapter: AdapterFolder, backbone: nn.Module, layers: list[EncoderLayer]) -> None:
    """Raise InputError for an adapter of a text encoder on an encoder of images, or the reverse."""
    parts = {uncompiled_name(name) for name, _ in layers[0].layer.named_modules()}
    is_bert = "attention.self" in parts
    # CLIP's two encoders can have equal names of modules: then the class alone tells them apart.
    mapping = adapter.config.get("auto_mapping")
    adapted = mapping.get("base_model_class") if isinstance(mapping, dict) else None

    names = " ".join(adapter.names)
    of_bert = ".attention.self." in names
    of_other_text = not of_bert and _TEXT.search(f"{adapted} {names}")
    if of_bert != is_bert or of_other_text:
        owner = f" of {adapted}" if adapted else ""
        title = type(uncompiled(backbone)).__name__
        raise InputError(
            f"{adapter.path} adapts {adapter.names[0]}{owner}: that is a module of another encoder than {title}"
        )


def _columns(
    adapter: AdapterFolder, B: dict[str, Tensor], others: set[str]
) -> dict[str, list[int]]:
    """Return the columns of B (..., d, R) that each target reads, equally many, for B by position.

    A fused layer's targets are the positions with a column that is not zero, and the `others`. An adapter that still
    is the identity has no such position: it adapts all. Separate layers are targets that read all columns.
    """
    columns = {p: rows.flatten(0, -2).any(0).nonzero().flatten().tolist() for p, rows in B.items()}
    targets = {p: columns[p] for p in B if columns[p] or p in others} or columns
    if (
        adapter.positions == ["qkv"]
        and all(targets.values())
        and len(set(map(len, targets.values()))) == 1
    ):
        return targets
    return dict.fromkeys(
        targets if adapter.positions == ["qkv"] else B, list(range(adapter.config["r"]))
    )


def _vera(adapter: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    """Read VeRA and PVeRA."""
    key, dim, rank = adapter.config["peft_type"].lower(), layers[0].dim, adapter.config["r"]
    fused, halves = adapter.positions == ["qkv"], 2 if key == "pvera" else 1
    A, B = _projections(
        adapter, {f"{key}_A": (halves * rank, dim), f"{key}_B": (dim * (3 if fused else 1), rank)}
    )
    d = adapter.by_position(f"{key}_lambda_d", halves * rank)
    b = adapter.by_position(f"{key}_lambda_b", dim, rows=True)
    rows = dict(zip(b, B.unflatten(0, (3, -1)) if fused else [B] * len(b), strict=True))
    columns = _columns(adapter, {p: rows[p] * b[p].any() for p in rows}, set())
    taken = sum(columns.values(), [])
    if fused and len(set(taken)) < len(
        taken
    ):  # several positions read one z: the mean alone has a counterpart
        halves = 1
    kept = (slice(None), slice(halves)) if halves == 2 else (slice(None), 0)  # of (_, halves, r)
    d = {p: d[p].unflatten(1, (-1, rank))[kept][..., columns[p]] for p in columns}
    A = A.unflatten(0, (-1, rank)).movedim(2, 0)[kept]
    pairs = columns if fused else {p: columns[p] for p in list(columns)[:1]}
    tensors = {
        "shared.A": torch.stack([A[..., columns[p]] for p in pairs], -2),
        "shared.B": torch.stack([rows[p][:, columns[p]].T for p in pairs]),
    }
    for i in range(len(layers)):
        tensors[f"layers.{i}.d"] = torch.stack([d[p][i] for p in columns], -2)
        tensors[f"layers.{i}.b"] = torch.stack([b[p][i] for p in columns])
    cls, pair = PVeRA if halves == 2 else VeRA, "position" if fused else "shared"
    return cls(
        rank=tensors["shared.B"].shape[1], alpha=1.0, targets="".join(columns), pair=pair
    ), tensors


def _projections(adapter: AdapterFolder, shapes: dict[str, tuple[int, int]]) -> list[Tensor]:
    """Return A' and B' of the folder; where it holds none, draw them as PEFT does."""
    if not adapter.projections and not adapter.config.get("save_projection", True):
        source = torch.Generator().manual_seed(adapter.config["projection_prng_key"])
        empty = [torch.empty(shape, dtype=torch.float32, device="cpu") for shape in shapes.values()]
        return [nn.init.kaiming_uniform_(tensor, generator=source) for tensor in empty]
    return [
        adapter.shaped(name, adapter.projections.get(name), shape) for name, shape in shapes.items()
    ]


def _low_rank(adapter: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    """Read LoRA and DoRA."""
    dim, rank, dora = layers[0].dim, adapter.config["r"], bool(adapter.config.get("use_dora"))
    A = adapter.by_position("lora_A", rank, dim)
    B = adapter.by_position("lora_B", dim, rank, rows=True)
    m = adapter.by_position("lora_magnitude_vector", dim, rows=True) if dora else {}
    frozen = {
        p: torch.stack([layer.projection(p)[0].float().cpu() for layer in layers]).norm(dim=2)
        for p in m
    }
    columns = _columns(adapter, B, {p for p in m if not torch.allclose(m[p], frozen[p], rtol=1e-5)})
    tensors = {}
    for i in range(len(layers)):
        tensors[f"layers.{i}.A"] = torch.stack([A[p][i, columns[p]].T for p in columns], 1)
        tensors[f"layers.{i}.B"] = torch.stack([B[p][i][:, columns[p]].T for p in columns])
        if dora:
            tensors[f"layers.{i}.m"] = torch.stack([m[p][i] for p in columns])
    scale = adapter.config["lora_alpha"] / (rank**0.5 if adapter.config.get("use_rslora") else rank)
    r = len(next(iter(columns.values())))
    return (DoRA if dora else LoRA)(rank=r, alpha=scale * r, targets="".join(columns)), tensors


def _ia3(adapter: AdapterFolder, layers: list[EncoderLayer]) -> Import:
    if adapter.positions not in (["qkv", "mlp"], ["k", "v", "mlp"]):
        raise InputError(
            f"{adapter.path}: (IA)³ scales keys, values and the MLP's hidden activation, not {adapter.positions}"
        )
    for (_, module), of_module in adapter.modules.items():
        if (of_module["ia3_l"].shape[0] == 1) != (module == "mlp"):
            raise InputError(
                f"{adapter.path}: (IA)³ scales the outputs of keys and values and the input of the MLP's last layer, "
                "which alone is one of feedforward_modules"
            )
    scales = adapter.by_position("ia3_l", layers[0].dim, 1, rows=True)
    if "q" in scales and not torch.equal(scales["q"], torch.ones_like(scales["q"])):
        raise InputError(f"{adapter.path} scales queries, which (IA)³ does not")
    hidden = adapter.stack("ia3_l", "mlp", 1, layers[0].mlp_out.in_features)
    tensors = {
        f"layers.{i}.l_kv": torch.stack([scales[p][i, :, 0] for p in "kv"])
        for i in range(len(layers))
    }
    return IA3(), tensors | {f"layers.{i}.l_ff": hidden[i, 0] for i in range(len(layers))}


IMPORTS: dict[str, Callable[[AdapterFolder, list[EncoderLayer]], Import]] = {
    "PVERA": _vera,
    "VERA": _vera,
    "LORA": _low_rank,
    "IA3": _ia3,
}
