"""The user's own pictures: forms on disk, checks, splits; training, analyses and tables."""

import json
import os
import shutil
import threading
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import photographs
import pytest
import scripts
from photographs import copy, pictures  # noqa: F401  fixtures
from PIL import ExifTags, Image
from tiny import refused

from pvera import InputError
from pvera.data import custom, picture_folders, split_files, store, tasks
from pvera.data.split_files import FILE_OF
from pvera.report import analysis_results
from pvera.report.tables import benchmark, uncertainty
from pvera.study import results

CLASSES = sorted(photographs.CLASSES)


def lists(root, name="mine") -> dict[str, dict[str, int]]:
    """Return the path and label of each picture, per split."""
    classes = tasks.find_data_set(name, root).classes
    return {
        part: split_files.read_split_file(root / name, split, classes)
        for part, split in FILE_OF.items()
    }


def splits_of(copy, *parts) -> None:
    """Turn class folders into folders of splits."""
    for folder in list(copy.iterdir()):
        for i, file in enumerate(sorted(folder.iterdir())):
            target = copy / parts[i % len(parts)] / folder.name
            target.mkdir(parents=True, exist_ok=True)
            file.rename(target / file.name)
        folder.rmdir()


def test_class_folders_get_a_stratified_split(pictures, tmp_path):
    described, parts = custom.install(tmp_path, "mine", pictures), lists(tmp_path)
    assert described["classes"] == CLASSES == tasks.class_names("mine", tmp_path)
    assert described["images"] == {"train": 52, "validation": 12, "test": 16}, (
        "20 per class: 13, 3 and 4"
    )
    assert described["split"] == {"given": [], "drawn": custom.SHARES, "seed": 0}
    for part, count in (("train", 13), ("validation", 3), ("test", 4)):
        labels = list(parts[part].values())
        assert [labels.count(label) for label in range(4)] == [count] * 4
        assert all(path.split("/")[1] == CLASSES[label] for path, label in parts[part].items())
        assert len(set(labels[:12])) > 2, "not sorted by class"
    assert len(set().union(*parts.values())) == 80
    task = tasks.find_data_set("mine", tmp_path)
    assert (task.title, task.category, task.classes, task.test_images) == ("mine", "own", 4, 16)


def test_split_and_order_follow_from_content_alone(pictures, copy, tmp_path):
    """Renamed files change nothing; a class more or less moves no picture of another."""
    for number, file in enumerate(sorted(pictures.rglob("*.*"), reverse=True)):
        folder = tmp_path / "renamed" / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / f"{number:03}{file.suffix}")
    shutil.rmtree(copy / "coffee")
    sources = {"as is": pictures, "renamed": tmp_path / "renamed", "fewer": copy}
    tables = {name: custom.read_and_split(source)[0] for name, source in sources.items()}
    assert tables["as is"].drop(columns="path").equals(tables["renamed"].drop(columns="path"))
    parts = {
        name: table[table.label == "rocket"].set_index("content").split
        for name, table in tables.items()
    }
    assert parts["as is"].equals(parts["fewer"])


def test_a_class_is_split_alike_for_ever():
    part_of = custom._split_class("cat", list("abcdefghij"), custom.SHARES)
    # The second letters of train, validation and test.
    assert "".join(part_of[content][1] for content in "abcdefghij") == "rrrraeearr"
    assert part_of != custom._split_class("dog", list("abcdefghij"), custom.SHARES)


def test_a_class_of_three_pictures_has_one_in_each_split():
    assert sorted(custom._split_class("cat", list("abc"), custom.SHARES).values()) == [
        "test",
        "train",
        "validation",
    ]
    assert sorted(custom._split_class("cat", list("ab"), {"validation": 0.2}).values()) == [
        "train",
        "validation",
    ]


def test_splits_that_are_given_stay(copy, tmp_path):
    splits_of(copy, "train", "train", "val", "test")
    described = custom.install(tmp_path, "mine", copy)
    assert described["split"] == {"given": ["train", "validation", "test"], "drawn": {}}
    assert described["images"] == {"train": 40, "validation": 20, "test": 20}
    shutil.rmtree(copy / "val")
    described = custom.install(tmp_path, "mine", copy)
    assert described["split"] == {
        "given": ["train", "test"],
        "drawn": {"validation": 0.2},
        "seed": 0,
    }
    assert described["images"] == {"train": 32, "validation": 8, "test": 20}
    assert custom.current_manifest(tmp_path, "mine") == described
    assert all(path.startswith("images/train/") for path in lists(tmp_path)["validation"])


