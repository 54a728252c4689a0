"""VTAB-1k: checks, and its installation from folders, archives and the hub."""

import errno
import io
import json
import os
import shutil
import tarfile
import zipfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import prepare_vtab
import pytest
import scripts
from PIL import Image
from rehearsal import write_vtab
from tiny import refused
from trained import make_data, make_profile

from pvera.data import inputs, split_files, store, tasks, vtab
from pvera.errors import InputError
from pvera.study import jobs, results
from pvera.study.plan import list_jobs
from pvera.study.profiles import Schedule

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def call(capsys):
    """Run the script in this process; return its exit code, output and error message."""
    return partial(scripts.outcome, "prepare_vtab", capsys)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """KITTI with all of its test images; no test changes it."""
    root = tmp_path_factory.mktemp("vtab")
    write_vtab(root, ["kitti"], 711)
    return root


def linked(folder: Path, target: Path) -> None:
    """Copy a data set's split files; its images become links to the same files."""
    shutil.copytree(folder, target, copy_function=os.link)
    for file in target.glob("*.txt"):
        content = file.read_text()
        file.unlink()  # of the link alone
        file.write_text(content)


def edit(file: Path, change) -> None:
    """Apply `change` to the list of a split file's lines."""
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(lines)))


def texts(differences: list[vtab.Difference]) -> list[str]:
    return [difference.text for difference in differences]


def state(output: str, name: str) -> str:
    """Return the state of a data set as prepare_vtab.py prints it."""
    (line,) = [line for line in output.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).strip()


@pytest.fixture
def kitti(whole, tmp_path):
    linked(whole / "kitti", tmp_path / "data" / "kitti")
    return tmp_path / "data"


#: List, its new first line, finding. Other wrong lines are those of `split_files.read_split_file`.
DAMAGES = [
    (
        "val200",
        "images/val200/0.png 4",
        "val200: val200.txt, line 1: expected 'relative/path label', of 4 labels",
    ),
    (
        "test",
        "images/test/zero.png 0",
        "test: 1 images do not exist as files, one is images/test/zero.png",
    ),
    (
        "test",
        "images/test/zero² 0",
        "test: 1 images do not exist as files, one is images/test/zero²",
    ),
    (
        "test",
        "images/test/not, 3 0",
        "test: 1 images do not exist as files, one is images/test/not, 3",
    ),
]


@pytest.mark.parametrize("split, line, finding", DAMAGES)
def test_wrong_files_are_reported(kitti, call, split, line, finding):
    assert vtab.find_differences(kitti, "kitti") == []
    edit(kitti / f"kitti/{split}.txt", lambda lines: [f"{line}\n", *lines[1:]])
    assert texts(vtab.find_differences(kitti, "kitti"))[0].startswith(finding)
    edit(kitti / "kitti/train800.txt", lambda lines: lines[1:])  # alone, a count could be accepted
    assert call("--root", kitti, "--datasets", "kitti", "--accept")[0] == 1, "nothing can read it"


# Which data train


#: Classes that train800 and val200 show: of SUN397, 309 and 136, and 325 together.
CLASSES = {"kitti": (range(4), range(4)), "sun397": (range(309), range(189, 325))}


