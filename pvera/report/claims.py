"""The registry of claims, the paper's and our own, judged on a profile's results for the page and the notebooks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.files import write_atomically
from pvera.report import analyses
from pvera.report.scores import by_backbone, capped, score_frame
from pvera.report.table import NOTHING, Table, markdown_table, pivot_text, texts, title
from pvera.report.tables import ablations, baselines, benchmark, components, cost, language, latents, tuned
from pvera.report.tables import out_of_distribution as ood
from pvera.report.tables import uncertainty as draws
from pvera.report.tables.verdicts import FIELDS, RULE, SHOWN, UNTESTABLE, Claim, Contrast, below, lead
from pvera.study import results

Results = dict[str, tuple[list[dict], Any]]  # backbone -> trainings behind the claims, and what contrasts take


class Topic(NamedTuple):
    """The place in the paper, the notebook, the name of its table of claims, the command for results, their loader."""

    place: str
    notebook: str
    table: str
    command: str
    load: Callable[[Path, str], Results]


def _trained(make: Callable[[list[dict]], Any], experiment: str) -> Callable[..., Results]:
    """Return the loader of the trainings of an experiment; `make` computes what contrasts take."""

    def load(root, profile: str) -> Results:
        runs = by_backbone(results.load_runs(root, profile, experiment))
        return {backbone: (trainings, make(trainings)) for backbone, trainings in runs.items()}

    return load


def _analysed(
    read: Callable, group: Callable = by_backbone, make: Callable = lambda data: data
) -> Callable[..., Results]:
    """Return the loader of an analysis of trained adapters.

    group: parts what `read` returns by backbone. make: computes what contrasts take.
    """
    return lambda root, profile: {name: ([], make(data)) for name, data in group(read(root, profile)).items()}


def _components(runs: components.Runs, metric: str = "accuracy", sign: int = 1) -> dict[str, pd.DataFrame]:
    """Return a metric (points) of VeRA, PVeRA and its variants by their one backbone; sign: -1 for an error."""
    return {group[0]["backbone"]: sign * components.values(runs, metric) for group in list(runs.values())[:1]}


def _language(root, profile: str) -> Results:
    """Load the language experiment; of tasks with trainings on all their texts, these alone.

    Contrasts take scores and the column "majority", in percent.
    """
    full = results.load_runs(root, profile, "full_sets")
    there = {(run["backbone"], run["dataset"]) for run in full}
    runs = results.load_runs(root, profile, "language")
    runs = by_backbone([run for run in runs if (run["backbone"], run["dataset"]) not in there] + full)
    for name, group in runs.items():
        scores, majority = 100 * score_frame(group, language.score), language.majority_class(root, group)
        majority = 100 * scores.index.get_level_values("dataset").map(majority)
        runs[name] = group, scores.assign(majority=majority)
    return runs


def logarithms(runs: list[dict]) -> pd.DataFrame:
    """Return the logarithms of ACE."""
    with np.errstate(divide="ignore"):
        return np.log(score_frame(runs, "ace"))


#: Topics whose claims stand side by side for all sets of tasks.
SIDE_BY_SIDE = ("Tuned alike", "Tuned alike, calibration", "Published protocol")
_tuned = partial(Topic, "not in the paper", "tuned", "tuned", "train.py --experiments tuned_vera tuned_pvera")
TOPICS = {
    "Tuned alike": _tuned(_analysed(tuned.load, _components)),
    "Tuned alike, calibration": _tuned(_analysed(tuned.load, partial(_components, metric="ace", sign=-1))),
    "Uncertainty by error rate": Topic("Section 4.3, Figure 5", "uncertainty", "uncertainty",
                                       "analyse.py --experiments uncertainty", _analysed(
                                           tuned.draws_by_task, lambda tasks: dict(list(tasks.groupby("backbone"))))),
    "Published protocol": Topic("Table 1", "protocol", "published", "train.py --experiments published",
                                _trained(lambda runs: 100 * score_frame(runs), "published")),
    "Main table": Topic("Table 1", "main_table", "main", "train.py",
                        _trained(lambda runs: 100 * score_frame(runs), "benchmark")),
    "Rank": Topic("Table 2", "rank", "rank", "train.py --experiments rank",
                  _trained(partial(ablations.losses, hyperparameter="rank"), "rank")),
    "Position": Topic("Table 3", "position", "position", "train.py --experiments position",
                      _trained(partial(ablations.losses, hyperparameter="targets"), "position")),
    "Cost": Topic("Section 4.3, Figure 3", "computational_efficiency", "cost", "cost.py", cost.of_profile),
    "Calibration": Topic("Section 4.3, Figure 4", "calibration", "calibration", "train.py",
                         _trained(logarithms, "benchmark")),
    "Uncertainty": Topic("Section 4.3, Figure 5", "uncertainty", "uncertainty",
                         "analyse.py --experiments uncertainty", _analysed(analyses.load_uncertainty)),
    "Uncertainty against baselines": Topic("not in the paper", "uncertainty_baselines", "baselines",
                                           "analyse.py --experiments baselines", _analysed(
                                               baselines.load, lambda comparison: (
                                                   {comparison.record["backbone"]: comparison} if comparison else {}))),
    "Intervals": Topic("Section 4.3, Appendix C", "intervals", "intervals", "analyse.py --experiments uncertainty",
                       _analysed(analyses.load_uncertainty)),
    "Out-of-distribution detection": Topic("Section 4.4, Figure 6", "out_of_distribution", "out_of_distribution",
                                           "analyse.py --experiments out_of_distribution",
                                           _analysed(ood.load_values, make=ood.comparisons)),
    "Latents": Topic("Section 4.4, Figure 7", "latents", "latents", "analyse.py --experiments focus",
                     _analysed(partial(analyses.load_analyses, experiment="focus"))),
    "Language": Topic("Appendix D, Table 5", "language", "language", "train_language.py", _language),
}  # fmt: skip

LORA_BASED = ("lora", "vera", "pvera")  # Section 4.3 leaves DoRA out


OTHERS = tuple(name for name in PAPER_METHODS if name != "pvera")


def calibrated(of: Sequence[str], *over: str) -> Contrast:
    """Return the contrast of the logarithms of ACE: how far each of `of` lies below each of `over`."""
    return lambda logs: {name: gaps for method in of for name, gaps in below(method, *over, sign="/")(logs).items()}


AUROC, NATS, NLL = "AUROC {signed}", "{signed} nats", "NLL gain {signed}"

_alike = partial(Claim, SIDE_BY_SIDE[0], effect="{signed} points")
_alike_calibrated = partial(Claim, SIDE_BY_SIDE[1], effect="ACE lower by {signed} points")
_main = partial(Claim, "Main table", effect="{signed} points")
_calibrated = partial(
    Claim, "Calibration", effect="ACE {signed} %", convert=lambda log_ratio: 100 * float(np.expm1(log_ratio))
)
_spread = partial(Claim, "Uncertainty", effect="Cliff's delta {signed}", digits=2)
_against = partial(Claim, "Uncertainty against baselines", digits=3, page=False)
_wider = partial(Claim, "Intervals", effect="Cliff's delta {signed}", digits=2)
_out = partial(Claim, "Out-of-distribution detection", digits=3, units="models")
_maps = partial(Claim, "Latents", effect="AUROC {signed}", digits=3)
_text = partial(Claim, "Language", effect="{signed} points")

#: The first of a topic is its primary question.
CLAIMS = (
    _alike("PVeRA is more accurate than VeRA", components.gap("PVeRA − VeRA"), place="Table 1"),
    _alike("The noise makes PVeRA more accurate (β = 0)", components.gap("noise − no noise (β = 0)")),
    _alike("PVeRA is more accurate than VeRA with half of its latent dropped",
           components.gap("PVeRA − VeRA with dropout"), margin=1),
    _alike("Half of its latent dropped, VeRA is more accurate", components.gap("VeRA with dropout − VeRA"), page=False),
    _alike("Learning σ makes PVeRA more accurate than σ = 1 fixed (β = 0)",
           components.gap("σ learned − σ = 1 (β = 0)"), margin=1),
    _alike("The KL term makes PVeRA more accurate", components.gap("with KL term − without"), margin=1),
    _alike("PVeRA has the highest average", lead("pvera", *OTHERS), place="Table 1"),
    _alike("PVeRA has the highest average, VeRA with dropout among the methods",
           lead("pvera", *OTHERS, components.VERA_DROPOUT), page=False),
    _alike_calibrated("PVeRA is better calibrated than VeRA", components.gap("PVeRA − VeRA"),
                      place="Section 4.3, Figure 4"),
    _alike_calibrated("PVeRA is better calibrated than VeRA with dropout", components.gap("PVeRA − VeRA with dropout")),
    Claim("Uncertainty by error rate", "The spread of 16 draws marks errors where the model is mostly correct",
          draws.marks_errors, digits=2),
    _main("PVeRA has the highest average", lead("pvera")),
    _main("PVeRA is more accurate than VeRA", lead("pvera", "vera")),
    _main("DoRA has the second highest average", benchmark.second("dora", "pvera"), page=False),
    _main("Linear probing has the lowest average", below("linear"), page=False),
    _main("On natural data sets linear probing is above Bottleneck and AdaptFormer",
          benchmark.on_categories(["natural"], lead("linear", "bottleneck", "adaptformer")), page=False),
    _main("On specialized and structured data sets linear probing is the lowest",
          benchmark.on_categories(["specialized", "structured"], below("linear")), page=False),
    _main("DoRA is best on more data sets than any other", benchmark.wins("dora"),
          effect="{signed} data sets", page=False),
    _main("PVeRA is the most stable: lowest standard deviation over seeds", benchmark.steadiness("pvera"),
          digits=2, units="data sets, over all seeds", page=False),
    _main("PVeRA is the most stable: lowest mean rank", benchmark.ranks("pvera"),
          effect="{signed} ranks", digits=2, page=False),
    Claim("Published protocol", "PVeRA is more accurate than VeRA, trained as the published program does",
          lead("pvera", "vera"), "{signed} points"),
    Claim("Published protocol", "PVeRA has the highest average of four methods, trained as the published program does",
          lead("pvera"), "{signed} points", page=False),
    Claim("Rank", partial(ablations.of_ranks, "{0} has the lowest loss", [[256]]),
          ablations.lower("rank", [256], [64, 128, 512]), NATS, 3, page=False),
    Claim("Rank", partial(ablations.of_ranks, "{0} lose less than {1}", [[128, 512], [64]]),
          ablations.lower("rank", [128, 512], [64]), NATS, 3, page=False),
    Claim("Position", "QV has the lowest loss", ablations.lower("targets", ["qv"], ablations.PAPER["targets"]), NATS,
          3),
    *(Claim("Cost", text, partial(cost.count, text), page="dinov2_b" if text == cost.CLAIMS[0] else False)
      for text in cost.CLAIMS),
    _calibrated("LoRA, VeRA and PVeRA are all better calibrated than the other adapters",
                calibrated(LORA_BASED, "bottleneck", "ia3", "adaptformer", "dora"), page=False),
    _calibrated("LoRA, VeRA and PVeRA are all better calibrated than linear probing",
                calibrated(LORA_BASED, "linear"), page=False),
    _calibrated("PVeRA is better calibrated than VeRA", calibrated(["pvera"], "vera")),
    _spread("Over all images, incorrect predictions have the higher standard deviation, 16 draws",
            draws.deltas(draws.spread_of, 16, pooled=True), units="seeds", page=False),
    _spread("Within a data set, incorrect predictions have the higher standard deviation, 4 draws",
            draws.deltas(draws.spread_of, 4), page=False),
    _spread("Within a data set, incorrect predictions have the higher standard deviation, 16 draws",
            draws.deltas(draws.spread_of, 16), page=False),
    Claim("Uncertainty", "The spread of 16 draws finds incorrect predictions better than the score of one pass",
          draws.gain(16), AUROC, 3),
    _against("PVeRA's draws have a lower NLL than one pass with its mean",
             baselines.better("NLL", "draws", "mean"), NLL),
    _against("With a temperature for both, PVeRA's draws have a lower NLL than one pass",
             baselines.better("NLL, T", "draws", "mean"), NLL),
    _against("PVeRA's draws find errors better than one pass",
             baselines.better("AUROC of errors", "draws", "mean"), AUROC),
    _against("PVeRA's draws find errors better than VeRA's dropout",
             baselines.better("AUROC of errors", "draws", "dropout"), AUROC),
    _against("PVeRA's draws have a lower NLL than an ensemble of VeRA's seeds",
             baselines.better("NLL", "draws", "ensemble"), NLL, units="data sets, over all seeds"),
    _wider("Over all images, incorrect predictions have the wider intervals, 16 draws (paper: 2.65 times as wide)",
           draws.times_as_wide(16), effect="{size} times as wide", units="seeds", page=False,
           convert=lambda log_ratio: float(np.exp(log_ratio))),
    _wider("Within a data set, incorrect predictions have the wider intervals, 4 draws",
           draws.deltas(draws.width_of, 4), page=False),
    _wider("Within a data set, incorrect predictions have the wider intervals, 16 draws",
           draws.deltas(draws.width_of, 16), page=False),
    _out("PVeRA's values are lower in distribution (mean value)", ood.separation("mean"), "AUROC − ½: {signed}",
         page=False),
    _out("PVeRA's values separate better than VeRA's (mean value)", ood.separation("mean", "vera"), AUROC, page=False),
    _out("PVeRA's values are lower in distribution (norm)", ood.separation("norm"), "AUROC − ½: {signed}"),
    _out("PVeRA's values separate better than VeRA's (norm)", ood.separation("norm", "vera"), AUROC, page=False),
    _maps("PVeRA's latents focus more on the object in an image than VeRA's", latents.more_focused("vera")),
    _maps("PVeRA's latents focus more on the object in an image than without adapters",
          latents.more_focused(latents.FROZEN), page=False),
    _text("PVeRA is better than VeRA on average over the tasks of GLUE that LoRA learns",
          language.ahead("GLUE", "vera")),
    _text("PVeRA has the highest score on RTE", language.ahead("rte"), units="seeds", page=False),
    _text("PVeRA has the highest score on CoLA", language.ahead("cola"), units="seeds", page=False),
)  # fmt: skip


def judged(root, profile: str, *notebooks: str) -> pd.DataFrame:
    """Judge the claims, of some notebooks or all, on a profile's results below `root`: a row per claim and backbone.

    Columns: topic, place, backbone ("" without results), notebook, `FIELDS`, digits, and the effect of each seed. A
    claim without results is not testable, with the command that makes them.
    """
    rows = []
    for name, topic in TOPICS.items():
        if notebooks and topic.notebook not in notebooks:
            continue
        missing = f"no results: python experiments/{topic.command} --profile {profile}"
        for backbone, (runs, data) in (topic.load(root, profile) or {"": ([], None)}).items():
            place = {"topic": name, "backbone": backbone, "notebook": topic.notebook}
            cut = f"{capped(runs)} of {len(runs)} trainings cut short" if capped(runs) else ""
            for claim in (claim for claim in CLAIMS if claim.topic == name):
                own = {"place": claim.place or topic.place, "cut": cut, "page": claim.page in (True, backbone)}
                rows.append(place | claim.judge(data, missing) | own)
    return pd.DataFrame(rows)


#: The rule stands once, on the page of claims.
CAPTION = "The claims, judged; tuned alike in tuned.ipynb alone. docs/mini.md says how intervals and verdicts are made."


def tables(root, profile: str, notebook: str) -> list[Table]:
    """Build the table of a notebook's claims, one per backbone with results."""
    rows = judged(root, profile, notebook)
    parts = rows[rows["backbone"] != ""].groupby("backbone", sort=False)
    seeds = sorted(name for name in rows if name.startswith("seed"))
    name = f"{TOPICS[rows['topic'].iloc[0]].table}_claims"
    return [
        Table(name + f"_{backbone}" * (len(parts) > 1), CAPTION, {"": part.set_index("claim")}, SHOWN,
              part[[*FIELDS, *seeds]].drop(columns="page"))
        for backbone, part in parts
    ]  # fmt: skip


