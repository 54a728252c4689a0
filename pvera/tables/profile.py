"""All tables of a profile's benchmark."""

from dataclasses import replace

from .. import results
from ..published import Published
from . import beside, benchmark
from .layout import Table


def of_profile(root, profile: str, paper: Published) -> dict[str, dict[str, Table]]:
    """Backbone -> name -> table, of all results of a profile's benchmark below `root`.

    Where there are several backbones, the names under which the tables are written end in the backbone.
    InputError where there are no results, or such as cannot share a table.
    """
    runs = results.load_runs(root, profile)
    searches = results.load_runs(root, profile, "beta", optional=True)
    backbones = dict.fromkeys(run["backbone"] for run in runs)
    found = {}
    for backbone in backbones:
        own, own_searches = ([r for r in some if r["backbone"] == backbone] for some in (runs, searches))
        suffix = f"_{backbone}" if len(backbones) > 1 else ""
        built = of_runs(own, own_searches, paper).items()
        found[backbone] = {name: replace(table, name=name + suffix) for name, table in built}
    return found


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
