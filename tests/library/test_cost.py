"""Parameters and multiply-adds: fvcore's counts against closed forms, those against torch's own counter."""

import warnings
from pathlib import Path

import pytest
import torch
from tiny import METHODS, make_images, make_vit
from torch.utils.flop_counter import FlopCounterMode

import pvera
from pvera import AdaptFormer, Bottleneck, DoRA, InputError, LoRA, PVeRA, VeRA, backbones, cost
from pvera.report import published

ROOT = Path(__file__).resolve().parents[2]
CLASSES = 5
#: The methods of `tiny`, and options that change a count.
VARIED = [
    *METHODS.values(), Bottleneck(ratio=5), AdaptFormer(ratio=7), LoRA(rank=5, targets="k"),
    VeRA(rank=5, targets="qkv"), PVeRA(rank=5, targets="v"), DoRA(rank=3, targets="kv"),
    DoRA(rank=3, norm="output", train_magnitude=False),
    VeRA(rank=5, targets="qkv", pair="shared"), PVeRA(rank=5, pair="shared"),
]  # fmt: skip
FOLDABLE = {"linear", "ia3", "dora", "lora", "vera", "pvera"}


@pytest.mark.parametrize("method", VARIED, ids=str)
def test_fvcore_counts_the_closed_forms(vit, method):
    shape, counted = cost.Shape.of(vit), cost.count(vit, method, CLASSES)
    assert counted.backbone_multiply_adds == cost.backbone_multiply_adds(shape)
    assert counted.inference - counted.backbone_multiply_adds == cost.adapter_multiply_adds(method, shape)
    assert counted.merged == (counted.backbone_multiply_adds if method.key in FOLDABLE else None)
    if method.key == "pvera":
        added = cost.adapter_multiply_adds(method, shape, sampled=True)
        assert counted.sampled - counted.backbone_multiply_adds == added
    else:
        assert counted.sampled is None
    assert (counted.head_multiply_adds, counted.head_parameters) == (24 * CLASSES, 25 * CLASSES)


def test_a_case_by_hand(vit):
    """2 layers of width 24, 17 tokens; the adapter of r = 8 on q and v."""
    counted = cost.count(vit, PVeRA(rank=8))
    patches = 16 * (3 * 8 * 8) * 24
    projections, attention = 17 * (72 + 24 + 96 + 96) * 24, 2 * 17 * 17 * 24
    assert counted.backbone_multiply_adds == 2 * (projections + attention) + patches
    assert counted.inference - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 8 + 17 * 8 * 24)
    assert counted.sampled - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 16 + 17 * 8 * 24)
    assert counted.adapter_parameters == 2 * 2 * (2 * 8 + 24)
    assert counted.frozen_parameters == 2 * (24 * 16 + 8 * 24)
    assert counted.backbone_parameters == sum(p.numel() for p in vit.parameters())


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.key != "pvera"], ids=str)
def test_training_costs_what_inference_costs_without_a_distribution(vit, method):
    model, images = pvera.adapt(vit, method, CLASSES), make_images(1)
    assert cost.multiply_adds(model.train(), images) == cost.multiply_adds(model.eval(), images)


def test_passes_of_pvera(vit):
    """The mean needs half of A; the KL term and draws need all of it."""
    model, images = pvera.adapt(vit, PVeRA(rank=8), CLASSES), make_images(1)
    counted = {"train": cost.multiply_adds(model.train(), images)}
    counted["eval"] = cost.multiply_adds(model.eval(), images)
    with model.without_kl():
        counted["mean"] = cost.multiply_adds(model, images)
        with model.sampling():
            counted["drawn"] = cost.multiply_adds(model, images)
    assert counted["train"] == counted["eval"] == counted["drawn"] > counted["mean"]


def test_two_images_cost_twice_one(vit):
    one, two = (cost.multiply_adds(vit, make_images(n)) for n in (1, 2))
    assert two == 2 * one


def test_closed_forms_equal_torchs_counts():
    """Closed forms equal torch's count at the size of ViT-B/14, from shapes alone."""
    vit = backbones.shapes("dinov2_b")
    image, shape = cost.one_image(vit), cost.Shape.of(vit)

    def operations(model):
        with FlopCounterMode(display=False) as counter:
            model(image)
        return counter.get_total_flops() / 2  # one multiply-add is two

    backbone = cost.backbone_multiply_adds(shape)
    assert operations(vit) == backbone
    for cls in pvera.METHODS.values():
        model = pvera.adapt(vit, cls(), num_classes=1).eval()
        added = cost.adapter_multiply_adds(cls(), shape, sampled=True)  # as the KL term needs σ too
        assert operations(model) == backbone + added + shape.dim
        model.unload()


