"""Tables, figures, notebook and claims of the uncertainty baselines, on hand-made predictions."""

import numpy as np
import pandas as pd
import pytest
from hand import lines
from records import CATEGORIES

from pvera.report.plots import uncertainty_baselines as figures
from pvera.report.tables import uncertainty_baselines as tables
from pvera.report.tables.verdicts import Untestable
from pvera.study import results, uncertainty_baselines
from pvera.study.uncertainty_baselines import Prediction, Predictor

SEEDS, CLASSES, IMAGES = (0, 1), 4, 60
PLACES = {
    "validation": 40,
    "test": IMAGES,
    **{("shift", name, severity): 20 for name in ("noise", "blur") for severity in (1, 2, 3, 4, 5)},
    ("out", "vessels"): 20,
    ("out", "digits"): 20,
}
LABELS = {
    place: np.random.default_rng([3, i]).integers(0, CLASSES, n)
    for i, (place, n) in enumerate((p, n) for p, n in PLACES.items() if p in ("validation", "test"))
}


def drawn(source, k: int, sure: float, place, spread: float = 0.5) -> np.ndarray:
    """Return scores (k, n, classes) of noisy logits around `sure` times the label's one-hot vector; less sure under
    shift."""
    n = PLACES[place]
    if place[0] == "shift":
        sure = sure * (1 - place[2] / 8)
    labels = LABELS[place] if isinstance(place, str) else LABELS["test"][:n]
    base = source.normal(size=(n, CLASSES)) + (0 if place[0] == "out" else sure) * np.eye(CLASSES)[labels]
    logits = base + spread * source.normal(size=(k, n, CLASSES))
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def write(root, experiment, dataset, method, numbers, sure, laplace=False, places=PLACES):
    """Write the result of one `Ensemble`, with one pass and `numbers` of draws per seed."""
    source = np.random.default_rng([*experiment.encode(), *dataset.encode(), *method.encode()])
    ways = []
    for seed in SEEDS:
        scores = {place: drawn(source, max([1, *numbers]), sure, place) for place in places}
        for name, k in [("pass", 1), *(("draws", k) for k in numbers), *([("laplace", 1)] if laplace else [])]:
            predictions = {place: Prediction.of(part[:k]) for place, part in scores.items()}
            ways.append(Predictor(name, k, seed, predictions, 0.5 * k))
    ways.append(uncertainty_baselines.ensemble([way for way in ways if way.way == "pass"]))
    frames = uncertainty_baselines.frames(ways, LABELS, 20)
    config = {"seed": 0, "adapter_sha256": ["a", "b"], "shifted_images": 20, "tested": [dataset]}
    place = dict(zip(results.IDENTITY, ("mine", experiment, "tiny", dataset, method, 0)))
    record = place | {"schema": results.SCHEMA, "category": CATEGORIES[dataset], "protocol": "corrected",
                      "config": config, "config_hash": results.config_hash(config)}  # fmt: skip
    path = results.run_path(root, *(record[key] for key in results.IDENTITY))
    results.write(path, record, arrays=uncertainty_baselines.as_arrays(frames))
    return frames


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("rivals") / "results"
    for dataset in ("digits", "vessels", "sprites"):
        for method, sure in (("linear", 1.0), ("lora", 2.0), ("vera", 1.5), ("pvera", 2.5)):
            draws = [1, 2, 4] if method == "pvera" else []
            write(root, "rivals", dataset, method, draws, sure, laplace=method in uncertainty_baselines.LAPLACE)
        write(root, "dropout_rivals", dataset, "vera", [1, 2, 4], 1.4)
        few = {place: n for place, n in PLACES.items() if isinstance(place, str)}
        for beta, sure in (("0", 2.0), ("1e-06", 1.8), ("0.1", 0.2)):
            write(root, f"beta_rivals_{beta}", dataset, "pvera", [1, 2], sure, places=few)
    return root


@pytest.fixture(scope="module")
def loaded(root):
    return tables.load(root, "mine")


def test_frames_come_back_as_they_were_written(tmp_path):
    frames = write(tmp_path, "rivals", "digits", "pvera", [1, 2], 2.0)
    (path,) = tmp_path.rglob("*.json")
    again = uncertainty_baselines.read_frames(path)
    for name, frame in frames.items():
        assert list(again[name]) == list(frame)
        for column in frame:
            np.testing.assert_array_equal(again[name][column], frame[column])
    assert again["scores"]["scaled"].dtype == bool


def test_ways_of_equal_numbers_of_passes_stand_together(loaded):
    one, two, four = (cells.index for cells in tables.scores_table(loaded).texts().values())
    assert list(four) == ["VeRA with dropout, 4 draws", "PVeRA, 4 draws"] and len(two) == 7
    assert list(one) == ["Linear", "Linear, Laplace", "LoRA", "VeRA", "VeRA, Laplace", "VeRA with dropout",
                         "VeRA with dropout, 1 draw", "PVeRA", "PVeRA, 1 draw"]  # fmt: skip


def rows(baselines, frame, method, way, passes, **where):
    """Return the rows of a way, and of the benchmark's adapters."""
    found = baselines.frames[frame]
    for name, value in {"method": method, "way": way, "passes": passes, "source": "rivals", **where}.items():
        found = found[found[name] == value]
    return found


