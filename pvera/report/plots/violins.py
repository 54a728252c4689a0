"""Violins of the values of images, with the significance of their differences."""

from collections.abc import Sequence

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

#: What `stars` returns, for a note.
STARS = "**** p ≤ 0.0001 … * p ≤ 0.05"


def stars(p: float) -> str:
    """Return the stars of the paper's figures, or "ns".

    **** to 0.0001, *** to 0.001, ** to 0.01, * to 0.05.
    """
    return "*" * sum(p <= level for level in (1e-4, 1e-3, 1e-2, 0.05)) or "ns"


def violins(
    ax: Axes, groups: Sequence[np.ndarray], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw a violin per group of values, with a box plot inside; none for an empty one.

    It reaches from the lowest to the highest value.
    """
    # One label per value, as seaborn wants.
    names = np.repeat(labels, [len(values) for values in groups])
    seaborn.violinplot(
        x=names,
        y=np.concatenate(groups),
        order=labels,
        hue=names,
        palette=dict(zip(labels, colours, strict=True)),
        legend=False,
        cut=0,
        density_norm="width",
        linewidth=0.5,
        saturation=1,
        alpha=0.7,
        inner_kws={"box_width": 3, "whis_width": 0.7, "solid_capstyle": "butt"},
        ax=ax,
    )
    ax.tick_params(axis="x", length=0)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.grid(axis="y")


def bracket(ax: Axes, left: float, right: float, height: float, text: str) -> None:
    """Draw a line between two violins at `height`, a share of the axes' height, with a text."""
    # x in the violins' positions, y as a share of the axes' height.
    transform = ax.get_xaxis_transform()
    low = height - 0.02
    ax.plot(
        [left, left, right, right],
        [low, height, height, low],
        color="0.3",
        linewidth=0.6,
        transform=transform,
        clip_on=False,
    )
    ax.text(
        (left + right) / 2,
        height + 0.01,
        text,
        transform=transform,
        ha="center",
        va="bottom",
        fontsize=6,
    )