def test_what_is_hidden_or_no_picture_is_left_out_and_links_are_followed_once(copy, tmp_path):
    (copy / "cat/notes.txt").write_text("a cat")
    shutil.copy(copy / "cat/grey1.png", copy / "cat/._grey1.png")
    shutil.copytree(copy / "astronaut", copy / "rocket/deep/@eaDir")
    shutil.copy(copy / "cat/grey1.png", copy)
    renamed(copy / "cat/grey9.png", "a\u2028b.png")
    (copy / "coffee").rename(tmp_path / "elsewhere")
    links = {"cat/more": "elsewhere", "cat/again": "elsewhere", "dog": "gone"}
    for link, target in links.items():
        (copy / link).symlink_to(tmp_path / target)
    (tmp_path / "elsewhere/loop").symlink_to(copy / "cat")
    described = custom.install(tmp_path, "mine", copy)
    assert (
        described["classes"] == ["astronaut", "cat", "rocket"]
        and sum(described["images"].values()) == 80
    )
    assert custom.describe("mine", described).endswith(
        "; left out: 3 files; with the pixels of another: 0"
    ), "notes, a broken link, and a picture outside the folders of classes"
    assert sum(map(len, lists(tmp_path).values())) == 80


SYSTEM = "#snapshot", "~snapshot", "@__thumb", "RECYCLER", "Network Trash Folder", ".stversions"


def test_folders_of_file_servers_are_no_classes(copy):
    """Beside classes, beside splits and inside a class."""
    splits_of(copy, "train", "val", "test")
    for number, name in enumerate(SYSTEM):
        above = copy / ("", "train", "train/cat")[number % 3]
        shutil.copytree(copy / "test/cat", above / name)
    shutil.copy(copy / "test/cat/exif14.JPG", copy / "test/._exif14.JPG")
    (copy / "test/notes.txt").write_text("a cat")
    described = custom.read_and_split(copy)[1]
    assert described["classes"] == CLASSES
    assert described["left_out"] == picture_folders.find_pictures(copy)[1] == 1


def test_folders_of_the_system_may_be_closed(copy, monkeypatch):
    (copy / "lost+found").mkdir()
    (copy / "dog").mkdir()
    iterdir = Path.iterdir

    def closed(folder):
        if folder.name in ("lost+found", "dog"):
            raise PermissionError(13, "Permission denied")
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", closed)
    refused(lambda: custom.read_and_split(copy), "dog cannot be read: [Errno 13]")
    (copy / "dog").rmdir()
    assert custom.read_and_split(copy)[1]["left_out"] == 0


@pytest.mark.parametrize("name", ["café", "\u212b"], ids=["accent", "sign of Ångström"])
def test_a_class_is_one_in_all_forms_of_unicode(name, copy):
    """File systems and archives write composed or decomposed letters."""
    splits_of(copy, "train", "val", "test")
    for part, form in {"train": "NFC", "val": "NFD", "test": "NFD"}.items():
        (copy / part / "cat").rename(copy / part / unicodedata.normalize(form, name))
    table, described = custom.read_and_split(copy)
    assert (
        len(described["classes"]) == 4
        and unicodedata.normalize("NFC", name) in described["classes"]
    )
    assert table.label.value_counts().tolist() == [20] * 4


def test_pictures_are_equal_by_their_pixels(copy):
    """In another format or mode, and turned by EXIF; alpha is dropped."""
    grey, turned = Image.open(copy / "cat/grey1.png"), Image.Exif()
    turned[ExifTags.Base.Orientation] = 3
    colour, alpha = grey.convert("RGB"), Image.linear_gradient("L").resize(grey.size)
    grey.save(copy / "cat/twin.bmp")
    colour.transpose(Image.Transpose.ROTATE_180).save(copy / "cat/twin1.png", exif=turned)
    Image.merge("RGBA", (*colour.split(), alpha)).save(copy / "cat/twin2.png")
    table, described = custom.read_and_split(copy)
    assert described["alike"] == 3 and custom.describe("mine", described).endswith(
        "; with the pixels of another: 3"
    )
    alike = table[table.path.str.contains("cat/twin|cat/grey1.png")]
    assert len(alike) == 4 and alike.split.nunique() == 1, "they stay in one split"
    splits_of(copy, "train", "val", "test")
    with pytest.raises(InputError, match="equal pictures in two splits .test/cat/"):
        custom.read_and_split(copy)


