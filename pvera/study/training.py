"""Training grids of one method on one data set with the paper's protocol (Section 4.2).

AdamW, cross entropy plus β times the KL term (Eq. 8), early stopping on the validation loss with patience and
relative tolerance. The members of the grid train side by side over one frozen backbone; one that has stopped
is no longer computed. The member with the lowest best validation loss is tested once, at its best epoch.

Side by side or alone, a member sees the same images and draws the same noise; sums of products may differ in rounding.

With the protocol's `joint_stop` no member stops before patience has run out for all of them, and until then each may
improve; the member tested is the one by which the lowest loss of the grid last fell by more than the tolerance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn import functional as F

from pvera.adapters.base import Method, full_precision, generator
from pvera.data.image_splits import ImageData
from pvera.hooks import training_attention
from pvera.model import AdaptedModel, Member
from pvera.study.profiles import TrainingConfig
from pvera.study.protocol import Protocol

CURVES = ("train_loss", "kl", "validation_loss", "validation_accuracy")


def autocast(device: str, precision: str) -> torch.autocast:
    """A context for `fit` and `predict`. Nothing is cached: the trained weights change inside it."""
    kind, dtype = torch.device(device).type, getattr(torch, precision)
    return torch.autocast(kind, dtype, enabled=dtype != torch.float32, cache_enabled=False)


@dataclass(frozen=True)
class MemberConfig:
    """One member of the grid: hyperparameters, learning rates and β.

    grid: the values by which it differs from the others.
    """

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    grid: dict = field(hash=False)


@dataclass
class History:
    """The training of one member of the grid.

    curve: by name of `CURVES`, a number per epoch; None for the KL term where β is zero: it is not computed.
    best_loss, best_epoch, best_state: of its last improvement beyond the tolerance, and its trained tensors then.
    led: the last epoch in which it took the lowest best loss of its grid down by more than the tolerance.
    """

    curve: dict[str, list[float | None]] = field(
        default_factory=lambda: {name: [] for name in CURVES}
    )
    best_loss: float = float("inf")
    best_epoch: int = -1
    best_state: dict[str, Tensor] = field(default_factory=dict)
    led: int = -1
    status: str = "running"

    @property
    def epochs(self) -> int:
        return len(self.curve["validation_loss"])


class Features:
    """Precomputed class tokens in the place of images, for linear probing: (n, dim)."""

    evaluation_batch = ImageData.evaluation_batch

    def __init__(self, model: AdaptedModel, data: ImageData):
        with torch.inference_mode():
            parts = [model.features(data[part])[0] for part in batches(data)]
        self.features, self.labels = full_precision(torch.cat(parts)).clone(), data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> Tensor:
        features = self.features[index]
        return features if features.ndim == 3 else features.unsqueeze(0)


def fit(
    model: AdaptedModel,
    train: ImageData,
    validation: ImageData,
    members: Sequence[MemberConfig],
    config: TrainingConfig,
    protocol: Protocol,
    seed: int,
    on_step: Callable[[int, int], None] = lambda epoch, limit: None,
) -> list[History]:
    """Train `model`, which was built from the methods of `members`; return a history per member.

    seed: orders the images. A member whose loss is no longer finite is "diverged" and does not end the others.
    """
    forward = model
    if not any(list(member.layers.parameters()) for member in model.members):
        forward, train, validation = (
            model.classify,
            Features(model, train),
            Features(model, validation),
        )
    optimizers = [
        make_optimizer(adapted, member.adapter_lr, member.head_lr, config.weight_decay)
        for adapted, member in zip(model.members, members, strict=True)
    ]
    histories, lowest, order = (
        [History() for _ in model.members],
        float("inf"),
        generator(seed, "order"),
    )
    model.active, model.last_mlp_on_class_token = list(range(len(histories))), True
    take: Callable[..., Tensor] = partial(
        step, model, forward, optimizers=optimizers, protocol=protocol
    )
    # Other encoders may ask the GPU for a number inside a pass, which a graph cannot hold.
    if train.labels.is_cuda and type(model.backbone) is VisionTransformer:
        take = Replay(take, model, config.batch_size, train.labels.device)
    for epoch in range(config.epochs):
        model.train()
        count = len(train)
        indices = (
            torch.randperm(count, generator=order) if protocol.shuffle else torch.arange(count)
        )
        beta = [members[m].beta for m in model.active]
        totals = torch.zeros(2, len(model.active), device=train.labels.device)
        with (
            training_attention(model.backbone),
            model.without_kl(m for m in model.active if not members[m].beta),
        ):
            for batch in indices.split(config.batch_size):
                losses = take(train[batch], train.labels[batch], beta)
                totals += len(batch) * losses
        train_loss, kl = (totals / count).tolist()
        losses, accuracies = evaluate(model, forward, validation, protocol)
        for i, m in enumerate(model.active):
            h, values = (
                histories[m],
                (train_loss[i], kl[i] if beta[i] else None, losses[i], accuracies[i]),
            )
            for name, value in zip(CURVES, values, strict=True):
                h.curve[name].append(value)
            if np.isfinite(train_loss[i] + kl[i] + losses[i]):
                stop_early(h, epoch, losses[i], config)
            else:
                h.status = "diverged"
            if h.best_epoch == epoch:
                h.best_state = {
                    n: p.detach().clone() for n, p in model.members[m].trained().items()
                }
        leader = min(histories, key=lambda h: h.best_loss)
        if improves(leader.best_loss, lowest, config):
            lowest, leader.led = leader.best_loss, epoch
        if protocol.joint_stop and any(h.status == "running" for h in histories):
            for h in histories:  # whose patience has run out, while another's has not
                h.status = "running" if h.status == "stopped early" else h.status
        on_step(epoch + 1, config.epochs)
        model.active = [m for m in model.active if histories[m].status == "running"]
        if not model.active:
            break
    for history in histories:
        history.status = "epoch limit" if history.status == "running" else history.status
    return histories


def step(
    model, forward, inputs, labels: Tensor, beta: list[float], optimizers, protocol: Protocol
) -> Tensor:
    """One step of the active members, with β of each. Returns loss and KL term, (2, active members); where β is zero,
    so is the KL term."""
    loss = classification_loss(forward(inputs), labels, protocol)
    terms = [
        model.members[m].kl_divergence() if b else 0.0
        for m, b in zip(model.active, beta, strict=True)
    ]
    kl = scalars(terms, loss)
    objective = loss + scalars(beta, loss) * kl
    objective.sum().backward()
    for m in model.active:
        optimizers[m].step()
        optimizers[m].zero_grad()
    return torch.stack([loss.detach(), kl.detach()])


def scalars(values: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """Return `values` with type and device of `like`, without a copy from the CPU, which `Replay` could not record."""
    return torch.stack(
        [v.to(like.dtype) if isinstance(v, Tensor) else like.new_full((), v) for v in values]
    )


class Replay:
    """A step of `fit` on a GPU, recorded as a CUDA graph for each set of active members.

    A step launches thousands of kernels, which on small backbones takes longer than they do. The replayed kernels are
    the recorded ones, and the numbers the same. Batches of another size than `batch_size` are computed as they come.
    """

    def __init__(
        self,
        take: Callable[..., Tensor],
        model: AdaptedModel,
        batch_size: int,
        device: torch.device,
    ):
        self.take, self.model, self.batch_size = take, model, batch_size
        self.stream, self.active = torch.cuda.Stream(device), list[int]()
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Tensor, labels: Tensor, beta: list[float]) -> Tensor:
        if len(labels) != self.batch_size:
            return self.take(inputs, labels, beta)
        if self.active != self.model.active:
            self.active, self.graph = list(self.model.active), None
            return self.first(inputs, labels, beta)
        if self.graph is None:
            self.graph, self.inputs, self.labels = (
                torch.cuda.CUDAGraph(),
                inputs.clone(),
                labels.clone(),
            )
            for adapter in (
                a for m in self.active for a in self.model.members[m].stochastic_layers
            ):
                self.graph.register_generator_state(adapter.source.generator(labels.device))
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.losses = self.take(self.inputs, self.labels, beta)
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.losses

    def first(self, *batch) -> Tensor:
        """Compute a step on the stream that records: it makes generators and the optimizers' states."""
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            losses = self.take(*batch)
        outside.wait_stream(self.stream)
        return losses


