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
from argparse import Namespace
from pathlib import Path

from adapter_options import add_images, evaluated, parser
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HFValidationError

from pvera.errors import InputError, writing
from pvera.files import write_atomically
from pvera.study import cards
from pvera.study.script import run

ADAPTER, CARD, RECORD = "adapter.safetensors", "README.md", "run.json"


def parse() -> Namespace:
    made = parser(__doc__)
    add_images(made)
    made.add_argument("--output", type=Path, metavar="FOLDER", help="where to write the files; must be new or empty")
    made.add_argument("--repository", metavar="USER/NAME", help="push them to this model repository of the hub")
    made.add_argument("--private", action="store_true", help="make the repository private, where it is made")
    made.add_argument("--license", default=cards.LICENCE, help="of the adapter, as the hub names it (%(default)s)")
    options = made.parse_args()
    if not (options.output or options.repository):
        raise InputError("--output FOLDER writes the files, --repository USER/NAME pushes them: name one or both")
    if options.private and not options.repository:
        raise InputError("--private is for --repository")
    if options.repository and get_token() is None:
        raise InputError("--repository: the hub does not know you: run `hf auth login`, or put a token into HF_TOKEN")
    if options.output and options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        raise InputError(f"{options.output} is not an empty folder")
    return options


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary) / "adapter"
        write(options, folder)
        if options.output:
            print(f"written: {folder}")
        if options.repository:
            print(f"pushed: {push(folder, options.repository, options.private)}")


def write(options: Namespace, folder: Path) -> None:
    """Evaluate the adapter, and write it with its card to `folder`."""
    evaluation = evaluated(options)
    page = cards.card(evaluation, options.license, ADAPTER)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(options.adapter, folder / ADAPTER)
        if evaluation.record:
            shutil.copyfile(options.adapter.with_suffix(".json"), folder / RECORD)
    write_atomically(folder / CARD, page.encode())


def push(folder: Path, repository: str, private: bool) -> str:
    """Push the files to the hub, in one commit, and return the repository's address. InputError if the hub refuses."""
    hub = HfApi()
    try:
        address = hub.create_repo(repository, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Adapter with its card")
    except HFValidationError as error:
        raise InputError(f"--repository: {' '.join(str(error).split())}") from None
    except Exception as error:  # the transport's errors change with the client's version
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"cannot push to {repository}: {reason}") from None
    return str(address)


if __name__ == "__main__":
    run(main)
