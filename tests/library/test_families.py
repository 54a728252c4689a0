"""Every method on every family of encoders in the tables of docs/backbones.md, row by row."""

import re

import pytest
from families import CHECKS, OPTIONS, VARIANTS, Case, make, refused
from pages import table
from tiny import METHODS

from pvera import AdaptFormer, DoRA, LoRA, PVeRA, VeRA


def rows(heading: str) -> list[list[str]]:
    return [[cell.strip("`") for cell in row] for row in table("backbones", heading)[1:]]


WORKS = rows("What works")
EXAMPLES = [row[1] for row in WORKS]
#: Encoders of every kind of layer with every check; the other families are slow tests.
FAST = ["vit_base_patch14_dinov2", "beit_base_patch16_224", "DebertaV2Model(share_att_key=True)"]
#: Encoders with the checks that tell one family from another.
FEW = ["vit_base_patch16_siglip_224", "deit_base_distilled_patch16_224", "vit_base_patch16_rpn_224", "BertModel"]
FEW += ["Dinov2Model", "Dinov2Model(use_swiglu_ffn=True)"]
FEW_CHECKS = ["reference", "merging", "exchange"]


def titles(column: str) -> list[str]:
    """Return the keys of the methods that a row's last column admits."""
    without = column.removeprefix("all").removeprefix(" but ").split(", ")
    return [key for key, method in METHODS.items() if method.title not in without]


CELLS = [(example, key) for _, example, _, column in WORKS for key in titles(column)]


def marks(example: str, check: str) -> list:
    fast = example in FAST or example in FEW and check in FEW_CHECKS
    return [] if fast else [pytest.mark.slow]


@pytest.mark.parametrize(
    "example, key, check",
    [pytest.param(*cell, check, marks=marks(cell[0], check)) for cell in CELLS for check in CHECKS],
)
def test_method_on_family(example, key, check, tmp_path):
    arguments = (tmp_path,) if check == "exchange" else ()
    CHECKS[check](Case(example, key), *arguments)


#: Hyperparameters that change the equations.
METHODS_VARIED = [
    AdaptFormer(ratio=4, inside_layer_scale=True),
    DoRA(rank=3, norm="output", train_magnitude=False, scaled=False, transpose=False),
    DoRA(rank=3, targets="qk", transpose=False),
    DoRA(rank=3, targets="k", alpha=2.0),
    LoRA(rank=2, targets="qkv", alpha=3.0, same_draw=True),
    VeRA(rank=8, targets="qkv", alpha=3.0, init="uniform"),
    PVeRA(rank=8, targets="kv", alpha=3.0, kl="mean"),
    VeRA(rank=8, pair="shared"),
    PVeRA(rank=8, targets="qkv", pair="shared"),
    PVeRA(rank=8, sigma=0.5, init="uniform"),
]


@pytest.mark.parametrize("check", ["start", "reference", "merging"])
@pytest.mark.parametrize("method", METHODS_VARIED, ids=str)
def test_hyperparameters(method, check):
    CHECKS[check](Case("vit_base_patch14_dinov2", method))


@pytest.mark.parametrize("check", ["start", "reference", "merging"])
@pytest.mark.parametrize("key", ["pvera", "ia3", "adaptformer"])  # of projections, of the MLP, and beside it
@pytest.mark.parametrize("example", VARIANTS)
def test_variants_of_timms_vision_transformer(example, key, check):
    CHECKS[check](Case(example, key))


@pytest.mark.parametrize("example, key", [(e, k) for e in EXAMPLES for k in METHODS if (e, k) not in CELLS])
def test_method_that_does_not_fit_is_refused(example, key):
    assert METHODS[key].title in refused(make(example), method=METHODS[key])


# ---------------------------------------------------------------- the page


def test_page_is_well_formed():
    assert len(set(EXAMPLES)) == len(EXAMPLES) and not set(EXAMPLES) & {row[1] for row in rows("What is refused")}
    assert set(OPTIONS) <= set(EXAMPLES) and {*FAST, *FEW} <= set(EXAMPLES)
    known = "|".join(re.escape(method.title) for method in METHODS.values())
    assert all(re.fullmatch(rf"all( but ({known})(, ({known}))*)?", row[3]) for row in WORKS)