def page(rows: pd.DataFrame, profile: str, notebooks: str, others: Mapping[str, pd.DataFrame]) -> str:
    """Return the page of claims without its title.

    notebooks: their folder as seen from the page. others: the rows of `on_other_sets`. A claim that has the
    same text under the paper's own search stands once, with both.
    """
    rows = rows.assign(
        link="[" + rows["claim"] + f"]({notebooks}" + rows["notebook"] + ".ipynb) (" + rows["place"] + ")"
    )
    beside = rows["topic"].isin(SIDE_BY_SIDE)
    repeated = ~beside & rows["claim"].isin(rows.loc[beside, "claim"])
    own = tuned.title_of(profile)
    sets = {own: rows[beside], **others, f"{own}, the paper's search": rows[repeated]}
    rows = rows[rows["page"] & ~beside & ~repeated]
    usual = rows["backbone"].iloc[0]
    other = [title(name) if name not in ("", usual) else "" for name in rows["backbone"]]
    scale = [", ".join(filter(None, both)) for both in zip(other, rows["scale"], strict=True)]
    cells = texts(rows.assign(scale=scale), SHOWN)
    cells.insert(0, "Claim", rows["link"])
    note = (
        f"{UNTESTABLE.capitalize()}: results or a definition are missing, or no result could decide; the effect says "
        "which. Intervals are not corrected for the number of claims. Further claims stand in the notebooks, to which "
        "the links lead."
    )
    if usual:
        note = f"The backbone is {title(usual)} where no other is named. {note}"
    tables = {
        "Accuracy and calibration, tuned alike where nothing else is said": _side_by_side(sets),
        "Other claims, not tuned alike": cells,
    }
    parts = [f"## {name}\n\n{markdown_table(list(table), table.to_numpy())}"
             for name, table in tables.items() if len(table)]  # fmt: skip
    return "\n\n".join([*parts, RULE, note]) + "\n"


