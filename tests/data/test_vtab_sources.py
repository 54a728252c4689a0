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


def options(root: Path, *more) -> tuple:
    return "--root", root, "--datasets", "kitti", *more


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def archive(folder: Path, file: Path, prefix: str = "vtab-1k/") -> Path:
    """Pack everything below `folder` into `file`."""
    paths = [(path, f"{prefix}{path.relative_to(folder)}") for path in sorted(folder.rglob("*")) if path.is_file()]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as members:
            for path, name in paths:
                members.write(path, name)
    else:
        with tarfile.open(file, "w:gz") as members:
            for path, name in paths:
                members.add(path, name)
    return file


@pytest.mark.parametrize("file, prefix", [("a.zip", "vtab-1k/"), ("kitti.tar.gz", "")])
def test_archives(whole, tmp_path, call, file, prefix):
    """One that is named after a data set may hold its files without a folder."""
    source, root = archive(whole if prefix else whole / "kitti", tmp_path / file, prefix), tmp_path / "data"
    code, output, _ = call(*options(root, "--source", source))
    assert code == 0 and state(output, "kitti") == "right" and left(root) == ["kitti", vtab.RECORD]
    (root / "kitti/mine").touch()
    assert call(*options(root, "--source", source))[0] == 0 and (root / "kitti/mine").exists(), "what is there stays"


#: Name of a member, its kind, where it links to, and whether `extract` puts it below its folder or refuses it.
UNSAFE = [
    ("a.zip", "kitti/../../escaped", tarfile.REGTYPE, "", True),
    ("a.zip", "kitti/escaped", tarfile.SYMTYPE, "../../outside", True),
    ("a.tar", "{root}/kitti/escaped", tarfile.REGTYPE, "", True),
    ("a.tar", "kitti/../../../escaped", tarfile.REGTYPE, "", False),
    ("a.tar", "kitti/escaped", tarfile.SYMTYPE, "../../outside", False),
    ("a.tar", "kitti/escaped", tarfile.LNKTYPE, "../../outside", False),
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
    before = {*tmp_path.rglob("*")}
    with nullcontext() if extracted else pytest.raises(InputError, match=f"cannot extract {source}: "):
        vtab_sources.extract(source, target)
    written = {path for path in {*tmp_path.rglob("*")} - before if not path.is_dir()}
    assert len(written) == extracted
    assert all(path.is_relative_to(target) and path.is_file() and not path.is_symlink() for path in written)


def test_a_wrong_source_does_not_take_a_right_ones_place(whole, tmp_path, call):
    root, half = tmp_path / "data", archive(whole, tmp_path / "half.zip")
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    for name in ("twice/lossless", "twice/lossy", "short"):
        vtab_like.copy(whole / "kitti", tmp_path / name / "kitti")
    edit(tmp_path / "short/kitti/val200.txt", lambda lines: lines[1:])
    for source, status, message in ((half, 2, "error: cannot extract "), (tmp_path / "twice", 2, "holds kitti twice"),
                                    (tmp_path / "short", 1, "val200: 199 images, not 200")):  # fmt: skip
        code, output, errors = call(*options(root, "--source", source))
        assert code == status and message in output + errors and left(root) == []
    code, output, _ = call(*options(root, "--source", tmp_path / "short", "--accept"))
    assert code == 0 and "accepted as it is" in output and (root / "kitti").is_symlink()
    assert vtab.read_record(root) == {"kitti": ["val200: 199 images, not 200"]}
    (tmp_path / "short").rename(tmp_path / "moved")
    code, output, _ = call(*options(root, "--source", whole))
    assert code == 0 and state(output, "kitti") == "right" and vtab.read_record(root) == {}, "the link led nowhere"


def test_a_damaged_archive_of_the_hub_is_removed_and_a_full_disk_keeps_it(whole, tmp_path, call, monkeypatch):
    root, content = tmp_path / "data", archive(whole, tmp_path / "vtab-1k.zip").read_bytes()
    answers = [OSError("no\nnetwork"), content[:-100], content, content]

    def download(repository, repo_type, allow_patterns, local_dir):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        local_dir.mkdir(exist_ok=True)
        (local_dir / "vtab-1k.zip").write_bytes(answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    errors = call(*options(root))[2]
    assert errors.startswith(f"error: cannot download {vtab_sources.REPO}: no network; run the same")
    assert "cannot extract" in call(*options(root))[2] and left(root) == []
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extract", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        assert f"cannot write {root}: No space left" in call(*options(root))[2] and left(root) == [".download"]
    assert call(*options(root))[0] == 0 and left(root) == ["kitti", vtab.RECORD]
