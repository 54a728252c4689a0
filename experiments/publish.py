"""Write the card of a saved adapter, and push both to the Hugging Face hub.

    python experiments/publish.py ADAPTER --output FOLDER                   the folder alone, nothing is sent
    python experiments/publish.py ADAPTER --repository USER/NAME            pushed; `hf auth login` comes first

The card says method, data set, protocol and seed, numbers recomputed from the file, and how to load it. The options
for backbone and images are those of experiments/evaluate.py. The folder holds README.md (the card),
adapter.safetensors and, where one lies beside the adapter, the record of its run as run.json. A few seconds, and the
upload.
"""

import shutil
import tempfile
from pathlib import Path

from huggingface_hub import HfApi
from own_pictures import adapter_parser, evaluate

from pvera.errors import InputError, explained, run_script, writing
from pvera.study.evaluation import TITLES, Evaluation

ADAPTER, CARD, RECORD = "adapter.safetensors", "README.md", "run.json"
TEXT = """---
license: {licence}
library_name: pvera
pipeline_tag: image-classification
tags: [adapter, vision-transformer, {method.key}]
model-index:
- name: {evaluation.title}
  results:
  - task: {{type: image-classification}}
    dataset: {{type: {evaluation.dataset}, name: {evaluation.dataset}, split: test}}
    metrics:
{metrics}
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

frozen = backbones.load("{frozen.name}")
model = pvera.load(frozen.model, "{file}").eval()
logits = model(images)  # (batch, 3, {frozen.image_size}, {frozen.image_size}), normalised by frozen.mean and .std
```

## Licence

`{licence}`, for the adapter. Backbone and images have licences of their own.
"""


def main() -> None:
    parser = adapter_parser(__doc__)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to write the files; must be new or empty")
    parser.add_argument("--repository", metavar="USER/NAME", help="push them to this model repository of the hub")
    parser.add_argument("--private", action="store_true", help="make the repository private, where it is made")
    parser.add_argument("--license", default="mit", help="of the adapter, as the hub names it (%(default)s)")
    options = parser.parse_args()
    if not (options.output or options.repository):
        raise InputError("--output FOLDER writes the files, --repository USER/NAME pushes them: name one or both")
    if options.output and options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        raise InputError(f"{options.output} is not an empty folder")
    evaluation = evaluate(options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(options.adapter, folder / ADAPTER)
            if evaluation.predictions.adapter.record:
                shutil.copyfile(options.adapter.with_suffix(".json"), folder / RECORD)
            (folder / CARD).write_text(card(evaluation, options.license), encoding="utf-8")
        if options.output:
            print(f"written: {folder}")
        if options.repository:
            print(f"pushed: {push(folder, options.repository, options.private)}")


def card(evaluation: Evaluation, licence: str) -> str:
    """Return the card of an adapter, in Markdown with the hub's metadata."""
    adapter, metrics, method = evaluation.predictions.adapter, evaluation.metrics, evaluation.predictions.member.method
    of_hub = [f"    - {{type: {key}, name: {name}, value: {metrics[key]:.6f}}}" for key, name in TITLES.items()]
    return TEXT.format(
        licence=licence,
        method=method,
        hyperparameters=", ".join(f"{key} {value}" for key, value in method.describe().items()) or "none",
        protocol=adapter.record.get("protocol", "unknown"),
        evaluation=evaluation,
        metrics="\n".join(of_hub),
        images=metrics["images"],
        tables=evaluation.markdown(),
        frozen=adapter.frozen,
        file=ADAPTER,
    )


def push(folder: Path, repository: str, private: bool) -> str:
    """Push the files to the hub, in one commit, and return the repository's address. InputError if the hub refuses."""
    hub = HfApi()
    with explained(f"cannot push to {repository}", "`hf auth login` comes first"):
        address = hub.create_repo(repository, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Adapter with its card")
    return str(address)


if __name__ == "__main__":
    run_script(main)
