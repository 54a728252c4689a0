"""Numbers in sentences, and equations against algorithms."""

from collections.abc import Iterator

from pvera.report.audit.core import CONTRADICTS, FOLLOWS, UNCHECKED, Finding, exact
from pvera.report.published import Published


def check_counts(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the numbers of data sets, methods and configurations in the text."""
    table, methods = paper.detailed, paper.detailed["method"].nunique()
    of_category = table.groupby("category", sort=False)["dataset"].nunique()
    expected = {
        "text, data sets": ("datasets", table["dataset"].nunique()),
        "text, categories": ("categories", len(of_category)),
        **{f"Table 1, {name} data sets": (name, number) for name, number in of_category.items()},
        "text, other adapters, linear probing among them": ("other_adapters", methods - 1),
        "text, other adapters beside linear probing": ("other_adapters_without_linear", methods - 2),
        "Table 4, configurations": (
            "configurations", int(paper.quote("grid_datasets")) * int(paper.quote("grid_seeds"))
        ),
    }  # fmt: skip
    for place, (quote, number) in expected.items():
        yield exact("counts", place, int(paper.quote(quote)), number)


def check_equations(paper: Published) -> Iterator[Finding]:
    """Yield the findings on equations against algorithms."""
    q = paper.quote
    yield _said(
        "Algorithm 1, incorrect and correct samples", f"accuracy {q('algorithm_incorrect')} 0.5 is incorrect",
        "more than half of the draws correct means correct", q("algorithm_incorrect") != ">",
        "conjecture: the two names changed places; the text reads the right way round",
    )  # fmt: skip
    yield _said(
        "Algorithm 2, factor of ε", q("algorithm_std"), f"{q('equation_std')} (Eq. 6)",
        q("algorithm_std") == q("equation_std"), "conjecture: exp(½ log σ²) is meant",
    )  # fmt: skip
    twice = q("algorithm_output").count("α") + q("algorithm_training_alpha").count("α")
    yield _said(
        "Algorithm 2, factors α in training", f"{twice}", f"{q('equation_output').count('α')} (Eq. 7)",
        twice == q("equation_output").count("α"), "1 in evaluation; conjecture: one too many in training",
    )  # fmt: skip
    yield _said(
        "Algorithm 2, output", q("algorithm_output"), "with B (Eq. 7)",
        "B" in q("algorithm_output"), "without B a vector of r numbers meets one of d",
    )  # fmt: skip
    yield _said(
        "Section 3.2, shape of B", q("shape_b_pvera").replace(" ", ""),
        f"{q('shape_b_lora').replace(' ', '')} (Section 3.1, and for z B in Eq. 7)",
        q("shape_b_pvera").replace(" ", "") == q("shape_b_lora").replace(" ", ""), "",
    )  # fmt: skip
    transposed = "W^T" not in q("equation_projection") or "^T" in q("equation_merge")
    yield _said(
        "Eq. 10, merged weight", q("equation_merge"), "the update transposed, as Eq. 1 multiplies by Wᵀ",
        transposed, "",
    )  # fmt: skip


def uncheckable(paper: Published) -> Iterator[Finding]:
    """Yield the claims whose data the paper shows as figures alone."""
    for quote, place, needs in (
        ("calibration", "text, calibration of LoRA-based methods", "the test scores of every method"),
        ("uncertainty", "text, spread of the scores of incorrect predictions", "the scores of several draws"),
        ("width_correct", "text, width of intervals, correct", "the scores of several draws"),
        ("width_incorrect", "text, width of intervals, incorrect", "the scores of several draws"),
        ("out_of_distribution", "text, μ in distribution", "the latents of three models on three data sets"),
    ):
        yield Finding("figures", place, paper.quote(quote), "–", UNCHECKED, f"needs {needs}")


def _said(place: str, printed: str, other: str, agree: bool, note: str) -> Finding:
    verdict, note = (FOLLOWS, "") if agree else (CONTRADICTS, note)
    return Finding("equations", place, printed, other, verdict, note)
