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

#: The file that lists the accepted differences of each data set; it exists once the data were
#: prepared.
ACCEPTED_FILE = "vtab-1k.json"
#: The paper's 19 data sets.
NAMES = tuple(info.name for info in TASKS.values() if info.suite == "vtab")
#: Images of the split files that are used in training.
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


def find_differences(root: str | Path, name: str, check_files: bool = True) -> list[Difference]:
    """Find how the data set `name` below `root` differs from VTAB-1k; no image is decoded.

    Args:
        root: Folder of the data sets.
        name: One of `NAMES`.
        check_files: Whether to look for the image files too.
    """
    folder = Path(root) / name
    if not folder.is_dir():
        return [Difference("no such folder")]
    labels: dict[str, dict[str, int]] = {}
    differences: list[Difference] = []
    for split_file in SPLIT_FILES:
        try:
            labels[split_file] = read_split_file(folder, split_file, TASKS[name].classes)
        except InputError as error:
            # Not acceptable: no training could read it.
            reason = str(error).replace(f"{folder}{os.sep}", "")
            differences.append(Difference(f"{split_file}: {reason}"))
            continue
        expected = TRAINING_COUNTS.get(split_file, TASKS[name].test_images)
        if len(labels[split_file]) != expected:
            text = f"{split_file}: {len(labels[split_file])} images, not {expected}"
            differences.append(Difference(text, acceptable=True))

    differences += _compare_classes(name, labels)
    if not check_files:
        return differences
    for split_file, label_of in labels.items():
        missing = [path for path in label_of if not (folder / path).is_file()]
        if missing:
            text = (
                f"{split_file}: {len(missing)} images do not exist as files, one is {min(missing)}"
            )
            differences.append(Difference(text))
    return differences


def _compare_classes(name: str, labels: dict[str, dict[str, int]]) -> list[Difference]:
    """Compare the classes that the splits show.

    Args:
        name: The data set.
        labels: By split file, the label of each image.
    """
    classes = TASKS[name].classes
    parts = (
        ("training", tuple(TRAINING_COUNTS), TRAINING_CLASSES.get(name, classes)),
        ("test", ("test",), classes),
    )
    differences = []
    for part, split_files, expected in parts:
        seen: set[int] = set()
        for split_file in split_files:
            seen.update(labels.get(split_file, {}).values())
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


def require_vtab(root: str | Path, name: str) -> None:
    """Check that a data set has VTAB-1k's split files, or was accepted as it is.

    Data sets of other names pass.

    Raises:
        InputError: It differs; the message says what to do.
    """
    if name not in NAMES:
        return
    accepted = read_accepted(root).get(name, [])
    found = find_differences(root, name, check_files=False)
    differences = [difference.text for difference in found if difference.text not in accepted]
    if not differences:
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
        name: A data set, which decides alone. One whose originals are JPEG files is the same in
            both copies: there, as without a name, all others decide.

    Returns:
        "lossy" where data sets with lossless originals are JPEG files, "lossless" where they are
        not, "mixed" where both occur, None where no such data set is there. For an accepted data
        set, which is of neither copy: `DIFFERS`.
    """
    accepted = read_accepted(root)
    if name in accepted:
        return DIFFERS
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
    for split_file in SPLIT_FILES:
        # What cannot be read is reported by `find_differences`.
        with suppress(OSError, ValueError, IndexError):
            first_line = files.read_text(folder / f"{split_file}.txt").splitlines()[0]
            path = first_line.rsplit(maxsplit=1)[0]
            with Image.open(folder / path) as image:
                kinds.add("lossy" if image.format in ("JPEG", "MPO") else "lossless")
    return kinds
