"""Write the pages of the report that one can browse, from what a profile's notebooks have made.

    python experiments/report_pages.py --profile mini

`bash run_report.sh [profile]` calls it and builds the site. Pages and MkDocs' configuration go to
build/report/<profile>: the README, the documentation, the claims, a page per place in the paper, the executed
notebooks, and the library's reference. A page has the place of its file in the repository, so links between files are
links between pages. What a page links to is added as well.
"""

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
from options import ROOT, Parser

from pvera.adapters import METHODS
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.report import places
from pvera.report.published import BACKBONES, Published, load
from pvera.report.tables import published_detailed
from pvera.report.tables.names import backbone_title, dataset_title
from pvera.study import markdown
from pvera.study.experiments import EXPERIMENTS
from pvera.study.script import run

CODE = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".cff": "yaml", "": "text"}
DOCUMENTS = ("PROTOCOL.md", "results/published/audit.md", "results/mini/benchmark/README.md", "CONTRIBUTING.md")
FENCE = re.compile(r"^([ >]*)(```+|~~~+).*?^\1\2\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^()\s>]+)>?\)")
ATTRIBUTE = re.compile(r'\b(href|src)="([^"]+)"')
REMOTE_PICTURE = re.compile(
    r'!\[([^\]]*)\]\(https?://[^)]*\)|<img\b(?=[^>]*\bsrc="https?:)(?:[^>]*\balt="([^"]*)")?[^>]*>'
)


@dataclass(frozen=True)
class Topic:
    """One page of results.

    title: of the page. notebook: in analysis/. names: tables and figures are called so, or begin so ("<name>_").
    place: in the paper; empty for what the paper lacks. printed: its numbers in the paper, as Markdown.
    see: files that show what no table or figure does.
    """

    title: str
    notebook: str
    names: tuple[str, ...]
    place: str = ""
    printed: Callable[[Published], str] | None = None
    see: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.place}: {self.title}" if self.place else self.title

    @property
    def page(self) -> str:
        return f"{'paper' if self.place else 'more'}/{self.notebook}.md"

    def has(self, name: str) -> bool:
        return any(name == own or name.startswith(f"{own}_") for own in self.names)


#: By the place in the paper, then what the paper lacks.
TOPICS = (
    Topic("The main table", "main_table", ("main",), "Table 1", lambda p: grid_of(p.main_table().T)),
    Topic("The rank", "rank", ("rank",), "Table 2", lambda p: grid_of(p.rank.set_index("rank"))),
    Topic("The position", "position", ("position",), "Table 3", lambda p: grid_of(p.position.set_index("targets"))),
    Topic("Choices of the grids", "grid", ("grid",), "Table 4", lambda p: grid_of(p.grid.set_index("method"))),
    Topic(
        "Text",
        "language",
        ("language",),
        "Table 5",
        lambda p: grid_of(p.language.pivot(index="method", columns="task", values="score")),
    ),
    Topic(
        "Every data set",
        "detailed",
        ("detailed",),
        "Tables 6 to 8",
        lambda p: "\n\n".join(published_detailed(p, b).markdown() for b in BACKBONES),
    ),
    Topic(
        "VeRA and PVeRA, and what differs between the paper and its program",
        "protocol",
        ("protocol",),
        "Figure 2, Algorithm 2",
        see=("PROTOCOL.md", "pvera/adapters/vera.py", "pvera/adapters/pvera.py"),
    ),
    Topic(
        "Cost",
        "computational_efficiency",
        ("cost",),
        "Figure 3",
        lambda p: grid_of(p.averages.pivot_table(index="method", columns="backbone", values="average")),
    ),
    Topic("Calibration", "calibration", ("calibration", "reliability"), "Figure 4"),
    Topic("Uncertainty", "uncertainty", ("uncertainty",), "Figure 5, Algorithm 1"),
    Topic("Out of distribution", "out_of_distribution", ("out_of_distribution",), "Figure 6"),
    Topic("Latents", "latents", ("latents",), "Figure 7"),
    Topic("Intervals", "intervals", ("intervals", "teaser_interval"), "Figures 1, 8 and 9"),
    Topic("Uncertainty against rivals", "uncertainty_baselines", ("rivals", "beta_effects")),
    Topic("What in PVeRA does it", "components", ("components", "equal_budget", "image_leads")),
    Topic("Support of the ranking", "comparison", ("comparison",)),
    Topic("Longer trainings", "duration", ("duration",)),
    Topic("Speed", "speed", ("speed", "spent", "precision", "wall_time", "versions")),
    Topic("The paper's own consistency", "audit", ("audit",)),
)
WIDTH = 640  # pixels of a picture
TITLES = {"": "Here", "claims": "Does what the paper says hold?", "paper": "Beside the paper"}


