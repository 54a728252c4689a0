"""Parts that figures share, and the figures of the text tasks and of the audit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pvera.adapters import METHODS
from pvera.report import audit, plots, published, stars
from pvera.report.plots import audit as audit_plots
from pvera.report.plots import language as language_plots
from pvera.report.plots import uncertainty as uncertainty_plots

PAPER = published.load(Path(__file__).parents[2] / "results" / "published")


@pytest.mark.parametrize(
    "places, gap, expected",
    [
        ([3.0, 1.0], 1, [3, 1]),  # far enough apart
        ([1.0, 1.0], 1, [0.5, 1.5]),
        ([5.0, 1.2, 1.0], 1, [5, 1.6, 0.6]),
        ([], 1, []),
    ],
)
def test_labels_move_apart_as_little_as_they_can(places, gap, expected):
    np.testing.assert_allclose(plots.spaced(places, gap), expected)


def test_labels_stay_between_their_bounds():
    moved = plots.spaced([0.0, 0.01, 0.02, 0.99], 0.2, 0, 1)
    assert moved.min() >= 0 and moved.max() <= 1 and np.diff(moved).min() >= 0.2 - 1e-12


def test_widths_above_one_are_not_drawn_and_their_share_is_stated():
    widths = {4: (np.array([0.2, 0.4]), np.array([0.5, 1.5])), 16: (np.array([0.1, 0.2]), np.array([0.2, 0.3]))}

    class Run:
        estimates = dict.fromkeys(widths)

    figure = uncertainty_plots.pairs([Run()], lambda _, k: widths[k], "Width", "correct: so", 1)
    figure.canvas.draw()
    assert [ax.get_ylim() for ax in figure.axes] == [(0, 1), (0, 1)]
    assert figure.get_supxlabel().endswith("not drawn: widths above 1, 25.0 % of 4 draws")


def test_language_figure_shows_seeds_means_majority_and_paper():
    index = pd.MultiIndex.from_product([["language"], ["rte"], [0, 1]], names=["category", "dataset", "seed"])
    scores = pd.DataFrame({"lora": [0.5, 0.6], "pvera": [0.7, 0.8]}, index)
    paper = pd.DataFrame({"task": ["RTE"], "method": ["pvera"], "score": [76.7]})
    (ax,) = language_plots.language(scores, {"rte": 0.527}, paper).axes
    dots = [line.get_xdata().tolist() for line in ax.lines if line.get_markersize() == 2]
    np.testing.assert_allclose(dots, [[50, 60], [70, 80]])
    means = [line.get_xdata()[0] for line in ax.lines if line.get_markersize() == 4.2]
    np.testing.assert_allclose(means, [55, 75])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_mfc() == "white"] == [76.7]
    np.testing.assert_allclose([line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"], [52.7])


def test_audit_figure_shows_every_contradictory_star():
    findings = audit.audit(PAPER)
    figure = audit_plots.audit(PAPER, findings)
    figure.canvas.draw()
    *grid, bars = figure.axes
    assert len(grid) == len(published.TABLES)
    for ax, backbone in zip(grid, published.TABLES):
        wrong = stars.contradictions(stars.decisions(PAPER, backbone), PAPER.accuracies(backbone, "star"))
        drawn = {
            (list(METHODS)[int(line.get_xdata()[0])], wrong.columns[int(line.get_ydata()[0])])
            for line in ax.lines
            if line.get_marker() == "*"
        }
        assert drawn == {(method, name) for method, row in wrong.iterrows() for name in row.index[row]}
    counts = findings.loc[findings["verdict"] == audit.CONTRADICTS, "check"].value_counts()
    assert sorted(bar.get_width() for bar in bars.patches) == sorted(counts)
