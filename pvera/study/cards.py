"""Cards of saved adapters: what was trained, on what, how good it is, and how to load it.

`card` describes one adapter for whoever downloads it. `index` describes all adapters of an experiment on one page, with
what they share said once.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pandas as pd
from huggingface_hub import EvalResult, ModelCardData
from timm.models import get_pretrained_cfg

from pvera import backbones
from pvera.backbones import Backbone
from pvera.data import custom
from pvera.files import sha256
from pvera.study import markdown, results
from pvera.study.evaluation import DRAWN, TITLES, Evaluation, shown

LICENCE = "mit"  # of the repository


def card(evaluation: Evaluation, licence: str, file: str) -> str:
    """Return the card of one adapter, in Markdown with the hub's metadata; file: its name beside the card."""
    metrics, name = evaluation.metrics, evaluation.frozen.name
    title = f"{evaluation.method.title} for {name} on {evaluation.dataset}"
    config = get_pretrained_cfg(backbones.architecture(name)[0])
    metadata = ModelCardData(
        license=licence,
        library_name="pvera",
        pipeline_tag="image-classification",
        tags=["pvera", "adapter", "vision-transformer", evaluation.method.key],
        base_model=config.hf_hub_id if config is not None else None,
        model_name=title,
        eval_results=[
            EvalResult(
                task_type="image-classification",
                dataset_type=evaluation.dataset,
                dataset_name=evaluation.dataset,
                dataset_split=evaluation.part,
                metric_type=key,
                metric_name=metric,
                metric_value=round(metrics[key], 6),
            )
            for key, metric in TITLES.items()
        ],
    )
    numbers = [[metric, f"{metrics[key]:.6f}"] for key, metric in TITLES.items()]
    if drawn := evaluation.uncertainty:
        numbers += [[title, shown(drawn[key], 6)] for key, title in DRAWN.items()]
    classes = [
        [str(label), markdown.escape(str(name)), str(images), shown(accuracy)]
        for label, name, images, _, accuracy in evaluation.per_class().itertuples()
    ]
    parts = [
        f"---\n{metadata.to_yaml().rstrip()}\n---",
        f"# {title}",
        _listing(facts(evaluation)),
        "## Numbers",
        f"Computed from this file by `experiments/evaluate.py` on {metrics['images']} images ({evaluation.part}) of "
        f"{evaluation.dataset}.",
        markdown.table(["Metric", "Value"], numbers, "lr"),
        markdown.table(["Label", "Class", "Images", "Accuracy"], classes, "rlrr"),
        "## Use",
        _use(evaluation.frozen, file),
        "## Licence",
        f"`{licence}`, for the adapter. Backbone and images have licences of their own.",
    ]
    return "\n\n".join(parts) + "\n"


def index(evaluations: Sequence[Evaluation], folder: Path) -> str:
    """Return one page about the adapters of an experiment below `folder`: what they share, then a row for each."""
    files = [evaluation.adapter.relative_to(folder).as_posix() for evaluation in evaluations]
    table = pd.DataFrame([facts(evaluation) for evaluation in evaluations]).fillna("")
    shared = table.columns[table.nunique() == 1]
    columns = table.columns.difference([*shared, "Data set", "Seed", "SHA-256"], sort=False)
    rows = [
        [
            f"[{evaluation.dataset}, {evaluation.method.key}, seed {evaluation.seed}]({file})",
            *map(markdown.escape, about[columns]),
            *(f"{evaluation.metrics[key]:.4f}" for key in TITLES),
            f"`{about['SHA-256'][:16]}`",
        ]
        for evaluation, file, (_, about) in zip(evaluations, files, table.iterrows(), strict=True)
    ]
    align = "l" * (1 + len(columns)) + "r" * len(TITLES) + "l"
    parts = [
        f"# Adapters of `{folder.parent.name}/{folder.name}`",
        "Written by `python experiments/cards.py`, which evaluates each file on its test images. "
        "`python experiments/publish.py FILE --output FOLDER` writes the full card of one.",
        _listing(dict(table[shared].iloc[0])),
        markdown.table(["Adapter", *columns, *TITLES.values(), "SHA-256"], rows, align),
        "## Use",
        _use(evaluations[0].frozen, files[0]),
        f"Licence: `{LICENCE}`, as the repository. Backbones and images have licences of their own.",
    ]
    return "\n\n".join(parts) + "\n"


def _listing(facts: dict[str, str]) -> str:
    return "\n".join(f"- {key}: {markdown.escape(value)}" for key, value in facts.items())


def facts(evaluation: Evaluation) -> dict[str, str]:
    """Return what is known of an adapter, by title."""
    hyperparameters = asdict(cast(Any, evaluation.method))
    known = {
        "Method": evaluation.method.title,
        "Hyperparameters": ", ".join(f"{key} {value}" for key, value in hyperparameters.items()) or "none",
        "Backbone": f"{evaluation.frozen.name}, weights {evaluation.frozen.weights_sha256[:16]}",
        "Data set": f"{evaluation.dataset}, {len(evaluation.classes)} classes",
        "Seed": str(evaluation.seed),
        "Trained values": "{adapter} + {head} (head)".format(**evaluation.parameters),
    }
    if record := evaluation.record:
        config, chosen = record["config"], record["chosen"]
        member = config["members"][chosen["member"]]
        known |= {
            "Protocol": f"{record['protocol']}, at most {config['max_epochs']} epochs, {config['precision']}",
            "Learning rate": f"{member['adapter_lr']:g} (head {member['head_lr']:g})",
            "β": f"{member['beta']:g}",
            "Epoch": f"{chosen['epoch'] + 1}",
        }
        if pictures := results.own_data(record):
            known["Splits"] = custom.describe_split(pictures["split"])
    return known | {"SHA-256": sha256(evaluation.adapter)}


def _use(backbone: Backbone, file: str) -> str:
    """Return how to load an adapter."""
    return f"""```python
import pvera
from pvera import backbones

frozen = backbones.load("{backbone.name}")
model = pvera.load(frozen.model, "{file}").eval()
logits = model(images)  # (batch, 3, {backbone.image_size}, {backbone.image_size}), normalised by frozen.mean and .std
```"""