class Pages:
    """The pages of one profile below `folder`. Adding one adds what it links to."""

    def __init__(self, root: Path, profile: str, folder: Path):
        self.root, self.profile, self.folder = root, profile, folder
        self.tables = sorted((root / "results" / profile / "tables").glob("*.md"))
        self.figures = sorted((root / "figures" / profile).glob("*.png"))
        self.added: dict[Path, str] = {}

    def write(self, page: str, text: str) -> str:
        write_atomically(self.folder / page, text.encode())
        return page

    def add(self, file: Path) -> str:
        """Add a file of the repository, once, and return its page (code becomes one), relative to `folder`."""
        if file in self.added:
            return self.added[file]
        name = file.relative_to(self.root).as_posix()
        if file.suffix == ".ipynb":
            page = self.added[file] = f"{name.removesuffix('.ipynb')}.md"
            self.write(page, self.notebook(file, page))
        elif file.suffix == ".md":
            page = self.added[file] = name
            self.write(page, self.relink(file.read_text(), file, page))
        elif file.suffix in CODE:
            page = self.added[file] = f"{name}.md"
            self.write(page, f"# `{name}`\n\n{fence(file.read_text(), CODE[file.suffix])}")
        else:
            page = self.added[file] = name
            (self.folder / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.folder / page)
        return page

    def relink(self, text: str, source: Path, page: str) -> str:
        """Return Markdown of `source` for `page`: links lead to pages, and no picture comes from the network."""
        parts, end = [], 0
        for block in FENCE.finditer(text):
            parts += [self._relink(text[end : block.start()], source, page), block[0]]
            end = block.end()
        return "".join([*parts, self._relink(text[end:], source, page)])

    def _relink(self, text: str, source: Path, page: str) -> str:
        def link(found: re.Match) -> str:
            picture, label, target = found.groups()
            label = LINK.sub(link, label)  # a picture that is a link
            target = self.target(target, source, page)
            return label if target is None else f"{picture}[{label}]({target})"

        def attribute(found: re.Match) -> str:  # MkDocs leaves links in HTML as they are
            target = self.target(found[2], source, page) or "#"
            return f'{found[1]}="{html_of(target)}"'

        text = REMOTE_PICTURE.sub(lambda found: found[1] or found[2] or "", text)
        text = ATTRIBUTE.sub(attribute, LINK.sub(link, text))
        return re.sub(r"<(details|div|p)(?=[ >])", r'<\1 markdown="1"', text)

    def target(self, target: str, source: Path, page: str) -> str | None:
        """Return a link of `source` as it must stand on `page`; None where it leads to a folder without a page."""
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return target
        file = Path(os.path.normpath(source.parent / path))
        if file.is_dir():
            file /= "README.md"
            if not file.exists():
                return None
        if not file.is_relative_to(self.root) or not file.exists():
            raise InputError(f"{source}: its link to {target} leads nowhere")
        added = os.path.relpath(self.folder / self.add(file), (self.folder / page).parent)
        return added if file.suffix in CODE else added + mark + anchor

    def notebook(self, file: Path, page: str) -> str:
        """Return a notebook, executed for the profile, as Markdown; its code is folded.

        Where the profile has no results for it, without what it shows.
        """
        executed = file if self.profile == "mini" else self.root / "figures" / self.profile / file.name
        without_results = not executed.exists() and not places.has_results(self.root, self.profile, file.stem)
        if not executed.exists() and not without_results:
            raise InputError(f"{executed} is missing: `bash run_all.sh {self.profile}` makes it")
        cells = nbformat.read(file if without_results else executed, as_version=4).cells
        parts, heading, pictures = [], file.stem, 0
        for cell in cells:
            if cell.cell_type == "markdown":
                parts.append(self.relink(cell.source, file, page))
                heading = ([heading] + re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE))[-1]
                continue
            parts.append('??? note "Code"\n\n' + indent(fence(cell.source, "python")))
            for output in [] if without_results else cell.get("outputs", []):
                data = output.get("data", {})
                if "image/png" in data:
                    pictures += 1
                    name = f"{file.stem}_{pictures}.png"
                    write_atomically(
                        self.folder / page.replace(f"{file.stem}.md", name), base64.b64decode(data["image/png"])
                    )
                    width = output.get("metadata", {}).get("image/png", {}).get("width", WIDTH)
                    parts.append(f'![{alt(heading)}, picture {pictures}]({name}){{ width="{width}" }}')
                elif "text/markdown" in data:
                    parts.append(self.relink(data["text/markdown"], file, page))
                elif text := output.get("text", data.get("text/plain")):
                    parts.append(fence(text, "text"))
        if without_results:
            parts.append(f"The profile {self.profile} has no results for this notebook.")
        return "\n\n".join(parts) + "\n"

    def topic(self, topic: Topic, tables: list[Path], figures: list[Path]) -> str:
        """Write the page of a topic and return it."""
        notebook = self.add(self.root / "analysis" / f"{topic.notebook}.ipynb")
        behind = [
            f"- {experiment.title}: {experiment.about} "
            f"([{experiment.script}.py](../{self.add(self.root / 'experiments' / f'{experiment.script}.py')}))"
            for experiment in EXPERIMENTS.values()
            if topic.notebook in experiment.notebooks
        ]
        said = f"[The notebook](../{notebook}) explains what stands here"
        parts = [f"# {topic.heading}", said + (", from these runs:" if behind else "."), "\n".join(behind)]
        parts += [f"[`{name}`](../{self.add(self.root / name)})" for name in topic.see]
        for figure in figures:
            picture = f"../{self.add(figure)}"
            parts.append(f'[![{alt(topic.title)}: {alt(figure.stem)}]({picture}){{ width="{WIDTH}" }}]({picture})')
        for table in tables:
            rest = next(
                (table.stem.removeprefix(name) for name in topic.names if table.stem.startswith(name)), table.stem
            )
            rest = rest.strip("_")
            parts.append(f"## {TITLES.get(rest, rest.replace('_', ' ').capitalize())}")
            parts.append(self.relink(re.sub(r"\A# .*\n", "", table.read_text()), table, topic.page).strip())
        if topic.printed:
            parts += ["## The paper's numbers", topic.printed(load(self.root / "results" / "published"))]
        return self.write(topic.page, "\n\n".join(filter(None, parts)) + "\n")

    def results(self) -> tuple[list[dict], list[dict]]:
        """Write the pages of results; return the navigation of the paper's places and of the rest."""
        paper, more, left = [], [], {*self.tables, *self.figures} - {self.claims}
        for topic in TOPICS:
            tables, figures = (
                [p for p in paths if p in left and topic.has(p.stem)] for paths in (self.tables, self.figures)
            )
            left -= {*tables, *figures}
            (paper if topic.place else more).append({topic.heading: self.topic(topic, tables, figures)})
        if left:
            others = Topic("Other tables and figures", "claims", ("",))
            tables, figures = ([p for p in paths if p in left] for paths in (self.tables, self.figures))
            more.append({others.heading: self.topic(others, tables, figures)})
        return paper, more

    @property
    def claims(self) -> Path:
        return self.root / "results" / self.profile / "tables" / "claims.md"

    def reference(self) -> list:
        """Write a page per module of the library; return their navigation, a part per package."""
        package = self.root / "pvera"
        parts = {}
        for file in sorted(package.rglob("*.py")):
            module = ".".join(file.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")
            if any(part.startswith("_") for part in module.split(".")):
                continue
            page = self.write(f"api/{module}.md", f"::: {module}\n")
            parts.setdefault(".".join(module.split(".")[:2]) if file.parent != package else "pvera", []).append(
                {module: page}
            )
        return [{part: pages} for part, pages in parts.items()]

    def navigation(self) -> list:
        """Write all pages and return the navigation."""
        paper, more = self.results()
        notebooks = [self.add(path) for path in sorted((self.root / "analysis").glob("*.ipynb"))]
        documents = [*sorted((self.root / "docs").glob("*.md")), *(self.root / name for name in DOCUMENTS)]
        claims = [{"Claims": self.add(self.claims)}] if self.claims.exists() else []
        return [
            {"Overview": self.add(self.root / "README.md")},
            *claims,
            {"The paper's results": paper},
            {"Beyond the paper": more},
            {"Notebooks": notebooks},
            {"Documentation": [self.add(path) for path in documents]},
            {"Reference": self.reference()},
        ]


def fence(text: str, language: str) -> str:
    ticks = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}\n"


