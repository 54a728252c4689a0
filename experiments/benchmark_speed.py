"""Time training, evaluation and sampling against the bounds that a frozen backbone sets.

    python experiments/benchmark_speed.py                  # ViT-S, ten minutes on two cores
    python experiments/benchmark_speed.py --device cuda --backbones dinov2_s dinov2_b dinov2_l
    python experiments/benchmark_speed.py --parts peft memory   # three minutes; the extra `test`

Each part and its bound take turns, after a warm-up; a ratio is the median over these pairs. Weights
are random.

    step, peft         a training step (in PEFT too)   forward and backward of the frozen backbone
    evaluate, sample   a merged model, k samples       one frozen pass, k passes
    memory             what a step saves for its backward pass, against the frozen backbone

peft and memory take transformers' DINOv2 with the sizes of ViT-S and four layers, whatever
--backbones says. Writes <output>/speed_<device>.csv, a row per measurement; rows of other parts,
backbones and precisions stay. OMP_NUM_THREADS sets the threads of a CPU; another --output keeps
their times apart.
"""

import copy
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from options import RESULTS, Parser, read_profile
from torch import nn
from torch.nn.functional import cross_entropy

from pvera import (
    IA3,
    AdaptedModel,
    DoRA,
    LoRA,
    PVeRA,
    VeRA,
    adapt,
    backbones,
    cost,
    export_peft,
    sample,
)
from pvera.adapters import Method
from pvera.errors import import_extra, run_script
from pvera.features import input_shape, pooled
from pvera.files import require_writable, write_atomically
from pvera.study import optimization, prediction
from pvera.study.jobs import environment
from pvera.study.profiles import PRECISIONS
from pvera.study.protocol import CORRECTED
from pvera.study.training import training_attention
from pvera.study.trainings import build_method, default_values

CLASSES, BATCH, SAMPLES = 100, 16, 8
MEMBERS = 3  # of the timed grid of PVeRA
UNMERGEABLE = ("bottleneck", "adaptformer")
BETA = 1e-6
#: Columns that describe the machine, and those that name a measurement.
MACHINE = ["device", "threads", "torch", "timm"]
NAME = ["part", "backbone", "precision", "what"]
#: value, bound_value: medians of seconds, or of bytes in the part memory. ratio: the median over
#: pairs of part and bound, with its quartiles.
COLUMNS = [*MACHINE, *NAME, "bound", "value", "bound_value", "ratio", "low", "high"]
PEFT_BACKBONE = "dinov2_s_4"  # transformers' DINOv2 of SIZES
SIZES = {
    "hidden_size": 384,
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "image_size": 224,
    "patch_size": 14,
}


