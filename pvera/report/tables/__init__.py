"""Tables of the analyses: what stands in them is computed first, then rendered.

layout: what a table is. claims: statements held against results. benchmark: accuracies, significance, grid choices
(Tables 1, 4 and 6 to 8). beside: the same beside the paper's. profile: all of these. ablations: rank and position
(Tables 2 and 3). ledger: the differences between the protocols.
language: the language table of Appendix D. cost: computational efficiency (Figure 3).
calibration: errors per method (Figure 4). comparison: what differences over data sets are worth.
duration: what more epochs bring.
"""

from pvera.report.tables.ablations import Ablation, ablation, ablation_verdicts
from pvera.report.tables.against_paper import published_detailed
from pvera.report.tables.benchmark import (
    CLAIMS,
    PANELS,
    about,
    accuracies,
    comparisons,
    detailed,
    grid,
    grid_choices,
    groups,
    held_claims,
    main,
    marks,
    verdicts,
)
from pvera.report.tables.language import language, language_of_profile, language_verdicts
from pvera.report.tables.layout import Cell, Panel, Row, Table
from pvera.report.tables.profile import of_profile, per_backbone
from pvera.report.tables.verdicts import Claim, verdict_table

__all__ = [
    "CLAIMS",
    "PANELS",
    "Ablation",
    "Cell",
    "Claim",
    "Panel",
    "Row",
    "Table",
    "ablation",
    "ablation_verdicts",
    "about",
    "accuracies",
    "comparisons",
    "detailed",
    "grid",
    "grid_choices",
    "groups",
    "held",
    "held_claims",
    "language",
    "language_claims",
    "language_of_profile",
    "main",
    "marks",
    "of_profile",
    "per_backbone",
    "published_detailed",
    "verdicts",
]
