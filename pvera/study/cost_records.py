"""The paper's computational efficiency (Section 4.3, Figure 3): costs of a profile's methods, kept in files,
and accuracy against them.

    <root>/<profile>/cost/<backbone>.json

holds the cost of every configuration in the profile's grids. It needs neither weights nor data, so those of
the paper's sizes, in <root>/paper/cost, come with the repository.
"""

import importlib.metadata
import json
import platform
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from pvera import __version__, backbones, cost
from pvera.adapters import METHODS, Method
from pvera.cost import Cost, Shape
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.study.experiments import list_runs
from pvera.study.profiles import Profile

SCHEMA = 2
SIZES = "paper"  # the profile of the paper's real sizes

# Counting and keeping


def record_path(root, profile: str, backbone: str) -> Path:
    """Return the path of the costs on this backbone."""
    return Path(root) / profile / "cost" / f"{backbone}.json"


def config(profile: Profile, backbone: str) -> dict:
    """Return the counted configuration: the backbone, and every configuration of the grids.

    InputError for a backbone that does not exist.
    """
    # One value of β, which no cost depends on: nothing waits for a search.
    full = profile.with_(backbones=[backbone], fixed_grid=[], datasets=profile.datasets[:1], seeds=[0], beta=[0.0])
    runs = sorted(list_runs(full, "benchmark", ""), key=lambda run: list(profile.methods).index(run.method))
    methods: dict[Method, dict] = {}  # without the values of a learning rate, which are no part of a method
    for candidate in [candidate for run in runs for candidate in run.candidates]:
        method = candidate.method
        grid = {name: value for name, value in candidate.grid.items() if hasattr(method, name)}
        methods[method] = {"method": method.key, "hyperparameters": method.describe(), "grid": grid}
    return {"architecture": list(backbones.architecture(backbone)), "methods": list(methods.values())}


def measure(profile: Profile, backbone: str) -> dict:
    """Count a profile's configurations on a backbone; returns the record."""
    settings = config(profile, backbone)
    vit = backbones.shapes(backbone)
    bare = cost.multiply_adds(vit, cost.one_image(vit))
    return {
        "schema": SCHEMA,
        "profile": profile.name,
        "backbone": backbone,
        "config": settings,
        "shape": asdict(Shape.of(vit)),
        "costs": [asdict(cost.count(vit, _method(entry), backbone=bare)) for entry in settings["methods"]],
        "environment": {
            "pvera": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "timm", "fvcore")},
        },
    }


def write(path: Path, record: dict) -> None:
    """Write a record whole or not at all."""
    write_atomically(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def read_record(path: Path) -> dict:
    """Return a record. InputError for one that is missing, or of another version."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file; experiments/cost.py makes it")
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["schema"] != SCHEMA:
        raise InputError(
            f"{path}: of schema {record['schema']}, this program reads {SCHEMA}; delete it and count again"
        )
    return record


def load_costs(root, *profiles: str) -> pd.DataFrame:
    """One row per profile, backbone and configuration: what it is, its `cost.Cost`, and what follows from it:

    parameters     of the adapted model without head: backbone, trained and frozen
    training       multiply-adds of a pass as in training: sampled, or the only one that there is
    layer_training, layer_inference, layer_merged   what the adapter of one layer adds to each pass
    expected, expected_training   `inference` and `training` by the closed forms (NaN without one)

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
    for record in map(read_record, paths):
        shape = Shape(**record["shape"])
        backbone = cost.backbone_multiply_adds(shape)
        for entry, numbers in zip(record["config"]["methods"], record["costs"], strict=True):
            method, own = _method(entry), Cost(**numbers)
            bare = own.backbone_multiply_adds
            training = own.inference if own.sampled is None else own.sampled
            passes = {"training": training, "inference": own.inference, "merged": own.merged}
            added = {"expected": cost.adapter_multiply_adds(method, shape),
                     "expected_training": cost.adapter_multiply_adds(method, shape, sampled=True)}  # fmt: skip
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
                    **{
                        f"layer_{name}": None if total is None else (total - bare) / shape.depth
                        for name, total in passes.items()
                    },
                    **{name: None if more is None else backbone + more for name, more in added.items()},
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


# Accuracy against cost

#: Columns of `load_costs` of which a method's mean over its choices is taken.
MEASURES = (
    "adapter_parameters", "parameters", "backbone_multiply_adds", "training", "inference", "merged",
    "layer_training", "layer_inference", "layer_merged",
)  # fmt: skip
