"""Counted costs of a profile's methods (Section 4.3, Figure 3), in files.

    <root>/<profile>/cost/<backbone>.json

holds the cost of every configuration in the profile's grids. It needs neither weights nor data, so
those of the paper's sizes, in <root>/paper/cost, come with the repository.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from pvera import backbones, cost
from pvera.adapters import METHODS, Method
from pvera.encoders import encoder_layers
from pvera.errors import InputError
from pvera.files import read_json
from pvera.study.profiles import Profile
from pvera.study.protocol import PROTOCOLS
from pvera.study.run_settings import build_method, grid_points, merged_hyperparameters

#: The profile of the paper's real sizes.
PAPER_PROFILE = "paper"
#: Columns of `load_costs` whose mean over the chosen configurations describes a method.
MEASURES = (
    "adapter_parameters",
    "parameters",
    "backbone_multiply_adds",
    "training",
    "inference",
    "merged",
    "layer_training",
    "layer_inference",
    "layer_merged",
)


def counted_config(profile: Profile, backbone: str) -> dict[str, Any]:
    """Return what is counted: the backbone, and every configuration of the profile's grids.

    Raises:
        InputError: There is no such backbone.
    """
    protocol = PROTOCOLS[profile.protocol].protocol
    # By method, as the values of a learning rate do not make another one.
    entries: dict[Method, dict[str, Any]] = {}
    for key in profile.methods:
        for grid in _grids(profile, key):
            for point in grid_points(grid):
                merged = merged_hyperparameters(profile, key, protocol, point)
                method = build_method(key, merged)
                own_values = {name: each for name, each in point.items() if hasattr(method, name)}
                entry = {"method": key, "hyperparameters": asdict(method), "grid": own_values}
                entries.setdefault(method, entry)
    return {
        "architecture": list(backbones.architecture(backbone, profile.image_size)),
        "methods": list(entries.values()),
    }


def _grids(profile: Profile, method: str) -> list[dict[str, list]]:
    """Return the grid of a method, and those of experiments that name it."""
    grids = [profile.methods[method].get("grid", {})]
    for experiment in profile.experiments.values():
        if method in (experiment.methods or ()) and experiment.grid:
            grids.append(experiment.grid)
    return grids


def measure(profile: Profile, backbone: str) -> dict[str, Any]:
    """Return the record of a backbone: the cost of each configuration."""
    counted = counted_config(profile, backbone)
    encoder = backbones.meta_model(backbone, profile.image_size)
    costs = [
        asdict(cost.count_cost(encoder, described_method(entry))) for entry in counted["methods"]
    ]
    return {
        "profile": profile.name,
        "backbone": backbone,
        "config": counted,
        "shape": {"depth": len(encoder_layers(encoder))},
        "costs": costs,
    }


def load_costs(root: str | Path, *profiles: str) -> pd.DataFrame:
    """Load the costs of profiles.

    Returns:
        One row per profile, backbone and configuration: what it is, its `cost.Cost`, and

            parameters    of the adapted model without head: backbone, trained and frozen
            training      multiply-adds of a pass as in training: sampled, where it differs
            layer_training, layer_inference, layer_merged
                          what the adapter of one layer adds to each pass

    Raises:
        InputError: None of the profiles has any.
    """
    rows = []
    for profile in profiles:
        records = [read_json(path) for path in Path(root, profile, "cost").glob("*.json")]
        records.sort(key=lambda record: record["costs"][0]["backbone_parameters"])
        for record in records:
            rows += _rows(record)
    if not rows:
        raise InputError(
            f"{root}: no costs of {' or '.join(profiles)}: "
            f"python experiments/cost.py --profile {profiles[0]} counts them"
        )

    costs = pd.DataFrame(rows).astype({"sampled": float, "merged": float})  # None is NaN
    adapter_parameters = costs["adapter_parameters"] + costs["frozen_parameters"]
    costs["parameters"] = costs["backbone_parameters"] + adapter_parameters
    costs["training"] = costs["sampled"].fillna(costs["inference"]).astype(int)
    depth = costs.pop("depth")
    for name in ("training", "inference", "merged"):
        costs[f"layer_{name}"] = (costs[name] - costs["backbone_multiply_adds"]) / depth
    return costs


def _rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per configuration of a record."""
    model = {
        "profile": record["profile"],
        "backbone": record["backbone"],
        "depth": record["shape"]["depth"],
    }
    rows = []
    for entry, counts in zip(record["config"]["methods"], record["costs"], strict=True):
        method = {
            "method": entry["method"],
            "configuration": described_method(entry),
            "grid": entry["grid"],
        }
        rows.append(model | counts | method)
    return rows


def described_method(entry: dict[str, Any]) -> Method:
    """Return the method that an entry of a record describes."""
    return METHODS[entry["method"]](**entry["hyperparameters"])
