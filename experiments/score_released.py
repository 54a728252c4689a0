"""Score the authors' released adapters for DINOv2 ViT-B on the test sets, beside Table 1.

    python experiments/score_released.py --data data/vtab-1k --device cuda

Downloads facebook/dinov2-base and leoflx/pvera_dinov2_b_<name> for each data set, or takes the adapters from a folder
of such folders (--source). PVeRA takes its mean. Writes results/released/accuracy.csv, a row for each data set; others
stay. The data come from experiments/prepare_vtab.py. Takes minutes for each data set on a GPU, and hours on a CPU.
"""

from pathlib import Path

import pandas as pd
import torch
from huggingface_hub import snapshot_download
from options import DEVICE, RESULTS, ROOT, Parser

import pvera
from pvera.backbones import Backbone, weights_sha256
from pvera.data import image_splits
from pvera.data.vtab import copy_name, require
from pvera.errors import InputError, as_input_error, import_extra, run_script
from pvera.files import require_writable
from pvera.peft.folder import CONFIG
from pvera.report import published
from pvera.report.table import update_csv
from pvera.study.training import predict
from pvera.text_encoders import quiet

#: The released adapters' names of data sets, where they differ from ours.
OTHER_NAMES = {"oxford_flowers102": "flowers102", "oxford_iiit_pet": "pets", "patch_camelyon": "camelyon",
               "diabetic_retinopathy": "retinopathy", "clevr_count": "clevrcount", "clevr_dist": "clevrdist",
               "dsprites_loc": "dspritesloc", "dsprites_ori": "dspritesori", "kitti": "kittidist",
               "smallnorb_azi": "smallnorbazi", "smallnorb_ele": "smallnorbele"}  # fmt: skip
REPOSITORY = "leoflx/pvera_dinov2_b_{}"
FILES = ["*.json", "*.safetensors"]
BACKBONE = "facebook/dinov2-base"
SIZE = 224
# ImageNet's, as for every DINOv2.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    parser = Parser(__doc__)
    names = list(published.DATASETS)
    parser.add_argument(
        "--datasets", nargs="+", metavar="D", choices=names, default=names, help="only these"
    )
    parser.add_argument(
        "--source", type=Path, help="folder with a folder for each adapter, instead of the hub"
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data/vtab-1k", help="prepared data (%(default)s)"
    )
    parser.add_argument(
        "--backbone", default=BACKBONE, help="name on the hub, or folder (%(default)s)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "released", help="(%(default)s)")
    parser.device(DEVICE)
    options = parser.parse_args()

    for name in options.datasets:
        require(options.data, name)
    require_writable(options.output)
    folders = {name: fetch(name, options.source) for name in options.datasets}
    frozen = load_backbone(options.backbone, options.device)
    paper = published.load(RESULTS / "published").accuracies().loc["pvera"]
    for name, folder in folders.items():
        split = image_splits.load_split(options.data, name, "test", SIZE)
        with pvera.import_peft(folder, frozen.model).eval() as model:
            predicted = predict(
                model, split.data(frozen, torch.device(options.device), in_memory=False)
            ).argmax(1)
        accuracy = 100 * float((predicted == split.labels).mean())
        row = (
            name,
            paper[name],
            options.backbone,
            copy_name(options.data, name),
            accuracy,
            len(predicted),
        )
        table = pd.DataFrame(
            [row], columns=["dataset", "paper", "backbone", "copy", "accuracy", "test_images"]
        )
        table = update_csv(options.output / "accuracy.csv", table, ["dataset", "backbone"])
    print(table.to_string(index=False, float_format="{:.1f}".format))


def fetch(name: str, source: Path | None) -> Path:
    """Return the folder of the adapter for a data set; downloads it without a `source`."""
    repository = REPOSITORY.format(OTHER_NAMES.get(name, name))
    if source is not None:
        folder = source / Path(repository).name
        if not (folder / CONFIG).is_file():
            raise InputError(f"{source} has no adapter for {name}: it must lie in {folder.name}")
        return folder
    advice = f"get it elsewhere with `hf download {repository}` and give the folder that holds it with --source"
    with as_input_error(f"cannot download {repository}", advice):
        return Path(snapshot_download(repository, allow_patterns=FILES))


def load_backbone(source: str, device: str) -> Backbone:
    """Load DINOv2 of transformers by its name on the hub or from a folder."""
    transformers = import_extra("transformers", "language")
    with as_input_error(f"cannot load {source}", "give its folder with --backbone"), quiet():
        model, report = transformers.Dinov2Model.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True
        )
    if report["missing_keys"]:  # transformers has drawn them at random
        raise InputError(
            f"{source} is no DINOv2 of transformers: it lacks {sorted(report['missing_keys'])[0]}"
        )
    model.to(device).eval()
    return Backbone(model, source, SIZE, MEAN, STD, weights_sha256(model.state_dict()))


if __name__ == "__main__":
    run_script(main)
