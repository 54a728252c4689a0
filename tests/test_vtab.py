"""VTAB-1k put in place and checked, on folders of its shape and on a stand-in for the hub."""

import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import scripts
import vtab_like
from PIL import Image
from pvera import data, runs, store, vtab
from pvera.errors import InputError
from pvera.profiles import Profile
from pvera.training import Schedule

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "experiments" / "prepare_vtab.py"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def call(capsys):
    """The script, called in this process: its exit code, what it printed and its error message."""
    return partial(scripts.outcome, "prepare_vtab", capsys)


def row(output: str, name: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if line.startswith(f"{name} ")]
    return line.split()[2:]


def edit(file: Path, change) -> None:
    """`change` the list of a split file's lines."""
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(lines)))


def verdict(root, name="kitti", known={}, recorded={}, test_images=32) -> vtab.Verdict:
    return vtab.check(root, name, known, recorded, test_images)


# All of it


def test_all_nineteen_from_a_folder_to_the_store(tmp_path, call):
    vtab_like.write(tmp_path / "mine" / "vtab-1k")
    root = tmp_path / "data"
    arguments = ("--root", root, "--source", tmp_path / "mine", "--test-images", 32, "--size", 16)
    code, output, _ = call(*arguments)
    assert code == 0 and "19 of 19 data sets are right" in output
    assert all(row(output, name) == ["right"] * 4 for name in vtab.NAMES)
    assert "decoded smallnorb_ele (19 of 19)" in output and "copy: lossless, 32 test images" in output
    for name in vtab.NAMES:
        assert data.load_split(root, name, "test", 16).images.shape == (32, 16, 16, 3)

    record = json.loads((root / vtab.RECORD).read_text())
    assert record["copy"] == vtab.copy_name(root) == "lossless, 32 test images"
    assert set(record["datasets"]) == set(vtab.NAMES)
    assert record["datasets"]["dtd"]["origin"] == {"source": str(tmp_path / "mine")}
    lines = (root / "dtd" / "val200.txt").read_bytes()
    assert record["datasets"]["dtd"]["checksums"]["val200"] == hashlib.sha256(lines).hexdigest()

    # From now on names and labels are held to what was seen.
    edit(root / "dtd" / "test.txt", lambda lines: [lines[1], lines[0], *lines[2:]])
    code, output, _ = call("--root", root, "--check", "--no-decode")
    assert code == 1 and "18 of 19 data sets are right" in output
    assert row(output, "dtd") == ["right", "right", "right", "wrong"]
    assert "test: names and labels have changed since they were recorded in vtab-1k.json" in output
    assert call("--root", root, "--check", "--no-decode", "--datasets", "dtd", "cifar")[0] == 1
    assert call("--root", root, "--check", "--no-decode", "--datasets", "cifar")[0] == 0

    code, output, _ = call("--root", root, "--clear-cache")
    assert code == 0 and "removed 0.0" in output and not store.folder().exists()


# What can be wrong


