"""The `published` protocol reproduces the numbers of the official code, per method and training.

The numbers (golden/README.md) are the code's own, in float64. Here steps run in float64 and in
float32, and trainings in float64: in float32 they choose the same members and epochs, but after 56
epochs of rounding the scores of one differ by 1e-3.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer

import pvera
from pvera.data.image_splits import ImageData
from pvera.study import optimization, prediction, profiles, stopping, training
from pvera.study.protocol import OFFICIAL_CODE

GOLDEN = Path(__file__).parent
INDEX = json.loads((GOLDEN / "index.json").read_text())
ALL = INDEX["methods"]
STEPS = [name for name in ALL if not name.endswith("_long")]
#: Two of the three trainings with patience 1 take sixty epochs.
TRAININGS = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("vera_long", "bottleneck_long") else name
    for name in ALL
    if "chosen_member" in ALL[name]
]
CLASSES, DEPTH = 5, INDEX["architecture"]["depth"]
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5}


def assert_close(ours, expected, tolerance, scale=None):
    """Compare within `tolerance` times `scale`, by default the largest expected number."""
    torch.testing.assert_close(
        ours.double(), expected, rtol=0, atol=tolerance * (scale or expected.abs().max().item())
    )


# Our tensors of one layer from the program's, which `get` reads.
# ------------------------------------------------------------------------------


def both(get, name, dim=0):
    """Stack the tensors of q and v along a new axis."""
    return torch.stack([get(f"q.{name}"), get(f"v.{name}")], dim)


def halves(tensor):
    """Split the last axis of 2r numbers into (2, r): μ and log σ²."""
    return tensor.unflatten(-1, (2, -1))


LAYER = {
    "linear": lambda get: {},
    "lora": lambda get: {"A": both(get, "A", 1), "B": both(get, "B")},
    "dora": lambda get: {"A": both(get, "A", 1), "B": both(get, "B")},
    "vera": lambda get: {"d": both(get, "d"), "b": both(get, "b")},
    "pvera": lambda get: {"d": halves(both(get, "d")).movedim(1, 0), "b": both(get, "b")},
    "ia3": lambda get: {"l_kv": torch.stack([get("k"), get("v")]), "l_ff": get("hidden")},
    "bottleneck": lambda get: {
        f"{at}.{name}": get(f"{at}.{name}") for at in ("attention", "mlp") for name in LINEARS
    },
    "adaptformer": lambda get: {"s": get("s")} | {f"branch.{name}": get(name) for name in LINEARS},
}
LINEARS = ("down.weight", "down.bias", "up.weight", "up.bias")
FROZEN = {
    "vera": lambda get: {"A": both(get, "A", 1), "B": both(get, "B")},
    "pvera": lambda get: {"A": halves(both(get, "A", 1)).movedim(2, 1), "B": both(get, "B")},
}


def member_tensors(tensors: dict, kind: str, method: str, member: int) -> dict:
    """Return "start" or "gradient" of a grid member, with the names and shapes of
    `Member.trainable_tensors`.
    """
    named = {f"head.{name}": tensors[f"{kind}.{member}.head.{name}"] for name in ("weight", "bias")}
    for i in range(DEPTH):
        layer = LAYER[method](lambda name: tensors[f"{kind}.{member}.{i}.{name}"])
        named |= {f"layers.{i}.{name}": tensor for name, tensor in layer.items()}
    return named


def official_method(key: str, start: dict) -> pvera.adapters.Method:
    """Build the method of the official code with the size of the tensors `start`."""
    sizes = {
        "lora": lambda: {"rank": start["layers.0.A"].shape[-1]},
        "vera": lambda: {"rank": start["layers.0.d"].shape[-1]},
        "bottleneck": lambda: {"ratio": 48 // len(start["layers.0.mlp.down.bias"])},
        "adaptformer": lambda: {"ratio": 48 // len(start["layers.0.branch.down.bias"])},
    }
    sizes |= {"dora": sizes["lora"], "pvera": sizes["vera"]}
    return pvera.METHODS[key](**OFFICIAL_CODE.adapters.get(key, {}) | sizes.get(key, dict)())


@torch.no_grad()
def golden_model(name: str, dtype: torch.dtype) -> tuple[pvera.AdaptedModel, dict]:
    """Return the grid with the program's tensors on the program's backbone, and all its numbers."""
    key = name.removesuffix("_long")  # the long trainings start from the same tensors
    tensors = load_file(GOLDEN / f"{key}.safetensors") | load_file(GOLDEN / f"{name}.safetensors")
    starts = [member_tensors(tensors, "start", key, i) for i in range(ALL[name]["members"])]
    vit = VisionTransformer(**INDEX["architecture"])
    vit.load_state_dict(load_file(GOLDEN / "backbone.safetensors"))
    model = pvera.adapt(
        vit.to(dtype).eval(), [official_method(key, start) for start in starts], CLASSES
    )
    for i, (member, start) in enumerate(zip(model.members, starts)):
        trained = member.trainable_tensors()
        assert trained.keys() == start.keys() and {p.dtype for p in trained.values()} == {dtype}
        for each, tensor in start.items():
            trained[each].copy_(tensor)
        if key in FROZEN:
            for each, tensor in FROZEN[key](lambda each: tensors[f"frozen.{i}.{each}"]).items():
                getattr(member.shared, each).copy_(tensor)
    return model, tensors


class Normalised(ImageData):
    """One of the program's splits, with normalised images."""

    def __init__(self, name: str, dtype: torch.dtype):
        tensors = load_file(GOLDEN / "images.safetensors")
        self.images, self.labels = tensors[f"{name}.images"].to(dtype), tensors[f"{name}.labels"]

    def __getitem__(self, index):
        return self.images[index]


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_evaluation_loss_kl_and_every_gradient_are_the_programs(name, dtype, monkeypatch):
    model, expected = golden_model(name, dtype)
    data, close = Normalised("step", dtype), CLOSE[dtype]
    with torch.no_grad():
        assert_close(model.eval()(data[:]).softmax(-1), expected["evaluation.scores"], close)

    for i, member in enumerate(model.members if name == "pvera" else ()):
        for j, adapter in enumerate(member.layers):
            noise = both(lambda each: expected[f"noise.{i}.{j}.{each[0]}"], "", 2)
            monkeypatch.setattr(
                adapter, "sample_noise", lambda _, like, settings, noise=noise: noise.to(like.dtype)
            )
    gradients = []
    optimizers = [optimization.make_optimizer(m, 1e-3, 1e-3, 1e-4) for m in model.members]
    for member, optimizer in zip(model.members, optimizers):
        optimizer.register_step_pre_hook(
            lambda *_, member=member: gradients.append(
                {n: p.grad.clone() for n, p in member.trainable_tensors().items()}
            )
        )
    beta = [INDEX["beta"]] * len(optimizers)
    loss, kl = optimization.step(
        model.train(), model, data[:], data.labels, beta, optimizers, OFFICIAL_CODE
    )
    assert_close(loss, expected["step.loss"], close)
    if name == "pvera":
        assert_close(kl, expected["step.kl"], close)
    else:
        assert not kl.any() and not expected["step.kl"].any()
    for i, ours in enumerate(gradients):
        theirs = member_tensors(expected, "gradient", name, i)
        assert ours.keys() == theirs.keys()
        scale = max(tensor.abs().max().item() for tensor in theirs.values())
        for each in ours:
            assert_close(ours[each], theirs[each], close, scale)
    assert len(gradients) == ALL[name]["members"]


