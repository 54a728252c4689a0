"""Training of a method's grid on one data set with the paper's protocol (Section 4.2).

AdamW on the loss of Eq. 8, and early stopping on the validation loss with patience and relative
tolerance. The members of a grid train in parallel over one frozen backbone; one that has stopped is
no longer computed. The member with the lowest best validation loss is tested once, at its best
epoch.

In parallel or alone, a member sees the same images and draws the same noise; sums of products may
differ in rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

from pvera.adapters.base import Method, full_precision, generator
from pvera.adapters.pvera import total_loss
from pvera.data.image_splits import ImageData
from pvera.data.inputs import Data
from pvera.model import AdaptedModel, Member
from pvera.study.profiles import TrainingConfig
from pvera.study.protocol import Protocol

#: From this number of patches on, the backward pass of the fused attention is the faster one.
MANY_PATCHES = 300
CURVES = ("train_loss", "kl", "validation_loss", "validation_accuracy")

#: Numbers of an epoch by name of `CURVES`, each of all active members; None for the KL term of a
#: member whose β is zero.
EpochNumbers = dict[str, list]

#: What becomes of a member.
RUNNING, STOPPED, LIMIT, DIVERGED = "running", "stopped early", "epoch limit", "diverged"


@dataclass(frozen=True)
class MemberConfig:
    """One member of the grid."""

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    #: The hyperparameters in which it differs from the other members.
    grid: dict = field(hash=False)


@dataclass
class History:
    """The training of one member."""

    #: One number per epoch, by name of `CURVES`; None for the KL term where β is zero, which is
    #: not computed.
    curve: dict[str, list[float | None]] = field(
        default_factory=lambda: {name: [] for name in CURVES}
    )
    #: Of the last improvement of the validation loss by more than the tolerance.
    best_loss: float = inf
    best_epoch: int = -1
    #: The trained tensors at `best_epoch`.
    best_state: dict[str, Tensor] = field(default_factory=dict)
    #: With `JointStop`: the last epoch in which this member led its grid.
    led: int = -1
    status: str = RUNNING

    @property
    def epochs(self) -> int:
        """The number of epochs that were computed."""
        return len(self.curve["validation_loss"])


class Features:
    """Precomputed class tokens (N, dim) instead of images, for linear probing."""

    evaluation_batch = ImageData.evaluation_batch

    def __init__(self, model: AdaptedModel, data: Data):
        with torch.inference_mode():
            parts = [model.features(data[part])[0] for part in batches(data)]
        self.features = full_precision(torch.cat(parts)).clone()
        self.labels = data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> Tensor:
        features = self.features[index]
        return features if features.ndim == 3 else features.unsqueeze(0)


#: A split that can be evaluated: labels (N,), and `data[index]` is a batch.
Split = Data | Features


def autocast(device: str, precision: str) -> torch.autocast:
    """Return a context for `fit` and `predict` that computes in a precision.

    Nothing is cached, as the trained weights change inside.
    """
    kind, dtype = torch.device(device).type, getattr(torch, precision)
    return torch.autocast(kind, dtype, enabled=dtype != torch.float32, cache_enabled=False)


def fit(
    model: AdaptedModel,
    train: Data,
    validation: Data,
    members: Sequence[MemberConfig],
    config: TrainingConfig,
    protocol: Protocol,
    seed: int,
) -> list[History]:
    """Train all members of a grid, with a progress bar where there is a terminal.

    Args:
        model: Built from the methods of `members`, as a list; its active members change.
        train: Training set.
        validation: Validation set.
        members: Hyperparameters of each.
        config: Schedule.
        protocol: Loss, order of the images, and when members end.
        seed: Of the order of the images.

    Returns:
        A history per member. One whose loss is no longer finite does not end the others.
    """
    forward, train_split, validation_split = _splits(model, train, validation)
    take_step = _make_step(model, forward, members, config, protocol, train.labels.device)
    order = generator(seed, "order") if protocol.shuffle else None
    rule = JointStop if protocol.joint_stop else EarlyStopping
    stopping = rule(len(members), config)

    model.active = list(range(len(members)))
    for epoch in trange(config.epochs, unit="epoch", leave=False, disable=None, dynamic_ncols=True):
        betas = [members[m].beta for m in model.active]
        trained = train_epoch(model, train_split, betas, take_step, config.batch_size, order)
        validated = evaluate(model, forward, validation_split, protocol)
        stopping.update(epoch, model, trained | validated)
        model.active = stopping.running()
        if not model.active:
            break
    stopping.end()
    return stopping.histories


def _splits(
    model: AdaptedModel, train: Data, validation: Data
) -> tuple[Callable[..., Tensor], Split, Split]:
    """Return the function that is trained, and both splits as it reads them."""
    if any(adapter_parameters(member) for member in model.members):
        return model, train, validation
    # The backbone's features never change, so they are computed once.
    return model.classify, Features(model, train), Features(model, validation)


#: From a batch of inputs, its labels, and β of the active members to `step`'s losses.
Step = Callable[[Any, Tensor, list[float]], Tensor]


def _make_step(
    model: AdaptedModel,
    forward: Callable[..., Tensor],
    members: Sequence[MemberConfig],
    config: TrainingConfig,
    protocol: Protocol,
    device: torch.device,
) -> Step:
    """Return `step` with an optimizer per member, replayed where it can be."""
    optimizers = [
        make_optimizer(member, settings.adapter_lr, settings.head_lr, config.weight_decay)
        for member, settings in zip(model.members, members, strict=True)
    ]
    take_step = partial(step, model, forward, optimizers=optimizers, protocol=protocol)
    # Other encoders may ask the GPU for a number inside a pass, which a graph cannot hold.
    if device.type == "cuda" and type(model.backbone) is VisionTransformer:
        return Replay(take_step, model, config.batch_size, device)
    return take_step


def train_epoch(
    model: AdaptedModel,
    data: Split,
    betas: list[float],
    take_step: Step,
    batch_size: int,
    order: torch.Generator | None,
) -> EpochNumbers:
    """Train the active members on all of a split.

    Args:
        model: Its active members train.
        data: Training set.
        betas: β of the active members.
        take_step: A step of all active members.
        batch_size: Of all batches but the last.
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


