"""A frozen encoder: its layers as adapters see them, what it takes, and the features that a head reads.

timm's vision transformers are recognised by the names of their modules, encoders of transformers by the name of their
class, those of one's own by `register_encoder` or timm's names. Neither package is imported.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

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
    def linears(self) -> list[nn.Linear]:
        """The frozen linear layers that adapters read or merge into."""
        return [*dict(self.projections), self.mlp_out]

    def projection(self, position: str) -> tuple[Tensor, Tensor]:
        """Return views of the frozen weight (d_out, d_in) and bias (d_out) of "q", "k" or "v".

        InputError where the weight is not plain numbers (`not_plain`).
        """
        for linear, positions in self.projections:
            if position in positions:
                if not torch.compiler.is_compiling() and (why := not_plain(linear)):
                    raise InputError(
                        f"DoRA reads the frozen weights: {why}, not the numbers of an nn.Linear"
                    )
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
        return torch.cat([self.biases.get(p, torch.zeros_like(self.biases["q"])) for p in "qkv"])


def not_plain(linear: nn.Linear) -> str:
    """Return why `linear` is not x Wᵀ + b with floating-point numbers W that can be read and written; "" if it is.

    It is not for 8-bit layers, which hold codes, and for sharded ones, of which a process holds a part.
    """
    weight: Any = linear.weight
    if (
        type(linear).forward is nn.Linear.forward
        and type(weight) in (Tensor, nn.Parameter)
        and "weight" in linear._parameters  # torch's pruning makes it anew in each pass
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


def require_numbers(module: nn.Module) -> None:
    """Raise InputError for weights on the meta device: accelerate's offloading leaves them there."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_meta:
            advice = "load the weights first, without offloading"
            raise InputError(f"{name} is on the meta device, and has no numbers here: {advice}")


def require_whole(module: nn.Module) -> None:
    """Raise InputError for parameters without numbers, and sharded ones, of which a process holds a part."""
    require_numbers(module)
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        raise InputError(
            "the weights are sharded (FSDP2): gather them into an adapted model of one process first"
        )


HELP = "docs/backbones.md lists what works, and says what an encoder of your own needs"


def encoder_layers(encoder: nn.Module) -> list[EncoderLayer]:
    """Return the layers of an encoder, in order.

    InputError for

    - an encoder of another kind,
    - layers that differ in width (Hiera), or keys that are narrower than queries,
    - features that are not (batch, width of the layers), or that leave a classification head.
    """
    cls, known = type(uncompiled(encoder)), transformers_names(encoder)
    name, names = cls.__name__, OWN.get(cls) or known or TIMM
    if names.pools and not getattr(encoder, "use_head", True):
        raise InputError(f"{name} pools nothing: create it with vision_use_head=True")
    try:
        layers = [_layer(layer, names) for layer in cast(Any, encoder.get_submodule(names.layers))]
    except (AttributeError, TypeError) as error:
        bare = f"of transformers take one of {', '.join(TRANSFORMERS)}"
        advice = bare if _is_of(cls, "transformers") and not known else HELP
        raise InputError(
            f"{name} has layers of another form than those that are adapted: {error}; {advice}"
        ) from None
    for linear, positions in (projection for layer in layers for projection in layer.projections):
        if (
            not isinstance(linear, nn.Linear)
            or linear.out_features != len(positions) * linear.in_features
        ):
            what = f"{', '.join(positions)} by {described(linear)}"
            raise InputError(
                f"{name} makes {what}, and not each at the input's width by an nn.Linear; {HELP}"
            )
    linears = [
        linear for layer in layers for linear, _ in [*layer.projections, (layer.mlp_out, "")]
    ]
    if len(set(linears)) < len(linears):
        raise InputError(
            f"{name} uses one linear layer in two places, and each needs an adapter of its own"
        )
    widths = sorted({layer.dim for layer in layers})
    if len(widths) != 1:
        raise InputError(
            f"{name} has {f'layers of widths {widths}' if layers else 'no layers'}; {HELP}"
        )
    for last in (layer.mlp_out for layer in layers):
        if not isinstance(last, nn.Linear) or last.out_features != widths[0]:
            raise InputError(
                f"{name}: {described(last)} is no linear layer to the width {widths[0]} at an MLP's end"
            )
    if names is not TIMM or is_own(encoder):
        return layers
    head = getattr(encoder, "head", None)
    if isinstance(head, nn.Module) and not isinstance(head, nn.Identity):
        if getattr(encoder, "num_classes", 1):
            raise InputError(
                "the backbone has a classification head of its own: create it with num_classes=0"
            )
        raise InputError(
            f"{name} is not supported: it pools in a head of its own ({type(head).__name__})"
        )
    if not getattr(encoder, "global_pool", "token"):
        raise InputError(
            f"{name} returns all tokens: create it with a global_pool, such as 'token' or 'avg'"
        )
    if getattr(encoder, "head_hidden_size", widths[0]) != widths[0]:
        raise InputError(
            f"{name} is not supported: its features are not one vector of the layers' width {widths[0]}"
        )
    return layers