def make_parser() -> Parser:
    """Return the command line's parser."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--backbones", nargs="+", default=["dinov2_s"], metavar="B", help="backbones (dinov2_s)"
    )
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="(both)"
    )
    default = ["step", "evaluate", "sample"]
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=default, help="(the first three)"
    )
    parser.add_device("cpu")
    parser.add_count("--repeats", default=5, help="timed pairs (%(default)s)")
    output = RESULTS / "performance"
    parser.add_argument("--output", type=Path, default=output, help="(%(default)s)")
    return parser


def main() -> None:
    """Measure what the command line asks for, and print all ratios."""
    options = make_parser().parse_args()
    require_writable(options.output)
    machine = environment(options.device)
    device = re.sub(r"\W+", "_", machine["device"].lower()).strip("_")
    path = options.output / f"speed_{device}.csv"
    for part, precision in product(options.parts, options.precisions):
        in_peft = PARTS[part] is compare_with_peft
        for backbone in [PEFT_BACKBONE] if in_peft else options.backbones:
            print(f"{part}, {precision}, {backbone}", flush=True)
            name = {"part": part, "backbone": backbone, "precision": precision}
            bench = Bench(backbone, precision, options.device)
            for measured in measure(bench, part, options.repeats):
                row = {column: machine[column] for column in MACHINE} | name | measured
                update_csv(path, pd.DataFrame([row], columns=COLUMNS), NAME, float_format="%.6g")
    print(pd.read_csv(path)[[*NAME, "ratio", "low", "high"]].to_string(index=False))


def update_csv(file: Path, rows: pd.DataFrame, key: Sequence[str], **options: Any) -> pd.DataFrame:
    """Write rows to a CSV file instead of those with the same `key`; others stay.

    Args:
        file: The CSV file, which need not exist.
        rows: The new rows.
        key: The columns that identify a row.
        options: Of `pandas.DataFrame.to_csv`.

    Returns:
        All rows of the file.
    """
    if file.exists():
        rows = pd.concat([pd.read_csv(file), rows]).drop_duplicates(key, keep="last")
    write_atomically(file, rows.to_csv(index=False, **options))
    return rows


@dataclass(frozen=True)
class Pair:
    """What is measured, and its bound."""

    what: str
    bound: str
    function: Callable[[], Any]
    frozen: Callable[[], Any]
    #: The bound is this multiple of `frozen`.
    factor: float = 1.0


class Bench:
    """A frozen backbone with random weights in one precision, and models on top of it."""

    def __init__(self, backbone: str, precision: str, device: str):
        self.precision = precision
        self.device = device
        with backbones.seeded(0):
            vit = _random_backbone(backbone)
        self.vit = vit.eval().requires_grad_(False).to(device)
        # Cast weights are the fastest bound.
        self.cast = copy.deepcopy(self.vit).to(getattr(torch, precision))
        source = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH, *input_shape(vit), generator=source).to(device)
        self.labels = torch.randint(CLASSES, (BATCH,), generator=source).to(device)
        #: The adapters with the profile's default hyperparameters, by key.
        self.methods: dict[str, Method] = {}
        profile = read_profile("synthetic" if backbone == "tiny" else "paper")
        for key in profile.methods:
            if key != "linear":
                values = default_values(profile, key)
                self.methods[key] = build_method(profile, key, CORRECTED, values)

    def seconds(self, function: Callable) -> float:
        """Return the seconds of a call, until the device has finished."""
        wait = torch.cuda.synchronize if self.device.startswith("cuda") else lambda: None
        wait()
        start = time.perf_counter()
        function()
        wait()
        return time.perf_counter() - start

    def saved(self, function: Callable) -> int:
        """Return the bytes that a call saves for its backward pass.

        What two calls save both are the model's own tensors, which do not count.
        """
        first, second = _saved_storages(function), _saved_storages(function)
        return sum(storage.nbytes() for at, storage in second.items() if at not in first)

    def frozen(self, passes: int = 1, members: int = 1, backward: bool = False) -> Callable:
        """Return passes of the frozen backbone.

        Args:
            passes: Number of forward passes.
            members: Copies of the batch in each.
            backward: Add the backward pass to the input.
        """
        images = self.images.repeat(members, 1, 1, 1).to(getattr(torch, self.precision))
        images.requires_grad_(backward)

        def function() -> None:
            with prediction.autocast(self.device, "float32"), torch.inference_mode(not backward):
                for _ in range(passes):
                    outputs = pooled(self.cast, self.cast(images))
                if backward:
                    outputs.float().sum().backward()

        return function

    @contextmanager
    def model(self, methods: Method | list[Method]) -> Iterator[AdaptedModel]:
        """Yield the adapted backbone, to be called in the precision that is measured."""
        context = prediction.autocast(self.device, self.precision)
        with adapt(self.vit, methods, CLASSES, 0) as model, context:
            yield model


def _random_backbone(name: str) -> nn.Module:
    if name != PEFT_BACKBONE:
        return backbones.load(name, pretrained=False).model
    transformers = import_extra("transformers", "language")
    return transformers.Dinov2Model(transformers.Dinov2Config(**SIZES))


def _saved_storages(function: Callable) -> dict[int, torch.UntypedStorage]:
    """Return what a call saves by address; held, so that no other has the same address."""
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function()
    return storages


def measure(bench: Bench, part: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure a part and its bound in turn; yield the columns of `COLUMNS` from "what" on."""
    is_memory = part == "memory"
    amount = bench.saved if is_memory else bench.seconds
    for pair in PARTS[part](bench):
        pair.frozen()
        pair.function()
        values, bounds = [], []
        for _ in range(1 if is_memory else repeats):
            values.append(amount(pair.function))
            bounds.append(pair.factor * amount(pair.frozen))
        low, ratio, high = np.quantile(np.divide(values, bounds), [0.25, 0.5, 0.75]).tolist()
        yield {
            "what": pair.what,
            "bound": pair.bound,
            "value": float(np.median(values)),
            "bound_value": float(np.median(bounds)),
            "ratio": ratio,
            "low": low,
            "high": high,
        }