class EarlyStopping:
    """Patience on the validation loss, of each member by itself (Section 4.2)."""

    def __init__(self, members: int, config: TrainingConfig):
        self.histories = [History() for _ in range(members)]
        self.patience = config.patience
        self.tolerance = config.tolerance

    def update(self, epoch: int, model: AdaptedModel, numbers: EpochNumbers) -> None:
        """Add an epoch to the histories of the active members, and keep the best tensors."""
        for index, m in enumerate(model.active):
            history = self.histories[m]
            for name, values in numbers.items():
                history.curve[name].append(values[index])

            loss = numbers["validation_loss"][index]
            computed = [values[index] for values in numbers.values() if values[index] is not None]
            if not all(map(isfinite, computed)):
                history.status = DIVERGED
            elif self.improves(loss, history.best_loss):
                history.best_loss = loss
                history.best_epoch = epoch
                trained = model.members[m].trained().items()
                history.best_state = {name: tensor.detach().clone() for name, tensor in trained}
            elif epoch - history.best_epoch >= self.patience:
                history.status = STOPPED

    def improves(self, loss: float, best: float) -> bool:
        """Return whether a loss lies below the best by more than the relative tolerance."""
        return loss < best * (1 - self.tolerance)

    def running(self) -> list[int]:
        """Return the members that train on."""
        return [m for m, history in enumerate(self.histories) if history.status == RUNNING]

    def end(self) -> None:
        """Note which members the largest number of epochs has ended."""
        for m in self.running():
            self.histories[m].status = LIMIT


class JointStop(EarlyStopping):
    """Members end together, once patience has run out for all of them.

    Until then each may improve. A member leads its grid in an epoch that takes the grid's lowest
    loss down by more than the tolerance.
    """

    lowest = inf

    def update(self, epoch: int, model: AdaptedModel, numbers: EpochNumbers) -> None:
        """Add an epoch, note the leader, and let members go on while one has patience left."""
        super().update(epoch, model, numbers)
        leader = min(self.histories, key=lambda history: history.best_loss)
        if self.improves(leader.best_loss, self.lowest):
            self.lowest = leader.best_loss
            leader.led = epoch
        if self.running():
            for history in self.histories:
                if history.status == STOPPED:
                    history.status = RUNNING


