"""Adapters of PEFT on small backbones, and PEFT's configurations."""

import json

import peft
import torch
from encoders import as_dinov2
from tiny import make_vit

CLASSES = 5
#: The backbone that PEFT adapts.
BACKBONES = {
    "timm": lambda: make_vit(num_classes=CLASSES),
    "transformers": lambda: as_dinov2(make_vit()),
}
RANK = 8
FUSED, SEPARATE = ["attn.qkv"], ["q_proj", "v_proj"]


def peft_made(config, library="timm"):
    """Make a PEFT model with random trained tensors."""
    model = peft.get_peft_model(BACKBONES[library](), config)
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn(parameter.shape, generator=source)
    return model.eval()


def saved(config, folder, library="timm"):
    model = peft_made(config, library)
    model.save_pretrained(folder)
    return model


def set_options(folder, **options):
    """Change options of a saved configuration."""
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | options))


def configurations(targets):
    """PEFT's configurations of the five methods."""
    positions = [f"{target}_proj" for target in "kv"] if targets == SEPARATE else targets
    return {
        "pvera": peft.PveraConfig(r=RANK, target_modules=targets),
        "redrawn": peft.PveraConfig(
            r=RANK, target_modules=targets, save_projection=False, projection_prng_key=7
        ),
        "vera": peft.VeraConfig(r=RANK, target_modules=targets),
        "vera redrawn": peft.VeraConfig(r=RANK, target_modules=targets, save_projection=False),
        "lora": peft.LoraConfig(r=RANK, lora_alpha=4, target_modules=targets),
        "rslora": peft.LoraConfig(r=RANK, lora_alpha=4, target_modules=targets, use_rslora=True),
        "dora": peft.LoraConfig(r=RANK, target_modules=targets, use_dora=True),
        "ia3": peft.IA3Config(
            target_modules=[*positions, "mlp.fc2"], feedforward_modules=["mlp.fc2"]
        ),
    }
