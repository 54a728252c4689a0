"""Write the card of a saved adapter beside a copy of it, and push both to the Hugging Face hub on request.

    python experiments/publish.py ADAPTER --output FOLDER                            nothing is sent
    python experiments/publish.py ADAPTER --output FOLDER --repository USER/NAME     pushed; `hf auth login` comes first

The card says method, data set, protocol and seed, numbers recomputed from the file, and how to load it. The options
for backbone and images are those of experiments/evaluate.py. The folder holds README.md (the card),
adapter.safetensors and, where one lies beside the adapter, the record of its run as run.json. A few seconds, and the
upload.
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import huggingface_hub
from own_pictures import adapter_parser, evaluate

from pvera.errors import InputError, explained, run_script, writing
from pvera.study.evaluation import TITLES, Evaluation

ADAPTER, CARD, RECORD = "adapter.safetensors", "README.md", "run.json"
TEXT = """---
{metadata}
---

# {evaluation.title}

- Method: {method.title}
- Hyperparameters: {hyperparameters}
- Backbone: {frozen.name}, weights {frozen.weights_sha256}
- Protocol: {protocol}
- Seed: {evaluation.predictions.member.seed}

## Numbers

Computed from this file by `experiments/evaluate.py` on {images} test images of {evaluation.dataset}.

{tables}

## Use

```python
import pvera
from pvera import backbones

frozen = backbones.load("{frozen.name}", image_size={frozen.image_size})
model = pvera.load(frozen.model, "{file}").eval()
logits = model(images)  # (batch, 3, {frozen.image_size}, {frozen.image_size}), normalised by frozen.mean and .std
```

## Licence

`{licence}`, for the adapter. Backbone and images have licences of their own.
"""


def main() -> None:
    parser = adapter_parser(__doc__)
    parser.add_argument("--output", type=Path, metavar="FOLDER", required=True, help="new folder for the files")
    parser.add_argument("--repository", metavar="USER/NAME", help="push them to this model repository of the hub")
    parser.add_argument("--private", action="store_true", help="make the repository private, where it is made")
    parser.add_argument("--license", default="mit", help="of the adapter, as the hub names it (%(default)s)")
    options = parser.parse_args()
    if options.output.exists():
        raise InputError(f"{options.output} exists: --output names a new folder")
    evaluation = evaluate(options)
    with writing(options.output):
        options.output.mkdir(parents=True)
        shutil.copyfile(options.adapter, options.output / ADAPTER)
        if evaluation.predictions.adapter.record:
            shutil.copyfile(options.adapter.with_suffix(".json"), options.output / RECORD)
        card(evaluation, options.license).save(options.output / CARD)
    print(f"written: {options.output}")
    if options.repository:
        with explained(f"cannot push to {options.repository}", "`hf auth login` comes first"):
            address = huggingface_hub.create_repo(options.repository, private=options.private, exist_ok=True)
            huggingface_hub.upload_folder(repo_id=options.repository, folder_path=options.output)
        print(f"pushed: {address}")


def card(evaluation: Evaluation, licence: str) -> huggingface_hub.ModelCard:
    """Return the card of an adapter."""
    adapter, metrics, name = evaluation.predictions.adapter, evaluation.metrics, evaluation.dataset
    method = evaluation.predictions.member.method
    metadata = huggingface_hub.ModelCardData(
        license=licence,
        library_name="pvera",
        pipeline_tag="image-classification",
        tags=["adapter", "vision-transformer", method.key],
        model_name=evaluation.title,
        eval_results=[
            huggingface_hub.EvalResult(
                "image-classification", name, name, key, round(metrics[key], 6), dataset_split="test", metric_name=title
            )
            for key, title in TITLES.items()
        ],
    )
    text = TEXT.format(
        metadata=metadata,
        licence=licence,
        method=method,
        hyperparameters=", ".join(f"{key} {value}" for key, value in asdict(method).items()) or "none",
        protocol=adapter.record.get("protocol", "unknown"),
        evaluation=evaluation,
        images=metrics["images"],
        tables=evaluation.markdown(),
        frozen=adapter.frozen,
        file=ADAPTER,
    )
    return huggingface_hub.ModelCard(text)


if __name__ == "__main__":
    run_script(main)