@pytest.mark.parametrize("name", TRAININGS)
def test_training_chooses_the_programs_member_and_epoch(name):
    model, expected = golden_model(name, torch.float64)
    index, count = ALL[name], ALL[name]["members"]
    rates = (
        [(1e-2, 1e-3), (1e-3, 1e-3), (1e-4, 1e-3)]
        if name.startswith("vera")
        else [(1e-3, 1e-3)] * count
    )
    schedule = profiles.Schedule(epochs=index["epochs"], patience=index["patience"])
    train, validation, test = (
        Normalised(part, torch.float64) for part in ("train", "validation", "test")
    )
    configs = [
        training.MethodConfig(m.method, *rate, 0.0, {})
        for m, rate in zip(model.members, rates, strict=True)
    ]
    histories = training.fit(model, train, validation, configs, schedule, OFFICIAL_CODE, 0)
    best = stopping.choose(histories, OFFICIAL_CODE)
    assert (best, histories[best].best_epoch) == (index["chosen_member"], index["chosen_epoch"])
    assert len({history.epochs for history in histories}) == 1  # they end together
    model.active = [best]
    model.members[best].load_state_dict(histories[best].best_state, strict=False)
    assert_close(
        torch.from_numpy(prediction.predict(model, test)),
        expected["training.scores"],
        1e-4,
        scale=1,
    )
