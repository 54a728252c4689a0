"""Closed forms of multiply-adds for one image: t tokens, width d, L layers, r the rank, T adapted projections."""

from pvera import AdaptFormer, Bottleneck, DoRA, LoRA, PVeRA, VeRA


def backbone(vit) -> int:
    """Of 12 t d², queries, keys and values take 3, their projection 1 and the MLP 8."""
    patches, d = vit.patch_embed.num_patches, vit.embed_dim
    t = patches + vit.num_prefix_tokens
    return len(vit.blocks) * (12 * t * d**2 + 2 * t**2 * d) + patches * vit.patch_embed.proj.weight[0].numel() * d


def adapters(vit, method, sampled: bool = False) -> int:
    t, d, targets = vit.patch_embed.num_patches + vit.num_prefix_tokens, vit.embed_dim, getattr(method, "targets", "")
    T, r = len(targets), getattr(method, "rank", 0)
    match method:
        case Bottleneck():
            layer = 2 * 2 * t * d * (d // method.ratio)
        case AdaptFormer():
            layer = 2 * t * d * (d // method.ratio)
        case LoRA():
            layer = T * 2 * t * r * d
        case VeRA() | PVeRA():  # fused projections read one x, so a shared A is one product
            halves = method.halves if sampled and isinstance(method, PVeRA) else 1
            layer = (halves * (1 if method.pair == "shared" else T) + T) * t * r * d
        case DoRA():
            layer = T * ((2 * t * r * d if method.norm == "input" else t * d**2) + r * d**2)
        case _:
            layer = 0
    return len(vit.blocks) * layer
