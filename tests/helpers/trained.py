"""Small data sets and perturbed adapters, for tests of analyses."""

import numpy as np
from PIL import Image
from records import make_record, predictions
from tiny import perturb

import pvera
from pvera import backbones, checkpoint
from pvera.data import tasks
from pvera.files import json_value
from pvera.study import results
from pvera.study.plan import list_jobs
from pvera.study.profiles import Profile

IMAGES = 40


def make_data(root, *names, train=4, validation=4):
    """Write data sets below `root` with `IMAGES` test images and few others; classes differ in
    brightness."""
    for name in names:
        source = np.random.default_rng(list(name.encode()))
        (root / name / "images").mkdir(parents=True)
        for part, count in {"train800": train, "val200": validation, "test": IMAGES}.items():
            lines = []
            for i in range(count):
                label = i % tasks.find_data_set(name).classes
                image = source.integers(0, 100, (32, 32, 3), dtype=np.uint8) + np.uint8(9 * label)
                Image.fromarray(image).save(root / name / "images" / f"{part}{i}.png")
                lines.append(f"images/{part}{i}.png {label}\n")
            (root / name / f"{part}.txt").write_text("".join(lines))


def make_profile(folder, datasets=("digits", "vessels", "sprites"), **changes) -> Profile:
    """Make a profile on the small backbone, with data in `folder`/data unless `changes` name
    another place."""
    if "data" not in changes:
        make_data(folder / "data", *datasets)
    settings = dict(
        name="mine",
        data=str(folder / "data"),
        backbones=["tiny"],
        datasets=list(datasets),
        seeds=[0, 1],
        protocol="corrected",
        methods={"vera": {"rank": 8}, "pvera": {"rank": 8, "beta": 1e-4}},
    )
    return Profile(**settings | changes)


def make_adapters(profile: Profile, root, experiment: str = "benchmark") -> None:
    """Write a record, predictions and a random adapter for every run of an experiment of
    `profile`."""
    frozen = backbones.load("tiny")
    for run in list_jobs(profile, experiment, root):
        task = tasks.find_data_set(run.dataset)
        model = pvera.adapt(frozen.model, run.member_configs[0].method, task.classes, run.seed)
        adapter = checkpoint.dumps(perturb(model, run.seed, 0.3))
        model.unload()
        scores = np.random.default_rng(run.seed).dirichlet(np.ones(task.classes), IMAGES)
        record = make_record(
            run.method,
            run.dataset,
            run.seed,
            profile=profile.name,
            experiment=run.folder,
            grid={"learning_rate": [1e-3, 1e-4]},
        )
        # As the run's own, so that its adapter counts as that of its settings.
        record["config"] = json_value(run.config())
        record["config_hash"] = results.config_hash(record["config"])
        results.write(
            run.path, record, predictions(scores, np.arange(IMAGES) % task.classes), adapter
        )
