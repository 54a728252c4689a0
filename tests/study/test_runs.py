"""Runs, from a profile to result files: records, repetition, members, adapters, data hashes."""

import json
import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import safetensors.torch
import scripts
import torch
import trained
from sklearn.metrics import matthews_corrcoef
from text_tasks import encoder, encoder_folder, text_folder  # noqa: F401  fixtures
from trained import make_profile

import pvera
from pvera import InputError, backbones
from pvera.data import decoding, glue, inputs, store
from pvera.data.image_splits import load_split
from pvera.study import jobs, results
from pvera.study.plan import list_jobs
from pvera.study.profiles import Profile, Schedule
from pvera.study.records import Choice


@pytest.fixture
def small_profile(folder):
    return Profile.read(folder / "small.yaml")


@pytest.fixture
def frozen():
    return backbones.load("tiny")


def complete(profile: Profile, root) -> dict[str, dict]:
    """Run everything and return the records by path below `root`."""
    for experiment in ("beta", "benchmark"):
        for run in list_jobs(profile, experiment, root):
            run.execute()
    return {
        str(p.relative_to(root)): json.loads(p.read_text()) for p in sorted(root.rglob("*.json"))
    }


def test_records_state_their_origin_and_repeat_bit_for_bit(small_profile, frozen, tmp_path):
    first, second = (complete(small_profile, tmp_path / name) for name in ("a", "b"))
    assert len(first) == 1 + 3 * 2
    for path, record in first.items():
        numbers, repeated = (
            {k: v for k, v in r.items() if k != "cost"} for r in (record, second[path])
        )
        assert numbers == repeated
        if record["experiment"] == "benchmark":
            for suffix in (results.ARRAYS_SUFFIX, results.ADAPTER_SUFFIX):
                a, b = ((tmp_path / root / path).with_suffix(suffix).read_bytes() for root in "ab")
                assert a == b
    record = first["small/benchmark/tiny/vessels/lora/seed1.json"]
    best = [m["best_validation_loss"] for m in record["members"]]
    assert record["chosen"]["member"] == int(np.argmin(best))
    assert record["chosen"]["grid"] == record["members"][record["chosen"]["member"]]["grid"]
    assert best[0] == pytest.approx(min(record["members"][0]["curve"]["validation_loss"]), rel=1e-5)
    assert record["test"]["correct"] == round(record["test"]["accuracy"] * 40)
    search = first["small/beta/tiny/vessels/pvera/seed0.json"]
    losses = {m["grid"]["beta"]: m["best_validation_loss"] for m in search["members"]}
    for seed in (0, 1):
        members = first[f"small/benchmark/tiny/vessels/pvera/seed{seed}.json"]["config"]["members"]
        assert {m["beta"] for m in members} == {min(losses, key=losses.get)}, (
            "β is the one searched"
        )
    for run in list_jobs(small_profile, "benchmark", tmp_path / "a"):
        model = pvera.load(frozen.model, run.path.with_suffix(results.ADAPTER_SUFFIX)).eval()
        test = load_split(run.data_root, run.dataset, "test", 32).data(frozen, torch.device("cpu"))
        with torch.inference_mode():
            scores = model(test[:]).softmax(-1).numpy()
        np.testing.assert_allclose(scores, results.read_predictions(run.path)[0], atol=2e-3)
        model.unload()


def with_rates(run, *rates: float):
    """`run` with one member per learning rate."""
    (first, *_) = run.member_configs
    grids = [{"learning_rate": rate} for rate in rates]
    members = [
        replace(first, adapter_lr=r, head_lr=r, grid=grid)
        for r, grid in zip(rates, grids, strict=True)
    ]
    return replace(run, member_configs=tuple(members))


def test_a_diverged_member_is_recorded_and_the_others_are_chosen_from(small_profile, tmp_path):
    run = list_jobs(small_profile.replaced(methods={"lora": {}}), "benchmark", tmp_path)[0]
    with_rates(run, 1e30, 1e-3).execute()
    record = results.read_record(run.path)
    broken, healthy = record.members
    assert (broken.status, healthy.status) == ("diverged", "epoch limit")
    assert broken.curve["validation_loss"] == [None]
    assert len(healthy.curve["validation_loss"]) == 2
    assert record.chosen == Choice(member=1, epoch=healthy.best_epoch, grid=healthy.grid)
    assert broken.best_epoch != healthy.best_epoch and record.test["accuracy"] > 0

    run = with_rates(run, 1e30, 1e31)
    run.execute()
    record = results.read_record(run.path)
    assert [member.status for member in record.members] == ["diverged"] * 2
    assert record.chosen is None and record.test is None and run.state() == "diverged"
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name], (
        "no member can predict"
    )