def choose(histories: list[History], protocol: Protocol) -> int | None:
    """Choose the member with the lowest best validation loss.

    With `joint_stop` it is the one that led last: in the official code the lowest loss of a grid,
    and what is kept, change only when the loss improves by more than the tolerance.

    Returns:
        Its index; None where all diverged before their first epoch ended.
    """
    indices = range(len(histories))
    if protocol.joint_stop:
        best = max(indices, key=lambda m: histories[m].led)
    else:
        best = min(indices, key=lambda m: histories[m].best_loss)
    return best if histories[best].best_state else None


# One step


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
    return [p for adapter in member.layers for p in adapter.parameters()]


class Replay:
    """A step of `fit` on a GPU, recorded as a CUDA graph for each set of active members.

    A step launches thousands of kernels, which on small backbones takes longer than they do. The
    replayed kernels are the recorded ones, and the numbers the same. A batch of another size than
    `batch_size` is computed without a graph.
    """

    def __init__(self, take_step: Step, model: AdaptedModel, batch_size: int, device: torch.device):
        self.take_step = take_step
        self.model = model
        self.batch_size = batch_size
        self.stream = torch.cuda.Stream(device)
        #: The active members whose step is recorded.
        self.active: list[int] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        #: What the graph reads and writes, once it is recorded.
        self.inputs: Tensor
        self.labels: Tensor
        self.losses: Tensor

    def __call__(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> Tensor:
        """Take a step; see `step`."""
        if len(labels) != self.batch_size:
            return self.take_step(inputs, labels, betas)
        if self.active != self.model.active:
            self.active = list(self.model.active)
            self.graph = None
            return self._first(inputs, labels, betas)

        if self.graph is None:
            self.graph = self._record(inputs, labels, betas)
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.losses

    def _first(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> Tensor:
        """Compute a step on the stream that records: it makes generators and optimizer states."""
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            losses = self.take_step(inputs, labels, betas)
        outside.wait_stream(self.stream)
        return losses

    def _record(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> torch.cuda.CUDAGraph:
        """Record a step on tensors that later batches are copied to; it is not computed yet."""
        graph = torch.cuda.CUDAGraph()
        self.inputs = inputs.clone()
        self.labels = labels.clone()
        for m in self.active:
            for adapter in self.model.members[m].stochastic_layers:
                graph.register_generator_state(adapter.source.generator(labels.device))
        with torch.cuda.graph(graph, stream=self.stream):
            self.losses = self.take_step(self.inputs, self.labels, betas)
        return graph


# Evaluation


@torch.inference_mode()
def evaluate(
    model: AdaptedModel, forward: Callable[..., Tensor], data: Split, protocol: Protocol
) -> EpochNumbers:
    """Return loss and accuracy of every active member on a split, PVeRA with its mean."""
    model.eval()
    device = data.labels.device
    loss = torch.zeros(len(model.active), device=device)
    correct = torch.zeros(len(model.active), dtype=torch.int64, device=device)
    with model.without_kl():
        for part in batches(data):
            logits, labels = forward(data[part]), data.labels[part]
            loss += len(labels) * classification_loss(logits, labels, protocol)
            correct += (logits.argmax(-1) == labels).sum(1)
    return {
        "validation_loss": (loss / len(data)).tolist(),
        "validation_accuracy": (correct / len(data)).tolist(),
    }


def predict(model: AdaptedModel, data: Data) -> np.ndarray:
    """Return softmax scores (N, classes), fp32, of the one active member.

    It is merged first where it can be.
    """
    with model.inference():
        scores = [model(data[part]).float().softmax(-1) for part in batches(data)]
    # A grid has a dimension of members: (1, N, classes).
    joined = torch.cat(scores, dim=-2)
    return (joined if model.single else joined[0]).cpu().numpy()


def batches(data: Split) -> list[slice]:
    """Return the parts of a split that are evaluated one after the other."""
    size = data.evaluation_batch
    return [slice(start, start + size) for start in range(0, len(data), size)]
