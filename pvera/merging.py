"""The merge of adapters into frozen weights, undone bit for bit."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters.base import require_finite
from pvera.encoders import EncoderLayer, require_plain
from pvera.errors import InputError
from pvera.grid import Member


class MergedWeights:
    """Frozen weights that hold an adapter, with their original values."""

    def __init__(self):
        #: Changed parameters with their old values, in the order of the changes.
        self.originals: list[tuple[Tensor, Tensor]] = []

    def merge(self, backbone: nn.Module, layers: Sequence[EncoderLayer], member: Member) -> None:
        """Merge a member's adapters into the weights of their layers; all, or none after an error.

        Raises:
            InputError: The method is not linear, or the weights cannot be changed.
        """
        if not member.mergeable:
            raise InputError(f"{member.method.title} is not linear and cannot be merged")
        require_finite(member.trainable_tensors(), "merge_()")
        try:
            for layer, adapter in zip(layers, member.adapters, strict=True):
                self._merge_layer(layer, adapter)
            self._require_unshared(backbone)
        except BaseException:  # such as a GPU without memory for the originals
            self.undo()
            raise

    @torch.no_grad()
    def _merge_layer(self, layer: EncoderLayer, adapter: Any) -> None:
        if "project" in adapter.hook_points:
            for linear, letters in layer.qkv_linears:
                frozen, frozen_bias = layer.split(linear, letters)
                weight, bias = adapter.merge_projection(
                    frozen.clone(), frozen_bias.clone(), letters
                )
                self._replace(linear.weight, weight.flatten(0, 1))
                if linear.bias is not None:
                    self._replace(linear.bias, bias.flatten())
                for letter, separate in layer.separate_biases.items():
                    self._replace(separate, bias[letters.index(letter)])
        if "hidden" in adapter.hook_points:
            require_plain(layer.mlp_out)
            self._replace(layer.mlp_out.weight, adapter.merge_hidden(layer.mlp_out.weight))

    def _replace(self, parameter: Tensor, value: Tensor) -> None:
        self.originals.append((parameter, parameter.detach().clone()))
        parameter.copy_(value)

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the original values."""
        # In reverse: a parameter that was replaced twice gets its first value.
        for parameter, original in reversed(self.originals):
            parameter.copy_(original)
        self.originals = []

    def _require_unshared(self, backbone: nn.Module) -> None:
        """Raise InputError if another module, with another adapter, shares a changed parameter."""
        parameters = backbone.named_parameters(remove_duplicate=False)
        counts = Counter(_address(parameter) for _, parameter in parameters)
        if any(counts[_address(changed)] > 1 for changed, _ in self.originals):
            raise InputError(
                "this backbone cannot be merged: its layers share weights, and one adapter would "
                "change them all"
            )


def _address(tensor: Tensor) -> int:
    """Return the address of the data, or on the meta device, which has none, the object's id."""
    return tensor.data_ptr() or id(tensor)
