"""The training protocol: grids, early stopping, losses, seeds, result files."""

import math
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import timm
import torch
from tiny import METHODS
from torch.overrides import TorchFunctionMode

import pvera
from pvera import PVeRA
from pvera.adapters.pvera import PVeRAAdapter
from pvera.backbones import Backbone
from pvera.data.image_splits import ImageData, ImageSplit
from pvera.study import optimization, prediction, stopping, training
from pvera.study.profiles import Schedule
from pvera.study.protocol import CORRECTED
from pvera.study.training import MethodConfig, fit

CLASSES = 3


def split(count: int, seed: int) -> ImageSplit:
    """Make noisy images; the brightest colour channel is the class."""
    source = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    images = source.integers(0, 160, (count, 32, 32, 3), dtype=np.uint8)
    images[np.arange(count), :, :, labels] += 60
    return ImageSplit(images, labels.astype(np.int64), [str(i) for i in range(count)])


@pytest.fixture
def backbone(vit):
    return Backbone(vit, "test", 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "hash")


@pytest.fixture
def splits(backbone):
    return tuple(split(n, n).data(backbone, torch.device("cpu")) for n in (48, 21))


def train(
    backbone,
    splits,
    methods,
    rates=1e-2,
    beta=0.0,
    config=Schedule(epochs=3),
    rules=CORRECTED,
):
    model = pvera.adapt(backbone.model, methods, CLASSES, 0)
    rates = rates if isinstance(rates, list) else [(rates, rates)] * len(methods)
    betas = beta if isinstance(beta, list) else [beta] * len(methods)
    members = [
        MethodConfig(method, *rate, beta, {}) for method, rate, beta in zip(methods, rates, betas)
    ]
    try:
        return fit(model, *splits, members, config, rules, 0)
    finally:
        model.unload()


def test_beta_of_zero_computes_no_kl_term(backbone, splits, monkeypatch):
    """Each member of the grid trains as it does alone."""
    computed, compute = set(), PVeRAAdapter.divergence
    monkeypatch.setattr(
        PVeRAAdapter, "divergence", lambda self, *of: computed.add(self) or compute(self, *of)
    )
    together = train(backbone, splits, [PVeRA(rank=8)] * 2, beta=[0.0, 1e-3])
    assert len(computed) == len(backbone.model.blocks)
    assert together[0].curve["kl"] == [None] * 3 and min(together[1].curve["kl"]) > 0
    for member, beta in zip(together, (0.0, 1e-3)):
        (alone,) = train(backbone, splits, [PVeRA(rank=8)], beta=beta)
        for curve in ("train_loss", "kl"):
            np.testing.assert_allclose(
                *(np.array(m.curve[curve], float) for m in (member, alone)), rtol=1e-5
            )


def test_each_member_of_a_grid_trains_as_alone_with_its_own_rates_and_beta_also_when_one_stops(
    backbone, splits
):
    """A member whose patience has ended leaves the batch."""
    config = Schedule(epochs=6, patience=1, tolerance=0.02)
    methods, rates = (
        [pvera.PVeRA(4), pvera.PVeRA(8), pvera.PVeRA(6)],
        [(1e-2, 1e-2), (0.0, 0.0), (1e-2, 1e-3)],
    )
    betas = [1e-3, 1.0, 0.1]
    together = train(backbone, splits, methods, rates, betas, config)
    assert together[1].status == "stopped early" and together[1].epochs == 2
    assert together[0].epochs > 3 < together[2].epochs
    for member, method, rate, beta in zip(together, methods, rates, betas):
        (alone,) = train(backbone, splits, [method], [rate], beta, config)
        assert (member.status, member.best_epoch) == (alone.status, alone.best_epoch)
        for curve in ("train_loss", "kl", "validation_loss", "validation_accuracy"):
            np.testing.assert_allclose(
                member.curve[curve], alone.curve[curve], rtol=1e-4, atol=1e-5
            )