def test_percentages_of_the_paper():
    """Section 4.3, by fvcore on ViT-B/14 at 224 pixels."""
    vit = backbones.shapes("dinov2_b")
    pvera_ = cost.count(vit, PVeRA())
    vera = cost.count(vit, VeRA(), backbone=pvera_.backbone_multiply_adds)
    assert 100 * (pvera_.sampled / pvera_.backbone_multiply_adds - 1) == pytest.approx(15.7, abs=0.05)
    assert 100 * (vera.inference / vera.backbone_multiply_adds - 1) == pytest.approx(10.5, abs=0.05)
    assert pvera_.inference == vera.inference
    assert pvera_.merged == vera.merged == pvera_.backbone_multiply_adds == 23_161_227_264
    assert (pvera_.adapter_parameters, vera.adapter_parameters) == (30_720, 24_576)


def test_parameters_of_the_papers_ablations():
    vit, paper = backbones.shapes("dinov2_b"), published.load(ROOT / "results" / "published")
    ranks = {row.rank: row.parameters for row in paper.rank.itertuples()}
    assert ranks == {64: 21_504, 128: 24_576, 256: 30_720, 512: 43_008}
    assert {r: cost.trained_parameters(vit, PVeRA(rank=r)) for r in ranks} == ranks
    targets = {row.targets: row.parameters for row in paper.position.itertuples()}
    assert (targets["q"], targets["qkv"]) == (15_360, 46_080)
    assert {t: cost.trained_parameters(vit, PVeRA(targets=t)) for t in targets} == targets


@pytest.mark.parametrize("method", METHODS.values(), ids=str)
def test_shapes_without_weights_are_enough(vit, method):
    without = make_vit().to("meta")
    assert cost.count(without, method, CLASSES) == cost.count(vit, method, CLASSES)
    assert all(parameter.is_meta for parameter in without.parameters())
    assert "forward" not in vars(without.patch_embed.proj)


def test_the_vit_is_left_as_it_was():
    vit = make_vit(drop_path_rate=0.1).train()
    vit.blocks[0].eval()
    vit.blocks[0].attn.fused_attn = False
    vit.norm.weight.requires_grad_(False)

    def state():
        return (
            {name: (p.requires_grad, p.detach().clone()) for name, p in vit.named_parameters()},
            {name: (m.training, getattr(m, "fused_attn", None)) for name, m in vit.named_modules()},
            {name: len(m._forward_hooks) + len(m._forward_pre_hooks) for name, m in vit.named_modules()},
        )

    before, random = state(), torch.random.get_rng_state()
    for method in METHODS.values():
        cost.count(vit, method)
        cost.trained_parameters(vit, method)
    after = state()
    assert after[1:] == before[1:]
    for name, (trainable, values) in before[0].items():
        assert after[0][name][0] == trainable and torch.equal(after[0][name][1], values), name
    assert torch.equal(torch.random.get_rng_state(), random)
    pvera.adapt(vit, PVeRA(rank=8), CLASSES)  # it can still be adapted


def test_attention_is_fused_again_after_an_error(vit):
    assert all(block.attn.fused_attn for block in vit.blocks)
    with pytest.raises(AssertionError):
        cost.multiply_adds(vit, make_images(1, size=40))
    assert all(block.attn.fused_attn for block in vit.blocks)


def test_no_warning_reaches_the_reader(vit, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in METHODS.values():
            cost.count(vit, method)
    assert caplog.records == []


def test_bad_input(vit):
    with pytest.raises(InputError, match="num_classes must be a whole number"):
        cost.count(vit, PVeRA(rank=8), num_classes=-1)
    pvera.adapt(vit, PVeRA(rank=8), CLASSES)
    with pytest.raises(InputError, match="has adapters already"):
        cost.count(vit, PVeRA(rank=8))


def test_an_unknown_operator_is_not_taken_for_free():
    class Cumulative(torch.nn.Module):
        def forward(self, x):
            return x.cumsum(-1)

    with pytest.raises(InputError, match="Cumulative has operators that cannot be counted: aten::cumsum"):
        cost.multiply_adds(Cumulative(), torch.ones(2, 2))
