"""The two protocols: what the paper describes, and what its published program does.

`CORRECTED` follows the paper, or what is right where the paper leaves it open; `PUBLISHED` follows the
program that produced the paper's numbers. Each field is one difference and can be switched alone.
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Protocol:
    """One field per difference.

    softmax_in_loss: the cross entropy is given softmax outputs instead of logits, so it takes a softmax twice.
    shuffle: the training set is shuffled in every epoch.
    own_draws: each grid member has a seed of its own; otherwise all start from the same random numbers.
    joint_stop: the members of a grid end together, once patience has run out for all of them; see `training.choose`.
    adapters: hyperparameters per method that only one of the two uses.
    """

    name: str
    softmax_in_loss: bool
    shuffle: bool
    own_draws: bool
    joint_stop: bool
    adapters: dict[str, dict] = field(default_factory=dict)


CORRECTED = Protocol(
    "corrected", softmax_in_loss=False, shuffle=True, own_draws=False, joint_stop=False
)

PUBLISHED = Protocol(
    "published",
    softmax_in_loss=True,
    shuffle=False,
    own_draws=True,
    joint_stop=True,
    adapters={
        "bottleneck": {"near_identity": False},
        "adaptformer": {"near_identity": False, "inside_layer_scale": True},
        "dora": {"norm": "output", "train_magnitude": False, "scaled": False, "transpose": False},
        "lora": {"same_draw": True},
        "vera": {"init": "uniform"},
        "pvera": {"init": "uniform", "kl": "mean"},
    },
)

PROTOCOLS = {p.name: p for p in (CORRECTED, PUBLISHED)}


@dataclass(frozen=True)
class Variant:
    """One protocol whose effect is measured, and on what.

    method: the only method that it concerns (None: all).
    grid: it concerns a grid's members together, so it is measured on full grids instead of the most chosen value.
    """

    protocol: Protocol
    method: str | None = None
    grid: bool = False

    @property
    def reference(self) -> str:
        """The corrected protocol, measured alike: what the others are compared with."""
        return GRID_REFERENCE if self.grid else REFERENCE


REFERENCE, GRID_REFERENCE = REFERENCES = ("corrected", "corrected_grid")


#: Both protocols, and the corrected one with each difference of the published one alone, by name.
VARIANTS = {
    REFERENCE: Variant(CORRECTED),
    GRID_REFERENCE: Variant(CORRECTED, grid=True),
    PUBLISHED.name: Variant(PUBLISHED),
}
VARIANTS |= {
    name: Variant(
        replace(CORRECTED, name=f"corrected, {name}", **{name: getattr(PUBLISHED, name)}),
        grid=name == "joint_stop",
    )
    for name in ("softmax_in_loss", "shuffle", "own_draws", "joint_stop")
}
VARIANTS |= {
    f"{method}_{option}": Variant(
        replace(
            CORRECTED, name=f"corrected, {method}_{option}", adapters={method: {option: value}}
        ),
        method,
    )
    for method, options in PUBLISHED.adapters.items()
    for option, value in options.items()
}

#: β of Eq. 8 per VTAB-1k data set, the inverse of the published program's divisors.
PUBLISHED_BETA = {
    name: beta
    for beta, names in {
        1e-6: "cifar clevr_count diabetic_retinopathy eurosat patch_camelyon resisc45 smallnorb_azi smallnorb_ele",
        1e-8: "clevr_dist dsprites_loc oxford_flowers102 svhn",
        1e-10: "dsprites_ori",
        1e-12: "kitti oxford_iiit_pet sun397",
        1e-16: "caltech101 dmlab dtd",
    }.items()
    for name in names.split()
}