def test_members_draw_alike_or_on_their_own(small_profile, tmp_path):
    """Two equal members tie exactly under the corrected protocol.

    They differ when each has a seed of its own.
    """
    single = small_profile.replaced(methods={"lora": {"rank": 4}}, seeds=[0])
    for name, equal in (("corrected", True), ("published", False)):
        (run,) = list_jobs(single.replaced(protocol=name), "benchmark", tmp_path / name)
        run = replace(run, member_configs=run.member_configs * 2)
        run.execute()
        a, b = (m.curve["validation_loss"] for m in results.read_record(run.path).members)
        assert (a == b) is equal


def test_the_recorded_gpu_is_the_one_that_computed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"name of {device}")
    assert jobs.environment("cuda:1")["device"] == "name of cuda:1"


# Hashes of data, kept in the store


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """On weights in a file; the store is the test's own."""
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))
    state = backbones.load("tiny").model.state_dict()
    safetensors.torch.save_file(state, tmp_path / "mine.safetensors")
    return make_profile(
        tmp_path,
        ["digits"],
        seeds=[0],
        weights={"tiny": str(tmp_path / "mine.safetensors")},
        schedule=Schedule(epochs=1),
    )


def test_done_runs_are_known_without_pixels(profile, tmp_path, monkeypatch):
    root = tmp_path / "results"
    search = {"methods": ["pvera"], "grid": {"beta": [1e-4, 1e-2]}}
    profile = profile.replaced(experiments={"beta": search, "benchmark": {"inherit": ["beta"]}})
    (search,) = list_jobs(profile, "beta", root)
    search.execute()
    trainings = list_jobs(profile, "benchmark", root)
    for run in trainings:
        run.execute()
    (analysis,) = list_jobs(profile, "uncertainty", root)
    analysis.execute()
    done = (search, *trainings, analysis)
    scripts.forget()
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode", None)
        assert {run.state() for run in done} == {"done"}
    (tmp_path / "data/digits/images/test3.png").touch()
    scripts.forget()
    assert {run.state() for run in done} == {"done"}, "the same pixels, read again"
    state = safetensors.torch.load_file(tmp_path / "mine.safetensors")
    safetensors.torch.save_file(
        state | {"norm.bias": state["norm.bias"] + 1}, tmp_path / "mine.safetensors"
    )
    scripts.forget()
    assert {run.state() for run in done} == {"different"}
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "mine.safetensors").unlink()
    assert {run.state(compare_data=False) for run in done} == {"done"}, (
        "what is specified is the same"
    )


def test_a_rewritten_image_is_noticed_by_the_next_process_and_not_within_one(profile, tmp_path):
    """Data that stays loaded keeps the digest of what was read."""
    run, other = list_jobs(
        profile.replaced(methods={"linear": {}}, seeds=[0, 1]), "benchmark", tmp_path / "results"
    )
    run.execute()
    image = tmp_path / "data/digits/images/test5.png"
    image.write_bytes((tmp_path / "data/digits/images/test6.png").read_bytes())
    other.execute()
    scripts.forget()
    first, second = (results.read_record(run_.path).config["data_sha256"] for run_ in (run, other))
    assert first == second and run.state() == other.state() == "different"


def test_all_data_is_decoded_before_the_first_run_trains(profile, tmp_path):
    image = tmp_path / "data/digits/images/test5.png"
    image.write_bytes(b"")
    planned = list_jobs(profile, "benchmark", tmp_path / "results")
    inputs.check_inputs(planned, decode=False)
    with pytest.raises(InputError, match="images/test5.png cannot be read"):
        inputs.check_inputs(planned)
    image.unlink()
    with pytest.raises(InputError, match="images/test5.png cannot be read: .Errno 2"):
        inputs.check_inputs(planned, decode=False)


# Texts


@pytest.fixture
def text_profile(tmp_path, encoder_folder, text_folder):
    """A profile file."""
    path = tmp_path / "small.yaml"
    path.write_text(f"""
data: {text_folder}
backbones: [minilm]
weights: {{minilm: {encoder_folder}}}
datasets: [cola]
seeds: [0, 1]
protocol: corrected
schedule: {{epochs: 1}}
learning_rate: 1.0e-2
methods: {{lora: {{grid: {{rank: [2, 4]}}}}, pvera: {{rank: 4}}}}
experiments:
  beta: {{methods: [pvera], seeds: [0], grid: {{beta: [1.0e-2, 1.0e-4]}}}}
  benchmark: {{inherit: [beta]}}
""")
    return path


def arguments(text_profile, *more) -> list:
    return [
        "--profile",
        text_profile,
        "--device",
        "cpu",
        "--results",
        text_profile.parent / "results",
        *more,
    ]


