"""Gradient checkpointing computes layers twice: loss and gradients are those of computing them once."""

from functools import partial

import pytest
import torch
from tiny import CLASSES, METHODS, adapted, make_images, make_vit, perturb
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import pvera
from pvera import InputError, LoRA, PVeRA, VeRA, recompute

DROPPED = [LoRA(rank=3, dropout=0.25), VeRA(rank=8, dropout=0.25), VeRA(rank=8, dropout=0.25, dropout_on="latent")]
assert_equal = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-7)  # of gradients by name
GRID = [PVeRA(rank=4), PVeRA(rank=8, targets="qkv"), PVeRA(rank=3, targets="k")]


def objective(model, images):
    logits = model(images)
    labels = (torch.arange(len(images)) % CLASSES).repeat(logits.numel() // (len(images) * CLASSES))
    return F.cross_entropy(logits.reshape(-1, CLASSES), labels) + 0.1 * model.kl_divergence().sum()


def gradients(model, *losses):
    """Gradients of the sum of `losses`, each of which has a backward pass of its own."""
    model.zero_grad()
    for loss in losses:
        loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


def models(method, **vit):
    """Two equal models, of which the second checkpoints."""
    pair = [perturb(pvera.adapt(make_vit(**vit), method, CLASSES, seed=1)) for _ in range(2)]
    pair[1].backbone.set_grad_checkpointing()
    return pair


@pytest.mark.parametrize("spared", [False, True], ids=["whole", "class token"])
@pytest.mark.parametrize("method", [*DROPPED, GRID, METHODS["adaptformer"]], ids=str)
def test_a_step_is_the_same(method, spared):
    plain, saving = models(method)
    plain.last_mlp_on_class_token = saving.last_mlp_on_class_token = spared
    for seed in range(2):
        losses = [objective(model, make_images(3, seed)) for model in (plain, saving)]
        assert torch.equal(*losses)
        assert_equal(gradients(saving, losses[1]), gradients(plain, losses[0]))


@pytest.mark.parametrize("together", [True, False], ids=["one backward pass", "oldest first"])
def test_several_passes_before_the_backward_pass(together):
    results = []
    for model in models(GRID):
        losses = [objective(model, make_images(3, seed)) for seed in range(3)]
        results.append(gradients(model, sum(losses)) if together else gradients(model, *losses))
    assert_equal(results[1], results[0])


def test_settings_of_the_pass_and_not_of_the_backward_pass():
    """Draws, mode and active members may have changed until the layer is computed again."""
    results = []
    for model in models(GRID):
        model.active = [2, 0]
        with model.sampling(seed=7):
            loss = objective(model.eval(), make_images())
        model.active = [0, 1, 2]
        loss.backward()
        results.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_equal(results[1], results[0])


def test_reentrant_checkpoints():
    """They keep no graph of the first pass, so of the KL term there is no gradient."""
    results = []
    for saving in (False, True):
        model = adapted("pvera")
        images = make_images().requires_grad_()

        def run(model=model, images=images, saving=saving):
            return checkpoint(model, images, use_reentrant=True) if saving else model(images)

        with model.without_kl():
            loss = run().square().sum()
            results.append(gradients(model, loss))
    assert_equal(results[1], results[0])
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        (run().square().sum() + model.kl_divergence()).backward()


def test_a_pass_too_far_back_is_refused():
    model = models(METHODS["pvera"])[1]
    loss = objective(model, make_images())
    for _ in range(recompute.KEPT):
        with torch.no_grad():
            model(make_images(1))
    with pytest.raises(RuntimeError, match=f"more than {recompute.KEPT} passes back"):
        loss.backward()


def test_timms_encoders_have_no_options_of_checkpointing():
    with pytest.raises(InputError, match="leave out every_n_layers=2"):
        adapted().gradient_checkpointing_enable({"every_n_layers": 2})
