"""Tables of the analyses, each computed first, then rendered.

layout: the table type and its writers. names: full names of short keys. verdicts: the paper's claims, judged by
intervals over data sets. benchmark: accuracies, stars and grid choices (Tables 1, 4 and 6 to 8). pairs: leads with
intervals over test images. against_paper: the paper's numbers beside ours. profile: all tables of one profile.
comparison: statistical support of a ranking. ablations: rank and position (Tables 2 and 3). language: Appendix D. cost:
computational efficiency (Figure 3). calibration: Figure 4. uncertainty: draws and intervals. out_of_distribution,
latents: Section 4.4. duration: longer trainings. protocol: effects of the protocols'
switches. precision, wall_time: the price of speed.
"""

from pvera.report.tables.ablations import Ablation, ablation, ablation_verdicts
from pvera.report.tables.against_paper import grid_summary, published_detailed
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
    main,
    main_verdicts,
    marks,
    stars_summary,
    verdicts_on,
)
from pvera.report.tables.language import above_majority, language, language_of_profile, language_verdicts
from pvera.report.tables.layout import Cell, Panel, Row, Table
from pvera.report.tables.profile import of_profile, per_backbone
from pvera.report.tables.verdicts import Claim, Statement, answer, closing, verdict_table

__all__ = [
    "CLAIMS",
    "PANELS",
    "Ablation",
    "Cell",
    "Claim",
    "Panel",
    "Row",
    "Statement",
    "Table",
    "ablation",
    "ablation_verdicts",
    "about",
    "above_majority",
    "accuracies",
    "answer",
    "closing",
    "comparisons",
    "detailed",
    "grid",
    "grid_choices",
    "grid_summary",
    "groups",
    "language",
    "language_of_profile",
    "language_verdicts",
    "main",
    "main_verdicts",
    "marks",
    "of_profile",
    "per_backbone",
    "published_detailed",
    "stars_summary",
    "verdict_table",
    "verdicts_on",
]
