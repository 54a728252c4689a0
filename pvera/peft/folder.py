"""PEFT's adapter folders: a configuration, the adapter's tensors, and a classifier's head.

    adapter_config.json         PEFT's configuration of the method
    adapter_model.safetensors   tensors by module, such as
                                base_model.model.blocks.0.attn.qkv.lora_A.weight
    head.safetensors            weight (classes, w) and bias (classes), if they are not among those
                                tensors; its metadata name the `pool` of text that the head reads

A module counts by its layer's number and its *place* there: "qkv" or one of these letters, for
what it computes, or "mlp" for the MLP's last linear layer. So names of all model libraries and
versions lead to the same key: ...layer.0.attention.attention.query and ...layer.0.attention.q_proj
both to (0, "q").
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from pvera.adapters.base import require_finite
from pvera.encoders import SEPARATE, EncoderLayer
from pvera.errors import InputError, as_input_error
from pvera.files import read_json, write_atomically

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
HEAD = "head.safetensors"
PREFIX = "base_model.model."
#: The place of a module of the attention, by the last part of its name.
PLACES = {"qkv": "qkv"}
for _names in SEPARATE:
    PLACES |= zip(_names, "qkv", strict=True)
#: Names of an MLP's last linear layer, inside its encoder layer.
MLP_OUT = ("mlp.fc2", "mlp.down_proj", "mlp.weights_out", "output.dense")
#: Names of heads in the adapter's file that read what `features.pooled` returns, each with a
#: pattern of how the names of the adapted layers begin, which tells the classifier: timm's models,
#: ViTForImageClassification, and the classifier of the released adapters. Others read a pooler
#: or a mean.
HEADS = {"head": r"blocks\.", "classifier": r"(vit|encoder\.encoder)\."}
#: Numbers in the configuration that are read here, with PEFT's defaults.
DEFAULTS: dict[str, dict[str, int]] = {
    "PVERA": {"r": 256, "projection_prng_key": 0},
    "VERA": {"r": 256, "projection_prng_key": 0},
    "LORA": {"r": 8, "lora_alpha": 8},
    "IA3": {},
}
#: Options that are read here, or change nothing that is computed from the tensors, such as those
#: of an initialisation.
KNOWN_OPTIONS = {
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "feedforward_modules",
    "inference_mode",
    "init_ia3_weights",
    "init_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_ga_config",
    "modules_to_save",
    "runtime_config",
    "save_projection",
    "target_modules",
    "use_dora",
    "use_rslora",
}
#: Options with the values that can be read: other initialisations change the frozen weights.
ALLOWED_VALUES = {
    "bias": (None, "none"),
    "init_lora_weights": (None, True, False, "gaussian", "orthogonal", "eva"),
}
ADVICE = {"sample_at_inference": ": set it to false, and sample with pvera.sample"}
_TENSOR = re.compile(
    r"(?:(?:.*\.)?(?:layers?|blocks)\.(?P<layer>\d+)\.)?(?P<module>.+)\."
    r"(?P<name>p?vera_lambda_[bd]|lora_[AB]|lora_magnitude_vector|ia3_l)(?:\.weight)?"
)
_MATRIX = re.compile(r"base_model\.(p?vera_[AB])")


@dataclass
class AdapterFolder:
    """The content of an adapter folder."""

    path: Path
    config: dict[str, Any]
    #: Tensors by PEFT's name ("lora_A", "pvera_lambda_d"), of each (layer, place).
    modules: dict[tuple[int, str], dict[str, Tensor]] = field(default_factory=dict)
    #: PEFT's names of the tensors in `modules`.
    names: list[str] = field(default_factory=list)
    #: "vera_A" and "vera_B", or "pvera_A" and "pvera_B", if the folder holds them.
    matrices: dict[str, Tensor] = field(default_factory=dict)
    #: weight (classes, w) and bias (classes), or None.
    head: dict[str, Tensor] | None = None
    #: The features of a text that the head reads (`features.POOLS`); None if the folder does not
    #: say.
    pool: str | None = None

    @property
    def places(self) -> list[str]:
        """The places of the modules: those of the attention in the order of "qkv", the MLP last."""
        order = ["qkv", "q", "k", "v", "mlp"]
        return sorted({place for _, place in self.modules}, key=order.index)

    @property
    def is_fused(self) -> bool:
        """Whether one layer computes queries, keys and values, and nothing else is adapted."""
        return self.places == ["qkv"]

    def stack(self, name: str, place: str, *shape: int) -> Tensor:
        """Return the tensors `name` of all layers, (layers, *shape). InputError if one differs."""
        tensors = []
        for (_, module_place), of_module in sorted(self.modules.items()):
            if module_place == place:
                tensors.append(self.shaped(name, of_module.get(name), shape))
        return torch.stack(tensors)

    def by_projection(self, name: str, *shape: int, rows: bool = False) -> dict[str, Tensor]:
        """Return the tensors `name` (layers, *shape) of the adapted ones of "q", "k" and "v".

        Args:
            name: PEFT's name.
            *shape: Of one projection's tensor.
            rows: A fused layer's tensor holds the rows of its projections, one after the other;
                otherwise it is that of all three.
        """
        found: dict[str, Tensor] = {}
        for place in self.places:
            if place == "mlp":
                continue
            count = len(place) if rows else 1
            stacked = self.stack(name, place, count * shape[0], *shape[1:])
            parts = stacked.unflatten(1, (count, -1)).unbind(1)
            for i, letter in enumerate(place):
                found[letter] = parts[i if rows else 0]
        return {letter: found[letter] for letter in "qkv" if letter in found}

    def shaped(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor:
        """Return `tensor`. InputError unless it is there and has the shape."""
        if tensor is None:
            raise InputError(f"{self.path / TENSORS} lacks a {name}")
        if tensor.shape != shape:
            raise InputError(
                f"{self.path} does not fit the backbone, its rank or num_classes: {name} has "
                f"shape {tuple(tensor.shape)}, not {shape}"
            )
        return tensor


def require_projections_called(layers: list[EncoderLayer]) -> None:
    """Raise InputError if PEFT's adapters have no effect, as nothing calls the projections."""
    if layers[0].separate_biases:
        raise InputError(
            "PEFT's adapters have no effect on this backbone: it reads the weight of attn.qkv "
            "without calling the layer"
        )


