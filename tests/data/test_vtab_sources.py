"""Installing VTAB-1k from folders, from archives, and from the hub."""

import errno
import io
import os
import tarfile
import zipfile
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
import vtab_like
from vtab_like import cache, call, edit, state, whole  # noqa: F401  fixtures among them

from pvera.data import vtab, vtab_sources
from pvera.errors import InputError

# Archives


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


def unsafe(file: Path, name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    """Write an archive of one member; a zip file marks a link by its mode."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as members:
            member = zipfile.ZipInfo(name)
            member.external_attr = (0o120777 if link else 0) << 16
            members.writestr(member, "../../outside")
        return
    with tarfile.open(file, "w") as members:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 7 if kind == tarfile.REGTYPE else 0
        members.addfile(member, io.BytesIO(b"content"))


UNSAFE = [
    ("a.zip", "kitti/../../escaped"),
    ("a.zip", "/tmp/kitti/escaped"),
    ("a.zip", "kitti/escaped", tarfile.SYMTYPE, "../../outside"),
    ("a.tar", "/tmp/kitti/escaped"),
    ("a.tar", "kitti/../../../escaped"),
    ("a.tar", "kitti/escaped", tarfile.SYMTYPE, "../../outside"),
    ("a.tar", "kitti/escaped", tarfile.LNKTYPE, "../../outside"),
    ("a.tar", "kitti/escaped", tarfile.CHRTYPE),
]


@pytest.mark.parametrize("case", UNSAFE, ids=str)
def test_nothing_in_an_archive_leaves_its_folder(tmp_path, case):
    file, *member = case
    unsafe(tmp_path / file, *member)
    (tmp_path / "outside").write_text("secret")
    target = tmp_path / "deep" / "target"
    if file == "a.zip" or member[0].startswith("/"):
        vtab_sources.extract(tmp_path / file, target)
        (escaped,) = tmp_path.rglob("*escaped*")
        assert escaped.is_relative_to(target) and escaped.is_file() and not escaped.is_symlink()
    else:
        with pytest.raises(InputError, match=f"cannot extract {tmp_path / file}: "):
            vtab_sources.extract(tmp_path / file, target)
        assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/tmp/kitti/escaped").exists()


@pytest.mark.parametrize("file", ["a.zip", "a.tar.gz", "a.tar"])
def test_a_truncated_archive_leaves_nothing(whole, tmp_path, call, file):
    source = archive(whole, tmp_path / file)
    size = source.stat().st_size // 2
    if file == "a.tar":
        with tarfile.open(source) as members:
            size = members.getmembers()[-1].offset_data + 1
    source.write_bytes(source.read_bytes()[:size])
    code, _, errors = call("--root", tmp_path / "data", "--source", source)
    assert code == 2 and errors.splitlines()[-1].startswith(f"error: cannot extract {source}: ")
    assert left(tmp_path / "data") == []


def test_a_wrong_source_does_not_take_a_right_ones_place(whole, tmp_path, call):
    """Readers take a tar file that ends between two members for a whole one."""
    good, bad, root = archive(whole, tmp_path / "good.tar"), tmp_path / "bad.tar", tmp_path / "data"
    with tarfile.open(good) as members:
        last = [member for member in members if member.isfile()][-1]
    bad.write_bytes(good.read_bytes()[: last.offset])
    code, output, _ = call(*options(root, "--source", bad))
    assert code == 1 and state(output, "kitti") == "left out" and "--accept uses" in output
    assert not (root / "kitti").exists()
    code, output, _ = call(*options(root, "--source", good))
    assert code == 0 and state(output, "kitti") == "right"


def test_a_wrong_folder_is_not_linked_unless_it_is_accepted(whole, tmp_path, call):
    vtab_like.copy(whole / "kitti", tmp_path / "mine" / "kitti")
    edit(tmp_path / "mine" / "kitti" / "val200.txt", lambda lines: lines[1:])
    root = tmp_path / "data"
    code, output, _ = call(*options(root, "--source", tmp_path / "mine"))
    assert code == 1 and "val200: 199 images, not 200" in output and not (root / "kitti").exists()
    code, output, _ = call(*options(root, "--source", tmp_path / "mine", "--accept"))
    assert code == 0 and "accepted as it is" in output and (root / "kitti").is_symlink()
    assert vtab.read_record(root) == {"kitti": ["val200: 199 images, not 200"]}
    (tmp_path / "mine").rename(tmp_path / "moved")
    vtab_like.copy(whole / "kitti", tmp_path / "other" / "kitti")
    assert call(*options(root, "--source", tmp_path / "other"))[0] == 0, "the link leads nowhere"
    assert vtab.read_record(root) == {}


def test_two_copies_in_one_source_are_refused(whole, tmp_path, call):
    for name in ("lossless", "lossy"):
        vtab_like.copy(whole / "kitti", tmp_path / "both" / name / "kitti")
    code, _, errors = call("--root", tmp_path / "data", "--source", tmp_path / "both", "--datasets", "kitti")
    assert code == 2 and "holds kitti twice, as lossless/kitti and as lossy/kitti" in errors


# The hub


def test_an_archive_from_the_hub_is_removed_where_it_is_damaged_and_kept_where_the_disk_is_full(
    whole, tmp_path, call, monkeypatch
):
    root, content = tmp_path / "data", archive(whole, tmp_path / "vtab-1k.zip").read_bytes()
    half, asked = len(content) // 2, []
    served = [content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :], content, content]

    def download(repository, repo_type, allow_patterns, local_dir):
        asked.append((repository, repo_type, "*.zip" in allow_patterns))
        local_dir.mkdir(exist_ok=True)
        (local_dir / "vtab-1k.zip").write_bytes(served.pop(0))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    code, _, errors = call(*options(root))
    assert code == 2 and "cannot extract" in errors and left(root) == []
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extract", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        code, _, errors = call(*options(root))
    assert code == 2 and f"cannot write {root}: No space left" in errors and left(root) == [".download"]
    code, output, _ = call(*options(root))
    assert code == 0 and state(output, "kitti") == "right" and left(root) == ["kitti", vtab.RECORD]
    assert asked == [("XiN0919/VTAB-1k", "dataset", True)] * 3


def test_without_the_hub(tmp_path, call, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    code, _, errors = call(*options(tmp_path / "data"))
    assert code == 2 and errors.startswith(f"error: cannot download {vtab_sources.REPO}: no network; run the same")
