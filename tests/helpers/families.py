"""Small encoders of many families with random weights, and the checks of every method on each
of them."""

import copy
import warnings
from dataclasses import dataclass, field
from functools import partial

import peft
import timm
import tiny
import torch
import transformers
from encoders import DEBERTA_V3, DINOV2, SIZE, make_text
from tiny import METHODS, make_images, perturb, randomise
from torch import Tensor, nn
from torch.nn import functional as F

import pvera

CLASSES = 3
MERGEABLE = {"linear", "ia3", "dora", "lora", "vera", "pvera"}
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
exactly = partial(torch.testing.assert_close, rtol=0, atol=0)

# ---------------------------------------------------------------- small models

SMALL = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=2)
IMAGES = DINOV2 | {"intermediate_size": 96}
#: Options that differ from the defaults: of timm's models, or of transformers' configurations.
OPTIONS = {
    "vit_tiny_r_s16_p8_224": SMALL | {"img_size": 64, "patch_size": 1},
    "DebertaV2Model": SIZE | DEBERTA_V3 | {"share_att_key": False, "conv_kernel_size": 3},
    "DebertaV2Model(share_att_key=True)": SIZE | DEBERTA_V3,
    "Dinov2Model": DINOV2,
    "Dinov2Model(use_swiglu_ffn=True)": DINOV2 | {"use_swiglu_ffn": True},
    "Dinov2WithRegistersModel": DINOV2,
    "DINOv3ViTModel": IMAGES,
    "DINOv3ViTModel(use_gated_mlp=True)": IMAGES | {"use_gated_mlp": True},
    "ViTModel": IMAGES,
    "CLIPVisionModel": IMAGES,
    "SiglipVisionModel": IMAGES,
    "vit_base_patch16_sapiens2": SMALL | {"num_kv_heads": 2},
}
#: Options of timm's vision transformer that change what adapters meet.
VARIANTS = {
    f"vit_base_patch14_dinov2({name}={value})": SMALL | {name: value} | more
    for name, value, more in (
        ("qkv_bias", False, {}),
        ("qk_norm", True, {}),
        ("reg_tokens", 4, {}),
        ("global_pool", "avg", {"class_token": False}),
        ("init_values", None, {}),
        ("mlp_ratio", 2.0, {}),
    )
}
#: Models of timm that keep biases beside `attn.qkv` and do not call it.
BIASES_APART = (
    "beit_base_patch16_224",
    "beitv2_base_patch16_224",
    "eva_giant_patch14_224",
    "eva_giant_patch14_clip_224",
    "eva02_tiny_patch14_224",
    "eva02_enormous_patch14_clip_224",
    "vit_base_patch16_dinov3_qkvb",
    "vit_huge_plus_patch16_dinov3_qkvb",
)
#: Encoders of transformers that pool in a module of their own; timm's models have it too.
POOLING = (transformers.CLIPVisionModel, transformers.SiglipVisionModel)


