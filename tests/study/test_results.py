"""Result files: hashes, atomic writing, damage, and runs that cannot share a table."""

import json
import os

import numpy as np
import pytest
from records import make_record, write_all

from pvera.errors import InputError
from pvera.files import sha256
from pvera.study import results


def test_hash_depends_on_numbers_not_on_their_types():
    one = {"rank": 16, "lr": 1e-3, "betas": (0.9, 0.999)}
    same = {"betas": [0.9, 0.999], "lr": np.float64(0.001), "rank": np.int64(16)}
    assert results.config_hash(one) == results.config_hash(same) == results.config_hash(one | {"rank": 16.0})
    assert len(results.config_hash(one)) == 16
    for other in ({"lr": 1.0000001e-3}, {"rank": "16"}, {"rank": 17}, {"beta": None}):
        assert results.config_hash(one | other) != results.config_hash(one)


def test_write_then_read(tmp_path):
    record = make_record()
    probabilities, labels = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([1, 0])
    path = tmp_path / "deep" / "seed0.json"
    results.write(path, record, probabilities, labels)
    written = results.read(path)
    assert written == record | {"files": written["files"]}
    assert written["files"] == {".npz": sha256(path.with_suffix(".npz"))}
    read_probabilities, read_labels = results.read_predictions(path)
    assert read_probabilities.dtype == np.float16 and read_labels.dtype == np.int16
    np.testing.assert_array_equal(read_probabilities, probabilities)
    np.testing.assert_array_equal(read_labels, labels)
    assert sorted(p.name for p in path.parent.iterdir()) == ["seed0.json", "seed0.npz"]


def test_numbers_in_the_file(tmp_path):
    record = make_record()
    record["members"][0]["best_validation_loss"] = float("inf")
    record["members"][0]["curve"] = {"train_loss": [1 / 3, np.float32("nan"), 123456789.0], "kl": np.zeros(3)}
    record["note"] = "spaces [  stay \n in ] strings"
    path = tmp_path / "seed0.json"
    results.write(path, record)
    member = results.read(path)["members"][0]
    assert member["best_validation_loss"] is None
    assert member["curve"] == {"train_loss": [0.333333, None, 123457000.0], "kl": [0.0, 0.0, 0.0]}
    assert results.read(path)["note"] == record["note"]
    assert '"train_loss": [0.333333, null, 123457000.0]' in path.read_text()
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()


@pytest.mark.parametrize("fails_at", [1, 2])
def test_interrupted_writing_leaves_nothing(tmp_path, monkeypatch, fails_at):
    """Interrupted at write 1, of the predictions, or at write 2, of the record."""
    calls = []

    def interrupted(descriptor):
        calls.append(descriptor)
        if len(calls) == fails_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    path = tmp_path / "seed0.json"
    with pytest.raises(KeyboardInterrupt):
        results.write(path, make_record(), np.eye(2), np.arange(2))
    assert [p.name for p in tmp_path.iterdir()] == ["seed0.npz"][: fails_at - 1]
    assert not path.exists(), "the run is missing"


def test_replacing_a_run_leaves_nothing_of_the_old_one(tmp_path):
    path = tmp_path / "seed0.json"
    results.write(path, make_record(), np.eye(2), np.arange(2), b"an adapter")
    results.write(path, make_record(correct=6))
    assert [file.name for file in tmp_path.iterdir()] == ["seed0.json"]
    with pytest.raises(InputError, match="not kept"):
        results.read_predictions(path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_that_is_not_the_one_that_was_written_is_refused(tmp_path, suffix):
    path = tmp_path / "seed0.json"
    results.write(path, make_record(), np.eye(2), np.arange(2), b"an adapter")
    file = path.with_suffix(suffix)
    assert results.beside(path, suffix) == file
    file.write_bytes(file.read_bytes()[:-1])
    message = f"{file}: is gone, or was changed after it was written; delete {path} and"
    with pytest.raises(InputError, match=message):
        results.beside(path, suffix)
    file.unlink()
    with pytest.raises(InputError, match=message):
        results.beside(path, suffix)


def change(key, value):
    return lambda text: json.dumps(json.loads(text) | {key: value})


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda text: text[: len(text) // 2], "seed0.json is damaged: "),
        (change("schema", 1), "update this program, or delete the file"),
        (change("method", "prefix"), "unknown method 'prefix'"),
    ],
)
def test_damaged_records(tmp_path, damage, says):
    path = tmp_path / "seed0.json"
    results.write(path, make_record())
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=says) as caught:
        results.read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "other, says",
    [
        ({"protocol": "published"}, "protocol"),
        ({"config": {"precision": "bfloat16"}}, "precision"),
        ({"config": {"images": 16}}, "images"),
        ({"config": {"weights_sha256": "v"}}, "weights_sha256"),
        ({"config": {"data_sha256": "jpeg"}}, "data_sha256"),
    ],
)
def test_runs_that_may_not_share_a_table(tmp_path, other, says):
    second = {"method": "vera", "data_copy": "lossless"} | other
    write_all(tmp_path, [make_record("pvera", data_copy="lossless"), make_record(**second)])
    with pytest.raises(InputError, match=f"different {says}.* cannot share a table: .*digits/p?vera") as caught:
        results.load_runs(tmp_path, "mine")
    assert "\n" not in str(caught.value)
