"""Tuning: what the searches chose, and the methods under equal tuning and the paper's."""

from collections.abc import Mapping

import pandas as pd

from pvera.errors import InputError
from pvera.report.captions import caption_source
from pvera.report.scores import Records, diverged, score_frame
from pvera.report.table import Column, Table, pivot_text
from pvera.report.tables.components import Components
from pvera.report.text import grid_value

#: Hyperparameter of one method, and experiment that searches it -> its row among the choices.
OWN_HYPERPARAMETERS = {"alpha": "α of VeRA", "beta": "β of PVeRA"}


def choices_table(components: Components, own_searches: Mapping[str, Records]) -> Table:
    """Build the table of what the lowest seed chose: learning rates, then own hyperparameters.

    Args:
        components: The components of one setting.
        own_searches: Hyperparameter -> the records of its search.
    """
    searches = [
        (components.titles[name], "learning_rate", records)
        for name, records in components.runs.items()
    ]
    searches += [(OWN_HYPERPARAMETERS[key], key, records) for key, records in own_searches.items()]
    rows = []
    for heading, key, records in searches:
        rows += [{"searched": heading} | choice for choice in _first_choices(records, key)]
    columns = ["searched", "dataset", "chosen", "lowest", "highest"]
    data = pd.DataFrame(rows, columns=columns)

    cells = pivot_text(data, "searched", "dataset", lambda row: grid_value(row["chosen"]))
    by_search = data.groupby("searched", sort=False)
    # A choice at the edge of the grid may have wanted to go further.
    for edge in ("lowest", "highest"):
        counts = zip(by_search[edge].sum(), by_search.size(), strict=True)
        cells[f"At the {edge}"] = [f"{count} of {size}" for count, size in counts]
    caption = "What the lowest seed chose by its validation loss: learning rates, α and β."
    notes = "The last columns count how often it is the lowest or the highest tried."
    return Table("choices", caption, cells, data=data, notes=notes)


def _first_choices(records: Records, key: str) -> list[dict]:
    """Return what the first seed chose on each data set; other seeds inherit its choice."""
    first_seed = min(record["seed"] for record in records)
    rows = []
    for record in records:
        is_search = record["seed"] == first_seed and not diverged(record)
        if is_search and key in record["chosen"]["grid"]:
            tried = [member["grid"][key] for member in record["members"]]
            chosen = record["chosen"]["grid"][key]
            row = {
                "dataset": record["dataset"],
                "chosen": chosen,
                "lowest": chosen == min(tried),
                "highest": chosen == max(tried),
            }
            rows.append(row)
    return rows


def tunings_table(equal: Records, paper_tuned: Records) -> Table:
    """Build the table of averages and ranks of the methods under equal and the paper's tuning.

    Args:
        equal: The runs with equal tuning.
        paper_tuned: The runs with the paper's. Data sets that one of the two lacks do not count.
    """
    equal, paper_tuned = _on_shared_datasets(equal, paper_tuned)
    statistics = {}
    for heading, records in (("Equal tuning", equal), ("The paper's tuning", paper_tuned)):
        accuracies = 100 * score_frame(records)
        # Over seeds, then over data sets.
        averages = accuracies.groupby(level="dataset").mean().mean(skipna=False)
        statistics[heading, "Average"] = averages
        statistics[heading, "Rank"] = averages.rank(ascending=False)
    panel = pd.DataFrame(statistics)

    columns = {}
    for key in panel:
        is_average = key[1] == "Average"
        columns[key] = Column(key, 1, best="max") if is_average else Column(key, 0)
    caption = "Test accuracy (%), mean over data sets and seeds, and rank of the methods."
    notes = (
        "Equal tuning: each searches its own hyperparameter, then its learning rate, on its lowest "
        "seed. The paper's tuning: each searches three values of one hyperparameter. Bold: best. "
        "Underlined: second best."
    )
    # The CSV file has one header: "Equal tuning Average".
    data = panel.set_axis([" ".join(key) for key in panel], axis=1)
    data = data.rename_axis("method").reset_index()
    source = f"{caption_source(equal)} The paper's tuning: {caption_source(paper_tuned)}"
    return Table(
        "paper_tuning", caption, panel, columns=columns, data=data, source=source, notes=notes
    )


def _on_shared_datasets(equal: Records, paper_tuned: Records) -> tuple[Records, Records]:
    """Return the runs on data sets that both have; InputError where they share none."""
    # An average over other data sets would be no comparison.
    shared = {record["dataset"] for record in equal} & {record["dataset"] for record in paper_tuned}
    if not shared:
        raise InputError("there is no data set with runs of both tunings")
    return (
        [record for record in equal if record["dataset"] in shared],
        [record for record in paper_tuned if record["dataset"] in shared],
    )
