"""Parts that figures share, and the figures of the text tasks and of the audit."""

from pathlib import Path

import numpy as np
import pandas as pd

from pvera.report import published
from pvera.report.plots import forests
from pvera.report.plots import uncertainty as uncertainty_plots

PAPER = published.load(Path(__file__).parents[2] / "results" / "published")


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
    (ax,) = forests.language(scores, {"rte": 0.527}, paper).axes
    dots = [line.get_xdata().tolist() for line in ax.lines if line.get_markersize() == 2]
    np.testing.assert_allclose(dots, [[50, 60], [70, 80]])
    means = [line.get_xdata()[0] for line in ax.lines if line.get_markersize() == 4.2]
    np.testing.assert_allclose(means, [55, 75])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_mfc() == "white"] == [76.7]
    np.testing.assert_allclose([line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"], [52.7])
