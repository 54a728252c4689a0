"""Tables, figures, notebook and claims of the uncertainty baselines, on hand-made predictions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hand import lines
from notebook import run as run_notebook
from records import CATEGORIES

from pvera.report.plots import uncertainty_baselines as figures
from pvera.report.tables import beta_effects
from pvera.report.tables import uncertainty_baselines as tables
from pvera.report.tables.verdicts import Untestable
from pvera.study import results, uncertainty_baselines
from pvera.study.uncertainty_baselines import ALL_SEEDS, Prediction, Predictor

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


def test_cells_are_means_over_seeds_then_data_sets(loaded):
    frame = loaded.scores
    part = frame[(frame["method"] == "pvera") & (frame["way"] == "draws") & (frame["passes"] == 4)]
    by_hand = part.groupby(["scaled", "dataset"])["nll"].mean().groupby("scaled").mean()
    *_, cells = tables.scores_table(loaded).texts().values()
    row = cells.loc["PVeRA, 4 draws"]
    assert (row["NLL"], row["NLL, T"]) == (f"{by_hand[False]:.3f}", f"{by_hand[True]:.3f}")
    assert row["ECE (%)"].endswith(")"), "a calibration error stands beside its floor"
    assert row["ms"] == "2.00"


def test_an_ensemble_is_compared_with_each_seed(loaded):
    values = tables.compared(loaded, "NLL")
    ensemble = values[2, "vera", "rivals", "ensemble"]
    assert list(ensemble.columns) == list(SEEDS) and (ensemble[0] == ensemble[1]).all()
    frame = loaded.scores
    (digits,) = frame[(frame["seed"] == ALL_SEEDS) & (frame["method"] == "vera") & (frame["source"] == "rivals")
                      & (frame["dataset"] == "digits") & ~frame["scaled"]]["nll"]  # fmt: skip
    assert ensemble.loc["digits", 0] == digits
    table = tables.differences_table(loaded)
    gap = (ensemble - values[tables.REFERENCE]).mean(axis=1).mean()
    data = table.data
    row = data[(data["way"] == "ensemble") & (data["method"] == "vera") & (data["score"] == "NLL")
               & (data["source"] == "rivals")]  # fmt: skip
    assert row["mean"].item() == pytest.approx(gap) and row["low"].item() < gap < row["high"].item()
    assert "PVeRA" not in {label for cells in table.texts().values() for label in cells.index}, "it is the reference"


def test_detection_and_shift(loaded):
    detection = pd.concat(tables.detection_table(loaded).texts().values())
    assert (detection.loc["PVeRA", ["mutual", "spread"]] == "–").all(), "one pass has no spread"
    assert (detection.loc["PVeRA, 4 draws"] != "–").all()
    out = tables.near_or_far(loaded)
    same = out[(out["dataset"] == "digits") & (out["other"] == "digits")]
    assert set(same["distance"]) == {tables.NEAR} and set(out["distance"]) == {tables.NEAR, tables.FAR}
    shown = pd.concat(tables.shift_table(loaded).texts().values()).loc["PVeRA, 4 draws"]
    frame = loaded.shift
    part = frame[(frame["method"] == "pvera") & (frame["way"] == "draws") & (frame["passes"] == 4)]
    worst = part[(part["severity"] == 5) & ~part["scaled"]]["ace"].mean()
    assert shown["5"] == f"{100 * worst:.1f}"
    far = out[(out["method"] == "pvera") & (out["way"] == "draws") & (out["passes"] == 4) & (out["by"] == "score")
              & (out["distance"] == tables.FAR)]  # fmt: skip
    assert shown["AUROC, far"] == f"{far.groupby('dataset')['auroc'].mean().mean():.3f}"


def test_contrasts_take_the_most_draws(loaded, tmp_path):
    values = tables.compared(loaded, "NLL")
    gain = tables.better("NLL", "draws", "mean")(loaded)[""]
    pd.testing.assert_frame_equal(gain, values[tables.REFERENCE] - values[4, "pvera", "rivals", "draws"])
    assert gain.mean(axis=None) > 0, "lower is better"
    found = tables.better("AUROC of errors", "draws", "mean")(loaded)[""]
    errors = tables.compared(loaded, "AUROC of errors")
    pd.testing.assert_frame_equal(found, errors[4, "pvera", "rivals", "draws"] - errors[tables.REFERENCE])
    write(tmp_path, "rivals", "digits", "pvera", [1, 2], 2.0)
    with pytest.raises(Untestable, match="no runs of VeRA with dropout, draws"):
        tables.better("AUROC of errors", "draws", "dropout")(tables.load(tmp_path, "mine"))


def test_advice_names_the_best_of_all_and_of_one_pass(loaded):
    table = tables.advice(loaded)
    for purpose, columns in tables.ADVICE.items():
        sign = tables.COMPARED[columns[0]].sign
        averages = {
            (column, *key): sign * part.mean(axis=1).mean(skipna=False)
            for column in columns for key, part in tables.compared(loaded, column).items()
        }  # fmt: skip
        means = {key: mean for key, mean in averages.items() if not np.isnan(mean)}  # no errors, no AUROC
        once = {key: mean for key, mean in means.items() if key[1] == 1}
        for passes, among in (("one", once), ("any", means)):
            row = table.data[(table.data["purpose"] == purpose) & (table.data["passes"] == passes)].squeeze()
            best = max(among, key=among.get)
            name = tables.way_title(*best[2:], best[1]) + ", with a temperature" * (best[0] != columns[0])
            assert (row["best"], row["score"], row["value"]) == (name, best[0], sign * among[best])
            assert row["others"] == len(among) - 1 and 0 <= row["ties"] <= row["others"]
            assert f"{row['best']} ({row['value']:.{tables.COMPARED[columns[0]].digits}f}; " in table.markdown()


def moved(frame, passes=5):
    """The frame as if a seed of LoRA's ensemble had diverged on one data set."""
    chosen = (frame["method"] == "lora") & (frame["way"] == "ensemble") & (frame["dataset"] == "vessels")
    return frame.assign(passes=frame["passes"].where(~chosen, passes))


