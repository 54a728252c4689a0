"""An adapted model in the tools of the field: states, noise, names that they expect, gradient
checkpointing.
"""

import copy
from functools import partial

import pytest
import timm
import torch
from families import make, make_inputs
from timm.optim import create_optimizer_v2
from tiny import CLASSES, METHODS, adapted, close, make_images, make_vit, perturb
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import pvera
from pvera import InputError, LoRA, PVeRA, VeRA
from pvera.adapters import passes
from pvera.adapters.passes import KEPT

# ---------------------------------------------------------------- modules and tensors


@pytest.mark.parametrize("key", ["ia3", "lora", "pvera"])
def test_layers_that_are_replaced_after_adapting_are_noticed(key, images):
    model = adapted(key).eval()
    for block in model.backbone.blocks:
        block.attn.qkv = copy.deepcopy(block.attn.qkv)
    with pytest.raises(InputError, match="was replaced after adapt"):
        model(images)


# ---------------------------------------------------------------- noise


def steps(model, optimizer, count):
    for _ in range(count):
        loss = F.cross_entropy(model(make_images()), torch.arange(3)) + 1e-3 * model.kl_divergence()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    "method", [METHODS["pvera"], LoRA(rank=3, dropout=0.5)], ids=lambda method: method.key
)
def test_a_resumed_run_draws_on(method, tmp_path):
    def started():
        model = adapted(method).train()
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01)

    model, optimizer = started()
    steps(model, optimizer, 3)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
    steps(model, optimizer, 3)
    again, optimizer = started()
    for object_, state in zip(
        (again, optimizer), torch.load(tmp_path / "checkpoint.pt"), strict=True
    ):
        object_.load_state_dict(state)
    steps(again, optimizer, 3)
    for parameter, expected in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_training_noise_can_be_seeded(images):
    model = adapted().train()
    first = model.seed_noise(3)(images)
    assert not torch.equal(model(images), first)
    assert torch.equal(model.seed_noise(3)(images), first)
    assert not torch.equal(model.seed_noise(4)(images), first)


def test_the_kl_term_of_a_pass_without_gradients_is_refused_in_training(images):
    model = adapted().eval()
    with torch.no_grad():
        model(images)
        assert model.kl_divergence() > 0
    assert model.kl_divergence() > 0
    model.train()
    with pytest.raises(RuntimeError, match="no_grad"):
        model.kl_divergence()
    with torch.no_grad():
        assert model.kl_divergence() > 0, "a number to print"
    model(images)
    assert model.kl_divergence().requires_grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method", [METHODS["pvera"], LoRA(rank=3, dropout=0.5)], ids=lambda method: method.key
)
def test_a_compiled_pass_draws_from_the_global_state(method):
    """It draws as widely as a pass that is not compiled, and differently in each pass."""
    model = perturb(pvera.adapt(make_vit(depth=1), method, CLASSES)).train()
    images = make_images(1).expand(2000, -1, -1, -1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.manual_seed(0)
        first, second, expected = compiled(images), compiled(images), model(images)
        torch.manual_seed(0)
        assert torch.equal(compiled(images), first)
    assert not torch.equal(second, first)
    assert (first.std(0) / expected.std(0) - 1).abs().max() < 0.1


# ---------------------------------------------------------------- other tools


@pytest.mark.parametrize("options", [{}, {"layer_decay": 0.5}], ids=str)
@pytest.mark.parametrize("wrap", [lambda model: model, torch.compile], ids=["plain", "compiled"])
@pytest.mark.parametrize("key", ["pvera", "ia3", "adaptformer", "dora"])  # all names of vectors
def test_timms_optimizer_decays_no_vector(key, wrap, options):
    model = adapted(key).eval()
    groups = create_optimizer_v2(
        wrap(model), opt="sgd", lr=0.1, weight_decay=0.1, **options
    ).param_groups
    decayed = {id(p): group["weight_decay"] > 0 for group in groups for p in group["params"]}
    trained = model.members[0].trainable_tensors()
    assert len(decayed) == len(trained)
    for name, parameter in trained.items():
        assert decayed[id(parameter)] is (
            name.rpartition(".")[2] not in ("d", "b", "m", "l_kv", "l_ff", "s", "bias")
        )


GROUPED = ["linear", "pvera", "ia3", "adaptformer", "dora"]


@pytest.mark.parametrize(
    "make_optimizer", [torch.optim.AdamW, partial(create_optimizer_v2, opt="adamw")]
)
@pytest.mark.parametrize("key", GROUPED)
def test_the_parameter_groups_decay_no_vector(key, make_optimizer):
    """Also of a grid, and of a head of one's own."""
    model = pvera.adapt(make_vit(), [METHODS[key]] * 2, num_classes=0)
    model.members[1].head = nn.Linear(24, CLASSES)
    groups = make_optimizer(
        model.parameter_groups(lr=0.1, head_lr=0.01), weight_decay=0.2
    ).param_groups
    options = {
        id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]
    }

    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert sum(len(group["params"]) for group in groups) == len(options) == len(trained)
    for name, parameter in trained.items():
        is_vector = name.rpartition(".")[2] in ("d", "b", "m", "l_kv", "l_ff", "s", "bias")
        assert options[id(parameter)] == (
            0.01 if ".head." in name else 0.1,
            0 if is_vector else 0.2,
        ), name


