"""The page behind every notebook in analysis/: it finds results, writes and shows tables, saves and shows figures."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
from IPython import display
from matplotlib.figure import Figure

from pvera.report import claims, plots
from pvera.report.table import Table, title

WIDTH = 510  # pixels of a figure of one column
REHEARSAL = "rehearsal"  # the profile of random weights and data, whose tables and figures are marked


@dataclass(frozen=True)
class Page:
    """A notebook executed on the results of one profile: the folders of all results, of the paper's, and of figures."""

    profile: str
    results: Path
    published: Path
    figures: Path

    @classmethod
    def here(cls) -> "Page":
        """Return the page of the profile that PVERA_PROFILE names, by default `mini`, and set figures' defaults.

        Its folders are in the nearest one above the notebook that holds pyproject.toml.
        """
        matplotlib.rcParams.update(plots.DEFAULTS)
        folders = [Path.cwd(), *Path.cwd().parents]
        root = next(folder for folder in folders if (folder / "pyproject.toml").exists())
        profile = os.environ.get("PVERA_PROFILE", "mini")
        return cls(profile, root / "results", root / "results/published", root / "figures" / profile)

    def say(self, text: str) -> None:
        """Show Markdown."""
        display.display(display.Markdown(text))

    def missing(self, script: str = "train", options: str = "") -> None:
        """Show the command that makes results that are missing."""
        command = f"python experiments/{script}.py --profile {self.profile} {options}".strip()
        self.say(f"No results yet: `{command}` makes them, if the profile lists them.")

    def show(self, table: Table, backbone: str = "", source: bool = False, of: str = "") -> None:
        """Write a table in all formats and show it.

        source: with the runs behind it. of: as for `named`.
        """
        table = replace(table, name=self.named(table.name, of))
        if self.profile == REHEARSAL:
            table = replace(table, caption=f"Rehearsal with random weights and data: {table.caption}")
        table.write(self.results / self.profile / "tables")
        heading = f"**Backbone {title(backbone)}**\n\n" if backbone else ""
        self.say(heading + table.markdown(source))

    def introduce(self, parts: dict[str, Any], describe: Callable[[Any], str], script: str = "train") -> None:
        """Describe the results of each backbone, or that `script` makes them."""
        for of_backbone in parts.values():
            self.say(describe(of_backbone))
        if not parts:
            self.missing(script)

    def show_each(self, parts: dict[str, Any], build: Callable[[Any], Table]) -> None:
        """Build a table of each backbone's results and show it; of several backbones, files end in the backbone."""
        for backbone, of_backbone in parts.items():
            table = build(of_backbone)
            name = f"{table.name}_{backbone}" if len(parts) > 1 else table.name
            self.show(replace(table, name=name), backbone)

    def show_claims(self, notebook: str, of: str = "") -> None:
        """Show the judged claims of a notebook. of: as for `named`."""
        for table in claims.tables(self.results, of or self.profile, notebook):
            self.show(table, of=of)

    def named(self, name: str, of: str = "") -> str:
        """Return the name of a file with the numbers of the profile `of`, by default the page's."""
        return name if of in ("", self.profile) else f"{name}_{of}"

    def draw(self, figure: Figure, name: str, width: int = WIDTH, source: str = "") -> None:
        """Save a figure as PNG and PDF and show it; source: of its data, by default the profile's results."""
        if self.profile == REHEARSAL:
            figure.text(0.5, 0.5, REHEARSAL, fontsize=40, color="0.5", alpha=0.4, ha="center", va="center", rotation=20)
        path, *_ = plots.save(figure, self.figures, name, f"Data: {source or f'results/{self.profile}'}")
        display.display(display.Image(path, width=width))