def make(example: str, seed: int = 0) -> nn.Module:
    """Make a small model of the example's class; its weights are large enough that every part
    matters."""
    name, options = example.split("(")[0], (OPTIONS | VARIANTS).get(example)
    kind = getattr(transformers, name, None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # buffers may be random too
        if kind is None:
            model = timm.create_model(name, pretrained=False, num_classes=0, **options or SMALL)
        else:
            model = kind(kind.config_class(**options or SIZE))
    return (
        randomise(model, seed).eval().requires_grad_(False)
    )  # fused attention rounds differently in training mode


def make_inputs(encoder: nn.Module) -> Tensor | dict[str, Tensor]:
    if getattr(encoder, "main_input_name", "pixel_values") == "input_ids":
        return make_text()
    architecture = getattr(encoder, "default_cfg", {}).get("architecture")
    return make_images(size=OPTIONS.get(architecture, SMALL).get("img_size", 32))


def features_of(encoder: nn.Module, inputs) -> Tensor:
    """Return the features that the head of a plain encoder reads, (batch, dim)."""
    if isinstance(encoder, transformers.PreTrainedModel):
        output = encoder(inputs) if isinstance(inputs, Tensor) else encoder(**inputs)
        return (
            output.pooler_output if isinstance(encoder, POOLING) else output.last_hidden_state[:, 0]
        )
    return encoder.forward_head(encoder.forward_features(inputs), pre_logits=True)


# ---------------------------------------- layers, located without the library


@dataclass
class Layer:
    """Places in one encoder layer.

    projections: in the order q, k, v, or one fused projection.
    attention, mlp: submodules whose outputs join the residual stream.
    between: the submodule that reads the stream between attention and MLP.
    biases: separate ones of q and v.
    """

    block: nn.Module
    projections: list[nn.Linear]
    attention: str
    mlp: str
    between: str | None
    mlp_out: nn.Linear
    biases: dict[str, Tensor] = field(default_factory=dict)

    def frozen(self, position: str) -> list[Tensor]:
        """Return views of the weight and any bias of "q", "k" or "v"."""
        index, linear = "qkv".index(position), self.projections
        tensors = [t.data for t in linear[index % len(linear)].parameters()]
        tensors = tensors if len(linear) == 3 else [t.chunk(3)[index] for t in tensors]
        return tensors + [bias for p, bias in self.biases.items() if p == position]


def blocks_of(encoder: nn.Module) -> nn.ModuleList:
    if hasattr(encoder, "blocks"):
        return encoder.blocks
    stack = getattr(encoder, "encoder", getattr(encoder, "model", encoder))
    return stack.layer if hasattr(stack, "layer") else stack.layers


def layers_of(encoder: nn.Module) -> list[Layer]:
    return [layer_of(block) for block in blocks_of(encoder)]


def layer_of(block: nn.Module) -> Layer:
    modules = dict(block.named_modules())

    def first(*names: str) -> str | None:
        return next((name for name in names if name in modules), None)

    whole = first("attn", "attention.self", "attention", "self_attn")
    words = {"q": "query", "k": "key", "v": "value"}
    linear = [
        first(f"{whole}.{p}_proj", f"{whole}.{words[p]}", f"{whole}.{words[p]}_proj") for p in "qkv"
    ]
    return Layer(
        block,
        [modules[f"{whole}.qkv"]] if None in linear else [modules[name] for name in linear],
        first("attn", "attention.output.dense", "attention.o_proj", "self_attn.out_proj"),
        first("mlp", "output.dense"),
        "mlp"
        if "Post" in type(block).__name__
        else first("norm2", "layer_norm2", "layernorm_after"),
        modules[first("mlp.fc2", "mlp.down_proj", "output.dense")],
        {p: t.data for p in "qv" if (t := getattr(modules[whole], f"{p}_bias", None)) is not None},
    )


# ---------------------------------------- the methods, without the library's hooks


@torch.no_grad()
def change_weights(layer: Layer, adapter: nn.Module, method) -> None:
    """Apply a linear method's closed form, W ← ..., to the frozen weights."""
    if method.key == "ia3":
        for scale, position in zip(adapter.l_kv, "kv"):
            for tensor in layer.frozen(position):
                tensor.mul_(scale.view(-1, *[1] * (tensor.dim() - 1)))
        layer.mlp_out.weight.mul_(adapter.l_ff)
        return
    scaled = getattr(method, "scaled", True)
    for i, position in enumerate(method.targets):
        W = layer.frozen(position)[0]
        if method.key in ("lora", "dora"):
            delta = (adapter.A[:, i] @ adapter.B[i]) * (method.alpha / method.rank if scaled else 1)
            delta = delta.T if getattr(method, "transpose", True) else delta
        else:
            A, d, pair = adapter.shared.A, adapter.d, i if method.pair == "position" else 0
            A, d = (A[:, 0], d[0]) if method.key == "pvera" else (A, d)
            delta = (
                method.alpha
                * (A[:, pair] @ d[i].diag() @ adapter.shared.B[pair] @ adapter.b[i].diag()).T
            )
        W += delta
        if method.key == "dora":
            norm = W.norm(dim=1 if method.norm == "input" else 0, keepdim=True)
            W *= adapter.m[i].view_as(norm) / norm


def bottleneck(part: nn.Module, x: Tensor) -> Tensor:
    return F.relu(x @ part.down.weight.T + part.down.bias) @ part.up.weight.T + part.up.bias


def add_modules(layer: Layer, adapter: nn.Module, method) -> None:
    """Add the modules of a method without a closed form."""
    mlp = layer.block.get_submodule(layer.mlp)
    if method.key == "bottleneck":
        attention = layer.block.get_submodule(layer.attention)
        attention.register_forward_hook(lambda _, args, y: y + bottleneck(adapter.attention, y))
        mlp.register_forward_hook(lambda _, args, y: y + bottleneck(adapter.mlp, y))
        return
    read = []
    layer.block.get_submodule(layer.between).register_forward_pre_hook(
        lambda _, args: read.append(args[0])
    )
    place = mlp if method.inside_layer_scale else layer.block
    place.register_forward_hook(
        lambda _, args, y: y + adapter.s * bottleneck(adapter.branch, read[-1])
    )


def with_method(plain: nn.Module, member: nn.Module) -> nn.Module:
    """Return a copy of a plain encoder that computes `member`'s method without the library."""
    encoder = copy.deepcopy(plain)
    for layer, adapter in zip(layers_of(encoder), member.layers):
        if member.method.key in MERGEABLE - {"linear"}:
            change_weights(layer, adapter, member.method)
        elif member.method.key != "linear":
            add_modules(layer, adapter, member.method)
    return encoder


# ---------------------------------------------------------------- checks


class Case:
    """One method, or the small one of a key, on one small encoder; `model()` is the same each
    time."""

    def __init__(self, example: str, method):
        self.example, self.method = example, METHODS[method] if isinstance(method, str) else method
        self.inputs = make_inputs(self.plain())

    def plain(self) -> nn.Module:
        return make(self.example)

    def model(self, encoder: nn.Module | None = None, seed: int = 0):
        return perturb(pvera.adapt(encoder or self.plain(), self.method, CLASSES), seed).eval()

    def logits(self, model) -> Tensor:
        with torch.no_grad():
            return model(self.inputs)


def gradients(case: Case, model) -> dict[str, Tensor]:
    """Return the loss and gradients of one training step with two passes; equal models draw the
    same noise."""
    model.train()
    losses = [model(case.inputs).square().mean() + 1e-3 * model.kl_divergence() for _ in range(2)]
    sum(losses).backward()
    gradients_of = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad()
    return gradients_of | {"loss": sum(losses).detach()}


def check_reference(case: Case):
    """The features equal those of an encoder that computes the method without the library, in
    fp64."""
    plain, model, inputs = case.plain().double(), case.model().double(), case.inputs
    inputs = inputs.double() if isinstance(inputs, Tensor) else inputs
    with torch.no_grad():
        features = model.features(inputs)[0]
        expected = features_of(with_method(plain, model.members[0]), inputs)
        torch.testing.assert_close(features, expected, rtol=0, atol=1e-10)
        if case.method.key != "linear":
            assert (features - features_of(plain, inputs)).abs().max() > 1e-2
        model.last_mlp_on_class_token = True  # no head reads less than it did
        torch.testing.assert_close(model.features(inputs)[0], features, rtol=0, atol=1e-10)


def check_start(case: Case):
    """A new adapter computes the backbone's features."""
    model = pvera.adapt(case.plain(), case.method, CLASSES)
    for training in (False, True):
        close(
            model.train(training).features(case.inputs)[0], features_of(case.plain(), case.inputs)
        )


def check_training(case: Case):
    """What is trained has a finite gradient that is not zero; the backbone has none."""
    model = case.model()
    trained = {f"members.0.{name}" for name in model.members[0].trainable_tensors()}
    assert trained == {name for name, p in model.named_parameters() if p.requires_grad}
    for name, gradient in gradients(case, model).items():
        assert gradient is not None and gradient.isfinite().all() and gradient.any(), name
    assert all(p.grad is None for p in model.backbone.parameters())


def check_merging(case: Case):
    """Merging keeps the logits; unmerging restores the weights bit for bit."""
    model = case.model()
    before, expected = copy.deepcopy(model.backbone.state_dict()), case.logits(model)
    if case.method.key not in MERGEABLE:
        tiny.refused(model.merge_, "")
    else:
        close(case.logits(model.merge_()), expected)
        model.unmerge_()
    exactly(model.backbone.state_dict(), before)
    assert torch.equal(case.logits(model), expected)


@torch.no_grad()
def check_exchange(case: Case, tmp_path):
    """PEFT computes the exported adapter, unmerged and merged; it comes back, with targets and
    rank where it can."""
    if case.method.key not in MERGEABLE - {"linear"} or case.example in BIASES_APART:
        return
    bare, model = (
        case.plain(),
        perturb(pvera.adapt(case.plain(), case.method, CLASSES), scale=0.03).eval(),
    )
    expected = model.features(case.inputs)[0]
    assert (expected - features_of(bare, case.inputs)).abs().max() > 1e-3
    pvera.export_peft(model, tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys")
        theirs = peft.PeftModel.from_pretrained(bare, tmp_path).eval()
    close(features_of(theirs.base_model.model, case.inputs), expected)
    theirs.merge_adapter()
    close(features_of(theirs.base_model.model, case.inputs), expected)
    returned = pvera.import_peft(tmp_path, case.plain()).eval()
    close(returned(case.inputs), model(case.inputs))
    member, method = returned.members[0], case.method
    if getattr(method, "sigma", None) is not None:  # PEFT holds its mean alone
        assert member.method.key == "vera"
    elif method.key == "lora" or (model.encoder_layers[0].is_fused and method.key != "dora"):
        for name in ("key", "targets", "rank"):
            assert getattr(member.method, name, None) == getattr(method, name, None)
        assert member.count() == model.members[0].count()


def check_unloading(case: Case):
    """The unloaded backbone has the plain one's tensors (bit for bit), output and hooks."""
    plain, encoder = case.plain(), case.plain()
    model = case.model(encoder)
    case.logits(model)
    if case.method.key in MERGEABLE:
        model.merge_()
    backbone = model.unload()
    assert backbone is encoder
    exactly(backbone.state_dict(), plain.state_dict())
    with torch.no_grad():
        assert torch.equal(features_of(backbone, case.inputs), features_of(plain, case.inputs))
    assert hooks(backbone) == hooks(plain)
    assert torch.equal(case.logits(case.model(backbone)), case.logits(case.model()))


def hooks(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def refused(encoder: nn.Module, **arguments) -> str:
    """Check that `adapt` gives the reason in one line, leaves the encoder unchanged, and return
    the reason."""

    def state() -> tuple:
        return hooks(encoder), encoder.training, [p.requires_grad for p in encoder.parameters()]

    before = state()
    arguments = {"method": METHODS["pvera"], "num_classes": CLASSES} | arguments
    reason = tiny.refused(lambda: pvera.adapt(encoder, **arguments), "")
    assert len(reason) < 400 and state() == before and not getattr(encoder, "_adapted", False)
    return reason


def check_users_hooks(case: Case):
    """A hook registered before `adapt` sees the frozen projection's output, and may keep it."""
    encoder, seen = case.plain(), []
    linear = [m for layer in layers_of(encoder) for m in layer.projections]
    for m in linear:
        m.register_forward_hook(lambda module, args, y: seen.append((module, args[0], y)))
    model = case.model(encoder)
    for training in (False, True):
        seen.clear()
        model.train(training)(case.inputs)
        if case.example in BIASES_APART and case.method.key not in MERGEABLE - {"linear"}:
            assert (
                not seen
            )  # the plain encoder does not call these projections, and no adapter reads them
        else:
            assert len(seen) >= len(linear)
        for module, x, y in seen:
            close(y, F.linear(x, module.weight, module.bias))


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}