@pytest.mark.parametrize("name", CLASSES)
def test_lists_show_all_classes(tmp_path, name):
    (tmp_path / name).mkdir()
    first, second = CLASSES[name]
    classes = tasks.find_data_set(name).classes
    counts = vtab.TRAINING_COUNTS | {"test": 400}
    for split, labels in {"train800": first, "val200": second, "test": range(classes)}.items():
        lines = [f"{split}/{i} {labels[i % len(labels)]}\n" for i in range(counts[split])]
        (tmp_path / name / f"{split}.txt").write_text("".join(lines))
    few = f"test: 400 images, not {tasks.find_data_set(name).test_images}"
    seen = len({*first, *second})
    assert texts(vtab.find_differences(tmp_path, name, check_files=False)) == [few]
    edit(
        tmp_path / name / "test.txt",
        lambda lines: [line.replace(f" {classes - 1}\n", " 0\n") for line in lines],
    )
    for split in vtab.TRAINING_COUNTS:
        edit(
            tmp_path / name / f"{split}.txt",
            lambda lines: [line.replace(f" {seen - 1}\n", " 0\n") for line in lines],
        )
    fewer = [
        f"training: images of {seen - 1} classes, not {seen}",
        f"test: images of {classes - 1} classes, not {classes}",
    ]
    assert texts(vtab.find_differences(tmp_path, name, check_files=False)) == [few, *fewer]


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, call):
    for arguments, message in (
        (["--datasets", "mnist"], "--datasets: invalid choice: 'mnist'"),
        (["--source", "/nowhere.zip"], "/nowhere.zip does not exist"),
        (["--source", __file__], "test_vtab.py: Unknown archive format"),
    ):
        code, _, errors = call("--root", tmp_path, *arguments)
        assert code == 2 and errors.startswith("error: ") and message in errors
    code, output, _ = call("--root", tmp_path, "--source", ROOT / "analysis", "--accept")
    assert code == 1 and "0 of 19 data sets can be used" in output
    (tmp_path / vtab.ACCEPTED_FILE).write_text("{")
    assert "vtab-1k.json is damaged" in call("--root", tmp_path)[2]


def wanted(root, *names) -> list[jobs.Job]:
    settings = {
        "seeds": [0],
        "methods": {"linear": {"learning_rate": 1e-2}},
        "schedule": Schedule(epochs=1),
    }
    return list_jobs(
        make_profile(root, names, data=str(root), **settings), "benchmark", root / "results"
    )


def test_a_difference_that_was_not_accepted_is_named(tmp_path, monkeypatch):
    found = [vtab.Difference("700 images"), vtab.Difference("no test.txt")]
    monkeypatch.setattr(vtab, "find_differences", lambda *_, **__: found)
    monkeypatch.setattr(vtab, "read_accepted", lambda root: {"eurosat": ["700 images"]})
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT: no test.txt;"):
        vtab.require_vtab(tmp_path, "eurosat")


def test_accepted_data_train_under_another_name(tmp_path, call):
    """A source need not hold all 19 data sets; the acceptance covers no other difference."""
    make_data(tmp_path / "mine", "eurosat")
    write_vtab(tmp_path / "mine", ["cifar"], side=32)
    root = tmp_path / "data"
    arguments = ("--root", root, "--source", tmp_path / "mine")
    code, output, _ = call(*arguments)
    assert code == 1 and {state(output, name) for name in ("cifar", "eurosat")} == {"wrong"}
    for accept in (["--accept"], []):
        code, output, _ = call(*arguments, *accept)
        assert code == (0 if accept else 1) and "2 of 19 data sets can be used" in output, (
            "it is recorded"
        )
        assert (
            state(output, "eurosat") == "accepted as it is" and "missing: caltech101, dtd" in output
        )
    assert call(*arguments, "--accept", "--datasets", "cifar", "dtd")[0] == 1, (
        "a data set that is named must be there"
    )
    listed = wanted(root, "cifar", "eurosat")
    inputs.check_inputs(listed)
    with pytest.raises(InputError, match="share no table"):
        inputs.check_inputs(wanted(root, "cifar", "digits"))
    for run in listed:
        run.execute()
    first, second = results.load_runs(root / "results", "mine")
    assert first["data_copy"] == second["data_copy"] == vtab.DIFFERS
    assert first["data_differs"] == texts(vtab.find_differences(root, "cifar"))
    edit(root / "eurosat" / "val200.txt", lambda lines: lines[1:])
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.check_inputs(wanted(root, "eurosat"))
    code, output, _ = call(*arguments, "--datasets", "eurosat")
    assert code == 1 and state(output, "eurosat") == "wrong"
    with pytest.raises(
        InputError, match="no such folder; `.*prepare_vtab.py .* dtd` installs it from the hub"
    ):
        inputs.data_sha256(wanted(root, "dtd")[0].data_key())


