"""docs/training-loops.md: its recipes run as they stand; tools and methods work together or are
refused as it says.
"""

import copy
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from families import make, make_inputs
from onnx.reference import ReferenceEvaluator
from pages import DOCS, refusals
from timm.utils import ModelEmaV3
from tiny import CLASSES, METHODS, adapted, close, make_images, perturb, refused
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.swa_utils import AveragedModel
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import pvera
from pvera.adapters.stochastic import with_settings

IMAGES = make_images()

# ---------------------------------------------------------------- recipes

START, *SECTIONS = re.split(r"^## ", (DOCS / "training-loops.md").read_text(), flags=re.MULTILINE)
DATASET = """
import torch
source = torch.Generator().manual_seed(0)
dataset = [(torch.randn(3, 32, 32, generator=source), i % 10) for i in range(20)]
"""


def code(text: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


START = DATASET + code(START).replace("epochs = 50", "epochs = 2")
RECIPES = {
    section.partition("\n")[0]: code(section) for section in SECTIONS if "```python" in section
}
SLOW = ("torch.compile and export", "Several processes: DDP", "transformers' Trainer", "Lightning")
slow = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(recipe: str, method: str = "pvera.PVeRA(rank=16)") -> dict:
    """Run a recipe with a method in the current folder; return its names."""
    names: dict = {"__name__": "recipe", "beta": 0.1}
    exec((START + recipe).replace("pvera.PVeRA(rank=16)", method), names)
    return names


def with_kl(recipe: str) -> str:
    """Return a recipe with the KL term that it has as a comment."""
    changed = re.sub(r"# (?=model\.beta = |\+ beta \* )", "", recipe)
    assert changed != recipe
    return changed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=slow if n in SLOW else []) for n in RECIPES]
)
def test_recipe(name, tmp_path, monkeypatch):
    """It leaves the files that it names."""
    monkeypatch.chdir(tmp_path)
    if name == "Several processes: DDP":
        (tmp_path / "train.py").write_text(START + RECIPES[name])
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "train.py",
        ]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        (tmp_path / "train.py").unlink()
    else:
        names = run(RECIPES[name])
        if name.startswith("Plain"):
            check_plain(names, RECIPES[name])
    for file in re.findall(r'"([\w.]+\.(?:pt|safetensors|onnx))"', RECIPES[name]):
        assert (tmp_path / file).exists(), file


def check_plain(names: dict, recipe: str) -> None:
    """Resume the finished run, whose adapter is the saved one, and one that ended after an
    epoch: the same numbers.
    """
    logits = names["model"](names["images"])
    states = torch.load("run.pt")
    assert states["epoch"] == 2
    model = names["adapted"]().eval()
    model.load_state_dict(states["model"])
    assert torch.equal(model(names["images"]), logits)
    assert names["probabilities"].sum(1).allclose(torch.ones(len(logits)))
    names["os"].remove("run.pt")
    run(recipe.replace("range(start, epochs)", "range(start, 1)"))
    assert torch.equal(run(recipe)["model"](names["images"]), logits)


# ---------------------------------------------------------------- tools and methods

REFUSED = refusals([method.title for method in METHODS.values()])
TOOLS: dict = {}


def tool(name: str):
    """Register the check of a tool: it gets a method's key, and raises InputError where the
    library refuses.
    """

    def register(check):
        TOOLS[name] = check
        return check

    return register


def step(model, forward=None, inputs=IMAGES) -> list:
    """Return logits, KL term and gradients; equal models draw the same noise."""
    logits = (model if forward is None else forward)(inputs)
    kl = model.kl_divergence()
    (logits.float().square().sum() + kl).backward()
    gradients = [p.grad.clone() for p in model.members[0].trainable_tensors().values()]
    model.zero_grad()
    return [logits, kl, *gradients]


@tool("`torch.compile`, one graph")
def one_graph(key):
    """Logits and gradients of the mean, in both modes, without a graph break."""
    torch.compiler.reset()  # the limit of graphs counts those of other methods too
    model = adapted(key).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for training in (False, True):
        model.train(training)
        with with_settings(model.members[0].stochastic_adapters, sampling=False):
            torch.testing.assert_close(
                step(model, forward=compiled), step(model), rtol=1e-4, atol=1e-5
            )


@tool("`torch.compile`, then `merge_` and `unmerge_`")
def compiled_merge(key):
    model = adapted(key).eval()
    expected, compiled = model(IMAGES), torch.compile(model, backend="eager")
    close(compiled(IMAGES), expected)
    model.merge_()
    close(compiled(IMAGES), expected)
    assert torch.equal(compiled(IMAGES), model(IMAGES))
    model.unmerge_()
    torch.testing.assert_close(step(model, forward=compiled), step(model), rtol=1e-4, atol=1e-5)


def exported(model):
    return torch.export.export(
        model, (IMAGES,), dynamic_shapes={"inputs": {0: torch.export.Dim("batch")}}
    )


@tool("`torch.export`, any batch size")
def export(key):
    model, several = adapted(key).eval(), make_images(7)
    close(exported(model).module()(several), model(several))


@tool("ONNX, any batch size")
def onnx(key):
    model, several = adapted(key).eval(), make_images(7)
    converted = torch.onnx.export(exported(model), (), dynamo=True, verbose=False).model_proto
    (logits,) = ReferenceEvaluator(converted).run(None, {"inputs": several.numpy()})
    close(torch.from_numpy(logits), model(several), 1e-4)


