"""Cost of an adapter: its trained parameters, and the multiply-adds that it adds to a forward pass.

One multiplication with its addition is one multiply-add; 10⁹ of them are 1 GMAC. The paper calls
them FLOPs. Matrix products and convolutions count; sums, scales, activations, softmax and LayerNorm
do not. All counts are for one image; DoRA's product of A and B is one per batch. Torch counts the
operators of a pass, so any method has a cost.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pvera.adapters import Method
from pvera.features import input_shape
from pvera.model import AdaptedModel

GIGA = 10**9


@dataclass(frozen=True)
class Cost:
    """Parameters of an adapted model, and multiply-adds of one image."""

    backbone_parameters: int
    #: Trained, without the head.
    adapter_parameters: int
    #: VeRA's and PVeRA's random matrices, which follow from the seed.
    frozen_parameters: int
    head_parameters: int
    backbone_multiply_adds: int
    head_multiply_adds: int
    #: Multiply-adds of backbone and adapters with z = μ.
    inference: int
    #: The same with a sampled z; None if the method has no distribution.
    sampled: int | None
    #: The same after `merge_`; None if the method cannot be merged.
    merged: int | None


def count_cost(encoder: nn.Module, method: Method, num_classes: int = 1) -> Cost:
    """Return the cost of a method.

    Args:
        encoder: The backbone, which stays as it is; it may be on the meta device.
        method: The method.
        num_classes: Size of the head.

    Raises:
        InputError: As `adapt`.
    """
    model = _adapt_on_meta(encoder, method, num_classes)
    (member,) = model.members
    # A tensor on the meta device has a shape, and no numbers.
    image = next(model.backbone.parameters()).new_zeros(1, *input_shape(encoder))
    parameters = member.count()
    head = multiply_adds(member.head, image.new_zeros(1, member.dim))
    # In this order: each step leaves the model in the mode of the next.
    with model.eval().without_kl():
        inference = multiply_adds(model, image) - head
    sampled = None
    if member.is_stochastic:
        # Training mode samples.
        sampled = multiply_adds(model.train(), image) - head
    merged = None
    if member.mergeable:
        merged = multiply_adds(model.merge_(), image) - head
    backbone = multiply_adds(model.unload(), image)
    return Cost(
        backbone_parameters=sum(p.numel() for p in encoder.parameters()),
        adapter_parameters=parameters["adapter"],
        frozen_parameters=sum(b.numel() for b in member.buffers()),
        head_parameters=parameters["head"],
        backbone_multiply_adds=backbone,
        head_multiply_adds=head,
        inference=inference,
        sampled=sampled,
        merged=merged,
    )


def trained_parameters(encoder: nn.Module, method: Method) -> int:
    """Return the number of parameters that a method trains, without the head."""
    return _adapt_on_meta(encoder, method, 1).members[0].count()["adapter"]


def _adapt_on_meta(encoder: nn.Module, method: Method, num_classes: int) -> AdaptedModel:
    """Adapt a copy of the backbone on the meta device."""
    copied = copy.deepcopy(encoder).to("meta")
    return AdaptedModel(copied, method, num_classes, on_meta=True)


@torch.no_grad()
def multiply_adds(model: nn.Module, inputs: Tensor) -> int:
    """Return the multiply-adds of model(inputs) on the meta device."""
    with FlopCounterMode(display=False) as counter:
        model(inputs)
    return counter.get_total_flops() // 2  # torch counts a multiply-add as two
