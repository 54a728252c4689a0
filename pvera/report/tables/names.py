"""Full names of the short keys in profiles, protocols and records."""

from collections.abc import Iterable

from pvera.adapters import METHODS
from pvera.report.table import title
from pvera.study.protocol import one_at_a_time

BACKBONES = {
    "tiny": "small ViT (32 px)",
    "dinov2_s": "DINOv2 ViT-S/14",
    "dinov2_b": "DINOv2 ViT-B/14",
    "dinov2_l": "DINOv2 ViT-L/14",
    "dinov3_s": "DINOv3 ViT-S/16",
    "dinov3_b": "DINOv3 ViT-B/16",
    "dinov3_l": "DINOv3 ViT-L/16",
    "minilm": "MiniLM-L6",
    "deberta_v3_base": "DeBERTa-V3-base",
    "bert_base": "BERT-base",
    "roberta_base": "RoBERTa-base",
}

#: Switch (`protocol.one_at_a_time`) -> what the published program does there.
SWITCHES = {
    "published": "all differences at once",
    "softmax_in_loss": "softmax taken twice",
    "shuffle": "images never shuffled",
    "own_draws": "other random numbers",
    "joint_stop": "grid stops together",
    "bottleneck_near_identity": "default start",
    "adaptformer_near_identity": "default start",
    "adaptformer_inside_layer_scale": "inside the layer scale",
    "dora_norm": "norm per input column",
    "dora_train_magnitude": "frozen magnitude",
    "dora_scaled": "no α/r",
    "dora_transpose": "update not transposed",
    "lora_same_draw": "same start in every layer",
    "vera_init": "uniform A and B",
    "pvera_init": "uniform A and B",
    "pvera_kl": "KL term as a mean",
}


def backbone_title(name: str) -> str:
    """Return the full name of a backbone or text encoder, or the given name where it has none."""
    return BACKBONES.get(name, name)


def origin(record: dict, seeds: Iterable[int], datasets: Iterable[str] = ()) -> str:
    """Name for a caption the profile, protocol, backbone, seeds and data sets that its numbers come from."""
    *others, last = map(str, seeds)
    text = (
        f"Profile {record['profile']}, {record['protocol']} protocol, backbone {backbone_title(record['backbone'])}, "
        + (f"seeds {', '.join([*others, last])}" if others else f"seed {last}")
    )
    names = ", ".join(map(title, datasets))
    return f"{text}; data sets: {names}" if names else text


def switch_title(name: str) -> str:
    """Return what a switch changes, after the method that it concerns."""
    method = one_at_a_time()[name].method
    return f"{METHODS[method].title}: {SWITCHES[name]}" if method else SWITCHES[name].capitalize()
