"""Cost of the adapters, and accuracy against it (Section 4.3, Figure 3)."""

import json
from functools import partial

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.cost import GIGA
from pvera.errors import InputError
from pvera.report.contrasts import LATENT_DROPOUT
from pvera.report.paper_numbers import PaperNumbers, WeightedConfigurations
from pvera.report.scores import Records, diverged, member_hyperparameters, score_frame
from pvera.report.statistics import half_width_over_seeds, mean_interval
from pvera.report.table import Column, Table
from pvera.report.tables.benchmark import mean_accuracies
from pvera.report.tables.components import Components
from pvera.report.text import decimal, thousands, title
from pvera.study.cost_records import MEASURES, PAPER_PROFILE

#: Column of counted multiply-adds -> its title.
PASSES = {"inference": "GMAC", "sampled": "GMAC, sampled", "merged": "GMAC, merged"}

#: Variant in the figure of parameters -> the method whose parameters it has.
VARIANTS = {LATENT_DROPOUT: "vera", "no_noise": "pvera"}


def cost_table(costs: pd.DataFrame) -> Table:
    """Build the table of every configuration of every grid, a panel per profile and backbone.

    Args:
        costs: The frame of `cost_records.load_costs`.
    """
    panels = {}
    for (profile, backbone), part in costs.groupby(["profile", "backbone"], sort=False):
        panels[_heading(profile, backbone, part.iloc[0])] = _with_shares(part)
    caption = (
        "Parameters and multiply-adds of one image, without the head, which all methods share."
    )
    notes = (
        "Trainable and Frozen: parameters; frozen ones stay random. GMAC: 10⁹ multiply-adds of "
        "matrix products of the pass with the mean, of a pass that samples z, and of the merged "
        "model. + %: increase over the backbone."
    )
    columns = {
        "adapter_parameters": Column("Trainable", lambda row: thousands(row.adapter_parameters)),
        "share": Column("% of backbone", 3),
        "frozen_parameters": Column("Frozen", lambda row: thousands(row.frozen_parameters)),
    }
    for name, heading in PASSES.items():
        columns[name] = Column(heading, partial(_giga, name))
        columns[f"{name}_added"] = Column("+ %", 1)
    data = costs.assign(
        configuration=costs["configuration"].map(str), grid=costs["grid"].map(json.dumps)
    )
    source = "DoRA follows the protocol of each profile."
    return Table("cost", caption, panels, columns=columns, data=data, source=source, notes=notes)


def _heading(profile: str, backbone: str, first: pd.Series) -> str:
    """Return the title of a panel: the backbone, with its size and operations."""
    parameters = thousands(first["backbone_parameters"])
    operations = _giga("backbone_multiply_adds", first)
    return f"{title(backbone)}, grids of {profile}: {parameters} parameters, {operations} GMAC"


def _with_shares(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the costs on one backbone with their shares of it, labelled by configuration."""
    backbone = costs["backbone_multiply_adds"]
    added = {f"{name}_added": 100 * (costs[name] / backbone - 1) for name in PASSES}
    share = 100 * costs["adapter_parameters"] / costs["backbone_parameters"]
    # "LoRA, rank 8": a row per configuration of a grid.
    labels = []
    for method, grid in zip(costs["method"], costs["grid"], strict=True):
        values = [f"{name} {value}" for name, value in grid.items()]
        labels.append(", ".join([title(method), *values]))
    return costs.assign(share=share, **added).set_axis(labels)


def _giga(name: str, row: pd.Series) -> str:
    """Return a count in GMAC, with the decimals that show four digits of the backbone's."""
    whole_digits = int(np.floor(np.log10(row["backbone_multiply_adds"] / GIGA)))
    return decimal(row[name] / GIGA, max(0, 3 - whole_digits))


def paper_accuracy_and_cost(costs: pd.DataFrame, paper: PaperNumbers) -> pd.DataFrame:
    """Return the paper's averages (%) on ViT-B/14 and the counted costs of its configurations.

    Returns:
        Rows methods, columns accuracy and `MEASURES`. merged is NaN for methods that cannot be
        merged. Where the paper searched a grid, costs are means weighted by the shares of its
        choices, as in Figure 3.
    """
    accuracy = paper.accuracies("dinov2_b").mean(axis=1)
    return _with_mean_costs(costs, PAPER_PROFILE, "dinov2_b", accuracy, paper.configurations())


def run_accuracy_and_cost(costs: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Return accuracy (%) and `MEASURES` of runs on one backbone, as `paper_accuracy_and_cost`.

    Costs are means over the members that the runs chose. Methods without a run are left out.
    """
    accuracy = mean_accuracies(score_frame(records))["average"]
    chosen: WeightedConfigurations = {}
    for record in records:
        # The configuration that a run chose counts once per run.
        if not diverged(record):
            hyperparameters = member_hyperparameters(record, record["chosen"]["member"])
            configuration = METHODS[record["method"]](**hyperparameters)
            chosen.setdefault(record["method"], []).append((configuration, 1.0))
    return _with_mean_costs(costs, records[0]["profile"], records[0]["backbone"], accuracy, chosen)


def parameters_and_accuracy(costs: pd.DataFrame, components: Components) -> pd.DataFrame:
    """Return the trainable parameters of each method beside its average accuracy.

    Args:
        costs: The frame of `cost_records.load_costs`.
        components: The runs of one setting.

    Returns:
        Rows: the methods, then `VARIANTS`; columns mean, low and high, the accuracy (%) with its
        interval over seeds, and parameters, the mean over the runs' choices.
    """
    accuracy = components.scores()
    shown = [name for name in [*PAPER_METHODS, *VARIANTS] if name in accuracy]
    means = {
        name: mean_interval(accuracy[name].unstack("seed"), half_width_over_seeds) for name in shown
    }
    points = pd.DataFrame.from_dict(means, orient="index")

    benchmark = [record for name in METHODS for record in components.runs.get(name, [])]
    parameters = run_accuracy_and_cost(costs, benchmark)["adapter_parameters"]
    # A variant has those of its method.
    methods = [VARIANTS.get(name, name) for name in shown]
    return points.assign(parameters=parameters.reindex(methods).to_numpy())


def _with_mean_costs(
    costs: pd.DataFrame,
    profile: str,
    backbone: str,
    accuracy: pd.Series,
    chosen: WeightedConfigurations,
) -> pd.DataFrame:
    """Return accuracies with mean costs.

    Args:
        costs: Counted costs of configurations.
        profile: The profile whose grids they are.
        backbone: The key of the backbone.
        accuracy: Method -> average (%).
        chosen: The configurations whose costs are averaged.
    """
    costs = costs[(costs["profile"] == profile) & (costs["backbone"] == backbone)]
    # A configuration is a method with its hyperparameters.
    by_configuration = costs.set_index("configuration")
    rows = {}
    for name in METHODS:
        if name not in chosen:
            continue
        methods, weights = zip(*chosen[name], strict=True)
        for method in methods:
            if method not in by_configuration.index:
                raise InputError(f"{method} has no counted cost; run experiments/cost.py")
        # (configurations, measures), which become one mean each.
        counts = by_configuration.loc[list(methods), list(MEASURES)].astype(float)
        rows[name] = [accuracy[name], *np.average(counts, 0, weights)]
    columns = ["accuracy", *MEASURES]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")
