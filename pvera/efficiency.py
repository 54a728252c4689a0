"""The paper's computational efficiency (Section 4.3, Figure 3): costs of a profile's methods, kept in files,
and accuracy against them.

    <root>/<profile>/cost/<backbone>.json

holds the cost of every configuration in the profile's grids. It needs neither weights nor data, so those of
the paper's sizes, in <root>/paper/cost, come with the repository.
"""

import importlib.metadata
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pandas as pd

from . import __version__, backbones, cost, results
from .adapters import METHODS, Method
from .audit import BACKBONES, FOLLOWS, HALF, near
from .cost import GIGA, Cost, Shape
from .errors import InputError
from .profiles import Profile
from .published import Published
from .results import Scores
from .tables import NOTHING, Cell, Panel, Row, Table, accuracies, signed

SCHEMA = 1
SIZES = "paper"  # the profile of the paper's real sizes

# Counting and keeping


def record_path(root, profile: str, backbone: str) -> Path:
    """Where the costs on this backbone lie."""
    return Path(root) / profile / "cost" / f"{backbone}.json"


def config(profile: Profile, backbone: str) -> dict:
    """What is counted: the backbone, and every configuration of the grids.

    InputError for a backbone that does not exist.
    """
    full = profile.with_(backbones=[backbone], fixed_grid=[], datasets=profile.datasets[:1], seeds=[0])
    methods: dict[Method, dict] = {}  # without the values of a learning rate, which are no part of a method
    for candidate in [candidate for run in full.benchmark("") for candidate in run.candidates]:
        method, settings = candidate.method, asdict(candidate.method)
        grid = {name: value for name, value in candidate.grid.items() if name in settings}
        methods[method] = {"method": method.key, "hyperparameters": settings, "grid": grid}
    return {"architecture": list(backbones.architecture(backbone)), "methods": list(methods.values())}


def state(path: Path, config: dict) -> str:
    """'missing', 'done', or 'different': the file holds the costs of other configurations."""
    if not path.exists():
        return "missing"
    return "done" if read(path)["config"] == config else "different"


def measure(profile: Profile, backbone: str, on_method: Callable[[], None] = lambda: None) -> dict:
    """The record of a profile's configurations on a backbone."""
    settings = config(profile, backbone)
    vit = backbones.shapes(backbone)
    bare = cost.multiply_adds(vit, cost.one_image(vit))
    costs = []
    for entry in settings["methods"]:
        costs.append(asdict(cost.count(vit, _method(entry), backbone=bare)))
        on_method()
    return {
        "schema": SCHEMA,
        "profile": profile.name,
        "backbone": backbone,
        "config": settings,
        "shape": asdict(Shape.of(vit)),
        "costs": costs,
        "environment": {
            "pvera": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "timm", "fvcore")},
        },
    }


