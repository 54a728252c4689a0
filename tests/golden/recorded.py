"""Small runs whose numbers are recorded in golden/runs.json.

They are each method on images and on texts, and an analysis.

python tests/golden/recorded.py        records them anew, where a change of the numbers is meant
"""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import text_tasks
import torch
import trained

from pvera.data import glue, vtab
from pvera.study import results
from pvera.study.plan import list_jobs
from pvera.study.profiles import Profile, Schedule

FILE = Path(__file__).parent / "runs.json"
METHODS = {
    "linear": {},
    "bottleneck": {"ratio": 4},
    "ia3": {},
    "adaptformer": {"ratio": 4},
    "dora": {"rank": 2},
    "lora": {"rank": 2},
    "vera": {"rank": 8},
    "pvera": {"rank": 8, "beta": "published", "grid": {"learning_rate": [1e-2, 1e-3]}},
}
ON_TEXTS = [name for name in METHODS if name != "adaptformer"]
SETTINGS = dict(
    methods=METHODS, learning_rate=1e-2, schedule=Schedule(batch_size=4, epochs=2), seeds=[0]
)


def of_images(folder: Path) -> Profile:
    """Return a profile of images under KITTI's name, whose β is published."""
    profile = trained.make_profile(folder, ["kitti"], **SETTINGS)
    record = Path(profile.data) / vtab.ACCEPTED_FILE  # as `prepare_vtab.py --accept` writes it
    findings = vtab.find_differences(profile.data, "kitti", check_files=False)
    record.write_text(json.dumps({"kitti": [finding.text for finding in findings]}))
    return profile


def of_texts(folder: Path) -> Profile:
    """Return a profile of a task of 60 texts, with an encoder that knows two words."""
    shutil.copytree(Path(__file__).with_name("texts"), folder / "texts" / glue.GLUE["cola"].title)
    encoder = text_tasks.write_encoder(folder / "encoder", ["the", "teacher"])
    settings = SETTINGS | {"methods": {name: METHODS[name] for name in ON_TEXTS}}
    return Profile(
        name="mine",
        data=str(folder / "texts"),
        backbones=["minilm"],
        datasets=["cola"],
        protocol="corrected",
        experiments={"benchmark": {"set": {"beta": 1e-4}}},
        weights={"minilm": str(encoder)},
        **settings,
    )


def training(profile: Profile, experiment: str, method: str, root: Path) -> dict:
    """Execute the run of a method, and return its numbers: curves of each member, and test
    scores.
    """
    (run,) = (run for run in list_jobs(profile, experiment, root) if run.method == method)
    replace(run, pool="first").execute()  # as the recorded numbers were made
    record = results.read_record_dict(run.path)
    curves = [member["curve"] for member in record["members"]]
    for curve in curves:
        curve["kl"] = [value or 0.0 for value in curve["kl"]]  # with β = 0 it is not computed
    return {"curves": curves, "test": record["test"]}


def analysis(profile: Profile, root: Path) -> dict:
    """Execute PVeRA's analysis of uncertainty after its training, and return the sum of each
    array.
    """
    (run,) = list_jobs(profile, "uncertainty", root)
    run.execute()
    return {
        name: float(values.astype(np.float64).sum())
        for name, values in results.read_arrays(run.path).items()
    }


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images, texts = of_images(folder), of_texts(folder)
        numbers = {
            "images": {
                method: training(images, "benchmark", method, folder / "results")
                for method in METHODS
            },
            "texts": {
                method: training(texts, "benchmark", method, folder / "results")
                for method in ON_TEXTS
            },
            "uncertainty": analysis(images, folder / "results"),
        }
    FILE.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
