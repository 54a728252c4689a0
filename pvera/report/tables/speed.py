"""Closing sentences on the records of speed (`study.speed`)."""

from collections.abc import Sequence

import pandas as pd

from pvera.report.tables.names import machine_title


def summary(records: Sequence[dict]) -> str:
    """Say how many targets are met, how many merged models are, and how our step compares with that of peft."""
    rows = pd.concat([pd.DataFrame(record["rows"]).assign(machine=machine_title(record)) for record in records])
    aimed = rows.dropna(subset="target")
    parts = [f"{_count(aimed)} targets are met"]
    merged = aimed[(aimed["part"] == "evaluate") & aimed["what"].str.endswith("merged")]
    if len(merged):
        at_most = f"takes at most {merged['target'].max():.2f} of the frozen backbone's time"
        parts.append(f"a merged model {at_most} in {_count(merged)} measurements")
    text = f"**Answer.** In {len(records)} record{'s' * (len(records) != 1)}, {'; '.join(parts)}."
    peft = rows[rows["bound"].str.startswith("the step of peft")]
    if len(peft):
        ratios = ", ".join(f"{row.ratio:.2f} ({row.precision}, {row.machine})" for row in peft.itertuples())
        text += f" PVeRA's training step takes this share of peft's time: {ratios}."
    return text


def _count(rows: pd.DataFrame) -> str:
    return f"{(rows['ratio'] <= rows['target']).sum()} of {len(rows)}"
