"""A frozen encoder's layers, as adapters see them.

timm's vision transformers are recognised by the names of their modules, encoders of transformers by
the name of their class, and a class of your own by `register_encoder` or timm's names. Neither
package is imported.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pvera.errors import InputError, as_input_error


@dataclass
class EncoderLayer:
    """One encoder layer and the modules that adapters change."""

    block: nn.Module
    #: The frozen linear layers of queries, keys and values, each with the letters of what it
    #: computes: [(attn.qkv, "qkv")] if fused, else [(query, "q"), (key, "k"), (value, "v")].
    qkv_linears: list[tuple[nn.Linear, str]]
    #: The module whose output the attention adds to the residual stream.
    attention: nn.Module
    #: The LayerNorm before the MLP; None if it follows the MLP (BERT, timm's `rpn` models).
    mlp_norm: nn.Module | None
    #: The MLP's last linear layer, which the hidden activation enters.
    mlp_out: nn.Linear
    #: The module whose output the MLP adds to the residual stream.
    mlp: nn.Module
    #: The module whose first argument the projections read, if they read position embeddings as
    #: well (DeBERTa); else None.
    attention_input: nn.Module | None = None

    @property
    def dim(self) -> int:
        """Width d of the layer."""
        return self.qkv_linears[0][0].in_features

    @property
    def is_fused(self) -> bool:
        """Whether one linear layer computes queries, keys and values."""
        return len(self.qkv_linears) == 1

    @property
    def linears(self) -> list[nn.Linear]:
        """The frozen linear layers that adapters read or merge into."""
        return [*(linear for linear, _ in self.qkv_linears), self.mlp_out]

    def projection(self, letter: str) -> tuple[Tensor, Tensor]:
        """Return the frozen weight (d_out, d_in) and bias (d_out) of one projection.

        Args:
            letter: "q", "k" or "v".

        Raises:
            InputError: As `require_plain`.
        """
        linear, letters = next(pair for pair in self.qkv_linears if letter in pair[1])
        weights, biases = self.split(linear, letters)
        index = letters.index(letter)
        return weights[index], biases[index]

    def split(self, linear: nn.Linear, letters: str) -> tuple[Tensor, Tensor]:
        """Return weights (q, d_out, d_in) and biases (q, d_out) of the q projections."""
        require_plain(linear)
        bias = self.separate_bias if self.separate_biases else linear.bias
        if bias is None:
            bias = linear.weight.new_zeros(linear.out_features)
        shape = (len(letters), -1)
        return linear.weight.unflatten(0, shape), bias.unflatten(0, shape)

    @property
    def separate_biases(self) -> dict[str, Tensor]:
        """The attention's biases apart from its fused layer (BEiT, EVA), by letter of "qkv".

        timm names them `q_bias`, `k_bias` (none if it is zero) and `v_bias`.
        """
        biases = {letter: self.attention._parameters.get(f"{letter}_bias") for letter in "qkv"}
        return {letter: bias for letter, bias in biases.items() if bias is not None}

    @property
    def separate_bias(self) -> Tensor:
        """The biases (3 d) apart from the fused layer, in the order of "qkv"."""
        biases = self.separate_biases
        zeros = torch.zeros_like(biases["q"])
        return torch.cat([biases.get(letter, zeros) for letter in "qkv"])


def require_plain(linear: nn.Linear) -> None:
    """Raise InputError unless `linear` is x Wᵀ + b with a W that can be read and written.

    A merge writes W, and DoRA reads it in each pass. 8-bit layers hold codes, and of a sharded
    layer a process holds a part.
    """
    if torch.compiler.is_compiling():
        return
    weight: Any = linear.weight
    if not (
        type(linear).forward is nn.Linear.forward
        and type(weight) in (Tensor, nn.Parameter)
        and "weight" in linear._parameters  # torch's pruning computes it in each pass
        and weight.is_floating_point()
    ):
        raise InputError(
            f"this backbone can neither be merged nor take DoRA: {type(linear).__name__} holds "
            f"{weight.dtype} in {type(weight).__name__}, not the numbers of an nn.Linear"
        )


def uncompiled(module: Any) -> Any:
    """Return the module inside one of `torch.compile`, else `module` itself."""
    return getattr(module, "_orig_mod", module)


def uncompiled_name(name: str) -> str:
    """Return the name that a module or parameter has without `torch.compile`."""
    return name.replace("_orig_mod.", "")


def class_name(module: Any) -> str:
    """Return the name of a module's class, also inside `torch.compile`."""
    return type(uncompiled(module)).__name__


