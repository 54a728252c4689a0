"""Result files: hashes, atomic writing, damage; workers: claims, failures, other workers."""

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from records import make_record, predictions, write_all
from small import until
from torch.multiprocessing import ProcessExitedException
from windows import refuse_open_files

from pvera import InputError
from pvera.files import sha256
from pvera.study import results, worker
from pvera.study.jobs import Run
from pvera.study.plan import Plan
from pvera.study.worker import claimed, failure_file, failure_reason, work, work_together

ROOT = Path(__file__).resolve().parents[2]


def test_hash_depends_on_numbers_not_on_their_types():
    one = {"rank": 16, "lr": 1e-3, "betas": (0.9, 0.999)}
    same = {"betas": [0.9, 0.999], "lr": np.float64(0.001), "rank": np.int64(16)}
    assert (
        results.config_hash(one)
        == results.config_hash(same)
        == results.config_hash(one | {"rank": 16.0})
    )
    assert len(results.config_hash(one)) == 16
    for other in ({"lr": 1.0000001e-3}, {"rank": "16"}, {"rank": 17}, {"beta": None}):
        assert results.config_hash(one | other) != results.config_hash(one)


def test_write_then_read(tmp_path):
    record = make_record()
    probabilities, labels = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([1, 0])
    path = tmp_path / "deep" / "seed0.json"
    results.write(path, record, predictions(probabilities, labels))
    written = results.read_record_dict(path)
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
    record["members"][0]["curve"] = {
        "train_loss": [1 / 3, np.float32("nan"), 123456789.0],
        "kl": np.zeros(3),
    }
    record["note"] = "spaces [  stay \n in ] strings"
    path = tmp_path / "seed0.json"
    results.write(path, record)
    written = results.read_record(path)
    member = written.members[0]
    assert member.best_validation_loss is None
    assert member.curve == {"train_loss": [0.333333, None, 123457000.0], "kl": [0.0, 0.0, 0.0]}
    assert written.model_extra["note"] == record["note"]
    assert '"train_loss":[0.333333,null,123457000.0]' in path.read_text()
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()


@pytest.mark.parametrize(
    "name",
    [
        "vtab_tiny/latent_dropout/tiny/smallnorb_ele/vera/seed4",
        "synthetic/latent_dropout/tiny/scenes/vera/seed4",
        "synthetic/focus/tiny/digits/pvera/seed2",
    ],
)
def test_a_committed_record_is_written_again_byte_for_byte(name):
    """Of accepted data, of a training and of an analysis: order of keys and formats of numbers."""
    path = ROOT / f"results/{name}.json"
    record = results.read_record(path)
    content = record.model_dump(by_alias=True, exclude_unset=True)
    assert results.to_json(content) == path.read_text(encoding="utf-8")


def test_every_committed_record_keeps_its_content():
    for path in (ROOT / "results").rglob("seed*.json"):
        content = results.read_record_dict(path)
        assert json.loads(results.to_json(content, path)) == content, path


def test_a_record_with_a_wrong_key_is_not_written(tmp_path):
    record = make_record()
    del record["members"][0]["epochs"]
    with pytest.raises(InputError, match=r"seed0.json: members.0.epochs: is missing$"):
        results.write(tmp_path / "seed0.json", record)
    assert not list(tmp_path.iterdir())


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
        results.write(path, make_record(), predictions(np.eye(2), np.arange(2)))
    assert [p.name for p in tmp_path.iterdir()] == ["seed0.npz"][: fails_at - 1]
    assert not path.exists(), "the run is missing"


