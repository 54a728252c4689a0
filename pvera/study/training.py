"""Training of a method's grid on one data set with the paper's protocol (Section 4.2).

AdamW on the loss of Eq. 8, and early stopping on the validation loss with patience and relative
tolerance. The members of a grid train in parallel over one frozen backbone; one that has stopped is
no longer computed. The member with the lowest best validation loss is tested once, at its best
epoch.

In parallel or alone, a member sees the same images and samples the same noise; sums of products
may differ in rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from tqdm import trange

from pvera.adapters.base import Method
from pvera.data.inputs import Data
from pvera.model import AdaptedModel
from pvera.seeds import generator
from pvera.study.optimization import Step, adapter_parameters, make_optimizer, step
from pvera.study.prediction import DataOrFeatures, Features, validate
from pvera.study.profiles import Schedule
from pvera.study.protocol import Protocol
from pvera.study.replay import Replay
from pvera.study.stopping import EarlyStopping, EpochNumbers, History, JointStop

#: From this number of patches on, the backward pass of the fused attention is the faster one.
MANY_PATCHES = 300


@dataclass(frozen=True)
class MethodConfig:
    """What one member of a grid trains: a method, with its learning rates and its β of Eq. 8.

    Its fields and those of the method are part of `config_hash`: to rename or add one changes every
    result.
    """

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    #: This member's point of the grid by hyperparameter; where none is searched, its `default`.
    grid: dict = field(hash=False)  # a dictionary has no hash; equality compares it


def fit(
    model: AdaptedModel,
    train: Data,
    validation: Data,
    configs: Sequence[MethodConfig],
    schedule: Schedule,
    protocol: Protocol,
    seed: int,
) -> list[History]:
    """Train all members of a grid, with a progress bar where there is a terminal.

    Args:
        model: Built from the methods of `configs`, as a list; its active members, at first all,
            change.
        train: Training set.
        validation: Validation set.
        configs: One per member.
        schedule: Batch size, epochs, patience and weight decay.
        protocol: Loss, order of the images, and when members end.
        seed: Seed of the order of the images.

    Returns:
        A history per member. One whose loss is no longer finite does not end the others.
    """
    forward, train_split, validation_split = _forward_and_splits(model, train, validation)
    take_step = _make_step(model, forward, configs, schedule, protocol, train.labels.device)
    order = generator(seed, "order") if protocol.shuffle else None
    rule = JointStop if protocol.joint_stop else EarlyStopping
    stopping = rule(len(configs), schedule)

    for epoch in trange(schedule.epochs, unit="epoch", leave=False, disable=None):
        betas = [configs[m].beta for m in model.active]
        trained = train_epoch(model, train_split, betas, take_step, schedule.batch_size, order)
        validated = validate(model, forward, validation_split, protocol)
        stopping.update(epoch, model, trained | validated)
        model.active = stopping.running()
        if not model.active:
            break
    stopping.mark_limit()
    return stopping.histories


def _forward_and_splits(
    model: AdaptedModel, train: Data, validation: Data
) -> tuple[Callable[..., Tensor], DataOrFeatures, DataOrFeatures]:
    """Return the function that is trained, and both splits as it reads them.

    It is the model, or for linear probing its heads, whose splits are features.
    """
    if any(adapter_parameters(member) for member in model.members):
        return model, train, validation
    # The backbone's features never change, so they are computed once.
    return model.classify, Features(model, train), Features(model, validation)


def _make_step(
    model: AdaptedModel,
    forward: Callable[..., Tensor],
    configs: Sequence[MethodConfig],
    schedule: Schedule,
    protocol: Protocol,
    device: torch.device,
) -> Step:
    """Return `step` with an optimizer per member, replayed where it can be.

    Args:
        model: Has the members.
        forward: The function that is trained.
        configs: One per member.
        schedule: Has weight decay and the size of the batches that are replayed.
        protocol: Says how the loss is computed.
        device: Where the training computes.
    """
    optimizers = [
        make_optimizer(member, config.adapter_lr, config.head_lr, schedule.weight_decay)
        for member, config in zip(model.members, configs, strict=True)
    ]
    take_step = partial(step, model, forward, optimizers=optimizers, protocol=protocol)
    # Other encoders may ask the GPU for a number inside a pass, which a graph cannot hold.
    if device.type == "cuda" and type(model.backbone) is VisionTransformer:
        return Replay(take_step, model, schedule.batch_size, device)
    return take_step


def train_epoch(
    model: AdaptedModel,
    data: DataOrFeatures,
    betas: list[float],
    take_step: Step,
    batch_size: int,
    order: torch.Generator | None,
) -> EpochNumbers:
    """Train the active members on all of a split.

    Args:
        model: Has the active members, which train.
        data: Training set.
        betas: β of the active members.
        take_step: A step of all active members.
        batch_size: Size of all batches but the last.
        order: Shuffles the images, if any.

    Returns:
        The mean loss and the mean KL term.
    """
    model.train()
    count = len(data)
    indices = torch.arange(count) if order is None else torch.randperm(count, generator=order)
    without_kl = [m for m, beta in zip(model.active, betas, strict=True) if not beta]
    totals = torch.zeros(2, len(model.active), device=data.labels.device)
    with training_attention(model.backbone), model.without_kl(without_kl):
        for batch in indices.split(batch_size):
            totals += len(batch) * take_step(data[batch], data.labels[batch], betas)

    losses, kl = (totals / count).tolist()
    kl = [term if beta else None for term, beta in zip(kl, betas, strict=True)]
    return {"train_loss": losses, "kl": kl}


@contextmanager
def training_attention(encoder: nn.Module) -> Iterator[None]:
    """Compute timm's attention inside as is faster for training.

    On a CPU, under autocast and for images of few patches, that is by separate products: their
    backward pass takes down to a fifth of the time of torch's fused attention. They keep the
    attention scores in memory.
    """
    # `Job.execute` enters autocast.
    on_cpu = next(encoder.parameters()).device.type == "cpu"
    patches = getattr(getattr(encoder, "patch_embed", None), "num_patches", MANY_PATCHES)
    layers: list[Any] = []
    if on_cpu and torch.is_autocast_enabled("cpu") and patches < MANY_PATCHES:
        layers = [module for module in encoder.modules() if getattr(module, "fused_attn", False)]
    for layer in layers:
        layer.fused_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.fused_attn = True
