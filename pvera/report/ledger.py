"""Where the paper and its published program differ, or the paper leaves open what matters, and what is done
here.

The one list behind PROTOCOL.md and analysis/protocol.ipynb; `effects` measures what can be switched.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A row of the ledger.

    paper, program: what each says or does; "–" where it says nothing. peft: what PEFT 0.21 does, in the part on
    PVeRA. here: what is done, `corrected` and `published` apart where they differ. where: a Python file and a
    dotted name in it, or a YAML file and its keys. switches: names in `protocol.one_at_a_time`; empty where
    nothing can be switched, for which `here` gives the reason.
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
        ADAPTER, "Second half of xA ⊙ d",
        "σ in Section 3.2; exp(σ²) multiplies ε in Algorithm 2",
        "log σ², so σ = exp(½ · half)",
        "log σ² in both: a linear map gives negative numbers, which no σ can be, and exp(σ²) is never below "
        "1",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.distribution"),
        peft="log σ²",
    ),
    Difference(
        ADAPTER, "Factor α",
        "once in Eq. 7; in Algorithm 2 twice in training and once in evaluation",
        "once, on the output",
        "once in both: twice in training alone would test another model than was trained",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.project"),
        peft="none",
    ),
    Difference(
        ADAPTER, "B in the output",
        "in Eq. 7; missing in Algorithm 2; of shape d × r in Section 3.2, r × d for LoRA",
        "there, r × d",
        "there, r × d, in both: only so do the shapes fit",
        ("pvera/adapters/vera.py", "SharedMatrices"),
        peft="there",
    ),
    Difference(
        ADAPTER, "Merged weight",
        "W + α A_μ B ⊙ b (Eq. 10), but x multiplies Wᵀ (Eq. 1)",
        "–",
        "W + α (A_μ diag(d_μ) B diag(b))ᵀ in both: only this gives Eq. 7 with z = μ",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.merge_projection"),
        peft="the same without α",
    ),
    Difference(
        ADAPTER, "Start of A and B, of VeRA too",
        "N(0, σ²) with a precomputed σ that is not given",
        "Kaiming uniform of the d × 2r (VeRA: d × r) and r × d tensors; one pair for q, another for v",
        "`corrected`: normal; `published`: uniform; both of the same variance, two over the number of "
        "columns",
        ("pvera/adapters/vera.py", "draw_matrices"),
        ("vera_init", "pvera_init"),
        peft="Kaiming uniform of these shapes, one pair for all targets",
    ),
    Difference(
        ADAPTER, "Start of d",
        "ones(2r) · uniform(10⁻⁵, 1) in Algorithm 2: one number or 2r?",
        "one number per vector, repeated",
        "one number per vector in both, as the ones suggest",
        ("pvera/adapters/vera.py", "draw_scale"),
        peft="0.1",
    ),
    Difference(
        ADAPTER, "KL term",
        "half the sum over q and v of the divergence (Eq. 9), which sums over the latent; over tokens and "
        "images: –",
        "mean over latent, tokens and images, mean of q and v",
        "`corrected`: sum over the latent, half the sum over positions; `published`: mean over both, so r "
        "times smaller on two positions; mean over tokens and images in both",
        ("pvera/adapters/pvera.py", "PVeRAAdapter.divergence"),
        ("pvera_kl",),
        peft="none",
    ),
    Difference(
        ADAPTER, "β",
        "by a grid search per data set on the validation loss (Section 3.2)",
        "a constant per data set by which the KL term is divided, 10⁶ to 10¹⁶, so β = 10⁻⁶ to 10⁻¹⁶; no "
        "search. On a mean over the latent, such a β leaves the prior practically without effect",
        "the published constants on VTAB-1k, in both; a search elsewhere: it is a hyperparameter, and no "
        "value is printed that could be taken instead. The KL term of `corrected` sums over the latent, so "
        "on VTAB-1k the same β weighs it r = 256 times as much: 2.6 · 10⁻⁴ on the mean, at most",
        ("pvera/study/protocol.py", "PUBLISHED_BETA"),
        peft="no KL term",
    ),
    Difference(
        ADAPTER, "Inference",
        "the mean, or draws (Section 3.3); Algorithm 2 draws in training only",
        "the mean only",
        "the mean when testing, draws on request, in both",
        ("pvera/uncertainty.py", "sample"),
        peft="the mean, or draws by a flag",
    ),
    Difference(
        OTHERS, "LoRA: start of A",
        "–",
        "N(0, 1/r), the same numbers in every layer, as the seed is set anew",
        "`corrected`: numbers of its own for each layer; `published`: the same",
        ("pvera/adapters/lora.py", "low_rank_pair"),
        ("lora_same_draw",),
    ),
    Difference(
        OTHERS, "DoRA: norm",
        "magnitude and direction, after Liu et al.",
        "over the output dimension, one magnitude per input column; DoRA's authors and PEFT take one per "
        "output row",
        "`corrected`: per output row; `published`: per input column",
        ("pvera/adapters/dora.py", "DoRAAdapter"),
        ("dora_norm",),
    ),
    Difference(
        OTHERS, "DoRA: magnitude",
        "“learns these components”",
        "stays at its initial value",
        "`corrected`: trained; `published`: frozen",
        ("pvera/adapters/dora.py", "DoRAAdapter"),
        ("dora_train_magnitude",),
    ),
    Difference(
        OTHERS, "DoRA: scale of the update",
        "α = 16",
        "the update is added without α/r",
        "`corrected`: α/r; `published`: none; the same where r = α, as for the DoRA of `mini`",
        ("pvera/adapters/dora.py", "DoRAAdapter.scale"),
        ("dora_scaled",),
    ),
    Difference(
        OTHERS, "DoRA: orientation of the update",
        "“based on LoRA”, so x A B, which is (A B)ᵀ on W (d_out × d_in)",
        "A B as it stands is added to W: the random A is on the output side, the zero B on the input side",
        "`corrected`: (A B)ᵀ; `published`: A B",
        ("pvera/adapters/dora.py", "DoRAAdapter.factors"),
        ("dora_transpose",),
    ),
    Difference(
        OTHERS, "DoRA: keys",
        "–",
        "written as magnitude × direction as well, without update",
        "left alone in both: with a magnitude that is not trained this is W",
        ("pvera/adapters/dora.py", "DoRA.targets"),
    ),
    Difference(
        OTHERS, "Bottleneck: places",
        "“at two locations in each layer after each MLP”",
        "after the attention and after the MLP",
        "after both, in both: a layer has one MLP, and Houlsby et al. name these two",
        ("pvera/adapters/bottleneck.py", "BottleneckAdapter"),
    ),
    Difference(
        OTHERS, "Bottleneck: start",
        "–",
        "both linear layers as PyTorch starts them, so the adapter starts by disturbing the features",
        "`corrected`: the up-projection starts at zero (Houlsby et al. ask for a near-identity); "
        "`published`: default",
        ("pvera/adapters/bottleneck.py", "DownUp"),
        ("bottleneck_near_identity",),
    ),
    Difference(
        OTHERS, "AdaptFormer: start",
        "–",
        "both linear layers as PyTorch starts them",
        "`corrected`: the up-projection starts at zero, as in its own paper; `published`: default",
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
        "there, fed with the input of that LayerNorm; the sum of MLP and branch goes through the layer scale",
        "`corrected`: past the layer scale, on the residual stream, where its own paper's backbones, which "
        "have none, add it; `published`: before it",
        ("pvera/adapters/adaptformer.py", "AdaptFormer.inside_layer_scale"),
        ("adaptformer_inside_layer_scale",),
    ),
    Difference(
        OTHERS, "Linear probing, (IA)³: learning rate",
        "a grid of three (Sections 4.1 and 4.2, Table 4)",
        "10⁻⁴, no grid",
        "the grid in both: Table 4 prints its shares, so somebody searched it. Of linear probing it is the "
        "head's rate, else the adapters'; profiles set it",
        ("experiments/profiles/paper.yaml", "methods.ia3.grid"),
    ),
    Difference(
        TRAINING, "Loss",
        "cross entropy; the head is “a linear layer and a softmax”",
        "the softmax's output is given to a cross entropy that takes a softmax again",
        "`corrected`: one softmax; `published`: two. With two, no loss falls below log(e + C − 1) − 1 for C "
        "classes",
        ("pvera/study/training.py", "classification_loss"),
        ("softmax_in_loss",),
    ),
    Difference(
        TRAINING, "Order of the training images",
        "–",
        "the same in every epoch",
        "`corrected`: shuffled; `published`: not",
        ("pvera/study/training.py", "fit"),
        ("shuffle",),
    ),
    Difference(
        TRAINING, "Random numbers of a grid's members",
        "–",
        "each member has its own, A and B among them",
        "`corrected`: all start alike, so that only the searched value differs; `published`: own",
        ("pvera/study/runs.py", "execute"),
        ("own_draws",),
    ),
    Difference(
        TRAINING, "End of training",
        "early stopping with a patience of 20 epochs",
        "when every member of the grid has gone 20 epochs without improving; until then all train on and may "
        "still improve. It keeps tensors when the grid's lowest loss improves by more than 0.1 %, and tests "
        "the member that has it then",
        "`corrected`: each member ends after 20 epochs of its own, which spares computation, and the one with "
        "the lowest loss is tested; `published`: as the program",
        ("pvera/study/training.py", "stop_together"),
        ("joint_stop",),
    ),
    Difference(
        REST, "Pictures of VTAB-1k",
        "VTAB-1k",
        "points to an archive of lossy JPEG, on which others report lower accuracies",
        "any copy, in both, but each result names its own, and two never share a table",
        ("pvera/data/vtab.py", "copy_name"),
    ),
    Difference(
        REST, "Algorithm 1",
        "returns the deviations of images with accuracy > 0.5 as those of incorrect ones",
        "–",
        "the right way round in both: the text and the figures mean it so",
        ("pvera/uncertainty.py", "estimate"),
    ),
    Difference(
        REST, "Attention",
        "softmax(q kᵀ / √d) of all d features (Eq. 2)",
        "DINOv2's heads, each scaled by the root of its own width",
        "DINOv2's in both: the backbone is frozen as it was trained",
        ("pvera/backbones.py", "NAMES"),
    ),
    Difference(
        REST, "FLOPS",
        "“floating-point operations per second”",
        "multiply-adds of one image, as fvcore counts them",
        "multiply-adds in both, in GMAC: only they give the paper's 15.7 % and 10.5 %",
        ("pvera/cost.py", "multiply_adds"),
    ),
)  # fmt: skip
