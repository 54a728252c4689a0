"""Analyses of trained adapters, uncertainty baselines among them: arrays against the library, resuming, refusals."""

import numpy as np
import pytest
import scripts
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score
from trained import IMAGES, make_adapters, make_profile

import pvera
from pvera import backbones, latents, metrics, posthoc, uncertainty
from pvera.adapters.base import derive
from pvera.data import suite
from pvera.data.image_folders import ImageData, load_split
from pvera.errors import InputError
from pvera.report.analyses import load_uncertainty
from pvera.study import analyses, analysis_plan, baselines, results, training
from pvera.study.profiles import Baselines
from pvera.study.runs import list_runs


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageData, "evaluation_batch", 16)  # so that there are three
    profile = make_profile(tmp_path, ["digits"], seeds=[0])
    make_adapters(profile, tmp_path / "results")
    return profile


@pytest.fixture
def root(tmp_path):
    return tmp_path / "results"


def opened(run, index=0):
    """Load one of an analysis' adapters onto its backbone, and the test images of its data set."""
    frozen = backbones.load("tiny")
    split = load_split(run.data_root, run.dataset, "test", 32)
    test = split.data(frozen, torch.device("cpu"))
    return pvera.load(frozen.model, run.adapters[index]).eval(), test, split


def test_uncertainty_against_the_library(profile, root):
    (run,) = list_runs(profile, "uncertainty", root)
    run.execute()
    stored = results.read_arrays(run.path)
    model, test, split = opened(run)
    parts = ((test[start : start + 16], derive(0, "uncertainty", start)) for start in (0, 16, 32))
    scores = torch.cat([pvera.sample(model, images, 16, seed) for images, seed in parts], 1)
    for i, k in enumerate(stored["draws"]):
        expected = uncertainty.estimate(scores[:k], split.labels)
        for name in uncertainty.STORED:
            np.testing.assert_allclose(stored[name][i], getattr(expected, name), rtol=1e-3, atol=1e-7)
    right, wrong = stored["example_images"]
    for image, others in ((right, expected.right), (wrong, ~expected.right)):
        assert others[image]
        below = (expected.width[others] <= expected.width[image]).sum()
        assert below == (others.sum() + 1) // 2, "of median width"
    np.testing.assert_array_equal(stored["example_pixels"], split.images[[right, wrong]])
    np.testing.assert_allclose(stored["example_scores"][1], scores[:, wrong], atol=1e-3)
    record = results.read(run.path)
    assert [record[name] for name in ("experiment", "category", "protocol")] == ["uncertainty", "natural", "corrected"]
    assert record["config"]["draws"] == [2, 4, 8, 16] and run.state() == "done"


def test_draws_of_another_adapter_are_not_compared_with_the_predictions(profile, root):
    (run,) = list_runs(profile, "uncertainty", root)
    run.execute()
    path = run.trained[0].path
    record, (scores, labels) = results.read(path), results.read_predictions(path)
    kept = run.adapters[0].read_bytes()
    results.write(path, record, scores, labels, b"another one")
    with pytest.raises(InputError, match="seed0.safetensors is not the adapter of the draws"):
        load_uncertainty(root, "mine")
    results.write(path, record, scores, labels, kept)
    run.adapters[0].unlink()  # a copy of the results alone can be read
    assert len(load_uncertainty(root, "mine")) == 1


@given(arrays(np.float32, st.integers(1, 50), elements=st.floats(-6e4, 6e4, width=32)))
def test_steps_keep_every_fp16_value(values):
    np.testing.assert_array_equal(analyses.from_steps(analyses.to_steps(values)), np.sort(values.astype(np.float16)))


def test_latents(profile, root):
    vera, pvera_ = list_runs(profile, "latents", root)
    for run in (vera, pvera_):
        run.execute()
        stored = results.read_arrays(run.path)
        model, test, split = opened(run)
        assert stored["labels"].tolist() == [0, 2, 4, 7, 9], "five of ten classes"
        assert stored["shown"].tolist() == [0, 2, 4, 7, 9], "the first image of each"
        expected = latents.maps(model, test[stored["shown"]], 4, 0)
        np.testing.assert_allclose(stored["mu"], expected.mu, atol=1e-4)
        np.testing.assert_allclose(stored["draws"], expected.draws, atol=1e-4)
        np.testing.assert_array_equal(stored["pixels"], split.images[stored["shown"]])
    assert results.read_arrays(vera.path)["draws"].shape == (0, 5, 4, 4)
    assert stored["draws"].shape == (4, 5, 4, 4)