@tool("autocast")
def autocast(key):
    """In bf16 the KL term is fp32, and so are the gradients."""
    model = adapted(key).eval()
    exact, kl, *_ = step(model)
    with torch.autocast("cpu", torch.bfloat16):
        logits, rounded_kl, *gradients = step(model)
    assert logits.dtype == torch.bfloat16 and rounded_kl.dtype == torch.float32
    assert 0 < (logits - exact).abs().max() < 0.1 * exact.abs().max()
    close(rounded_kl, kl, 0.02 * kl.item())
    assert all(
        gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients
    )


@tool("gradient checkpointing")
def checkpointing(key):
    """Steps are the same, and each layer is computed twice where a gradient passes it."""
    for example in ("vit_base_patch14_dinov2", "Dinov2Model", "DebertaV2Model(share_att_key=True)"):
        if key == "adaptformer" and example.startswith("Deberta"):
            continue  # it has no place for AdaptFormer
        plain, saving = (
            perturb(pvera.adapt(make(example), METHODS[key], CLASSES)) for _ in range(2)
        )
        saving.gradient_checkpointing_enable()
        calls: list = []
        saving.encoder_layers[0].block.register_forward_pre_hook(
            lambda *_, calls=calls: calls.append(1)
        )
        inputs = make_inputs(plain.backbone)
        torch.testing.assert_close(
            step(saving.train(), inputs=inputs), step(plain.train(), inputs=inputs)
        )
        assert len(calls) == 2 or key == "linear"


@tool("moving average (torch, timm)")
def moving_average(key):
    for make_average in (partial(ModelEmaV3, decay=0.5), AveragedModel):
        model = adapted(key).eval()
        average = make_average(model)
        update = getattr(average, "update_parameters", None) or average.update
        update(model)
        before = {
            name: p.detach().clone() for name, p in model.members[0].trainable_tensors().items()
        }
        perturb(model, seed=1)
        update(model)
        for name, parameter in average.module.members[0].trainable_tensors().items():
            close(parameter, (before[name] + model.members[0].trainable_tensors()[name]) / 2)
        reference = adapted(key).eval()
        reference.load_state_dict(average.module.state_dict())
        assert torch.equal(average.module.eval()(IMAGES), reference(IMAGES))


@tool("`functional_call`, `vmap` over models")
def functional(key):
    models = [adapted(key).eval(), adapted(key, seed=1).eval()]
    expected = [model(IMAGES) for model in models]
    tensors = dict(models[1].named_parameters()) | dict(models[1].named_buffers())
    assert torch.equal(functional_call(models[0], tensors, (IMAGES,)), expected[1])
    assert torch.equal(models[0](IMAGES), expected[0])
    parameters, buffers = stack_module_state(models)
    outputs = vmap(lambda p, b: functional_call(models[0], (p, b), (IMAGES,)))(parameters, buffers)
    close(outputs, torch.stack(expected))


@tool("Trainer, accelerate, Lightning")
def trainers(key):
    for name in ("transformers' Trainer", "accelerate", "Lightning"):
        run(with_kl(RECIPES[name]), f"pvera.{METHODS[key]!r}")


def int8(key, dequantised: bool = False):
    """Return a model on int8 weights, or on the fp32 weights that they stand for."""
    model = adapted(key).eval()
    quantize_(model.backbone, Int8WeightOnlyConfig())
    if dequantised:
        for module in model.backbone.modules():
            if isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.dequantize(), requires_grad=False)
    return model


@tool("int8 weights: training, draws")
def int8_training(key):
    model, expected = int8(key), int8(key, dequantised=True)
    torch.testing.assert_close(step(model), step(expected), rtol=1e-3, atol=1e-3)
    if model.members[0].is_stochastic:
        close(pvera.sample(model, IMAGES, 4), pvera.sample(expected, IMAGES, 4), 1e-4)


@tool("int8 weights: merge")
def int8_merge(key):
    """Refused, it leaves the codes as they are."""
    model = int8(key)
    expected = model(IMAGES)
    try:
        model.merge_()
    finally:
        assert torch.equal(model(IMAGES), expected)


@tool("threads that predict")
def threads(key):
    """Threads predict different images at the same time, unmerged."""
    model, batches = adapted(key).eval(), [make_images(8, seed) for seed in range(8)]
    expected = [model(images) for images in batches]
    with ThreadPoolExecutor(4) as pool:
        predicted = [pool.submit(model, images) for _ in range(10) for images in batches]
    for i, future in enumerate(predicted):
        assert torch.equal(future.result(), expected[i % len(batches)])


@tool("deep copies, pickles")
def copies(key):
    """They compute the same and train apart."""
    model = adapted(key).eval()
    expected = model(IMAGES)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(IMAGES), expected)
        torch.testing.assert_close(step(twin.train()), step(copy.deepcopy(model).train()))
        perturb(twin.eval(), seed=1)
        assert not torch.equal(twin(IMAGES), expected) and torch.equal(model(IMAGES), expected)


def test_every_exception_has_its_check():
    """Those of FSDP2 are in test_distributed.py."""
    assert {name for name in REFUSED if not name.startswith("FSDP2")} <= TOOLS.keys()


SLOW_TOOLS = ("Trainer", "ONNX")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "key", ["pvera", "ia3", "adaptformer"]
)  # of projections, of the MLP, and beside it
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=slow if n.startswith(SLOW_TOOLS) else []) for n in TOOLS]
)
def test_tool_and_method(name, key, tmp_path, monkeypatch):
    """They work together, or one line refuses them."""
    monkeypatch.chdir(tmp_path)
    if METHODS[key].title in REFUSED.get(name, []):
        refused(lambda: TOOLS[name](key), "")
    else:
        TOOLS[name](key)
