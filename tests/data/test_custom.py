"""The user's own pictures: every form on disk, checks, splits; training, analyses and tables on them."""

import json
import re
import shutil

import photographs
import pytest
import scripts
from photographs import copy, pictures  # noqa: F401  fixtures
from PIL import ExifTags, Image
from tiny import refused

from pvera import InputError
from pvera.data import custom, image_folders
from pvera.data.image_folders import SPLIT_OF
from pvera.report import analyses
from pvera.report.tables import benchmark, uncertainty
from pvera.study import results

CLASSES = sorted(photographs.CLASSES)


def lists(root, name="mine") -> dict[str, dict[str, int]]:
    """Return the path and label of each picture, per split."""
    classes = image_folders.task(name, root).classes
    return {part: image_folders.read_split_file(root / name, split, classes) for part, split in SPLIT_OF.items()}


def splits_of(copy, *parts) -> None:
    """Turn class folders into folders of splits."""
    for of_class in list(copy.iterdir()):
        for i, file in enumerate(sorted(of_class.iterdir())):
            target = copy / parts[i % len(parts)] / of_class.name
            target.mkdir(parents=True, exist_ok=True)
            file.rename(target / file.name)
        of_class.rmdir()


def test_class_folders_get_a_stratified_split(pictures, tmp_path):
    described, parts = custom.install(tmp_path, "mine", pictures), lists(tmp_path)
    assert described["classes"] == CLASSES == image_folders.class_names("mine", tmp_path)
    assert described["images"] == {"train": 52, "validation": 12, "test": 16}, "20 per class: 13, 3 and 4"
    assert described["split"] == {"given": [], "drawn": custom.SHARES, "seed": 0}
    for part, count in (("train", 13), ("validation", 3), ("test", 4)):
        labels = list(parts[part].values())
        assert [labels.count(label) for label in range(4)] == [count] * 4
        assert all(path.split("/")[1] == CLASSES[label] for path, label in parts[part].items())
        assert len(set(labels[:12])) > 2, "not sorted by class"
    assert len(set().union(*parts.values())) == 80
    task = image_folders.task("mine", tmp_path)
    assert (task.title, task.category, task.classes, task.test_images) == ("mine", "own", 4, 16)


def test_split_and_order_follow_from_content_alone(pictures, copy, tmp_path):
    """Renamed files change nothing; a class more or less moves no picture of another."""
    for number, file in enumerate(sorted(pictures.rglob("*.*"), reverse=True)):
        place = tmp_path / "renamed" / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place / f"{number:03}{file.suffix}")
    shutil.rmtree(copy / "coffee")
    sources = {"as is": pictures, "renamed": tmp_path / "renamed", "fewer": copy}
    tables = {name: custom.split(source)[0] for name, source in sources.items()}
    assert tables["as is"].drop(columns="path").equals(tables["renamed"].drop(columns="path"))
    parts = {name: table[table.label == "rocket"].set_index("content").part for name, table in tables.items()}
    assert parts["as is"].equals(parts["fewer"])


def test_a_class_is_split_alike_for_ever():
    drawn = custom._draw("cat", list("abcdefghij"), custom.SHARES)
    assert "".join(part[1] for part in drawn.values()) == "rrrraeearr"  # of train, validation, test
    assert drawn != custom._draw("dog", list("abcdefghij"), custom.SHARES)


def test_splits_that_are_given_stay(copy, tmp_path):
    splits_of(copy, "train", "train", "val", "test")
    described = custom.install(tmp_path, "mine", copy)
    assert described["split"] == {"given": ["train", "validation", "test"], "drawn": {}}
    assert described["images"] == {"train": 40, "validation": 20, "test": 20}
    shutil.rmtree(copy / "val")
    described = custom.install(tmp_path, "mine", copy)
    assert described["split"] == {"given": ["train", "test"], "drawn": {"validation": 0.2}, "seed": 0}
    assert described["images"] == {"train": 32, "validation": 8, "test": 20}
    assert custom.current(tmp_path, "mine") == described
    assert all(path.startswith("images/train/") for path in lists(tmp_path)["validation"])
    for folder in sorted(copy.glob("*/*")):
        folder.rename(folder.with_name(str(9 + CLASSES.index(folder.name))))
    assert custom.split(copy)[1]["classes"] == ["9", "10", "11", "12"], "in the order of numbers"


