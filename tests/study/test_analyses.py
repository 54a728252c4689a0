"""Analyses of trained adapters: arrays against the library and by hand, resuming, refusals."""

import numpy as np
import pandas as pd
import pytest
import scripts
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from torchmetrics.functional.classification import multiclass_calibration_error
from trained import IMAGES, make_adapters, make_profile

import pvera
from pvera import backbones, latents, metrics, uncertainty
from pvera.data import suite
from pvera.data.image_splits import ImageData, load_split
from pvera.errors import InputError
from pvera.report.analysis_results import load_sampled_adapters
from pvera.seeds import derive
from pvera.study import analyses, plan, prediction, predictor_comparison, results
from pvera.study.plan import list_jobs


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
    (run,) = list_jobs(profile, "uncertainty", root)
    run.execute()
    stored = results.read_arrays(run.path)
    model, test, split = opened(run)
    parts = ((test[start : start + 16], derive(0, "uncertainty", start)) for start in (0, 16, 32))
    scores = torch.cat([pvera.sample(model, images, 16, seed) for images, seed in parts], 1)
    for i, k in enumerate(stored["draws"]):
        expected = uncertainty.estimate(scores[:k], split.labels)
        for name in uncertainty.STORED:
            np.testing.assert_allclose(
                stored[name][i], getattr(expected, name), rtol=1e-3, atol=1e-7
            )
    single_pass = prediction.predict(model, test)
    np.testing.assert_allclose(stored["single_confidence"], single_pass.max(1), atol=1e-3)
    np.testing.assert_array_equal(stored["single_predicted"], single_pass.argmax(1))
    right, wrong = stored["example_images"]
    for image, others in ((right, expected.predicts_label), (wrong, ~expected.predicts_label)):
        assert others[image]
        below = (expected.width[others] <= expected.width[image]).sum()
        assert below == (others.sum() + 1) // 2, "of median width"
    np.testing.assert_array_equal(stored["example_pixels"], split.images[[right, wrong]])
    np.testing.assert_allclose(stored["example_scores"][1], scores[:, wrong], atol=1e-3)
    record = results.read_record(run.path)
    origin = record.experiment, record.category, record.protocol
    assert origin == ("uncertainty", "natural", "corrected")
    assert record.config["draws"] == [2, 4, 8, 16] and run.state() == "done"


def test_without_pictures_no_pixels_are_kept(profile, root):
    (run,) = list_jobs(profile, "uncertainty", root)
    run.execute()
    with_pictures = results.read_arrays(run.path)
    (run,) = list_jobs(profile.replaced(pictures=False), "uncertainty", root)
    assert run.state() == "different"
    run.execute()
    stored = results.read_arrays(run.path)
    pixels = {"example_images", "example_pixels", "example_scores"}
    assert with_pictures.keys() - stored.keys() == pixels and stored.keys() < with_pictures.keys()
    for name in stored:
        np.testing.assert_array_equal(stored[name], with_pictures[name])
    assert load_sampled_adapters(root, "mine")[0].examples == []


def test_the_results_of_an_analysis_can_be_read_without_its_adapter(profile, root):
    (run,) = list_jobs(profile, "uncertainty", root)
    run.execute()
    for path in run.runs[0].path.parent.iterdir():
        path.unlink()
    (read,) = load_sampled_adapters(root, "mine")
    stored = results.read_arrays(run.path)
    np.testing.assert_array_equal(
        read.single_correct, stored["single_predicted"] == stored["labels"]
    )
    assert [example.pixels.shape for example in read.examples] == [(32, 32, 3)] * 2


@given(arrays(np.float32, st.integers(1, 50), elements=st.floats(-6e4, 6e4, width=32)))
def test_steps_keep_every_fp16_value(values):
    np.testing.assert_array_equal(
        analyses.from_steps(analyses.to_steps(values)), np.sort(values.astype(np.float16))
    )