def write(path: Path, record: dict) -> None:
    """Whole or not at all."""
    results.write_atomically(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def read(path: Path) -> dict:
    """A record. InputError for one that is missing, damaged or of a newer version."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version = record["schema"]
        lacking = {"profile", "backbone", "config", "shape", "costs"} - record.keys()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; experiments/cost.py makes it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: damaged cost file ({type(error).__name__}: {error})") from None
    if version != SCHEMA:
        raise InputError(f"{path}: of schema {version}, this program reads {SCHEMA}")
    if lacking or len(record["costs"]) != len(record["config"]["methods"]):
        raise InputError(f"{path}: incomplete cost file")
    return record


def load(root, *profiles: str) -> pd.DataFrame:
    """One row per profile, backbone and configuration: what it is, its `cost.Cost`, and what follows from it:

    parameters     of the adapted model without head: backbone, trained and frozen
    training       multiply-adds of a pass as in training: sampled, or the only one that there is
    layer_training, layer_inference, layer_merged   what the adapter of one layer adds to each pass
    expected, expected_training   `inference` and `training` by the closed forms

    InputError if none of the profiles has any.
    """
    paths = [path for name in profiles for path in sorted(record_path(root, name, "").parent.glob("*.json"))]
    if not paths:
        raise InputError(
            f"{root}: no costs of {' or '.join(profiles)}: "
            f"python experiments/cost.py --profile {profiles[0]} counts them"
        )
    order = {name: i for i, name in enumerate(backbones.NAMES)}
    paths.sort(key=lambda path: (profiles.index(path.parts[-3]), order.get(path.stem, len(order))))
    rows = []
    for record in map(read, paths):
        shape = Shape(**record["shape"])
        expected = cost.backbone_multiply_adds(shape)
        for entry, numbers in zip(record["config"]["methods"], record["costs"]):
            method, own = _method(entry), Cost(**numbers)
            bare = own.backbone_multiply_adds
            training = own.inference if own.sampled is None else own.sampled
            passes = {"training": training, "inference": own.inference, "merged": own.merged}
            rows.append(
                {
                    "profile": record["profile"],
                    "backbone": record["backbone"],
                    "method": method.key,
                    "configuration": method,
                    "grid": entry["grid"],
                    **asdict(own),
                    "parameters": own.backbone_parameters + own.adapter_parameters + own.frozen_parameters,
                    "training": training,
                    **{f"layer_{name}": None if total is None else (total - bare) / shape.depth
                       for name, total in passes.items()},
                    "expected": expected + cost.adapter_multiply_adds(method, shape),
                    "expected_training": expected + cost.adapter_multiply_adds(method, shape, sampled=True),
                }
            )
    optional = ("sampled", "merged", "layer_merged")
    return pd.DataFrame(rows).astype(dict.fromkeys(optional, float))  # None is NaN


def _method(entry: dict) -> Method:
    try:
        return METHODS[entry["method"]](**entry["hyperparameters"])
    except (KeyError, TypeError) as error:
        name = entry["method"]
        raise InputError(f"a configuration of {name!r} that this version does not know: {error}") from None


def agreement(costs: pd.DataFrame) -> pd.DataFrame:
    """Per profile and backbone, how many of fvcore's counts are those of the closed forms."""
    passes = {"inference": "expected", "training": "expected_training", "merged": "backbone_multiply_adds"}

    def share(own: pd.DataFrame) -> pd.Series:
        equal = {name: int((own[name] == own[expected]).sum()) for name, expected in passes.items()}
        return pd.Series({name: f"{equal[name]} of {own[name].count()}" for name in passes})

    return costs.groupby(["profile", "backbone"], sort=False)[list(costs)].apply(share)


# Accuracy against cost

#: Columns of `load` of which a method's mean over its choices is taken.
MEASURES = (
    "adapter_parameters", "parameters", "backbone_multiply_adds", "training", "inference", "merged",
    "layer_training", "layer_inference", "layer_merged",
)  # fmt: skip


def of_paper(costs: pd.DataFrame, paper: Published, backbone: str = "dinov2_b") -> pd.DataFrame:
    """The paper's average accuracies (%) against our counts: one row per method, columns accuracy and
    `MEASURES` (merged is NaN for what cannot be merged). Where the paper searched a grid, the mean weighted
    by the shares of its choices, as in Figure 3."""
    accuracy = paper.accuracies(backbone).mean(axis=1)
    return _points(_of(costs, SIZES, backbone), accuracy, paper.configurations())


def of_runs(costs: pd.DataFrame, runs: Iterable[dict]) -> pd.DataFrame:
    """The same of runs on one backbone: the mean over what they chose. Methods without a run are left out."""
    runs = list(runs)
    accuracy = accuracies(Scores.of(runs))["average"]
    chosen: dict[str, list[tuple[Method, float]]] = {}
    for run in runs:
        if run["chosen"]:
            hyperparameters = run["config"]["members"][run["chosen"]["member"]]["method"]
            entry = {"method": run["method"], "hyperparameters": hyperparameters}
            chosen.setdefault(run["method"], []).append((_method(entry), 1.0))
    return _points(_of(costs, runs[0]["profile"], runs[0]["backbone"]), accuracy, chosen)


def _of(costs: pd.DataFrame, profile: str, backbone: str) -> pd.DataFrame:
    return costs[(costs["profile"] == profile) & (costs["backbone"] == backbone)]


def _points(costs: pd.DataFrame, accuracy: pd.Series, chosen: dict) -> pd.DataFrame:
    if costs.empty:
        raise InputError("they are not counted; experiments/cost.py does")
    by_method = costs.set_index("configuration")
    rows = {}
    for key in METHODS:
        if key not in chosen:
            continue
        methods, weights = zip(*chosen[key])
        if unknown := [method for method in methods if method not in by_method.index]:
            raise InputError(f"{unknown[0]} is not counted: it is in none of the profile's grids")
        own = by_method.loc[list(methods)]
        means = {name: np.average(own[name].astype(float), weights=weights) for name in MEASURES}
        rows[key] = {"accuracy": accuracy[key], **means}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


# Tables


def table(costs: pd.DataFrame) -> Table:
    """Every configuration of every grid, one panel per profile and backbone."""
    panels = []
    for (profile, backbone), own in costs.groupby(["profile", "backbone"], sort=False):
        first = own.iloc[0]
        title = (
            f"({'abcdefgh'[len(panels)]}) {BACKBONES.get(backbone, backbone)}, grids of {profile}: "
            f"{_integer(first['backbone_parameters'])} parameters, "
            f"{_gmac(first['backbone_multiply_adds'])} GMAC"
        )
        panels.append(Panel(title, HEADER, tuple(map(_row, own.itertuples()))))
    caption = (
        "Parameters and multiply-adds of one image without the head, which is the same for every method: "
        "trained numbers and their share of the backbone's; numbers that stay random; GMAC (10⁹ "
        "multiply-adds of matrix products, counted by fvcore) of the deterministic pass, of one that draws z, "
        "and once merged, each with what it adds to the backbone's."
    )
    about = "DoRA as each profile's protocol has it."
    data = costs.assign(configuration=costs["configuration"].map(str), grid=costs["grid"].map(json.dumps))
    return Table("cost", caption, about, tuple(panels), data)


HEADER = (
    "Trained", "% of backbone", "Frozen", "GMAC", "+ %", "GMAC, sampled", "+ %", "GMAC, merged", "+ %"
)  # fmt: skip


def _row(own) -> Row:
    cells = [
        _integer(own.adapter_parameters),
        f"{100 * own.adapter_parameters / own.backbone_parameters:.3g}",
        _integer(own.frozen_parameters) if own.frozen_parameters else NOTHING,
    ]
    for total in (own.inference, own.sampled, own.merged):
        if np.isnan(total):
            cells += [NOTHING, NOTHING]
        else:
            cells += [_gmac(total), f"{_added(total, own.backbone_multiply_adds):.1f}"]
    label = ", ".join([METHODS[own.method].title, *(f"{name} {value}" for name, value in own.grid.items())])
    return Row(label, tuple(map(Cell, cells)))


REAL = "ViT-B/14, counted"


def claims(paper: Published, counted: pd.DataFrame, here: dict[str, pd.DataFrame]) -> Table:
    """The statements of Section 4.3: printed, counted on the paper's ViT-B/14 with its grid choices
    (`of_paper`), and for the runs of each backbone (`of_runs`)."""
    columns = {REAL: counted} | {f"{backbone}, here": points for backbone, points in here.items()}
    rows, data = [], []
    for statement, quote, measure in CLAIMS:
        printed = paper.quote(quote) if quote else ""
        number = float(printed) if _is_number(printed) else None
        cells = [NOTHING if not printed else printed if number is None else f"{printed}%"]
        for column, points in columns.items():
            value, text, holds = np.nan, NOTHING, None
            if set(METHODS) <= set(points.index):
                value, text, holds = measure(points)
            difference = np.nan
            if column == REAL and number is not None:
                difference = value - number
                holds = near(number, value, HALF, 0) == FOLLOWS
            verdict = {None: NOTHING, True: "holds", False: "does not hold"}[holds]
            cells += [text, *([signed(difference, 2)] if column == REAL else []), verdict]
            data.append(
                {"claim": statement, "where": column, "printed": printed, "value": value, "text": text,
                 "difference": difference, "verdict": verdict}
            )  # fmt: skip
        rows.append(Row(statement, tuple(map(Cell, cells))))
    header = ["Paper"]
    for column in columns:
        header += [column, *(["Difference"] if column == REAL else []), "Claim"]
    caption = (
        "What Section 4.3 says of computational efficiency, and what our adapters cost; methods with a grid "
        "by the mean over its choices. A pass that samples, as in training, computes the variance too, the "
        "pass with the mean does not. Added are multiply-adds, in per cent of the backbone's. Orders of "
        "magnitude: for most of the other adapters 32 times PVeRA's or more, the middle of ten and a hundred "
        "on a logarithmic scale."
    )
    about = "The first column counted takes its accuracies and the shares of the grid from the paper."
    return Table("cost_claims", caption, about, (Panel("", tuple(header), tuple(rows)),), pd.DataFrame(data))


Claim = tuple[float, str, bool | None]  # the number, how it reads, whether the claim holds


def _accuracy_gain(points: pd.DataFrame) -> Claim:
    gain = points.at["pvera", "accuracy"] - points.at["vera", "accuracy"]
    return gain, signed(gain, 1), bool(gain > 0)


def _few_numbers(points: pd.DataFrame) -> Claim:
    sizes = points["adapter_parameters"]
    times = sizes["pvera"] / sizes["vera"]
    return times, f"{times:.2f}", bool(sizes.drop(["pvera", "vera", "linear"]).min() > sizes["pvera"])


def _orders_of_magnitude(points: pd.DataFrame) -> Claim:
    sizes = points["adapter_parameters"]
    times = sizes.drop(["pvera", "linear"]) / sizes["pvera"]
    text = ", ".join(f"{METHODS[key].title} {value:.3g}" for key, value in times.items())
    return times.median(), text, bool((np.log10(times) >= 1.5).mean() > 0.5)


def _more(method: str, column: str) -> Callable[[pd.DataFrame], Claim]:
    def percent(points: pd.DataFrame) -> Claim:
        value = _added(points.at[method, column], points.at[method, "backbone_multiply_adds"])
        return value, f"{value:.2f}%", None

    return percent


def _merged(points: pd.DataFrame) -> Claim:
    own = points.loc[["lora", "vera", "pvera"]]
    value = _added(own["merged"], own["backbone_multiply_adds"]).abs().max()
    return value, f"{value:.2f}%", bool(value == 0)


def _not_merged(points: pd.DataFrame) -> Claim:
    own = points.loc[["bottleneck", "adaptformer"]]
    added = _added(own["training"], own["backbone_multiply_adds"])
    text = ", ".join(f"{METHODS[key].title} {value:.2f}%" for key, value in added.items())
    return added.max(), text, bool(own["merged"].isna().all() and (added > 0).all())


#: Statement, the quote with the printed number or word (`Published.quote`), and how it is measured.
CLAIMS: tuple[tuple[str, str | None, Callable[[pd.DataFrame], Claim]], ...] = (
    ("PVeRA is more accurate than VeRA (points)", None, _accuracy_gain),
    ("PVeRA trains few numbers, fewer than all but VeRA (times VeRA's)", None, _few_numbers),
    ("PVeRA is orders of magnitude smaller than most (times PVeRA's)", "size", _orders_of_magnitude),
    ("PVeRA adds, sampling as in training", "flops_pvera", _more("pvera", "training")),
    ("PVeRA adds, taking the mean", None, _more("pvera", "inference")),
    ("VeRA adds", "flops_vera", _more("vera", "inference")),
    ("Merged, LoRA, VeRA and PVeRA add nothing", None, _merged),
    ("Bottleneck and AdaptFormer keep what they add", None, _not_merged),
)


def _added(total, backbone):
    """Per cent."""
    return 100 * (total / backbone - 1)


def _integer(number: float) -> str:
    return f"{number:,.0f}".replace(",", "\N{NO-BREAK SPACE}")


def _gmac(number: float) -> str:
    return f"{number / GIGA:.4g}"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