def make_optimizer(
    member: Member, adapter_lr: float, head_lr: float, weight_decay: float
) -> torch.optim.AdamW:
    adapters = [p for p in member.layers.parameters() if p.requires_grad]
    groups = [
        {"params": adapters, "lr": adapter_lr},
        {"params": list(member.head.parameters()), "lr": head_lr},
    ]
    recorded = next(member.head.parameters()).is_cuda  # see `Replay`
    return torch.optim.AdamW(groups, weight_decay=weight_decay, fused=True, capturable=recorded)


def stop_early(h: History, epoch: int, loss: float, config: TrainingConfig) -> None:
    """Note whether the validation loss of this epoch is the best, or patience has run out (Section 4.2)."""
    if improves(loss, h.best_loss, config):
        h.best_loss, h.best_epoch = loss, epoch
    elif epoch - h.best_epoch >= config.patience:
        h.status = "stopped early"


def improves(loss: float, best: float, config: TrainingConfig) -> bool:
    """Return whether `loss` lies below `best` by more than the relative tolerance."""
    return loss < best * (1 - config.tolerance)


def choose(histories: list[History], protocol: Protocol) -> int | None:
    """Choose the member with the lowest best validation loss; None when all diverged before their first epoch.

    With `joint_stop` it is the one that led last: the lowest loss of the published program's grid, and what it keeps,
    change only when the loss improves by more than the tolerance.
    """
    ranks = [-history.led if protocol.joint_stop else history.best_loss for history in histories]
    best = ranks.index(min(ranks))
    return best if histories[best].best_state else None