def write_tensors(file: Path, tensors: Mapping[str, Tensor], **metadata: str) -> None:
    """Write tensors to a safetensors file, in fp32."""
    in_fp32 = {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(file, save(in_fp32, metadata={"format": "pt", **metadata}))


def read_folder(path: str | Path) -> AdapterFolder:
    """Read an adapter folder; tensors in fp32.

    Raises:
        InputError: A file is missing or damaged, the method is not one of `DEFAULTS`, an option may
            change what PEFT computes, or a tensor holds NaN or belongs neither to queries, keys,
            values and the MLP's last layer nor to one head.
    """
    path = Path(path)
    folder = AdapterFolder(path, _read_config(path))
    tensors, _ = _read_tensors(path / TENSORS)
    require_finite(tensors, str(path / TENSORS))

    others = {}
    for key, tensor in tensors.items():
        if match := _MATRIX.fullmatch(key):
            folder.matrices[match[1]] = tensor
        elif match := _TENSOR.fullmatch(key):
            _add_tensor(folder, match, tensor)
        else:
            others[key] = tensor
    if not folder.modules:
        raise InputError(f"{path / TENSORS} holds no adapter of queries, keys or values")

    if others:
        folder.head = _head_inside(path / TENSORS, others, tensors)
    else:
        folder.head, folder.pool = _head_of_its_own(path)
    return folder


def _read_config(path: Path) -> dict[str, Any]:
    """Return PEFT's configuration, with defaults of the numbers that are read here."""
    file = path / CONFIG
    if not file.is_file():
        raise InputError(f"{path} holds no {CONFIG}: it is no adapter folder of PEFT")
    config = read_json(file)
    if not isinstance(config, dict) or "peft_type" not in config:
        raise InputError(f"{file} is no configuration of PEFT")
    kind = config["peft_type"]
    if kind not in list(DEFAULTS):  # a list: the kind may be of any type
        raise InputError(f"{path} holds {kind}: only {', '.join(DEFAULTS)} can be read")

    for option, value in config.items():
        if not _is_readable(option, value):
            advice = ADVICE.get(option, "")
            raise InputError(f"{path}: {option}={value!r} has no counterpart here{advice}")
    return DEFAULTS[kind] | config


def _is_readable(option: str, value: Any) -> bool:
    if option in ALLOWED_VALUES:
        return value in ALLOWED_VALUES[option]
    # Of an unknown option, a number or a text passes: what it belongs to is switched on by a flag,
    # or by a mapping or list that holds something.
    is_on = value is True or (isinstance(value, (dict, list)) and bool(value))
    return option in KNOWN_OPTIONS or not is_on


def _add_tensor(folder: AdapterFolder, match: re.Match, tensor: Tensor) -> None:
    """Add a tensor to its module. InputError if that is another one than adapters here change."""
    file = folder.path / TENSORS
    key = match[0]
    module = match["module"]
    place = PLACES.get(module.rpartition(".")[2])
    if module in MLP_OUT and match["name"] == "ia3_l":
        place = "mlp"
    if place is None or match["layer"] is None:
        advice = "only adapters of queries, keys and values can be read"
        raise InputError(f"{file} adapts {key}: {advice}")
    tensors = folder.modules.setdefault((int(match["layer"]), place), {})
    if match["name"] in tensors:
        raise InputError(f"{file} adapts two modules in one place, also {key}: one can be read")
    tensors[match["name"]] = tensor
    folder.names.append(key)


def _head_inside(
    file: Path, others: dict[str, Tensor], adapted: Collection[str]
) -> dict[str, Tensor]:
    """Return the head in the adapter's file, whose tensors of no adapter are `others`."""
    for module, layer_pattern in HEADS.items():
        head = {key.removeprefix(f"{PREFIX}{module}."): tensor for key, tensor in others.items()}
        reads_features = any(re.match(PREFIX + layer_pattern, key) for key in adapted)
        if head.keys() == {"weight", "bias"} and reads_features:
            return head
    raise InputError(
        f"{file} holds {min(others)}, which is neither of an adapter nor of a head that reads the "
        "features here: remove such tensors, give num_classes, and train a new head"
    )


def _head_of_its_own(path: Path) -> tuple[dict[str, Tensor] | None, str | None]:
    """Return the head in another file of the folder, and its `pool`; None without one."""
    heads = {}
    for file in sorted(path.glob("*.safetensors")):
        tensors, metadata = _read_tensors(file)
        head = {name.rpartition(".")[2]: tensor for name, tensor in tensors.items()}
        if len(tensors) == 2 and head.keys() == {"weight", "bias"}:
            require_finite(head, str(file))
            heads[file.name] = head, metadata.get("pool")
    if len(heads) > 1:
        raise InputError(f"{path} holds several heads, {' and '.join(heads)}: remove all but one")
    return next(iter(heads.values()), (None, None))


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, in fp32, and its metadata."""
    if not file.exists():
        pickle = file.with_suffix(".bin")
        if pickle.exists():
            raise InputError(f"{pickle} is a pickle: save it with safe_serialization=True")
        raise InputError(f"{file}: no such file")
    with (
        as_input_error(f"{file} is damaged, or no safetensors file"),
        safe_open(file, "pt") as content,
    ):
        names = content.keys()
        tensors = {name: content.get_tensor(name).float() for name in names}
        return tensors, content.metadata() or {}