def _side_by_side(sets: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the texts of the same claims on several sets of tasks, without rows and columns that nothing tests."""
    rows = pd.concat([part.assign(set=name) for name, part in sets.items()])
    if len(set(rows["backbone"]) - {""}) > 1:
        rows["set"] += [f", {title(name)}" if name else "" for name in rows["backbone"]]
    tested = rows[rows["page"] & (rows["verdict"] != UNTESTABLE)]
    rows = rows[rows["claim"].isin(tested["claim"]) & rows["set"].isin(tested["set"])]
    cells = pivot_text(rows, "claim", "set", _cell)
    cells.insert(0, "Claim", rows.drop_duplicates("claim").set_index("claim")["link"])
    return cells


def _cell(row: pd.Series) -> str:
    """Return effect, scale, and the verdict of each scope that has one, in lines."""
    if row["verdict"] == UNTESTABLE:
        return f"{UNTESTABLE}: {row['reading']}"
    scopes = {"on these": SHOWN["these_low"][1](row), "on tasks like these": SHOWN["low"][1](row)}
    lines = [f"{row['reading']} ({row['scale']})"]
    return "<br>".join(lines + [f"{name}: {cell}" for name, cell in scopes.items() if cell != NOTHING])


def on_other_sets(root, profile: str) -> dict[str, pd.DataFrame]:
    """Judge the claims `SIDE_BY_SIDE` on the other sets of tasks that a profile's pages show, by set."""
    notebooks = {TOPICS[topic].notebook for topic in SIDE_BY_SIDE}
    return {tuned.title_of(name): judged(root, name, *notebooks) for name in tuned.sets(profile) if name != profile}


def write(rows: pd.DataFrame, root, profile: str, others: Mapping[str, pd.DataFrame]) -> None:
    """Write the page and the rows of `judged` to <root>/<profile>/tables/claims.{md,csv}; others: as in `page`."""
    text = f"# The paper's claims, on the results of `{profile}`\n\n{page(rows, profile, '../../../analysis/', others)}"
    columns = ["topic", "place", "backbone", "notebook", *FIELDS]
    numbers = rows.to_csv(index=False, columns=columns, float_format="%.6g", lineterminator="\n")
    for ending, content in (("md", text), ("csv", numbers)):
        write_atomically(Path(root) / profile / "tables" / f"claims.{ending}", content)
