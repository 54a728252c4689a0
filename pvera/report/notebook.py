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
from pvera.report.settings import ResultFiles, Setting, read_profiles, read_report
from pvera.report.table import Table

WIDTH = 510  # pixels of a figure of one column


@dataclass(frozen=True)
class Page:
    """A notebook executed on the results of the report's profiles, or of one.

    Attributes:
        files: The result files.
        columns: The profiles that have a column on the page of claims.
        published: Folder of the paper's printed numbers.
        tables: Folder of the tables.
        figures: Folder of the figures.
    """

    files: ResultFiles
    columns: list[str]
    published: Path
    tables: Path
    figures: Path

    @classmethod
    def here(cls) -> "Page":
        """Return the page of the profile that PVERA_PROFILE names, by default of the report's.

        It sets figures' defaults. Its folders are in the nearest one above the notebook that holds pyproject.toml.
        """
        matplotlib.rcParams.update(plots.DEFAULTS)
        folders = [Path.cwd(), *Path.cwd().parents]
        root = next(folder for folder in folders if (folder / "pyproject.toml").exists())
        results, figures = root / "results", root / "figures"

        name = os.environ.get("PVERA_PROFILE")
        if name:
            names = columns = [name]
            tables, figures = results / name / "tables", figures / name
        else:
            report = read_report(root)
            names, columns = report.profiles, report.claims
            tables = results / "tables"
        files = ResultFiles(results, read_profiles(root, names))
        return cls(files, columns, results / "published", tables, figures)

    def read(self, experiment: str, **options) -> dict[Setting, list]:
        """Read the results of an experiment by setting, see `ResultFiles.read`."""
        return self.files.read(experiment, **options)

    def say(self, text: str) -> None:
        """Show Markdown."""
        display.display(display.Markdown(text))

    def missing(self, script: str = "train", options: str = "") -> None:
        """Show the command that makes results that are missing."""
        command = f"python experiments/{script}.py --profile {self.files.profiles[0].name} {options}".strip()
        self.say(f"No results yet: `{command}` makes them, if the profile lists them.")

    def show(self, table: Table, setting: Setting | None = None, source: bool = False) -> None:
        """Write a table in all formats and show it.

        Args:
            table: The table.
            setting: What it shows; its title begins the caption and its suffix ends the name of the files.
            source: Show the runs behind it too.
        """
        if setting:
            table = replace(
                table, name=setting.named(table.name), caption=f"{setting.title}: {table.caption}"
            )
        table.write(self.tables)
        self.say(table.markdown(source))

    def introduce(
        self, parts: dict[Setting, Any], describe: Callable[[Any], str], script: str = "train"
    ) -> None:
        """Describe the results of each setting, or that `script` makes them."""
        for setting, of_setting in parts.items():
            self.say(f"*{setting.title}.* {describe(of_setting)}")
        if not parts:
            self.missing(script)

    def show_each(self, parts: dict[Setting, Any], build: Callable[[Any], Table]) -> None:
        """Build a table of the results in each setting and show it."""
        for setting, of_setting in parts.items():
            self.show(build(of_setting), setting)

    def draw_each(
        self, parts: dict[Setting, Any], build: Callable[[Any], Figure], name: str, **options
    ) -> None:
        """Build a figure of the results in each setting and show it; options: of `draw`."""
        for setting, of_setting in parts.items():
            self.draw(build(of_setting), name, setting, **options)

    def show_claims(self, notebook: str) -> None:
        """Show the judged claims of a notebook, a table per setting."""
        for setting, table in claims.tables(self.files, notebook).items():
            self.show(table, setting)

    def draw(
        self, figure: Figure, name: str, setting: Setting | None = None, width: int = WIDTH
    ) -> None:
        """Save a figure as PNG and PDF and show it; the title of its setting stands above it, or above its key."""
        if setting:
            name = setting.named(name)
            if figure.legends:
                figure.legends[0].set_title(setting.title, {"size": 8})
            else:
                figure.suptitle(setting.title, fontsize=8)
        path, *_ = plots.save(figure, self.figures, name)
        display.display(display.Image(path, width=width))
