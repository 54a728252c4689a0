"""Write the pages of the report from the outputs of a profile's notebooks.

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
from pvera.report.places import BEYOND, PLACES, Place, has_results, place_of
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


#: The paper's numbers of a notebook's subject, as Markdown.
PRINTED: dict[str, Callable[[Published], str]] = {
    "main_table": lambda paper: grid_of(paper.main_table().T),
    "rank": lambda paper: grid_of(paper.rank.set_index("rank")),
    "position": lambda paper: grid_of(paper.position.set_index("targets")),
    "grid": lambda paper: grid_of(paper.grid.set_index("method")),
    "language": lambda paper: grid_of(paper.language.pivot(index="method", columns="task", values="score")),
    "detailed": lambda paper: "\n\n".join(published_detailed(paper, backbone).markdown() for backbone in BACKBONES),
    "computational_efficiency": lambda paper: grid_of(
        paper.averages.pivot_table(index="method", columns="backbone", values="average")
    ),
}


@dataclass(frozen=True)
class Topic:
    """One page of results: the rows of `PLACES` of one notebook. title, place: of these rows; beyond the paper, the
    place is empty."""

    notebook: str
    places: tuple[Place, ...]

    @classmethod
    def all(cls) -> list["Topic"]:
        """Return the topics in the order of `PLACES`, without the claims, which have a page of their own."""
        notebooks = dict.fromkeys(place.notebook for place in PLACES if place.notebook != "claims")
        return [cls(notebook, tuple(p for p in PLACES if p.notebook == notebook)) for notebook in notebooks]

    @property
    def title(self) -> str:
        title = "; ".join(place.what for place in self.places)
        return title[:1].upper() + title[1:]

    @property
    def place(self) -> str:
        return ", ".join(place.where for place in self.places if place.where != BEYOND)

    @property
    def heading(self) -> str:
        return f"{self.place}: {self.title}" if self.place else self.title

    @property
    def page(self) -> str:
        return f"{'paper' if self.place else 'more'}/{self.notebook}.md"

    @property
    def stems(self) -> list[str]:
        """What the names of its tables and figures begin with."""
        return [pattern.rstrip("_*") for place in self.places for pattern in place.files]

    @property
    def files(self) -> list[str]:
        """The files that make or show what no table or figure does, from the root."""
        names = [name for place in self.places for name in (*place.more, *place.made_by)]
        return [name for name in dict.fromkeys(names) if name not in EXPERIMENTS]


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
        def link(match: re.Match) -> str:
            picture, label, target = match.groups()
            label = LINK.sub(link, label)  # a picture that is a link
            target = self.target(target, source, page)
            return label if target is None else f"{picture}[{label}]({target})"

        def attribute(match: re.Match) -> str:  # MkDocs leaves links in HTML as they are
            target = self.target(match[2], source, page) or "#"
            return f'{match[1]}="{html_of(target)}"'

        text = REMOTE_PICTURE.sub(lambda match: match[1] or match[2] or "", text)
        text = ATTRIBUTE.sub(attribute, LINK.sub(link, text))
        return re.sub(r"<(details|div|p)(?=[ >])", r'<\1 markdown="1"', text)

    def target(self, target: str, source: Path, page: str) -> str | None:
        """Return a link of `source`, rewritten for `page`; None if it leads to a folder without a page."""
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
        """Return a notebook, executed for the profile, as Markdown with collapsed code.

        Where the profile has no results for it, without what it shows.
        """
        executed = file if self.profile == "mini" else self.root / "figures" / self.profile / file.name
        without_results = not executed.exists() and not has_results(self.root, self.profile, file.stem)
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
        drawings = [self.root / name for name in topic.files if name.endswith(".svg")]
        links = (f"[`{name}`](../{self.add(self.root / name)})" for name in topic.files if not name.endswith(".svg"))
        parts.append(", ".join(links))
        for figure in [*drawings, *figures]:
            picture = f"../{self.add(figure)}"
            parts.append(f'[![{alt(topic.title)}: {alt(figure.stem)}]({picture}){{ width="{WIDTH}" }}]({picture})')
        for table in tables:
            rest = re.sub(rf"^({'|'.join(topic.stems)})_?", "", table.stem)
            parts.append(f"## {TITLES.get(rest, rest.replace('_', ' ').capitalize())}")
            parts.append(self.relink(re.sub(r"\A# .*\n", "", table.read_text()), table, topic.page).strip())
        if topic.notebook in PRINTED:
            parts += ["## The paper's numbers", PRINTED[topic.notebook](load(self.root / "results" / "published"))]
        return self.write(topic.page, "\n\n".join(filter(None, parts)) + "\n")

    def results(self) -> tuple[list[dict], list[dict]]:
        """Write the pages of results; return the navigation of the paper's places and of the rest."""
        paper, more = [], []
        for topic in Topic.all():
            tables, figures = (
                [path for path in paths if place_of(path.stem) in topic.places] for paths in (self.tables, self.figures)
            )
            (paper if topic.place else more).append({topic.heading: self.topic(topic, tables, figures)})
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
    """Return a picture's description in plain words."""
    return re.sub(r"[\[\]*`_]+", " ", text).strip()


def html_of(target: str) -> str:
    """Return the HTML page that MkDocs makes from a Markdown page, in the same folder."""
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
    """Replace `folder` by the pages and MkDocs' configuration; return the navigation."""
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