DAMAGES = {
    "one test image too few": ("test.txt", lambda x: x[:-1], "test: 31 images, not 32"),
    "one training image twice": ("train800.txt", lambda x: x + x[:1], "train800: 801 images, not 800"),
    "short val200": ("val200.txt", lambda x: x[:199], "val200: 199 images, not 200"),
    "short train800val200": ("train800val200.txt", lambda x: x[:999], "train800val200: 999 images, not 1000"),
    "label beyond the classes": ("val200.txt", lambda x: [x[0].replace(" 0", " 4"), *x[1:]],
                                 "val200: val200.txt, line 1: label 4 is not one of 4 classes from 0"),
    "no such image": ("test.txt", lambda x: [x[0].replace("0.png", "zero.png"), *x[1:]],
                      "test: 1 images do not exist, one is images/test/zero.png"),
    "test image that is trained on": ("test.txt", lambda x: ["images/train800/5.png 1\n", *x[1:]],
                                      "test: 1 images are training images as well, one is images/train800/5"),
    "the same under another name": ("test.txt", lambda x: ["images/test/../val200/5.png 1\n", *x[1:]],
                                    "test: 1 images are training images as well, one is images/val200/5.png"),
    "validation image that is trained on": ("val200.txt", lambda x: ["images/train800/5.png 1\n", *x[1:]],
                                            "val200: 1 images are train800 images as well"),
    "a class without images": ("train800val200.txt", lambda x: [y.replace(" 3\n", " 2\n") for y in x],
                               "train800val200: no image of 1 of 4 classes"),
    "not a split file": ("test.txt", lambda x: ["images,label\n"], "test: test.txt, line 1: expected"),
    "path that leaves": ("test.txt", lambda x: ["../a.png 1\n", *x[1:]],
                         "test: test.txt, line 1: '../a.png' leaves"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("vtab")
    vtab_like.write(root, ["kitti"])
    return root


@pytest.fixture
def kitti(whole, tmp_path):
    shutil.copytree(whole / "kitti", tmp_path / "data" / "kitti", copy_function=os.link)
    for file in (tmp_path / "data" / "kitti").glob("*.txt"):
        content = file.read_text()
        file.unlink()  # of the link alone
        file.write_text(content)
    return tmp_path / "data"


@pytest.mark.parametrize("case", DAMAGES)
def test_what_is_wrong_is_said(kitti, case):
    file, change, message = DAMAGES[case]
    assert verdict(kitti).right
    edit(kitti / "kitti" / file, change)
    found, split = verdict(kitti), file.removesuffix(".txt")
    assert found.states == dict.fromkeys(data.SPLITS, "right") | {split: "wrong"}
    assert any(finding.startswith(message) for finding in found.findings), found.findings


def test_missing_splits_and_data_sets(kitti, call):
    assert verdict(kitti, test_images=None).findings == ["test: 32 images, not 711"]
    (kitti / "kitti" / "test.txt").unlink()
    code, output, _ = call("--root", kitti, "--check", "--datasets", "kitti", "dtd", "--no-decode")
    assert code == 1 and "0 of 2 data sets are right" in output
    assert row(output, "kitti") == ["right", "right", "right", "missing"]
    assert row(output, "dtd") == ["missing"] * 4
    assert "test: test.txt does not exist" in output and "no such folder" in output


def test_wrong_data_is_neither_recorded_nor_decoded(kitti, call):
    code, output, _ = call("--root", kitti, "--check", "--datasets", "kitti")
    assert code == 1 and "decoded" not in output and not (kitti / vtab.RECORD).exists()
    assert not store.folder().exists()


def test_sun397_lacks_a_class(tmp_path):
    vtab_like.write(tmp_path, ["sun397"])
    for file in ("train800.txt", "val200.txt", "train800val200.txt"):
        edit(tmp_path / "sun397" / file, lambda lines: [line.replace(" 396\n", " 395\n") for line in lines])
    found = verdict(tmp_path, "sun397")
    assert found.right and found.notes == ["train800val200: no image of 1 of 397 classes, as in every copy"]
    both = tmp_path / "sun397" / "train800val200.txt"
    edit(both, lambda lines: [line.replace(" 394\n", " 395\n") for line in lines])
    assert verdict(tmp_path, "sun397").findings == ["train800val200: no image of 2 of 397 classes"]


def test_equal_images_under_two_names_are_noted(kitti):
    image = kitti / "kitti" / "images" / "test" / "9.png"
    image.unlink()
    shutil.copy(kitti / "kitti" / "images" / "val200" / "0.png", image)
    found = verdict(kitti)
    assert found.right
    assert found.notes == ["test: 1 images equal a training image byte for byte, one is images/test/9.png"]


def test_published_checksums_are_held(kitti):
    seen = verdict(kitti).checksums
    assert set(seen) == set(data.SPLITS) and len(set(seen.values())) == 4
    assert verdict(kitti, known=seen, recorded=seen).right
    found = verdict(kitti, known=seen | {"val200": seen["test"]})
    assert found.findings == ["val200: names and labels are not those of the published copy"]


def test_the_table_of_published_checksums():
    for copy in ("lossy", "lossless"):
        for name, checksums in vtab.known_checksums(copy).items():
            assert name in vtab.NAMES and set(checksums) <= set(data.SPLITS)
            assert all(len(bytes.fromhex(checksum)) == 32 for checksum in checksums.values())
    assert vtab.known_checksums(None) == {}


def test_a_damaged_image_stops_with_its_name(kitti, call):
    image = kitti / "kitti" / "images" / "val200" / "7.png"
    content = image.read_bytes()
    image.unlink()
    image.write_bytes(content[: len(content) // 2])
    code, _, errors = call("--root", kitti, "--datasets", "kitti", "--test-images", 32, "--size", 16)
    assert code == 2 and errors.splitlines()[-1].startswith(f"error: image {image} cannot be read: ")


BAD = {
    "data set": (["--datasets", "mnist"], "unknown data set 'mnist'"),
    "size": (["--size", "0"], "--size: must be a whole number from 1"),
    "test images": (["--test-images", "-1"], "--test-images: must be a whole number from 1"),
    "source": (["--source", "/nowhere.zip"], "/nowhere.zip does not exist"),
    "no archive": (["--source", str(SCRIPT)], "is neither a folder nor an archive"),
    "empty source": (["--source", str(ROOT / "analysis")], "holds none of caltech101, cifar"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, call, case):
    arguments, message = BAD[case]
    code, output, errors = call("--root", tmp_path / "data", *arguments)
    assert code == 2 and output == ""
    assert errors.count("\n") == 1 and errors.startswith("error: ") and message in errors


def test_a_damaged_record_is_bad_input(kitti, call):
    (kitti / vtab.RECORD).write_text("{")
    code, _, errors = call("--root", kitti, "--check")
    assert code == 2 and "vtab-1k.json is damaged" in errors


# The two copies


def test_the_copies_are_told_apart_by_content(tmp_path):
    assert vtab.copy_name(tmp_path) is None
    vtab_like.write(tmp_path, ["caltech101"], suffix="jpg")
    assert vtab.copy_name(tmp_path) is None, "its originals are JPEG files"
    vtab_like.write(tmp_path, ["cifar"], suffix="jpg")
    assert vtab.copy_name(tmp_path) == "lossy"
    vtab_like.write(tmp_path, ["svhn"])
    assert vtab.copy_name(tmp_path) == vtab.copy_name(tmp_path, "caltech101") == "mixed"
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "svhn", "kitti")] == ["lossy", "lossless", None]
    shutil.rmtree(tmp_path / "cifar")
    assert vtab.copy_name(tmp_path) == "lossless"
    for split in data.SPLITS:
        path = (tmp_path / "svhn" / f"{split}.txt").read_text().split()[0]
        image = tmp_path / "svhn" / path
        image.unlink(missing_ok=True)
        Image.new("RGB", (8, 8)).save(image, "JPEG")
    assert vtab.copy_name(tmp_path) == "lossy", "whatever the files are called"


def test_mixed_copies_are_not_right(tmp_path, call):
    vtab_like.write(tmp_path, ["cifar"], suffix="jpg")
    vtab_like.write(tmp_path, ["svhn"])
    arguments = ("--root", tmp_path, "--check", "--no-decode", "--test-images", 32, "--datasets")
    code, output, _ = call(*arguments, "cifar", "svhn")
    assert vtab.copy_name(tmp_path, "svhn") == "lossless, 32 test images"
    assert vtab.copy_name(tmp_path, "kitti") == "32 test images"
    assert code == 1 and "2 of 2 data sets are right" in output and "must not share a table" in output


# Archives


def archive(folder: Path, file: Path, prefix: str = "vtab-1k/") -> Path:
    """Everything below `folder`, as `file`."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    paths = [(path, f"{prefix}{path.relative_to(folder)}") for path in files]
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as members:
            for path, name in paths:
                members.write(path, name)
    else:
        with tarfile.open(file, "w:gz" if file.suffix == ".gz" else "w") as members:
            for path, name in paths:
                members.add(path, name)
    return file


@pytest.mark.parametrize("file, prefix", [("a.zip", "vtab-1k/"), ("a.tar.gz", "./"), ("kitti.tar", "")])
def test_archives(whole, tmp_path, call, file, prefix):
    source = archive(whole / "kitti" if not prefix else whole, tmp_path / file, prefix)
    arguments = ("--root", tmp_path / "data", "--source", source, "--datasets", "kitti", "--no-decode")
    code, output, _ = call(*arguments, "--test-images", 32)
    assert code == 0 and row(output, "kitti") == ["right"] * 4
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [".lock", "kitti", vtab.RECORD]
    assert not (tmp_path / "data" / "kitti").is_symlink()
    assert (tmp_path / "data/kitti/test.txt").read_bytes() == (whole / "kitti/test.txt").read_bytes()

    # What is there is kept, unless it is to be replaced.
    (tmp_path / "data/kitti/mine").touch()
    assert call(*arguments)[0] == 0 and (tmp_path / "data/kitti/mine").exists()
    assert call(*arguments, "--replace")[0] == 0 and not (tmp_path / "data/kitti/mine").exists()


def test_only_what_is_asked_for_is_taken(tmp_path, call):
    vtab_like.write(tmp_path / "all", ["kitti", "dtd"])
    source = archive(tmp_path / "all", tmp_path / "all.zip")
    assert call("--root", tmp_path / "data", "--source", source, "--datasets", "dtd", "--no-decode",
                "--test-images", 32)[0] == 0
    assert not (tmp_path / "data" / "kitti").exists()


def zip_with(name: str, mode: int = 0):
    def write(file):
        with zipfile.ZipFile(file, "w") as members:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            members.writestr(member, "content")
    return write


def tar_with(name: str, kind: bytes = tarfile.REGTYPE, link: str = ""):
    def write(file):
        with tarfile.open(file, "w") as members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, 7 if kind == tarfile.REGTYPE else 0
            members.addfile(member, io.BytesIO(b"content"))
    return write


UNSAFE = {
    "zip, parent": ("a.zip", zip_with("kitti/../../escaped")),
    "zip, absolute": ("a.zip", zip_with("/tmp/kitti/escaped")),
    "zip, backslashes": ("a.zip", zip_with("kitti\\..\\..\\escaped")),
    "zip, link": ("a.zip", zip_with("kitti/escaped", 0o120777)),
    "tar, parent": ("a.tar", tar_with("kitti/../../escaped")),
    "tar, link out": ("a.tar", tar_with("kitti/escaped", tarfile.SYMTYPE, "../../outside")),
    "tar, absolute link": ("a.tar", tar_with("kitti/escaped", tarfile.SYMTYPE, "/etc")),
    "tar, hard link out": ("a.tar", tar_with("kitti/escaped", tarfile.LNKTYPE, "../../outside")),
    "tar, device": ("a.tar", tar_with("kitti/escaped", tarfile.CHRTYPE)),
    "tar, pipe": ("a.tar", tar_with("kitti/escaped", tarfile.FIFOTYPE)),
    "of no data set asked for": ("a.tar", tar_with("other/../../escaped")),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_unsafe_archives_are_refused(tmp_path, call, case):
    file, write = UNSAFE[case]
    write(tmp_path / file)
    code, output, errors = call("--root", tmp_path / "data", "--source", tmp_path / file)
    last = errors.splitlines()[-1]
    assert code == 2 and last.startswith(f"error: {tmp_path / file} is not safe to extract: ")
    assert not list(tmp_path.rglob("*escaped*"))
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]


@pytest.mark.parametrize("file", ["a.zip", "a.tar.gz", "a.tar"])
def test_a_truncated_archive_leaves_nothing(whole, tmp_path, call, file):
    source = archive(whole, tmp_path / file)
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    code, _, errors = call("--root", tmp_path / "data", "--source", source)
    assert code == 2 and errors.splitlines()[-1].startswith(f"error: cannot extract {source}: ")
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]


# The hub


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """Serves the files below `folder` as the data set repository me/vtab, as the hub does.

    broken_after: how many bytes it gives away, in all, before it refuses every request.
    ranges: the byte ranges that were asked for.
    """

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder, self.broken_after, self.ranges = folder, None, []
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def describe(self, name: str) -> dict:
        content = self.files[name]
        return {
            "type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest(),
            "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134},
        }


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reply(self, code: int, content: bytes, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def json(self, value):
        self.reply(200, json.dumps(value).encode(), Content_Type="application/json")

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        paths = json.loads(asked)["paths"]
        self.json([self.server.describe(name) for name in paths if name in self.server.files])

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(self.path.split("?")[0])
        if path.startswith("/api/datasets/me/vtab/tree/"):
            return self.json([self.server.describe(name) for name in self.server.files])
        if path.startswith("/api/datasets/me/vtab"):
            siblings = [{"rfilename": name} for name in self.server.files]
            return self.json({"id": "me/vtab", "sha": COMMIT, "siblings": siblings, "private": False,
                              "tags": [], "downloads": 0, "likes": 0})
        name = path.removeprefix(f"/datasets/me/vtab/resolve/{COMMIT}/")
        if name not in self.server.files:
            return self.reply(404, b"", X_Error_Code="EntryNotFound")
        content = self.server.files[name]
        headers = {"ETag": f'"{self.server.describe(name)["lfs"]["oid"]}"', "X_Repo_Commit": COMMIT,
                   "Accept_Ranges": "bytes"}
        code = 200
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or len(content)), len(content) - 1)
            self.server.ranges.append((first, last))
            headers["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            content, code = content[first : last + 1], 206
        if self.command == "GET" and self.server.broken_after is not None:
            self.server.broken_after -= len(content)
            if self.server.broken_after < 0:
                return self.reply(403, b"")
        self.reply(code, content, **headers)


@pytest.fixture
def hub():
    hubs = []
    yield lambda folder: hubs.append(Hub(folder)) or hubs[-1]
    for hub in hubs:
        hub.shutdown()
        hub.server_close()


def from_hub(hub: Hub, root: Path, *more) -> subprocess.CompletedProcess:
    """The script in a process of its own, since the hub's client reads its address when it is imported."""
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(root.parent / "hf"),
        "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", "import pvera.vtab as v, runpy, sys; v.BLOCK = 65536;"
               f"sys.path.insert(0, {str(SCRIPT.parent)!r}); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
               str(SCRIPT), "--root", str(root), "--repo", "me/vtab", "--datasets", "kitti", "--no-decode",
               "--test-images", "32", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)


def test_an_archive_from_the_hub_goes_on_where_it_stopped(whole, tmp_path, hub):
    (tmp_path / "repo").mkdir()
    source = archive(whole, tmp_path / "repo" / "vtab-1k.zip")
    size = source.stat().st_size
    assert size > 3 * 65536
    server, root = hub(tmp_path / "repo"), tmp_path / "data"
    server.broken_after = 2 * 65536
    broken = from_hub(server, root)
    assert broken.returncode == 2 and "Traceback" not in broken.stderr
    assert broken.stderr.splitlines()[-1].startswith("error: cannot download me/vtab: ")
    assert not (root / "kitti").exists()

    server.broken_after = None
    server.ranges.clear()
    done = from_hub(server, root)
    assert done.returncode == 0, done.stderr
    assert row(done.stdout, "kitti") == ["right"] * 4
    assert server.ranges[0][0] == 2 * 65536, "what was there is not downloaded again"
    record = json.loads((root / vtab.RECORD).read_text())
    origin = {"repo": "me/vtab", "revision": "main", "commit": COMMIT}
    assert record["datasets"]["kitti"]["origin"] == origin and record["copy"].startswith("lossless")
    assert not (root / ".download").exists()


def test_folders_from_the_hub(whole, tmp_path, hub):
    shutil.copytree(whole / "kitti", tmp_path / "repo" / "vtab" / "kitti", copy_function=os.link)
    (tmp_path / "repo" / "vtab" / "dtd").mkdir()
    (tmp_path / "repo" / "vtab" / "dtd" / "test.txt").write_text("a.png 1\n")
    for image in (tmp_path / "repo" / "vtab" / "kitti" / "images" / "train800").glob("[3-9]*.png"):
        image.unlink()  # a request per file: a few of them show it
    done = from_hub(hub(tmp_path / "repo"), tmp_path / "data")
    assert done.returncode == 1, done.stderr
    assert row(done.stdout, "kitti") == ["wrong", "right", "wrong", "right"]
    assert not (tmp_path / "data" / "dtd").exists() and not (tmp_path / "data" / ".download").exists()


# Real photographs


#: A zip of <class>/<number>.jpg.
PHOTOGRAPHS = os.environ.get("PVERA_CIFAR10_ZIP")


@pytest.mark.skipif(not PHOTOGRAPHS, reason="set PVERA_CIFAR10_ZIP to an archive of CIFAR-10's photographs")
def test_photographs_through_preparation_store_and_training(tmp_path, call):
    """CIFAR-10 in the place of SVHN, which has ten classes as well."""
    source = tmp_path / "source" / "svhn"
    with zipfile.ZipFile(PHOTOGRAPHS) as members:
        names = [name for name in members.namelist() if name.endswith(".jpg")]
        classes = sorted({name.split("/")[0] for name in names})
        drawn = np.random.default_rng(0).choice(sorted(names), 1400, replace=False)
        members.extractall(source, drawn)
    lines = [f"{name} {classes.index(name.split('/')[0])}\n" for name in drawn]
    parts = {"train800": slice(800), "val200": slice(800, 1000), "train800val200": slice(1000),
             "test": slice(1000, 1400)}
    for split, part in parts.items():
        (source / f"{split}.txt").write_text("".join(lines[part]))

    arguments = ("--root", tmp_path / "data", "--datasets", "svhn", "--test-images", 400, "--size", 32)
    code, output, errors = call(*arguments, "--source", source.parent)
    assert code == 0 and "copy: lossy, 400 test images" in output, errors
    profile = Profile(
        name="small", data=str(tmp_path / "data"), backbones=["tiny"], datasets=["svhn"], seeds=[0],
        protocol="corrected", methods={"linear": {"learning_rate": 1e-2}}, schedule=Schedule(epochs=5),
    )
    for function in (runs._backbone, runs._splits):
        function.cache_clear()
    (run,) = profile.benchmark(tmp_path / "results")
    runs.execute(run)
    record = json.loads(run.path.read_text())
    assert record["data_copy"] == "lossy, 400 test images"
    assert record["test"]["images"] == 400
    assert record["test"]["accuracy"] > 0.5, "the backbone was trained on such photographs"


def test_an_unsafe_member_is_an_input_error(tmp_path):
    zip_with("../escaped")(tmp_path / "a.zip")
    with pytest.raises(InputError, match="leaves the folder"):
        vtab.extract(tmp_path / "a.zip", tmp_path / "out", ["kitti"])