def test_the_copies_are_distinguished_by_content(tmp_path):
    write_vtab(tmp_path, ["caltech101"], suffix="jpg")
    assert vtab.copy_name(tmp_path) is None, "its originals are JPEG files"
    write_vtab(tmp_path, ["cifar"], suffix="jpg")
    assert vtab.copy_name(tmp_path) == "lossy"
    write_vtab(tmp_path, ["kitti"])
    assert vtab.copy_name(tmp_path) == vtab.copy_name(tmp_path, "caltech101") == "mixed"
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "kitti", "svhn")] == [
        "lossy",
        "lossless",
        None,
    ]
    for split in split_files.SPLIT_FILES:
        path = tmp_path / "kitti" / (tmp_path / f"kitti/{split}.txt").read_text().split()[0]
        path.unlink()
        Image.new("RGB", (8, 8)).save(path, "JPEG")
    assert vtab.copy_name(tmp_path, "kitti") == "lossy", "file names do not matter"
    write_vtab(tmp_path, ["svhn"])
    (tmp_path / vtab.ACCEPTED_FILE).write_text(json.dumps({"svhn": ["test: 3 images, not 26032"]}))
    assert vtab.copy_name(tmp_path) == "lossy", "accepted data are of neither copy"


# Sources: folders, archives, the hub


def options(root: Path, *more) -> tuple:
    return "--root", root, "--datasets", "kitti", *more


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def archive(folder: Path, file: Path, prefix: str = "vtab-1k/") -> Path:
    """Pack everything below `folder` into `file`."""
    paths = [
        (path, f"{prefix}{path.relative_to(folder)}")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as members:
            for path, name in paths:
                members.write(path, name)
    else:
        with tarfile.open(file, "w:gz") as members:
            for path, name in paths:
                members.add(path, name)
    return file


tar = pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="this Python extracts no tar file safely"
)


@pytest.mark.parametrize(
    "file, prefix", [("a.zip", "vtab-1k/"), pytest.param("a.tar.gz", "", marks=tar)]
)
def test_archives(whole, tmp_path, call, file, prefix):
    source = archive(whole, tmp_path / file, prefix)
    root = tmp_path / "data"
    code, output, _ = call(*options(root, "--source", source))
    assert (
        code == 0
        and state(output, "kitti") == "right"
        and left(root) == ["kitti", vtab.ACCEPTED_FILE]
    )
    (root / "kitti/mine").touch()
    assert call(*options(root, "--source", source))[0] == 0 and (root / "kitti/mine").exists(), (
        "what is there stays"
    )


@pytest.mark.parametrize(
    "names", [("copy.1.zip", "copy.2.zip"), pytest.param(("a.zip", "a.tar.gz"), marks=tar)]
)
def test_archives_whose_names_begin_alike_are_told_apart(tmp_path, names):
    for folder, data_set in {"first": "kitti", "second": "dtd", "third": "kitti"}.items():
        (tmp_path / folder / data_set).mkdir(parents=True)
        (tmp_path / folder / data_set / "test.txt").write_text("0.png 0\n")
    sources, extracted = tmp_path / "sources", tmp_path / "extracted"
    sources.mkdir()
    archive(tmp_path / "first", sources / names[0])
    archive(tmp_path / "second", sources / names[1])
    found = prepare_vtab.find_data_sets(sources, ["kitti", "dtd"], extracted)
    assert [found[name].parents[1] for name in ("kitti", "dtd")] == [
        extracted / name for name in names
    ]
    shutil.rmtree(extracted)
    archive(tmp_path / "third", sources / names[1])
    with pytest.raises(InputError, match=f"holds kitti twice, as .*{names[1]}/"):
        prepare_vtab.find_data_sets(sources, ["kitti"], extracted)


