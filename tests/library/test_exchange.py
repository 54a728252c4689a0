"""Adapters exchanged with PEFT through folders: outputs, draws and heads are the same; what is
refused, and how.
"""

import copy
import json

import families
import peft
import pytest
import timm
import tiny
import torch
import transformers
from encoders import as_dinov2
from exchange import CLASSES, FUSED, RANK, SEPARATE, configurations, peft_made, saved, set_options
from families import BIASES_APART, CHECKS, Case, features_of, make, make_inputs
from safetensors.torch import load_file, save_file
from tiny import METHODS, close, make_images, make_vit, perturb

import pvera
from pvera import DoRA, InputError, LoRA, PVeRA, VeRA

pytestmark = pytest.mark.filterwarnings("ignore")

EXPORTED = [
    *(
        kind(rank=4, targets=targets)
        for kind in (PVeRA, VeRA, LoRA, DoRA)
        for targets in ("k", "qkv")
    ),
    PVeRA(rank=4, alpha=3.0, pair="shared"),
    PVeRA(rank=4, sigma=1.0),
    VeRA(rank=4, targets="kv", pair="shared"),
    DoRA(rank=4, scaled=False, transpose=False, train_magnitude=False),
]


# ---------------------------------------------------------------- to PEFT


@pytest.mark.parametrize("example", ["vit_base_patch14_dinov2", "Dinov2Model"])
@pytest.mark.parametrize("method", EXPORTED, ids=str)
def test_peft_computes_the_exported_adapter_and_it_comes_back(tmp_path, method, example):
    CHECKS["exchange"](Case(example, method), tmp_path)


def test_a_merged_model_exports_the_same_folder(tmp_path):
    for method in (METHODS["dora"], METHODS["pvera"]):
        model = tiny.adapted(method).eval()
        pvera.export_peft(model, tmp_path / "plain")
        pvera.export_peft(model.merge_(), tmp_path / "merged")
        plain, merged = (
            load_file(tmp_path / name / "adapter_model.safetensors") for name in ("plain", "merged")
        )
        torch.testing.assert_close(merged, plain, rtol=0, atol=0)


# ---------------------------------------------------------------- from PEFT


def unscaled_queries(qkv):
    """Undo the scale of queries, which (IA)³ does not have."""
    qkv.ia3_l["default"][:24] = 1


@pytest.mark.parametrize("name", configurations(FUSED))
@torch.no_grad()
def test_timms_fused_layer_from_peft(tmp_path, images, name):
    config = configurations(FUSED)[name]
    config.modules_to_save = ["head"]
    theirs = peft_made(config)
    for block in theirs.base_model.model.blocks if name == "ia3" else ():
        unscaled_queries(block.attn.qkv)
    theirs.save_pretrained(tmp_path)
    imported = pvera.import_peft(tmp_path, make_vit())
    assert not imported.training
    imported, theirs, images = imported.double(), theirs.double(), images.double()
    close(imported.eval()(images), theirs(images))
    close(imported.merge_()(images), theirs(images))


@pytest.mark.parametrize("name", configurations(SEPARATE))
def test_separate_projections_from_peft(tmp_path, images, name):
    """Outputs are equal on the same encoder, and on timm's with the same weights."""
    theirs = saved(configurations(SEPARATE)[name], tmp_path, "transformers")
    expected = theirs(images).last_hidden_state[:, 0]
    for backbone in (as_dinov2(make_vit()), make_vit()):
        imported = pvera.import_peft(tmp_path, backbone, num_classes=3).eval()
        close(imported.features(images)[0], expected)
        assert imported(images).shape == (3, 3)


def test_matrices_are_redrawn_alike_whatever_torchs_default_precision(tmp_path, images):
    theirs = saved(configurations(SEPARATE)["redrawn"], tmp_path, "transformers")
    backbone = as_dinov2(make_vit())
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        imported = pvera.import_peft(tmp_path, backbone, num_classes=3)
    finally:
        torch.set_default_dtype(before)
    close(imported.features(images)[0], theirs(images).last_hidden_state[:, 0])


