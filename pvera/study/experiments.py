"""The registry of experiments: profiles, scripts, the scheduler, clusters and the report read it.

An entry says what lists an experiment's runs and what makes them, which script starts it, and who reads its results.
`register` adds one of your own: docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pvera.errors import InputError
from pvera.study import analyses, plan, rivals

if TYPE_CHECKING:
    from pvera.study.profiles import Profile
    from pvera.study.runs import Run


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    name: the folder of its results; variants of one experiment are "<name>_<variant>".
    title, about: a short name for tables, and one line for a script's --help.
    lists: (profile, this entry, folder of results) -> runs.
    script: in experiments/, starts it.
    compute: computes an analysis of one adapter (`analyses.Analysis`); None for a training.
    after: the experiment whose results its runs need: a search of β, or the trainings that left the adapters.
    searches: the hyperparameter that its runs find, for which others wait: β of PVeRA or α of VeRA.
    keep: predictions and adapters are kept beside the records.
    text: its runs read text.
    notebooks: in analysis/, that read its results.
    paper: the figures and tables of the paper that it reproduces.
    """

    name: str
    title: str
    about: str
    lists: Callable[[Profile, Experiment, object], list[Run]]
    script: str = "train"
    compute: Callable | None = None
    after: Experiment | None = None
    searches: str | None = None
    keep: bool = False
    text: bool = False
    notebooks: tuple[str, ...] = ()
    paper: str = ""

    def runs(self, profile: Profile, root) -> list[Run]:
        """List its runs in `profile`, with results below `root`."""
        return self.lists(profile, self, root)


