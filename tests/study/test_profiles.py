"""Profiles: keys, refusals and their messages; the committed profiles list the runs of the committed results."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from pvera import InputError
from pvera.data import glue
from pvera.files import sha256
from pvera.study import results
from pvera.study.description import Draws
from pvera.study.experiments import analyses_of_adapters
from pvera.study.inputs import Inputs
from pvera.study.profiles import Profile
from pvera.study.rivals import Ensemble
from pvera.study.runs import GRID
from pvera.study.training import TrainingConfig

ROOT = Path(__file__).resolve().parents[2]
KEYS = {
    "data": "data/demo",
    "backbones": "[tiny]",
    "datasets": "[digits, vessels]",
    "seeds": "[0, 1]",
    "protocol": "corrected",
    "beta": "[1e-2, 1e-6]",
    "methods": "{lora: {grid: {rank: [2, 4]}, most_chosen: 4}, pvera: {rank: 8}}",
}


def write(folder: Path, *without: str, **keys: str) -> Path:
    """Write a profile with changed keys, given as YAML."""
    file = folder / "my.yaml"
    file.write_text("".join(f"{k}: {v}\n" for k, v in (KEYS | keys).items() if k not in without))
    return file


def refusal(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        Profile.read(file)
    message = str(caught.value)
    assert message.startswith(str(file)) and message.count("\n") == 0 and len(message) < 600, message
    return message.removeprefix(str(file)).removeprefix(": ")


def test_numbers_and_defaults(tmp_path):
    profile = Profile.read(write(tmp_path, learning_rate="1e-3", schedule="{epochs: 3, tolerance: 0}"))
    assert (profile.name, profile.learning_rate, profile.beta) == ("my", 1e-3, [1e-2, 1e-6])
    assert profile.training == TrainingConfig(16, 3, 20, 0.0, 1e-4) and profile.uncertainty == Draws(
        [2, 4, 8, 16], 64, 256
    )
    assert (profile.fixed_grid, profile.weights, profile.images, profile.language) == ([], {}, None, None)
    with pytest.raises(FrozenInstanceError):
        profile.seeds = [3]


def test_every_change_is_checked(tmp_path):
    profile = Profile.read(write(tmp_path))
    assert profile.with_(seeds=[3], data=None).seeds == [3]
    with pytest.raises(InputError, match="^seeds.0: must be a whole number from 0, not -1$"):
        profile.with_(seeds=[-1])
    with pytest.raises(InputError, match="^datasets: unknown data set 'mnist'; choose from "):
        profile.with_(datasets=["mnist"])


COUNT, NATURAL, NAME = "must be a whole number from 1", "must be a whole number from 0", "must be a name of letters"
WRONG = {  # keys of the file -> start of the message
    # numbers
    "learning rate as text": ({"learning_rate": "'1e-3'"}, "learning_rate: must be a number above 0, not '1e-3'"),
    "learning rate in words": ({"learning_rate": "small"}, "learning_rate: must be a number above 0, not 'small'"),
    "no learning rate": ({"learning_rate": ".nan"}, "learning_rate: must be a number above 0, not nan"),
    "endless learning rate": ({"learning_rate": ".inf"}, "learning_rate: must be a number above 0, not inf"),
    "negative learning rate": ({"learning_rate": "-1.0"}, "learning_rate: must be a number above 0, not -1.0"),
    "learning rate 0": ({"learning_rate": "0"}, "learning_rate: must be a number above 0, not 0"),
    "two learning rates": ({"learning_rate": "[1e-3, 1e-4]"}, "learning_rate: must be a number above 0, not [0.001, "),
    "true as a rate": ({"learning_rate": "true"}, "learning_rate: must be a number above 0, not True"),
    "empty learning rate": ({"learning_rate": ""}, "learning_rate: must be a number above 0, not None"),
    "images 0": ({"images": "0"}, f"images: {COUNT}, not 0"),
    "half an image": ({"images": "0.5"}, f"images: {COUNT}, not 0.5"),
    "negative beta": ({"beta": "[-1e-3]"}, "beta.0: must be a number from 0, not -0.001"),
    "beta as text": ({"beta": "[1e-2, '1e-3']"}, "beta.1: must be a number from 0, not '1e-3'"),
    "one beta": ({"beta": "1e-3"}, "beta: must be a list, not 0.001"),
    "beta twice": ({"beta": "[0.01, 1e-2]"}, "beta: 0.01 stands twice"),
    # the schedule
    "epochs in words": ({"schedule": "{epochs: ten}"}, f"schedule.epochs: {COUNT}, not 'ten'"),
    "epochs 0": ({"schedule": "{epochs: 0}"}, f"schedule.epochs: {COUNT}, not 0"),
    "epochs as text": ({"schedule": "{epochs: '10'}"}, f"schedule.epochs: {COUNT}, not '10'"),
    "half an epoch": ({"schedule": "{epochs: 2.5}"}, f"schedule.epochs: {COUNT}, not 2.5"),
    "epochs true": ({"schedule": "{epochs: true}"}, f"schedule.epochs: {COUNT}, not True"),
    "batch size 0": ({"schedule": "{batch_size: 0}"}, f"schedule.batch_size: {COUNT}, not 0"),
    "patience 0": ({"schedule": "{patience: 0}"}, f"schedule.patience: {COUNT}, not 0"),
    "tolerance as text": (
        {"schedule": "{tolerance: '1e-3'}"},
        "schedule.tolerance: must be a number from 0 and below 1, not '1e-3'",
    ),
    "tolerance 1": ({"schedule": "{tolerance: 1}"}, "schedule.tolerance: must be a number from 0 and below 1, not 1"),
    "weight decay": ({"schedule": "{weight_decay: -1}"}, "schedule.weight_decay: must be a number from 0, not -1"),
    "unknown in schedule": ({"schedule": "{epoch: 3}"}, "schedule.epoch: unknown key; did you mean 'epochs'?"),
    "schedule of a number": ({"schedule": "3"}, "schedule: must be a mapping, not 3"),
    "empty schedule": ({"schedule": ""}, "schedule: must be a mapping, not None"),
    # lists
    "seeds as text": ({"seeds": '["0"]'}, f"seeds.0: {NATURAL}, not '0'"),
    "no seeds": ({"seeds": "[]"}, "seeds: must not be empty"),
    "half a seed": ({"seeds": "[0.5]"}, f"seeds.0: {NATURAL}, not 0.5"),
    "negative seed": ({"seeds": "[0, -1]"}, f"seeds.1: {NATURAL}, not -1"),
    "seed twice": ({"seeds": "[0, 0]"}, "seeds: 0 stands twice"),
    "one seed": ({"seeds": "0"}, "seeds: must be a list, not 0"),
    "seeds in a list": ({"seeds": "[[0]]"}, f"seeds.0: {NATURAL}, not [0]"),
    "a date as seed": ({"seeds": "[2020-01-01]"}, f"seeds.0: {NATURAL}, not datetime.date(2020, 1, 1)"),
    "no data sets": ({"datasets": "[]"}, "datasets: must not be empty"),
    "one data set": ({"datasets": "digits"}, "datasets: must be a list, not 'digits'"),
    "unknown data set": ({"datasets": "[mnist]"}, "datasets: unknown data set 'mnist'; choose from caltech101, "),
    "data set twice": ({"datasets": "[digits, digits]"}, "datasets: 'digits' stands twice"),
    "number as data set": ({"datasets": "[7]"}, f"datasets.0: {NAME}"),
    "data set of texts": ({"datasets": "[rte]"}, "datasets: 'rte' is a data set of texts"),
    "no backbones": ({"backbones": "[]"}, "backbones: must not be empty"),
    "unknown backbone": ({"backbones": "[dinov9]"}, "backbones: unknown backbone 'dinov9': not one of tiny, "),
    "path as backbone": ({"backbones": "[../tiny]"}, f"backbones.0: {NAME}"),
    # texts
    "data a number": ({"data": "3"}, "data: must be text on one line, not 3"),
    "data empty": ({"data": "''"}, "data: must be text on one line, not ''"),
    "protocol": ({"protocol": "both"}, "protocol: unknown protocol 'both'; choose from corrected, published"),
    "protocols": ({"protocol": "[corrected]"}, "protocol: must be text on one line, not ['corrected']"),
    "precision": ({"precision": "float8"}, "precision: unknown precision 'float8'; choose from float32, "),
    "deterministic": ({"deterministic": "yes"}, "deterministic: must be true or false, not 'yes'"),
    "weights in a list": ({"weights": "[a.pth]"}, "weights: must be a mapping, not ['a.pth']"),
    "weights of another": ({"weights": "{tin: a.pth}"}, "weights: 'tin' is none of backbones (tiny)"),
    "weights a number": ({"weights": "{tiny: 3}"}, "weights.tiny: must be text on one line, not 3"),
    # keys
    "misspelt key": ({"metods": "{}"}, "metods: unknown key; did you mean 'methods'?"),
    "unknown key": ({"zzz": "1"}, "zzz: unknown key; choose from data, backbones, "),
    "key that is a number": ({"7": "1"}, "7: unknown key"),
    "name": ({"name": "mine"}, "name: cannot be set"),
    "text": ({"text": "true"}, "text: cannot be set"),
    "fixed grid": ({"fixed_grid": "[tinny]"}, "fixed_grid: 'tinny' is none of backbones (tiny)"),
    "fixed grid twice": ({"fixed_grid": "[tiny, tiny]"}, "fixed_grid: 'tiny' stands twice"),
    "fixed grid of true": ({"fixed_grid": "true"}, "fixed_grid: must be a list, not True"),
    # methods
    "no methods": ({"methods": "{}"}, "methods: must not be empty"),
    "methods in a list": ({"methods": "[lora]"}, "methods: must be a mapping, not ['lora']"),
    "unknown method": ({"methods": "{lara: {}}"}, "methods.lara: unknown method 'lara'; choose from linear, "),
    "method without settings": ({"methods": "{lora: }"}, "methods.lora: must be a mapping, not None"),
    "hyperparameter": (
        {"methods": "{lora: {rnak: 4}}"},
        "methods.lora.rnak: unknown hyperparameter; choose from rank, alpha, ",
    ),
    "rank 0": ({"methods": "{lora: {rank: 0}}"}, f"methods.lora.rank: {COUNT}, not 0"),
    "rank true": ({"methods": "{lora: {rank: true}}"}, f"methods.lora.rank: {COUNT}, not True"),
    "alpha": ({"methods": "{vera: {alpha: '16'}}"}, "methods.vera.alpha: must be a number above 0, not '16'"),
    "switch": ({"methods": "{dora: {scaled: no}}"}, "methods.dora.scaled: must be true or false, not 'no'"),
    "choice": ({"methods": "{vera: {init: zeros}}"}, "methods.vera.init: VeRA: init must be one of normal, uniform"),
    "position": ({"methods": "{vera: {targets: qo}}"}, "methods.vera.targets: VeRA: targets must be different letters"),
    "beta of a method": ({"methods": "{pvera: {beta: 1}}"}, "methods.pvera.beta: unknown hyperparameter"),
    "rate of a method": (
        {"methods": "{lora: {learning_rate: fast}}"},
        "methods.lora.learning_rate: must be a number above 0, not 'fast'",
    ),
    "grid in a list": (
        {"methods": "{lora: {grid: [2, 4]}}"},
        "methods.lora.grid: must be one hyperparameter with its values, not [2, 4]",
    ),
    "empty grid": ({"methods": "{lora: {grid: {}}}"}, "methods.lora.grid: must be one hyperparameter with its values"),
    "two in the grid": (
        {"methods": "{lora: {grid: {rank: [2], alpha: [1]}}}"},
        "methods.lora.grid: must be one hyperparameter with its values",
    ),
    "unknown in the grid": (
        {"methods": "{lora: {grid: {rnak: [2]}}}"},
        "methods.lora.grid.rnak: unknown hyperparameter",
    ),
    "no values": ({"methods": "{lora: {grid: {rank: []}}}"}, "methods.lora.grid.rank: must not be empty"),
    "one value": ({"methods": "{lora: {grid: {rank: 2}}}"}, "methods.lora.grid.rank: must be a list, not 2"),
    "value twice": ({"methods": "{lora: {grid: {rank: [2, 2]}}}"}, "methods.lora.grid.rank: 2 stands twice"),
    "value as text": (
        {"methods": "{lora: {grid: {learning_rate: ['1e-3']}}}"},
        "methods.lora.grid.learning_rate: must be a number above 0, not '1e-3'",
    ),
    "negative value": ({"methods": "{lora: {grid: {rank: [2, -4]}}}"}, f"methods.lora.grid.rank: {COUNT}, not -4"),
    "fixed and in the grid": (
        {"methods": "{lora: {rank: 2, grid: {rank: [2, 4]}}}"},
        "methods.lora.rank: stands in the grid as well",
    ),
    "most chosen": (
        {"methods": "{lora: {grid: {rank: [2, 4]}, most_chosen: 8}}"},
        "methods.lora.most_chosen: 8 is none of the grid's values [2, 4]",
    ),
    "chosen without a grid": (
        {"methods": "{lora: {rank: 2, most_chosen: 2}}"},
        "methods.lora.most_chosen: there is no grid that it could be of",
    ),
    # what belongs to an experiment
    "ablation on another": (
        {"ablations": "{datasets: [sprites], rank: [2], targets: [q], search: false}"},
        "ablations.datasets: 'sprites' is none of datasets (digits, vessels)",
    ),
    "ablation of no rank": (
        {"ablations": "{datasets: [digits], rank: [], targets: [q], search: false}"},
        "ablations.rank: must not be empty",
    ),
    "ablation of a position": (
        {"ablations": "{datasets: [digits], rank: [2], targets: [q, qx], search: false}"},
        "ablations.targets: PVeRA: targets must be different letters out of q, k, v, not 'qx'",
    ),
    "ablation without search": (
        {"ablations": "{datasets: [digits], rank: [2], targets: [q]}"},
        "ablations.search: is missing",
    ),
    "ablations of nothing": ({"ablations": "{}"}, "ablations.datasets: is missing; ablations.rank: is missing; "),
    "effects on a method": (
        {"effects": "{datasets: [digits], methods: [vera], seeds: [0]}"},
        "effects.methods: 'vera' is none of methods (lora, pvera)",
    ),
    "effects of a seed": (
        {"effects": "{datasets: [digits], methods: [lora], seeds: [7]}"},
        "effects.seeds: 7 is none of seeds (0, 1)",
    ),
    "one draw": ({"uncertainty": "{draws: [1, 2]}"}, "uncertainty.draws.0: must be a whole number from 2, not 1"),
    "draws descend": ({"uncertainty": "{draws: [4, 2]}"}, "uncertainty.draws: must ascend, unlike [4, 2]"),
    "no images for truth": ({"uncertainty": "{truth_images: 0}"}, f"uncertainty.truth_images: {COUNT}, not 0"),
    # the language section
    "language of text": ({"language": "minilm"}, "language: must be a mapping, not 'minilm'"),
    "images for language": (
        {"language": "{data: t, backbones: [minilm]}"},
        "language.datasets: 'digits' is a data set of images",
    ),
    "text encoder": (
        {"language": "{data: t, backbones: [tiny], datasets: [rte]}"},
        "language.backbones: unknown text encoder 'tiny'; choose from minilm, ",
    ),
    "language's rank": (
        {"language": "{backbones: [minilm], datasets: [rte], methods: {vera: {rank: x}}}"},
        f"language.methods.vera.rank: {COUNT}, not 'x'",
    ),
    "language's epochs": (
        {"language": "{backbones: [minilm], datasets: [rte], schedule: {epochs: 0}}"},
        f"language.schedule.epochs: {COUNT}, not 0",
    ),
    "language's schedule": (
        {"language": "{backbones: [minilm], datasets: [rte], schedule: 3}"},
        "language.schedule: must be a mapping, not 3",
    ),
    "language's key": (
        {"language": "{backbones: [minilm], dataset: [rte]}"},
        "language.dataset: unknown key; did you mean 'datasets'?",
    ),
    "language's fixed grid": (
        {"language": "{backbones: [minilm], datasets: [rte], fixed_grid: [tiny]}"},
        "language.fixed_grid: 'tiny' is none of backbones (minilm)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_key(case, tmp_path):
    keys, message = WRONG[case]
    assert refusal(write(tmp_path, **keys)).startswith(message)


@pytest.mark.parametrize("key", sorted(KEYS.keys() - {"beta"}))
def test_missing_keys_are_named(key, tmp_path):
    assert refusal(write(tmp_path, key)) == f"{key}: is missing"


def test_several_errors_are_one_line(tmp_path):
    file = write(tmp_path, "data", seeds="[a, b]", images="-1", metods="{}")
    assert refusal(file) == (f"data: is missing; seeds.0: {NATURAL}, not 'a'; seeds.1: {NATURAL}, not 'b'; and 2 more")


FILES = {
    "binary": (b"\x89PNG\r\n\x1a\n\x00\xff", " is no text, so no YAML"),
    "control characters": (b"data: \x00\x01", " is no YAML: "),
    "empty": (b"", "must be a mapping, not None"),
    "a list": (b"- data", "must be a mapping, not ['data']"),
    "prose": (b"a profile", "must be a mapping, not 'a profile'"),
    "open bracket": (b"data: a\nseeds: [0", ", line 2: expected ',' or ']'"),
    "key twice": (b"data: a\nseeds: [0]\nseeds: [1]", ', line 3: found duplicate key "seeds"'),
    "key twice, within": (b"methods:\n  lora: {rank: 2}\n  lora: {}", ', line 3: found duplicate key "lora"'),
    "tab": (b"data: a\n\tseeds: [0]", ", line 2: found character '\\t'"),
    "object": (b"data: !!python/object/apply:os.getcwd []", ", line 1: could not determine a constructor"),
    "two documents": (b"data: a\n---\ndata: b", ", line 2: but found another document"),
    "undefined alias": (b"data: *a", ", line 1: found undefined alias"),
    "deep": (b"[" * 5000, " is no YAML: "),
    "mapping as key": (b"{{a: b}: c}", ", line 1: found unhashable key"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_profiles_are_refused(case, tmp_path):
    content, message = FILES[case]
    (tmp_path / "my.yaml").write_bytes(content)
    assert refusal(tmp_path / "my.yaml").startswith(message)


def test_places_that_hold_no_profile(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    assert refusal(tmp_path / "folder.yaml") == " cannot be read: Is a directory"
    with pytest.raises(InputError, match="^unknown profile 'none': there is no .*none.yaml$"):
        Profile.read(tmp_path / "none.yaml")
    file = write(tmp_path).rename(tmp_path / "my profile.yaml")
    assert refusal(file).startswith(f"name: {NAME}")


@pytest.mark.parametrize(
    "keys, experiment",
    [
        ({"fixed_grid": "[tiny]"}, "benchmark"),
        ({"effects": "{datasets: [digits], methods: [lora], seeds: [0]}"}, "protocol"),
    ],
)
def test_a_grid_that_is_not_searched_needs_its_most_chosen_value(keys, experiment, tmp_path):
    methods = "{lora: {grid: {rank: [2, 4]}}}"
    with pytest.raises(InputError, match="^profile 'my': methods.lora.most_chosen: is missing"):
        Profile.read(write(tmp_path, methods=methods, **keys)).runs(experiment, tmp_path)


def test_a_search_needs_values_of_beta(tmp_path):
    profile = Profile.read(write(tmp_path, beta="[]"))
    with pytest.raises(InputError, match="^profile 'my': beta: is missing, the values to search for digits$"):
        profile.runs("beta", tmp_path)
    assert profile.with_(datasets=["cifar"]).runs("beta", tmp_path) == [], "β of VTAB-1k is published"


def test_every_seed_searches_where_a_switch_concerns_the_grid(tmp_path):
    """`joint_stop` does nothing to a run of one member."""
    profile = Profile.read(ROOT / "experiments" / "profiles" / "mini.yaml")
    assert profile.search_once
    runs = [run for run in profile.runs("protocol", tmp_path) if run.path.parts[-5].endswith(("_grid", "joint_stop"))]
    assert {run.seed for run in runs} == set(profile.effects.seeds)
    assert all(len(run.candidates) > 1 and not run.waits for run in runs)


@pytest.mark.parametrize("name", ["mini", "demo", "paper"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seeds": [3]},
        {"seeds": [4, 1]},
        {"component_seeds": [1, 2], "search_once": True},
        {"effects": [2, 1], "search_once": True},
        {"effects": [1], "seeds": [3, 1], "search_once": True, "component_seeds": [3, 4]},
    ],
    ids=str,
)
def test_what_a_run_waits_for_is_made_by_another(name, changes, tmp_path):
    profile = Profile.read(ROOT / "experiments" / "profiles" / f"{name}.yaml")
    if "effects" in changes:
        effects = profile.effects and replace(profile.effects, seeds=changes["effects"])
        changes = changes | {"effects": effects}
    profile, language = profile.with_(**changes), profile.language and profile.language.with_(**changes)
    for one in filter(None, (profile, language)):
        runs = [run for experiment in one.experiments for run in one.runs(experiment, tmp_path)]
        awaited = {path for run in runs for path in run.awaited}
        assert awaited <= {run.path for run in runs}
        assert all(GRID not in dict(run.searched) for run in runs if run.path in awaited), "no search awaits another"


def test_the_first_seed_of_an_experiment_searches_its_grids(tmp_path):
    profile = Profile.read(ROOT / "experiments" / "profiles" / "mini.yaml")
    effects = replace(profile.effects, seeds=[2, 1])
    profile = profile.with_(seeds=[1, 2], component_seeds=[4, 3], effects=effects)
    searchers = {}
    for experiment in ("benchmark", "components", "equal_budget", "protocol"):
        for run in profile.runs(experiment, tmp_path):
            if path := dict(run.searched).get(GRID):
                searchers.setdefault(run.experiment, set()).add(Path(path).relative_to(tmp_path / "mini"))
    found = {name: {(path.parts[0], path.stem) for path in paths} for name, paths in searchers.items()}
    assert found == {
        "benchmark": {("benchmark", "seed1")},
        "components_vera": {("benchmark", "seed1")},
        "components_pvera": {("benchmark", "seed1")},
        "components_no_noise": {("components_no_noise", "seed4")},
        "components_no_kl": {("components_no_kl", "seed4")},
        "equal_budget": {("equal_budget", "seed4")},
    }


class Recorded(Inputs):
    """The backbone's and data's hashes in a record."""

    def __init__(self, config: dict):
        self.config = config

    def describe_backbone(self, run):
        return {
            name: self.config[name] for name in ("weights_sha256", "image_size", "max_length") if name in self.config
        }

    def splits_sha256(self, run):
        return self.config["data_sha256"]


@pytest.mark.parametrize(
    "name, experiments",
    [
        (
            "mini",
            (
                "beta",
                "benchmark",
                "components",
                "alpha",
                "equal_budget",
                "rank",
                "position",
                "protocol",
                "dropout",
                "beta_effects",
                "language",
            ),
        ),
    ],
)
def test_committed_results_are_those_that_the_profiles_list(name, experiments):
    """Each configuration has the recorded hash. The hashes of backbone and data come from the record."""
    profile = Profile.read(ROOT / "experiments" / "profiles" / f"{name}.yaml")
    compared = 0
    for experiment in experiments:
        of = profile.of_language() if experiment.startswith("language") else profile
        for run in of.runs(experiment, ROOT / "results"):
            if not run.path.exists():  # GLUE's, whose files may be missing
                assert run.dataset in glue.TASKS
                continue
            record = json.loads(run.path.read_text())
            config = run.resolved().config(Recorded(record["config"]))
            assert results.config_hash(config) == record["config_hash"], run.path
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("name", analyses_of_adapters())
def test_the_committed_adapters_are_those_of_the_committed_analyses(name):
    """So a clone finds nothing to compute anew, and can compute it anew."""
    runs = Profile.read(ROOT / "experiments/profiles/mini.yaml").runs(name, ROOT / "results")
    assert runs
    for run in runs:
        found = [*map(sha256, run.adapters)] if isinstance(run, Ensemble) else sha256(run.adapter)
        assert results.read(run.path)["config"]["adapter_sha256"] == found, run.path
