"""All tables of a profile's benchmark."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pvera.report.published import Published
from pvera.report.scores import by_backbone
from pvera.report.tables import benchmark, beside
from pvera.report.tables.layout import Table
from pvera.study import results


def of_profile(root, profile: str, paper: Published) -> dict[str, dict[str, Table]]:
    """Backbone -> name -> table, of all results of a profile's benchmark below `root`.

    Empty where there are no results; InputError where there are such as cannot share a table.
    """
    searches = results.load_runs(root, profile, "beta", optional=True)

    def build(own: list[dict]) -> Iterable[Table]:
        return of_runs(own, [run for run in searches if run["backbone"] == own[0]["backbone"]], paper).values()

    return per_backbone(results.load_runs(root, profile, optional=True), build)


def per_backbone(runs: Iterable, build: Callable[[list], Iterable[Table]]) -> dict[str, dict[str, Table]]:
    """Backbone -> name -> table, built from the runs of each backbone (`results.by_backbone`).

    Where there are several backbones, the names under which the tables are written end in the backbone.
    """
    of = by_backbone(runs)
    suffix = "_{}" if len(of) > 1 else ""
    return {
        backbone: {t.name: replace(t, name=t.name + suffix.format(backbone)) for t in build(own)}
        for backbone, own in of.items()
    }


def of_runs(runs: list[dict], searches: list[dict], paper: Published) -> dict[str, Table]:
    """The tables of the runs of one backbone, by name; `searches` as in `benchmark.grid`."""
    tables = (
        benchmark.main(runs),
        beside.accuracies(runs, paper),
        benchmark.held_claims(runs),
        benchmark.detailed(runs),
        beside.detailed(runs, paper),
        benchmark.grid(runs, searches),
        beside.grid(runs, paper),
    )
    return {table.name: table for table in tables}
