"""Records of experiments/benchmark_speed.py: the time of each part against the bound of a frozen backbone.

    <root>/performance/speed_<device>.json

holds one row per measurement. A new measurement replaces the row of its name; the others stay.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch

from pvera.adapters import Method
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.study import markdown

SCHEMA = 2
#: The largest ratios that meet their targets.
STEP = {"pvera": 1.25, "vera": 1.20} | dict.fromkeys(("lora", "dora", "ia3", "bottleneck", "adaptformer"), 1.15)
EVALUATE, SAMPLE, SAMPLE_MEMORY, MEMORY = 1.02, 1.15, 1.05, 1.3
GRID = 3
#: The axes of part "sweep" of the committed records; a row's name ends in the value.
SWEPT = {"rank": "Rank r", "tokens": "Tokens", "depth": "Layers", "grid": "Members of the grid"}


@dataclass(frozen=True)
class Measurement:
    """One measurement of a part against its bound.

    value, bound_value: seconds of both, or bytes (parts memory and size, and the memory of draws).
    ratio: the median over pairs.   target: the largest ratio that meets it; None where none is set.
    low, high: quartiles of the ratio over pairs; None for a single measurement.
    """

    part: str
    backbone: str
    precision: str
    what: str
    bound: str
    value: float
    bound_value: float
    ratio: float
    target: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the ratio keeps its target; None without one."""
        return None if self.target is None else self.ratio <= self.target


def title(grid: Sequence[Method]) -> str:
    """Name the row of a grid of equal methods."""
    method = grid[0]
    size = {name: getattr(method, name) for name in ("rank", "ratio") if hasattr(method, name)}
    names = {"rank": "r"}
    text = method.title + "".join(f", {names.get(name, name)} = {value}" for name, value in size.items())
    return text if len(grid) == 1 else f"{text}, grid of {len(grid)}"


def record_path(folder, device: str, threads: int | None = None) -> Path:
    """Return the place of a device's record, a separate one for a chosen number of threads."""
    name = f"speed_{device}" if threads is None else f"speed_{device}_threads_{threads}"
    return Path(folder) / (re.sub(r"\W+", "_", name.lower()).strip("_") + ".json")


def update(path: Path, made_by: dict, rows: Sequence[Measurement]) -> None:
    """Write `rows` into the record at `path`, where they replace rows of their names, and write it as Markdown too."""
    by_name = {_name(row): row for row in read_record(path)["rows"]} if path.exists() else {}
    by_name |= {_name(row): row for row in map(asdict, rows)}
    record = {"schema": SCHEMA, "environment": made_by, "rows": list(by_name.values())}
    write_atomically(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    write_atomically(path.with_suffix(".md"), describe(record).encode())


def _name(row: dict) -> tuple[str, ...]:
    return row["part"], row["backbone"], row["precision"], row["what"]


def read_record(path: Path) -> dict:
    """Read a record. InputError for one that is missing, damaged, or of another version."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        if record["schema"] != SCHEMA:
            raise InputError(f"{path}: of schema {record['schema']}, this program reads {SCHEMA}")
        [Measurement(**row) for row in record["rows"]]
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; experiments/benchmark_speed.py makes it") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: damaged file ({type(error).__name__}: {error})") from None
    return record


def load_records(folder) -> list[dict]:
    """Load the records in `folder`, one per device."""
    return [read_record(path) for path in sorted(Path(folder).glob("speed_*.json"))]


def by_backbone(record: dict) -> dict[str, pd.DataFrame]:
    """Split the rows of a record by backbone."""
    rows = pd.DataFrame([asdict(Measurement(**row)) for row in record["rows"]])
    return {name: part.reset_index(drop=True) for name, part in rows.groupby("backbone", sort=False)}


def verdict(record: dict) -> str:
    """Count the targets that are met."""
    met = [row.met for row in (Measurement(**row) for row in record["rows"]) if row.met is not None]
    return f"{sum(met)} of {len(met)} targets are met."


def machine(record: dict) -> str:
    """Name the machine of a record."""
    made_by = record["environment"]
    return f"{made_by['device']}, {made_by['threads']} thread{'s' * (made_by['threads'] > 1)}"


def describe(record: dict) -> str:
    """Format the rows as a Markdown table, with the machine."""
    header = ["backbone", "precision", "part", "what", "bound", "time", "time of the bound", "ratio", "target", ""]
    lines = []
    for row in (Measurement(**row) for row in record["rows"]):
        target = "" if row.target is None else f"{row.target:.2f}"
        verdict = {None: "", True: "met", False: "**missed**"}[row.met]
        values = (_quantity(row, value) for value in (row.value, row.bound_value))
        about = [row.backbone, row.precision, row.part, row.what, row.bound]
        quartiles = "" if row.low is None else f" ({row.low:.3f} to {row.high:.3f})"
        lines.append([*about, *values, f"{row.ratio:.3f}{quartiles}", target, verdict])
    if any(row.get("low") is not None for row in record["rows"]):
        header[7] = "ratio (quartiles)"
    made_by = record["environment"]
    about = (
        f"{machine(record)}, torch {made_by['torch']}, timm {made_by['timm']}; "
        "see experiments/benchmark_speed.py. Part and bound are measured in turn: the ratio is the median over the "
        "pairs, not the quotient of the two medians beside it."
    )
    return f"{markdown.table(header, lines, 'lllllrrrrl')}\n\n{about}\n"


def _quantity(row: Measurement, value: float) -> str:
    if row.part == "size":
        return f"{value / 1e3:,.0f} kB"
    if row.part == "memory" or row.what.startswith("memory"):
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:,.3f} s"


def memory(device: str, reset: bool) -> float:
    """Return bytes: with `reset` those in use now, where the count of the peak begins; else the peak since then.

    InputError on a system that does not report the peak of a process's memory.
    """
    if device.startswith("cuda"):
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
            return torch.cuda.memory_allocated(device)
        return torch.cuda.max_memory_allocated(device)
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        raise InputError("the peak of a process's memory is known on Linux only: leave it out") from None
    return 1024.0 * int(re.search(r"VmRSS:\s+(\d+)" if reset else r"VmHWM:\s+(\d+)", status)[1])
