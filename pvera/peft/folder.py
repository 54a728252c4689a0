"""PEFT's adapter folders: a configuration, the adapter's tensors, and a classifier's head.

    adapter_config.json         PEFT's configuration of the method
    adapter_model.safetensors   tensors by module, for example base_model.model.blocks.0.attn.qkv.lora_A.weight
    head.safetensors            weight (classes, d) and bias (classes), where they are not among those tensors; its
                                metadata name the `pool` of text that the head reads

A module counts by its layer's number and by the positions that it makes. Names of all model libraries and versions
lead to the same key, for example ...layer.0.attention.attention.query and ...layer.0.attention.q_proj to (0, "q").
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from pvera.adapters.base import is_positive, require_finite
from pvera.encoders import EncoderLayer
from pvera.errors import InputError, as_input_error
from pvera.files import read_json, write_atomically

CONFIG, TENSORS, HEAD = "adapter_config.json", "adapter_model.safetensors", "head.safetensors"
PREFIX = "base_model.model."
#: Positions that a module makes, by the last part of its name.
POSITIONS_OF = {"qkv": "qkv"} | {
    f"{start}{end}": position
    for position, name in (("q", "query"), ("k", "key"), ("v", "value"))
    for start, end in ((position, "_proj"), (name, ""), (name, "_proj"))
}
#: Names of an MLP's last linear layer, inside its encoder layer.
MLP_OUT = ("mlp.fc2", "mlp.down_proj", "mlp.weights_out", "output.dense")
#: Heads in the adapter's file that read what `encoders.pooled` returns, with how the names of the adapted layers
#: begin. The attribute that holds the encoder tells the classifier: none in timm's models, `vit` in
#: ViTForImageClassification, `encoder` in that of the released adapters alone. Classifiers of other attributes read a
#: pooler or a mean.
HEADS = {"head": r"blocks\.", "classifier": r"(vit|encoder\.encoder)\."}
#: Numbers that are read here, with PEFT's defaults, by the kind of adapter.
NUMBERS: dict[str, dict[str, int]] = {
    "PVERA": {"r": 256, "projection_prng_key": 0},
    "VERA": {"r": 256, "projection_prng_key": 0},
    "LORA": {"r": 8, "lora_alpha": 8},
    "IA3": {},
}
#: What each of these must be: in words, and as a check.
RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "r": ("a positive integer", lambda value: type(value) is int and value > 0),
    "projection_prng_key": ("an integer", lambda value: type(value) is int),
    "lora_alpha": ("a positive number", is_positive),
}
#: Options that change nothing that is computed from the tensors, or that are read here. `loftq_config` and the like
#: describe an initialisation.
READ = {
    "auto_mapping", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules", "feedforward_modules",
    "inference_mode", "init_ia3_weights", "init_weights", "layers_pattern", "layers_to_transform", "loftq_config",
    "lora_ga_config", "modules_to_save", "runtime_config", "save_projection", "target_modules", "use_dora",
    "use_rslora",
}  # fmt: skip
#: Options with the values that can be read: other ways to initialise change the frozen weights.
VALUES = {
    "bias": (None, "none"),
    "init_lora_weights": (None, True, False, "gaussian", "orthogonal", "eva"),
}
ADVICE = {"sample_at_inference": ": set it to false, and draw with pvera.sample"}
_TENSOR = re.compile(
    r"(?:(?:.*\.)?(?:layers?|blocks)\.(?P<layer>\d+)\.)?(?P<module>.+)\."
    r"(?P<name>p?vera_lambda_[bd]|lora_[AB]|lora_magnitude_vector|ia3_l)(?:\.weight)?"
)
_PROJECTION = re.compile(r"base_model\.(p?vera_[AB])")


@dataclass
class AdapterFolder:
    """The content of an adapter folder.

    modules: tensors by PEFT's name ("lora_A", "pvera_lambda_d"), of each (layer, positions); positions are "qkv" or
        one of its letters, or "mlp" for the MLP's last linear layer.
    names: PEFT's names of the tensors in `modules`.
    projections: "vera_A" and "vera_B", or "pvera_A" and "pvera_B", where the folder holds them.
    head: weight (classes, d) and bias (classes), or None.
    pool: the features of a text that the head reads (`pvera.encoders.POOLS`), None where the folder does not say.
    head_inside: whether the head is one of PEFT's modules to save.
    """

    path: Path
    config: dict[str, Any]
    modules: dict[tuple[int, str], dict[str, Tensor]]
    names: list[str]
    projections: dict[str, Tensor]
    head: dict[str, Tensor] | None
    pool: str | None = None
    head_inside: bool = False

    @property
    def positions(self) -> list[str]:
        """The positions of the modules, in the order of "qkv"."""
        return sorted(
            {positions for _, positions in self.modules}, key=["qkv", "q", "k", "v", "mlp"].index
        )

    def stack(self, name: str, positions: str, *shape: int) -> Tensor:
        """Return the tensors `name` of all layers, (layers, *shape). InputError where one is missing or differs."""
        tensors = [
            tensors.get(name)
            for (_, at), tensors in sorted(self.modules.items())
            if at == positions
        ]
        return torch.stack([self.shaped(name, tensor, shape) for tensor in tensors])

    def by_position(self, name: str, *shape: int, rows: bool = False) -> dict[str, Tensor]:
        """Return the tensors `name` (layers, *shape) of "q", "k" and "v", as far as they are adapted.

        A fused layer's tensor is that of all three, or with `rows` holds their rows one after the other.
        """
        found: dict[str, Tensor] = {}
        for positions in set(self.positions) - {"mlp"}:
            count = len(positions) if rows else 1
            parts = (
                self.stack(name, positions, count * shape[0], *shape[1:])
                .unflatten(1, (count, -1))
                .unbind(1)
            )
            found |= dict(zip(positions, parts if rows else parts * len(positions), strict=True))
        return {position: found[position] for position in "qkv" if position in found}

    def shaped(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor:
        """Return `tensor`. InputError unless it is there and has that shape, which backbone and rank decide."""
        if tensor is None:
            raise InputError(f"{self.path / TENSORS} lacks a {name}")
        if tensor.shape != shape:
            raise InputError(
                f"{self.path} belongs to another backbone or rank: {name} has shape {tuple(tensor.shape)}, not {shape}"
            )
        return tensor


def require_calls(layers: list[EncoderLayer]) -> None:
    """Raise InputError where adapters of PEFT have no effect, as the backbone does not call its projections."""
    if layers[0].bias_owner is not None:
        raise InputError(
            "PEFT's adapters have no effect on this backbone: it reads the weight of attn.qkv without calling the layer"
        )


def write(file: Path, tensors: Mapping[str, Tensor], **metadata: str) -> None:
    """Write tensors to a safetensors file, in fp32."""
    plain = {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(file, save(plain, metadata={"format": "pt", **metadata}))


def read(folder: str | Path) -> AdapterFolder:
    """Read an adapter folder; tensors in fp32.

    InputError where a file is missing or damaged, for other methods than those of `NUMBERS`, for options that change
    what PEFT computes or may do so, for numbers out of range, for NaN and infinity, and for tensors that are neither of
    queries, keys, values and the MLP's last layer nor one head.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder} holds no {CONFIG}: it is no adapter folder of PEFT")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or "peft_type" not in config:
        raise InputError(f"{folder / CONFIG} is no configuration of PEFT")
    if (kind := config["peft_type"]) not in list(NUMBERS):  # a list: the kind may be of any type
        raise InputError(f"{folder} holds {kind}: only {', '.join(NUMBERS)} can be read")
    for option, value in config.items():
        switched_on = value is True or (isinstance(value, (dict, list)) and len(value) > 0)
        if value not in VALUES[option] if option in VALUES else switched_on and option not in READ:
            raise InputError(
                f"{folder}: {option}={value!r} has no counterpart here{ADVICE.get(option, '')}"
            )
    for option, default in NUMBERS[kind].items():
        value = config.setdefault(option, default)
        must, holds = RULES[option]
        if not holds(value):
            raise InputError(f"{folder / CONFIG}: {option} must be {must}, not {value!r}")

    modules: dict[tuple[int, str], dict[str, Tensor]] = {}
    projections, names, others = {}, [], {}
    tensors, _ = _content(folder / TENSORS)
    require_finite(tensors, str(folder / TENSORS))
    for key, tensor in tensors.items():
        if match := _PROJECTION.fullmatch(key):
            projections[match[1]] = tensor
        elif match := _TENSOR.fullmatch(key):
            module = match["module"]
            positions = "mlp" if module in MLP_OUT else POSITIONS_OF.get(module.rpartition(".")[2])
            if positions is None or match["layer"] is None:
                advice = "only adapters of queries, keys and values can be read"
                raise InputError(f"{folder / TENSORS} adapts {key}: {advice}")
            of_module = modules.setdefault((int(match["layer"]), positions), {})
            if of_module.setdefault(match["name"], tensor) is not tensor:
                raise InputError(
                    f"{folder / TENSORS} adapts two modules in one place, also {key}: one can be read"
                )
            names.append(key)
        else:
            others[key] = tensor
    if not modules:
        raise InputError(f"{folder / TENSORS} holds no adapter of queries, keys or values")
    head, pool = (
        (_head_inside(folder / TENSORS, others, tensors), None) if others else _head_beside(folder)
    )
    return AdapterFolder(folder, config, modules, names, projections, head, pool, bool(others))


