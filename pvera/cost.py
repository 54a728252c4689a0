"""Cost of an adapter: the parameters that it trains, and the multiply-adds that it adds to a forward pass.

One multiplication with its addition is one multiply-add; 10⁹ of them are 1 GMAC. The paper calls them FLOPs.
Matrix products and convolutions count; sums, scales, activations, softmax and LayerNorm do not. All counts are for one
image; DoRA's product of A and B is one per batch.

    backbone            L (12 t d² + 2 t² d) + (t − 1) p² 3 d       t tokens, width d, L layers, patches p × p
    Bottleneck          L · 2 · 2 t d (d / ratio)
    AdaptFormer         L · 2 t d (d / ratio)
    LoRA, VeRA          L · |targets| · 2 t r d
    PVeRA               the same for the mean; 3 t r d in place of 2 t r d where σ is computed
    DoRA                L · |targets| · (2 t r d + r d²); with norms of input columns (t d² + r d²)
    Linear, (IA)³       0
    merged adapters     0
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pvera.adapters import AdaptFormer, Bottleneck, DoRA, LoRA, Method, PVeRA, VeRA
from pvera.encoders import encoder_layers
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
    """Return the cost of `method` on `vit`, which stays as it is and may be on the meta device.

    backbone: `multiply_adds` of the bare `vit`, if known.
    Raises what `adapt` raises.
    """
    vit = copy.deepcopy(vit).to("meta")
    image = one_image(vit)
    model = adapt(vit, method, num_classes)
    (member,) = model.members
    numbers = member.count()
    head = multiply_adds(member.head, image.new_zeros(1, member.dim))
    with model.eval().without_kl():
        inference = multiply_adds(model, image) - head
    sampled = multiply_adds(model.train(), image) - head if member.samples else None
    merged = multiply_adds(model.merge_(), image) - head if member.mergeable else None
    bare = multiply_adds(model.unload(), image) if backbone is None else backbone
    return Cost(
        backbone_parameters=sum(p.numel() for p in vit.parameters()),
        adapter_parameters=numbers["adapter"],
        frozen_parameters=sum(b.numel() for b in member.buffers()),
        head_parameters=numbers["head"],
        backbone_multiply_adds=bare,
        head_multiply_adds=head,
        inference=inference,
        sampled=sampled,
        merged=merged,
    )


def trained_parameters(vit: nn.Module, method: Method) -> int:
    """Return the number of parameters that `method` trains, without the head; `vit` stays as it is."""
    return adapt(copy.deepcopy(vit).to("meta"), method, num_classes=1).members[0].count()["adapter"]


def one_image(vit: nn.Module) -> Tensor:
    """Return zeros (1, channels, height, width) in the shape of an image that `vit` takes."""
    patch_embed: Any = vit.patch_embed
    weight = patch_embed.proj.weight
    return weight.new_zeros(1, weight.shape[1], *patch_embed.img_size)


@torch.no_grad()
def multiply_adds(model: nn.Module, inputs: Tensor) -> int:
    """Return the multiply-adds of model(inputs) on the meta device, as torch counts the operators of a pass."""
    with FlopCounterMode(display=False) as counter:
        model(inputs)
    return counter.get_total_flops() // 2  # torch counts a multiply-add as two


# Closed forms


@dataclass(frozen=True)
class Shape:
    """Sizes of a vision transformer; its MLP has width 4 d, as in DINOv2's S, B and L.

    tokens: patches, class token and registers.   patch_inputs: numbers of a patch, 3 p².
    """

    tokens: int
    dim: int
    depth: int
    patches: int
    patch_inputs: int

    @classmethod
    def of(cls, vit: Any) -> "Shape":
        layers, patches = encoder_layers(vit), vit.patch_embed.num_patches
        patch_inputs = vit.patch_embed.proj.weight[0].numel()
        return cls(patches + vit.num_prefix_tokens, layers[0].dim, len(layers), patches, patch_inputs)


def backbone_multiply_adds(shape: Shape) -> int:
    """Return the multiply-adds of the bare backbone for one image.

    Of 12 t d², queries, keys and values take 3, their projection 1 and the MLP 8. The attention's two products and the
    patches' projection follow.
    """
    t, d = shape.tokens, shape.dim
    return shape.depth * (12 * t * d**2 + 2 * t**2 * d) + shape.patches * shape.patch_inputs * d


def adapter_multiply_adds(method: Method, shape: Shape, sampled: bool = False) -> int:
    """Return the multiply-adds of all layers' adapters, unmerged; 0 for a method of one's own.

    sampled: count σ too, where it is trained.
    """
    t, d, targets = shape.tokens, shape.dim, len(getattr(method, "targets", ""))
    match method:
        case Bottleneck():
            layer = 2 * 2 * t * d * (d // method.ratio)
        case AdaptFormer():
            layer = 2 * t * d * (d // method.ratio)
        case LoRA():
            layer = targets * 2 * t * d * method.rank
        case VeRA() | PVeRA():  # fused projections read one x, so a shared A is one product
            halves = method.halves if sampled and isinstance(method, PVeRA) else 1
            layer = (halves * (1 if method.pair == "shared" else targets) + targets) * t * d * method.rank
        case DoRA():
            tokens = 2 * t * d * method.rank if method.norm == "input" else t * d**2
            layer = targets * (tokens + method.rank * d**2)
        case _:
            layer = 0
    return shape.depth * layer
