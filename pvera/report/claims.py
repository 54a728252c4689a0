"""Every claim of the paper on one page: verdict, effect with its interval, scale, and the notebook that shows more.

The verdicts are those of the notebooks' tables, computed by the same functions from the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pandas as pd

from pvera.errors import InputError
from pvera.report import efficiency, readings
from pvera.report.published import Published
from pvera.report.scores import Scores, by_backbone, capped
from pvera.report.tables import (
    ablations,
    benchmark,
    calibration,
    components,
    cost,
    latents,
    out_of_distribution,
    rivals,
)
from pvera.report.tables import uncertainty as draws
from pvera.report.tables.language import majority_class, reported
from pvera.report.tables.language import statements as of_language
from pvera.report.tables.layout import NOTHING, plain
from pvera.report.tables.names import backbone_title
from pvera.report.tables.verdicts import RULE, UNTESTABLE, VERDICTS, Claim, Statement, answer, judge, numbers
from pvera.study import cost_records, markdown, results
from pvera.study.results import write_atomically

NAME = "claims"


@dataclass(frozen=True)
class Topic:
    """One part of the page: a title, the paper's place, the notebook (without its ending), and its claims.

    claims: backbone -> judged claims; "" where no backbone has results. about: the trainings behind them.
    closing: what follows from them, in Markdown.
    """

    title: str
    place: str
    notebook: str
    claims: Mapping[str, Sequence[Claim]]
    about: tuple[str, ...] = ()
    closing: str = ""


def topics(root, profile: str, paper: Published) -> list[Topic]:
    """Judge every claim of the paper on the results of a profile below `root`.

    A claim without results is not testable, with the command that makes them.
    """
    trained = {
        name: by_backbone(results.load_runs(root, profile, name, optional=True))
        for name in ("benchmark", "rank", "position", "language")
    }
    described = {name: tuple(map(benchmark.about, groups.values())) for name, groups in trained.items()}
    runs = trained["benchmark"]
    draws_of = by_backbone(readings.load_uncertainty(root, profile))

    def train(script: str, options: str = "") -> str:
        return f"no results: python experiments/{script}.py --profile {profile} {options}".strip()

    def of(groups: Mapping[str, list], statements: Callable, data: Callable, missing: str) -> dict[str, list[Claim]]:
        """Judge `statements(results)` on `data(results)` of each backbone."""
        if not groups:
            return {"": [statement.untested(missing) for statement in statements(None)]}
        judged = {backbone: judge(data(group), statements(group)) for backbone, group in groups.items()}
        return {backbone: [_limited(claim, groups[backbone]) for claim in part] for backbone, part in judged.items()}

    def fixed(statements: Sequence[Statement]) -> Callable:
        return lambda group: statements

    def of_ablation(hyperparameter: str, name: str) -> dict[str, list[Claim]]:
        groups = trained[name]
        ablation = {backbone: ablations.Ablation.of(group, hyperparameter) for backbone, group in groups.items()}
        return of(
            ablation, lambda group: ablations.statements(hyperparameter, paper, group.values if group else ()),
            lambda group: group, train("train", f"--experiments {name}"),
        )  # fmt: skip

    def of_draws(statements: Callable) -> dict[str, list[Claim]]:
        return of(
            draws_of, lambda group: statements(draws.shown_draws(group) if group else draws.DRAWS),
            lambda group: group, train("uncertainty"),
        )  # fmt: skip

    def of_texts() -> dict[str, list[Claim]]:
        groups = trained["language"]

        def statements(group: list[dict] | None) -> list[Statement]:
            if not group:
                return of_language({})
            return of_language(majority_class(root, group), reported(group).datasets)

        return of(groups, statements, reported, train("train_language"))

    def same(group):
        return group

    values = by_backbone(out_of_distribution.load_values(root, profile))
    maps = by_backbone(readings.load(root, profile, "latents"))
    compared = rivals.load(root, profile)
    of_rivals = {compared.record["backbone"]: compared} if compared else {}
    parts = components.load(root, profile)
    options = "--experiments components equal_budget"
    taken_apart = of(by_backbone(chain(*parts.values())), fixed(components.STATEMENTS), lambda group: parts,
                     train("train", options))  # fmt: skip
    return [
        Topic("Main table", "Table 1", "main_table", of(runs, fixed(benchmark.CLAIMS), Scores.of, train("train")),
              described["benchmark"]),
        Topic("Components", "not in the paper", "components", taken_apart),
        Topic("Rank", "Table 2", "rank", of_ablation("rank", "rank"), described["rank"]),
        Topic("Position", "Table 3", "position", of_ablation("targets", "position"), described["position"]),
        Topic("Cost", "Section 4.3, Figure 3", "computational_efficiency", _cost(root, profile, paper, runs)),
        Topic(
            "Calibration", "Section 4.3, Figure 4", "calibration",
            of(by_backbone(calibration.load(root, profile)), fixed(calibration.CLAIMS),
               lambda group: Scores.of(group, "ace"), train("train")),
        ),
        Topic("Uncertainty", "Section 4.3, Figure 5", "uncertainty", of_draws(draws.spread_statements)),
        Topic("Uncertainty against rivals", "not in the paper", "uncertainty_baselines",
              of(of_rivals, fixed(rivals.CLAIMS), same, train("rivals")),
              closing=rivals.advice(compared).markdown(about=False) if compared else ""),
        Topic("Intervals", "Section 4.3, Appendix C", "intervals", of_draws(draws.interval_statements)),
        Topic(
            "Out-of-distribution detection", "Section 4.4, Figure 6", "out_of_distribution",
            of(values, fixed(out_of_distribution.CLAIMS), same, train("out_of_distribution")),
        ),
        Topic("Latents", "Section 4.4, Figure 7", "latents", of(maps, fixed(latents.CLAIMS), same, train("latents"))),
        Topic("Language", "Appendix D, Table 5", "language", of_texts(), described["language"]),
    ]  # fmt: skip


def _cost(root, profile: str, paper: Published, runs: Mapping[str, list[dict]]) -> dict[str, list[Claim]]:
    """Judge the claims about cost on the paper's ViT-B/14 and on each backbone of the runs."""
    costs = cost_records.load_costs(root, *dict.fromkeys([profile, cost_records.SIZES]))
    judged = {"dinov2_b": cost.cost_claims(paper, efficiency.of_paper(costs, paper), True, "counts, exact")}
    for backbone, group in runs.items():
        try:
            points = efficiency.of_runs(costs, group)
        except InputError:
            points = None
        here = cost.cost_claims(paper, points, False, "counts, exact")
        judged[backbone] = here if backbone not in judged else [*judged[backbone], *here]
    return judged


