"""Uncertainty baselines on the adapters of all seeds: each against the library, and identities."""

import numpy as np
import pytest
import torch
from trained import make_adapters, make_profile

import pvera
from pvera import backbones, metrics, posthoc
from pvera.data.image_folders import load_split
from pvera.seeding import derive
from pvera.study import analyses, baselines, training
from pvera.study.plan import list_runs
from pvera.study.profiles import Baselines

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
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rivals")


@pytest.fixture(scope="module")
def profile(folder):
    settings = {"methods": METHODS, "experiments": EXPERIMENTS, "baselines": SETTINGS}
    profile = make_profile(folder, ["digits", "textures", "vessels"], **settings)
    for experiment in EXPERIMENTS:
        make_adapters(profile, folder / "results", experiment)
    return profile


@pytest.fixture(scope="module")
def executed(profile, folder):
    """Execute each kind of analysis on the first data set; return (run, frames) by experiment and method."""
    results_by_kind = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analyses, "BATCH", 16)
        for experiment in ("rivals", "dropout_rivals", "beta_rivals"):
            for run in list_runs(profile, experiment, folder / "results"):
                if run.dataset == "digits" and (experiment, run.method) not in results_by_kind:
                    run.execute()
                    results_by_kind[experiment, run.method] = run, baselines.read_frames(run.path)
    return results_by_kind


def opened(run, index=0):
    frozen = backbones.load("tiny")
    split = load_split(run.data_root, run.dataset, "test", 32)
    return pvera.load(frozen.model, run.adapters[index]).eval(), split.data(frozen, torch.device("cpu")), split.labels


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
    assert ways(("rivals", "lora")) == single
    assert ways(("rivals", "linear")) == ways(("rivals", "vera")) == single | laplace
    assert ways(("rivals", "pvera")) == ways(("dropout_rivals", "lora")) == single | draws
    assert ways(("beta_rivals", "pvera")) == {way for way in single | draws if way[1] < 3}
    for key, (_, frames) in executed.items():
        shifts = frames["shift"]
        assert shifts.empty == (key[0] == "beta_rivals")
        if not shifts.empty:
            assert {*shifts["severity"]} == {0, 1, 2, 3, 4, 5} and shifts["corruption"].nunique() == 4
            assert {*frames["out"]["other"]} == {"textures", "vessels"}
            assert not chosen(shifts, way="draws", passes=3).size, "draws under shift follow the settings"


def test_one_pass_is_the_benchmarks(executed):
    for (experiment, method), (run, frames) in executed.items():
        for index in (0, 1):
            model, test, labels = opened(run, index)
            probabilities = training.predict(model, test)
            model.unload()
            expected = metrics.evaluate(probabilities, labels)
            (row,) = chosen(frames["scores"], way="pass", seed=index, scaled=False).itertuples()
            for name in baselines.METRICS:
                assert getattr(row, name) == pytest.approx(expected[name], abs=1e-5), (experiment, method, name)


def test_draws_are_those_of_the_library(executed, monkeypatch):
    monkeypatch.setattr(analyses, "BATCH", 16)
    for key in (("rivals", "pvera"), ("dropout_rivals", "vera")):
        run, frames = executed[key]
        model, test, labels = opened(run, 1)
        parts = [pvera.sample(model, test[s : s + 16], 3, derive(1, "uncertainty", s)) for s in (0, 16, 32)]
        model.unload()
        mean = torch.cat(parts, 1).double().mean(0).numpy()
        (row,) = chosen(frames["scores"], way="draws", passes=3, seed=1, scaled=False).itertuples()
        assert row.nll == pytest.approx(metrics.nll(mean, labels), abs=1e-5)
        assert row.mutual > 0 and row.total == pytest.approx(row.expected + row.mutual)


def test_laplace_is_the_librarys(executed):
    run, frames = executed["rivals", "vera"]
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


def test_time_grows_with_the_passes(executed):
    scores = executed["rivals", "pvera"][1]["scores"]
    draws = chosen(scores, way="draws", seed=0, scaled=False).set_index("passes")["milliseconds"]
    assert draws[1] > 0 and draws[3] == pytest.approx(3 * draws[1])
    single, ensemble = (chosen(scores, way=way, scaled=False)["milliseconds"] for way in ("pass", "ensemble"))
    assert ensemble.item() == pytest.approx(single.sum())


def test_severity_0_are_the_images_before(executed):
    run, frames = executed["rivals", "vera"]
    model, test, labels = opened(run)
    probabilities = training.predict(model, test)[:10]
    model.unload()
    rows = chosen(frames["shift"], way="pass", seed=0, severity=0, scaled=False)
    assert len(rows) == 4 and rows["nll"].nunique() == 1
    assert rows["nll"].iloc[0] == pytest.approx(metrics.nll(probabilities, labels[:10]), abs=1e-5)
    worst = chosen(frames["shift"], way="pass", seed=0, severity=5, corruption="noise", scaled=False)
    assert abs(worst["nll"].iloc[0] - rows["nll"].iloc[0]) > 1e-4