#: Archive, name of a member, its kind, where it links to, and how many files `extract` writes;
#: None: it refuses.
UNSAFE = [
    ("a.zip", "kitti/../../escaped", tarfile.REGTYPE, "", 0),
    ("a.zip", "kitti/escaped", tarfile.SYMTYPE, "../../outside", 1),
    pytest.param("a.tar", "{root}/kitti/escaped", tarfile.REGTYPE, "", 1, marks=tar),
    ("a.tar", "kitti/../../../escaped", tarfile.REGTYPE, "", None),
    ("a.tar", "kitti/escaped", tarfile.SYMTYPE, "../../outside", None),
    ("a.tar", "kitti/escaped", tarfile.LNKTYPE, "../../outside", None),
]


@pytest.mark.parametrize("file, name, kind, link, extracted", UNSAFE)
def test_nothing_in_an_archive_leaves_its_folder(tmp_path, file, name, kind, link, extracted):
    source = tmp_path / file
    target = tmp_path / "deep/target"
    name = name.format(root=tmp_path)
    (tmp_path / "outside").write_text("secret")
    if file == "a.zip":
        member = zipfile.ZipInfo(name)
        member.external_attr = (0o120777 if link else 0) << 16
        with zipfile.ZipFile(source, "w") as members:
            members.writestr(member, link or "content")
    else:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 0 if link else 7
        with tarfile.open(source, "w") as members:
            members.addfile(member, io.BytesIO(b"content"))
    before = {*tmp_path.rglob("*")}
    if extracted is None:
        refused(lambda: prepare_vtab.extract(source, target), f"cannot extract {source}: ")
    else:
        prepare_vtab.extract(source, target)
    written = {path for path in {*tmp_path.rglob("*")} - before if not path.is_dir()}
    assert len(written) == (extracted or 0)
    assert all(
        path.is_relative_to(target) and path.is_file() and not path.is_symlink() for path in written
    )


def test_a_wrong_source_does_not_take_a_right_ones_place(whole, tmp_path, call):
    root, half = tmp_path / "data", archive(whole, tmp_path / "half.zip")
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    for name in ("twice/lossless", "twice/lossy", "short"):
        linked(whole / "kitti", tmp_path / name / "kitti")
    edit(tmp_path / "short/kitti/val200.txt", lambda lines: lines[1:])
    for source, status, message in (
        (half, 2, "error: cannot extract "),
        (tmp_path / "twice", 2, "holds kitti twice"),
        (tmp_path / "short", 1, "val200: 199 images, not 200"),
    ):
        code, output, errors = call(*options(root, "--source", source))
        assert code == status and message in output + errors and left(root) == []
    code, output, _ = call(*options(root, "--source", tmp_path / "short", "--accept"))
    assert code == 0 and "accepted as it is" in output and (root / "kitti").is_symlink()
    assert vtab.read_accepted(root) == {"kitti": ["val200: 199 images, not 200"]}
    (tmp_path / "short").rename(tmp_path / "moved")
    code, output, _ = call(*options(root, "--source", whole))
    assert code == 0 and state(output, "kitti") == "right" and vtab.read_accepted(root) == {}, (
        "the link led nowhere"
    )


def test_the_hub_is_asked_again_and_a_full_disk_is_named(whole, tmp_path, call, monkeypatch):
    root, hub = tmp_path / "data", tmp_path / "hub"
    hub.mkdir()
    archive(whole, hub / "vtab-1k.zip")
    answers = iter([OSError("no\nnetwork"), hub, hub])

    def download(repository, repo_type, allow_patterns):
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    errors = call(*options(root))[2]
    assert errors.startswith(
        f"error: cannot download {prepare_vtab.REPO}: no network; run the same"
    )
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "unpack_archive", Mock(side_effect=full))
        assert "No space left" in call(*options(root))[2] and left(root) == []
    assert call(*options(root))[0] == 0 and left(root) == ["kitti", vtab.ACCEPTED_FILE]
