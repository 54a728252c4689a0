"""Cost of an adapter: the parameters that it trains, and the multiply-adds that it adds to a forward pass.

One multiplication with its addition is one multiply-add; 10⁹ of them are 1 GMAC. fvcore and the paper call them FLOPs.
Matrix products and convolutions count; sums, scales, activations, softmax and LayerNorm do not. (By default fvcore
counts five per number of a LayerNorm, 0.1 % of ViT-B.) All counts are for one image; DoRA's product of A and B is one
per batch.

    backbone            L (12 t d² + 2 t² d) + (t − 1) p² 3 d       t tokens, width d, L layers, patches p × p
    Bottleneck          L · 2 · 2 t d (d / ratio)
    AdaptFormer         L · 2 t d (d / ratio)
    LoRA, VeRA          L · |targets| · 2 t r d
    PVeRA               the same for the mean; 3 t r d in place of 2 t r d where σ is computed
    DoRA                L · |targets| · (2 t r d + r d²); with norms of input columns (t d² + r d²)
    Linear, (IA)³       0
    merged adapters     0
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters import Method
from pvera.encoders import Shape
from pvera.errors import InputError, optional
from pvera.hooks import plain_attention
from pvera.model import adapt

GIGA = 10**9

# Counting


@dataclass(frozen=True)
class Cost:
    """Parameters of an adapted model, and multiply-adds of one image. The head counts apart.

    adapter_parameters: trained.   frozen_parameters: VeRA's and PVeRA's random matrices, which the seed draws again.
    inference, sampled, merged: multiply-adds of backbone and adapters, with z = μ, with z drawn, and after `merge_`;
        None where the method has no distribution or cannot be merged.
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
    """Return the cost of `method` on `vit`, which stays as it was and may be on the meta device.

    backbone: `multiply_adds` of the bare `vit`, if known.
    Raises what `adapt` and `multiply_adds` raise.
    """
    image = one_image(vit)
    with _left_as_found(vit):
        model = adapt(vit, method, num_classes)
        try:
            (member,) = model.members
            numbers = member.count()
            head = multiply_adds(member.head, image.new_zeros(1, member.dim))
            with model.eval().without_kl():
                inference = multiply_adds(model, image) - head
            sampled = multiply_adds(model.train(), image) - head if member.samples else None
            merged = multiply_adds(model.merge_(), image) - head if member.mergeable else None
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
        inference=inference,
        sampled=sampled,
        merged=merged,
    )


def trained_parameters(vit: nn.Module, method: Method) -> int:
    """Return the number of parameters that `method` trains, without the head; `vit` may be on the meta device."""
    with _left_as_found(vit):
        model = adapt(vit, method, num_classes=1)
        numbers = model.members[0].count()
        model.unload()
    return numbers["adapter"]


def one_image(vit: nn.Module) -> Tensor:
    """Return zeros (1, channels, height, width) in the shape of an image that `vit` takes."""
    patch_embed: Any = vit.patch_embed
    weight = patch_embed.proj.weight
    return weight.new_zeros(1, weight.shape[1], *patch_embed.img_size)


@torch.no_grad()
def multiply_adds(model: nn.Module, inputs: Tensor) -> int:
    """Return the multiply-adds of model(inputs), which fvcore counts on the operators of a forward pass.

    Attention is computed by its two products meanwhile: fvcore counts a fused operator as nothing. InputError for an
    operator that is neither in `_products` nor in `NO_PRODUCTS`, and without fvcore.
    """
    analysis = _fvcore("fvcore.nn").FlopCountAnalysis(model, inputs).clear_op_handles()
    analysis.set_op_handle(**_products(), **dict.fromkeys(NO_PRODUCTS))
    # Unknown operators are an error below; the sums per module are not used.
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    with plain_attention(model), _convolutions_in_memory(model):
        total = analysis.total()
    if unknown := sorted(analysis.unsupported_ops()):
        raise InputError(
            f"{type(model).__name__} has operators that cannot be counted: {', '.join(unknown)}; add those that are no "
            "products to pvera.cost.NO_PRODUCTS"
        )
    return int(total)


def _fvcore(module: str) -> Any:
    """Import a module of fvcore, which on import compiles losses in a way that torch is about to give up."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        return optional(module, "study")


def _einsum(inputs: list, outputs: list) -> int:
    """Return one multiply-add for every combination of the indices of two tensors.

    fvcore's own handler rounds other equations than a plain batched product to four digits.
    """
    equation, tensors = inputs[0].toIValue(), list(inputs[1].node().inputs())
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        sizes |= dict(zip(term, tensor.type().sizes(), strict=True))
    if len(terms) != 2:
        raise ValueError(f"einsum of {len(terms)} tensors: {equation}")
    return math.prod(sizes.values())


def _products() -> dict[str, Any]:
    """Return the handlers of the operators that count."""
    handles = _fvcore("fvcore.nn.jit_handles")
    return {
        "aten::_convolution": handles.conv_flop_jit,
        "aten::addmm": handles.addmm_flop_jit,
        "aten::einsum": _einsum,
        "aten::linear": handles.linear_flop_jit,
        "aten::matmul": handles.matmul_flop_jit,
    }


#: Operators on single numbers or on shapes, beside those that fvcore itself ignores.
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
    """Let convolutions on the meta device, which torch cannot trace, work on zeros in memory inside."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.weight.is_meta]
    for conv in convolutions:

        def forward(x: Tensor, conv=conv, weight=torch.zeros(conv.weight.shape)) -> Tensor:
            return conv._conv_forward(torch.zeros_like(x, device="cpu"), weight, None).to(x.device)

        conv.__dict__["forward"] = forward
    try:
        yield
    finally:
        for conv in convolutions:
            del conv.__dict__["forward"]


@contextmanager
def _left_as_found(vit: nn.Module) -> Iterator[None]:
    """Restore afterwards which parameters are trainable and which modules train; `unload` restores the rest."""
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


def backbone_multiply_adds(shape: Shape) -> int:
    """Return the multiply-adds of the bare backbone for one image.

    Of 12 t d², queries, keys and values take 3, their projection 1 and the MLP 8. The attention's two products and the
    patches' projection follow.
    """
    t, d = shape.tokens, shape.dim
    return shape.depth * (12 * t * d**2 + 2 * t**2 * d) + shape.patches * shape.patch_inputs * d


def adapter_multiply_adds(method: Method, shape: Shape, sampled: bool = False) -> int | None:
    """Return the multiply-adds of all layers' adapters, unmerged; None where the method has no closed form.

    sampled: count σ too.
    """
    layer = method.multiply_adds(shape, sampled)
    return None if layer is None else shape.depth * layer
