"""What the notebooks in analysis/ share: reading results, and showing tables and figures."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib
from IPython import display
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from pvera.report import claims
from pvera.report.captions import caption_source
from pvera.report.paper_numbers import PaperNumbers, load_paper
from pvera.report.plots import base
from pvera.report.settings import ResultFiles, Setting, read_profiles, read_report
from pvera.report.table import Table

#: Width of a figure of one column, in pixels.
WIDTH = 510


@dataclass(frozen=True)
class Page:
    """A notebook that shows the results of the report's profiles, or of one."""

    #: The result files.
    files: ResultFiles
    #: Names of the profiles that have a column on the page of claims.
    claim_profiles: list[str]
    #: Folder of the paper's printed numbers.
    paper_folder: Path
    #: Folder of the tables.
    table_folder: Path
    #: Folder of the figures.
    figure_folder: Path

    @classmethod
    def here(cls) -> "Page":
        """Return the page of the profile that PVERA_PROFILE names, by default of the report's.

        Folders lie in the nearest folder above the notebook that holds pyproject.toml. Sets
        matplotlib's defaults.
        """
        matplotlib.rcParams.update(base.DEFAULTS)
        folders = [Path.cwd(), *Path.cwd().parents]
        root = next(folder for folder in folders if (folder / "pyproject.toml").exists())
        results = root / "results"

        # Without a profile the name is empty, and each path below is that of the committed files.
        name = os.environ.get("PVERA_PROFILE", "")
        report = {"profiles": [name], "claims": [name]} if name else read_report(root)
        files = ResultFiles(results, read_profiles(root, report["profiles"]))
        return cls(
            files,
            report["claims"],
            paper_folder=results / "published",
            table_folder=results / name / "tables",
            figure_folder=root / "figures" / name,
        )

    @cached_property
    def paper(self) -> PaperNumbers:
        """The paper's printed numbers."""
        return load_paper(self.paper_folder)

    def read(self, experiment: str, **options: Any) -> dict[Setting, list]:
        """Read the results of an experiment by setting, see `ResultFiles.read`."""
        return self.files.read(experiment, **options)

    def say(self, text: str) -> None:
        """Show Markdown."""
        display.display(display.Markdown(text))

    def show_command(self, script: str = "train", options: str = "") -> None:
        """Show the command that makes results that are missing."""
        profile = self.files.profiles[0].name
        command = f"python experiments/{script}.py --profile {profile} {options}".strip()
        self.say(f"No results yet: `{command}` makes them, if the profile lists them.")

    def introduce(self, by_setting: Mapping[Setting, Any], script: str = "train") -> None:
        """Describe the runs of each setting; without any, name the script that makes them."""
        for setting, results in by_setting.items():
            self.say(f"*{setting.title}.* {caption_source(results)}")
        if not by_setting:
            self.show_command(script)

    def show(self, table: Table, setting: Setting | None = None, source: bool = False) -> None:
        """Write a table in all formats and show it.

        Args:
            table: The table.
            setting: The setting, whose title begins the caption and whose suffix ends file names.
            source: Show the runs behind the table too.
        """
        if setting:
            caption = f"{setting.title}: {table.caption}"
            table = replace(table, name=setting.file_name(table.name), caption=caption)
        table.write(self.table_folder)
        self.say(table.markdown(source))

    def show_each(self, by_setting: Mapping[Setting, Any], build: Callable[[Any], Table]) -> None:
        """Build a table of the results of each setting and show it."""
        for setting, results in by_setting.items():
            self.show(build(results), setting)

    def draw(
        self, figure: Figure, name: str, setting: Setting | None = None, width: int = WIDTH
    ) -> None:
        """Save a figure as PNG and PDF and show it.

        Args:
            figure: The figure.
            name: The name of the files.
            setting: The setting, whose title stands above the legend, or else above the figure.
            width: The width in pixels.
        """
        if setting:
            name = setting.file_name(name)
            if figure.legends:
                figure.legends[0].set_title(setting.title, FontProperties(size=8))
            else:
                figure.suptitle(setting.title, fontsize=8)
        path, *_ = base.save(figure, self.figure_folder, name)
        display.display(display.Image(path, width=width))

    def draw_each(
        self,
        by_setting: Mapping[Setting, Any],
        build: Callable[[Any], Figure],
        name: str,
        **options: Any,
    ) -> None:
        """Build a figure of the results of each setting and show it; options: of `draw`."""
        for setting, results in by_setting.items():
            self.draw(build(results), name, setting, **options)

    def show_claims(self, notebook: str) -> None:
        """Show the judged claims of a notebook, a table per setting."""
        for setting, table in claims.claim_tables(self.files, notebook).items():
            self.show(table, setting)
