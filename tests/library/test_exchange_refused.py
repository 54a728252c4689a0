"""Adapters that cannot be exchanged with PEFT: each error is one line, and nothing changes."""

import copy
import json

import peft
import pytest
import torch
import transformers
from encoders import as_dinov2
from exchange import CLASSES, FUSED, RANK, SEPARATE, configurations, saved, set_options, trained
from families import BIASES_APART, make
from safetensors.torch import load_file, save_file
from tiny import METHODS, make_vit

import pvera
from pvera import DoRA, InputError, PVeRA

pytestmark = pytest.mark.filterwarnings("ignore")


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# ---------------------------------------------------------------- export


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
    with pytest.raises(InputError) as error:
        pvera.export_peft(trained(method), tmp_path / "folder")
    assert message in one_line(error)
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
    pvera.export_peft(trained(METHODS["lora"]), tmp_path)
    with pytest.raises(InputError, match=none):
        pvera.import_peft(tmp_path, make(example))


# ---------------------------------------------------------------- import


def refused(folder, message, backbone=None, **options):
    """Check that the import raises a one-line InputError that contains `message`, and leaves the backbone unchanged."""
    backbone = backbone or make_vit()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    with pytest.raises(InputError) as error:
        pvera.import_peft(folder, backbone, **options)
    assert message in one_line(error)
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


@pytest.mark.parametrize(
    "options, removed, added, message",
    [
        ({"peft_type": "LOHA"}, [], {}, "holds LOHA: only PVERA, VERA, LORA, IA3 can be read"),
        ({"bias": "all"}, [], {}, "bias='all' has no counterpart here"),
        ({"sample_at_inference": True}, [], {}, "set it to false, and draw with pvera.sample"),
        ({"init_lora_weights": "pissa"}, [], {}, "init_lora_weights='pissa' has no counterpart here"),
        ({"r": 5}, [], {}, "belongs to another backbone: pvera_A has shape (16, 24), not (10, 24)"),
        ({}, [f"{QUERY}b", f"{QUERY}d"], {}, "does not adapt the same projections in each"),
        ({}, [f"{QUERY}b"], {}, "lacks a pvera_lambda_b"),
        ({}, ["base_model.pvera_A"], {}, "lacks a pvera_A"),
        ({}, [], {TOKEN: torch.zeros(1, 1, 24)}, f"holds {TOKEN}, which belongs to no adapter"),
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
    "alpha_pattern": {"q_proj": 4}, "alora_invocation_tokens": [1, 2], "arrow_config": {"top_k": 1},
    "fan_in_fan_out": True, "layer_replication": [[0, 2]], "lora_bias": True, "megatron_config": {"a": 1},
    "of_a_later_version": True, "rank_pattern": {"q_proj": 4}, "target_parameters": ["a"],
    "trainable_token_indices": [1], "use_bdlora": {"nblocks": 2}, "use_qalora": True,
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_options_without_a_counterpart(folder, option):
    set_options(folder, **{option: OPTIONS[option]})
    refused(folder, f"{option}={OPTIONS[option]!r} has no counterpart here", as_dinov2(make_vit()), num_classes=3)


@pytest.mark.parametrize(
    "vit, message",
    [
        ({"depth": 3}, "does not adapt the same projections in each of the backbone's 3 layers"),
        ({"depth": 1}, "does not adapt the same projections in each of the backbone's 1 layers"),
        ({"dim": 32}, "belongs to another backbone"),
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
        (peft.IA3Config(target_modules=["qkv"], feedforward_modules=[]), "(IA)³ scales keys, values and the MLP's"),
        (configurations(FUSED)["ia3"], "scales queries, which (IA)³ does not"),
        (peft.LoraConfig(r=2, target_modules=["qkv"], modules_to_save=["norm1"]), "no adapter and no head"),
        (
            peft.IA3Config(target_modules=["qkv", "fc2"], feedforward_modules=["qkv", "fc2"]),
            "alone is one of",
        ),
    ],
)
def test_adapters_without_a_counterpart(tmp_path, config, message):
    saved(config, tmp_path)
    refused(tmp_path, message, num_classes=3)


def test_heads(folder):
    refused(folder, "holds no head: give num_classes, and train the new head")
    save_file({"weight": torch.zeros(3, 48), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "its head reads 48 features, and the backbone has 24")
    save_file({"weight": torch.zeros(3, 24), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "its head has 3 classes, not 4", num_classes=4)
    save_file({"w": torch.zeros(4, 24), "b": torch.zeros(4)}, folder / "other.safetensors")
    refused(folder, "holds several heads, head.safetensors and other.safetensors: remove all but one")


SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, num_labels=3)
IMAGES = SMALL | {"image_size": 32, "patch_size": 8}


def test_the_head_of_a_vit_of_transformers(tmp_path, images):
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGES)).eval()
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["classifier"], init_lora_weights=False)
    theirs = peft.get_peft_model(copy.deepcopy(vit), config).eval()
    theirs.save_pretrained(tmp_path)
    encoder = transformers.ViTModel(vit.config, add_pooling_layer=False)
    encoder.load_state_dict(vit.vit.state_dict())
    torch.testing.assert_close(
        pvera.import_peft(tmp_path, encoder).eval()(images), theirs(images).logits, rtol=0, atol=1e-5
    )