def test_added_pictures_count_as_changed(copy, tmp_path):
    installed = custom.install(tmp_path, "mine", copy)
    Image.new("RGB", (8, 8)).save(copy / "cat/new.png")
    current = custom.current_manifest(tmp_path, "mine")
    assert current["pictures_sha256"] != installed["pictures_sha256"]
    assert tasks.read_manifest(tmp_path, "mine") == installed, "nothing is written"


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
    "class 'cat' needs 3 distinct pictures at least to be split, and has 1": lambda f: keep(
        f / "cat", "grey1.png"
    ),
    "class 'cat' needs 3 distinct pictures at least to be split, and has 2": lambda f: keep(
        f / "cat", "grey1.png", "jpeg0.jpg"
    ),
    "equal pictures with different labels (": lambda f: (
        shutil.copy(f / "cat/grey1.png", f / "coffee/a.png") and None
    ),
    "has no training picture of cat": without_training_pictures,
    "has splits, but none is named test": lambda f: splits_of(f, "train", "val"),
    "has splits, but none is named test and has a folder per class": lambda f: (
        splits_of(f, "train", "val") or (f / "test").mkdir()
    ),
    "cat/grey1.png cannot be read: ": lambda f: (f / "cat/grey1.png").write_text("cat") and None,
    r"rename 'cat/a\nb.png': a line break": lambda f: renamed(f / "cat/grey1.png", "a\nb.png"),
    r"\udcb2/grey1.png'; ": lambda f: renamed(
        f / "cat", os.fsdecode(b"\xb2")
    ),  # ² of another encoding
    "dog is the folder of a class, but holds no pictures that Pillow reads and 2 other files: "
    "convert": lambda f: holding(f / "dog", "1.HEIC", "2.heic", ".3.JPG", "@eaDir/1.jpg"),
}


def renamed(path, name) -> None:
    path.rename(path.with_name(name))


def holding(folder, *names) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("message", WRONG)
def test_errors_are_one_line(message, copy, tmp_path):
    source = WRONG[message](copy) or copy
    assert "remove" not in refused(lambda: custom.install(tmp_path, "mine", source), message)
    assert not (tmp_path / "mine").exists(), "an incomplete data set is never left"


def test_names_and_damaged_descriptions(pictures, tmp_path):
    (tmp_path / "photos").mkdir()
    for name, message in (
        ("digits", "known already"),
        ("../a", "cannot name"),
        ("photos", "is no data set that"),
    ):
        assert "remove" not in refused(lambda: custom.install(tmp_path, name, pictures), message)
    (tmp_path / "photos" / "own.json").write_text("{")
    with pytest.raises(InputError, match="own.json is damaged"):
        tasks.find_data_set("photos", tmp_path)


def test_what_a_killed_installation_left_is_taken_up(pictures, tmp_path):
    (tmp_path / ".mine.partial/images").mkdir(parents=True)
    described = custom.install(tmp_path, "mine", pictures)
    assert described == custom.current_manifest(tmp_path, "mine")
    assert {path.name for path in tmp_path.iterdir()} == {".mine.lock", "mine"}


def test_of_two_installations_at_once_one_waits(pictures, tmp_path, monkeypatch):
    custom.read_and_split(pictures)  # whose digests the store keeps
    write, writing, written = custom.files.write_atomically, threading.Event(), []

    def slowly(file, content):
        writing.set()
        time.sleep(0.05)  # in which the other starts
        written.append(file.name)
        write(file, content)

    monkeypatch.setattr(custom.files, "write_atomically", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(custom.install, tmp_path, "mine", pictures)
        writing.wait(10)
        second = pool.submit(custom.install, tmp_path, "mine", pictures)
        assert first.result() == second.result() == tasks.read_manifest(tmp_path, "mine")
    assert len(written) == 4, "three lists and the description, once"


# Training, analyses and tables


def options(tmp_path, *more) -> tuple:
    folders = ("--data", tmp_path / "data", "--results", tmp_path / "results")
    return *folders, "--device", "cpu", "--workers", 1, *more


@pytest.fixture
def trained(pictures, tmp_path, capsys, in_process) -> tuple[dict, list[str]]:
    """Train PVeRA on the pictures as `photos`; return its record and the lines it prints."""
    more = ("--data-set", f"photos={pictures}", "--epochs", 1)
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, *more))
    assert status == 0, errors
    (record,) = results.load_runs(tmp_path / "results", "own")
    return record, output.splitlines()


def renamed_files(pictures, folder) -> Path:
    """Copy the pictures; their new names change nothing about their splits."""
    shutil.copytree(pictures, folder)
    for index, file in enumerate(sorted(folder.rglob("*.*"))):
        file.rename(file.with_stem(str(index)))
    return folder


def printed_adapter(lines: list[str]) -> str:
    """Return the adapter that a training names in its last line."""
    return lines[-1].removeprefix("adapter: ")


