"""What an adapter costs: the numbers it trains, and the multiply-adds that it adds to a forward pass.

Multiply-adds are those of matrix products and convolutions, as fvcore counts them and calls them FLOPs (so
does the paper): one multiplication and one addition are one, 1 GMAC is 10⁹ of them. Work per number (sums,
scales, activations, softmax, LayerNorm) counts nothing; fvcore by default takes five per number of a
LayerNorm, which is 0.1 % of ViT-B. All is for one image: DoRA's product of A and B is one per batch.

    backbone            L (12 t d² + 2 t² d) + (t − 1) p² 3 d       t tokens, width d, L layers, patches p × p
    Bottleneck          L · 2 · 2 t d (d / ratio)
    AdaptFormer         L · 2 t d (d / ratio)
    LoRA, VeRA          L · |targets| · 2 t r d
    PVeRA               the same for the mean; 3 t r d where σ is computed, in training and to sample
    DoRA                L · |targets| · (2 t r d + r d²); with norms of input columns (t d² + r d²)
    Linear, (IA)³       nothing; nor does any of the others that can be merged, once it is
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pvera.adapters import Method
from pvera.encoders import encoder_layers
from pvera.errors import InputError
from pvera.hooks import plain_attention
from pvera.model import adapt

with warnings.catch_warnings():
    # On import fvcore compiles losses that are not used here, in a way that torch is about to give up.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from fvcore.nn import FlopCountAnalysis
    from fvcore.nn.jit_handles import addmm_flop_jit, conv_flop_jit, get_shape, linear_flop_jit, matmul_flop_jit

GIGA = 10**9

# Counting


@dataclass(frozen=True)
class Cost:
    """Numbers that an adapted model holds, and multiply-adds of one image; the head apart, which is the same
    for every method.

    adapter: trained.   frozen: VeRA's and PVeRA's random matrices, which a seed can bring back.
    inference: of the deterministic pass, where PVeRA takes the mean and needs its half of A only.
    sampled: of the pass that draws z, as in training; None for methods without a distribution.
    merged: after `merge_`; None for methods that cannot be merged.
    """

    backbone_parameters: int
    adapter_parameters: int
    frozen_parameters: int
    head_parameters: int
    backbone_multiply_adds: int
    head_multiply_adds: int
    inference: int
    sampled: int | None
    merged: int | None


def count(vit: nn.Module, method: Method, num_classes: int = 1, backbone: int | None = None) -> Cost:
    """The cost of `method` on `vit`, which is left as it was; of it shapes are enough (the meta device).

    backbone: `multiply_adds` of the bare `vit`, where the caller knows it.
    InputError as `adapt` and `multiply_adds`.
    """
    image = one_image(vit)
    with _left_as_found(vit):
        model = adapt(vit, method, num_classes)
        try:
            (member,) = model.members
            numbers = member.count()
            head = multiply_adds(member.head, image.new_zeros(1, member.head.in_features))
            with model.eval().without_kl():
                passes = {"inference": multiply_adds(model, image), "sampled": None, "merged": None}
            if all(hasattr(adapter, "sampling") for adapter in member.layers):
                passes["sampled"] = multiply_adds(model.train(), image)
            if all(adapter.foldable for adapter in member.layers):
                passes["merged"] = multiply_adds(model.merge_(), image)
        finally:
            model.unload()
        if backbone is None:
            backbone = multiply_adds(vit, image)
    return Cost(
        backbone_parameters=sum(p.numel() for p in vit.parameters()),
        adapter_parameters=numbers["adapter"],
        frozen_parameters=sum(b.numel() for b in member.buffers()),
        head_parameters=numbers["head"],
        backbone_multiply_adds=backbone,
        head_multiply_adds=head,
        **{name: None if total is None else total - head for name, total in passes.items()},
    )


def trained_parameters(vit: nn.Module, method: Method) -> int:
    """Numbers that `method` trains on `vit`, without the head; of `vit` shapes are enough."""
    with _left_as_found(vit):
        model = adapt(vit, method, num_classes=1)
        numbers = model.members[0].count()
        model.unload()
    return numbers["adapter"]


def one_image(vit: nn.Module) -> Tensor:
    """An empty image (1, channels, height, width) that `vit` takes."""
    weight = vit.patch_embed.proj.weight
    return weight.new_zeros(1, weight.shape[1], *vit.patch_embed.img_size)


@torch.no_grad()
def multiply_adds(model: nn.Module, inputs: Tensor) -> int:
    """Multiply-adds of model(inputs), counted by fvcore on the operators of a forward pass.

    Attention is computed by its two products meanwhile: fvcore would count a fused operator as nothing.
    InputError for an operator of which it is not known here whether it is a product.
    """
    analysis = FlopCountAnalysis(model, inputs).clear_op_handles()
    analysis.set_op_handle(**PRODUCTS, **dict.fromkeys(NO_PRODUCTS))
    # What fvcore would warn of is an error below, or is about its sums per module, which are not used.
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    with plain_attention(model), _convolutions_in_memory(model):
        total = analysis.total()
    if unknown := sorted(analysis.unsupported_ops()):
        raise InputError(
            f"{type(model).__name__} has operators that cannot be counted: {', '.join(unknown)}; add those that are no "
            "products to pvera.cost.NO_PRODUCTS"
        )
    return int(total)


def _einsum(inputs: list, outputs: list) -> int:
    """Of two tensors: one multiply-add for every combination of all indices.

    In place of fvcore's own handler, which rounds what is not a plain batched product to four digits.
    """
    equation, tensors = inputs[0].toIValue(), list(inputs[1].node().inputs())
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    sizes = {}
    for term, tensor in zip(terms, tensors, strict=True):
        sizes |= dict(zip(term, get_shape(tensor), strict=True))
    if len(terms) != 2:
        raise ValueError(f"einsum of {len(terms)} tensors: {equation}")
    return math.prod(sizes.values())


PRODUCTS = {
    "aten::_convolution": conv_flop_jit,
    "aten::addmm": addmm_flop_jit,
    "aten::einsum": _einsum,
    "aten::linear": linear_flop_jit,
    "aten::matmul": matmul_flop_jit,
}
#: Operators of vision transformers and adapters that work on each number alone, or on shapes, beside those
#: that fvcore knows as such.
NO_PRODUCTS = tuple(
    f"aten::{name}"
    for name in (
        "add", "sub", "rsub", "mul", "div", "exp", "mean", "gelu", "silu", "softmax", "layer_norm",
        "linalg_vector_norm", "randn", "empty_like", "unflatten", "view_as", "addcmul", "exp_", "mul_", "pow", "relu",
        "sum",
    )
)  # fmt: skip


@contextmanager
def _convolutions_in_memory(model: nn.Module) -> Iterator[None]:
    """torch cannot trace a convolution on the meta device, so there that of the patches works on zeros."""
    found = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.weight.is_meta]
    for conv in found:

        def forward(x: Tensor, conv=conv, weight=torch.zeros(conv.weight.shape)) -> Tensor:
            return conv._conv_forward(torch.zeros_like(x, device="cpu"), weight, None).to(x.device)

        conv.forward = forward
    try:
        yield
    finally:
        for conv in found:
            del conv.forward


@contextmanager
def _left_as_found(vit: nn.Module) -> Iterator[None]:
    """Restores what is trainable and which modules train; `unload` restores the rest."""
    trainable = {parameter: parameter.requires_grad for parameter in vit.parameters()}
    training = {module: module.training for module in vit.modules()}
    try:
        yield
    finally:
        for parameter, before in trainable.items():
            parameter.requires_grad_(before)
        for module, before in training.items():
            module.training = before


# Closed forms


@dataclass(frozen=True)
class Shape:
    """What the closed forms know of a vision transformer: an MLP of width 4 d, as DINOv2's S, B and L have.

    tokens: patches and class token.   patch_inputs: numbers of a patch, 3 p².
    """

    tokens: int
    dim: int
    depth: int
    patches: int
    patch_inputs: int

    @classmethod
    def of(cls, vit: nn.Module) -> "Shape":
        layers, patches = encoder_layers(vit), vit.patch_embed.num_patches
        patch_inputs = vit.patch_embed.proj.weight[0].numel()
        return cls(patches + vit.num_prefix_tokens, layers[0].dim, len(layers), patches, patch_inputs)


def backbone_multiply_adds(shape: Shape) -> int:
    """Of the 12 t d² queries, keys and values are 3, their projection 1, the MLP 8; then the two products of
    the attention, and the patches."""
    t, d = shape.tokens, shape.dim
    return shape.depth * (12 * t * d**2 + 2 * t**2 * d) + shape.patches * shape.patch_inputs * d


def adapter_multiply_adds(method: Method, shape: Shape, sampled: bool = False) -> int | None:
    """Return what the adapters of all layers add, unmerged; None where the method has no closed form.

    sampled: where PVeRA computes σ too.
    """
    layer = method.multiply_adds(shape, sampled)
    return None if layer is None else shape.depth * layer