def test_what_is_hidden_or_no_picture_is_left_out_and_links_are_followed_once(copy, tmp_path):
    (copy / "cat/notes.txt").write_text("a cat")
    shutil.copy(copy / "cat/grey1.png", copy / "cat/._grey1.png")
    shutil.copytree(copy / "astronaut", copy / "rocket/deep/@eaDir")
    (copy / ".trash").mkdir()
    shutil.copy(copy / "cat/grey1.png", copy)
    (copy / "coffee").rename(tmp_path / "elsewhere")
    for link, place in {"cat/more": "elsewhere", "cat/again": "elsewhere", "dog": "gone"}.items():
        (copy / link).symlink_to(tmp_path / place)
    (tmp_path / "elsewhere/loop").symlink_to(copy / "cat")
    described = custom.install(tmp_path, "mine", copy)
    assert described["classes"] == ["astronaut", "cat", "rocket"] and sum(described["images"].values()) == 80
    assert custom.describe("mine", described).endswith(
        "left out: 21 hidden, 2 outside the folders of classes, 1 without an image's suffix"
    )


def test_pictures_are_equal_by_their_pixels(copy):
    """In another format or mode, and turned by EXIF; alpha is dropped."""
    grey, turned = Image.open(copy / "cat/grey1.png"), Image.Exif()
    turned[ExifTags.Base.Orientation] = 3
    colour, alpha = grey.convert("RGB"), Image.linear_gradient("L").resize(grey.size)
    grey.save(copy / "cat/twin.bmp")
    colour.transpose(Image.Transpose.ROTATE_180).save(copy / "cat/twin1.png", exif=turned)
    Image.merge("RGBA", (*colour.split(), alpha)).save(copy / "cat/twin2.png")
    table, described = custom.split(copy)
    assert described["alike"] == 3 and custom.describe("mine", described).endswith("; with the pixels of another: 3")
    alike = table[table.path.str.contains("cat/twin|cat/grey1.png")]
    assert len(alike) == 4 and alike.part.nunique() == 1, "they stay in one split"
    splits_of(copy, "train", "val", "test")
    with pytest.raises(InputError, match="equal pictures in two splits .test/cat/"):
        custom.split(copy)


def keep(folder, *names) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def without_training_pictures(f) -> None:
    splits_of(f, "train", "val", "test")
    shutil.rmtree(f / "train/cat")


