"""Cards of saved adapters: what was trained, on what, how good it is, and how to load it.

`card` describes one adapter for whoever downloads it. `index` describes all adapters of an experiment on one page, with
what they share said once: a card per file would repeat it dozens of times.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from huggingface_hub import EvalResult, ModelCardData
from timm.models import get_pretrained_cfg

from pvera import backbones
from pvera.backbones import Backbone
from pvera.data import own
from pvera.files import sha256
from pvera.study import markdown, results
from pvera.study.evaluation import TITLES, Evaluation, shown

LICENCE = "mit"  # of the repository


@dataclass(frozen=True)
class Described:
    """An evaluated adapter file; dataset, part: names of the data set and the split that it was evaluated on.

    record: of the run that left it; None where it is not known.
    """

    adapter: Path
    evaluation: Evaluation
    backbone: Backbone
    dataset: str
    part: str
    record: dict | None = None


def card(about: Described, licence: str = LICENCE, file: str | None = None) -> str:
    """Return the card of one adapter, in Markdown with the hub's metadata; file: its name beside the card."""
    evaluation, metrics = about.evaluation, about.evaluation.metrics
    title = f"{evaluation.method.title} for {about.backbone.name} on {about.dataset}"
    metadata = ModelCardData(
        license=licence,
        library_name="pvera",
        pipeline_tag="image-classification",
        tags=["pvera", "adapter", "vision-transformer", evaluation.method.key],
        base_model=_hub_name(about.backbone.name),
        model_name=title,
        eval_results=[
            EvalResult(
                task_type="image-classification",
                dataset_type=about.dataset,
                dataset_name=about.dataset,
                dataset_split=about.part,
                metric_type=key,
                metric_name=name,
                metric_value=round(metrics[key], 6),
            )
            for key, name in TITLES.items()
        ],
    )
    numbers = [[name, f"{metrics[key]:.6f}"] for key, name in TITLES.items()]
    if drawn := evaluation.uncertainty:
        numbers.append(["Accuracy, majority of draws", f"{drawn['accuracy']:.6f}"])
        numbers.append(["Spread of correct images", f"{drawn['sd_correct']:.6f}"])
        numbers.append(["Spread of incorrect images", f"{drawn['sd_incorrect']:.6f}"])
    classes = [
        [str(label), markdown.escape(str(row["class"])), str(row["images"]), shown(row["accuracy"])]
        for label, row in enumerate(evaluation.per_class().to_dict("records"))
    ]
    images = f"{metrics['images']} images ({about.part})"
    return (
        "\n\n".join(
            [
                f"---\n{metadata.to_yaml().rstrip()}\n---",
                f"# {title}",
                _listing(_facts(about)),
                "## Numbers",
                f"Computed from this file by `experiments/evaluate.py` on {images} of {about.dataset}.",
                markdown.table(["Metric", "Value"], numbers, "lr"),
                markdown.table(["Label", "Class", "Images", "Accuracy"], classes, "rlrr"),
                "## Use",
                _use(about.backbone, file or about.adapter.name),
                "## Licence",
                f"`{licence}`, for the adapter. Backbone and images have licences of their own.",
            ]
        )
        + "\n"
    )


def index(described: Sequence[Described], folder: Path) -> str:
    """Return one page about the adapters of an experiment below `folder`: what they share, then a table per method."""
    of_all = [_facts(about) for about in described]
    shared = _shared(of_all)
    parts = [
        f"# Adapters of `{folder.parent.name}/{folder.name}`",
        "Written by `python experiments/cards.py`, which evaluates each file on its test images. "
        "`python experiments/publish.py FILE --output FOLDER` writes the full card of one.",
        _listing(shared),
    ]
    for title in dict.fromkeys(facts["Method"] for facts in of_all):
        of_method = [both for both in zip(described, of_all, strict=True) if both[1]["Method"] == title]
        common = {key: value for key, value in _shared([facts for _, facts in of_method]).items() if key not in shared}
        columns = [key for key in of_method[0][1] if key not in (*shared, *common, "Data set", "Seed", "SHA-256")]
        rows = [
            [
                f"[{facts['Data set']}, seed {facts['Seed']}]({about.adapter.relative_to(folder).as_posix()})",
                *(markdown.escape(facts.get(key, "")) for key in columns),
                *(f"{about.evaluation.metrics[key]:.4f}" for key in TITLES),
                f"`{facts['SHA-256'][:16]}`",
            ]
            for about, facts in of_method
        ]
        align = "l" * (1 + len(columns)) + "r" * len(TITLES) + "l"
        table = markdown.table(["Adapter", *columns, *TITLES.values(), "SHA-256"], rows, align)
        parts += [f"## {title}", _listing(common), table]
    first = described[0]
    parts += [
        "## Use",
        _use(first.backbone, first.adapter.relative_to(folder).as_posix()),
        f"Licence: `{LICENCE}`, as the repository. Backbones and images have licences of their own.",
    ]
    return "\n\n".join(parts) + "\n"


def _shared(facts: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the facts that all adapters have in common."""
    return {key: value for key, value in facts[0].items() if all(other.get(key) == value for other in facts)}


def _listing(facts: dict[str, str]) -> str:
    return "\n".join(f"- {key}: {markdown.escape(value)}" for key, value in facts.items())


def _facts(about: Described) -> dict[str, str]:
    """Return what is known of an adapter, by title."""
    evaluation, record = about.evaluation, about.record
    hyperparameters = asdict(cast(Any, evaluation.method))
    facts = {
        "Method": evaluation.method.title,
        "Hyperparameters": _listed(hyperparameters) or "none",
        "Backbone": f"{about.backbone.name}, weights {about.backbone.weights_sha256[:16]}",
        "Data set": f"{about.dataset}, {len(evaluation.classes)} classes",
        "Seed": str(evaluation.seed),
        "Trained values": "{adapter} + {head} (head)".format(**evaluation.parameters),
    }
    if record:
        chosen = record["chosen"]
        member = record["config"]["members"][chosen["member"]]
        config = record["config"]
        facts |= {
            "Protocol": f"{record['protocol']}, at most {config['max_epochs']} epochs, {config['precision']}",
            "Learning rate": f"{member['adapter_lr']:g} (head {member['head_lr']:g})",
            "β": f"{member['beta']:g}",
            "Epoch": f"{chosen['epoch'] + 1}",
        }
        if about_data := results.own_data(record):
            facts["Splits"] = own.describe_split(about_data["split"])
    return facts | {"SHA-256": sha256(about.adapter)}


def _listed(values: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _hub_name(name: str) -> str | None:
    """Return the hub's name of a backbone's weights; None where they are not from the hub."""
    config = get_pretrained_cfg(backbones.architecture(name)[0])
    return config.hf_hub_id if config is not None else None


def _use(backbone: Backbone, file: str) -> str:
    """Return how to load an adapter."""
    return f"""```python
import pvera
from pvera import backbones

frozen = backbones.load("{backbone.name}")
model = pvera.load(frozen.model, "{file}").eval()
logits = model(images)  # (batch, 3, {backbone.image_size}, {backbone.image_size}), normalised by frozen.mean and .std
```"""