def test_a_way_that_a_data_set_lacks_is_averaged_with_no_other(loaded):
    """Else it could win by being tried on the easy data sets alone."""
    frames = {name: moved(getattr(loaded, name)) for name in ("scores", "detection", "coverage", "shift", "out")}
    parted = replace(loaded, **frames)
    assert not parted.scores.equals(loaded.scores)
    assert not tables.advice(parted).data["best"].str.contains("LoRA, ensemble").any()
    means = tables.over_tasks(parted.scores[~parted.scores["scaled"]], "nll")
    assert means.isna().sum() == 2 and means.notna().any()


def test_along_beta(root):
    along = beta_effects.load(root, "mine")
    data = beta_effects.along_beta(along)
    assert list(data["beta"]) == [0, 1e-6, 0.1]
    assert data["accuracy"].iloc[0] > data["accuracy"].iloc[2]
    table = beta_effects.beta_table(along)
    assert [row[0] for row in lines(table)] == ["0", "10⁻⁶", "0.1"]
    assert len(beta_effects.along_beta(along, ("beta", "seed"))) == 6


def test_figures(loaded, root):
    risk = figures.risk_coverage(loaded).axes[0]
    keys = figures.shown({tuple(row) for row in loaded.coverage[tables.KEY].itertuples(index=False)})
    keys = [way for way in keys if way[1] == "pvera" or way[3] in ("pass", "draws")]
    assert len(risk.lines) == len(keys) == 7
    linear = next(line for line, key in zip(risk.lines, keys) if key[1:] == ("linear", "rivals", "pass"))
    frame = loaded.coverage
    part = frame[(frame["method"] == "linear") & (frame["way"] == "pass")]
    np.testing.assert_allclose(linear.get_ydata()[-1], 100 * part[part["coverage"] == 1]["risk"].mean())
    cost = figures.scores_against_cost(loaded)
    assert [ax.get_title() for ax in cost.axes] == list(figures.COST_PANELS)
    draws = [line for line in cost.axes[0].lines if list(line.get_xdata()) == [1, 2, 4]]
    assert len(draws) == 2
    severity = figures.calibration_by_severity(loaded)
    assert all(list(line.get_xdata()) == [0, 1, 2, 3, 4, 5] for ax in severity.axes for line in ax.lines)
    beta = figures.along_beta(beta_effects.load(root, "mine"))
    assert [ax.get_title() for ax in beta.axes] == list(figures.BETA_PANELS)


def test_the_notebook(root, monkeypatch):
    text, pictures = run_notebook("uncertainty_baselines.ipynb", root.parent, "mine", monkeypatch)
    assert [path.stem for path in pictures] == [
        "rivals_cost",
        "rivals_risk_coverage",
        "rivals_severity",
        "beta_effects",
    ]
    assert "The predictive distribution: NLL" in text and "nan" not in text
    written = {path.stem for path in (root / "mine/tables").glob("*.md")}
    assert written == {
        "rivals", "rivals_detection", "rivals_differences", "rivals_shift", "rivals_claims", "rivals_advice",
        "beta_effects",
    }  # fmt: skip
