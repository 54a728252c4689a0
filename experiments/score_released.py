"""Score the authors' released adapters for DINOv2 ViT-B on the test sets of Table 1.

    python experiments/score_released.py --data data/vtab-1k --device cuda

Downloads facebook/dinov2-base and leoflx/pvera_dinov2_b_<name> for each data set, or takes the
adapters from a folder of such folders (--source). PVeRA predicts with its mean. The data come from
experiments/prepare_vtab.py. Takes minutes for each data set on a GPU, and hours on a CPU.

Writes results/released/accuracy.csv, a row for each data set with the paper's accuracy to compare;
rows of other data sets stay.
"""

from pathlib import Path

import pandas as pd
import torch
from huggingface_hub import snapshot_download
from options import DEVICE, RESULTS, ROOT, Parser

import pvera
from pvera.backbones import Backbone, weights_sha256
from pvera.data.image_splits import load_split
from pvera.data.vtab import copy_name, require
from pvera.errors import InputError, as_input_error, import_extra, run_script
from pvera.files import require_writable
from pvera.peft.folder import CONFIG
from pvera.report import published
from pvera.report.table import update_csv
from pvera.study.training import predict
from pvera.text_encoders import quiet

#: The released adapters' names of data sets, where they differ from ours.
OTHER_NAMES = {
    "oxford_flowers102": "flowers102",
    "oxford_iiit_pet": "pets",
    "patch_camelyon": "camelyon",
    "diabetic_retinopathy": "retinopathy",
    "clevr_count": "clevrcount",
    "clevr_dist": "clevrdist",
    "dsprites_loc": "dspritesloc",
    "dsprites_ori": "dspritesori",
    "kitti": "kittidist",
    "smallnorb_azi": "smallnorbazi",
    "smallnorb_ele": "smallnorbele",
}
REPOSITORY = "leoflx/pvera_dinov2_b_{}"
FILES = ["*.json", "*.safetensors"]
BACKBONE = "facebook/dinov2-base"
#: Height and width of the images.
SIZE = 224
#: ImageNet's normalisation, as for every DINOv2.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    """Score the adapters of the command line."""
    parser = Parser(__doc__)
    names = list(published.DATASETS)
    text = "only these"
    parser.add_argument(
        "--datasets", nargs="+", metavar="D", choices=names, default=names, help=text
    )
    text = "folder with a folder for each adapter, instead of the hub"
    parser.add_argument("--source", type=Path, help=text)
    text = "prepared data (%(default)s)"
    parser.add_argument("--data", type=Path, default=ROOT / "data/vtab-1k", help=text)
    text = "name on the hub, or folder (%(default)s)"
    parser.add_argument("--backbone", default=BACKBONE, help=text)
    parser.add_argument("--output", type=Path, default=RESULTS / "released", help="(%(default)s)")
    parser.device(DEVICE)
    options = parser.parse_args()

    # Everything that can be missing is looked for before the first adapter computes.
    for name in options.datasets:
        require(options.data, name)
    require_writable(options.output)
    folders = {name: find_adapter(name, options.source) for name in options.datasets}
    frozen = load_backbone(options.backbone, options.device)
    paper = published.load(RESULTS / "published").accuracies().loc["pvera"]
    for name, folder in folders.items():
        accuracy, test_images = score(frozen, folder, options.data, name)
        row = {
            "dataset": name,
            "paper": paper[name],
            "backbone": options.backbone,
            "copy": copy_name(options.data, name),
            "accuracy": accuracy,
            "test_images": test_images,
        }
        # Written after each data set: an interrupted call loses one.
        file = options.output / "accuracy.csv"
        table = update_csv(file, pd.DataFrame([row]), ["dataset", "backbone"])
    print(table.to_string(index=False, float_format="{:.1f}".format))


def find_adapter(name: str, source: Path | None) -> Path:
    """Return the folder of the adapter for a data set; it is downloaded without a `source`.

    Raises:
        InputError: `source` lacks it, or the download fails.
    """
    repository = REPOSITORY.format(OTHER_NAMES.get(name, name))
    if source is not None:
        folder = source / Path(repository).name
        if not (folder / CONFIG).is_file():
            raise InputError(f"{source} has no adapter for {name}: it must lie in {folder.name}")
        return folder
    advice = (
        f"get it elsewhere with `hf download {repository}` "
        "and give the folder that holds it with --source"
    )
    with as_input_error(f"cannot download {repository}", advice):
        return Path(snapshot_download(repository, allow_patterns=FILES))


def load_backbone(source: str, device: str) -> Backbone:
    """Load DINOv2 of transformers by its name on the hub or from a folder.

    Raises:
        InputError: That fails, or it is another model.
    """
    transformers = import_extra("transformers", "language")
    with as_input_error(f"cannot load {source}", "give its folder with --backbone"), quiet():
        model, report = transformers.Dinov2Model.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True
        )
    # transformers draws missing tensors at random.
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])[0]
        raise InputError(f"{source} is no DINOv2 of transformers: it lacks {missing}")
    model.to(device).eval()
    return Backbone(model, source, SIZE, MEAN, STD, weights_sha256(model.state_dict()))


def score(frozen: Backbone, folder: Path, data: Path, name: str) -> tuple[float, int]:
    """Return the accuracy of an adapter in percent, and the number of test images."""
    split = load_split(data, name, "test", SIZE)
    device = next(frozen.model.parameters()).device
    images = split.data(frozen, device, in_memory=False)
    with pvera.import_peft(folder, frozen.model).eval() as model:
        predicted = predict(model, images).argmax(1)
    return 100 * float((predicted == split.labels).mean()), len(predicted)


if __name__ == "__main__":
    run_script(main)