def test_imported_adapters_train_on_and_are_saved(tmp_path, images):
    """Imported A and B come from no seed, so the file holds them."""
    saved(configurations(SEPARATE)["pvera"], tmp_path, "transformers")
    model = pvera.import_peft(tmp_path, make_vit(), num_classes=3)
    (model(images).sum() + model.kl_divergence()).backward()
    for parameter in model.members[0].trainable_tensors().values():
        assert parameter.grad is not None and parameter.grad.any()
    pvera.save(model, tmp_path / "adapter.safetensors")
    assert torch.equal(
        pvera.load(make_vit(), tmp_path / "adapter.safetensors").eval()(images),
        model.eval()(images),
    )


def test_an_unfinished_export_is_no_adapter(tmp_path, monkeypatch):
    """New tensors never lie beside the configuration of an earlier adapter."""
    pvera.export_peft(tiny.adapted(PVeRA(rank=4)), tmp_path)

    def refuse(path, content):
        raise InputError(f"cannot write {path}")

    monkeypatch.setattr("pvera.peft.export.write_atomically", refuse)
    with pytest.raises(InputError, match="cannot write"):
        pvera.export_peft(tiny.adapted(LoRA(rank=4)), tmp_path)
    tiny.refused(lambda: pvera.import_peft(tmp_path, make_vit()), "holds no adapter_config.json")


# ---------------------------------------------------------------- draws


DRAWS = 4000


@pytest.mark.parametrize(
    "method, example",
    [
        (PVeRA(rank=8), "vit_base_patch14_dinov2"),
        (PVeRA(rank=8, pair="shared", targets="qkv"), "vit_base_patch14_dinov2"),
        (PVeRA(rank=8, pair="shared"), "Dinov2Model"),
        (PVeRA(rank=8, targets="v"), "Dinov2Model"),
    ],
    ids=str,
)
@torch.no_grad()
def test_peft_draws_as_widely(tmp_path, method, example):
    """One image's features have the standard deviation of PEFT's, in the root mean square."""
    model = perturb(pvera.adapt(make(example), method, CLASSES)).eval()
    pvera.export_peft(model, tmp_path)
    set_options(tmp_path, sample_at_inference=True)
    theirs = peft.PeftModel.from_pretrained(make(example), tmp_path).eval()
    images = make_images(1).expand(DRAWS, -1, -1, -1)
    torch.manual_seed(0)
    expected = features_of(theirs.base_model.model, images).var(0).mean().sqrt()
    set_options(tmp_path, sample_at_inference=False)
    for ours in (model, pvera.import_peft(tmp_path, make(example)).eval()):
        with ours.sampling(seed=0):
            drawn = ours.features(images)[0].var(0).mean().sqrt()
        assert (drawn / expected).item() == pytest.approx(1, abs=0.03)