def test_the_folder_alone_trains_pvera_and_its_record_says_how_it_was_split(
    trained, pictures, tmp_path
):
    """One seed, the corrected protocol."""
    record, lines = trained
    assert lines[0] == custom.describe(
        "photos", custom.current_manifest(tmp_path / "data", "photos")
    )
    assert (record["method"], record["seed"], record["category"]) == ("pvera", 0, "own")
    assert record["test"]["images"] == 16
    own_data = {"split": {"given": [], "drawn": custom.SHARES, "seed": 0}, "classes": CLASSES}
    assert record["own_data"].pop("pictures_sha256") and record["own_data"] == own_data
    assert str(pictures) not in json.dumps(record)


def test_the_printed_adapter_is_evaluated_and_changed_pictures_are_refused(
    trained, pictures, tmp_path, capsys
):
    record, lines = trained
    adapter = printed_adapter(lines)
    folder = renamed_files(pictures, tmp_path / "renamed")
    here = (adapter, "--data", tmp_path / "data")
    elsewhere = (adapter, "--data", tmp_path / "elsewhere")
    for arguments in (here, (*elsewhere, "--data-set", f"new={folder}")):
        scripts.execute("evaluate", *arguments, "--metrics", tmp_path / "m.json")
        assert json.loads((tmp_path / "m.json").read_text())["metrics"] == record["test"]

    custom.install(tmp_path / "elsewhere", "photos", folder)
    Image.new("RGB", (8, 8)).save(next(folder.glob("cat/*.png")))
    message = "the pictures of photos have changed since the adapter's training: restore them"
    assert message in scripts.refusal("evaluate", capsys, *elsewhere)
    before = tasks.read_manifest(tmp_path / "data", "photos")
    known = (*here, "--data-set", f"photos={folder}")
    assert "have changed" in scripts.refusal("evaluate", capsys, *known)
    # What is refused replaces nothing.
    assert tasks.read_manifest(tmp_path / "data", "photos") == before

    (folder / "cat").rename(folder / "lion")
    zoo = (*elsewhere, "--data-set", f"zoo={folder}")
    assert "it does not know the classes of zoo" in scripts.refusal("evaluate", capsys, *zoo)


def test_a_listing_compares_settings_and_replaces_nothing(trained, pictures, tmp_path, capsys):
    """Other pictures are refused before a training."""
    before = tasks.read_manifest(tmp_path / "data", "photos")
    lists = (*options(tmp_path), "--epochs", 1, "--data-set")
    for listing in ("--list", "--status"):
        status, output, _ = scripts.outcome("train", capsys, *lists, f"photos={pictures}", listing)
        assert status == 0 and "missing: " not in output
    folder = renamed_files(pictures, tmp_path / "renamed")
    Image.new("RGB", (8, 8)).save(next(folder.glob("cat/*.png")))
    status, _, _ = scripts.outcome("train", capsys, *lists, f"photos={folder}", "--list")
    assert status == 0
    assert tasks.read_manifest(tmp_path / "data", "photos") == before


@pytest.mark.parametrize("listing", ["--list", "--status"])
def test_a_listing_writes_nothing(pictures, copy, tmp_path, capsys, listing):
    """Neither for new pictures nor for others under a known name."""
    custom.install(tmp_path / "data", "known", pictures)
    (copy / "cat/grey1.png").unlink()
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    stored = {*store.store_folder().iterdir()}
    data_sets = ("--data-set", f"known={copy}", "--data-set", f"new={copy}")
    status, output, errors = scripts.outcome(
        "train", capsys, *options(tmp_path, *data_sets, listing)
    )
    assert (status, errors) == (0, "") and "known" in output and "new" in output
    assert before == {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert stored == {*store.store_folder().iterdir()}


def test_analyses_and_tables_take_own_pictures(pictures, copy, tmp_path, in_process):
    """Two data sets with given and drawn splits share the tables."""
    splits_of(copy, "test", "val", "train", "train")
    names = (
        "--data-set",
        f"photos={pictures}",
        "--data-set",
        f"again={copy}",
        "--epochs",
        1,
        "--learning-rate",
        0.01,
    )
    for script in ("train", "analyse"):
        scripts.execute(script, *options(tmp_path, *names))
    root = tmp_path / "results"
    runs = uncertainty.sort_by_dataset(analysis_results.load_sampled_adapters(root, "own"))
    assert [run.record["dataset"] for run in runs] == ["again", "photos"]
    assert results.load_runs(root, "own", "latents") and results.load_runs(
        root, "own", "out_of_distribution"
    )
    page = benchmark.main_table(results.load_runs(root, "own")).markdown()
    assert "Avg. own" in page and "photos" in page and "| PVeRA |" in page
