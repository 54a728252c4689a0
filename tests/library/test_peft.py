"""Agreement with the package peft on the same tensors: outputs, gradients, merged weights."""

import peft
import torch
from tiny import make_vit, perturb
from torch import nn
from torch.nn import functional as F

import pvera
from pvera import DoRA, LoRA, PVeRA, VeRA

DIM, RANK, ALPHA = 24, 8, 16.0
TARGETS = {"q": 0, "v": 2}  # and where they stand in qkv


class Projections(nn.Module):
    """The q and v of a fused projection as linear layers of their own, which is what PEFT adapts."""

    def __init__(self, qkv: nn.Linear):
        super().__init__()
        for name, i in TARGETS.items():
            layer = nn.Linear(DIM, DIM)
            layer.load_state_dict({"weight": qkv.weight.chunk(3)[i], "bias": qkv.bias.chunk(3)[i]})
            setattr(self, name, layer)

    def forward(self, x):
        return torch.stack([self.q(x), self.v(x)], 2)


class Pair:
    """This package's adapter and PEFT's over the same frozen projections, in `training` mode or not."""

    def __init__(self, method, config, training):
        self.model = perturb(pvera.adapt(make_vit(depth=1), method, num_classes=5)).train(training)
        self.ours = self.model.members[0].layers[0]
        self.qkv = self.model.backbone.blocks[0].attn.qkv
        self.theirs = peft.get_peft_model(Projections(self.qkv), config).train(training)
        wrapped = self.theirs.base_model.model
        self.layers = [getattr(wrapped, name) for name in TARGETS]
        source = torch.Generator().manual_seed(0)
        self.x = torch.randn(2, 5, DIM, generator=source)
        self.cotangent = torch.randn(2, 5, 2, DIM, generator=source)

    def check(self, copied, gradients=True):
        """`copied` holds triples: a tensor of ours, PEFT's for q and v, and the linear function that makes
        PEFT's i-th out of ours."""
        with torch.no_grad():
            for ours, parameters, to_theirs in copied:
                for i, theirs in enumerate(parameters):
                    theirs.copy_(to_theirs(ours, i))
        y = F.linear(self.x, self.qkv.weight, self.qkv.bias).unflatten(-1, (3, -1))
        ours, theirs = self.ours.project(self.x, y.clone(), "qkv"), self.theirs(self.x)
        assert torch.equal(ours[:, :, 1], y[:, :, 1])
        ours, y = (t[:, :, list(TARGETS.values())] for t in (ours, y))
        assert (ours - y).abs().max() > 0.1
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        if gradients:
            (ours * self.cotangent).sum().backward()
            (theirs * self.cotangent).sum().backward()
            for tensor, parameters, to_theirs in copied:
                # The chain rule through the copy.
                leaf = tensor.detach().clone().requires_grad_()
                through = sum((to_theirs(leaf, i) * p.grad).sum() for i, p in enumerate(parameters))
                (expected,) = torch.autograd.grad(through, leaf)
                assert expected.abs().max() > 1e-3
                torch.testing.assert_close(tensor.grad, expected, rtol=1e-5, atol=1e-5)

    def check_merged(self):
        """Both merge into the same weights."""
        self.model.merge_()
        merged = self.theirs.merge_and_unload()
        for name, i in TARGETS.items():
            torch.testing.assert_close(self.qkv.weight.chunk(3)[i], getattr(merged, name).weight, rtol=0, atol=1e-5)


def vera_like(pair, prefix, halves):
    """Give both positions one A, B pair, PEFT's, and return what `Pair.check` copies. PEFT has no α: it goes
    into its b."""
    layers = pair.layers
    A, B = (getattr(layers[0], f"{prefix}_{letter}")["default"] for letter in "AB")  # (2r or r, d), (d, r)
    shared = pair.ours.shared
    shared.A.copy_(A.T.reshape(DIM, halves, 1, RANK).expand(-1, -1, 2, -1).view_as(shared.A))
    shared.B.copy_(B.T.expand(2, -1, -1))
    d, b = ([getattr(layer, f"{prefix}_lambda_{letter}")["default"] for layer in layers] for letter in "db")
    return [
        (pair.ours.d, d, lambda ours, i: ours.reshape(halves, 2, RANK)[:, i].flatten()),
        (pair.ours.b, b, lambda ours, i: ALPHA * ours[i]),
    ]


def test_pvera_mean():
    config = peft.PveraConfig(r=RANK, target_modules=list(TARGETS))
    pair = Pair(PVeRA(rank=RANK, alpha=ALPHA), config, training=False)
    # The log-variance half of d has no part in the mean; its gradient is zero in both.
    copied = vera_like(pair, "pvera", halves=2)
    pair.check(copied)
    assert not pair.ours.d.grad[1].any()
    pair.check_merged()


def test_pvera_sampled():
    seed = 5
    config = peft.PveraConfig(r=RANK, target_modules=list(TARGETS), generator_seed=seed)
    pair = Pair(PVeRA(rank=RANK, alpha=ALPHA), config, training=True)
    # PEFT draws each layer's noise from a generator of this seed, so q and v get the same.
    noise = torch.randn(2, 5, RANK, generator=torch.Generator().manual_seed(seed))
    pair.ours.noise = lambda like, now: torch.stack([noise, noise], 2)
    pair.check(vera_like(pair, "pvera", halves=2))
    assert pair.ours.d.grad[1].abs().max() > 1e-3


def test_vera():
    config = peft.VeraConfig(r=RANK, target_modules=list(TARGETS))
    pair = Pair(VeRA(rank=RANK, alpha=ALPHA), config, training=True)
    pair.check(vera_like(pair, "vera", halves=1))
    pair.check_merged()


def low_rank(pair):
    A, B = ([getattr(layer, f"lora_{letter}")["default"].weight for layer in pair.layers] for letter in "AB")
    return [(pair.ours.A, A, lambda ours, i: ours[:, i].T), (pair.ours.B, B, lambda ours, i: ours[i].T)]


def test_lora():
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS))
    pair = Pair(LoRA(rank=RANK, alpha=ALPHA), config, training=True)
    pair.check(low_rank(pair))
    pair.check_merged()


def test_dora():
    """PEFT takes the norm as a constant in the gradient, so outputs and merged weights alone are compared."""
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS), use_dora=True)
    pair = Pair(DoRA(rank=RANK, alpha=ALPHA), config, training=True)
    magnitudes = [layer.lora_magnitude_vector["default"].weight for layer in pair.layers]
    pair.check([*low_rank(pair), (pair.ours.m, magnitudes, lambda ours, i: ours[i])], gradients=False)
    pair.check_merged()
