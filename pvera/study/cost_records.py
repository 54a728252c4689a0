"""Counted costs of a profile's methods (Section 4.3, Figure 3), in files.

    <root>/<profile>/cost/<backbone>.json

holds the cost of every configuration in the profile's grids. It needs neither weights nor data, so those of
the paper's sizes, in <root>/paper/cost, come with the repository.
"""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from pvera import backbones, cost
from pvera.adapters import METHODS, Method
from pvera.encoders import encoder_layers
from pvera.errors import InputError
from pvera.files import read_json
from pvera.study.jobs import environment
from pvera.study.profiles import Profile
from pvera.study.protocol import PROTOCOLS
from pvera.study.search import build_method, combinations

SCHEMA = 2
SIZES = "paper"  # the profile of the paper's real sizes
#: Columns of `load_costs` of which a method's mean over its choices is taken.
MEASURES = (
    "adapter_parameters", "parameters", "backbone_multiply_adds", "training", "inference", "merged",
    "layer_training", "layer_inference", "layer_merged",
)  # fmt: skip


def config(profile: Profile, backbone: str) -> dict:
    """Return the counted configuration: the backbone, and every configuration of the grids.

    InputError for a backbone that does not exist.
    """
    rules = PROTOCOLS[profile.protocol]
    methods: dict[
        Method, dict
    ] = {}  # without the values of a learning rate, which are no part of a method
    for key, options in profile.methods.items():
        searched = [options.get("grid", {})]
        searched += [
            each.grid
            for each in profile.experiments.values()
            if key in (each.methods or ()) and each.grid
        ]
        for values in (values for grid in searched for values in combinations(grid)):
            method = build_method(profile, key, rules, values)
            of_method = {name: value for name, value in values.items() if hasattr(method, name)}
            methods.setdefault(
                method, {"method": key, "hyperparameters": asdict(method), "grid": of_method}
            )
    return {
        "architecture": list(backbones.architecture(backbone, profile.image_size)),
        "methods": list(methods.values()),
    }


def measure(profile: Profile, backbone: str) -> dict:
    """Count a profile's configurations on a backbone; returns the record."""
    settings, vit = config(profile, backbone), backbones.shapes(backbone, profile.image_size)
    return {
        "schema": SCHEMA,
        "profile": profile.name,
        "backbone": backbone,
        "config": settings,
        "shape": {"depth": len(encoder_layers(vit))},
        "costs": [asdict(cost.count(vit, method_of(entry))) for entry in settings["methods"]],
        "environment": environment("cpu"),
    }


def load_costs(root, *profiles: str) -> pd.DataFrame:
    """One row per profile, backbone and configuration: what it is, its `cost.Cost`, and what follows from it:

    parameters     of the adapted model without head: backbone, trained and frozen
    training       multiply-adds of a pass as in training: sampled, or the only one that there is
    layer_training, layer_inference, layer_merged   what the adapter of one layer adds to each pass

    InputError if none of the profiles has any.
    """
    records = []
    for name in profiles:  # small backbones first
        of_profile = map(read_json, Path(root, name, "cost").glob("*.json"))
        records += sorted(of_profile, key=lambda record: record["costs"][0]["backbone_parameters"])
    if not records:
        raise InputError(
            f"{root}: no costs of {' or '.join(profiles)}: "
            f"python experiments/cost.py --profile {profiles[0]} counts them"
        )
    rows = []
    for record in records:
        place = {
            "profile": record["profile"],
            "backbone": record["backbone"],
            "depth": record["shape"]["depth"],
        }
        for entry, numbers in zip(record["config"]["methods"], record["costs"], strict=True):
            method = {
                "method": entry["method"],
                "configuration": method_of(entry),
                "grid": entry["grid"],
            }
            rows.append(place | numbers | method)
    costs = pd.DataFrame(rows).astype({"sampled": float, "merged": float})  # None is NaN
    costs["parameters"] = (
        costs["backbone_parameters"] + costs["adapter_parameters"] + costs["frozen_parameters"]
    )
    costs["training"] = costs["sampled"].fillna(costs["inference"]).astype(int)
    depth = costs.pop("depth")
    for name in ("training", "inference", "merged"):
        costs[f"layer_{name}"] = (costs[name] - costs["backbone_multiply_adds"]) / depth
    return costs


def method_of(entry: dict) -> Method:
    """Return the configuration that an entry of a record describes."""
    return METHODS[entry["method"]](**entry["hyperparameters"])
