"""The audit: is the paper consistent with itself? Every printed number that others determine is recomputed.

A *finding* is one printed thing, its value according to everything else that is printed, and a verdict:

    follows           the other printed numbers give it
    within rounding   they do not, but numbers that round to them can
    undecidable       some numbers that round to the printed ones give it, others give its opposite
    does not follow   no numbers that round to the printed ones give it
    not checkable     it needs data, or a definition, that the paper does not print

Rounding is taken in the paper's favour: a printed 71.4 stands for anything from 71.35 to 71.45 inclusive.
Reasons in the notes are conjectures from patterns; only the authors can know.
"""

import pandas as pd

from pvera.report.audit.ablations import ablation_losses, check_ablations
from pvera.report.audit.averages import check_averages, check_cells, means
from pvera.report.audit.core import CONTRADICTS, FOLLOWS, HALF, OPEN, ROUNDING, UNCHECKED, VERDICTS, Finding, near
from pvera.report.audit.grid import check_grid, check_search
from pvera.report.audit.marks import check_marks
from pvera.report.audit.order import check_order, ranks
from pvera.report.audit.page import markdown, summary, table
from pvera.report.audit.sizes import adapter_sizes, check_costs, check_sizes
from pvera.report.audit.spreads import check_divisor, check_spreads, divisor, sample_std
from pvera.report.audit.stars import check_stars, contradictions, decisions, exchanges, readings
from pvera.report.audit.suspects import check_suspects
from pvera.report.audit.text import check_counts, check_equations, uncheckable
from pvera.report.published import Published

__all__ = [
    "CONTRADICTS",
    "FOLLOWS",
    "HALF",
    "OPEN",
    "ROUNDING",
    "UNCHECKED",
    "VERDICTS",
    "Finding",
    "ablation_losses",
    "adapter_sizes",
    "audit",
    "check_costs",
    "check_sizes",
    "contradictions",
    "decisions",
    "divisor",
    "exchanges",
    "markdown",
    "means",
    "near",
    "ranks",
    "readings",
    "sample_std",
    "summary",
    "table",
]

#: In the order of the paper's tables.
CHECKS = (
    check_cells,
    check_averages,
    check_order,
    check_marks,
    check_stars,
    check_spreads,
    check_divisor,
    check_suspects,
    check_grid,
    check_search,
    check_sizes,
    check_costs,
    check_ablations,
    check_counts,
    check_equations,
    uncheckable,
)


def audit(paper: Published) -> pd.DataFrame:
    """Return all findings, one row each, in the order of `CHECKS`."""
    findings = [finding for check in CHECKS for finding in check(paper)]
    return pd.DataFrame(findings, columns=list(Finding.__annotations__))