def test_a_mean_that_peft_cannot_sample_is_exported_as_vera(tmp_path):
    """As VeRA, PEFT draws no noise for it."""
    pvera.export_peft(pvera.adapt(make("Dinov2Model"), PVeRA(rank=8), CLASSES).eval(), tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "VERA"
    assert pvera.import_peft(tmp_path, make_vit()).members[0].method.key == "vera"


TIMM_HEADS = [
    "vit_base_patch14_dinov2",
    "vit_base_patch16_siglip_224",
    "vit_base_patch16_gap_224",
    "cait_xxs24_224",
]


@pytest.mark.parametrize("example", [*TIMM_HEADS, "deit_base_distilled_patch16_224"])
@torch.no_grad()
def test_heads_of_timm(example, tmp_path):
    """PEFT's logits are this package's where one linear layer follows the features; a distilled
    DeiT has two.
    """
    encoder = make(example)
    weights = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    model = perturb(pvera.adapt(encoder, METHODS["pvera"], CLASSES), scale=0.03).eval()
    pvera.export_peft(model, tmp_path)
    assert (tmp_path / "head.safetensors").exists() == (example not in TIMM_HEADS)
    if example in TIMM_HEADS:
        classifier = timm.create_model(
            example, num_classes=CLASSES, **families.OPTIONS.get(example, families.SMALL)
        ).eval()
        classifier.load_state_dict(weights, strict=False)
        theirs = peft.PeftModel.from_pretrained(classifier, tmp_path).eval()
        images = make_inputs(encoder)
        torch.testing.assert_close(theirs(images), model(images), rtol=1e-4, atol=1e-5)


def test_the_features_that_a_head_of_texts_reads(tmp_path):
    model = perturb(
        pvera.adapt(make("BertModel"), METHODS["pvera"], CLASSES, pool="mean"), scale=0.03
    ).eval()
    pvera.export_peft(model, tmp_path)
    texts = make_inputs(model.backbone)
    close(pvera.import_peft(tmp_path, make("BertModel")).eval()(texts), model(texts))
    first = pvera.import_peft(tmp_path, make("BertModel"), pool="first").eval()
    assert first.pool == "first" and (first(texts) - model(texts)).abs().max() > 1e-3
    pvera.export_peft(pvera.adapt(make("BertModel"), METHODS["pvera"], 0), tmp_path)
    assert not (tmp_path / "head.safetensors").exists(), (
        "an adapter without a head does not get the earlier one's"
    )


# ---------------------------------------------------------------- export that is refused


@pytest.mark.parametrize(
    "method, message",
    [
        (METHODS["adaptformer"], "PEFT has no AdaptFormer: export PVeRA, VeRA, LoRA, DoRA, (IA)³"),
        (METHODS["bottleneck"], "PEFT has no Bottleneck"),
        (METHODS["linear"], "PEFT has no Linear"),
        (DoRA(rank=3, norm="output"), 'use DoRA(norm="input")'),
    ],
)
def test_export(tmp_path, method, message):
    tiny.refused(lambda: pvera.export_peft(tiny.adapted(method), tmp_path / "folder"), message)
    assert not (tmp_path / "folder").exists()


def test_export_of_a_grid_and_to_a_place_that_is_a_file(tmp_path):
    model = pvera.adapt(make_vit(), [PVeRA(rank=4), PVeRA(rank=8)], CLASSES)
    with pytest.raises(InputError, match="set `active` to it first"):
        pvera.export_peft(model, tmp_path)
    model.active = [1]
    pvera.export_peft(model, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 16
    with pytest.raises(InputError, match="cannot write"):
        pvera.export_peft(model, tmp_path / "adapter_config.json" / "folder")


@pytest.mark.parametrize("example", BIASES_APART)
def test_backbones_that_do_not_call_the_fused_layer(example, tmp_path):
    """PEFT's adapters of it would silently do nothing (BEiT, EVA)."""
    none = "PEFT's adapters have no effect on this backbone"
    with pytest.raises(InputError, match=none):
        pvera.export_peft(pvera.adapt(make(example), METHODS["lora"], CLASSES), tmp_path / "export")
    pvera.export_peft(tiny.adapted("lora"), tmp_path)
    with pytest.raises(InputError, match=none):
        pvera.import_peft(tmp_path, make(example))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "key, tensor", [("lora", "layers.1.B"), ("pvera", "shared.A"), ("dora", "head.bias")]
)
def test_export_of_what_diverged(tmp_path, key, tensor, value):
    model = tiny.adapted(key)
    member = model.members[0]
    (dict(member.named_parameters()) | dict(member.named_buffers()))[tensor].data.flatten()[0] = (
        value
    )
    tiny.refused(
        lambda: pvera.export_peft(model, tmp_path / "folder"), "holds NaN or infinite numbers"
    )
    assert not (tmp_path / "folder").exists()


def test_export_of_numbers_that_single_precision_does_not_hold(tmp_path):
    model = tiny.adapted("lora").double()
    model.members[0].layers[0].A.data *= 1e300
    tiny.refused(
        lambda: pvera.export_peft(model, tmp_path / "folder"), "holds NaN or infinite numbers"
    )


# ---------------------------------------------------------------- import that is refused


def refused(folder, message, backbone=None, **options):
    """Check that the import raises a one-line InputError that contains `message`, and leaves the
    backbone unchanged.
    """
    backbone = backbone or make_vit()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    tiny.refused(lambda: pvera.import_peft(folder, backbone, **options), message)
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert all(parameter.requires_grad for parameter in backbone.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in backbone.modules())


@pytest.fixture
def folder(tmp_path):
    """A PVeRA adapter that PEFT made for transformers' DINOv2."""
    saved(configurations(SEPARATE)["pvera"], tmp_path, "transformers")
    return tmp_path


def test_files(folder, tmp_path):
    refused(tmp_path / "none", "holds no adapter_config.json: it is no adapter folder of PEFT")
    tensors = folder / "adapter_model.safetensors"
    content = tensors.read_bytes()
    for damaged in (b"", content[:5], content[:-1]):
        tensors.write_bytes(damaged)
        refused(folder, "adapter_model.safetensors is damaged, or no safetensors file")
    tensors.unlink()
    refused(folder, "adapter_model.safetensors: no such file")
    (folder / "adapter_model.bin").write_bytes(b"")
    refused(folder, "adapter_model.bin is a pickle: save it with safe_serialization=True")
    for text in ("{", "[]", "{}", "\xff"):
        (folder / "adapter_config.json").write_text(text, encoding="latin-1")
        refused(folder, "adapter_config.json ")


QUERY = "base_model.model.encoder.layer.1.attention.q_proj.pvera_lambda_"
TOKEN = "base_model.model.embeddings.cls_token"
PATCHES = "base_model.model.embeddings.patch_embeddings.projection.lora_A.weight"


@pytest.mark.parametrize(
    "options, removed, added, message",
    [
        ({"peft_type": "LOHA"}, [], {}, "holds LOHA: only PVERA, VERA, LORA, IA3 can be read"),
        ({"bias": "all"}, [], {}, "bias='all' has no counterpart here"),
        ({"sample_at_inference": True}, [], {}, "set it to false, and sample with pvera.sample"),
        (
            {"init_lora_weights": "pissa"},
            [],
            {},
            "init_lora_weights='pissa' has no counterpart here",
        ),
        (
            {"r": 5},
            [],
            {},
            "does not fit the backbone, its rank or num_classes: pvera_A has shape (16, 24), not "
            "(10, 24)",
        ),
        ({}, [f"{QUERY}b", f"{QUERY}d"], {}, "does not adapt the same projections in each"),
        ({}, [f"{QUERY}b"], {}, "lacks a pvera_lambda_b"),
        ({}, ["base_model.pvera_A"], {}, "lacks a pvera_A"),
        (
            {},
            [],
            {TOKEN: torch.zeros(1, 1, 24)},
            f"holds {TOKEN}, which is neither of an adapter nor",
        ),
        (
            {},
            [],
            {PATCHES: torch.zeros(2, 3)},
            f"adapts {PATCHES}: only adapters of queries, keys and values",
        ),
        (
            {"peft_type": ["LORA"]},
            [],
            {},
            "holds ['LORA']: only PVERA, VERA, LORA, IA3 can be read",
        ),
        ({}, None, {}, "holds no adapter of queries, keys or values"),
    ],
    ids=str,
)
def test_contents(folder, options, removed, added, message):
    file = folder / "adapter_model.safetensors"
    set_options(folder, **options)
    tensors = load_file(file)
    for name in tensors.keys() if removed is None else removed:
        assert name in tensors
    kept = {name: t for name, t in tensors.items() if removed is not None and name not in removed}
    save_file(kept | added, file)
    refused(folder, message, as_dinov2(make_vit()), num_classes=3)


#: Options that change what PEFT computes, and one that this program does not know.
OPTIONS = {
    "alpha_pattern": {"q_proj": 4},
    "alora_invocation_tokens": [1, 2],
    "arrow_config": {"top_k": 1},
    "fan_in_fan_out": True,
    "layer_replication": [[0, 2]],
    "lora_bias": True,
    "megatron_config": {"a": 1},
    "of_a_later_version": True,
    "rank_pattern": {"q_proj": 4},
    "target_parameters": ["a"],
    "trainable_token_indices": [1],
    "use_bdlora": {"nblocks": 2},
    "use_qalora": True,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_without_a_counterpart(folder, option):
    set_options(folder, **{option: OPTIONS[option]})
    refused(
        folder,
        f"{option}={OPTIONS[option]!r} has no counterpart here",
        as_dinov2(make_vit()),
        num_classes=3,
    )


@pytest.mark.parametrize(
    "vit, message",
    [
        ({"depth": 3}, "does not adapt the same projections in each of the backbone's 3 layers"),
        ({"depth": 1}, "does not adapt the same projections in each of the backbone's 1 layers"),
        ({"dim": 32}, "does not fit the backbone"),
    ],
    ids=str,
)
def test_backbones(folder, vit, message):
    refused(folder, message, make_vit(**vit), num_classes=3)


OUTSIDE = "only adapters of queries, keys and values can be read"


@pytest.mark.parametrize(
    "config, message",
    [
        (peft.LoraConfig(r=RANK, target_modules=["qkv", "mlp.fc1"]), OUTSIDE),
        (peft.LoraConfig(r=RANK, target_modules=["qkv", "mlp.fc2"]), OUTSIDE),
        (
            peft.IA3Config(target_modules=["qkv"], feedforward_modules=[]),
            "(IA)³ scales keys, values and the MLP's",
        ),
        (configurations(FUSED)["ia3"], "scales queries, which (IA)³ does not"),
        (
            peft.LoraConfig(r=2, target_modules=["qkv"], modules_to_save=["norm1"]),
            "nor of a head that reads the features here",
        ),
        (
            peft.IA3Config(target_modules=["qkv", "fc2"], feedforward_modules=["qkv", "fc2"]),
            "ia3_l has shape (1, 24), not (72, 1)",
        ),
    ],
)
def test_adapters_without_a_counterpart(tmp_path, config, message):
    saved(config, tmp_path)
    refused(tmp_path, message, num_classes=3)


@pytest.mark.parametrize("kind", ["LORA", "VERA", "PVERA"])
def test_numbers_that_the_configuration_lacks_are_peft_s_defaults(tmp_path, images, kind):
    """Of the rank, LoRA's α, and the key that draws matrices which are not saved."""
    config_class = {"LORA": peft.LoraConfig, "VERA": peft.VeraConfig, "PVERA": peft.PveraConfig}[
        kind
    ]
    options = {} if kind == "LORA" else {"save_projection": False}
    theirs = saved(config_class(target_modules=SEPARATE, **options), tmp_path, "transformers")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": kind} | options))
    imported = pvera.import_peft(tmp_path, as_dinov2(make_vit()), num_classes=3)
    close(imported.features(images)[0], theirs(images).last_hidden_state[:, 0])


@pytest.mark.parametrize(
    "name, option, values",
    [
        ("lora", "r", [None, "8", {}, 4.0]),
        ("pvera", "r", [None]),
        ("lora", "lora_alpha", [None, "8", -1, float("nan")]),
        ("vera redrawn", "projection_prng_key", [None, "7"]),
    ],
)
def test_numbers_that_are_none(tmp_path, name, option, values):
    saved(configurations(SEPARATE)[name], tmp_path, "transformers")
    for value in values:
        set_options(tmp_path, **{option: value})
        refused(tmp_path, "", num_classes=3)


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_numbers_that_diverged(folder, value):
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors[f"{QUERY}b"][3] = value
    save_file(tensors, file)
    refused(
        folder, f"adapter_model.safetensors: {QUERY}b holds NaN or infinite numbers", num_classes=3
    )
    tensors[f"{QUERY}b"][3] = 0
    save_file(tensors, file)
    save_file(
        {"weight": torch.full((3, 24), value), "bias": torch.zeros(3)}, folder / "head.safetensors"
    )
    refused(folder, "head.safetensors: weight holds NaN or infinite numbers")


def text_encoder(name):
    """Return a text encoder of transformers, as wide and deep as the small encoders of images."""
    kind = getattr(transformers, name)
    size = dict(
        hidden_size=24, ffn_dim=96, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2
    )
    return kind(kind.config_class(**size, vocab_size=50, word_embed_proj_dim=24))


#: Encoders of images with the same modules' positions, of transformers and timm.
OF_IMAGES = {
    "CLIPVisionModel": lambda: transformers.CLIPVisionModel(
        transformers.CLIPVisionConfig(
            hidden_size=24,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=32,
            patch_size=8,
        )
    ),
    "VisionTransformer": make_vit,
}


@pytest.mark.parametrize("images_by", OF_IMAGES)
@pytest.mark.parametrize("name", ["CLIPTextModel", "SiglipTextModel", "BertModel", "OPTModel"])
def test_text_encoders_into_encoders_of_images(tmp_path, name, images_by):
    config = peft.LoraConfig(r=2, target_modules=["query"] if name == "BertModel" else ["q_proj"])
    peft.get_peft_model(text_encoder(name), config).save_pretrained(tmp_path)
    message = f" of {name}: that is a module of another encoder than {images_by}"
    refused(tmp_path, message, OF_IMAGES[images_by](), num_classes=3)


def test_clips_text_encoder_by_the_names_of_its_modules(tmp_path):
    """As transformers before 5 names them, and in adapters of the whole CLIP: the class tells
    nothing.
    """
    clip = OF_IMAGES["CLIPVisionModel"]
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="FEATURE_EXTRACTION")
    peft.get_peft_model(clip(), config).save_pretrained(tmp_path)
    pvera.import_peft(tmp_path, clip(), num_classes=3)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    for part in ("vision_model", "text_model"):
        named = {
            key.replace(".encoder.", f".{part}.encoder."): tensor for key, tensor in tensors.items()
        }
        save_file(named, tmp_path / "adapter_model.safetensors")
        if part == "vision_model":
            pvera.import_peft(tmp_path, clip(), num_classes=3)
        else:
            refused(
                tmp_path,
                "that is a module of another encoder than CLIPVisionModel",
                clip(),
                num_classes=3,
            )


def test_an_encoder_of_images_into_a_text_encoder(tmp_path):
    pvera.export_peft(tiny.adapted("lora"), tmp_path)
    refused(
        tmp_path, "that is a module of another encoder than BertModel", text_encoder("BertModel")
    )


def test_two_encoders_in_one_folder(folder):
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors |= {
        key.replace(".model.", ".model.other."): tensor.clone() for key, tensor in tensors.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    refused(folder, "adapts two modules in one place", num_classes=3)


def test_heads(folder):
    refused(folder, "holds no head: give num_classes, and train the new head")
    save_file({"weight": torch.zeros(3, 48), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "head.weight has shape (3, 48), not (3, 24)")
    save_file({"weight": torch.zeros(3, 24), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "head.weight has shape (3, 24), not (4, 24)", num_classes=4)
    save_file(
        {"classifier.weight": torch.zeros(4, 24), "classifier.bias": torch.zeros(4)},
        folder / "other.safetensors",
    )
    refused(
        folder, "holds several heads, head.safetensors and other.safetensors: remove all but one"
    )


#: Classifiers whose head reads a pooler (BERT) or a mean of tokens, and the encoders inside.
OTHER_FEATURES = {
    "BertForSequenceClassification": "bert",
    "CLIPForImageClassification": "vision_model",
    "SiglipForImageClassification": "vision_model",
}


@pytest.mark.parametrize("name", OTHER_FEATURES)
def test_heads_that_read_a_pooler_or_a_mean(tmp_path, name):
    """They are as wide as one of the class token, and would give wrong scores."""
    kind = getattr(transformers, name)
    config = (
        kind.config_class(**SMALL)
        if name.startswith("Bert")
        else kind.config_class(vision_config=SMALL)
    )
    config.num_labels = 3
    classifier = kind(config)
    target = "query" if name.startswith("Bert") else "q_proj"
    lora = peft.LoraConfig(r=2, target_modules=[target], modules_to_save=["classifier"])
    peft.get_peft_model(copy.deepcopy(classifier), lora).save_pretrained(tmp_path)
    encoder = getattr(classifier, OTHER_FEATURES[name])
    refused(tmp_path, "nor of a head that reads the features here", encoder)


SMALL = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, num_labels=3
)
SMALL |= {"image_size": 32, "patch_size": 8}


def test_the_head_of_a_vit_of_transformers(tmp_path, images):
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL)).eval()
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj"], modules_to_save=["classifier"], init_lora_weights=False
    )
    theirs = peft.get_peft_model(copy.deepcopy(vit), config).eval()
    theirs.save_pretrained(tmp_path)
    encoder = transformers.ViTModel(vit.config, add_pooling_layer=False)
    encoder.load_state_dict(vit.vit.state_dict())
    torch.testing.assert_close(
        pvera.import_peft(tmp_path, encoder).eval()(images),
        theirs(images).logits,
        rtol=0,
        atol=1e-5,
    )
