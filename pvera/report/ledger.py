"""The protocol ledger: each point on which the paper and its published program differ, or that the paper leaves open.

PROTOCOL.md and analysis/protocol.ipynb show these rows; `effects` measures the points that have a switch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A row of the ledger.

    part: the section of PROTOCOL.md. point: the row's title. paper, program: what each states or does; "–" for
    nothing. here: what this repository does, under `corrected` and `published` where they differ; without a switch it
    also gives the reason. where: a Python file and a dotted name in it, or a YAML file and its keys. switches: names in
    `protocol.one_at_a_time`. peft: what PEFT 0.21 does, in the part on PVeRA alone.
    """

    part: str
    point: str
    paper: str
    program: str
    here: str
    where: tuple[str, str]
    switches: tuple[str, ...] = ()
    peft: str = ""


ADAPTER, OTHERS, TRAINING, REST = "PVeRA", "The other methods", "Training", "Data, inference and measures"

LEDGER = (
    Difference(
        ADAPTER, "Meaning of the second half of x A ⊙ d",
        "σ in Section 3.2; Algorithm 2 multiplies ε by exp(σ²)",
        "log σ²",
        "log σ² in both: a linear map gives negative numbers, which σ cannot be, and exp(σ²) is never below 1",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.distribution"),
        peft="log σ²",
    ),
    Difference(
        ADAPTER, "Factor α",
        "once in Eq. 7; in Algorithm 2 twice in training and once in evaluation",
        "once, on the output",
        "once in both: twice in training alone would test a model other than the trained one",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.project"),
        peft="none",
    ),
    Difference(
        ADAPTER, "B in the output",
        "present in Eq. 7, missing in Algorithm 2; of shape d × r in Section 3.2, r × d in LoRA",
        "present, r × d",
        "present, r × d, in both: no other shape fits",
        ("pvera/adapters/vera.py", "SharedMatrices"),
        peft="present",
    ),
    Difference(
        ADAPTER, "Merged weight",
        "W + α A_μ B ⊙ b (Eq. 10), although x multiplies Wᵀ (Eq. 1)",
        "–",
        "W + α (A_μ diag(d_μ) B diag(b))ᵀ in both: this alone equals Eq. 7 with z = μ",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.merge_projection"),
        peft="the same without α",
    ),
    Difference(
        ADAPTER, "Initial A and B, also of VeRA",
        "N(0, σ²); σ is precomputed, its value is not given",
        "Kaiming uniform for tensors d × 2r (VeRA: d × r) and r × d; one pair for q, another for v",
        "`corrected`: normal. `published`: uniform. Both have the variance 2 / columns, so that PVeRA's A, of 2r "
        "columns, is smaller by √2 than VeRA's",
        ("pvera/adapters/vera.py", "draw_matrices"),
        ("vera_init", "pvera_init"),
        peft="Kaiming uniform of these shapes, one pair for all targets",
    ),
    Difference(
        ADAPTER, "Initial d",
        "ones(2r) · uniform(10⁻⁵, 1) in Algorithm 2: one random number or 2r of them?",
        "one random number per vector, repeated",
        "one random number per vector in both, as the factor ones(2r) suggests",
        ("pvera/adapters/vera.py", "draw_scale"),
        peft="0.1",
    ),
    Difference(
        ADAPTER, "KL term",
        "half the sum over q and v of the divergence, which sums over the latent (Eq. 9); on tokens and images: –",
        "mean over latent, tokens and images; mean of q and v",
        "`corrected`: sum over the latent, half the sum over the projections. `published`: mean over both, which is r "
        "times smaller on two projections. Both take the mean over tokens and images",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.divergence"),
        ("pvera_kl",),
        peft="none",
    ),
    Difference(
        ADAPTER, "β",
        "from a grid search per data set on the validation loss (Section 3.2); no value is printed",
        "no search: the KL term is divided by a constant per data set, 10⁶ to 10¹⁶, so β is 10⁻⁶ to 10⁻¹⁶. On a mean "
        "over the latent, such a β leaves the prior practically without effect",
        "in both, the published constants on VTAB-1k and a grid search elsewhere. The KL term of `corrected` sums over "
        "the latent, so the same β weighs r = 256 times as much: at most 2.6 · 10⁻⁴ on the mean",
        ("pvera/study/protocol.py", "PUBLISHED_BETA"),
        peft="no KL term",
    ),
    Difference(
        ADAPTER, "Inference",
        "the mean, or draws (Section 3.3); Algorithm 2 draws in training alone",
        "the mean",
        "the mean in tests and draws on request, in both: the paper describes the two",
        ("pvera/uncertainty.py", "sample"),
        peft="the mean, or draws by a flag",
    ),
    Difference(
        OTHERS, "LoRA: initial A",
        "–",
        "N(0, 1/r), the same numbers in every layer, because the seed is set anew in each",
        "`corrected`: each layer has numbers of its own. `published`: every layer has the same",
        ("pvera/adapters/lora.py", "low_rank_pair"),
        ("lora_same_draw",),
    ),
    Difference(
        OTHERS, "DoRA: norm",
        "magnitude and direction, after Liu et al.",
        "one magnitude per input column (norm over the output dimension); DoRA's authors and PEFT have one per output "
        "row",
        "`corrected`: one per output row. `published`: one per input column",
        ("pvera/adapters/dora.py", "DoRAAdapter"),
        ("dora_norm",),
    ),
    Difference(
        OTHERS, "DoRA: magnitude",
        "“learns these components”",
        "frozen at its initial value",
        "`corrected`: trained. `published`: frozen",
        ("pvera/adapters/dora.py", "DoRAAdapter"),
        ("dora_train_magnitude",),
    ),
    Difference(
        OTHERS, "DoRA: scale of the update",
        "α = 16",
        "none: the update is added without α/r",
        "`corrected`: α/r. `published`: none. They agree where r = α, as for the DoRA of `mini`",
        ("pvera/adapters/dora.py", "DoRAAdapter.scale"),
        ("dora_scaled",),
    ),
    Difference(
        OTHERS, "DoRA: orientation of the update",
        "“based on LoRA”: x A B, which adds (A B)ᵀ to W (d_out × d_in)",
        "A B is added to W untransposed: the random A is on the output side, the zero B on the input side",
        "`corrected`: (A B)ᵀ. `published`: A B",
        ("pvera/adapters/dora.py", "DoRAAdapter.factors"),
        ("dora_transpose",),
    ),
    Difference(
        OTHERS, "DoRA: keys",
        "–",
        "written as magnitude × direction as well, without an update",
        "left alone in both: with a frozen magnitude this is W",
        ("pvera/adapters/dora.py", "DoRA.targets"),
    ),
    Difference(
        OTHERS, "Bottleneck: places",
        "“at two locations in each layer after each MLP”",
        "after the attention and after the MLP",
        "after the attention and after the MLP in both: a layer has one MLP, and Houlsby et al. name these two places",
        ("pvera/adapters/bottleneck.py", "BottleneckAdapter"),
    ),
    Difference(
        OTHERS, "Bottleneck: initial weights",
        "–",
        "PyTorch's default for both linear layers, so that the adapter disturbs the features at first",
        "`corrected`: the up-projection is zero, as Houlsby et al. ask for a near-identity. `published`: default",
        ("pvera/adapters/bottleneck.py", "DownUp"),
        ("bottleneck_near_identity",),
    ),
    Difference(
        OTHERS, "AdaptFormer: initial weights",
        "–",
        "PyTorch's default for both linear layers",
        "`corrected`: the up-projection is zero, as in AdaptFormer's paper. `published`: default",
        ("pvera/adapters/bottleneck.py", "DownUp"),
        ("adaptformer_near_identity",),
    ),
    Difference(
        OTHERS, "AdaptFormer: scale",
        "–",
        "a learned scalar that starts at one",
        "the same in both: the paper says nothing else",
        ("pvera/adapters/adaptformer.py", "ParallelBranch"),
    ),
    Difference(
        OTHERS, "AdaptFormer: place",
        "“in parallel to the LayerNorm and the MLP”; on DINOv2's layer scale: –",
        "parallel to both, fed with the LayerNorm's input; the sum of MLP and branch goes through the layer scale",
        "`corrected`: the branch is added after the layer scale, to the residual stream, as AdaptFormer's paper has no "
        "layer scale. `published`: it is added before the layer scale",
        ("pvera/adapters/adaptformer.py", "AdaptFormer.inside_layer_scale"),
        ("adaptformer_inside_layer_scale",),
    ),
    Difference(
        OTHERS, "Linear probing and (IA)³: learning rate",
        "a grid of three (Sections 4.1 and 4.2, Table 4)",
        "10⁻⁴, no grid",
        "the grid in both, because Table 4 prints its shares. It sets the head's rate in linear probing and the "
        "adapters' rate in (IA)³; profiles hold it",
        ("experiments/profiles/paper.yaml", "methods.ia3.grid"),
    ),
    Difference(
        TRAINING, "Loss",
        "cross entropy; the head is “a linear layer and a softmax”",
        "a cross entropy that takes a softmax of the softmax's output",
        "`corrected`: one softmax. `published`: two; then no loss falls below log(e + C − 1) − 1 for C classes",
        ("pvera/study/training.py", "classification_loss"),
        ("softmax_in_loss",),
    ),
    Difference(
        TRAINING, "Order of the training images",
        "–",
        "the same in every epoch",
        "`corrected`: shuffled. `published`: not shuffled",
        ("pvera/study/training.py", "fit"),
        ("shuffle",),
    ),
    Difference(
        TRAINING, "Random numbers of a grid's members",
        "–",
        "each member has its own, A and B among them",
        "`corrected`: all members share them, so that they differ in the searched value alone. `published`: each "
        "member has its own",
        ("pvera/study/runs.py", "execute"),
        ("own_draws",),
    ),
    Difference(
        TRAINING, "End of training",
        "early stopping with a patience of 20 epochs",
        "when every member of the grid has gone 20 epochs without improving; until then all train on and may still "
        "improve. The program keeps weights when the grid's lowest loss falls by more than 0.1 %, and tests the member "
        "with that loss",
        "`corrected`: each member ends after 20 epochs of its own without improving, which saves computation; the one "
        "with the lowest loss is tested. `published`: as the program",
        ("pvera/study/training.py", "stop_together"),
        ("joint_stop",),
    ),
    Difference(
        REST, "Images of VTAB-1k",
        "VTAB-1k",
        "points to an archive of lossy JPEG, on which others report lower accuracies",
        "any copy in both; each result names its copy, and a table holds results of one copy",
        ("pvera/data/vtab.py", "copy_name"),
    ),
    Difference(
        REST, "Algorithm 1",
        "returns the deviations of images with accuracy > 0.5 as those of incorrect ones",
        "–",
        "accuracy > 0.5 is correct in both, as in the text and the figures",
        ("pvera/uncertainty.py", "estimate"),
    ),
    Difference(
        REST, "Attention",
        "softmax(q kᵀ / √d) over all d features (Eq. 2)",
        "DINOv2's heads, each scaled by the root of its own width",
        "DINOv2's heads in both: the backbone stays as it was trained",
        ("pvera/backbones.py", "NAMES"),
    ),
    Difference(
        REST, "FLOPS",
        "“floating-point operations per second”",
        "multiply-adds of one image, as fvcore counts them",
        "multiply-adds (GMAC) in both: they alone give the paper's 15.7 % and 10.5 %",
        ("pvera/cost.py", "multiply_adds"),
    ),
)  # fmt: skip
