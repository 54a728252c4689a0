"""Sizes of small encoders of transformers, texts for them, and DINOv2 with timm's weights."""

import torch
from text_tasks import SMALL
from transformers import Dinov2Config, Dinov2Model

SIZE = SMALL | {"vocab_size": 50}
#: DeBERTa-V3's differences: the query and key layers also read embeddings of relative positions.
DEBERTA_V3 = dict(
    type_vocab_size=0,
    position_biased_input=False,
    relative_attention=True,
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    pad_token_id=0,
)
DINOV2 = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
)


def make_text(lengths=(5, 9, 3), padding: int = 0, pad_token: int = 1, seed: int = 0) -> dict:
    """Make texts of random tokens with these `lengths`, padded to the longest plus `padding`."""
    source = torch.Generator().manual_seed(seed)
    width = max(lengths) + padding
    ids = torch.full((len(lengths), width), pad_token)
    mask = torch.zeros_like(ids)
    for i, length in enumerate(lengths):
        ids[i, :length] = torch.randint(2, 50, (length,), generator=source)
        mask[i, :length] = 1
    return {"input_ids": ids, "attention_mask": mask}


def as_dinov2(vit) -> Dinov2Model:
    """Return transformers' DINOv2 with the weights of timm's."""
    model, source = Dinov2Model(Dinov2Config(**DINOV2)).eval(), vit.state_dict()
    names = {
        "embeddings.cls_token": "cls_token",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "encoder.layer": "blocks",
        "attention.o_proj": "attn.proj",
        "layer_scale1.lambda1": "ls1.gamma",
        "layer_scale2.lambda1": "ls2.gamma",
        "layernorm": "norm",
    }
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            for theirs, ours in names.items():
                name = name.replace(theirs, ours)
            for i, p in enumerate("qkv"):
                if f"attention.{p}_proj" in name:
                    fused = source[name.replace(f"attention.{p}_proj", "attn.qkv")]
                    tensor.copy_(fused.chunk(3)[i])
            if name in source:
                tensor.copy_(source[name])
    return model