def described(module: nn.Module) -> str:
    """Return class and options of a module in one line."""
    return f"{type(module).__name__}({' '.join(module.extra_repr().split())})"


class Names(NamedTuple):
    """The names of an encoder's layers and, inside a layer, of its parts (see `EncoderLayer`).

    projections, mlp_out: names in the order of preference; those of three layers stand in one text.
    reader: the module whose first argument the projections read, where they read position embeddings as well.
    text: whether it reads text.
    pools: whether its `pooler_output` is read, as timm does: CLIP's class token behind the last LayerNorm, which
        `last_hidden_state` lacks, and SigLIP's attention pooling, as it has no class token. Other poolers are trained
        for other tasks, or not at all.
    """

    layers: str
    projections: Sequence[str]
    attention: str
    mlp: str
    mlp_out: Sequence[str]
    mlp_norm: str | None
    reader: str | None = None
    text: bool = False
    pools: bool = False


def _three(module: str) -> list[str]:
    """Return the names of separate layers of queries, keys and values in a module."""
    forms = (
        "{0}.query {0}.key {0}.value",
        "{0}.query_proj {0}.key_proj {0}.value_proj",
        "{0}.q_proj {0}.k_proj {0}.v_proj",
    )
    return [form.format(module) for form in forms]


_MLP_OUT = ("mlp.fc2", "mlp.down_proj")  # the latter ends a gated MLP (SwiGLU) of transformers
TIMM = Names("blocks", ["attn.qkv", *_three("attn")], "attn", "mlp", ["mlp.fc2"], "norm2")
# Each residual connection of BERT ends in a LayerNorm.
_OUT = "output.dense"
_BERT = Names(
    "encoder.layer",
    _three("attention.self"),
    f"attention.{_OUT}",
    _OUT,
    [_OUT],
    mlp_norm=None,
    text=True,
)
_DINOV2 = Names("encoder.layer", _three("attention"), "attention.o_proj", "mlp", _MLP_OUT, "norm2")
_CLIP = Names(
    "encoder.layers",
    _three("self_attn"),
    "self_attn.out_proj",
    "mlp",
    _MLP_OUT,
    "layer_norm2",
    pools=True,
)
#: Encoders of transformers by class name. Others have modules of the same names that compute something else.
TRANSFORMERS = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    "DebertaV2Model": _BERT._replace(reader="attention.self"),  # DeBERTa-v3's `share_att_key`
    "Dinov2Model": _DINOV2,
    "Dinov2WithRegistersModel": _DINOV2,
    "DINOv3ViTModel": _DINOV2._replace(layers="model.layer"),
    "ViTModel": _DINOV2._replace(layers="layers", mlp_norm="layernorm_after"),
    "CLIPVisionModel": _CLIP,
    "SiglipVisionModel": _CLIP,
}
#: The names in classes of one's own.
OWN: dict[type, Names] = {}


def transformers_names(encoder: object) -> Names | None:
    """Return the names of an encoder of transformers, None of other encoders."""
    kinds = [kind.__name__ for kind in type(uncompiled(encoder)).__mro__]
    return next((TRANSFORMERS[kind] for kind in kinds if kind in TRANSFORMERS), None)


