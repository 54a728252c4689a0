"""Write the card of a saved adapter next to a copy of it, for the Hugging Face hub.

    python experiments/publish.py ADAPTER --output FOLDER
    hf upload USER/NAME FOLDER                                `hf auth login` comes first

The card says method, data set and seed, numbers that are recomputed from the file, and how to load
it; add a licence to it. Takes as long as experiments/evaluate.py, whose options for backbone and
images it has. The folder holds README.md (the card), adapter.safetensors and, where one lies next
to the adapter, the record of its training as run.json.
"""

import os
import shutil
from dataclasses import asdict
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from options import AdapterParser

from pvera.errors import InputError, run_script, writing
from pvera.report.evaluation import METRICS, evaluation_tables
from pvera.study.evaluation import Evaluation, evaluate, find_data_set, open_adapter

ADAPTER = "adapter.safetensors"


def main() -> None:
    """Evaluate the adapter of the command line, and write its folder."""
    parser = AdapterParser(__doc__)
    parser.add_data_set()
    text = "new folder for the files"
    parser.add_argument("--output", type=Path, metavar="FOLDER", required=True, help=text)
    options = parser.parse_args()
    if os.path.lexists(options.output):
        raise InputError(f"{options.output} exists: --output names a new folder")

    adapter = open_adapter(options.adapter, options.backbone, options.weights, options.device)
    data = find_data_set(adapter, options.data_set, options.data)
    card = model_card(evaluate(adapter, data), has_own_weights=bool(options.weights))

    with writing(options.output):
        options.output.mkdir(parents=True)
        shutil.copyfile(options.adapter, options.output / ADAPTER)
        record = options.adapter.with_suffix(".json")
        if record.exists():
            shutil.copyfile(record, options.output / "run.json")
        card.save(options.output / "README.md")
    print(f"written: {options.output}")


def model_card(evaluated: Evaluation, has_own_weights: bool) -> ModelCard:
    """Return the card of an adapter.

    Args:
        evaluated: The adapter on test images.
        has_own_weights: Whether the backbone's weights come from a file instead of the hub.
    """
    frozen, member = evaluated.frozen, evaluated.member
    title = f"{member.method.title} for {frozen.name} on {evaluated.dataset}"
    settings = [f"{name} {value}" for name, value in asdict(member.method).items()]
    weights = ', weights="FILE"' if has_own_weights else ""
    size = frozen.image_size
    return ModelCard(
        f"""---
{metadata(evaluated, title)}
---

# {title}

- Hyperparameters: {", ".join(settings) or "none"}
- Backbone: {frozen.name}, weights {frozen.weights_sha256}
- Seed: {member.seed}

Numbers on {evaluated.metrics["images"]} test images of {evaluated.dataset}, computed from this file
by `experiments/evaluate.py`:

{evaluation_tables(evaluated)}

```python
import pvera
from pvera import backbones

frozen = backbones.load("{frozen.name}", image_size={size}{weights})
model = pvera.load(frozen.model, "{ADAPTER}").eval()
logits = model(images)  # (batch, 3, {size}, {size}), normalised by frozen.mean and .std
```
"""
    )


def metadata(evaluated: Evaluation, title: str) -> ModelCardData:
    """Return what the hub reads of a card."""
    task = "image-classification"
    scores = []
    for key, name in METRICS.items():
        score = EvalResult(
            task_type=task,
            dataset_type=evaluated.dataset,
            dataset_name=evaluated.dataset,
            dataset_split="test",
            metric_type=key,
            metric_name=name,
            metric_value=round(evaluated.metrics[key], 6),
        )
        scores.append(score)
    return ModelCardData(
        library_name="pvera",
        pipeline_tag=task,
        tags=["adapter", "vision-transformer", evaluated.member.method.key],
        model_name=title,
        eval_results=scores,
    )


if __name__ == "__main__":
    run_script(main)
