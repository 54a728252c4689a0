"""The runs that a profile lists, per experiment."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.analyses import Analysis
from pvera.study.description import Description
from pvera.study.protocol import PUBLISHED_BETA, Protocol, one_at_a_time, protocol
from pvera.study.runs import Candidate, Run
from pvera.study.training import Schedule
from pvera.study.validation import validated

#: What is trained, in the order in which it must be: the others need the β that the first finds.
EXPERIMENTS = ("beta", "benchmark", "rank", "position", "protocol")
#: The same for text.
LANGUAGE = ("language_beta", "language")


@validated
class Profile(Description):
    """A described profile and its runs."""

    @property
    def experiments(self) -> tuple[str, ...]:
        """What `runs` takes, in the order in which it must be trained."""
        return LANGUAGE if self.text else EXPERIMENTS

    def runs(self, experiment: str, results_root: str | Path) -> list[Run]:
        """The runs of one of `experiments` or of `results.ANALYSES`; those that need β have it once its
        search has a result."""
        makers: dict[str, Callable] = {
            "beta": self.beta_search,
            "language_beta": self.beta_search,
            "benchmark": self.benchmark,
            "language": self.benchmark,
            "rank": self.rank_ablation,
            "position": self.position_ablation,
            "protocol": self.protocol_effects,
            "uncertainty": self.uncertainties,
            "out_of_distribution": self.out_of_distribution,
            "latents": self.latents,
        }
        return makers[experiment](results_root)

    def benchmark(self, results_root: str | Path) -> list[Run]:
        """Every method on every data set with every seed (Tables 1, 4 and 6 to 8, and the language table)."""
        return [
            self._run(self.experiments[1], backbone, dataset, method, seed, results_root)
            for backbone in self.backbones
            for dataset in self.datasets
            for seed in self.seeds
            for method in self.methods
        ]

    def beta_search(self, results_root: str | Path) -> list[Run]:
        """The runs that choose PVeRA's β on the validation loss (Section 3.2), one per data set, for data
        sets without a published value. InputError where the profile has no value to choose."""
        searched = [dataset for dataset in self.datasets if dataset not in PUBLISHED_BETA]
        if "pvera" not in self.methods or not searched:
            return []
        if not self.beta:
            raise InputError(f"profile {self.name!r}: beta: is missing, the values to search for {searched[0]}")
        betas = [{"beta": value} for value in self.beta]
        return [
            self._run(
                self.experiments[0],
                backbone,
                dataset,
                "pvera",
                self.seeds[0],
                results_root,
                fixed=True,
                values=betas,
            )
            for backbone in self.backbones
            for dataset in searched
        ]

    def rank_ablation(self, results_root: str | Path) -> list[Run]:
        """PVeRA with several ranks (Table 2)."""
        return self._ablation("rank", "rank", results_root)

    def position_ablation(self, results_root: str | Path) -> list[Run]:
        """PVeRA on several combinations of query, key and value (Table 3)."""
        return self._ablation("position", "targets", results_root)

    def protocol_effects(self, results_root: str | Path) -> list[Run]:
        """Both protocols, and the corrected one with one difference at a time; an experiment for each,
        "protocol_<name>". A difference that concerns one method is measured on that method, one that concerns
        the grid on full grids with as many epochs as the paper allows."""
        if not self.effects:
            return []
        uncapped = replace(self, schedule=replace(self.schedule, epochs=Schedule.epochs), fixed_grid=[])
        return [
            (uncapped if variant.grid else self)._run(
                f"protocol_{name}",
                backbone,
                dataset,
                method,
                seed,
                results_root,
                variant.protocol,
                fixed=not variant.grid,
            )
            for seed in self.effects.seeds
            if seed in self.seeds
            for name, variant in one_at_a_time().items()
            for backbone in self.backbones[:1]
            for dataset in self.effects.datasets
            if dataset in self.datasets
            for method in (self.effects.grids if variant.grid else self.effects.methods)
            if method in self.methods and variant.method in (None, method)
        ]

    def uncertainties(self, results_root: str | Path) -> list[Analysis]:
        """Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
        return [
            Analysis.of(run, "uncertainty", (run.dataset,), **asdict(self.uncertainty))
            for run in self._adapters(results_root, "pvera")
        ]

    def out_of_distribution(self, results_root: str | Path) -> list[Analysis]:
        """Adapters of the first data set of each category on all of these (Section 4.4). The paper does not
        name its three."""
        category = {name: tasks.task(name).category for name in reversed(self.datasets)}
        first = {of: name for name, of in category.items()}
        tested = tuple(name for name in self.datasets if name in first.values())
        return [
            Analysis.of(run, "out_of_distribution", tested)
            for run in self._adapters(results_root, "vera", "pvera")
            if run.dataset in tested
        ]

    def latents(self, results_root: str | Path) -> list[Analysis]:
        """Latent maps on the first data set, which is the paper's in its profile, with the first seed
        (Section 4.4): five images, four draws."""
        return [
            Analysis.of(run, "latents", (run.dataset,), shown=5, draws=4)
            for run in self._adapters(results_root, "vera", "pvera")
            if run.dataset == self.datasets[0] and run.seed == self.seeds[0]
        ]

    def _adapters(self, results_root, *methods: str) -> Iterator[Run]:
        """The runs of the benchmark on the first backbone with these methods; one that diverged left no
        adapter."""
        for run in self.with_(backbones=self.backbones[:1]).benchmark(results_root):
            diverged = run.path.exists() and results.read(run.path)["chosen"] is None
            if run.method in methods and not diverged:
                yield run

    def _ablation(self, experiment: str, hyperparameter: str, results_root) -> list[Run]:
        if not self.ablations or "pvera" not in self.methods:
            return []
        values = [{hyperparameter: value} for value in getattr(self.ablations, hyperparameter)]
        return [
            self._run(
                experiment,
                backbone,
                dataset,
                "pvera",
                seed,
                results_root,
                fixed=not self.ablations.search,
                values=values,
            )
            for backbone in self.backbones[:1]
            for dataset in self.ablations.datasets
            if dataset in self.datasets
            for seed in self.seeds
        ]

    def _run(
        self,
        experiment: str,
        backbone: str,
        dataset: str,
        method: str,
        seed: int,
        root,
        rules: Protocol | None = None,
        fixed: bool = False,
        values: list[dict] | None = None,
    ) -> Run:
        """fixed: the grid's most chosen value instead of all. values: the members, each with every value of
        the grid."""
        rules, options = rules or protocol(self.protocol), dict(self.methods[method])
        grid, most_chosen = options.pop("grid", {}), options.pop("most_chosen", None)
        if method == "pvera" and experiment != self.experiments[0]:
            options["beta"] = self._beta(backbone, dataset, root)
        if fixed or backbone in self.fixed_grid:
            if grid and most_chosen is None:
                raise InputError(
                    f"profile {self.name!r}: methods.{method}.most_chosen: is missing, the value that "
                    f"{experiment} on {backbone} takes instead of searching the grid"
                )
            grid = {name: [most_chosen] for name in grid}
        points = [{name: value} for name, choices in grid.items() for value in choices] or [{}]
        if values and len(points) == 1:
            options, points = options | points[0], values
        elif values:
            points = [value | point for value in values for point in points]
        options |= rules.adapters.get(method, {})
        candidates = tuple(self._candidate(method, options, point) for point in points)
        return Run(
            self.name,
            experiment,
            backbone,
            dataset,
            method,
            seed,
            candidates,
            self.schedule,
            rules,
            self.precision,
            self.data,
            str(root),
            weights=self.weights.get(backbone),
            deterministic=self.deterministic,
            images=self.images,
        )

    def _candidate(self, method: str, options: dict, point: dict) -> Candidate:
        settings = options | point
        rate, beta = settings.pop("learning_rate", self.learning_rate), settings.pop("beta", 0.0)
        try:
            built = METHODS[method](**settings)
        except TypeError as error:
            raise InputError(f"{METHODS[method].title}: {error}") from None
        # Linear probing has no adapter: the rate that is searched is the head's.
        return Candidate(built, rate, rate if method == "linear" else self.learning_rate, beta, point)

    def _beta(self, backbone: str, dataset: str, root) -> float | None:
        """β of this data set: published, or chosen by `beta_search`; None while that has not run, and where
        every member of it diverged."""
        if dataset in PUBLISHED_BETA:
            return PUBLISHED_BETA[dataset]
        path = results.run_path(root, self.name, self.experiments[0], backbone, dataset, "pvera", self.seeds[0])
        chosen = results.read(path)["chosen"] if path.exists() else None
        return chosen and chosen["grid"]["beta"]