def require_whole_weights(module: nn.Module) -> None:
    """Raise InputError for weights on the meta device, as offloading leaves them, or sharded."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_meta:
            advice = "load the weights first, without offloading"
            raise InputError(f"{name} is on the meta device, and has no numbers here: {advice}")
        if hasattr(tensor, "full_tensor"):
            advice = "gather the weights into an adapted model of one process first"
            raise InputError(f"{name} is sharded (FSDP2): {advice}")


# Names of an encoder's modules


#: Names of the modules of one part, one or three, in each alternative.
Alternatives = Sequence[tuple[str, ...]]


class ModuleNames(NamedTuple):
    """Names of an encoder's layers and, inside a layer, of its parts (see `EncoderLayer`)."""

    layers: str
    #: Alternatives in the order of preference: one fused layer, or three separate ones.
    qkv_linears: Alternatives
    attention: str
    mlp: str
    #: Alternatives in the order of preference: one layer.
    mlp_out: Alternatives
    mlp_norm: str | None
    attention_input: str | None = None
    #: Whether the encoder reads text.
    text: bool = False
    #: Whether the features are its `pooler_output`, as in timm: CLIP's class token after the last
    #: LayerNorm, and SigLIP's attention pooling. Other poolers are trained for other tasks.
    pools: bool = False


#: Names that separate layers of queries, keys and values have in an attention.
SEPARATE = (
    ("query", "key", "value"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_proj", "k_proj", "v_proj"),
)


def _separate(attention: str) -> Alternatives:
    return [tuple(f"{attention}.{name}" for name in names) for names in SEPARATE]


# The latter ends a gated MLP (SwiGLU) of transformers.
_MLP_OUT = [("mlp.fc2",), ("mlp.down_proj",)]
TIMM = ModuleNames(
    layers="blocks",
    qkv_linears=[("attn.qkv",), *_separate("attn")],
    attention="attn",
    mlp="mlp",
    mlp_out=[("mlp.fc2",)],
    mlp_norm="norm2",
)
_BERT = ModuleNames(
    layers="encoder.layer",
    qkv_linears=_separate("attention.self"),
    attention="attention.output.dense",
    mlp="output.dense",
    mlp_out=[("output.dense",)],
    mlp_norm=None,  # each residual connection ends in a LayerNorm
    text=True,
)
_DINOV2 = ModuleNames(
    layers="encoder.layer",
    qkv_linears=_separate("attention"),
    attention="attention.o_proj",
    mlp="mlp",
    mlp_out=_MLP_OUT,
    mlp_norm="norm2",
)
_CLIP = ModuleNames(
    layers="encoder.layers",
    qkv_linears=_separate("self_attn"),
    attention="self_attn.out_proj",
    mlp="mlp",
    mlp_out=_MLP_OUT,
    mlp_norm="layer_norm2",
    pools=True,
)
#: Encoders of transformers by class name. Others use the same names for other computations.
TRANSFORMERS = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    # DeBERTa-v3's `share_att_key`.
    "DebertaV2Model": _BERT._replace(attention_input="attention.self"),
    "Dinov2Model": _DINOV2,
    "Dinov2WithRegistersModel": _DINOV2,
    "DINOv3ViTModel": _DINOV2._replace(layers="model.layer"),
    "ViTModel": _DINOV2._replace(layers="layers", mlp_norm="layernorm_after"),
    "CLIPVisionModel": _CLIP,
    "SiglipVisionModel": _CLIP,
}
#: Names in the classes that `register_encoder` was given.
REGISTERED: dict[type, ModuleNames] = {}


def transformers_names(encoder: object) -> ModuleNames | None:
    """Return the names in an encoder of transformers; None for another encoder."""
    for cls in type(uncompiled(encoder)).__mro__:
        if cls.__name__ in TRANSFORMERS:
            return TRANSFORMERS[cls.__name__]
    return None


def register_encoder(
    cls: type,
    *,
    layers: str = "blocks",
    projections: str | Sequence[str] = "attn.qkv",
    attention: str = "attn",
    mlp: str = "mlp",
    mlp_out: str = "mlp.fc2",
    mlp_norm: str | None = "norm2",
) -> None:
    """Name the parts of a vision transformer of your own class; `adapt` checks them.

    Args:
        cls: The encoder's class. Classes derived from it must be registered too.
        layers: The list of layers, in the encoder. All other names are those of modules in a layer.
        projections: The linear layer whose output is queries, keys and values, one after the other,
            or three layers.
        attention: The module whose output is added to the residual stream.
        mlp: The module whose output is added to the residual stream.
        mlp_out: The MLP's last linear layer.
        mlp_norm: The norm before the MLP; None if it follows the MLP.
    """
    linears = (projections,) if isinstance(projections, str) else tuple(projections)
    REGISTERED[cls] = ModuleNames(
        layers=layers,
        qkv_linears=[linears],
        attention=attention,
        mlp=mlp,
        mlp_out=[(mlp_out,)],
        mlp_norm=mlp_norm,
    )


