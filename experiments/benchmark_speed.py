"""Time training, evaluation and sampling against their bounds, which a frozen backbone sets.

    python experiments/benchmark_speed.py                                 # ViT-S, half an hour on two cores
    python experiments/benchmark_speed.py --device cuda --backbones dinov2_s dinov2_b dinov2_l

Each part and its bound take turns in one process, after a warm-up; a ratio is the median over these pairs, with
quartiles. Weights and images are random numbers. Memory is measured in a separate process, from before its first step
to its peak (on a GPU, as torch allocates it).

    part      measures                                                     against
    step      a training step: forward, loss, KL term, backward, AdamW     forward and backward of the frozen backbone
    evaluate  a merged model                                               the frozen backbone
    sample    k draws, and their memory                                    k frozen passes; the memory of two draws
    probe     linear probing for 500 epochs                                one pass over the images
    memory    the memory of a training step                                forward and backward of the frozen backbone
    size      the file of a trained adapter with its head                  its numbers in fp32
    peft      peft's PVeRA on transformers' DINOv2 of the same size        the same bounds; then our step against it
    sweep     PVeRA's step as rank, tokens, depth and grid grow            forward and backward of the frozen backbone
    compile   a training step whose passes torch.compile has compiled      the same step as it is

The backward pass of the frozen backbone goes to its input; its weights have the precision that is measured. Writes
<output>/speed_<device>.json (a separate file with --threads) and .md; rows of other backbones and precisions stay.
"""

import math
import multiprocessing
import os
from contextlib import nullcontext

import torch
from benchmark_throughput import CLASSES, images
from options import Parser
from speed_bench import DRAWS, Bench
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from pvera import PVeRA, adapt, backbones, checkpoint, cost
from pvera.adapters import Linear
from pvera.files import require_writable
from pvera.hooks import cast_once
from pvera.study import speed, training
from pvera.study.protocol import protocol
from pvera.study.runs import environment
from pvera.study.script import run
from pvera.study.speed import FASTER, GRID, Measurement
from pvera.study.training import PRECISIONS, TrainingConfig

EPOCHS, TRAIN, VALIDATION = 500, 800, 200  # epochs and images of linear probing
COMPILING = 10  # steps, after which torch compiles no more: it gives up after eight versions of a function
SWEEP_DEPTH = 4  # layers in sweeps over other sizes than depth


def main() -> None:
    parser = Parser(__doc__)
    parser.several("--backbones", default=["dinov2_s"], metavar="B", help="backbones (dinov2_s)")
    parser.several("--precisions", choices=PRECISIONS, default=["float32", "bfloat16"], help="(both)")
    usual = [part for part in PARTS if part != "compile"]
    parser.several("--parts", choices=PARTS, default=usual, help="only these parts (all but compile)")
    every = list(speed.STEP)
    parser.several("--methods", choices=every, default=every, help="only these methods")
    parser.device("cpu")
    parser.number("--threads", help="CPU threads (all; demo and mini train with one)")
    parser.number("--repeats", default=5, help="timed pairs (%(default)s)")
    parser.output()
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    require_writable(options.output)
    for name in options.backbones:
        backbones.architecture(name)
    made_by = environment(options.device)
    path = speed.record_path(options.output, made_by["device"], options.threads)
    work = [(b, p, part) for b in options.backbones for p in options.precisions for part in options.parts]
    for backbone, precision, part in tqdm(work, "measuring", unit="part"):
        bench = Bench(backbone, precision, options.device, options.repeats, options.methods)
        speed.update(path, made_by, PARTS[part](bench))
    print(path.with_suffix(".md").read_text(encoding="utf-8"))


def step(bench: Bench) -> list[Measurement]:
    rows = []
    (pvera_,) = bench.methods("pvera")
    shape = cost.Shape.of(bench.vit)
    for grid in [*([method] for method in bench.methods()), [pvera_] * GRID]:
        (key,) = {method.key for method in grid}
        what, bound, factor = speed.title(grid), "frozen forward and backward", 1.0
        if key in ("bottleneck", "adaptformer"):
            factor += cost.adapter_multiply_adds(grid[0], shape) / cost.backbone_multiply_adds(shape)
            bound += ", and its own products"
        with bench.step(grid) as function:
            seconds, frozen_seconds, *ratios = bench.paired(function, bench.frozen_step(len(grid)))
        values = seconds, frozen_seconds * factor, *(ratio / factor for ratio in ratios)
        rows.append(bench.row("step", what, bound, values, speed.STEP[key]))
    if bench.precision == "bfloat16":
        full = Bench(bench.backbone, "float32", bench.device, bench.repeats, bench.keys)
        with bench.step([pvera_]) as function, full.step([pvera_]) as reference:
            values = bench.paired(function, reference)
        what, against = f"{speed.title([pvera_])}, bf16", "the same in fp32"
        rows.append(bench.row("step", what, against, values, 1 / FASTER))
        values = bench.paired(bench.frozen_step(), full.frozen_step())
        rows.append(bench.row("step", "frozen forward and backward, bf16", against, values))
    return rows