def test_heads_learn_as_fast_as_adapters_by_default():
    assert {group["lr"] for group in adapted().parameter_groups(lr=0.1)} == {0.1}


# ---------------------------------------------------------------- names that tools expect


def test_inputs_by_name_and_labels(images):
    model, labels = adapted().eval(), torch.tensor([0, 1, 2])
    assert torch.equal(model(pixel_values=images), model(images))
    loss, logits = model(pixel_values=images, labels=labels)
    close(loss, F.cross_entropy(logits, labels))
    model.beta = 0.5
    assert torch.equal(model(images, labels=labels).loss, loss), (
        "the loss of an evaluation has no KL term"
    )
    twin = copy.deepcopy(model).train()
    loss, logits = model.train()(images, labels=labels)
    close(loss, F.cross_entropy(twin(images), labels) + 0.5 * twin.kl_divergence())
    with pytest.raises(InputError, match="labels= gives one loss"):
        pvera.adapt(make_vit(), [PVeRA(rank=2)] * 2, CLASSES)(images, labels=labels)
    text = pvera.adapt(make("BertModel"), METHODS["pvera"], CLASSES).eval()
    tokens = make_inputs(text.backbone)
    assert torch.equal(text(**tokens), text(tokens))


def test_without_classes_or_with_a_head_of_ones_own(images, tmp_path):
    model = perturb(pvera.adapt(make_vit(), METHODS["pvera"], num_classes=0)).eval()
    close(model(images), model.features(images)[0], 0)
    assert model.members[0].count()["head"] == 0
    pvera.save(model, tmp_path / "adapter.safetensors")
    again = pvera.load(make_vit(), tmp_path / "adapter.safetensors").eval()
    assert torch.equal(again(images), model(images))
    features = model(images)
    model.members[0].head = head = nn.Sequential(nn.Linear(24, 7), nn.ReLU(), nn.Linear(7, 3))
    close(model(images), head(features), 0)
    pvera.save(model, tmp_path / "own.safetensors")
    assert torch.equal(
        pvera.load(make_vit(), tmp_path / "own.safetensors").eval()(images), features
    )
    pvera.export_peft(model, tmp_path / "folder")
    with pytest.raises(InputError, match="holds no head"):
        pvera.import_peft(tmp_path / "folder", make_vit())
    model = pvera.adapt(make_vit(), METHODS["pvera"], CLASSES)
    for model.members[0].head in (
        head,
        nn.modules.linear.NonDynamicallyQuantizableLinear(24, CLASSES),
    ):
        with pytest.raises(InputError, match="the head was replaced"):
            pvera.save(model, tmp_path / "replaced.safetensors")
        with pytest.raises(InputError, match="the head was replaced"):
            pvera.export_peft(model, tmp_path / "replaced")


def test_timm_resolves_the_backbones_data_config():
    vit = timm.create_model("vit_tiny_patch8_32", num_classes=0)
    expected = timm.data.resolve_model_data_config(vit)
    vit = timm.create_model("vit_tiny_patch8_32", img_size=48, num_classes=0)
    adapted = timm.data.resolve_model_data_config(pvera.adapt(vit, METHODS["pvera"], CLASSES))
    assert adapted == expected | {"input_size": (3, 48, 48)}
    assert not hasattr(
        pvera.adapt(make("Dinov2Model"), METHODS["pvera"], CLASSES), "pretrained_cfg"
    )


# ---------------------------------------------------------------- gradient checkpointing


DROPPED = [
    LoRA(rank=3, dropout=0.25),
    VeRA(rank=8, dropout=0.25),
    VeRA(rank=8, dropout=0.25, dropout_on="latent"),
]
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


def test_as_many_passes_as_are_kept_before_one_backward_pass(monkeypatch):
    """Passes that are repeated take no place among them."""
    monkeypatch.setattr(passes, "KEPT", 4)
    model = models(METHODS["pvera"])[1]
    sum(objective(model, make_images(1, seed)) for seed in range(4)).backward()


def test_a_second_backward_pass_repeats_the_same_noise():
    results = []
    for model in models(GRID):
        loss = objective(model, make_images())
        results.append([])
        for _ in range(2):
            model.zero_grad()
            loss.backward(retain_graph=True)
            results[-1].append(
                {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            )
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
    for _ in range(KEPT):
        with torch.no_grad():
            model(make_images(1))
    with pytest.raises(RuntimeError, match=f"more than {KEPT} passes back"):
        loss.backward()
