"""Time training, evaluation and sampling against the bounds that a frozen backbone sets, and training beside PEFT.

    python experiments/benchmark_speed.py                                 # ViT-S, ten minutes on two cores
    python experiments/benchmark_speed.py --device cuda --backbones dinov2_s dinov2_b dinov2_l
    python experiments/benchmark_speed.py --parts peft memory             # three minutes; needs the extra `test`

Each part and its bound take turns, after a warm-up; a ratio is the median over these pairs. Weights are random.

    step, peft         a training step (in PEFT too)      against forward and backward of the frozen backbone
    evaluate, sample   a merged model, k draws            against one frozen pass, k passes
    memory             what a step saves for its backward pass, against what the frozen backbone saves

peft and memory take transformers' DINOv2 with the sizes of ViT-S and four layers, whatever --backbones says. Writes
<output>/speed_<device>.csv, a row per measurement; rows of other parts, backbones and precisions stay.
OMP_NUM_THREADS sets the threads of a CPU; another --output keeps their times apart.
"""

import copy
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from options import RESULTS, Parser, read_profile
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from pvera import IA3, DoRA, LoRA, PVeRA, VeRA, adapt, backbones, cost, export_peft, sample
from pvera.adapters import Method
from pvera.errors import import_extra, run_script
from pvera.features import encode_images, input_shape
from pvera.files import require_writable
from pvera.hooks import training_attention
from pvera.report.table import update_csv
from pvera.study import training
from pvera.study.profiles import PRECISIONS
from pvera.study.protocol import CORRECTED
from pvera.study.runs import candidate, default, environment

CLASSES, BATCH, DRAWS = 100, 16, (2, 8)
MEMBERS = 3  # of the timed grid of PVeRA
PARALLEL = ("bottleneck", "adaptformer")  # they cannot be merged
BETA = 1e-6
#: Columns that name a measurement. value, bound_value: medians of seconds, or of bytes in the part memory. ratio: the
#: median over pairs of part and bound, with its quartiles.
NAME = ["part", "backbone", "precision", "what"]
COLUMNS = [
    "device",
    "threads",
    "torch",
    "timm",
    *NAME,
    "bound",
    "value",
    "bound_value",
    "ratio",
    "low",
    "high",
]
BESIDE_PEFT = "dinov2_s_4"  # transformers' DINOv2 of SIZES
SIZES = {
    "hidden_size": 384,
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "image_size": 224,
    "patch_size": 14,
}


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--backbones", nargs="+", default=["dinov2_s"], metavar="B", help="backbones (dinov2_s)"
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=PRECISIONS,
        default=["float32", "bfloat16"],
        help="(both)",
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS)[:3], help="(the first three)"
    )
    parser.device("cpu")
    parser.count("--repeats", default=5, help="timed pairs (%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "performance", help="(%(default)s)"
    )
    options = parser.parse_args()
    require_writable(options.output)
    made_by = environment(options.device)
    machine = [made_by[column] for column in COLUMNS[:4]]
    device = re.sub(r"\W+", "_", made_by["device"].lower()).strip("_")
    path = options.output / f"speed_{device}.csv"
    work = []
    for part, precision in product(options.parts, options.precisions):
        if PARTS[part] is beside_peft:
            import_extra("peft", "test")  # fail before the other parts
        work += [
            (b, precision, part)
            for b in ([BESIDE_PEFT] if PARTS[part] is beside_peft else options.backbones)
        ]
    for backbone, precision, part in tqdm(work, "measuring", unit="part"):
        for row in measure(Bench(backbone, precision, options.device), part, options.repeats):
            rows = pd.DataFrame([(*machine, part, backbone, precision, *row)], columns=COLUMNS)
            update_csv(path, rows, NAME, float_format="%.6g")
    print(pd.read_csv(path)[[*NAME, "ratio", "low", "high"]].to_string(index=False))


class Bench:
    """A frozen backbone with random weights in one precision, and models on top of it."""

    def __init__(self, backbone: str, precision: str, device: str):
        self.precision, self.device = precision, device
        with backbones.seeded(0):
            if backbone == BESIDE_PEFT:
                transformers = import_extra("transformers", "language")
                vit = transformers.Dinov2Model(transformers.Dinov2Config(**SIZES))
            else:
                vit = backbones.load(backbone, pretrained=False).model
        self.vit = vit.eval().requires_grad_(False).to(device)
        self.plain = copy.deepcopy(self.vit).to(
            getattr(torch, precision)
        )  # cast weights: the fastest bound
        source = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH, *input_shape(vit), generator=source).to(device)
        self.labels = torch.randint(CLASSES, (BATCH,), generator=source).to(device)
        profile = read_profile("synthetic" if backbone == "tiny" else "paper")
        #: The adapters with the profile's default hyperparameters, by key.
        self.methods = {
            key: candidate(profile, key, default(profile, key), CORRECTED).method
            for key in profile.methods
            if key != "linear"
        }

    def seconds(self, function: Callable) -> float:
        """Return the seconds of a call, until the device has finished."""
        wait = torch.cuda.synchronize if self.device.startswith("cuda") else lambda: None
        wait()
        start = time.perf_counter()
        function()
        wait()
        return time.perf_counter() - start

    def saved(self, function: Callable) -> int:
        """Return the bytes that a call saves for its backward pass. What two calls save both are the model's own
        tensors, which do not count."""
        calls: list[dict[int, torch.UntypedStorage]] = [
            {},
            {},
        ]  # by address; held, so that no other takes its place
        for storages in calls:

            def keep(tensor: torch.Tensor) -> torch.Tensor:
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                function()
        return sum(
            storage.nbytes() for address, storage in calls[1].items() if address not in calls[0]
        )

    def frozen(self, passes: int = 1, members: int = 1, backward: bool = False) -> Callable:
        """Return forward passes of the frozen backbone, with the backward pass to its input on request."""
        images = (
            self.images.repeat(members, 1, 1, 1)
            .to(getattr(torch, self.precision))
            .requires_grad_(backward)
        )

        def function():
            with training.autocast(self.device, "float32"), torch.inference_mode(not backward):
                for _ in range(passes):
                    outputs = encode_images(self.plain, images)
                if backward:
                    outputs.float().sum().backward()

        return function

    @contextmanager
    def model(self, methods: Method | list[Method]) -> Iterator:
        """Yield the adapted backbone, to be called in the precision that is measured."""
        with (
            adapt(self.vit, methods, CLASSES, 0) as model,
            training.autocast(self.device, self.precision),
        ):
            yield model