def compiled(bench: Bench) -> list[Measurement]:
    """Time compiled steps of LoRA and PVeRA; compiling, which takes a minute or more, is not timed."""
    plain, rows = Bench(bench.backbone, bench.precision, bench.device, bench.repeats, bench.keys), []
    for method in bench.methods("lora", "pvera"):
        with bench.step([method], compiled=True) as function, plain.step([method]) as reference:
            for _ in range(COMPILING):
                function()
            values = bench.paired(function, reference)
        rows.append(bench.row("compile", f"{speed.title([method])}, compiled", "the same step as it is", values))
    return rows


def evaluate(bench: Bench) -> list[Measurement]:
    def measured(model):
        @torch.inference_mode()
        def function():
            with bench.autocast():
                model(bench.images)

        with bench.under_autocast(cast_once):
            return bench.paired(function, bench.frozen_pass())

    rows, bound = [], "frozen forward"
    for method in bench.methods():
        model = adapt(bench.vit, method, CLASSES).eval()
        if model.members[0].layers[0].mergeable:
            values = measured(model.merge_())
            rows.append(bench.row("evaluate", f"{speed.title([method])}, merged", bound, values, speed.EVALUATE))
        model.unload()
    if bench.precision != "float32":  # the cost of the residual stream, which autocast leaves in fp32
        rows.append(bench.row("evaluate", f"{bound}, autocast", bound, measured(bench.vit)))
    return rows


def draws(bench: Bench) -> list[Measurement]:
    (method,) = bench.methods("pvera")
    rows = []
    for k in DRAWS:
        plain = bench.frozen_pass()
        with bench.draws(k) as function:
            values = bench.paired(function, lambda: [plain() for _ in range(k)], math.ceil(bench.repeats / 2))
        what = f"{speed.title([method])}, {k} draws"
        rows.append(bench.row("sample", what, f"{k} frozen passes", values, speed.SAMPLE))
    most, least = (peak(bench, "draws", k) for k in reversed(DRAWS))
    what, values = f"memory of {DRAWS[1]} draws", (most, least, most / least)
    rows.append(bench.row("sample", what, f"of {DRAWS[0]}", values, speed.SAMPLE_MEMORY))
    return rows


def probe(bench: Bench) -> list[Measurement]:
    """Time linear probing once, as it takes minutes."""
    frozen = backbones.load(bench.backbone, pretrained=False)
    frozen.model.to(bench.device)
    train, validation = (images(frozen, bench.device, count) for count in (TRAIN, VALIDATION))
    model = adapt(frozen.model, [Linear()], CLASSES)
    config = TrainingConfig(epochs=EPOCHS, patience=EPOCHS)

    def function():
        with bench.autocast():
            training.fit(model, train, validation, [(1e-3, 1e-3)], [0.0], config, protocol("corrected"), 0)

    def bound():
        for split in (train, validation):
            for part in torch.arange(len(split)).split(training.EVALUATION_BATCH):
                bench.frozen_pass(split[part])()

    values = bench.paired(function, bound, repeats=1, warm=False)
    what, against = f"linear probing, {EPOCHS} epochs", f"a pass over {TRAIN + VALIDATION} images"
    return [bench.row("probe", what, against, values, speed.PROBE)]


def memory(bench: Bench) -> list[Measurement]:
    bound = peak(bench, "frozen", None)
    rows = []
    for method in bench.methods():
        used = peak(bench, "step", method)
        rows.append(
            bench.row(
                "memory",
                speed.title([method]),
                "frozen forward and backward",
                (used, bound, used / bound),
                speed.MEMORY,
            )
        )
    return rows


def peak(bench: Bench, what: str, argument) -> float:
    """Return the bytes by which two calls raise the memory of a new process, at their peak."""
    # glibc then maps the memory of tensors and gives it back at once, so the peak is that of tensors.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**16))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (bench.backbone, bench.precision, bench.device, what, argument))