def frame(parts: Iterable[Topic]) -> pd.DataFrame:
    """Return a row per claim: topic, place, backbone, notebook, and `verdicts.numbers`."""
    rows = [
        {"topic": part.title, "place": part.place, "backbone": backbone, "notebook": part.notebook} | numbers(claim)
        for part in parts
        for backbone, claims in part.claims.items()
        for claim in claims
    ]
    return pd.DataFrame(rows)


def page(parts: Sequence[Topic], profile: str) -> str:
    """Return the page in Markdown, for a file below results/<profile>/tables."""
    return f"# The paper's claims, on the results of `{profile}`\n\n{body(parts, '../../../analysis/')}"


def body(parts: Sequence[Topic], notebooks: str) -> str:
    """Return the page without its title; notebooks: their folder as seen from the page."""
    verdicts = [claim.verdict for part in parts for claims in part.claims.values() for claim in claims]
    lines = [
        answer(verdicts),
        f"{RULE} *{UNTESTABLE.capitalize()}*: results or a definition are missing; the effect says which. Counts are "
        "exact and have no interval.",
    ]
    counts = []
    for part in parts:
        of_topic = [claim.verdict for claims in part.claims.values() for claim in claims]
        counts.append([part.title, *(str(of_topic.count(verdict)) for verdict in VERDICTS)])
    lines.append(markdown.table(["Topic", *map(str.capitalize, VERDICTS)], counts, "lcccc"))
    for part in parts:
        link = f"[{part.notebook}]({notebooks}{part.notebook}.ipynb)"
        lines += [f"## {part.title}", " ".join([f"{part.place}; {link}.", *part.about])]
        rows = [
            list(map(markdown.escape, (claim.text, claim.verdict, claim.reading, claim.interval, _shown(claim),
                                       _scale(backbone, claim))))
            for backbone, claims in part.claims.items()
            for claim in claims
        ]  # fmt: skip
        header = ["Claim", "Verdict", "Effect", "95 % interval", "Could be shown", "Scale"]
        lines.append(markdown.table(header, rows))
        if part.closing:
            lines.append(part.closing)
    return "\n\n".join(lines) + "\n"


def _shown(claim: Claim) -> str:
    return plain(claim.effect.detectable, claim.digits) if claim.effect else NOTHING


def _limited(claim: Claim, group) -> Claim:
    """Say with a claim how many of the trainings in `group`, records of runs or else, a limit on epochs ended."""
    trainings = [run for run in group if isinstance(run, dict)] if isinstance(group, list) else []
    cut = capped(trainings)
    return replace(claim, cut=f"{cut} of {len(trainings)} trainings cut short") if cut else claim


def _scale(backbone: str, claim: Claim) -> str:
    parts = (backbone_title(backbone) if backbone else "", claim.scale, claim.cut)
    return ", ".join(filter(None, parts)) or NOTHING


def write(parts: Sequence[Topic], root, profile: str) -> None:
    """Write the page and its numbers to <root>/<profile>/tables/claims.{md,csv}."""
    folder = Path(root) / profile / "tables"
    csv = frame(parts).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    for ending, text in (("md", page(parts, profile)), ("csv", csv)):
        write_atomically(folder / f"{NAME}.{ending}", text.encode())
