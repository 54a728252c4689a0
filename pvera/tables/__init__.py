"""Tables of the analyses: what stands in them is computed first, then rendered.

layout: what a table is. benchmark: accuracies, significance, grid choices, claims (Tables 1, 4 and 6 to 8).
language: the language table of Appendix D.
"""

from .benchmark import (
    PANELS,
    about,
    accuracies,
    claims,
    comparisons,
    detailed,
    grid,
    grid_choices,
    groups,
    held_claims,
    main,
    marks,
    of_profile,
    of_runs,
)
from .language import language, language_of_profile
from .layout import Cell, Panel, Row, Table

__all__ = [
    "PANELS", "Cell", "Panel", "Row", "Table", "about", "accuracies", "claims", "comparisons", "detailed", "grid",
    "grid_choices", "groups", "held_claims", "language", "language_of_profile", "main", "marks", "of_profile",
    "of_runs",
]  # fmt: skip