def _layer(layer: Any, names: Names) -> EncoderLayer:
    """Return the parts of a layer. AttributeError where it lacks one."""
    part, post_norm, bias_owner = layer.get_submodule, names.mlp_norm is None, None
    projections = _first(layer, names.projections)
    attention = part(names.attention)
    if names is TIMM:
        # `norm2` follows the MLP in ResPostBlock, ResPostRelPosBlock and EvaBlockPostNorm.
        post_norm = any(
            "ResPost" in cls.__name__ or "PostNorm" in cls.__name__
            for cls in type(uncompiled(layer)).__mro__
        )
        bias_owner = attention if attention._parameters.get("q_bias") is not None else None
    return EncoderLayer(
        layer=layer,
        projections=list(
            zip(projections, ["qkv"] if len(projections) == 1 else "qkv", strict=True)
        ),
        attention=attention,
        mlp_norm=None if post_norm else part(names.mlp_norm),
        mlp_out=_first(layer, names.mlp_out)[0],
        mlp=part(names.mlp),
        bias_owner=bias_owner,
        reader=part(names.reader) if names.reader else None,
    )


def _first(layer: nn.Module, choices: Sequence[str]) -> list[Any]:
    """Return the modules of the first choice that `layer` has. AttributeError where it has none."""
    for names in choices[:-1]:
        with suppress(AttributeError):
            return [layer.get_submodule(name) for name in names.split()]
    return [layer.get_submodule(name) for name in choices[-1].split()]


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
    """Say where a vision transformer of one's own class has its parts; the defaults are timm's names.

    layers: the list of layers, in the encoder. All other names are those of modules in a layer.
    projections: the linear layer whose output is queries, keys and values, one after the other, or three layers.
    attention, mlp: the modules whose outputs are added to the residual stream.
    mlp_out: the MLP's last linear layer.   mlp_norm: the norm before the MLP; None where it follows the MLP.

    InputError for a class of timm or transformers, and for neither one projection nor three. `adapt` checks the names.
    """
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)) or _is_of(
        cls, "timm", "transformers"
    ):
        raise InputError(f"register_encoder() takes a module's class of your own, not {cls!r}")
    linears = [projections] if isinstance(projections, str) else list(projections)
    if len(linears) not in (1, 3):
        raise InputError(
            f"projections are one module that makes queries, keys and values, or three, not {linears!r}"
        )
    OWN[cls] = Names(layers, [" ".join(linears)], attention, mlp, [mlp_out], mlp_norm)


def is_own(encoder: nn.Module) -> bool:
    """Return whether the encoder is of a class of one's own, neither timm's nor transformers'."""
    return not _is_of(type(uncompiled(encoder)), "timm", "transformers")


def _is_of(cls: type, *packages: str) -> bool:
    """Return whether `cls` is derived from a class of one of these packages."""
    return any(kind.__module__.split(".")[0] in packages for kind in cls.__mro__)


#: Features of a text: the first token, or the mean of its tokens, as sentence encoders are trained.
POOLS = ("first", "mean")


def pooled(
    encoder: nn.Module, output: Any, pool: str = "first", tokens: Tensor | None = None
) -> Tensor:
    """Return features (batch, dim) from the encoder's output: timm's as it is; of transformers' its own pooling where
    it is read (`Names.pools`), or what `pool` of `POOLS` names.

    tokens: (batch, tokens), false where a text is padded; None without padding.
    """
    names = transformers_names(encoder)
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
    if not isinstance(features, Tensor) or features.ndim != 2:
        what = (
            f"features of shape {tuple(features.shape)}"
            if isinstance(features, Tensor)
            else type(features).__name__
        )
        raise InputError(
            f"{type(uncompiled(encoder)).__name__} returns {what}, not one vector for each image: of timm, create it "
            "with a global_pool; of your own, let it return the class token or a mean"
        )
    return features


def input_shape(encoder: Any) -> tuple[int, ...]:
    """Return the shape of one input: (channels, height, width) of an image, (tokens,) of a short text.

    InputError for an encoder that does not say the size of its images.
    """
    if reads_text(encoder):
        return (8,)
    places = [
        (getattr(encoder, "patch_embed", None), "img_size"),
        (encoder, "img_size"),
        (encoder, "image_size"),
    ]
    places.append((getattr(encoder, "config", None), "image_size"))
    sizes = [getattr(place, name, None) for place, name in places]
    sizes.append(
        (getattr(encoder, "pretrained_cfg", None) or {}).get("input_size", ())[1:]
    )  # of NaFlexViT
    size = next(filter(None, sizes), None)
    if size is None:
        name = type(uncompiled(encoder)).__name__
        raise InputError(
            f"{name} does not say the size of its images: give it an attribute img_size, such as 224"
        )
    height, width = (size, size) if isinstance(size, int) else size
    channels = next((m.in_channels for m in encoder.modules() if isinstance(m, nn.Conv2d)), 3)
    return channels, height, width