def test_replacing_a_run_leaves_nothing_of_the_old_one(tmp_path):
    path = tmp_path / "seed0.json"
    results.write(path, make_record(), predictions(np.eye(2), np.arange(2)), b"an adapter")
    results.write(path, make_record(correct=6))
    assert [file.name for file in tmp_path.iterdir()] == ["seed0.json"]
    with pytest.raises(InputError, match="not kept"):
        results.read_predictions(path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_that_is_not_the_one_that_was_written_is_refused(tmp_path, suffix):
    path = tmp_path / "seed0.json"
    results.write(path, make_record(), predictions(np.eye(2), np.arange(2)), b"an adapter")
    file = path.with_suffix(suffix)
    assert results.kept_file(path, suffix) == file
    file.write_bytes(file.read_bytes()[:-1])
    message = f"{file}: is gone, or was changed after it was written; delete {path} and"
    with pytest.raises(InputError, match=message):
        results.kept_file(path, suffix)
    file.unlink()
    with pytest.raises(InputError, match=message):
        results.kept_file(path, suffix)


def change(key, value):
    return lambda text: json.dumps(json.loads(text) | {key: value})


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda text: text[: len(text) // 2], "seed0.json is damaged: "),
        (change("schema", 1), "update this program, or delete the file"),
        (lambda text: "[]", "update this program, or delete the file"),
        (change("method", "prefix"), "unknown method 'prefix'"),
        (lambda text: json.dumps({"schema": results.SCHEMA}), "unknown method None"),
    ],
)
def test_damaged_records(tmp_path, damage, says):
    path = tmp_path / "seed0.json"
    results.write(path, make_record())
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=says) as caught:
        results.read_record(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "other, says",
    [
        ({"protocol": "published"}, "protocol"),
        ({"config": {"precision": "bfloat16"}}, "precision"),
        ({"config": {"images": 16}}, "images"),
        ({"config": {"weights_sha256": "v"}}, "weights_sha256"),
        ({"config": {"data_sha256": "jpeg"}}, "data_sha256"),
        ({"data_differs": ["test: 9 images, not 10"]}, "accepted data"),
    ],
)
def test_runs_that_may_not_share_a_table(tmp_path, other, says):
    second = {"method": "vera", "data_copy": "lossless"} | other
    write_all(tmp_path, [make_record("pvera", data_copy="lossless"), make_record(**second)])
    with pytest.raises(
        InputError, match=f"different {says}.* cannot share a table: .*digits/p?vera"
    ) as caught:
        results.load_runs(tmp_path, "mine")
    assert "\n" not in str(caught.value)


# Workers


EXPERIMENTS = ("beta", "benchmark")


def names(runs) -> list[str]:
    return [f"{run.folder}/{run.method}/{run.seed}" for run in runs]


def test_what_a_run_needs_is_found_first(plan):
    assert names(plan.jobs()) == [
        "beta/pvera/0",
        *(f"benchmark/{m}/{s}" for s in (0, 1) for m in ("linear", "lora")),
    ]
    work(plan)
    assert len(plan.jobs()) == 7 and plan.missing() == []
    search = plan.jobs()[0]
    assert search.label == "beta/tiny/vessels/pvera/seed0"
    before = {path: path.stat().st_mtime_ns for path in plan.root.rglob("seed*")}
    assert {path.suffix for path in before} == {".json", ".npz", ".safetensors"}, "no lock is left"
    work(plan)
    assert before == {path: path.stat().st_mtime_ns for path in plan.root.rglob("seed*")}


def test_results_of_another_configuration_are_replaced_on_request_only(plan, folder):
    work(plan)
    other = plan.profile.replaced(schedule=plan.profile.schedule.replaced(epochs=1))
    with pytest.raises(
        InputError, match="^5 result files were made with another configuration, .*--replace"
    ):
        Plan(other, EXPERIMENTS, plan.root).missing()
    replacing = Plan(other, EXPERIMENTS, plan.root, replace=True)
    work(replacing)
    assert Plan(other, EXPERIMENTS, plan.root).missing() == []


def test_a_claimed_run_is_left_to_its_worker(plan, monkeypatch):
    """The others go on, and wait for what it does."""
    mine, *others = plan.jobs()
    executed, execute = [], Run.execute

    def noted(run, *arguments):
        execute(run, *arguments)
        executed.append(run)

    monkeypatch.setattr(Run, "execute", noted)
    mine.path.parent.mkdir(parents=True)
    with FileLock(mine.path.with_suffix(".lock")):
        with claimed(mine) as free:
            assert not free
        other = threading.Thread(target=work, args=(plan,))
        other.start()
        until(lambda: len(executed) == len(others) or not other.is_alive())
        other.join(1)
        assert other.is_alive() and executed == others
        execute(mine)
    other.join()
    assert len(executed) == 6 and plan.missing() == []