def test_existing_results_are_identified_by_adapter_data_and_settings(profile, root, tmp_path, monkeypatch):
    (run,) = list_runs(profile, "uncertainty", root)
    assert run.state() == "missing"
    run.execute()
    assert run.state() == "done"
    with monkeypatch.context() as patch:
        patch.setattr(analysis_plan, "DRAWS", [2, 5])
        assert list_runs(profile, "uncertainty", root)[0].state() == "different"
    record, adapter = run.trained[0].path, run.adapters[0].read_bytes()
    written = results.read(record), *results.read_predictions(record)
    results.write(record, *written, adapter + b" ")
    assert run.state() == "different"
    results.write(record, *written, adapter)
    assert run.state() == "done"
    lines = (tmp_path / "data/digits/test.txt").read_text().replace("test1.png 1", "test1.png 2")
    (tmp_path / "data/digits/test.txt").write_text(lines)
    scripts.forget()
    assert run.state() == "different"


# The scripts


def test_out_of_distribution(tmp_path):
    """Of two natural data sets, the first; values are the library's, sorted."""
    profile, root = make_profile(tmp_path, ["digits", "textures", "vessels"], seeds=[0]), tmp_path / "results"
    make_adapters(profile, root)
    runs = list_runs(profile, "out_of_distribution", root)
    assert [(run.dataset, run.method) for run in runs] == [
        (dataset, method) for dataset in ("digits", "vessels") for method in ("vera", "pvera")
    ]
    run = runs[3]
    assert run.tested == ("digits", "vessels")
    run.execute()
    stored = results.read_arrays(run.path)
    model, _, _ = opened(run)
    for name in run.tested:
        test = load_split(run.data_root, name, "test", 32).data(backbones.load("tiny"), torch.device("cpu"))
        for kind, values in latents.adaptation(model, test[slice(None)]).items():
            kept = analyses.from_steps(stored[f"{name}_{kind}_steps"])
            np.testing.assert_allclose(kept, values.sort().values, rtol=1e-3, atol=1e-5)


def test_adapters_of_other_splits_are_refused(tmp_path):
    """Their test images may be those that they were trained on. Of an ensemble, every adapter counts."""
    profile = make_profile(tmp_path, ["digits"])
    make_adapters(profile, tmp_path / "results")
    run = list_runs(profile.with_(baselines=Baselines()), "baselines", tmp_path / "results")[0]
    path = run.trained[-1].path
    record, arrays, adapter = results.read(path), results.read_predictions(path), run.adapters[-1].read_bytes()
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(InputError, match="seed1.safetensors: is gone, or was changed after it was written"):
        run.execute()
    config = record["config"] | {"data_sha256": "other"}
    results.write(path, record | {"config": config, "config_hash": results.config_hash(config)}, *arrays, adapter)
    with pytest.raises(InputError, match="was trained on other images or splits of digits than .*--replace"):
        run.execute()
    assert run.state() == "missing"


def test_focus_is_the_auroc_of_lengths_at_the_patches_of_the_object(profile, root):
    _, run = list_runs(profile, "focus", root)
    run.execute()
    stored = results.read_arrays(run.path)
    model, test, _ = opened(run)
    masks = suite.RECIPES["digits"].draw("test").masks[:IMAGES]
    share = masks.reshape(IMAGES, 4, 8, 4, 8).mean((2, 4)).reshape(IMAGES, -1)
    kept = (share >= 0.1) | (share == 0)
    for name in ("adapted", "frozen"):
        if name == "frozen":
            for adapter in model.members[0].layers:  # frozen features and x A
                adapter.d.data.fill_(1)
                adapter.b.data.fill_(0)
        lengths = latents.lengths(model, test[slice(None)]).reshape(IMAGES, -1).numpy()
        expected = [
            roc_auc_score(share_of_image[use] > 0, length[use])
            for share_of_image, length, use in zip(share, lengths, kept)
        ]
        np.testing.assert_allclose(stored[name], expected, atol=1e-6)