def _peak(backbone: str, precision: str, device: str, what: str, argument) -> float:
    bench = Bench(backbone, precision, device, 1, [])
    if what == "frozen":
        del bench.vit
        measured = nullcontext(bench.frozen_step())
    else:
        del bench.plain
        measured = bench.draws(argument) if what == "draws" else bench.step([argument])
    with measured as function:
        before = speed.memory(device, reset=True)
        function(), function()
        return speed.memory(device, reset=False) - before


def size(bench: Bench) -> list[Measurement]:
    rows = []
    for method in bench.methods():
        model = adapt(bench.vit, method, CLASSES)
        file, numbers = len(checkpoint.dumps(model)), 4 * sum(model.members[0].count().values())
        model.unload()
        rows.append(
            bench.row(
                "size",
                f"{speed.title([method])} with head",
                "its numbers in fp32",
                (file, numbers, file / numbers),
                speed.SIZE,
            )
        )
    return rows


def peft(bench: Bench) -> list[Measurement]:
    """Time PEFT's usual training: a head on the class token, cross entropy without a KL term."""
    import peft
    import transformers

    shape = cost.Shape.of(bench.vit)
    heads = bench.vit.blocks[0].attn.num_heads
    config = transformers.Dinov2Config(
        hidden_size=shape.dim,
        num_hidden_layers=shape.depth,
        num_attention_heads=heads,
        mlp_ratio=4,
        image_size=bench.images.shape[-1],
        patch_size=bench.vit.patch_embed.patch_size[0],
    )
    (method,) = bench.methods("pvera")
    encoder = transformers.Dinov2Model(config)
    names = [n.rsplit(".", 1)[1] for n, m in encoder.named_modules() if isinstance(m, nn.Linear)]
    targets = [n for n in ("q_proj", "v_proj", "query", "value") if n in names]
    adapter = peft.PveraConfig(r=method.rank, target_modules=targets)
    model = peft.get_peft_model(encoder, adapter).to(bench.device)
    head = nn.Linear(shape.dim, CLASSES).to(bench.device)
    trained = [p for p in [*model.parameters(), *head.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4, fused=True)

    def logits():
        with bench.autocast():
            return head(model(pixel_values=bench.images).last_hidden_state[:, 0])

    def step():
        F.cross_entropy(logits().float(), bench.labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    version = f"peft {peft.__version__}, {speed.title([method])}"
    model.train()
    rows = [
        bench.row("peft", f"{version}, step", "frozen forward and backward", bench.paired(step, bench.frozen_step()))
    ]
    with bench.step([method]) as ours:
        rows.append(
            bench.row(
                "peft",
                f"{speed.title([method])}, step",
                f"the step of peft {peft.__version__}",
                bench.paired(ours, step),
            )
        )
    model.eval()
    rows.append(
        bench.row(
            "peft",
            f"{version}, evaluation",
            "frozen forward",
            bench.paired(torch.inference_mode()(logits), bench.frozen_pass()),
        )
    )
    return rows


def sweep(bench: Bench) -> list[Measurement]:
    (method,) = bench.methods("pvera")
    side, patch = bench.images.shape[-1], bench.vit.patch_embed.patch_size[0]
    rank = method.rank
    axes = {
        "rank": [(r, {}, [PVeRA(rank=r)]) for r in (rank // 8, rank // 4, rank // 2, rank, 2 * rank)],
        "tokens": [
            ((s // patch) ** 2 + 1, {"img_size": s}, [method]) for s in (side // 2 // patch * patch, side, 2 * side)
        ],
        "depth": [(d, {"depth": d}, [method]) for d in (2, 4, 8)],
        "grid": [(g, {}, [method] * g) for g in (1, 2, 3, 4)],
    }
    rows = []
    for axis, points in axes.items():
        for value, options, grid in points:
            one = Bench(
                bench.backbone,
                bench.precision,
                bench.device,
                bench.repeats,
                bench.keys,
                **{"depth": SWEEP_DEPTH} | options,
            )
            with one.step(grid) as function:
                values = one.paired(function, one.frozen_step(len(grid)))
            rows.append(bench.row("sweep", f"{axis} {value}", "frozen forward and backward", values))
    return rows


PARTS = {"step": step, "evaluate": evaluate, "sample": draws, "probe": probe, "memory": memory, "size": size,
         "peft": peft, "sweep": sweep, "compile": compiled}  # fmt: skip


if __name__ == "__main__":
    run(main)
