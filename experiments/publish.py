"""Write the card of a saved adapter, and push both to the Hugging Face hub.

    python experiments/publish.py ADAPTER --output FOLDER                   the folder alone, nothing is sent
    python experiments/publish.py ADAPTER --repository USER/NAME            pushed; `hf auth login` comes first

The card says method, data set, protocol and seed, numbers recomputed from the file, and how to load it. The options
for backbone, images and evaluation are those of experiments/evaluate.py. The folder holds README.md (the card),
adapter.safetensors and, where one lies beside the adapter, the record of its run as run.json. A few seconds, and the
upload.
"""

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from adapter_options import evaluated, parser
from huggingface_hub import HfApi

from pvera.data import custom
from pvera.errors import InputError, writing
from pvera.files import sha256
from pvera.study import markdown, results
from pvera.study.evaluation import TITLES, Evaluation
from pvera.study.script import explained, run

ADAPTER, CARD, RECORD = "adapter.safetensors", "README.md", "run.json"
TEXT = """---
license: {licence}
library_name: pvera
pipeline_tag: image-classification
tags: [adapter, vision-transformer, {method.key}]
model-index:
- name: {title}
  results:
  - task: {{type: image-classification}}
    dataset: {{type: {dataset}, name: {dataset}, split: {part}}}
    metrics:
{metrics}
---

# {title}

{facts}

## Numbers

Computed from this file by `experiments/evaluate.py` on {images} images ({part}) of {dataset}.

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
    made = parser(__doc__)
    made.add_argument("--output", type=Path, metavar="FOLDER", help="where to write the files; must be new or empty")
    made.add_argument("--repository", metavar="USER/NAME", help="push them to this model repository of the hub")
    made.add_argument("--private", action="store_true", help="make the repository private, where it is made")
    made.add_argument("--license", default="mit", help="of the adapter, as the hub names it (%(default)s)")
    options = made.parse_args()
    if not (options.output or options.repository):
        raise InputError("--output FOLDER writes the files, --repository USER/NAME pushes them: name one or both")
    if options.output and options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        raise InputError(f"{options.output} is not an empty folder")
    evaluation = evaluated(options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(options.adapter, folder / ADAPTER)
            if evaluation.adapter.record:
                shutil.copyfile(options.adapter.with_suffix(".json"), folder / RECORD)
            (folder / CARD).write_text(card(evaluation, options.license), encoding="utf-8")
        if options.output:
            print(f"written: {folder}")
        if options.repository:
            print(f"pushed: {push(folder, options.repository, options.private)}")


def card(evaluation: Evaluation, licence: str) -> str:
    """Return the card of an adapter, in Markdown with the hub's metadata."""
    frozen, metrics, method = evaluation.adapter.frozen, evaluation.metrics, evaluation.member.method
    of_hub = [f"    - {{type: {key}, name: {name}, value: {metrics[key]:.6f}}}" for key, name in TITLES.items()]
    return TEXT.format(
        licence=licence,
        method=method,
        title=f"{method.title} for {frozen.name} on {evaluation.dataset}",
        dataset=evaluation.dataset,
        part=evaluation.part,
        metrics="\n".join(of_hub),
        facts="\n".join(f"- {key}: {markdown.escape(value)}" for key, value in facts(evaluation).items()),
        images=metrics["images"],
        tables=evaluation.tables(),
        frozen=frozen,
        file=ADAPTER,
    )


def facts(evaluation: Evaluation) -> dict[str, str]:
    """Return what is known of an adapter, by title."""
    frozen, record = evaluation.adapter.frozen, evaluation.adapter.record
    method = evaluation.member.method
    hyperparameters = asdict(cast(Any, method))
    known = {
        "Method": method.title,
        "Hyperparameters": ", ".join(f"{key} {value}" for key, value in hyperparameters.items()) or "none",
        "Backbone": f"{frozen.name}, weights {frozen.weights_sha256[:16]}",
        "Data set": f"{evaluation.dataset}, {len(evaluation.classes)} classes",
        "Seed": str(evaluation.member.seed),
        "Trained values": "{adapter} + {head} (head)".format(**evaluation.member.count()),
        "SHA-256": sha256(evaluation.adapter.path),
    }
    if record:
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
    return known


def push(folder: Path, repository: str, private: bool) -> str:
    """Push the files to the hub, in one commit, and return the repository's address. InputError if the hub refuses."""
    hub = HfApi()
    with explained(f"cannot push to {repository}", "`hf auth login` comes first"):
        address = hub.create_repo(repository, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Adapter with its card")
    return str(address)


if __name__ == "__main__":
    run(main)