def measure(bench: Bench, part: str, repeats: int) -> Iterator[tuple]:
    """Measure a part and its bound in turn. Yield the last `COLUMNS`, from what is measured on."""
    amount, repeats = (bench.saved, 1) if part == "memory" else (bench.seconds, repeats)
    for what, bound, function, frozen, factor in PARTS[part](bench):
        frozen(), function()
        seconds, of_bound = np.transpose(
            [(amount(function), factor * amount(frozen)) for _ in range(repeats)]
        )
        ratio, low, high = np.quantile(seconds / of_bound, [0.5, 0.25, 0.75]).tolist()
        yield what, bound, float(np.median(seconds)), float(np.median(of_bound)), ratio, low, high


def title(method: Method) -> str:
    """Name the row of a method."""
    size = {"r": getattr(method, "rank", None), "ratio": getattr(method, "ratio", None)}
    return method.title + "".join(f", {name} = {value}" for name, value in size.items() if value)


# The parts: each yields what is measured, its bound, functions for both, and a factor of the bound


def step(bench: Bench) -> Iterator[tuple]:
    """A step of `training.fit`."""
    methods = bench.methods
    for grid in (*([method] for method in methods.values()), [methods["pvera"]] * MEMBERS):
        what = title(grid[0]) + (f", grid of {len(grid)}" if len(grid) > 1 else "")
        bound, factor = "frozen forward and backward", 1.0
        if grid[0].key in PARALLEL:
            counted = cost.count(bench.vit, grid[0])
            factor = counted.inference / counted.backbone_multiply_adds
            bound += ", and its own products"
        with bench.model(grid) as model, training_attention(bench.vit):
            model.train().last_mlp_on_class_token = True
            optimizers = [
                training.make_optimizer(member, 1e-4, 1e-4, 1e-4) for member in model.members
            ]
            of_step = (
                model,
                model,
                bench.images,
                bench.labels,
                [BETA] * len(grid),
                optimizers,
                CORRECTED,
            )
            frozen = bench.frozen(1, len(grid), backward=True)
            yield what, bound, partial(training.step, *of_step), frozen, factor


def evaluate(bench: Bench) -> Iterator[tuple]:
    for method in bench.methods.values():
        if method.key not in PARALLEL:
            with bench.model(method) as model, torch.inference_mode():
                function = partial(model.eval().merge_(), bench.images)
                yield f"{title(method)}, merged", "frozen forward", function, bench.frozen(), 1.0


def draws(bench: Bench) -> Iterator[tuple]:
    method = bench.methods["pvera"]
    for k in DRAWS:
        with bench.model(method) as model:
            model.eval().last_mlp_on_class_token = True
            function = partial(sample, model, bench.images, k)
            yield (
                f"{title(method)}, {k} draws",
                f"{k} frozen passes",
                function,
                bench.frozen(k),
                1.0,
            )


def beside_peft(bench: Bench) -> Iterator[tuple]:
    """A step of a plain training loop, with and without the KL term, which PEFT lacks."""
    peft, plain, frozen = (
        import_extra("peft", "test"),
        copy.deepcopy(bench.vit),
        bench.frozen(backward=True),
    )
    for method in (
        LoRA(128),
        VeRA(256, pair="shared"),
        PVeRA(256, pair="shared"),
        DoRA(128),
        IA3(),
    ):
        with bench.model(method) as model, tempfile.TemporaryDirectory() as folder:
            export_peft(model, folder)
            theirs = peft.PeftModel.from_pretrained(
                copy.deepcopy(plain), folder, is_trainable=True
            ).train()
            theirs.head = copy.deepcopy(model.members[0].head)

            def loss_here(beta: float) -> torch.Tensor:
                model.beta = beta
                return model(bench.images, labels=bench.labels).loss

            def loss_there() -> torch.Tensor:
                return cross_entropy(
                    theirs.head(theirs(bench.images).last_hidden_state[:, 0]), bench.labels
                )

            steps = {f", peft {peft.__version__}": training_step(theirs, loss_there)}
            steps[""] = training_step(model.train(), partial(loss_here, 0.0))
            if isinstance(method, PVeRA):
                steps[", KL term"] = training_step(model, partial(loss_here, BETA))
            for name, function in steps.items():
                yield title(method) + name, "frozen forward and backward", function, frozen, 1.0


def training_step(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Return a step of AdamW down the `loss` of `model`."""
    optimizer = torch.optim.AdamW(
        (p for p in model.parameters() if p.requires_grad), 1e-4, fused=True
    )

    def function() -> float:
        value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.item()

    return function


PARTS = {
    "step": step,
    "evaluate": evaluate,
    "sample": draws,
    "peft": beside_peft,
    "memory": beside_peft,
}


if __name__ == "__main__":
    run_script(main)
