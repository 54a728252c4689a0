"""Adapters that cannot be exchanged with PEFT: each error is one line, and nothing changes."""

import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_exchange import CLASSES, FUSED, RANK, SEPARATE, configurations, saved, trained
from test_transformers import as_dinov2, make_encoder
from tiny import METHODS, make_vit

import pvera
from pvera import DoRA, InputError, PVeRA

pytestmark = pytest.mark.filterwarnings("ignore")


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# ---------------------------------------------------------------- export


@pytest.mark.parametrize(
    "method, library, sampling, message",
    [
        (METHODS["adaptformer"], "timm", False, "PEFT has no AdaptFormer: export PVeRA, VeRA, LoRA, DoRA, (IA)³"),
        (METHODS["bottleneck"], "timm", False, "PEFT has no Bottleneck"),
        (METHODS["linear"], "timm", False, "PEFT has no Linear"),
        (DoRA(rank=3, norm="output"), "timm", False, 'use DoRA(norm="input")'),
        (METHODS["vera"], "timm", True, "VeRA has no distribution to sample from: export it without sampling"),
        (METHODS["pvera"], "transformers", True, 'export it without sampling, or train with pair="shared"'),
    ],
    ids=str,
)
def test_export(tmp_path, method, library, sampling, message):
    with pytest.raises(InputError) as error:
        pvera.export_peft(trained(method, library), tmp_path / "folder", sampling)
    assert message in one_line(error)
    assert not (tmp_path / "folder").exists()


def test_export_of_a_grid(tmp_path):
    model = pvera.adapt(make_vit(), [PVeRA(rank=4), PVeRA(rank=8)], CLASSES)
    with pytest.raises(InputError, match="set `active` to it first"):
        pvera.export_peft(model, tmp_path)
    model.active = [1]
    pvera.export_peft(model, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 16


def test_sampling_of_deberta(tmp_path):
    model = pvera.adapt(make_encoder("deberta-v3"), PVeRA(rank=4, pair="shared"), CLASSES)
    with pytest.raises(InputError, match="position embeddings: export it without sampling"):
        pvera.export_peft(model, tmp_path, sampling=True)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        pvera.export_peft(trained(METHODS["lora"]), tmp_path / "file" / "folder")


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


def change_config(folder, **options):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | options))


def change_tensors(folder, change):
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


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
    for text in ("{", "[]", "{}", "\xff"):
        (folder / "adapter_config.json").write_text(text, encoding="latin-1")
        refused(folder, "adapter_config.json is damaged, or no configuration of PEFT")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"peft_type": "LOHA"}, "holds LOHA: only PVERA, VERA, LORA, IA3 can be read"),
        ({"bias": "all"}, "bias='all' has no counterpart here"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern={'q_proj': 4} has no counterpart here"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa' has no counterpart here"),
        ({"r": None}, "adapter_config.json: r must be a positive number, not None"),
        ({"r": 5}, "belongs to another backbone: pvera_A has shape (16, 24), not (10, 24)"),
    ],
    ids=str,
)
def test_configurations(folder, options, message):
    change_config(folder, **options)
    refused(folder, message, num_classes=3)


@pytest.mark.parametrize(
    "vit, message",
    [
        ({"depth": 3}, "adapts 2 layers, up to layer 1: the backbone has 3"),
        ({"depth": 1}, "adapts 2 layers, up to layer 1: the backbone has 1"),
        ({"dim": 32}, "belongs to another backbone"),
    ],
    ids=str,
)
def test_backbones(folder, vit, message):
    refused(folder, message, make_vit(**vit), num_classes=3)


def test_targets_outside_of_queries_keys_and_values(tmp_path):
    for i, target in enumerate(("attn.proj", "mlp.fc1", "mlp.fc2")):
        saved(peft.LoraConfig(r=RANK, target_modules=["qkv", target]), tmp_path / str(i))
        refused(tmp_path / str(i), "only adapters of queries, keys and values can be read", num_classes=3)
    saved(peft.IA3Config(target_modules=["qkv"], feedforward_modules=[]), tmp_path / "ia3")
    refused(tmp_path / "ia3", "(IA)³ scales keys, values and the MLP's hidden activation, not ['qkv']", num_classes=3)
    saved(configurations(FUSED)["ia3"], tmp_path / "fused")
    refused(tmp_path / "fused", "scales queries, which (IA)³ does not", num_classes=3)


def test_tensors(folder):
    def drop(ending):
        return lambda tensors: tensors.pop(next(key for key in tensors if key.endswith(ending)))

    whole = (folder / "adapter_model.safetensors").read_bytes()
    changes = {
        "does not adapt the same projections in every layer": lambda tensors: [
            tensors.pop(key) for key in list(tensors) if "layer.1.attention.q_proj" in key
        ],
        "lacks a pvera_lambda_b": drop("lambda_b"),
        "lacks a pvera_A": drop("pvera_A"),
        "holds base_model.model.embeddings.cls_token, which belongs to no adapter": lambda tensors: tensors.update(
            {"base_model.model.embeddings.cls_token": torch.zeros(1, 1, 24)}
        ),
        "holds no adapter of queries, keys or values": lambda tensors: tensors.clear(),
    }
    for message, change in changes.items():
        (folder / "adapter_model.safetensors").write_bytes(whole)
        change_tensors(folder, change)
        refused(folder, message, as_dinov2(make_vit()), num_classes=3)


def test_heads(folder):
    refused(folder, "holds no head: give num_classes, and train the new head")
    save_file({"weight": torch.zeros(3, 48), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "its head reads 48 features, and the backbone has 24")
    save_file({"weight": torch.zeros(3, 24), "bias": torch.zeros(3)}, folder / "head.safetensors")
    refused(folder, "its head has 3 classes, not 4", num_classes=4)
    save_file({"w": torch.zeros(4, 24), "b": torch.zeros(4)}, folder / "other.safetensors")
    refused(folder, "holds several heads, head.safetensors and other.safetensors: remove all but one")


def test_draws(tmp_path):
    saved(configurations(FUSED)["pvera"], tmp_path / "fused")
    refused(tmp_path / "fused", "one z for queries, keys and values", num_classes=3, sampling=True)
    saved(configurations(FUSED)["lora"], tmp_path / "lora")
    refused(tmp_path / "lora", "holds LoRA, which has no distribution", num_classes=3, sampling=True)


def test_a_backbone_with_adapters(folder):
    vit = make_vit()
    pvera.adapt(vit, METHODS["lora"], CLASSES)
    with pytest.raises(InputError, match="has adapters already"):
        pvera.import_peft(folder, vit, num_classes=3)