# Uncertainty baselines on the adapters of all seeds


METHODS = {"linear": {}, "lora": {"rank": 4}, "vera": {"rank": 8}, "pvera": {"rank": 8}}
SETTINGS = Baselines(draws=[1, 2, 3], shifted_images=10, shift_draws=2)
EXPERIMENTS = {
    "benchmark": {"keep": True},
    "dropout": {"methods": ["lora", "vera"], "set": {"dropout": 0.1}, "keep": True},
    "beta_effects": {
        "methods": ["pvera"],
        "datasets": ["digits", "vessels"],
        "vary": {"beta": [0.0, 1e-6]},
        "keep": True,
    },
}


@pytest.fixture(scope="module")
def baselines_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("baselines")


@pytest.fixture(scope="module")
def baselines_profile(baselines_folder):
    settings = {"methods": METHODS, "experiments": EXPERIMENTS, "baselines": SETTINGS}
    baselines_profile = make_profile(baselines_folder, ["digits", "textures", "vessels"], **settings)
    for experiment in EXPERIMENTS:
        make_adapters(baselines_profile, baselines_folder / "results", experiment)
    return baselines_profile


@pytest.fixture(scope="module")
def executed(baselines_profile, baselines_folder):
    """Execute each kind of analysis on the first data set; return (run, frames) by experiment and method."""
    results_by_kind = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageData, "evaluation_batch", 16)
        for experiment in ("baselines", "dropout_baselines", "beta_baselines"):
            for run in list_runs(baselines_profile, experiment, baselines_folder / "results"):
                if run.dataset == "digits" and (experiment, run.method) not in results_by_kind:
                    run.execute()
                    results_by_kind[experiment, run.method] = run, baselines.read_frames(run.path)
    return results_by_kind


def chosen(frame, **where):
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return frame


def test_ways_and_their_passes(executed):
    def ways(key):
        table = executed[key][1]["scores"]
        return {(row.way, row.passes, row.seed) for row in table.itertuples()}

    single = {("pass", 1, 0), ("pass", 1, 1), ("ensemble", 2, -1)}
    laplace = {("laplace", 1, 0), ("laplace", 1, 1)}
    draws = {("draws", k, seed) for k in (1, 2, 3) for seed in (0, 1)}
    assert ways(("baselines", "lora")) == single
    assert ways(("baselines", "linear")) == ways(("baselines", "vera")) == single | laplace
    assert ways(("baselines", "pvera")) == ways(("dropout_baselines", "lora")) == single | draws
    assert ways(("beta_baselines", "pvera")) == {way for way in single | draws if way[1] < 3}
    for key, (_, frames) in executed.items():
        shifts = frames["shift"]
        assert shifts.empty == (key[0] == "beta_baselines")
        if not shifts.empty:
            assert {*shifts["severity"]} == {0, 1, 2, 3, 4, 5} and shifts["corruption"].nunique() == 4
            assert {*frames["out"]["other"]} == {"textures", "vessels"}
            assert not chosen(shifts, way="draws", passes=3).size, "draws under shift follow the settings"


def test_one_pass_is_the_benchmarks(executed):
    for (experiment, method), (run, frames) in executed.items():
        for index in (0, 1):
            model, test, split = opened(run, index)
            probabilities = training.predict(model, test)
            model.unload()
            expected = metrics.evaluate(probabilities, split.labels)
            (row,) = chosen(frames["scores"], way="pass", seed=index, scaled=False).itertuples()
            for name in baselines.METRICS:
                assert getattr(row, name) == pytest.approx(expected[name], abs=1e-5), (experiment, method, name)


