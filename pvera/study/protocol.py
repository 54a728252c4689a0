"""The two protocols: what the paper describes, and what its official code does.

`CORRECTED` follows the paper, or what is right where the paper leaves it open; `OFFICIAL_CODE`
follows the official code. Each field is one difference, and can be switched alone.
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Protocol:
    """One field per difference.

    Its fields are part of `config_hash`: to rename or add one changes every result.
    """

    #: As records and tables show it: "corrected", "published", or "corrected, shuffle". `PROTOCOLS`
    #: has keys of its own, which profiles use.
    name: str
    #: The cross entropy is given softmax outputs instead of logits, so it takes a softmax twice.
    softmax_in_loss: bool
    #: The training set is shuffled in every epoch.
    shuffle: bool
    #: Each grid member has a seed of its own; otherwise all start from the same random numbers.
    own_draws: bool
    #: The members of a grid end together; see `stopping.JointStop`.
    joint_stop: bool
    #: By method, the hyperparameters that replace the profile's. (Its name is hashed, so it stays.)
    adapters: dict[str, dict] = field(default_factory=dict)


CORRECTED = Protocol(
    "corrected", softmax_in_loss=False, shuffle=True, own_draws=False, joint_stop=False
)

#: Profiles, records and the option --protocol name it "published".
OFFICIAL_CODE = Protocol(
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

#: Names of the corrected protocol, with which the others are compared: measured with the methods'
#: defaults, and on full grids for what concerns a grid's members together.
REFERENCE = "corrected"
GRID_REFERENCE = "corrected_grid"


@dataclass(frozen=True)
class ProtocolEntry:
    """One protocol whose effect is measured, and on what."""

    protocol: Protocol
    #: The name of the corrected protocol that it is compared with. What concerns a grid's members
    #: together is measured on full grids instead of the methods' defaults: `GRID_REFERENCE`.
    reference: str = REFERENCE
    #: The only method that it concerns; None for all.
    only_method: str | None = None


def _protocols() -> dict[str, ProtocolEntry]:
    """Return both protocols, and the corrected one with each difference of the other alone."""
    entries = {
        REFERENCE: ProtocolEntry(CORRECTED),
        GRID_REFERENCE: ProtocolEntry(CORRECTED, GRID_REFERENCE),
        OFFICIAL_CODE.name: ProtocolEntry(OFFICIAL_CODE),
    }
    # Own draws need no grid: a member that trains alone has another seed too.
    for name in ("softmax_in_loss", "shuffle", "own_draws", "joint_stop"):
        difference = {name: getattr(OFFICIAL_CODE, name)}
        protocol = replace(CORRECTED, name=f"corrected, {name}", **difference)
        reference = GRID_REFERENCE if name == "joint_stop" else REFERENCE
        entries[name] = ProtocolEntry(protocol, reference)
    for method, options in OFFICIAL_CODE.adapters.items():
        for option, value in options.items():
            name = f"{method}_{option}"
            adapters = {method: {option: value}}
            protocol = replace(CORRECTED, name=f"corrected, {name}", adapters=adapters)
            entries[name] = ProtocolEntry(protocol, only_method=method)
    return entries


#: The protocols of experiments, by the name that profiles use.
PROTOCOLS = _protocols()

#: Data sets of VTAB-1k by their β of Eq. 8, the inverse of the official code's divisors.
_DATASETS_BY_BETA = {
    1e-6: (
        "cifar clevr_count diabetic_retinopathy eurosat patch_camelyon resisc45 smallnorb_azi "
        "smallnorb_ele"
    ),
    1e-8: "clevr_dist dsprites_loc oxford_flowers102 svhn",
    1e-10: "dsprites_ori",
    1e-12: "kitti oxford_iiit_pet sun397",
    1e-16: "caltech101 dmlab dtd",
}
OFFICIAL_BETA = {name: beta for beta, names in _DATASETS_BY_BETA.items() for name in names.split()}