def classification_loss(logits: Tensor, labels: Tensor, protocol: Protocol) -> Tensor:
    """Return the cross entropy per member, (members,), of logits (members, batch, classes) and labels (batch,)."""
    logits = full_precision(logits)
    if protocol.softmax_in_loss:
        logits = logits.softmax(-1)
    labels = labels.repeat(len(logits))
    losses = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none")
    return losses.unflatten(0, (len(logits), -1)).mean(1)


@torch.inference_mode()
def evaluate(model, forward, data, protocol: Protocol) -> tuple[list[float], list[float]]:
    """Loss and accuracy of every active member on `data`, PVeRA with its mean."""
    model.eval()
    loss = correct = 0
    with model.without_kl():
        for part in batches(data):
            logits, labels = forward(data[part]), data.labels[part]
            loss = loss + len(labels) * classification_loss(logits, labels, protocol)
            correct = correct + (logits.argmax(-1) == labels).sum(1)
    return (loss / len(data)).tolist(), (correct / len(data)).tolist()


def predict(model: AdaptedModel, data: ImageData) -> np.ndarray:
    """Compute softmax scores (n, classes), fp32, of the one active member; merged first where it can be."""
    with model.inference():
        scores = [model(data[part]).float().softmax(-1) for part in batches(data)]
    return torch.cat(scores if model.single else [of_grid[0] for of_grid in scores]).cpu().numpy()


def batches(data) -> list[slice]:
    """Return the parts of `data` that are evaluated one after the other."""
    starts = range(0, len(data), data.evaluation_batch)
    return [slice(start, start + data.evaluation_batch) for start in starts]