BETA = Experiment(
    "beta",
    "Search of β",
    "searches PVeRA's β where the paper gives none; the others need it",
    plan.search,
    searches="beta",
    notebooks=("main_table", "detailed", "grid", "components"),
    paper="Table 4",
)
ALPHA = Experiment(
    "alpha",
    "Search of α",
    "searches VeRA's α, so that VeRA has as many configurations to choose from as PVeRA",
    plan.search,
    searches="alpha",
    notebooks=("components",),
)
BENCHMARK = Experiment(
    "benchmark",
    "Benchmark",
    "every method on every data set with every seed",
    plan.benchmark,
    after=BETA,
    keep=True,
    notebooks=(
        "calibration",
        "comparison",
        "components",
        "computational_efficiency",
        "detailed",
        "duration",
        "grid",
        "intervals",
        "main_table",
        "speed",
        "uncertainty",
    ),
    paper="Figures 3 and 4, Tables 1, 4 and 6 to 8",
)
DROPOUT = Experiment(
    "dropout",
    "Dropout",
    "LoRA and VeRA with dropout, for Monte Carlo dropout",
    plan.dropout,
    keep=True,
)
BETA_EFFECTS = Experiment(
    "beta_effects",
    "Effects of β",
    "PVeRA along β, from no KL term to one that outweighs the loss",
    plan.beta_effects,
    keep=True,
)
LANGUAGE_BETA = Experiment(
    "language_beta",
    "Search of β, text",
    "searches PVeRA's β, which the paper does not give; the other needs it",
    plan.search,
    script="train_language",
    searches="beta",
    text=True,
)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        BETA,
        ALPHA,
        BENCHMARK,
        Experiment(
            "components",
            "Components",
            "PVeRA without its noise or its KL term, and more seeds of VeRA and PVeRA",
            plan.components,
            after=BETA,
            keep=True,
            notebooks=("components",),
        ),
        Experiment(
            "noise",
            "Noise of fixed size",
            "PVeRA with noise of fixed size, and VeRA with dropout in its latent",
            plan.noise,
            keep=True,
        ),
        Experiment(
            "published",
            "Published protocol",
            "the published protocol on every data set",
            plan.published,
            keep=True,
        ),
        Experiment(
            "equal_budget",
            "Equal budget",
            "VeRA with an α that was searched as PVeRA's β",
            plan.equal_budget,
            after=ALPHA,
            keep=True,
            notebooks=("components",),
        ),
        Experiment(
            "rank",
            "Ablation of the rank",
            "PVeRA with several ranks",
            plan.rank_ablation,
            after=BETA,
            notebooks=("rank",),
            paper="Table 2",
        ),
        Experiment(
            "position",
            "Ablation of positions",
            "PVeRA on several combinations of query, key and value",
            plan.position_ablation,
            after=BETA,
            notebooks=("position",),
            paper="Table 3",
        ),
        Experiment(
            "protocol",
            "Differences of the protocols",
            "the differences between the paper and its published program, one at a time",
            plan.protocol_effects,
            after=BETA,
            notebooks=("protocol",),
        ),
        Experiment(
            "uncertainty",
            "Monte Carlo inference",
            "several draws of every test image",
            plan.uncertainty,
            script="uncertainty",
            compute=analyses.uncertainties,
            after=BENCHMARK,
            notebooks=("uncertainty", "intervals"),
            paper="Figures 1, 5, 8 and 9, Algorithm 1",
        ),
        Experiment(
            "out_of_distribution",
            "Out of distribution",
            "latents in and out of distribution",
            plan.out_of_distribution,
            script="out_of_distribution",
            compute=analyses.out_of_distribution,
            after=BENCHMARK,
            notebooks=("out_of_distribution",),
            paper="Figure 6",
        ),
        Experiment(
            "latents",
            "Latents",
            "maps of latents over an image's patches",
            plan.latent_maps,
            script="latents",
            compute=analyses.latent_maps,
            after=BENCHMARK,
            notebooks=("latents",),
            paper="Figure 7",
        ),
        DROPOUT,
        BETA_EFFECTS,
        *(
            Experiment(
                name,
                title,
                about,
                plan.rivals,
                script="rivals",
                compute=rivals.compare,
                after=after,
                notebooks=("uncertainty_baselines",),
            )
            for name, title, about, after in (
                ("rivals", "Rivals", "one pass, draws, ensembles and Laplace with the benchmark's adapters", BENCHMARK),
                ("dropout_rivals", "Rivals, dropout", "Monte Carlo dropout of LoRA and VeRA", DROPOUT),
                ("beta_rivals", "Rivals along β", "draws of PVeRA along β", BETA_EFFECTS),
            )
        ),
        LANGUAGE_BETA,
        Experiment(
            "language",
            "Text",
            "every method on every task with every seed",
            plan.benchmark,
            script="train_language",
            after=LANGUAGE_BETA,
            keep=True,
            text=True,
            notebooks=("language", "duration"),
            paper="Table 5",
        ),
    )
}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment. InputError for a name that is taken."""
    if experiment.name in EXPERIMENTS:
        raise InputError(f"there is an experiment {experiment.name!r} already")
    EXPERIMENTS[experiment.name] = experiment
    return experiment


def of_script(script: str) -> tuple[str, ...]:
    """Return the names of the experiments that experiments/`script`.py starts, in their order."""
    return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.script == script)


def trainings(text: bool) -> tuple[str, ...]:
    """Return the names of the experiments that train, on texts or on images; searches come first."""
    return tuple(n for n, experiment in EXPERIMENTS.items() if experiment.compute is None and experiment.text == text)


def analyses_of_adapters() -> tuple[str, ...]:
    """Return the names of the experiments that train nothing."""
    return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.compute is not None)


def named(folder: str) -> Experiment:
    """Return the experiment whose results lie in `folder`, a variant's as well. InputError for none."""
    names = [name for name in EXPERIMENTS if folder == name or folder.startswith(f"{name}_")]
    if names:
        return EXPERIMENTS[max(names, key=len)]
    raise InputError(f"there is no experiment {folder!r}; choose from {', '.join(EXPERIMENTS)}")