def test_draws_are_those_of_the_library(executed, monkeypatch):
    monkeypatch.setattr(ImageData, "evaluation_batch", 16)
    for key in (("baselines", "pvera"), ("dropout_baselines", "vera")):
        run, frames = executed[key]
        model, test, split = opened(run, 1)
        parts = [pvera.sample(model, test[s : s + 16], 3, derive(1, "uncertainty", s)) for s in (0, 16, 32)]
        model.unload()
        mean = torch.cat(parts, 1).double().mean(0).numpy()
        (row,) = chosen(frames["scores"], way="draws", passes=3, seed=1, scaled=False).itertuples()
        assert row.nll == pytest.approx(metrics.nll(mean, split.labels), abs=1e-5)
        assert row.mutual > 0 and row.total == pytest.approx(row.expected + row.mutual)


def test_laplace_is_the_librarys(executed):
    run, frames = executed["baselines", "vera"]
    frozen = backbones.load("tiny")
    model = pvera.load(frozen.model, run.adapters[0]).eval()
    parts = {}
    for part in ("train800", "val200", "test"):
        split = load_split(run.data_root, run.dataset, part, 32)
        with torch.no_grad():
            parts[part] = model.features(split.data(frozen, torch.device("cpu"))[:])[0], split.labels
    head = model.unload() and model.members[0].head
    posterior = posthoc.LastLayer.fit(head.weight, head.bias, parts["train800"][0])
    prior = posterior.choose_prior(*parts["val200"])
    (row,) = chosen(frames["scores"], way="laplace", seed=0, scaled=False).itertuples()
    features, labels = parts["test"]
    assert row.nll == pytest.approx(metrics.nll(posterior.predict(features, prior), labels), abs=1e-4)


def test_the_temperature_is_fitted_on_the_validation_split():
    source, places = np.random.default_rng(0), (baselines.TEST, baselines.VALIDATION)
    labels = {place: source.integers(3, size=30) for place in places}
    predicted = {place: baselines.Prediction.average(source.dirichlet(np.ones(3), (1, 30)), 1.0) for place in places}
    frames = baselines.frames([baselines.Predictor("pass", 1, 0, predicted)], labels, 10)
    test, validation = (posthoc.temperature(predicted[place].probabilities, labels[place]) for place in places)
    assert test != pytest.approx(validation, rel=0.01) and frames["scores"]["temperature"].tolist() == [1.0, validation]


def test_as_many_images_are_told_apart_as_others_are_given():
    """Ten of another data set, and the first ten of thirty."""
    source, out = np.random.default_rng(0), ("out", "vessels")
    counts = {baselines.TEST: 30, baselines.VALIDATION: 30, out: 10}
    labels = {place: source.integers(3, size=count) for place, count in counts.items()}
    predicted = {
        place: baselines.Prediction.average(source.dirichlet(np.ones(3), (1, count)), 1.0)
        for place, count in counts.items()
    }
    frames = baselines.frames([baselines.Predictor("pass", 1, 0, predicted)], labels, 10)
    scores = [predicted[baselines.TEST].uncertainties["score"][:10], predicted[out].uncertainties["score"]]
    (row,) = chosen(frames["out"], by="score").itertuples()
    assert row.auroc == pytest.approx(roc_auc_score(np.repeat([0, 1], 10), np.concatenate(scores)))


def test_time_grows_with_the_passes(executed):
    scores = executed["baselines", "pvera"][1]["scores"]
    draws = chosen(scores, way="draws", seed=0, scaled=False).set_index("passes")["milliseconds"]
    assert draws[1] > 0 and draws[3] == pytest.approx(3 * draws[1])
    single, ensemble = (chosen(scores, way=way, scaled=False)["milliseconds"] for way in ("pass", "ensemble"))
    assert ensemble.item() == pytest.approx(single.sum())


def test_severity_0_are_the_images_before(executed):
    run, frames = executed["baselines", "vera"]
    model, test, split = opened(run)
    probabilities = training.predict(model, test)[:10]
    model.unload()
    rows = chosen(frames["shift"], way="pass", seed=0, severity=0, scaled=False)
    assert len(rows) == 4 and rows["nll"].nunique() == 1
    assert rows["nll"].iloc[0] == pytest.approx(metrics.nll(probabilities, split.labels[:10]), abs=1e-5)
    worst = chosen(frames["shift"], way="pass", seed=0, severity=5, corruption="noise", scaled=False)
    assert abs(worst["nll"].iloc[0] - rows["nll"].iloc[0]) > 1e-4