def _head_inside(
    file: Path, others: dict[str, Tensor], adapted: Collection[str]
) -> dict[str, Tensor]:
    """Return the head in the adapter's file, whose tensors of no adapter are `others`."""
    modules = {key: key.removeprefix(PREFIX).rpartition(".")[0] for key in others}
    foreign, head = [key for key in others if modules[key] not in HEADS], _as_head(others)
    if foreign or head is None:
        raise InputError(
            f"{file} holds {min(foreign or others)}, which belongs to no adapter and no head: of modules_to_save, only "
            "a head can be read"
        )
    module = next(iter(modules.values()))
    if not any(re.match(PREFIX + HEADS[module], key) for key in adapted):
        raise InputError(
            f"{file}: its {module} reads a pooler or a mean, and not the features here: remove its tensors, give "
            "num_classes, and train a new head"
        )
    return head


def _head_beside(folder: Path) -> tuple[dict[str, Tensor] | None, str | None]:
    """Return the head in another file of the folder, and the pool that the file names; None without one."""
    heads = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors, metadata = _content(file)
        if file.name != TENSORS and (head := _as_head(tensors)):
            require_finite(head, str(file))
            heads[file.name] = head, metadata.get("pool")
    if len(heads) > 1:
        raise InputError(f"{folder} holds several heads, {' and '.join(heads)}: remove all but one")
    return next(iter(heads.values()), (None, None))


def _as_head(tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """Return weight (classes, d) and bias (classes), whatever their names; None for other tensors."""
    by_rank = sorted(tensors.values(), key=lambda tensor: tensor.ndim)
    if [tensor.ndim for tensor in by_rank] == [1, 2] and len(by_rank[0]) == len(by_rank[1]):
        return {"weight": by_rank[1], "bias": by_rank[0]}
    return None


def _content(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, in fp32, and its metadata."""
    if not file.exists() and file.with_suffix(".bin").exists():
        raise InputError(
            f"{file.with_suffix('.bin')} is a pickle: save it with safe_serialization=True"
        )
    if not file.exists():
        raise InputError(f"{file}: no such file")
    with (
        as_input_error(f"{file} is damaged, or no safetensors file"),
        safe_open(file, "pt") as content,
    ):
        names = content.keys()
        tensors = {name: content.get_tensor(name).float() for name in names}
        return tensors, content.metadata() or {}
