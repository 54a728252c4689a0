"""The registry of experiments: scripts, workers and the report read it. docs/extending.md adds one."""

from collections.abc import Callable
from dataclasses import dataclass

from pvera.errors import InputError
from pvera.study import plan
from pvera.study.profiles import Profile
from pvera.study.runs import Job
from pvera.study.validation import choose


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    name: the folder of its results; variants of one experiment are "<name>_<variant>".
    title, about: a short name for tables, and one line for a script's --help.
    lists: (profile, folder of results, name) -> runs that can be started.
    script: in experiments/, starts it: train, train_language (its runs read text), or analyse (they read adapters).
    """

    name: str
    title: str
    about: str
    lists: Callable[[Profile, object, str], list]
    script: str = "train"


ENTRIES = [
    Experiment("beta", "Search of β", "PVeRA's β where the paper gives none; the others need it", plan.searches),
    Experiment("alpha", "Search of α", "VeRA's α, so that it chooses from as much as PVeRA", plan.searches),
    Experiment("benchmark", "Benchmark", "every method on every data set with every seed", plan.benchmark),
    Experiment("components", "Components", "PVeRA without its noise or KL term, and more seeds", plan.components),
    Experiment("noise", "Noise of fixed size", "PVeRA with noise of fixed size", plan.noise),
    Experiment("published", "Published protocol", "the published protocol on every data set", plan.published),
    Experiment("equal_budget", "Equal budget", "VeRA with an α that was searched as PVeRA's β", plan.equal_budget),
    Experiment("rank", "Ablation of the rank", "PVeRA with several ranks", plan.ablation),
    Experiment("position", "Ablation of positions", "PVeRA on several of query, key and value", plan.ablation),
    Experiment("protocol", "Differences of the protocols", "each difference alone", plan.protocol_effects),
    Experiment(
        "uncertainty", "Monte Carlo inference", "several draws of every test image", plan.uncertainty, "analyse"
    ),
    Experiment("out_of_distribution", "Out of distribution", "latents of images", plan.out_of_distribution, "analyse"),
    Experiment("latents", "Latents", "maps of latents over an image's patches", plan.latent_maps, "analyse"),
    Experiment("focus", "Focus", "how well latents find the patches of an object", plan.focus, "analyse"),
    Experiment("dropout", "Dropout", "LoRA and VeRA with dropout, for Monte Carlo dropout", plan.dropout),
    Experiment("beta_effects", "Effects of β", "PVeRA along β", plan.beta_effects),
    Experiment("rivals", "Rivals", "one pass, draws, ensembles and Laplace", plan.compared, "analyse"),
    Experiment("dropout_rivals", "Rivals, dropout", "Monte Carlo dropout of LoRA and VeRA", plan.compared, "analyse"),
    Experiment("beta_rivals", "Rivals along β", "draws of PVeRA along β", plan.compared, "analyse"),
    Experiment("language_beta", "Search of β, text", "PVeRA's β", plan.searches, "train_language"),
    Experiment("language", "Text", "every method on every task with every seed", plan.benchmark, "train_language"),
]
EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in ENTRIES}


def of_script(script: str) -> tuple[str, ...]:
    """Return the names of the experiments that experiments/`script`.py starts, in their order."""
    return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.script == script)


def of_profile(profile: Profile, script: str) -> list[str]:
    """Return the names of the experiments that a script runs for a profile where no others are asked for."""
    return [name for name in of_script(script) if name in (profile.experiments or EXPERIMENTS)]


def named(folder: str) -> Experiment:
    """Return the experiment whose results lie in `folder`, a variant's as well. InputError for none."""
    names = [name for name in EXPERIMENTS if folder == name or folder.startswith(f"{name}_")]
    if names:
        return EXPERIMENTS[max(names, key=len)]
    raise InputError(f"there is no experiment {folder!r}; choose from {', '.join(EXPERIMENTS)}")


def list_runs(profile: Profile, experiment: str, root) -> list[Job]:
    """List the runs of an experiment that can be started now, with results below `root`."""
    choose("experiment", experiment, EXPERIMENTS)
    entry = EXPERIMENTS[experiment]
    if (entry.script == "train_language") != profile.text:
        kinds = ("images", "texts") if profile.text else ("texts", "images")
        raise InputError(f"{experiment} reads {kinds[0]}, this profile describes {kinds[1]}")
    return entry.lists(profile, root, experiment)