def test_latents(profile, root):
    vera, pvera_ = list_jobs(profile, "latents", root)
    for run in (vera, pvera_):
        run.execute()
        stored = results.read_arrays(run.path)
        model, test, split = opened(run)
        assert stored["labels"].tolist() == [0, 2, 4, 7, 9], "five of ten classes"
        assert stored["shown"].tolist() == [0, 2, 4, 7, 9], "the first image of each"
        expected = latents.maps(model, test[stored["shown"]], 4, 0)
        np.testing.assert_allclose(stored["mu"], expected.mu, atol=1e-4)
        np.testing.assert_allclose(stored["draws"], expected.samples, atol=1e-4)
        np.testing.assert_array_equal(stored["pixels"], split.images[stored["shown"]])
    assert results.read_arrays(vera.path)["draws"].shape == (0, 5, 4, 4)
    assert stored["draws"].shape == (4, 5, 4, 4)


def test_existing_results_are_identified_by_adapter_data_and_settings(
    profile, root, tmp_path, monkeypatch
):
    (run,) = list_jobs(profile, "uncertainty", root)
    assert run.state() == "missing"
    run.execute()
    assert run.state() == "done"
    with monkeypatch.context() as patch:
        patch.setattr(plan, "SAMPLE_COUNTS", [2, 5])
        assert list_jobs(profile, "uncertainty", root)[0].state() == "different"
    record, adapter = run.runs[0].path, run.adapters[0].read_bytes()
    written = results.read_record_dict(record), results.read_arrays(record)
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
    profile, root = (
        make_profile(tmp_path, ["digits", "textures", "vessels"], seeds=[0]),
        tmp_path / "results",
    )
    make_adapters(profile, root)
    runs = list_jobs(profile, "out_of_distribution", root)
    assert [(run.dataset, run.method) for run in runs] == [
        (dataset, method) for dataset in ("digits", "vessels") for method in ("vera", "pvera")
    ]
    run = runs[3]
    assert run.tested == ("digits", "vessels")
    run.execute()
    stored = results.read_arrays(run.path)
    model, _, _ = opened(run)
    for name in run.tested:
        test = load_split(run.data_root, name, "test", 32).data(
            backbones.load("tiny"), torch.device("cpu")
        )
        for kind, values in latents.adaptation(model, test[slice(None)]).items():
            kept = analyses.from_steps(stored[f"{name}_{kind}_steps"])
            np.testing.assert_allclose(kept, values.sort().values, rtol=1e-3, atol=1e-5)


def test_adapters_of_other_splits_are_refused(tmp_path):
    """Their test images may be those that they were trained on.

    Of an ensemble, every adapter counts.
    """
    profile = make_profile(tmp_path, ["digits"])
    make_adapters(profile, tmp_path / "results")
    (run,) = list_jobs(profile, "predictors", tmp_path / "results")
    path = run.runs[-1].path
    record, arrays, adapter = (
        results.read_record_dict(path),
        results.read_arrays(path),
        run.adapters[-1].read_bytes(),
    )
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(
        InputError, match="seed1.safetensors: is gone, or was changed after it was written"
    ):
        run.execute()
    config = record["config"] | {"data_sha256": "other"}
    results.write(
        path,
        record | {"config": config, "config_hash": results.config_hash(config)},
        arrays,
        adapter,
    )
    with pytest.raises(
        InputError, match="was trained on other images or splits of digits than .*--replace"
    ):
        run.execute()
    assert run.state() == "missing"


def test_focus_is_the_auroc_of_lengths_at_the_patches_of_the_object(profile, root):
    _, run = list_jobs(profile, "focus", root)
    run.execute()
    stored = results.read_arrays(run.path)
    model, test, _ = opened(run)
    masks = suite.SYNTHETIC_TASKS["digits"].draw("test").masks[:IMAGES]
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
    with pytest.raises(InputError, match="^image_size: the patches do not divide the masks"):
        analyses._aurocs(model, test, masks[:, :30, :30])


