"""Change of accuracy under another precision, compared with the spread over seeds."""

from operator import itemgetter

import pandas as pd

from pvera.errors import InputError
from pvera.report.scores import wide
from pvera.report.table import NOTHING, Table, crossed, plain, signed


def precision_table(full: list[dict], other: list[dict]) -> Table:
    """Build the table of the change from `full` to `other`: a row per method, a column per data set.

    In the data, change: mean accuracy of `other` minus that of `full`, in points, on the seeds that both have; spread:
    standard deviation over the seeds of `full`; within: whether the change is at most the spread. InputError where two
    runs differ in more than the precision and what a search chose.
    """
    key = itemgetter("method", "dataset", "seed")
    pairs = [{key(run): run for run in runs} for runs in (full, other)]
    known = pairs[0].keys() & pairs[1].keys()
    for place in known:
        one, two = (runs[place]["config"] for runs in pairs)
        differing = {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}
        if more := sorted(differing - {"precision", "members"}):
            raise InputError(f"{'/'.join(map(str, place))}: the runs differ in more than the precision: in {more[0]}")
    scores = (100 * wide(run for run in runs if key(run) in known) for runs in (full, other))
    before, after = (table.groupby(level="dataset", sort=False) for table in scores)
    change, spread = (after.mean() - before.mean()).T, before.std().T
    data = pd.DataFrame({"change": change.stack(), "spread": spread.stack()}).rename_axis(["method", "dataset"])
    data = data.reset_index().assign(within=(data["change"].abs() <= data["spread"]).to_numpy())

    def cell(row: pd.Series) -> str:
        change = signed(row["change"], 1)
        return change if change == NOTHING else f"{change} ({plain(row['spread'], 1)})"

    first, second = (runs[0]["config"]["precision"] for runs in (full, other))
    caption = (
        f"Accuracy in {second} minus that in {first} (points, means over seeds). Brackets hold the sample standard "
        f"deviation over seeds in {first}; {data['within'].sum()} of {len(data)} changes are within it. The mean "
        f"change is {signed(data['change'].mean(), 2)} points."
    )
    cells = crossed(data, "method", "dataset", cell)
    return Table("precision", caption, {"": cells}, data=data, about=f"Profile {full[0]['profile']}.")