def test_a_claim_ends_where_an_open_file_cannot_be_removed(plan, monkeypatch):
    """As on Windows, whose lock files go on release."""
    run, *_ = plan.jobs()
    refuse_open_files(monkeypatch)
    for _ in range(2):
        with claimed(run) as mine:
            assert mine


def test_a_run_that_another_worker_has_finished_is_not_trained_again(plan, monkeypatch):
    """It was missing when this worker made its list."""
    executed, execute = [], Run.execute

    def with_another_worker(run, *arguments):
        executed.append(run)
        execute(run, *arguments)
        for other in plan.missing():
            execute(other)

    monkeypatch.setattr(Run, "execute", with_another_worker)
    first = plan.jobs()[0]
    work(plan)
    assert executed == [first] and plan.missing() == []


def failing(monkeypatch, error: Exception) -> None:
    """Let trainings of LoRA fail."""
    execute = Run.execute

    def fail(run, *arguments):
        if run.method == "lora":
            raise error
        execute(run, *arguments)

    monkeypatch.setattr(Run, "execute", fail)


def test_a_failure_is_left_in_a_file_and_named_at_the_end(plan, monkeypatch):
    failing(monkeypatch, KeyError("gone"))
    first = failure_file(plan.jobs()[2])
    reason = (
        "2 runs failed, the first is benchmark/tiny/vessels/lora/seed0: "
        f"KeyError: 'gone'; {first} has"
    )
    with pytest.raises(InputError, match=f"^{re.escape(reason)}"):
        work_together(plan, plan.missing(), 1, "cpu")
    failed = plan.missing()
    assert names(failed) == ["benchmark/lora/0", "benchmark/lora/1"]
    assert all(failure_file(run).read_text().endswith("KeyError: 'gone'\n") for run in failed)
    first.write_text("")
    assert failure_reason(plan.jobs()[2]) == f"an unknown error; {first} has all of it"
    assert failure_reason(plan.jobs()[0]) == "", "it may be run again, which removes the file"
    work(plan)  # passes them by
    monkeypatch.undo()
    work_together(plan, failed, 1, "cpu")
    assert plan.missing() == [] and not list(plan.root.rglob("*.failed"))


def test_what_another_worker_failed_at_meanwhile_is_not_executed(plan, monkeypatch):
    first, *others = plan.missing()
    executed = []

    def execute(run, *_):
        executed.append(run)
        for other in others:
            failure_file(other).parent.mkdir(parents=True, exist_ok=True)
            failure_file(other).write_text("KeyError: 'gone'")

    monkeypatch.setattr(Run, "execute", execute)
    monkeypatch.setattr(Run, "state", lambda run, *_: "done" if run in executed else "missing")
    work(plan)
    assert executed == [first]


@pytest.mark.slow
def test_failures_in_several_processes_are_named(plan, folder):
    for image in (folder / "data/vessels/images").glob("*.png"):
        image.write_bytes(b"no image")
    with pytest.raises(InputError, match="^5 runs failed, .*/images/"):
        work_together(plan, plan.missing(), 2, "cpu")


def killed(number: int, plan: Plan, device: str) -> None:
    """End the second worker, as for lack of memory."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def test_processes_are_as_many_as_runs_will_be(plan, monkeypatch):
    """Five can start, and two wait for a search."""
    started = []
    monkeypatch.setattr(
        worker.torch.multiprocessing,
        "start_processes",
        lambda function, arguments, count, **_: started.append(count),
    )
    work_together(plan, plan.missing(), 32, "cpu")
    work_together(plan, plan.missing(), 3, "cpu")
    assert started == [7, 3]


def test_a_killed_process_ends_the_others(plan, monkeypatch):
    monkeypatch.setattr(worker, "_work", killed)
    with pytest.raises(ProcessExitedException, match="^process 1 terminated with signal SIGKILL$"):
        work_together(plan, plan.missing(), 2, "cpu")
