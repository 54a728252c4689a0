"""One step of AdamW on the loss of Eq. 8, for all active members of a grid."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pvera.adapters.base import full_precision
from pvera.adapters.pvera import total_loss
from pvera.model import AdaptedModel, Member
from pvera.study.protocol import Protocol

#: A function from a batch of inputs, its labels, and β of the active members to `step`'s losses.
Step = Callable[[Any, Tensor, list[float]], Tensor]


def step(
    model: AdaptedModel,
    forward: Callable[..., Tensor],
    inputs: Any,
    labels: Tensor,
    betas: list[float],
    optimizers: Sequence[torch.optim.Optimizer],
    protocol: Protocol,
) -> Tensor:
    """Take one step of the active members.

    Returns:
        Loss and KL term, (2, active members); where β is zero, so is the KL term.
    """
    loss = classification_loss(forward(inputs), labels, protocol)
    terms = [
        model.members[m].kl_divergence() if beta else 0.0
        for m, beta in zip(model.active, betas, strict=True)
    ]
    kl = scalars(terms, loss)
    objective = total_loss(loss, kl, scalars(betas, loss))
    objective.sum().backward()
    for m in model.active:
        optimizers[m].step()
        optimizers[m].zero_grad()
    return torch.stack([loss.detach(), kl.detach()])


def scalars(values: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """Return `values` with type and device of `like`.

    They are filled there: a copy from the CPU could not be recorded by `Replay`.
    """
    return torch.stack(
        [v.to(like.dtype) if isinstance(v, Tensor) else like.new_full((), v) for v in values]
    )


def classification_loss(logits: Tensor, labels: Tensor, protocol: Protocol) -> Tensor:
    """Return the cross entropy of each member.

    Args:
        logits: (members, batch, classes).
        labels: (batch,).
        protocol: Says whether the loss is given softmax outputs.

    Returns:
        (members,).
    """
    logits = full_precision(logits)
    if protocol.softmax_in_loss:
        logits = logits.softmax(-1)
    labels = labels.repeat(len(logits))
    losses = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none")
    return losses.unflatten(0, (len(logits), -1)).mean(1)


def make_optimizer(
    member: Member, adapter_lr: float, head_lr: float, weight_decay: float
) -> torch.optim.AdamW:
    """Build AdamW with a learning rate for the adapters and one for the head."""
    adapters = [p for p in adapter_parameters(member) if p.requires_grad]
    head = list(member.head.parameters())
    groups = [{"params": adapters, "lr": adapter_lr}, {"params": head, "lr": head_lr}]
    is_recorded = head[0].is_cuda  # see `Replay`
    return torch.optim.AdamW(groups, weight_decay=weight_decay, fused=True, capturable=is_recorded)


def adapter_parameters(member: Member) -> list[torch.nn.Parameter]:
    """Return the parameters of a member's adapters; linear probing has none."""
    return list(member.layers.parameters())