def title(method: Method) -> str:
    """Name the row of a method."""
    sizes = {"r": getattr(method, "rank", None), "ratio": getattr(method, "ratio", None)}
    parts = [f"{name} = {value}" for name, value in sizes.items() if value]
    return ", ".join([method.title, *parts])


# The parts


def step(bench: Bench) -> Iterator[Pair]:
    """Yield a step of `training.fit`."""
    grids = [[method] for method in bench.methods.values()]
    grids.append([bench.methods["pvera"]] * MEMBERS)
    for grid in grids:
        what, bound, factor = title(grid[0]), "frozen forward and backward", 1.0
        if len(grid) > 1:
            what += f", grid of {len(grid)}"
        if grid[0].key in UNMERGEABLE:
            counted = cost.count_cost(bench.vit, grid[0])
            factor = counted.inference / counted.backbone_multiply_adds
            bound += ", and its own products"
        with bench.model(grid) as model, training_attention(bench.vit):
            model.train().last_mlp_on_class_token = True
            optimizers = [
                optimization.make_optimizer(member, 1e-4, 1e-4, 1e-4) for member in model.members
            ]
            batch = bench.images, bench.labels, [BETA] * len(grid)
            function = partial(optimization.step, model, model, *batch, optimizers, CORRECTED)
            frozen = bench.frozen(members=len(grid), backward=True)
            yield Pair(what, bound, function, frozen, factor)


def evaluate(bench: Bench) -> Iterator[Pair]:
    """Yield a pass of a merged model."""
    for method in bench.methods.values():
        if method.key not in UNMERGEABLE:
            with bench.model(method) as model, torch.inference_mode():
                function = partial(model.eval().merge_(), bench.images)
                yield Pair(f"{title(method)}, merged", "frozen forward", function, bench.frozen())


def samples(bench: Bench) -> Iterator[Pair]:
    """Yield Monte Carlo inference of PVeRA."""
    method = bench.methods["pvera"]
    with bench.model(method) as model:
        model.eval().last_mlp_on_class_token = True
        function = partial(sample, model, bench.images, SAMPLES)
        what, bound = f"{title(method)}, {SAMPLES} draws", f"{SAMPLES} frozen passes"
        yield Pair(what, bound, function, bench.frozen(passes=SAMPLES))


def compare_with_peft(bench: Bench) -> Iterator[Pair]:
    """Yield a step of a simple training loop, with and without the KL term, which PEFT lacks."""
    untouched = copy.deepcopy(bench.vit)
    frozen = bench.frozen(backward=True)
    methods = (LoRA(128), VeRA(256, pair="shared"), PVeRA(256, pair="shared"), DoRA(128), IA3())
    for method in methods:
        with bench.model(method) as model:
            for name, function in peft_steps(bench, model, untouched).items():
                what = title(method) + name
                yield Pair(what, "frozen forward and backward", function, frozen)


def peft_steps(
    bench: Bench, model: AdaptedModel, backbone: nn.Module
) -> dict[str, Callable[[], float]]:
    """Return steps by what they add to the method's title: in PEFT, here, and with a KL term."""
    peft = import_extra("peft", "test")
    with tempfile.TemporaryDirectory() as folder:
        export_peft(model, folder)
        copied = copy.deepcopy(backbone)
        theirs = peft.PeftModel.from_pretrained(copied, folder, is_trainable=True).train()
    theirs.head = copy.deepcopy(model.members[0].head)

    def loss_here(beta: float) -> torch.Tensor:
        model.beta = beta
        return model(bench.images, labels=bench.labels).loss

    def loss_there() -> torch.Tensor:
        features = theirs(bench.images).last_hidden_state[:, 0]
        return cross_entropy(theirs.head(features), bench.labels)

    steps = {f", peft {peft.__version__}": training_step(theirs, loss_there)}
    steps[""] = training_step(model.train(), partial(loss_here, 0.0))
    if isinstance(model.members[0].method, PVeRA):
        steps[", KL term"] = training_step(model, partial(loss_here, BETA))
    return steps


def training_step(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Return a step of AdamW down the `loss` of a model."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)

    def function() -> float:
        value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.item()

    return function


PARTS: dict[str, Callable[[Bench], Iterator[Pair]]] = {
    "step": step,
    "evaluate": evaluate,
    "sample": samples,
    "peft": compare_with_peft,
    "memory": compare_with_peft,
}


if __name__ == "__main__":
    run_script(main)
