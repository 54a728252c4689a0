"""Comparisons of methods: their statistics, tables, figures and notebook."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from notebook import ROOT, run
from records import make_record, write_all

from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report import published, stars
from pvera.report.plots import comparison as draw
from pvera.report.scores import ROWS, complete
from pvera.report.statistics import LEVEL, binomial_p_value, friedman, seed_error
from pvera.report.tables import comparison

PAPER = published.load(ROOT / "results/published")
IMAGES = 1000


def runs_of(correct):
    """Return records of {method: {data set: correct answers of 1000 per seed}}; None for a missing run."""
    return [
        make_record(method, dataset, seed, count, IMAGES)
        for method, of_method in correct.items()
        for dataset, of_seeds in of_method.items()
        for seed, count in enumerate(of_seeds)
        if count is not None
    ]


HAND = {
    "lora": {"digits": [500, 520], "vessels": [900, 880], "sprites": [300, 310]},
    "vera": {"digits": [400, 420], "vessels": [800, 780], "sprites": [350, 330]},
    "pvera": {"digits": [450, 470], "vessels": [850, 830], "sprites": [320, 320]},
}


@pytest.fixture(scope="module")
def compared():
    return comparison.of_runs(runs_of(HAND))


def test_comparison_by_hand(compared):
    table = compared.methods
    np.testing.assert_allclose(table["average"], [(51 + 89 + 30.5) / 3, (41 + 79 + 34) / 3, (46 + 84 + 32) / 3])
    np.testing.assert_allclose(table["lead"], [-8.5 / 3, 8 / 3, 0])
    # Ranks: lora, pvera, vera twice, then vera, pvera, lora
    np.testing.assert_allclose(table["rank"], [5 / 3, 7 / 3, 2])
    # Above VeRA by 5 and 5, below by 2: ranks 2.5, 2.5, 1, and two of the eight signs give a sum of 5 or more
    assert table.at["vera", "signed_rank"] == pytest.approx(2 / 8)
    assert table.at["vera", "improvement"] == pytest.approx(2 / 3)
    assert table.at["lora", "improvement"] == pytest.approx(1 / 3)
    assert table.loc["pvera", ["improvement", "signed_rank", "lead_seeds"]].isna().all()
    np.testing.assert_allclose(compared.improvement + compared.improvement.T, 1)
    assert table["highest"].sum() == pytest.approx(1)


def test_stars_by_hand(compared):
    counts_of, reference = {"vera": (820, 1580, 680), "lora": (1020, 1780, 610)}, (920, 1680, 640)
    for method, counts in counts_of.items():
        below = sum(binomial_p_value(c, 2 * IMAGES, r) < LEVEL for c, r in zip(counts, reference))
        wrong = ((2 * IMAGES - c, 2 * IMAGES - r) for c, r in zip(counts, reference))
        above = sum(binomial_p_value(c, 2 * IMAGES, r) < LEVEL for c, r in wrong)
        assert compared.methods.at[method, "lower"] == below
        assert compared.methods.at[method, "higher"] == above
    assert compared.methods["lower"].tolist() == [0, 2, 0]
    assert compared.methods["higher"].tolist() == [2, 1, 0]


def test_lead_over_seeds_is_that_of_the_statistics(compared):
    std = (compared.scores.groupby(level="dataset").std())[["vera", "pvera"]]
    both = np.hypot(std["vera"], std["pvera"])
    assert compared.methods.at["vera", "lead_seeds"] == pytest.approx(100 * seed_error(both, 2))


def test_leads_are_paired_over_data_sets():
    """An equal lead on each data set has an interval of width zero, however the data sets differ."""
    correct = {"vera": {"digits": [100], "vessels": [500], "sprites": [900]},
               "pvera": {"digits": [150], "vessels": [550], "sprites": [950]}}  # fmt: skip
    methods = comparison.of_runs(runs_of(correct)).methods
    vera = methods.loc["vera"]
    assert (vera["lead_low"], vera["lead_high"]) == pytest.approx((5, 5))
    assert vera["high"] - vera["low"] > 50 and methods.at["pvera", "highest"] == 1


def test_missing_runs_leave_data_sets_out():
    correct = HAND | {"vera": HAND["vera"] | {"vessels": [None, None], "digits": [400, None]}}
    compared = comparison.of_runs(runs_of(correct))
    assert list(compared.scores.index.unique("dataset")) == ["digits", "sprites"]
    assert "Over the 2 of 3 data sets" in compared.about
    methods = compared.methods
    assert methods.at["vera", "average"] == pytest.approx((40 + 34) / 2)
    assert np.isnan(methods.at["vera", "lead_seeds"])  # one run has no spread


@pytest.mark.parametrize("methods", [["lora", "vera"], ["pvera"]])
def test_a_comparison_needs_pvera_and_another(methods):
    with pytest.raises(InputError, match="another method"):
        comparison.of_runs(runs_of({method: HAND[method] for method in methods}))


@pytest.fixture(scope="module")
def of_paper():
    return {b: comparison.of_published(PAPER, b) for b in published.BACKBONES}


@pytest.mark.parametrize("backbone", published.BACKBONES)
def test_published_evidence(backbone, of_paper):
    compared = of_paper[backbone]
    assert compared.scores.shape == (19, 8) and compared.scores.notna().all(axis=None)
    table = PAPER.accuracies(backbone)
    np.testing.assert_allclose(compared.methods["average"], table.mean(axis=1))
    np.testing.assert_allclose(compared.methods["rank"], table.rank(ascending=False).mean(axis=1))
    np.testing.assert_array_equal(compared.methods["printed"], PAPER.accuracies(backbone, "star").sum(axis=1))
    # Where recomputed stars differ from the printed ones, the audit reports a contradiction or leaves it open.
    images = [3 * TASKS[name].test_images for name in table]
    correct = (table * images / 100).round()
    lower = pd.DataFrame(
        [[binomial_p_value(*cell) < LEVEL for cell in zip(row, images, correct.loc["pvera"])]
         for row in correct.to_numpy()], correct.index, correct.columns,
    ).drop("pvera")  # fmt: skip
    np.testing.assert_array_equal(compared.methods["lower"].drop("pvera"), lower.sum(axis=1))
    decided, printed = stars.decisions(PAPER, backbone), PAPER.accuracies(backbone, "star")
    open_or_wrong = decided.isna() | stars.contradictions(decided, printed)
    differ = lower != printed.drop("pvera")
    assert differ.any(axis=None) and open_or_wrong.loc[differ.index, differ.columns][differ].stack().all()
    assert compared.ranks.critical_difference == pytest.approx(3.031 * np.sqrt(8 * 9 / (6 * 19)), abs=2e-3)
    assert (compared.methods["lower_holm"] <= compared.methods["lower_bh"]).all()
    assert (compared.methods["lower_bh"] <= compared.methods["lower"]).all()


def test_few_data_sets_by_hand(of_paper):
    samples = comparison.sizes(of_paper["dinov2_b"], (3, 19, 30)).data.set_index("datasets")
    assert samples.loc[3, "critical_difference"] == pytest.approx(3.031 * np.sqrt(72 / 18), abs=2e-3)
    assert samples.loc[3, "least_p_value"] == 7 / 8 and samples.loc[3, "resamples"] == 10
    assert samples.loc[19, "highest"] == 1  # there is one way to choose all
    assert samples.loc[19, "linear"] == 1 and samples.loc[19, "vera"] == 0
    assert 0 < samples.loc[3, "highest"] < 1 and np.isnan(samples.loc[30, "highest"])


def test_support_counts_tables(of_paper):
    compared = list(of_paper.values())
    table = comparison.support(compared)
    data = table.data.set_index("method")
    leads = np.sum([c.methods["lead"].drop("pvera") > 0 for c in compared], axis=0)
    np.testing.assert_array_equal(data["Higher average"], leads)
    assert (data["Nemenyi's test"] <= data["Higher average"]).all() and "pvera" not in data.index
    assert table.caption.startswith("PVeRA has the highest average in 3 of 3 tables.")


def test_critical_difference_diagram_joins_indistinguishable_methods():
    values = np.array([[9.0, 9, 9, 9, 9], [8, 8, 8, 8, 8], [1, 1, 1, 1, 2], [0, 0, 0, 0, 1]])
    result = friedman(values)
    ax = draw.critical_difference(Figure().subplots(), ["lora", "dora", "vera", "pvera"], result)
    bars = [line.get_ydata() for line in ax.lines if line.get_linewidth() == 2.2]
    expected = [result.ranks[list(clique)] for clique in result.cliques]
    assert len(bars) == len(expected) == 2
    for bar, ranks in zip(bars, expected):
        np.testing.assert_allclose(bar, [ranks.min(), ranks.max()])
    assert [text.get_text() for text in ax.texts][0] == "LoRA 1.00"


def test_improvement_matrix_shows_each_pair_once(compared):
    ax = draw.improvement(Figure().subplots(), compared.improvement)
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert len(texts) == 3 and texts[(1.5, 1.5)] == "67"  # PVeRA over VeRA
    rows, columns = ([label.get_text() for label in labels] for labels in (ax.get_yticklabels(), ax.get_xticklabels()))
    assert rows[-1] == "PVeRA" and columns[-1] == "VeRA"


def test_rank_diagrams_stand_side_by_side_and_hide_no_method(of_paper):
    figure = draw.ranks(list(of_paper.values()))
    figure.canvas.draw()
    assert len(figure.axes) == 3
    for ax, compared in zip(figure.axes, of_paper.values()):
        assert len(ax.texts) == len(compared.methods)
        places = np.sort([text.get_position()[1] for text in ax.texts])
        assert np.diff(places).min() >= 0.55 - 1e-9 and ax.get_title().endswith("19 data sets")


def test_notebook_on_two_methods(tmp_path, monkeypatch):
    correct = {"vera": HAND["vera"] | {"digits": [400, None]}, "pvera": HAND["pvera"]}
    write_all(tmp_path / "results", runs_of(correct))
    text, _ = run("comparison.ipynb", tmp_path, "mine", monkeypatch)
    assert "Missing: VeRA on Digits (seed 1)" in text


def test_scores_complete():
    index = pd.MultiIndex.from_tuples(
        [(category, name, seed) for category, name in ("ad", "bn", "cv") for seed in (0, 1)], names=ROWS
    )
    scores = pd.DataFrame({"vera": [1, np.nan, np.nan, np.nan, 3, 1.0], "pvera": np.arange(6.0)}, index)
    assert complete(scores).index.unique("dataset").tolist() == ["d", "v"] and complete(scores)["pvera"].sum() == 10
    with pytest.raises(InputError, match="no data set"):
        complete(scores.iloc[2:4])
