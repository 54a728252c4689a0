"""Profiles and plans: keys and refusals; which runs an experiment lists; the committed results are those."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

import pvera
from pvera import InputError
from pvera.data import glue, inputs
from pvera.files import sha256
from pvera.report import published
from pvera.study import results
from pvera.study.analysis_plan import ANALYSES
from pvera.study.profiles import Profile
from pvera.study.protocol import CORRECTED, PUBLISHED, PUBLISHED_BETA, VARIANTS
from pvera.study.runs import Run, list_runs
from pvera.study.training import TrainingConfig

ROOT = Path(__file__).resolve().parents[2]
MINI = Profile.read(ROOT / "experiments/profiles/mini.yaml")
GRID = {"learning_rate": [1e-2, 1e-3]}
SEARCH = {"methods": ["pvera"], "seeds": [0], "grid": {"beta": [0.0, 1e-3], "learning_rate": [1e-2, 3e-3]}}


def profile(**experiments) -> Profile:
    """Return a profile of two tasks and two seeds with these experiments."""
    return Profile(
        name="mine",
        data="data",
        backbones=["tiny"],
        datasets=["digits", "vessels"],
        protocol="corrected",
        seeds=[1, 0],
        methods={
            "lora": {"rank": 4},
            "vera": {"rank": 4, "grid": GRID, "most_chosen": 1e-2},
            "pvera": {"rank": 4, "beta": 1e-6, "grid": GRID, "most_chosen": 1e-2},
        },
        experiments={"benchmark": {"keep": True}} | experiments,
    )


def finish(run: Run, member: int | None = 0) -> None:
    """Write the record of a finished run that chose a member, or whose members all diverged."""
    config = {"seed": run.seed}
    chosen = None if member is None else {"member": member, "epoch": 1, "grid": run.members[member].grid}
    record = {"schema": results.SCHEMA} | {name: getattr(run, name) for name in results.IDENTITY}
    record |= {"category": "natural", "protocol": run.protocol.name, "config": config, "members": []}
    record |= {"config_hash": results.config_hash(config), "chosen": chosen, "test": None}
    results.write(run.path, record, adapter=b"a" if run.keep and chosen else None)


def keys(runs: list, *names: str) -> set:
    return {tuple(getattr(run, name) for name in names) for run in runs}


# Trainings


def test_an_experiment_is_the_whole_profile_but_for_what_it_says(tmp_path):
    one = {"methods": ["vera", "ia3"], "datasets": ["vessels", "cifar"], "seeds": [5], "set": {"learning_rate": 0.1}}
    described = profile(all={}, some=one)
    runs = list_runs(described, "all", tmp_path)
    methods, datasets, seeds = ("lora", "vera", "pvera"), ("digits", "vessels"), (1, 0)
    assert [(r.seed, r.dataset, r.method) for r in runs] == [
        (seed, dataset, method) for seed in seeds for dataset in datasets for method in methods
    ]
    for run in runs:
        assert (
            [c.grid for c in run.members] == [{}]
            if run.method == "lora"
            else [{"learning_rate": rate} for rate in GRID["learning_rate"]]
        )
        assert run.protocol == CORRECTED and not run.keep
        assert {c.beta for c in run.members} == {1e-6 if run.method == "pvera" else 0.0}
    (run,) = list_runs(described, "some", tmp_path)
    assert (run.experiment, run.method, run.dataset, run.seed) == ("some", "vera", "vessels", 5)
    assert [c.adapter_lr for c in run.members] == GRID["learning_rate"], "the grid comes after what is set"


def test_without_a_search_the_most_chosen_value_is_taken(tmp_path):
    fixed = profile(plain={"search": False})
    for described, name in ((fixed, "plain"), (fixed.with_(fixed_grid=["tiny"]), "benchmark")):
        for run in list_runs(described, name, tmp_path):
            assert [c.grid for c in run.members] == [{} if run.method == "lora" else {"learning_rate": 1e-2}]
    searched = list_runs(profile(beta=SEARCH).with_(fixed_grid=["tiny"]), "beta", tmp_path)
    rates = [(beta, rate) for beta in (0.0, 1e-3) for rate in (1e-2, 3e-3)]
    for run in searched:
        assert [(c.beta, c.adapter_lr) for c in run.members] == rates, "the experiment's own grid is searched"
    assert len(searched) == 2
    with pytest.raises(InputError, match="^profile 'mine': methods.vera.most_chosen: is missing"):
        list_runs(fixed.with_(methods={"vera": {"grid": GRID}}), "plain", tmp_path)


@pytest.mark.parametrize("method, head_lr", [("linear", 1e-2), ("vera", 1e-4)])
def test_a_searched_rate_is_the_heads_where_there_is_no_adapter(method, head_lr, tmp_path):
    described = profile().with_(methods={method: {"grid": GRID}}, learning_rate=1e-4)
    (run, *_) = list_runs(described, "benchmark", tmp_path)
    assert (run.members[0].adapter_lr, run.members[0].head_lr) == (1e-2, head_lr)


def test_each_value_has_runs_of_its_own(tmp_path):
    varied = {"methods": ["pvera"], "set": {"beta": 0.0}, "vary": {"sigma": [0.3, 1.0]}, "folder": "noise"}
    runs = list_runs(profile(sizes=varied), "sizes", tmp_path)
    assert keys(runs, "experiment") == {("noise_0.3",), ("noise_1",)}
    assert {(r.experiment, c.method.sigma, c.beta) for r in runs for c in r.members} == {
        ("noise_0.3", 0.3, 0.0),
        ("noise_1", 1.0, 0.0),
    }


def test_what_was_chosen_elsewhere_is_taken(tmp_path):
    described = profile(
        beta=SEARCH, benchmark={"take": ["beta"]}, other={"take": ["beta"], "set": {"beta": 0.5, "learning_rate": 0.1}}
    )
    first, second = list_runs(described, "beta", tmp_path)
    assert keys(list_runs(described, "benchmark", tmp_path), "method") == {("lora",), ("vera",)}
    finish(first, 3)
    finish(second, None)
    listed = [run for run in list_runs(described, "benchmark", tmp_path) if run.method == "pvera"]
    assert keys(listed, "dataset") == {("digits",)}, "a search that diverged ends what needs it"
    assert {(c.beta, c.adapter_lr) for run in listed for c in run.members} == {(1e-3, 1e-2), (1e-3, 1e-3)}
    listed = [run for run in list_runs(described, "other", tmp_path) if run.method == "pvera"]
    assert {(c.beta, c.adapter_lr) for run in listed for c in run.members} == {(0.5, 1e-2), (0.5, 1e-3)}


@pytest.mark.parametrize("chooser", ["each_seed", "first_seed", "benchmark"])
def test_who_chooses_from_a_grid(chooser, tmp_path):
    described = profile(mine={"methods": ["lora", "vera"], "choose": chooser})

    def seeds(method: str) -> list[int]:
        return [r.seed for r in list_runs(described, "mine", tmp_path) if (r.method, r.dataset) == (method, "digits")]

    assert seeds("lora") == [1, 0], "LoRA has no grid"
    searching = {"each_seed": [1, 0], "first_seed": [1], "benchmark": []}[chooser]
    assert seeds("vera") == searching
    for run in list_runs(described, "mine" if chooser != "benchmark" else chooser, tmp_path):
        if run.seed == 1:
            finish(run, len(run.members) - 1)
    assert seeds("vera") == [1, 0]
    second = next(r for r in list_runs(described, "mine", tmp_path) if (r.method, r.seed) == ("vera", 0))
    assert [c.grid for c in second.members][-1] == {"learning_rate": 1e-3}
    assert len(second.members) == (2 if chooser == "each_seed" else 1)


def test_the_published_beta_is_that_of_the_data_set(tmp_path):
    described = profile(published={"methods": ["pvera"], "protocol": "published", "set": {"beta": "published"}})
    with pytest.raises(InputError, match="^the paper has no β for digits: write a number in place of 'published'"):
        list_runs(described, "published", tmp_path)
    for run in list_runs(described.with_(datasets=["cifar", "dtd"]), "published", tmp_path):
        assert run.protocol == PUBLISHED and {c.beta for c in run.members} == {PUBLISHED_BETA[run.dataset]}


#: The divisors' powers of ten.
POWERS = {
    6: "cifar clevr_count diabetic_retinopathy eurosat patch_camelyon resisc45 smallnorb_azi smallnorb_ele",
    8: "clevr_dist dsprites_loc oxford_flowers102 svhn",
    10: "dsprites_ori",
    12: "kitti oxford_iiit_pet sun397",
    16: "caltech101 dmlab dtd",
}


def test_beta_is_the_inverse_of_the_divisor_on_each_of_the_19_data_sets():
    """Against the divisors of the KL term in the published program."""
    expected = {name: 1 / 10**power for power, names in POWERS.items() for name in names.split()}
    assert expected == PUBLISHED_BETA and expected.keys() == set(published.DATASETS) and len(expected) == 19


def test_each_difference_of_the_protocols_stands_alone(tmp_path):
    described = profile(protocol={"vary": {"protocol": list(VARIANTS)}, "search": False})
    listed = {(run.experiment, run.method): run for run in list_runs(described, "protocol", tmp_path)}
    assert {e for e, m in listed if m == "lora"} == {
        f"protocol_{name}" for name, variant in VARIANTS.items() if variant.method in (None, "lora")
    }
    corrected = listed["protocol_corrected", "lora"]
    for name in ("softmax_in_loss", "shuffle", "own_draws", "joint_stop"):
        run = listed[f"protocol_{name}", "lora"]
        changes = {"name": run.protocol.name, name: getattr(PUBLISHED, name)}
        assert asdict(run.protocol) == asdict(CORRECTED) | changes
        assert run == replace(corrected, experiment=run.experiment, protocol=run.protocol)
    assert listed["protocol_lora_same_draw", "lora"].members[0].method == pvera.LoRA(rank=4, same_draw=True)


# Analyses


def test_analyses_are_listed_when_their_adapters_are_there(tmp_path):
    described = profile(
        dropout={"methods": ["vera"], "keep": True},
        beta_effects={"methods": ["pvera"], "vary": {"beta": [0.0]}, "keep": True},
    ).with_(choose="first_seed", baselines={"draws": [1, 4], "shift_draws": 2})
    for listing in (described, described.with_(experiments={})):
        assert not any(list_runs(listing, name, tmp_path) for name in ANALYSES)
    first, *others = [r for r in list_runs(described, "benchmark", tmp_path) if r.method == "pvera"]
    finish(first)
    listed = {name: list_runs(described, name, tmp_path) for name in ANALYSES}
    assert [name for name, runs in listed.items() if runs] == ["uncertainty", "out_of_distribution", "latents", "focus"]
    assert listed["latents"][0].trained == (first,) and not listed["latents"][0].fitted
    assert listed["out_of_distribution"][0].tested == ("digits", "vessels")
    every = described.with_(out_of_distribution=["vessels", "digits"])
    assert list_runs(every, "out_of_distribution", tmp_path)[0].tested == ("vessels", "digits")
    finish(others[0])
    for run in list_runs(described, "benchmark", tmp_path):
        if run.method == "pvera" and run.seed == 0:
            finish(run, None)
    compared = {run.dataset: run for run in list_runs(described, "baselines", tmp_path)}
    seeds = {name: [training.seed for training in run.trained] for name, run in compared.items()}
    assert seeds == {"digits": [1], "vessels": [1]}, "seed 0 diverged"
    assert compared["digits"].tested == ("digits", "vessels") and compared["digits"].fitted
    for _ in described.seeds:
        for run in list_runs(described, "beta_effects", tmp_path):
            finish(run)
    along = list_runs(described, "beta_baselines", tmp_path)
    assert keys(along, "experiment", "dataset") == {("beta_baselines_0", "digits"), ("beta_baselines_0", "vessels")}
    assert keys(along[0].trained, "seed") == {(0,), (1,)}
    assert not along[0].settings["shifts"] and along[0].tested == ("digits",) and along[0].settings["draws"] == [1]


def test_an_analysis_reads_the_experiments_that_the_profile_names(tmp_path):
    described = profile(noisy={"methods": ["pvera"], "search": False, "keep": True}).with_(
        analyses={"uncertainty": ["benchmark", "noisy"]}
    )
    for run in list_runs(described, "noisy", tmp_path):
        finish(run)
    listed = list_runs(described, "uncertainty", tmp_path)
    assert keys(listed, "experiment") == {("uncertainty_noisy",)} and len(listed) == 4


# The committed results


@pytest.fixture
def recorded(monkeypatch):
    """Runs whose backbones and data have the hashes of their records."""

    def read(run) -> dict:
        return json.loads(run.path.read_text())["config"]

    names = ("weights_sha256", "image_size", "max_length")
    of_backbone = lambda run: {name: value for name, value in read(run).items() if name in names}  # noqa: E731
    monkeypatch.setattr(inputs, "describe_backbone", of_backbone)
    own = lambda run: read(run)["data_sha256" if isinstance(run, Run) else "splits_sha256"]  # noqa: E731
    monkeypatch.setattr(inputs, "data_sha256", lambda run, *tests: read(run)["data_sha256"] if tests else own(run))


@pytest.mark.parametrize("name", [*MINI.experiments, *MINI.of_language().experiments, *ANALYSES])
def test_committed_results_are_those_that_the_profile_lists(name, recorded):
    """Each configuration has the recorded hash, with the recorded hashes of backbone and data. So a clone finds
    nothing to compute anew, and can compute the analyses of VeRA and PVeRA anew: their adapters are there."""
    text = MINI.of_language()
    runs = list_runs(text if name in text.experiments else MINI, name, ROOT / "results")
    assert runs
    for run in runs:
        if not run.path.exists():  # GLUE's files may be missing; version 3 of the design is being trained
            assert run.dataset in glue.GLUE or run.experiment.startswith("tuned")
            continue
        record = json.loads(run.path.read_text())
        assert results.config_hash(run.config()) == record["config_hash"], run.path
        if name in ("uncertainty", "out_of_distribution", "latents", "focus"):
            assert [sha256(path) for path in run.adapters] == record["config"]["adapter_sha256"]


# Profiles: keys, refusals and their messages


KEYS = {
    "data": "data/demo",
    "backbones": "[tiny]",
    "datasets": "[digits, vessels]",
    "seeds": "[0, 1]",
    "protocol": "corrected",
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
    assert message.startswith(str(file)) and message.count("\n") == 0 and len(message) < 800, message
    return message.removeprefix(str(file)).removeprefix(": ")


def test_numbers_and_defaults(tmp_path):
    profile = Profile.read(write(tmp_path, learning_rate="1e-3", schedule="{epochs: 3, tolerance: 0}"))
    assert (profile.name, profile.learning_rate, list(profile.experiments)) == ("my", 1e-3, ["benchmark"])
    assert profile.training == TrainingConfig(epochs=3, tolerance=0.0)
    assert dict(profile.training) == {"batch_size": 16, "epochs": 3, "patience": 20, "tolerance": 0.0,
                                      "weight_decay": 1e-4}  # fmt: skip
    assert (profile.fixed_grid, profile.weights, profile.images, profile.language) == ([], {}, None, None)
    with pytest.raises(ValidationError, match="frozen"):
        profile.seeds = [3]


def test_every_change_is_checked(tmp_path):
    profile = Profile.read(write(tmp_path))
    assert profile.with_(seeds=[3], data=None).seeds == [3]
    with pytest.raises(InputError, match="^seeds.0: Input should be greater than or equal to 0, not -1$"):
        profile.with_(seeds=[-1])
    with pytest.raises(InputError, match="^unknown data set 'mnist'; choose from "):
        profile.with_(datasets=["mnist"])


WRONG = {  # keys of the file -> start of the message
    "text for a number": ({"learning_rate": "'1e-3'"}, "learning_rate: Input should be a valid number, not '1e-3'"),
    "not finite": ({"learning_rate": ".nan"}, "learning_rate: Input should be a finite number, not nan"),
    "β": ({"methods": "{pvera: {beta: paper}}"}, "methods.pvera.beta: "),
    "a value twice": ({"seeds": "[0, 0]"}, "seeds: 0 stands twice"),
    "key of an experiment": ({"experiments": "{a: {sed: [0]}}"}, "experiments.a.sed: unknown key"),
    "experiment that is taken": ({"experiments": "{a: {take: [b]}}"}, "unknown experiment 'b'; choose from "),
    "protocol of an experiment": (
        {"experiments": "{a: {vary: {protocol: [mixed]}}}"}, "experiments.a: unknown protocol 'mixed'"),
    "hyperparameter of an experiment": (
        {"experiments": "{a: {methods: [lora], set: {sigma: 1.0}}}"}, "experiments.a.sigma: unknown hyperparameter"),
    "value of an experiment": ({"experiments": "{a: {methods: [lora], grid: {rank: [0]}}}"}, "LoRA: rank must be a"),
    "unknown in a section": ({"schedule": "{epoch: 3}"}, "schedule.epoch: unknown key"),
    "choice": ({"protocol": "both"}, "protocol: Input should be 'corrected' or 'published', not 'both'"),
    "data set of texts": ({"datasets": "[rte]"}, "datasets: 'rte' is a data set of texts"),
    "reference": ({"weights": "{tin: a.pth}"}, "weights: 'tin' is none of backbones (tiny)"),
    "hyperparameter": ({"methods": "{lora: {rnak: 4}}"}, "methods.lora.rnak: unknown hyperparameter; choose from rank"),
    "value that the method refuses": ({"methods": "{vera: {targets: qo}}"}, "VeRA: targets must be different letters"),
    "two grids": ({"methods": "{lora: {grid: {rank: [2], alpha: [1.0]}}}"},
                  "methods.lora.grid: Dictionary should have at most 1 item"),
    "learning rate": ({"methods": "{lora: {grid: {learning_rate: [0.0]}}}"},
                      "methods.lora.learning_rate: Input should be greater than 0, not 0.0"),
    "text encoder": ({"language": "{data: t, backbones: [tiny], datasets: [rte]}"},
                     "language: unknown text encoder 'tiny'; choose from minilm, "),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_key(case, tmp_path):
    keys, message = WRONG[case]
    assert refusal(write(tmp_path, **keys)).startswith(message)


def test_language_inherits_what_texts_share(tmp_path):
    section = "{data: t, backbones: [minilm], datasets: [rte], methods: {pvera: {rank: 4}}, schedule: {patience: 3}}"
    methods = "{lora: {rank: 2}, pvera: {rank: 8}, adaptformer: {}}"
    keys = {"schedule": "{epochs: 5}", "fixed_grid": "[tiny]", "images": "7"}
    profile = Profile.read(write(tmp_path, language=section, methods=methods, **keys)).of_language()
    assert profile.text and profile.methods == {"lora": {"rank": 2}, "pvera": {"rank": 4}}
    assert (profile.training.epochs, profile.training.patience) == (5, 3)
    assert (profile.seeds, profile.images, profile.fixed_grid) == ([0, 1], 7, [])
    with pytest.raises(InputError, match="profile 'my' has no language experiment"):
        Profile.read(write(tmp_path)).of_language()


def test_what_is_no_profile(tmp_path):
    file = tmp_path / "my.yaml"
    for content, message in ((b"\x89PNG\r\n", " cannot be read: 'utf-8' codec can't decode byte 0x89"),
                             (b"", "Input should be a valid dictionary"),
                             (b"data: a\nseeds: [0", "line 2, column 8: seeds: [0 ^ (line: 2) expected ',' or ']'"),
                             (b"data: a\nseeds: [0]\nseeds: [1]", 'found duplicate key "seeds"')):  # fmt: skip
        file.write_bytes(content)
        assert message in refusal(file)
    with pytest.raises(InputError, match="^unknown profile 'none': there is no .*none.yaml$"):
        Profile.read(tmp_path / "none.yaml")
