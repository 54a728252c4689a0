"""Write the card of a saved adapter beside a copy of it, for the Hugging Face hub.

    python experiments/publish.py ADAPTER --output FOLDER
    hf upload USER/NAME FOLDER                                `hf auth login` comes first

The card says method, data set and seed, numbers recomputed from the file, and how to load it; add a licence to it. The
options for backbone and images are those of experiments/evaluate.py. The folder holds README.md (the card),
adapter.safetensors and, where one lies beside the adapter, the record of its run as run.json.
"""

import os
import shutil
from dataclasses import asdict
from pathlib import Path

from evaluate import TITLES, Evaluation, adapter_parser, evaluate, markdown_tables
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from pvera.errors import InputError, catch_os_errors, run_script

ADAPTER = "adapter.safetensors"


def main() -> None:
    parser = adapter_parser(__doc__, labelled=True)
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", required=True, help="new folder for the files"
    )
    options = parser.parse_args()
    if os.path.lexists(options.output):
        raise InputError(f"{options.output} exists: --output names a new folder")
    page = card(evaluate(options), options.weights)
    with catch_os_errors(options.output):
        options.output.mkdir(parents=True)
        shutil.copyfile(options.adapter, options.output / ADAPTER)
        if (record := options.adapter.with_suffix(".json")).exists():
            shutil.copyfile(record, options.output / "run.json")
        page.save(options.output / "README.md")
    print(f"written: {options.output}")


def card(evaluated: Evaluation, weights: str | None) -> ModelCard:
    """Return the card of an adapter. weights: the file of the backbone's, None for the hub's."""
    frozen, member, name, _, scores, _ = evaluated
    title, task = f"{member.method.title} for {frozen.name} on {name}", "image-classification"
    metadata = ModelCardData(
        library_name="pvera",
        pipeline_tag=task,
        tags=["adapter", "vision-transformer", member.method.key],
        model_name=title,
        eval_results=[
            EvalResult(
                task, name, name, key, round(scores[key], 6), dataset_split="test", metric_name=text
            )
            for key, text in TITLES.items()
        ],
    )
    own = ', weights="FILE"' if weights else ""
    hyperparameters = (
        ", ".join(f"{key} {value}" for key, value in asdict(member.method).items()) or "none"
    )
    return ModelCard(
        f"""---
{metadata}
---

# {title}

- Hyperparameters: {hyperparameters}
- Backbone: {frozen.name}, weights {frozen.weights_sha256}
- Seed: {member.seed}

Numbers on {scores["images"]} test images of {name}, computed from this file by `experiments/evaluate.py`:

{markdown_tables(evaluated)}

```python
import pvera
from pvera import backbones

frozen = backbones.load("{frozen.name}", image_size={frozen.image_size}{own})
model = pvera.load(frozen.model, "{ADAPTER}").eval()
logits = model(images)  # (batch, 3, {frozen.image_size}, {frozen.image_size}), normalised by frozen.mean and .std
```
"""
    )


if __name__ == "__main__":
    run_script(main)
