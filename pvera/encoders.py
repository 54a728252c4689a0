"""The layers of a frozen encoder, as adapters see them: projections, norms and MLPs.

timm's vision transformers are recognised by the names of their modules, encoders of transformers by the name of their
class. Neither package is imported.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pvera.errors import InputError


@dataclass
class EncoderLayer:
    """One encoder layer and the modules that adapters change.

    projections: the frozen linear layers of queries, keys and values, each with the positions that it makes, in order:
        [(attn.qkv, "qkv")] where they are fused, else [(query, "q"), (key, "k"), (value, "v")].
    attention, mlp: the modules whose outputs are added to the residual stream.
    mlp_norm: the LayerNorm before the MLP; None where it follows the MLP (BERT, timm's `rpn` models).
    mlp_out: the MLP's last linear layer, which the hidden activation enters.
    bias_owner: the module that keeps the biases of queries, keys and values apart from their fused layer, as `q_bias`,
        `k_bias` (zero) and `v_bias` (BEiT, EVA); else None.
    reader: the module whose first argument the projections read; None unless they read position embeddings as well
        (DeBERTa).
    """

    layer: nn.Module
    projections: list[tuple[nn.Linear, str]]
    attention: nn.Module
    mlp_norm: nn.Module | None
    mlp_out: nn.Linear
    mlp: nn.Module
    bias_owner: nn.Module | None = None
    reader: nn.Module | None = None

    @property
    def dim(self) -> int:
        return self.projections[0][0].in_features

    @property
    def hidden_dim(self) -> int:
        return self.mlp_out.in_features

    def projection(self, position: str) -> tuple[Tensor, Tensor]:
        """Return views of the frozen weight (d_out, d_in) and bias (d_out) of "q", "k" or "v".

        InputError where the weight is not plain numbers (`not_plain`).
        """
        for linear, positions in self.projections:
            if position in positions:
                if not torch.compiler.is_compiling() and (why := not_plain(linear)):
                    raise InputError(f"DoRA reads the frozen weights: {why}, not the numbers of an nn.Linear")
                weight, bias = self.per_position(linear, positions)
                return weight[positions.index(position)], bias[positions.index(position)]
        raise KeyError(position)

    def per_position(self, linear: nn.Linear, positions: str) -> tuple[Tensor, Tensor]:
        """Return weight (p, d_out, d_in) and bias (p, d_out) of the p positions that `linear` makes."""
        bias, shape = self.bias_apart if self.biases else linear.bias, (len(positions), -1)
        if bias is None:
            bias = linear.weight.new_zeros(linear.out_features)
        return linear.weight.unflatten(0, shape), bias.unflatten(0, shape)

    @property
    def biases(self) -> dict[str, Tensor]:
        """The biases that lie apart from the projections, by position."""
        parameters = {} if self.bias_owner is None else self.bias_owner._parameters
        named = {p: parameters.get(f"{p}_bias") for p in "qkv"}
        return {p: bias for p, bias in named.items() if bias is not None}

    @property
    def bias_apart(self) -> Tensor:
        """The biases (3 d) that lie apart from the fused layer, in the order of "qkv"."""
        biases = self.biases
        return torch.cat([biases.get(p, torch.zeros_like(biases["q"])) for p in "qkv"])

    @property
    def merged_into(self) -> list[Tensor]:
        """The parameters that merging an adapter can change."""
        projections = [parameter for linear, _ in self.projections for parameter in linear.parameters()]
        return [*projections, *self.biases.values(), self.mlp_out.weight]


def not_plain(linear: nn.Linear) -> str:
    """Return why `linear` is not x Wᵀ + b with floating-point numbers W that can be read and written; "" if it is.

    It is not for 8-bit layers, which hold codes, and for sharded ones, of which a process holds a part.
    """
    weight: Any = linear.weight
    if (
        type(linear).forward is nn.Linear.forward
        and type(weight) in (Tensor, nn.Parameter)
        and weight.is_floating_point()
    ):
        return ""
    return f"{type(linear).__name__} holds {weight.dtype} in {type(weight).__name__}"


def uncompiled(module: Any) -> Any:
    """Return the module inside one of `torch.compile`, else `module` itself."""
    return getattr(module, "_orig_mod", module)


def uncompiled_name(name: str) -> str:
    """Return the name of a module or parameter as it is without `torch.compile`."""
    return name.replace("_orig_mod.", "")


def require_whole(module: nn.Module) -> None:
    """Raise InputError for sharded parameters, of which a process holds a part."""
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        raise InputError("the weights are sharded (FSDP2): gather them into an adapted model of one process first")


def encoder_layers(encoder: nn.Module) -> list[EncoderLayer]:
    """Return the layers of an encoder, in order.

    InputError for

    - an encoder of another kind,
    - layers that differ in width (Hiera), or keys that are narrower than queries,
    - features that are not (batch, width of the layers), or that leave a classification head.
    """
    names, name = _names(encoder), type(uncompiled(encoder)).__name__
    try:
        layers = _transformers(encoder, names) if names else _timm(encoder)
    except (AttributeError, TypeError) as error:
        if names:
            raise InputError(f"{name} has layers of another form than those that are adapted: {error}") from None
        layers = []
    for linear in {type(linear): linear for layer in layers for linear, _ in layer.projections}.values():
        if callable(getattr(linear, "weight", None)):  # torch's quantised layers
            raise InputError(f"{name} is quantised by {type(linear).__module__}: take 8-bit layers that are nn.Linear")
    keep_width = all(
        isinstance(linear, nn.Linear) and linear.out_features == len(positions) * linear.in_features
        for layer in layers
        for linear, positions in layer.projections
    )
    if layers and keep_width and len({layer.dim for layer in layers}) == 1:
        if not names:
            _check_head(encoder, layers[0].dim)
        return layers
    raise InputError(
        f"{name} is neither a timm vision transformer with fused attn.qkv, or q_proj, k_proj and "
        f"v_proj of equal width, nor a bare encoder of transformers ({', '.join(TRANSFORMERS)})"
    )


def _check_head(encoder: nn.Module, dim: int) -> None:
    """Raise InputError unless `encoder` returns one feature vector of width `dim` for each image or text."""
    name, head = type(uncompiled(encoder)).__name__, getattr(encoder, "head", None)
    if isinstance(head, nn.Module) and not isinstance(head, nn.Identity):
        if getattr(encoder, "num_classes", 1):
            raise InputError("the backbone has a classification head of its own: create it with num_classes=0")
        raise InputError(f"{name} is not supported: it pools in a head of its own ({type(head).__name__})")
    if getattr(encoder, "head_hidden_size", dim) != dim:
        raise InputError(f"{name} is not supported: its features are not one vector of the layers' width {dim}")


#: Names of the separate layers of queries, keys and values.
SEPARATE = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("query_proj", "key_proj", "value_proj"))


def _projections(attention: Any) -> list[tuple[nn.Linear, str]]:
    """Return the fused layer `qkv`, or the three `SEPARATE` ones. AttributeError for another module."""
    if getattr(attention, "qkv", None) is not None:
        return [(attention.qkv, "qkv")]
    for names in SEPARATE:
        if hasattr(attention, names[0]):
            return [(getattr(attention, name), position) for name, position in zip(names, "qkv", strict=True)]
    raise AttributeError("no layers of queries, keys and values")


def _timm(vit: Any) -> list[EncoderLayer]:
    layers = []
    for block in vit.blocks:
        # `norm2` follows the MLP in ResPostBlock, ResPostRelPosBlock and EvaBlockPostNorm.
        kinds = [kind.__name__ for kind in type(uncompiled(block)).__mro__]
        post_norm = any("ResPost" in kind or "PostNorm" in kind for kind in kinds)
        norm, projections = None if post_norm else block.norm2, _projections(block.attn)
        bias_owner = block.attn if block.attn._parameters.get("q_bias") is not None else None
        layers.append(EncoderLayer(block, projections, block.attn, norm, block.mlp.fc2, block.mlp, bias_owner))
    return layers


class Names(NamedTuple):
    """Where an encoder of transformers has its layers, and a layer its parts.

    out: the attention's last linear layer.
    mlp_norm: the LayerNorm before the MLP; None where each residual connection ends in one (BERT).
    text: whether it reads text.
    reads_positions: whether queries and keys read position embeddings as well, with DeBERTa-v3's `share_att_key`.
    pools: whether its `pooler_output` is read, as timm does: CLIP's class token behind the last LayerNorm, which
        `last_hidden_state` lacks, and SigLIP's attention pooling, as it has no class token. Other poolers are trained
        for other tasks, or not at all.
    """

    layers: str
    attention: str
    out: str
    mlp_norm: str | None
    text: bool = False
    reads_positions: bool = False
    pools: bool = False


_BERT = Names("encoder.layer", "attention.self", "attention.output.dense", None, text=True)
_DINOV2 = Names("encoder.layer", "attention", "attention.o_proj", "norm2")
_CLIP = Names("encoder.layers", "self_attn", "self_attn.out_proj", "layer_norm2", pools=True)
#: Encoders of transformers by class name. Others have modules of the same names that compute something else.
TRANSFORMERS = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    "DebertaV2Model": _BERT._replace(reads_positions=True),
    "Dinov2Model": _DINOV2,
    "Dinov2WithRegistersModel": _DINOV2,
    "DINOv3ViTModel": _DINOV2._replace(layers="model.layer"),
    "ViTModel": _DINOV2._replace(layers="layers", mlp_norm="layernorm_after"),
    "CLIPVisionModel": _CLIP,
    "SiglipVisionModel": _CLIP,
}


def _names(encoder: object) -> Names | None:
    """Return the names of an encoder of transformers, None of other encoders."""
    kinds = [kind.__name__ for kind in type(uncompiled(encoder)).__mro__]
    return next((TRANSFORMERS[kind] for kind in kinds if kind in TRANSFORMERS), None)


def _transformers(encoder: Any, names: Names) -> list[EncoderLayer]:
    """Return the layers of an encoder of transformers. InputError for a SigLIP that does not pool."""
    if not getattr(encoder, "use_head", True):
        raise InputError(f"{type(encoder).__name__} pools nothing: create it with vision_use_head=True")
    layers = []
    for layer in encoder.get_submodule(names.layers):
        attention, out = layer.get_submodule(names.attention), layer.get_submodule(names.out)
        if names.mlp_norm is None:
            norm, mlp, mlp_out = None, layer.output.dense, layer.output.dense
        else:  # a gated MLP (SwiGLU) ends in down_proj
            norm, mlp = layer.get_submodule(names.mlp_norm), layer.mlp
            mlp_out = getattr(mlp, "fc2", None) or mlp.down_proj
        reader = attention if names.reads_positions else None
        layers.append(EncoderLayer(layer, _projections(attention), out, norm, mlp_out, mlp, reader=reader))
    return layers


#: Features of a text: the first token, or the mean of its tokens, as sentence encoders are trained.
POOLS = ("first", "mean")


def pooled(encoder: nn.Module, output: Any, pool: str = "first", tokens: Tensor | None = None) -> Tensor:
    """Return features (batch, dim) from the encoder's output: timm's as it is; of transformers' its own pooling where
    it is read (`Names.pools`), or what `pool` of `POOLS` names.

    tokens: (batch, tokens), false where a text is padded; None without padding.
    """
    names = _names(encoder)
    if names is None:
        features = output
    elif names.pools:
        features = output.pooler_output
    elif pool == "mean":
        hidden = output.last_hidden_state
        weights = torch.ones(hidden.shape[:2], device=hidden.device) if tokens is None else tokens
        weights = weights.to(hidden.dtype).unsqueeze(-1)
        features = (hidden * weights).sum(1) / weights.sum(1)
    else:
        features = output.last_hidden_state[:, 0]
    if features.ndim != 2:
        raise InputError(
            f"the backbone returns features of shape {tuple(features.shape)}, not (batch, dim): create "
            "it with a global_pool that leaves one vector for each image"
        )
    return features


def input_shape(encoder: Any) -> tuple[int, ...]:
    """Return the shape of one input: (channels, height, width) of an image, (tokens,) of a short text.

    InputError for an encoder that does not say the size of its images.
    """
    if reads_text(encoder):
        return (8,)
    places = [(getattr(encoder, "patch_embed", None), "img_size"), (encoder, "img_size")]
    places.append((getattr(encoder, "config", None), "image_size"))
    sizes = [getattr(place, name, None) for place, name in places]
    sizes.append((getattr(encoder, "pretrained_cfg", None) or {}).get("input_size", ())[1:])  # of NaFlexViT
    size = next(filter(None, sizes), None)
    if size is None:
        name = type(encoder).__name__
        raise InputError(f"{name} does not say the size of its images: give it an attribute img_size, such as 224")
    height, width = (size, size) if isinstance(size, int) else size
    channels = next((m.in_channels for m in encoder.modules() if isinstance(m, nn.Conv2d)), 3)
    return channels, height, width


def reads_text(encoder: nn.Module) -> bool:
    """Return whether `encoder` reads text."""
    names = _names(encoder)
    return names is not None and names.text
