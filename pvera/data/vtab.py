"""Checks of VTAB-1k on disk: is it complete, and which of the two circulating copies is it?"""

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pvera import files
from pvera.data.split_files import SPLIT_FILES, read_split_file
from pvera.data.tasks import TASKS
from pvera.errors import InputError

#: The file of the accepted differences, by data set, that differs from VTAB-1k and is used.
ACCEPTED_FILE = "vtab-1k.json"
#: The paper's 19 data sets.
NAMES = tuple(task.name for task in TASKS.values() if task.suite == "vtab")
#: Images of the splits that are used in training.
TRAINING_COUNTS = {"train800": 800, "val200": 200}
#: Classes that the 1,000 training images show where these are not all: of SUN397, 309 in train800
#: and 136 in val200.
TRAINING_CLASSES = {"sun397": 325}
#: Data sets whose originals are stored without loss. Originals of the others are JPEG files, as in
#: both copies.
LOSSLESS_ORIGINALS = (
    "cifar",
    "svhn",
    "patch_camelyon",
    "clevr_count",
    "clevr_dist",
    "dsprites_loc",
    "dsprites_ori",
    "kitti",
    "smallnorb_azi",
    "smallnorb_ele",
)
#: What results say of a data set that was accepted.
DIFFERS = "differs from VTAB-1k"


@dataclass(frozen=True)
class Difference:
    """One difference between a data set and VTAB-1k's."""

    #: The difference, as it is printed and recorded.
    text: str
    #: Whether it can be accepted: another number of images or classes, where all can be read.
    acceptable: bool = False


def find_differences(root: str | Path, name: str, images: bool = True) -> list[Difference]:
    """Find how the data set `name` below `root` differs from VTAB-1k; no image is decoded.

    Args:
        root: Folder of the data sets.
        name: One of `NAMES`.
        images: Whether to look for the image files too.
    """
    folder = Path(root) / name
    if not folder.is_dir():
        return [Difference("no such folder")]
    labels: dict[str, dict[str, int]] = {}
    differences: list[Difference] = []
    for split in SPLIT_FILES:
        try:
            labels[split] = read_split_file(folder, split, TASKS[name].classes)
        except InputError as error:
            # Not acceptable: no training could read it.
            reason = str(error).replace(f"{folder}{os.sep}", "")
            differences.append(Difference(f"{split}: {reason}"))
            continue
        expected = TRAINING_COUNTS.get(split, TASKS[name].test_images)
        if len(labels[split]) != expected:
            text = f"{split}: {len(labels[split])} images, not {expected}"
            differences.append(Difference(text, acceptable=True))

    differences += _compare_classes(name, labels)
    if not images:
        return differences
    for split, label_of in labels.items():
        missing = [path for path in label_of if not (folder / path).is_file()]
        if missing:
            text = f"{split}: {len(missing)} images do not exist as files, one is {min(missing)}"
            differences.append(Difference(text))
    return differences


def _compare_classes(name: str, labels: dict[str, dict[str, int]]) -> list[Difference]:
    """Compare the classes that the splits show, from the label of each image per split."""
    classes = TASKS[name].classes
    parts = (
        ("training", tuple(TRAINING_COUNTS), TRAINING_CLASSES.get(name, classes)),
        ("test", ("test",), classes),
    )
    differences = []
    for part, splits, expected in parts:
        seen: set[int] = set()
        for split in splits:
            seen.update(labels.get(split, {}).values())
        if len(seen) < expected:
            text = f"{part}: images of {len(seen)} classes, not {expected}"
            differences.append(Difference(text, acceptable=True))
    return differences


def read_accepted(root: str | Path) -> dict[str, list[str]]:
    """Read the accepted differences of each data set below `root`, as texts."""
    file = Path(root) / ACCEPTED_FILE
    if not file.exists():
        return {}
    return files.read_json(file, "remove it to record again")


def require(root: str | Path, name: str) -> None:
    """Check that a data set has VTAB-1k's split files, or was accepted as it is.

    Data sets of other names pass.

    Raises:
        InputError: It differs; the message says what to do.
    """
    if name not in NAMES:
        return
    differences = [difference.text for difference in find_differences(root, name, images=False)]
    accepted = read_accepted(root).get(name, [])
    if set(differences) <= set(accepted):
        return

    folder = Path(root) / name
    words = ["python", "experiments/prepare_vtab.py", "--root", str(root), "--datasets", name]
    command = f"`{shlex.join(words)}`"
    if folder.exists():
        advice = (
            f"{command} lists all differences; "
            "with --accept it is used as it is, and results say so"
        )
    else:
        advice = (
            f"{command} installs it from the hub, with --source COPY from an archive or a folder"
        )
    raise InputError(f"{folder} is not VTAB-1k's {TASKS[name].title}: {differences[0]}; {advice}")


def copy_name(root: str | Path, name: str | None = None) -> str | None:
    """Return which of the two circulating copies of VTAB-1k lies below `root`.

    The content of each split's first image decides.

    Args:
        root: Folder of the data sets.
        name: The data set that decides alone, unless the copies agree in it.

    Returns:
        "lossy" where data sets with lossless originals are JPEG files, "lossless" where they are
        not, "mixed" where both occur, None where no such data set is there. For an accepted data
        set, which is of neither copy: `DIFFERS`.
    """
    accepted = read_accepted(root)
    if name in accepted:
        return DIFFERS
    # Of JPEG originals both copies have JPEG files: there the other data sets decide.
    names = [name] if name in LOSSLESS_ORIGINALS else LOSSLESS_ORIGINALS
    kinds: set[str] = set()
    for other in names:
        if other not in accepted:
            kinds |= _copy_kinds(Path(root) / other)
    if len(kinds) > 1:
        return "mixed"
    return kinds.pop() if kinds else None


def _copy_kinds(folder: Path) -> set[str]:
    kinds = set()
    for split in SPLIT_FILES:
        # What cannot be read is reported by `find_differences`.
        with suppress(OSError, ValueError, IndexError):
            first_line = files.read_text(folder / f"{split}.txt").splitlines()[0]
            path = first_line.rsplit(maxsplit=1)[0]
            with Image.open(folder / path) as image:
                kinds.add("lossy" if image.format in ("JPEG", "MPO") else "lossless")
    return kinds
