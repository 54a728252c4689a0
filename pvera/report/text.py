"""The texts of tables and figures: titles of keys, numbers, and Markdown's characters."""

import re
from typing import Any

import numpy as np
import pandas as pd

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data.tasks import TASKS

#: An empty cell.
NOTHING = "–"
#: A star in Markdown.
STAR = r"\*"
#: Key of a backbone or text encoder -> its title.
ENCODER_TITLES = backbones.TITLES | text_encoders.TITLES


def title(key: Any) -> str:
    """Return the title of a method, data set or backbone, or any other key as text."""
    known = METHODS.get(key) or TASKS.get(key)
    return known.title if known else ENCODER_TITLES.get(key, str(key))


def listed(values: pd.Series, form: str) -> str:
    """List values by their keys' titles: "LoRA 1.5, VeRA 2.0"."""
    return ", ".join(f"{title(key)} {form.format(value)}" for key, value in values.items())


def decimal(value: float, decimals: int) -> str:
    """Format a number with a true minus sign; zero has no sign, and NaN is an empty cell."""
    if np.isnan(value):
        return NOTHING
    # Sums in another order, equal but for the last bits, print the same.
    text = f"{round(value, 9):.{decimals}f}"
    is_zero = not text.strip("-0.")
    return text.lstrip("-") if is_zero else text.replace("-", "−")


def signed(value: float, decimals: int) -> str:
    """Format a number with its sign; zero has none."""
    text = decimal(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def thousands(value: float) -> str:
    """Format a count as the paper does: 30 720."""
    return NOTHING if np.isnan(value) else f"{value:,.0f}".replace(",", " ")


def interval(value: float, low: float, high: float, decimals: int = 1) -> str:
    """Format `value [low, high]`, or the value alone where a bound is NaN."""
    text = f"{decimal(value, decimals)} {bounds(low, high, decimals)}"
    return text.removesuffix(f" {NOTHING}")


def bounds(low: float, high: float, decimals: int = 1) -> str:
    """Format `[low, high]`; an empty cell where one is NaN."""
    if np.isnan([low, high]).any():
        return NOTHING
    return f"[{_bound(low, decimals)}, {_bound(high, decimals)}]"


def _bound(value: float, decimals: int) -> str:
    """Format an end of an interval; one near zero has as many decimals as show its sign."""
    while round(value, decimals) == 0 and abs(value) > 1e-6:
        decimals += 1
    return decimal(value, decimals)


def grid_value(value: Any) -> str:
    """Format a hyperparameter: 64, 0.001, "qv", None."""
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def escape(text: str) -> str:
    """Return text with Markdown's special characters escaped."""
    return re.sub(r"([*|_^])", r"\\\1", text)


LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "%_&#"},
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "×": r"$\times$",
        "α": r"$\alpha$",
        "β": r"$\beta$",
        "³": "$^3$",
        "<": "$<$",
        "*": "$^*$",
    }
)


def latex_text(text: str) -> str:
    """Return Markdown as LaTeX: marks, code, stars and signs."""
    text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", text)
    text = re.sub("<ins>(.*?)</ins>", r"\\underline{\1}", text)
    text = re.sub("`(.*?)`", r"\\texttt{\1}", text)
    return text.replace(STAR, "*").translate(LATEX)
