"""Installing VTAB-1k from folders, from archives, and from the hub."""

import errno
import io
import os
import tarfile
import zipfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
import vtab_like
from vtab_like import cache, call, edit, state, whole  # noqa: F401  fixtures among them

from pvera.data import vtab, vtab_sources
from pvera.errors import InputError


def archive(folder: Path, file: Path, prefix: str = "vtab-1k/") -> Path:
    """Pack everything below `folder` into `file`."""
    paths = [(path, f"{prefix}{path.relative_to(folder)}") for path in sorted(folder.rglob("*")) if path.is_file()]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as members:
            for path, name in paths:
                members.write(path, name)
    else:
        with tarfile.open(file, "w:gz" if file.suffix == ".gz" else "w") as members:
            for path, name in paths:
                members.add(path, name)
    return file


def options(root: Path, *more) -> tuple:
    return "--root", root, "--datasets", "kitti", *more


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.mark.parametrize("file, prefix", [("a.zip", "vtab-1k/"), ("a.tar.gz", "./"), ("kitti.tar", "")])
def test_archives(whole, tmp_path, call, file, prefix):
    """One that is named after a data set may hold its files without a folder; others in the source are left."""
    vtab_like.write(tmp_path / "all", ["dtd"])
    vtab_like.copy(whole / "kitti", tmp_path / "all/kitti")
    source, root = archive(tmp_path / ("all" if prefix else "all/kitti"), tmp_path / file, prefix), tmp_path / "data"
    code, output, _ = call(*options(root, "--source", source))
    assert code == 0 and state(output, "kitti") == "right" and left(root) == ["kitti", vtab.RECORD]
    assert not (root / "kitti").is_symlink()
    assert (root / "kitti/test.txt").read_bytes() == (whole / "kitti/test.txt").read_bytes()
    (root / "kitti/mine").touch()
    assert call(*options(root, "--source", source))[0] == 0 and (root / "kitti/mine").exists(), "what is there stays"


#: Name of a member, its kind, where it links to, and whether `extract` puts it below its folder or refuses it.
UNSAFE = [
    ("a.zip", "kitti/../../escaped", tarfile.REGTYPE, "", True),
    ("a.zip", "{root}/kitti/escaped", tarfile.REGTYPE, "", True),
    ("a.zip", "kitti/escaped", tarfile.SYMTYPE, "../../outside", True),
    ("a.tar", "{root}/kitti/escaped", tarfile.REGTYPE, "", True),
    ("a.tar", "kitti/../../../escaped", tarfile.REGTYPE, "", False),
    ("a.tar", "kitti/escaped", tarfile.SYMTYPE, "../../outside", False),
    ("a.tar", "kitti/escaped", tarfile.LNKTYPE, "../../outside", False),
    ("a.tar", "kitti/escaped", tarfile.CHRTYPE, "", False),
]


@pytest.mark.parametrize("file, name, kind, link, extracted", UNSAFE)
def test_nothing_in_an_archive_leaves_its_folder(tmp_path, file, name, kind, link, extracted):
    source, target, name = tmp_path / file, tmp_path / "deep/target", name.format(root=tmp_path)
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
    with nullcontext() if extracted else pytest.raises(InputError, match=f"cannot extract {source}: "):
        vtab_sources.extract(source, target)
    written = list(tmp_path.rglob("*escaped*"))
    assert len(written) == extracted
    assert all(path.is_relative_to(target) and path.is_file() and not path.is_symlink() for path in written)


def broken(whole: Path, kind: str, folder: Path) -> Path:
    """Make a source of KITTI that is no source of it."""
    if kind == "twice":
        for name in ("lossless", "lossy"):
            vtab_like.copy(whole / "kitti", folder / name / "kitti")
    elif kind == "short list":
        vtab_like.copy(whole / "kitti", folder / "kitti")
        edit(folder / "kitti" / "val200.txt", lambda lines: lines[1:])
    else:
        file = archive(whole, folder.with_name(kind))
        size = file.stat().st_size // 2
        if file.suffix == ".tar":  # in a member, or between two: readers take the latter for a whole one
            with tarfile.open(file) as members:
                last = [member for member in members if member.isfile()][-1]
            size = last.offset_data + 1 if kind == "inside.tar" else last.offset
        file.write_bytes(file.read_bytes()[:size])
        return file
    return folder


BROKEN = {
    "half.zip": (2, "error: cannot extract "),
    "half.tar.gz": (2, "error: cannot extract "),
    "inside.tar": (2, "error: cannot extract "),
    "between.tar": (1, "left out"),
    "short list": (1, "val200: 199 images, not 200"),
    "twice": (2, "holds kitti twice, as lossless/kitti and as lossy/kitti"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_wrong_source_does_not_take_a_right_ones_place(whole, tmp_path, call, kind):
    root, (code, message) = tmp_path / "data", BROKEN[kind]
    ended, output, errors = call(*options(root, "--source", broken(whole, kind, tmp_path / "source")))
    assert ended == code and message in output + errors and left(root) == []
    ended, output, _ = call(*options(root, "--source", whole))
    assert ended == 0 and state(output, "kitti") == "right"


def test_a_wrong_folder_is_linked_where_it_is_accepted(whole, tmp_path, call):
    root, source = tmp_path / "data", broken(whole, "short list", tmp_path / "source")
    code, output, _ = call(*options(root, "--source", source, "--accept"))
    assert code == 0 and "accepted as it is" in output and (root / "kitti").is_symlink()
    assert vtab.read_record(root) == {"kitti": ["val200: 199 images, not 200"]}
    source.rename(tmp_path / "moved")
    assert call(*options(root, "--source", whole))[0] == 0, "the link leads nowhere"
    assert vtab.read_record(root) == {}


def test_a_damaged_archive_of_the_hub_is_removed_and_a_full_disk_keeps_it(whole, tmp_path, call, monkeypatch):
    root, content = tmp_path / "data", archive(whole, tmp_path / "vtab-1k.zip").read_bytes()
    half, served = len(content) // 2, []
    answers = [OSError("no\nnetwork"), content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :], content]

    def download(repository, repo_type, allow_patterns, local_dir):
        served.append((repository, repo_type, "*.zip" in allow_patterns))
        answer = answers[min(len(served), len(answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        local_dir.mkdir(exist_ok=True)
        (local_dir / "vtab-1k.zip").write_bytes(answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    code, _, errors = call(*options(root))
    assert code == 2 and errors.startswith(f"error: cannot download {vtab_sources.REPO}: no network; run the same")
    code, _, errors = call(*options(root))
    assert code == 2 and "cannot extract" in errors and left(root) == []
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extract", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        code, _, errors = call(*options(root))
    assert code == 2 and f"cannot write {root}: No space left" in errors and left(root) == [".download"]
    code, output, _ = call(*options(root))
    assert code == 0 and state(output, "kitti") == "right" and left(root) == ["kitti", vtab.RECORD]
    assert served == [("XiN0919/VTAB-1k", "dataset", True)] * 4
