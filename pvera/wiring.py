"""Where adapters attach to a frozen encoder: its layers, and the hooks that call the adapters.

Encoders are timm's vision transformers, and those of transformers that make queries, keys and values with a
linear layer each: BERT, RoBERTa, DeBERTa-v2 and -v3, DINOv2. They are told by the names of their modules, so
neither package need be there.

Forward hooks leave the backbone's modules and their names untouched: once the hooks are removed it is the
plain model again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from .errors import InputError


@dataclass
class EncoderLayer:
    """One encoder layer, seen by the adapters.

    projections: the frozen linear layers that make queries, keys and values, each with the positions that it
    makes in order: [(attn.qkv, "qkv")] where they are fused, else [(query, "q"), (key, "k"), (value, "v")].
    attention, mlp: what the attention and the MLP add to the residual stream comes out of these.
    mlp_norm: the LayerNorm before the MLP; None where it stands behind it (BERT and its like).
    activation: the MLP's hidden activation comes out of it, and enters `mlp_out`.
    reader: the module whose first argument the projections read, where they read position embeddings as well
        (DeBERTa).
    """

    layer: nn.Module
    projections: list[tuple[nn.Linear, str]]
    attention: nn.Module
    mlp_norm: nn.Module | None
    activation: nn.Module
    mlp_out: nn.Linear
    mlp: nn.Module
    reader: nn.Module | None = None

    @property
    def dim(self) -> int:
        return self.projections[0][0].in_features

    @property
    def hidden_dim(self) -> int:
        return self.mlp_out.in_features

    def projection(self, position: str) -> tuple[Tensor, Tensor]:
        """Frozen weight (d_out, d_in) and bias (d_out) of "q", "k" or "v"; views, not copies."""
        for linear, positions in self.projections:
            if position in positions:
                weight, bias = per_position(linear, positions)
                return weight[positions.index(position)], bias[positions.index(position)]
        raise KeyError(position)


def per_position(linear: nn.Linear, positions: str) -> tuple[Tensor, Tensor]:
    """Weight (p, d_out, d_in) and bias (p, d_out) of the p positions that `linear` makes."""
    count = len(positions)
    bias = linear.bias if linear.bias is not None else linear.weight.new_zeros(linear.out_features)
    return linear.weight.unflatten(0, (count, -1)), bias.unflatten(0, (count, -1))


def encoder_layers(encoder: nn.Module) -> list[EncoderLayer]:
    """The layers of an encoder, in order. InputError for one of another kind, or a vision transformer that
    reads `attn.qkv` without calling it (BEiT and EVA with a bias for q), where no adapter could attach.
    """
    for kind in (_timm, _bert, _deberta, _dinov2):
        try:
            layers = kind(encoder)
        except (AttributeError, TypeError):
            continue
        if layers and all(isinstance(linear, nn.Linear) for x in layers for linear, _ in x.projections):
            return layers
    raise InputError(
        f"{type(encoder).__name__} is neither a timm vision transformer with fused attn.qkv layers nor a "
        "bare BERT, RoBERTa, DeBERTa-v2 or DINOv2 encoder of transformers"
    )


def _timm(vit: nn.Module) -> list[EncoderLayer]:
    if any(getattr(b.attn, "q_bias", None) is not None for b in vit.blocks):
        return []
    return [
        EncoderLayer(b, [(b.attn.qkv, "qkv")], b.attn, b.norm2, b.mlp.act, b.mlp.fc2, b.mlp)
        for b in vit.blocks
    ]


def _bert(encoder: nn.Module) -> list[EncoderLayer]:
    """BERT, RoBERTa: LayerNorm follows each residual connection."""
    return [
        _post_norm(x, [(y.query, "q"), (y.key, "k"), (y.value, "v")])
        for x in encoder.encoder.layer
        for y in [x.attention.self]
    ]


def _deberta(encoder: nn.Module) -> list[EncoderLayer]:
    """DeBERTa-v2 and -v3. With `share_att_key` (v3) query and key layers read relative positions as well."""
    return [
        _post_norm(x, [(y.query_proj, "q"), (y.key_proj, "k"), (y.value_proj, "v")], reader=y)
        for x in encoder.encoder.layer
        for y in [x.attention.self]
    ]


def _post_norm(x: nn.Module, projections: list[tuple[nn.Linear, str]], **more) -> EncoderLayer:
    out = x.output.dense
    return EncoderLayer(x, projections, x.attention.output.dense, None, x.intermediate, out, out, **more)


def _dinov2(encoder: nn.Module) -> list[EncoderLayer]:
    return [
        EncoderLayer(x, [(y.q_proj, "q"), (y.k_proj, "k"), (y.v_proj, "v")],
                     y.o_proj, x.norm2, x.mlp.activation_fn, x.mlp.fc2, x.mlp)
        for x in encoder.encoder.layer
        for y in [x.attention]
    ]


def attach(layer: EncoderLayer, sites: set[str], call: Callable[..., Tensor]) -> list:
    """Hook `call(site, *tensors)` to the layer's `sites` (see `adapters.base`). Returns the hook handles."""
    handles = []
    if "project" in sites:
        tokens: list[Tensor] = []  # what `reader` was given, while it runs
        if layer.reader is not None:
            handles.append(layer.reader.register_forward_pre_hook(lambda _, args: tokens.append(args[0])))
            handles.append(layer.reader.register_forward_hook(lambda *_: tokens.clear(), always_call=True))
        for linear, positions in layer.projections:

            def project(module, args, y, positions=positions):
                site = "project" if not tokens or args[0] is tokens[0] else "project_positions"
                # No view to autograd, which would copy gradients where adapters overwrite y; nothing else reads it.
                y = torch.ops.aten._unsafe_view(y, (*y.shape[:-1], len(positions), y.shape[-1] // len(positions)))
                return call(site, args[0], y, positions=positions).flatten(-2)

            handles.append(linear.register_forward_hook(project))
    for site, module in (
        ("hidden", layer.activation),
        ("after_attention", layer.attention),
        ("after_mlp", layer.mlp),
    ):
        if site in sites:
            handles.append(module.register_forward_hook(lambda _, args, y, site=site: call(site, y)))
    for site, module in (("beside_mlp", layer.layer), ("inside_mlp", layer.mlp)):
        if site in sites:
            before: list[Tensor] = []  # the residual stream between the two halves of the layer
            handles.append(layer.mlp_norm.register_forward_pre_hook(lambda _, args, to=before: to.append(args[0])))
            handles.append(module.register_forward_hook(
                lambda _, args, y, site=site, of=before: y + call(site, of.pop())
            ))
    return handles


@contextmanager
def class_token_only(vit: nn.Module, last: EncoderLayer, enabled: bool) -> Iterator[None]:
    """Inside, the last layer's LayerNorm and MLP see the class token alone, if that is all that `vit` reads.

    Their output then adds to every token, which is right for the first and never read of the others.
    """
    if not enabled or getattr(vit, "global_pool", None) != "token":
        yield
        return
    first = last.mlp_norm.register_forward_pre_hook(lambda _, args: args[0][:, :1], prepend=True)
    try:
        yield
    finally:
        first.remove()


@contextmanager
def cast_once(encoder: nn.Module) -> Iterator[None]:
    """Inside, frozen linear layers hold their weights in the type of autocast, which would cast them anew in every
    pass; without autocast, nothing changes. Equal bit for bit. The weights must not change inside."""
    kind = next(encoder.parameters()).device.type
    layers = [m for m in encoder.modules() if type(m) is nn.Linear and not m.weight.requires_grad]
    for layer in layers if torch.is_autocast_enabled(kind) else []:
        tensors = {"weight": layer.weight, "bias": layer.bias}
        dtype = torch.get_autocast_dtype(kind)
        cast = {name: tensor.detach().to(dtype) for name, tensor in tensors.items() if tensor is not None}
        layer.forward = partial(nn.functional.linear, **cast)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


@contextmanager
def plain_attention(model: nn.Module) -> Iterator[None]:
    """Inside, timm's attention layers compute plain products in the place of torch's fused attention."""
    layers = [module for module in model.modules() if getattr(module, "fused_attn", False)]
    for layer in layers:
        layer.fused_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.fused_attn = True


SHORT = 300  # patches; about where the backward pass of the fused attention takes less time again


def training_attention(encoder: nn.Module) -> AbstractContextManager:
    """`plain_attention` under autocast on a processor, for images of few patches: in half precision its backward pass
    takes as little as a fifth of the time of the fused one's, for which the scores are kept. Elsewhere nothing."""
    half = torch.is_autocast_enabled("cpu") and next(encoder.parameters()).device.type == "cpu"
    patches = getattr(getattr(encoder, "patch_embed", None), "num_patches", None)
    return plain_attention(encoder) if half and patches and patches < SHORT else nullcontext()


@torch.no_grad()
def fold(layer: EncoderLayer, adapter) -> list[tuple[nn.Parameter, Tensor]]:
    """Fold a foldable adapter into the layer's weights. Returns the parameters changed, with their old values."""
    changed = []
    if hasattr(adapter, "project"):
        for linear, positions in layer.projections:
            weight, bias = (t.clone() for t in per_position(linear, positions))
            weight, bias = adapter.fold_projection(weight, bias, positions)
            changed += _replace(linear.weight, weight.flatten(0, 1))
            if linear.bias is not None:
                changed += _replace(linear.bias, bias.flatten())
    if hasattr(adapter, "hidden"):
        changed += _replace(layer.mlp_out.weight, adapter.fold_hidden(layer.mlp_out.weight))
    return changed


def _replace(parameter: nn.Parameter, value: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
    old = parameter.detach().clone()
    parameter.copy_(value)
    return [(parameter, old)]