def is_custom(encoder: nn.Module) -> bool:
    """Return whether the encoder's class is your own: registered, or not based on a library's."""
    cls = type(uncompiled(encoder))
    packages = {base.__module__.split(".")[0] for base in cls.__mro__}
    return cls in REGISTERED or packages.isdisjoint({"timm", "transformers"})


# Find an encoder's layers, then check them

HELP = "docs/backbones.md lists what works, and says what an encoder of your own needs"


def encoder_layers(encoder: nn.Module) -> list[EncoderLayer]:
    """Return the layers of an encoder, in order.

    Raises:
        InputError: The encoder is of an unknown kind, its layers differ in width (Hiera) or have
            keys that are narrower than queries, or its features are not one vector of that width.
    """
    names = REGISTERED.get(type(uncompiled(encoder))) or transformers_names(encoder) or TIMM
    layers = _find_layers(encoder, names)
    _require_linears(class_name(encoder), layers)
    if names is TIMM and not is_custom(encoder):
        _require_timm_features(encoder, layers[0].dim)
    return layers


def _find_layers(encoder: nn.Module, names: ModuleNames) -> list[EncoderLayer]:
    message = f"{class_name(encoder)} has layers of another form than those that are adapted"
    with as_input_error(message, HELP):
        modules = cast(Any, encoder.get_submodule(names.layers))
        return [_find_parts(module, names) for module in modules]


def _find_parts(block: Any, names: ModuleNames) -> EncoderLayer:
    """Return the parts of a layer. AttributeError if it lacks one."""
    linears = _first(block, names.qkv_linears)
    letters = ["qkv"] if len(linears) == 1 else list("qkv")
    input_name = names.attention_input
    has_norm = names.mlp_norm is not None
    if names is TIMM:
        # `norm2` follows the MLP in ResPostBlock, ResPostRelPosBlock and EvaBlockPostNorm.
        classes = [cls.__name__ for cls in type(uncompiled(block)).__mro__]
        has_norm = not any("ResPost" in cls or "PostNorm" in cls for cls in classes)

    return EncoderLayer(
        block=block,
        qkv_linears=list(zip(linears, letters, strict=True)),
        attention=block.get_submodule(names.attention),
        mlp_norm=block.get_submodule(names.mlp_norm) if has_norm else None,
        mlp_out=_first(block, names.mlp_out)[0],
        mlp=block.get_submodule(names.mlp),
        attention_input=block.get_submodule(input_name) if input_name else None,
    )


def _first(block: nn.Module, alternatives: Alternatives) -> list[Any]:
    """Return the modules of the first alternative that `block` has, else AttributeError."""
    for names in alternatives[:-1]:
        with suppress(AttributeError):
            return [block.get_submodule(name) for name in names]
    return [block.get_submodule(name) for name in alternatives[-1]]


def _require_linears(name: str, layers: list[EncoderLayer]) -> None:
    """Raise InputError unless linear layers of their own lead from one width to the same width."""
    if not layers:
        raise InputError(f"{name} has no layers; {HELP}")
    width = getattr(layers[0].qkv_linears[0][0], "in_features", 0)
    found = []
    for layer in layers:
        qkv = [(linear, len(letters)) for linear, letters in layer.qkv_linears]
        for linear, widths in [*qkv, (layer.mlp_out, 1)]:
            if not isinstance(linear, nn.Linear) or linear.out_features != widths * width:
                found_here = " ".join(str(linear).split())
                raise InputError(
                    f"{name}: {found_here} is no linear layer to {widths} times the width of "
                    f"the first layer; {HELP}"
                )
            found.append(linear)
    if len(set(found)) < len(found):
        raise InputError(
            f"{name} uses one linear layer in two places, and each needs an adapter of its own"
        )


def _require_timm_features(encoder: nn.Module, width: int) -> None:
    """Raise InputError unless a model of timm returns one vector of `width`, without a head."""
    name = class_name(encoder)
    head = getattr(encoder, "head", None)
    has_head = isinstance(head, nn.Module) and not isinstance(head, nn.Identity)
    if has_head and getattr(encoder, "num_classes", True):
        raise InputError(
            "the backbone has a classification head of its own: create it with num_classes=0"
        )
    if not getattr(encoder, "global_pool", "token"):
        raise InputError(
            f"{name} returns all tokens: create it with a global_pool, such as 'token' or 'avg'"
        )
    if has_head or getattr(encoder, "head_hidden_size", width) != width:
        raise InputError(
            f"{name} is not supported: its features are not one vector of the layers' width {width}"
        )