# Predictors, on the adapters of all seeds


def auroc(uncertain: np.ndarray, wrong: np.ndarray) -> float:
    """NaN where no prediction is right."""
    return roc_auc_score(wrong, uncertain) if not wrong.all() else np.nan


def expected_scores(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score samples (samples, images, classes) with other libraries."""
    scores = scores.astype(np.float64)
    mean = scores.mean(0) / scores.mean(0).sum(1, keepdims=True)
    wrong = mean.argmax(1) != labels
    bins = metrics.BINS
    return {
        "passes": len(scores),
        "accuracy": accuracy_score(labels, mean.argmax(1)),
        "nll": log_loss(labels, mean, labels=range(mean.shape[1])),
        "ece": float(
            multiclass_calibration_error(
                torch.tensor(mean), torch.tensor(labels), mean.shape[1], bins
            )
        ),
        "auroc": auroc(-mean.max(1), wrong),
        "auroc_spread": auroc(scores.max(2).std(0, ddof=1), wrong) if len(scores) > 1 else np.nan,
    }


DROPOUT = {"methods": ["vera"], "set": {"dropout": 0.5, "dropout_on": "latent"}}


@pytest.mark.parametrize("method, trained", [("pvera", "benchmark"), ("vera", "latent_dropout")])
def test_predictors_against_the_library(method, trained, tmp_path, monkeypatch):
    """One pass and the samples of each of two seeds, and the mean of both passes."""
    monkeypatch.setattr(ImageData, "evaluation_batch", 16)
    profile = make_profile(
        tmp_path,
        ["digits"],
        experiments={"benchmark": {"methods": ["pvera"]}, "latent_dropout": DROPOUT},
        analyses={"predictors": [trained]},
    )
    make_adapters(profile, tmp_path / "results", trained)
    (run,) = list_jobs(profile, "predictors", tmp_path / "results")
    run.execute()
    assert run.method == method and run.state() == "done"

    expected, passes = {}, []
    for index, seed in enumerate((0, 1)):
        model, test, split = opened(run, index)
        passes.append(prediction.predict(model, test))
        parts = [
            pvera.sample(model, test[s : s + 16], 16, derive(seed, "uncertainty", s))
            for s in (0, 16, 32)
        ]
        model.unload()
        expected["pass", seed] = expected_scores(passes[-1][None], split.labels)
        expected["samples", seed] = expected_scores(torch.cat(parts, 1).numpy(), split.labels)
    expected["ensemble", -1] = expected_scores(np.stack(passes), split.labels)

    frame = pd.DataFrame(results.read_arrays(run.path)).set_index(["predictor", "seed"])
    assert frame.index.tolist() == [
        ("pass", 0),
        ("samples", 0),
        ("pass", 1),
        ("samples", 1),
        ("ensemble", -1),
    ]
    for key, scores in expected.items():
        for name, value in scores.items():
            assert frame.loc[key, name] == pytest.approx(value, abs=1e-5, nan_ok=True), (
                key,
                name,
            )


def test_a_predictor_by_hand():
    """Three images, of which the second is wrong; confidences differ by 0.2, 0.4 and 0."""
    samples = [[[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [[0.7, 0.3], [0.5, 0.5], [0.4, 0.6]]]
    scores = predictor_comparison.score(np.array(samples), np.array([0, 1, 1]))
    assert (scores["passes"], scores["accuracy"]) == (2, 2 / 3)
    assert scores["nll"] == pytest.approx(-np.log([0.8, 0.3, 0.6]).mean())
    # 1 − confidence is 0.2, 0.3 and 0.4: the wrong one exceeds one of two. Its spread exceeds both.
    assert (scores["auroc"], scores["auroc_spread"]) == (0.5, 1.0)
    alone = predictor_comparison.score(np.array(samples[:1]), np.array([0, 1, 1]))
    assert alone["passes"] == 1 and np.isnan(alone["auroc_spread"])
