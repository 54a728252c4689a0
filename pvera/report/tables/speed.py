"""The missed targets and the closing sentences on the records of speed (`study.speed`)."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from pvera.report.tables.layout import plain
from pvera.report.tables.names import backbone_title, machine_title
from pvera.study import markdown
from pvera.study.speed import Measurement

SPREAD = 0.02  # beyond a target; medians of few pairs on a shared machine differ by more
#: Why a measurement misses its target: its part, the beginning of its name or its precision, and the reason. The first
#: that fits holds, unless the measurement is near its target or of the small backbone.
REASONS = (
    ("evaluate", "bfloat16", "no adapter is left: autocast casts weights, as in the row “frozen forward, autocast”"),
    ("evaluate", "", "no adapter is left: the spread of few pairs"),
    ("step", "DoRA", "the norm of each adapted weight is computed anew in every step"),
    ("sample", "", "products with A and B; normal numbers from one thread are a smaller part"),
    ("memory", "(IA)³", "the hidden activation of the MLP is kept once more, for the gradient of its scale"),
    ("memory", "DoRA", "the frozen queries and values are kept, for the gradient of their magnitudes"),
    ("memory", "PVeRA", "6 r numbers per token and adapted projection are kept: x A, μ, σ, ε and z"),
    ("memory", "VeRA", "2 r numbers per token and adapted projection are kept"),
    ("memory", "bfloat16", "autocast leaves the residual stream in fp32; that of the bound is in bf16"),
    ("step", "PVeRA, r = 256, bf16", "the frozen backbone itself gains no more from bf16 on this processor"),
    ("step", "PVeRA", "products with A and B, twice as many columns as in VeRA, and normal numbers from one thread"),
    ("probe", "", "a pass over all images takes less time than many thousand steps of the head"),
)
SMALL = "a pass takes milliseconds, so the calls of many small operators count"
NEAR = "within the spread of medians of few pairs"
UNKNOWN = "not explained"


def missed(records: Sequence[dict]) -> str:
    """Return the missed targets as one Markdown table, with a column per machine and the reason of the worst."""
    misses: dict[Measurement, dict[str, Measurement]] = {}
    for record in records:
        for row in (Measurement(**row) for row in record["rows"]):
            if row.met is False:
                kind = replace(row, value=0.0, bound_value=0.0, ratio=0.0)
                misses.setdefault(kind, {})[machine_title(record)] = row
    machines = list(dict.fromkeys(machine_title(record) for record in records))
    lines = []
    for kind, rows in misses.items():
        shown = [plain(rows[machine].ratio, 3) if machine in rows else "–" for machine in machines]
        worst = max(rows.values(), key=lambda row: row.ratio)
        what = f"{kind.what}, memory" if kind.part == "memory" else kind.what
        about = [what, backbone_title(kind.backbone), kind.precision, kind.bound.replace("frozen ", "")]
        lines.append([*map(markdown.escape, about), f"{kind.target:.2f}", *shown, reason(worst)])
    header = ["Of", "Backbone", "Precision", "Bound", "Target", *machines, "Reason"]
    return markdown.table(header, lines, "llll" + "c" * (len(machines) + 1) + "l")


def reason(row: Measurement) -> str:
    """Return why a measurement misses its target."""
    near = row.target is not None and row.part != "memory" and row.ratio <= row.target + SPREAD
    if near and (row.low is None or row.low <= row.target):  # without quartiles the spread is not known
        return NEAR
    if row.backbone == "tiny" and row.part in ("step", "sample", "evaluate"):
        return SMALL
    fitting = (
        said
        for part, start, said in REASONS
        if part == row.part and (row.what.startswith(start) or row.precision == start)
    )
    return next(fitting, UNKNOWN)


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