def indent(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def alt(text: str) -> str:
    """Return a text that can describe a picture: plain words."""
    return re.sub(r"[\[\]*`_]+", " ", text).strip()


def html_of(target: str) -> str:
    """Return the page that MkDocs makes of a Markdown page, in the same folder."""
    return re.sub(r"\.md(?=#|$)", ".html", re.sub(r"README\.md(?=#|$)", "index.md", target))


def grid_of(frame: pd.DataFrame) -> str:
    """Return a table of published numbers in Markdown, with titles in place of keys."""

    def title(key) -> str:
        name = METHODS[key].title if key in METHODS else backbone_title(dataset_title(str(key)))
        return markdown.escape(name[:1].upper() + name[1:])

    rows = [[title(key), *map(str, row)] for key, *row in frame.itertuples()]
    header = [str(frame.index.name or "").capitalize(), *map(title, frame.columns)]
    return markdown.table(header, rows, "l" + "c" * len(frame.columns))


def write_report(root: Path, profile: str, folder: Path) -> list:
    """Write the pages and MkDocs' configuration to `folder`, in place of what is there; return the navigation."""
    notebooks = root / ("analysis" if profile == "mini" else f"figures/{profile}")
    if not any((root / "results" / profile / "tables").glob("*.md")) or not any(notebooks.glob("*.ipynb")):
        raise InputError(f"no tables of {profile!r}: `bash run_all.sh {profile}` makes them")
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(root, profile, folder / "pages")
    navigation = pages.navigation()
    mkdocs = root / "mkdocs"
    shutil.copytree(mkdocs / "assets", pages.folder / "assets")
    reference = {"paths": [str(root)], "options": {"extensions": [str(mkdocs / "docstrings.py")]}}
    settings = {
        "INHERIT": str(mkdocs / "mkdocs.yml"),
        "site_name": f"PVeRA, reproduced: {profile}",
        "docs_dir": "pages",
        "site_dir": "site",
        "hooks": [str(mkdocs / "typeset.py")],
        "plugins": {"mkdocstrings": {"handlers": {"python": reference}}},
        "nav": navigation,
    }
    (folder / "mkdocs.yml").write_text(json.dumps(settings, indent=1))
    return navigation


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--profile", default="mini", help="folder in results/ (%(default)s)")
    options = parser.parse_args()
    write_report(ROOT, options.profile, ROOT / "build" / "report" / options.profile)


if __name__ == "__main__":
    run(main)
