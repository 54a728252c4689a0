"""The place of every notebook, table and figure in the paper, as docs/figures.md lists them."""

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from pvera.errors import InputError
from pvera.study import markdown
from pvera.study.experiments import EXPERIMENTS, of_script

BEYOND = "beyond"


@dataclass(frozen=True)
class Place:
    """A row of the list.

    where: in the paper, or `BEYOND`. what: its subject. notebook: in analysis/; the rows of one notebook share a page
    of the report. made_by: experiments (keys of `EXPERIMENTS`) and files, from the root. files: patterns of the names
    of its tables and figures, without ending. more: further files that show it.
    """

    where: str
    what: str
    notebook: str
    made_by: tuple[str, ...]
    files: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


UNCERTAINTY, PVERA = "experiments/uncertainty.py", "pvera/adapters/pvera.py"
PLACES = (
    Place("Figures 1a and 2", "architecture: VeRA and PVeRA", "protocol", ("pvera/adapters/vera.py", PVERA), (),
          ("docs/pvera.svg",)),
    Place("Figure 1b", "an interval", "intervals", ("benchmark", UNCERTAINTY), ("teaser_*",)),
    Place("Figure 3", "computational efficiency", "computational_efficiency", ("benchmark", "experiments/cost.py"),
          ("cost*",)),
    Place("Figure 4", "calibration", "calibration", ("benchmark",), ("calibration*", "reliability*")),
    Place("Figure 5, Algorithm 1", "uncertainty", "uncertainty", ("benchmark", UNCERTAINTY), ("uncertainty*",)),
    Place("Figure 6", "out-of-distribution", "out_of_distribution", ("benchmark", "experiments/out_of_distribution.py"),
          ("out_of_distribution*",)),
    Place("Figure 7", "latent space", "latents", ("benchmark", "experiments/latents.py"), ("latents*",)),
    Place("Figures 8 and 9", "interval widths; examples", "intervals", ("benchmark", UNCERTAINTY), ("intervals*",)),
    Place("Algorithm 2", "initialisation and forward pass", "protocol", (PVERA,), (), ("PROTOCOL.md",)),
    Place("Table 1", "main table", "main_table", ("benchmark",), ("main*",)),
    Place("Table 2", "rank", "rank", ("rank",), ("rank*",)),
    Place("Table 3", "position", "position", ("position",), ("position*",)),
    Place("Table 4", "grid choices", "grid", ("benchmark", "beta"), ("grid*",)),
    Place("Table 5", "language", "language", ("experiments/train_language.py",), ("language*",)),
    Place("Tables 6 to 8", "detailed tables", "detailed", ("benchmark",), ("detailed*",)),
    Place(BEYOND, "every claim with its verdict", "claims", (), ("claims*",)),
    Place(BEYOND, "what in PVeRA does it", "components", ("components", "equal_budget", "alpha"),
          ("components*",)),
    Place(BEYOND, "uncertainty against rivals", "uncertainty_baselines",
          ("dropout", "beta_effects", "experiments/rivals.py"), ("rivals*", "beta_effects*")),
    Place(BEYOND, "statistics: Friedman, intervals, multiple comparisons", "comparison", ("benchmark",),
          ("comparison*",)),
    Place(BEYOND, "how long the trainings last", "duration",
          ("experiments/train.py", "experiments/train_language.py"), ("duration*",)),
    Place(BEYOND, "speed against its bound", "speed",
          ("experiments/benchmark_speed.py",), ("speed*", "precision*", "spent*")),
    Place(BEYOND, "the protocols' differences", "protocol", ("protocol",), ("protocol*",), ("PROTOCOL.md",)),
    Place(BEYOND, "audit of the published numbers", "audit", (), ("audit*",),
          ("results/published/audit.md",)),
)  # fmt: skip


def has_results(root: Path, profile: str, notebook: str) -> bool:
    """Return whether a profile has results of an experiment that `PLACES` names for a notebook in analysis/.

    True for a notebook without experiments.
    """
    makers = [Path(maker) for place in PLACES if place.notebook == notebook for maker in place.made_by]
    names = {name for maker in makers for name in (of_script(maker.stem) if maker.suffix else [maker.name])}
    folders = [folder.name for folder in (root / "results" / profile).glob("*") if folder.is_dir()]
    return not names or any(folder == name or folder.startswith(f"{name}_") for name in names for folder in folders)


def outputs(root: Path, profile: str) -> list[Path]:
    """Return the tables (Markdown) and figures (PNG) of a profile, as paths from `root`."""
    paths = [*(root / f"results/{profile}/tables").glob("*.md"), *(root / f"figures/{profile}").glob("*.png")]
    paths += (root / "results/performance").glob("speed_*.md")
    return [path.relative_to(root) for path in sorted(paths)]


def place_of(name: str) -> Place:
    """Return the place of a table or figure, the one with the longest pattern. InputError without one."""
    fits = [(len(pattern), place) for place in PLACES for pattern in place.files if fnmatch(name, pattern)]
    if not fits:
        raise InputError(f"pvera/report/places.py: no pattern in PLACES fits {name}; add it to its notebook's row")
    return max(fits, key=lambda fit: fit[0])[1]


def listing(root: Path, profile: str, up: str) -> str:
    """Return the table of all places; up: the root as seen from the page, e.g. "../"."""
    files: dict[Place, list[Path]] = {place: [] for place in PLACES}
    for path in outputs(root, profile):
        files[place_of(path.stem)].append(path)
    rows = []
    for place, paths in files.items():
        paths += map(Path, place.more)
        pictures = [path for path in paths if path.suffix in (".png", ".svg")]
        made_by = (f"`{n}`" if n in EXPERIMENTS else _link(Path(n), up, f"`{Path(n).name}`") for n in place.made_by)
        notebook = Path(f"analysis/{place.notebook}.ipynb")
        cells = (
            ", ".join(made_by),
            ", ".join(_link(path, up) for path in paths if path not in pictures),
            ", ".join(_link(path, up) for path in pictures),
        )
        what = _link(notebook, up, place.what) if place.notebook else place.what
        rows.append([place.where, what, *(cell or "–" for cell in cells)])
    return markdown.table(["In the paper", "Notebook", "Made by", "Tables", "Figures"], rows)


def pictures(root: Path, profile: str, up: str, across: int = 3, width: int = 270) -> str:
    """Return all figures of a profile in the order of `PLACES`, as an HTML table of linked pictures."""
    figures = [path for path in outputs(root, profile) if path.suffix == ".png"]
    figures.sort(key=lambda path: (PLACES.index(place_of(path.stem)), path.name))
    cells = [
        f'<td><a href="{up}{path}"><img src="{up}{path}" width="{width}" alt="{place_of(path.stem).what}: '
        f'{path.stem.replace("_", " ")}"></a></td>'
        for path in figures
    ]
    rows = ["<tr>" + "".join(cells[start : start + across]) + "</tr>" for start in range(0, len(cells), across)]
    return "\n".join(["<table>", *rows, "</table>"])


def _link(path: Path, up: str, title: str = "") -> str:
    return f"[{title or path.stem.replace('_', ' ')}]({up}{path.as_posix()})"