def test_cells_are_means_over_seeds_then_data_sets(loaded):
    part = rows(loaded, "scores", "pvera", "draws", 4)
    by_hand = part.groupby(["scaled", "dataset"])["nll"].mean().groupby("scaled").mean()
    *_, cells = tables.scores_table(loaded).texts().values()
    row = cells.loc["PVeRA, 4 draws"]
    assert (row["NLL"], row["NLL, T"]) == (f"{by_hand[False]:.3f}", f"{by_hand[True]:.3f}")
    floor = 100 * part[~part["scaled"]].groupby("dataset")["ece_floor"].mean().mean()
    assert row["ECE (%)"].endswith(f" ({floor:.1f})"), "a calibration error stands beside its floor"
    assert row["ms"] == "2.00"


def test_an_ensemble_is_compared_with_each_seed(loaded):
    values = tables.compared(loaded, "NLL")
    ensemble = values.loc[2, "vera", "rivals", "ensemble"]
    assert list(ensemble.columns) == list(SEEDS) and (ensemble[0] == ensemble[1]).all()
    (digits,) = rows(loaded, "scores", "vera", "ensemble", 2, dataset="digits", scaled=False)["nll"]
    assert ensemble.loc["digits", 0] == digits
    table = tables.differences_table(loaded)
    gap = (ensemble - values.loc[tables.REFERENCE]).mean(axis=1).mean()
    row = table.data.set_index([*tables.KEY, "score"]).loc[2, "vera", "rivals", "ensemble", "NLL"]
    assert row["mean"] == pytest.approx(gap) and row["low"] < gap < row["high"]
    assert "PVeRA" not in {label for cells in table.texts().values() for label in cells.index}, "it is the reference"


def test_detection_and_shift(loaded):
    detection = pd.concat(tables.detection_table(loaded).texts().values())
    assert (detection.loc["PVeRA", ["mutual", "spread"]] == "–").all(), "one pass has no spread"
    assert (detection.loc["PVeRA, 4 draws"] != "–").all()
    out = loaded.frames["out"]
    same = out[(out["dataset"] == "digits") & (out["other"] == "digits")]
    assert set(same["distance"]) == {tables.NEAR} and set(out["distance"]) == {tables.NEAR, tables.FAR}
    shown = pd.concat(tables.shift_table(loaded).texts().values()).loc["PVeRA, 4 draws"]
    worst = rows(loaded, "shift", "pvera", "draws", 4, severity=5, scaled=False)["ace"].mean()
    assert shown["5"] == f"{100 * worst:.1f}"
    far = rows(loaded, "out", "pvera", "draws", 4, by="score", distance=tables.FAR)
    assert shown["AUROC, far"] == f"{far.groupby('dataset')['auroc'].mean().mean():.3f}"


def test_contrasts_take_the_most_draws(loaded, tmp_path):
    for name, sign in (("NLL", -1), ("AUROC of errors", 1)):
        values = tables.compared(loaded, name)
        gain = tables.better(name, "draws", "mean")(loaded)[""]
        expected = sign * (values.loc[4, "pvera", "rivals", "draws"] - values.loc[tables.REFERENCE])
        pd.testing.assert_frame_equal(gain, expected)
    write(tmp_path, "rivals", "digits", "pvera", [1, 2], 2.0)
    with pytest.raises(Untestable, match="no runs of VeRA with dropout, draws"):
        tables.better("AUROC of errors", "draws", "dropout")(tables.load(tmp_path, "mine"))


def test_a_way_that_a_data_set_lacks_has_no_mean(loaded):
    """Else it would be compared on other data sets, as if a seed of LoRA's ensemble had diverged on one."""
    frame = loaded.frames["scores"]
    chosen = (frame["method"] == "lora") & (frame["way"] == "ensemble") & (frame["dataset"] == "vessels")
    parted = frame.assign(passes=frame["passes"].where(~chosen, 5))
    means = tables.over_tasks(parted[~parted["scaled"]], "nll")
    assert means.isna().sum() == 2 and means.notna().any()


def test_along_beta(root):
    """One pass, and the most draws of two numbers."""
    along = tables.load_along_beta(root, "mine")
    table = tables.beta_table(along)
    data = table.data.set_index("beta")
    assert list(data.index) == [0, 1e-6, 0.1] and data["accuracy"].iloc[0] > data["accuracy"].iloc[2]
    scores = along.frames["scores"]
    drawn = scores[(scores["way"] == "draws") & ~scores["scaled"] & (scores["beta"] == 0.1)]
    assert set(drawn["passes"]) == {2} and data.at[0.1, "nll_draws"] == pytest.approx(drawn["nll"].mean())
    assert [row[0] for row in lines(table)] == ["0", "10⁻⁶", "0.1"]
    assert lines(table)[0][1] == f"{100 * data['accuracy'].iloc[0]:.1f}"


def test_figure(loaded):
    cost = figures.scores_against_cost(loaded)
    assert [ax.get_title() for ax in cost.axes] == list(figures.PANELS)
    draws = [line for line in cost.axes[0].lines if list(line.get_xdata()) == [1, 2, 4]]
    assert [line.get_alpha() for line in draws] == [0.5, 1.0], "VeRA's dropout is pale"
    expected = [rows(loaded, "scores", "pvera", "draws", k, scaled=False)["nll"].mean() for k in (1, 2, 4)]
    np.testing.assert_allclose(draws[1].get_ydata(), expected)
    names = [text.get_text() for text in cost.legends[0].get_texts()]
    assert names == ["Linear", "LoRA", "VeRA", "PVeRA", *(name for name, *_ in figures.LOOKS.values())]