#: What each message is about: it changes the folder, and may return another source.
WRONG = {
    "is no folder": lambda f: f / "cat/grey1.png",
    "holds no pictures": lambda f: keep(f),
    "has one class, 'cat'; a classifier needs two or more": lambda f: keep(f, "cat"),
    "class 'cat' has 1 distinct pictures to split, and needs 3": lambda f: keep(f / "cat", "grey1.png"),
    "equal pictures with different labels (": lambda f: shutil.copy(f / "cat/grey1.png", f / "coffee/a.png") and None,
    "has no training picture of cat": without_training_pictures,
    "has splits, but none is named test": lambda f: splits_of(f, "train", "val"),
    "has splits, but none is named test and has a folder per class": lambda f: (
        splits_of(f, "train", "val") or (f / "test").mkdir()
    ),
    "cat/grey1.png cannot be read: ": lambda f: (f / "cat/grey1.png").write_text("cat") and None,
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_are_one_line(message, copy, tmp_path):
    source = WRONG[message](copy) or copy
    refused(lambda: custom.install(tmp_path, "mine", source), message)
    assert not (tmp_path / "mine").exists(), "an incomplete data set is never left"


def test_names_and_damaged_descriptions(pictures, tmp_path):
    (tmp_path / "photos").mkdir()
    for name, message in (("digits", "known already"), ("../a", "cannot name"), ("photos", "is no data set that")):
        with pytest.raises(InputError, match=message):
            custom.install(tmp_path, name, pictures)
    (tmp_path / "photos" / "own.json").write_text("{")
    with pytest.raises(InputError, match="own.json is damaged"):
        image_folders.task("photos", tmp_path)


# Training, analyses and tables


def options(tmp_path, *more) -> tuple:
    folders = ("--data", tmp_path / "data", "--results", tmp_path / "results")
    return *folders, "--device", "cpu", "--workers", 1, *more


def test_the_folder_alone_trains_pvera_and_its_record_says_how_it_was_split(pictures, tmp_path, capsys, in_process):
    """One seed, the corrected protocol; the printed command evaluates the adapter."""
    more = ("--data-set", f"photos={pictures}", "--epochs", 1)
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, *more))
    assert status == 0, errors
    counts, *_, last = output.splitlines()
    assert counts == custom.describe("photos", custom.current(tmp_path / "data", "photos"))
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert (run["method"], run["seed"], run["category"], run["test"]["images"]) == ("pvera", 0, "own", 16)
    own_data = {"split": {"given": [], "drawn": custom.SHARES, "seed": 0}, "classes": CLASSES}
    assert run["own_data"].pop("pictures_sha256") and run["own_data"] == own_data
    assert str(pictures) not in json.dumps(run)
    (command,) = re.findall(r"evaluate it: python experiments/evaluate.py (.+)", last)
    renamed = shutil.copytree(pictures, tmp_path / "renamed")  # which is split alike
    for index, file in enumerate(sorted(renamed.rglob("*.*"))):
        file.rename(file.with_stem(str(index)))
    elsewhere = (command.split()[0], "--data", tmp_path / "elsewhere", "--data-set", f"new={renamed}")
    for arguments in (command.split(), elsewhere):
        scripts.execute("evaluate", *arguments, "--metrics", tmp_path / "m.json")
        assert json.loads((tmp_path / "m.json").read_text())["metrics"] == run["test"]
    custom.install(tmp_path / "elsewhere", "photos", renamed)
    Image.new("RGB", (8, 8)).save(next(renamed.glob("cat/*.png")))
    changed = scripts.refusal("evaluate", capsys, *elsewhere[:-2])
    assert "the pictures of photos have changed since the adapter's training: restore them" in changed
    before = image_folders.manifest(tmp_path / "data", "photos")
    known = (command.split()[0], "--data", tmp_path / "data", "--data-set")
    assert "have changed" in scripts.refusal("evaluate", capsys, *known, f"photos={renamed}")
    assert image_folders.manifest(tmp_path / "data", "photos") == before, "what is refused replaces nothing"
    (renamed / "cat").rename(renamed / "lion")
    elsewhere = (*elsewhere[:-1], f"zoo={renamed}")
    assert "it does not know the classes of zoo" in scripts.refusal("evaluate", capsys, *elsewhere)


def test_analyses_and_tables_take_own_pictures(pictures, copy, tmp_path, in_process):
    """Two data sets with given and drawn splits share the tables."""
    splits_of(copy, "test", "val", "train", "train")
    names = ("--data-set", f"photos={pictures}", "--data-set", f"again={copy}", "--epochs", 1, "--learning-rate", 0.01)
    for script in ("train", "analyse"):
        scripts.execute(script, *options(tmp_path, *names))
    root = tmp_path / "results"
    assert uncertainty.datasets(analyses.load_uncertainty(root, "own")) == ["again", "photos"]
    assert results.load_runs(root, "own", "latents") and results.load_runs(root, "own", "out_of_distribution")
    page = benchmark.main(results.load_runs(root, "own")).markdown()
    assert "Avg. own" in page and "photos" in page and "| PVeRA |" in page
