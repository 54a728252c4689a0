"""Cost of an adapter: the parameters that it trains, and the multiply-adds that it adds to a forward pass.

One multiplication with its addition is one multiply-add; 10⁹ of them are 1 GMAC. The paper calls them FLOPs.
Matrix products and convolutions count; sums, scales, activations, softmax and LayerNorm do not. All counts are for one
image; DoRA's product of A and B is one per batch. Torch counts the operators of a pass, so any method has a cost.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pvera.adapters import Method
from pvera.encoders import input_shape
from pvera.model import AdaptedModel

GIGA = 10**9


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


def count(vit: nn.Module, method: Method, num_classes: int = 1) -> Cost:
    """Return the cost of `method` on `vit`, which stays as it is and may be on the meta device.

    Raises what `adapt` raises.
    """
    vit = copy.deepcopy(vit).to("meta")
    image = next(vit.parameters()).new_zeros(1, *input_shape(vit))
    model = AdaptedModel(vit, method, num_classes, shapes_only=True)
    (member,) = model.members
    numbers = member.count()
    head = multiply_adds(member.head, image.new_zeros(1, member.dim))
    with model.eval().without_kl():
        inference = multiply_adds(model, image) - head
    sampled = multiply_adds(model.train(), image) - head if member.is_stochastic else None
    merged = multiply_adds(model.merge_(), image) - head if member.mergeable else None
    return Cost(
        backbone_parameters=sum(p.numel() for p in vit.parameters()),
        adapter_parameters=numbers["adapter"],
        frozen_parameters=sum(b.numel() for b in member.buffers()),
        head_parameters=numbers["head"],
        backbone_multiply_adds=multiply_adds(model.unload(), image),
        head_multiply_adds=head,
        inference=inference,
        sampled=sampled,
        merged=merged,
    )


def trained_parameters(vit: nn.Module, method: Method) -> int:
    """Return the number of parameters that `method` trains, without the head; `vit` stays as it is."""
    model = AdaptedModel(copy.deepcopy(vit).to("meta"), method, num_classes=1, shapes_only=True)
    return model.members[0].count()["adapter"]


@torch.no_grad()
def multiply_adds(model: nn.Module, inputs: Tensor) -> int:
    """Return the multiply-adds of model(inputs) on the meta device, as torch counts the operators of a pass."""
    with FlopCounterMode(display=False) as counter:
        model(inputs)
    return counter.get_total_flops() // 2  # torch counts a multiply-add as two