def reads_text(encoder: nn.Module) -> bool:
    """Return whether `encoder` reads text."""
    names = transformers_names(encoder)
    return names is not None and names.text


def require_inputs(inputs: Any, encoder: nn.Module) -> None:
    """Raise InputError unless `inputs` are a batch of images, or of texts where the encoder reads text."""
    if reads_text(encoder):
        texts = list(inputs.values()) if isinstance(inputs, Mapping) else []
        if not texts or not all(isinstance(tensor, Tensor) and tensor.shape[0] for tensor in texts):
            raise InputError(
                "the model takes texts: a mapping of tensors (batch, tokens) of at least one text, as a tokenizer "
                f"returns with return_tensors='pt', not {type(inputs).__name__}"
            )
    elif (
        not isinstance(inputs, Tensor)
        or inputs.ndim != 4
        or not inputs.shape[0]
        or not inputs.is_floating_point()
    ):
        given = (
            f"{inputs.dtype} of shape {tuple(inputs.shape)}"
            if isinstance(inputs, Tensor)
            else type(inputs).__name__
        )
        raise InputError(
            "the model takes images: a floating-point tensor (batch, 3, height, width) of at least one image, not "
            + given
        )


def encode_images(encoder: nn.Module, images: Tensor) -> Tensor:
    """Return the features (batch, dim) of images. InputError where the encoder refuses their size."""
    if torch.compiler.is_compiling():
        return pooled(encoder, encoder(images))
    try:
        return pooled(encoder, encoder(images))
    except (AssertionError, ValueError, RuntimeError) as error:
        size, given = input_shape(encoder), tuple(images.shape[1:])
        if isinstance(error, (InputError, torch.OutOfMemoryError)) or size == given:
            raise
        reason = " ".join(str(error).split())
        raise InputError(
            f"{type(uncompiled(encoder)).__name__} is for images {size}, not {given}: {reason}"
        ) from error


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute products of fp32 inside in fp32, also where the process allows TF32 or bf16 instead."""
    switches = _switches_of_products()
    before = [read() for read, _, _ in switches]
    try:
        for _, write, exact in switches:
            write(exact)
        yield
    finally:
        for (_, write, _), value in zip(switches, before, strict=True):
            write(value)


def _switches_of_products() -> list[tuple[Callable[[], str], Callable[[str], None], str]]:
    """Return what reads and writes each of torch's switches, and the value for products in fp32."""
    backends: Any = torch.backends
    if not hasattr(backends, "fp32_precision"):  # before torch 2.9
        return [(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")]
    places = [
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
    ]
    name = "fp32_precision"
    return [
        (partial(getattr, place, name), partial(_write_precision, place), "ieee")
        for place in places
    ]


def _write_precision(place: Any, value: str) -> None:
    """Set a switch of torch's; a value that it has from a more general switch still follows that one."""
    place.fp32_precision = "none"
    if place.fp32_precision != value:
        place.fp32_precision = value


@torch.no_grad()
def example_features(encoder: nn.Module, shape: Sequence[int], pool: str = "first") -> Tensor:
    """Return the features (dim) of one fixed input of `shape`, as the encoder computes them in evaluation mode, in its
    own precision, whatever the process allows, and without compiling anything. Its modes stay as they are.
    """
    example: Any = next(p for p in encoder.parameters() if p.is_floating_point())
    count, device, modes = (
        math.prod(shape),
        example.device,
        {m: m.training for m in encoder.modules()},
    )
    inputs: Any
    if reads_text(encoder):
        config: Any = encoder.config
        ids = torch.arange(count, device=device)[None] * config.vocab_size // count
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    else:  # numbers without a pattern, and without a generator that another version could change
        numbers = (torch.arange(count, dtype=torch.float64, device="cpu") ** 2).sin()
        inputs = numbers.view(1, *shape).to(device, example.dtype)
    compiled = "torch._dynamo" in sys.modules  # its import takes seconds
    try:
        encoder.eval()
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            with torch.autocast(device.type, enabled=False), exact_products():
                output = encoder(**inputs) if isinstance(inputs, dict) else encoder(inputs)
        return pooled(encoder, output, pool)[0]
    finally:
        for module, mode in modes.items():
            module.training = mode