def test_from_the_profile_to_the_result_files(text_profile, encoder, text_folder, capsys):
    text, root = Profile.read(text_profile).replaced(seeds=[0]), text_profile.parent / "results"
    for experiment in ("beta", "benchmark"):
        for run in list_jobs(text, experiment, root):
            run.execute()
            assert run.state() == "done" and run.pool == "mean"
    (search,) = results.load_runs(root, "small", "beta")
    lora, run = results.load_runs(root, "small", "benchmark")
    assert (
        len(lora["members"]) == 2
        and run["category"] == "language"
        and run["config"]["max_length"] == 30
    )
    assert {m["beta"] for m in run["config"]["members"]} == {search["chosen"]["grid"]["beta"]}
    probabilities, labels = results.read_predictions(results.path_of(root, run))
    (test,) = inputs.load_splits(text_folder, "cola", encoder, ["test"])
    assert labels.tolist() == test.labels.tolist()
    assert run["test"]["matthews"] == pytest.approx(
        matthews_corrcoef(labels, probabilities.argmax(1)), abs=0.1
    )
    scripts.execute("train", *arguments(text_profile, "--seeds", "0"))
    assert "small: 3 of 3 runs are there" in capsys.readouterr().out


BAD_TEXT = {
    "without GLUE's files": (["--datasets", "rte"], "train.tsv cannot be read: [Errno 2]"),
    "images": (["--datasets", "vessels"], "'vessels' is a data set of images"),
    "backbone of images": (
        ["--backbones", "minilm", "tiny"],
        "unknown text encoder 'tiny'; choose from minilm",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_input_is_one_line_and_exit_code_2(
    text_profile, text_folder, case, capsys, monkeypatch
):
    cause, message = BAD_TEXT[case]
    monkeypatch.setitem(glue.GLUE, "rte", replace(glue.GLUE["rte"], title="elsewhere"))
    assert message in scripts.refusal("train", capsys, *arguments(text_profile, *cause))


# A user's ninth method works everywhere that the paper's eight methods work


class BiasAdapter(pvera.Adapter):
    def __init__(self, method, dim):
        super().__init__()
        self.targets = method.targets
        self.bias = torch.nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x, y, projections):
        target_index, output_index = self.matching(projections)
        outputs = list(y.unbind(2))
        for i, j in zip(target_index, output_index):
            outputs[j] = outputs[j] + self.bias[i].to(y.dtype)
        return torch.stack(outputs, 2)

    def merge_projection(self, weight, bias, projections):
        target_index, output_index = self.matching(projections)
        bias[output_index] += self.bias[target_index]
        return weight, bias


@dataclass(frozen=True)
class Bias(pvera.Method):
    """A learned bias on some of query, key and value."""

    key: ClassVar[str] = "bias"
    title: ClassVar[str] = "Bias"
    targets: str = "qv"

    def adapter(self, layer, index, shared, seed):
        return BiasAdapter(self, layer.dim)


@pytest.fixture
def registered():
    pvera.register(Bias)
    yield
    del pvera.METHODS["bias"]


def test_a_ninth_method_is_trained_and_its_adapter_loads_and_merges(registered, tmp_path):
    methods, config = {"bias": {"grid": {"targets": ["q", "qv"]}}}, Schedule(epochs=2)
    profile = trained.make_profile(
        tmp_path, ["digits"], seeds=[0], schedule=config, methods=methods, learning_rate=1e-2
    )
    (run,) = list_jobs(profile, "benchmark", tmp_path / "results")
    run.execute()
    assert run.state() == "done"
    frozen = backbones.load("tiny")
    before = {name: p.clone() for name, p in frozen.model.named_parameters()}
    model = pvera.load(frozen.model, results.kept_file(run.path, results.ADAPTER_SUFFIX)).eval()
    record = results.read_record(run.path)
    assert model.members[0].method == Bias(**record.chosen.grid)
    assert all(layer.bias.abs().max() > 0 for layer in model.members[0].layers), "it was trained"
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        adapted = model(images)
        torch.testing.assert_close(model.merge_()(images), adapted, rtol=1e-4, atol=1e-4)
        model.unmerge_().unload()
    kept, _ = results.read_predictions(run.path)
    assert len(kept) == trained.IMAGES and record.test["images"] == trained.IMAGES
    for name, parameter in frozen.model.named_parameters():
        torch.testing.assert_close(parameter, before[name], msg=name)


def test_refused_registrations(registered):
    other = dataclass(frozen=True)(type("Other", (pvera.Method,), {"key": "pvera"}))
    before = dict(pvera.METHODS)
    with pytest.raises(InputError, match="Other: the key 'pvera' is that of PVeRA; choose another"):
        pvera.register(other)
    assert before == pvera.METHODS
    assert pvera.register(Bias) is Bias, (
        "registering again is no error: workers and notebooks import modules again"
    )
    assert tuple(pvera.METHODS)[:8] == pvera.PAPER_METHODS and len(pvera.PAPER_METHODS) == 8
