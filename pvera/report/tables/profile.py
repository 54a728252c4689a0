"""Every table of a profile's benchmark."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pvera.report.published import Published
from pvera.report.scores import by_backbone
from pvera.report.table import Table
from pvera.report.tables import against_paper, benchmark
from pvera.study import results


def of_profile(root, profile: str, paper: Published) -> dict[str, dict[str, Table]]:
    """Build every table of one profile's benchmark below `root`: backbone -> name -> table.

    Empty without results. InputError where results cannot share a table.
    """
    searches = results.load_runs(root, profile, "beta", optional=True)

    def build(runs: list[dict]) -> Iterable[Table]:
        return of_runs(runs, [run for run in searches if run["backbone"] == runs[0]["backbone"]], paper).values()

    return per_backbone(results.load_runs(root, profile, optional=True), build)


def per_backbone(runs: Iterable, build: Callable[[list], Iterable[Table]]) -> dict[str, dict[str, Table]]:
    """Build tables from the runs of each backbone (`scores.by_backbone`): backbone -> name -> table.

    With several backbones, the file names of the tables end in the backbone.
    """
    parts = by_backbone(runs)
    suffix = "_{}" if len(parts) > 1 else ""
    return {
        backbone: {t.name: replace(t, name=t.name + suffix.format(backbone)) for t in build(runs_of_backbone)}
        for backbone, runs_of_backbone in parts.items()
    }


def of_runs(runs: list[dict], searches: list[dict], paper: Published) -> dict[str, Table]:
    """Build the tables of one backbone, by name; `searches` as in `benchmark.grid`."""
    tables = (
        benchmark.main(runs),
        against_paper.accuracies(runs, paper),
        benchmark.detailed(runs),
        against_paper.detailed(runs, paper),
        benchmark.grid(runs, searches),
        against_paper.grid(runs, paper),
    )
    return {table.name: table for table in tables}