class Calls(TorchFunctionMode):
    """The functions of torch that are called inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.add(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_step_copies_no_number_from_the_cpu_so_that_a_cuda_graph_can_record_it(method, vit):
    """And none to it: on the meta device that fails."""
    with torch.device("meta"):
        images, labels = torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    adapted = pvera.AdaptedModel(vit.to("meta"), [method] * 2, CLASSES, on_meta=True)
    with adapted as model, Calls() as calls:
        for beta in ([0.0, 0.0], [0.0, 1e-3]):
            optimization.step(model, model, images, labels, beta, [Mock(), Mock()], CORRECTED)
    assert "backward" in calls.names and calls.names.isdisjoint(
        {"tensor", "as_tensor", "new_tensor", "from_numpy"}
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize(
    "method", [*METHODS.values(), pvera.VeRA(8, dropout=0.5, dropout_on="latent")], ids=str
)
def test_replayed_steps_compute_the_same_numbers(method, backbone, monkeypatch):
    """With a last batch of another size, and members that end one after the other."""
    backbone.model.cuda()
    splits = tuple(split(n, n).data(backbone, torch.device("cuda")) for n in (50, 21))
    config = Schedule(epochs=6, patience=1, tolerance=0.02)
    settings = (
        backbone,
        splits,
        [method] * 3,
        [(1e-2, 1e-2), (0.0, 0.0), (1e-3, 1e-3)],
        [1e-3, 0.0, 0.0],
        config,
    )
    replayed = train(*settings)
    monkeypatch.setattr(training, "Replay", lambda take, *rest: take)
    assert [h.curve for h in replayed] == [h.curve for h in train(*settings)]


def scripted(backbone, splits, monkeypatch, losses, joint):
    """Train a grid with given validation losses, a list per member (the last value repeats).

    Returns histories, the chosen member, and the trained tensors at each epoch, per member."""
    seen = [[] for _ in losses]

    def validate(model, forward, data, protocol):
        for m in model.active:
            seen[m].append(
                {n: p.detach().clone() for n, p in model.members[m].trainable_tensors().items()}
            )
        last = [losses[m][min(len(seen[m]), len(losses[m])) - 1] for m in model.active]
        return {"validation_loss": last, "validation_accuracy": [0.0] * len(model.active)}

    monkeypatch.setattr(training, "validate", validate)
    rules = replace(CORRECTED, joint_stop=joint)
    config = Schedule(epochs=12, patience=2, tolerance=0.1)
    histories = train(backbone, splits, [pvera.IA3()] * len(losses), config=config, rules=rules)
    return histories, stopping.choose(histories, rules), seen


STOPPED, LIMIT = "stopped early", "epoch limit"
IN_TURN = [[1.0, 1.0, 1.0, 1.0, 0.3], [2.0, 1.7, 1.4, 1.1, 1.1]]
NEAR = [[1.0], [2.0, 0.95]]  # 0.95 is the lowest loss but within 10 % of 1.0
#: Losses, and whether members end together; then of each member its status, epochs, best epoch and
#: best loss; and the chosen one.
ENDS = {
    "each ends alone, the first before it would overtake": (
        (IN_TURN, False),
        [(STOPPED, 3, 0, 1.0), (STOPPED, 6, 3, 1.1)],
        0,
    ),
    "the first trains on while the second improves, and overtakes": (
        (IN_TURN, True),
        [(STOPPED, 7, 4, 0.3), (STOPPED, 7, 3, 1.1)],
        0,
    ),
    "the lowest loss is chosen": (
        (NEAR, False),
        [(STOPPED, 3, 0, 1.0), (STOPPED, 4, 1, 0.95)],
        1,
    ),
    "a lead within the tolerance is not chosen": (
        (NEAR, True),
        [(STOPPED, 4, 0, 1.0), (STOPPED, 4, 1, 0.95)],
        0,
    ),
    "a lead beyond the tolerance is": (
        ([[1.0], [2.0, 0.95, 0.8]], True),
        [(STOPPED, 5, 0, 1.0), (STOPPED, 5, 2, 0.8)],
        1,
    ),
    "a diverged member does not keep the others from ending": (
        ([[1.0, math.nan], [2.0, 1.5]], True),
        [("diverged", 2, 0, 1.0), (STOPPED, 4, 1, 1.5)],
        0,
    ),
    "all diverge": (
        ([[math.nan]] * 2, True),
        [("diverged", 1, -1, math.inf)] * 2,
        None,
    ),
    "a limit of epochs ends all": (
        ([[1.0], [0.8**epoch for epoch in range(12)]], True),
        [(LIMIT, 12, 0, 1.0), (LIMIT, 12, 11, 0.8**11)],
        1,
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_training_by_hand(case, backbone, splits, monkeypatch):
    """Patience 2, tolerance 10 %, twelve epochs."""
    (losses, joint), expected, best = ENDS[case]
    histories, chosen, seen = scripted(backbone, splits, monkeypatch, losses, joint)
    assert [
        (h.status, h.epochs, h.best_epoch, h.best_loss) for h in histories
    ] == expected and chosen == best
    assert best is None or not joint or histories[best].led == histories[best].best_epoch
    for history, states in zip(histories, seen, strict=True):
        kept = states[history.best_epoch]
        assert all(torch.equal(tensor, kept[name]) for name, tensor in history.best_state.items())


def test_losses_are_those_of_all_images_whatever_the_size_of_the_last_batch(backbone, monkeypatch):
    """Twenty images make a batch of sixteen and one of four."""
    monkeypatch.setattr(ImageData, "evaluation_batch", 16)
    data = split(20, 0).data(backbone, torch.device("cpu"))
    model = pvera.adapt(backbone.model, pvera.LoRA(2), CLASSES, 0)
    with torch.no_grad():
        logits = model.eval()(data[:])
    model.unload()
    losses = torch.nn.functional.cross_entropy(logits, data.labels, reduction="none")
    assert abs((losses[:16].mean() + losses[16:].mean()) / 2 - losses.mean()) > 1e-4, (
        "the mean over batches differs"
    )
    (history,) = train(
        backbone, (data, data), [pvera.LoRA(2)], rates=0.0, config=Schedule(epochs=1)
    )
    right = (logits.argmax(1) == data.labels).float().mean()
    expected = {
        "train_loss": losses.mean(),
        "validation_loss": losses.mean(),
        "validation_accuracy": right,
    }
    for curve, value in expected.items():
        assert history.curve[curve][0] == pytest.approx(float(value), abs=1e-5), curve


def test_adapters_and_head_learn_at_rates_of_their_own(backbone):
    (member,) = pvera.adapt(backbone.model, PVeRA(4), CLASSES, 0).members
    optimizer = optimization.make_optimizer(member, 1e-2, 1e-3, 0.0)
    rates = {tensor: group["lr"] for group in optimizer.param_groups for tensor in group["params"]}
    for name, tensor in member.trainable_tensors().items():
        assert rates[tensor] == (1e-3 if name.startswith("head.") else 1e-2), name


@pytest.mark.parametrize("count", [15, 16, 17, 33])
def test_batches_hold_each_image_once(count, backbone, monkeypatch):
    """The last one may hold a single image."""
    monkeypatch.setattr(ImageData, "evaluation_batch", 16)
    data = split(count, 0).data(backbone, torch.device("cpu"))
    assert torch.equal(
        torch.cat([data.labels[part] for part in prediction.batches(data)]), data.labels
    )


def test_a_kl_term_that_is_not_finite_ends_a_member(backbone, splits, monkeypatch):
    """Even where the loss is finite: its β may be tiny."""
    finite = optimization.step
    monkeypatch.setattr(
        training,
        "step",
        lambda *those, **named: finite(*those, **named) + torch.tensor([[0.0], [torch.inf]]),
    )
    (history,) = train(backbone, splits, [pvera.PVeRA(4)], beta=1e-6)
    assert history.status == "diverged" and history.epochs == 1 and not history.best_state
    assert np.isfinite(history.curve["train_loss"] + history.curve["validation_loss"]).all()


@pytest.mark.parametrize("name", ["pvera", "ia3", "adaptformer"])
def test_lower_precision_learns_alike(backbone, splits, name):
    """The loss equals that of fp32 up to rounding of the products; trained tensors stay fp32."""
    (full,) = train(backbone, splits, [METHODS[name]])
    with prediction.autocast("cpu", "bfloat16"):
        (low,) = train(backbone, splits, [METHODS[name]])
    assert low.curve["validation_loss"] != full.curve["validation_loss"]
    np.testing.assert_allclose(
        low.curve["validation_loss"], full.curve["validation_loss"], rtol=0.05
    )
    assert {t.dtype for t in low.best_state.values()} == {torch.float32}


def test_trained_weights_are_never_a_stale_copy(backbone, splits):
    """Autocast may cache casts of what requires gradients; here that would freeze training."""
    with prediction.autocast("cpu", "bfloat16"):
        (history,) = train(backbone, splits, [pvera.LoRA(4)], config=Schedule(epochs=12))
    assert history.curve["validation_loss"][-1] < 0.7 * history.curve["validation_loss"][0]


@pytest.mark.parametrize(
    "side, precision, plain",
    [(64, "bfloat16", True), (384, "bfloat16", False), (64, "float32", False)],
)
def test_attention_of_short_sequences_is_plain_in_half_precision(side, precision, plain):
    vit = timm.create_model("vit_tiny_patch16_224", depth=2, img_size=side, num_classes=0)
    with prediction.autocast("cpu", precision), training.training_attention(vit):
        assert [block.attn.fused_attn for block in vit.blocks] == [not plain] * 2
    assert all(block.attn.fused_attn for block in vit.blocks)
