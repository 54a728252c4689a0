"""Hand-made result records."""

from pathlib import Path

import numpy as np

from pvera.report.settings import ResultFiles
from pvera.study import results
from pvera.study.profiles import Profile

GRIDS = {
    "linear": {"learning_rate": [1e-3, 1e-4]},
    "lora": {"rank": [4, 8, 16]},
    "vera": {"learning_rate": [1e-3, 1e-4]},
    "pvera": {"learning_rate": [1e-3, 1e-4]},
    "dora": {"rank": [4, 8, 16]},
    "bottleneck": {"ratio": [8]},
    "ia3": {"learning_rate": [1e-3, 1e-4]},
}
CATEGORIES = {
    "digits": "natural",
    "textures": "natural",
    "vessels": "specialized",
    "sprites": "structured",
}
CATEGORIES |= {"cifar": "natural", "kitti": "structured"}


#: Experiments that change one part of VeRA or PVeRA.
VARIANTS = {
    "latent_dropout": "VeRA, latent dropout (p = 0.5)",
    "no_noise": "PVeRA, z = μ, β = 0",
    "fixed_sigma": "PVeRA, fixed noise scale (σ = 1), β = 0",
    "no_kl": "PVeRA, σ learned, β = 0",
}


def make_record(
    method="pvera", dataset="digits", seed=0, correct=5, images=10, chosen=0, grid=None, **changes
):
    """Make a record with `correct` of `images`; chosen=None means that every member diverged.

    `changes` replace keys of the record; `config` adds keys to the configuration.
    """
    ((name, values),) = (grid or GRIDS[method]).items()
    members = [
        {
            "grid": {name: value},
            "status": "stopped early",
            "best_validation_loss": 0.5 + i,
            "best_epoch": 3,
            "epochs": 23,
            "adapter_parameters": 100,
            "head_parameters": 10,
            "curve": {"train_loss": [1.5, 0.5], "kl": [0.0, 0.0]},
        }
        for i, value in enumerate(values)
    ]
    config = {
        "seed": seed,
        "members": [
            {"method": {} if name in ("learning_rate", "beta") else {name: value}, "beta": 0.0}
            for value in values
        ],
        "max_epochs": 30,
        "precision": "float32",
        "images": None,
        "weights_sha256": "w",
        "data_sha256": dataset,
    } | changes.pop("config", {})
    return {
        "schema": results.SCHEMA,
        "profile": "mine",
        "experiment": "benchmark",
        "backbone": "tiny",
        "dataset": dataset,
        "category": CATEGORIES[dataset],
        "method": method,
        "seed": seed,
        "protocol": "corrected",
        "config": config,
        "config_hash": results.config_hash(config),
        "members": members,
        "chosen": chosen
        if chosen is None
        else {"member": chosen, "epoch": 3, "grid": members[chosen]["grid"]},
        "test": chosen
        if chosen is None
        else {"images": images, "correct": correct, "accuracy": correct / images},
    } | changes


def predictions(probabilities, labels):
    """Return the arrays that a training leaves."""
    return {"probabilities": probabilities.astype(np.float16), "labels": labels.astype(np.int16)}


def write_all(root, records):
    """Write each record to its place below `root`; return the paths."""
    paths = [results.path_of(root, record) for record in records]
    for path, record in zip(paths, records):
        results.write(path, record)
    return paths


def result_files(root, *names):
    """Return the result files of profiles with these names, by default "mine"."""
    settings = {
        "data": "d",
        "backbones": ["tiny"],
        "datasets": ["digits"],
        "seeds": [0],
        "protocol": "corrected",
    }
    settings["methods"] = {"vera": {}, "pvera": {}}
    varied = {"latent_dropout": "vera", "no_noise": "pvera", "fixed_sigma": "pvera"}
    varied["no_kl"] = "pvera"
    settings["experiments"] = {name: {"methods": [method]} for name, method in varied.items()}
    settings["variants"] = VARIANTS
    profiles = [Profile.build(settings | {"name": name}) for name in names or ("mine",)]
    return ResultFiles(Path(root), tuple(profiles))
