"""Profiles and plans: keys, refusals, the runs of an experiment, and the committed results."""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

import pvera
from pvera import InputError
from pvera.data import inputs
from pvera.files import json_value, sha256
from pvera.report import paper_numbers
from pvera.study import jobs, results
from pvera.study.jobs import Run
from pvera.study.plan import ANALYSES, Plan, list_jobs
from pvera.study.profiles import Profile, Schedule
from pvera.study.protocol import CORRECTED, OFFICIAL_BETA, OFFICIAL_CODE, PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = {
    name: Profile.read(ROOT / f"experiments/profiles/{name}.yaml")
    for name in ("synthetic", "text", "vtab_tiny", "vtab_small")
}
GRID = {"learning_rate": [1e-2, 1e-3]}
SEARCH = {
    "methods": ["pvera"],
    "seeds": [0],
    "grid": {"beta": [0.0, 1e-3], "learning_rate": [1e-2, 3e-3]},
}


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
            "vera": {"rank": 4, "grid": GRID, "default": {"learning_rate": 1e-2}},
            "pvera": {"rank": 4, "beta": 1e-6, "grid": GRID, "default": {"learning_rate": 1e-2}},
        },
        experiments={"benchmark": {}} | experiments,
    )


def finish(run: Run, member: int | None = 0) -> None:
    """Write the record of a finished run that chose a member, or whose members all diverged."""
    config = json_value(run.known_config())
    chosen = (
        None
        if member is None
        else {"member": member, "epoch": 1, "grid": run.member_configs[member].grid}
    )
    record = {"schema": results.SCHEMA} | run.identity
    record |= {
        "category": "natural",
        "protocol": run.protocol.name,
        "config": config,
        "members": [],
    }
    record |= {"config_hash": results.config_hash(config), "chosen": chosen, "test": None}
    results.write(run.path, record, adapter=b"a" if chosen else None)


def keys(runs: list, *names: str) -> set:
    return {tuple(getattr(run, name) for name in names) for run in runs}


# Trainings


def test_an_experiment_is_the_whole_profile_but_for_what_it_says(tmp_path):
    one = {
        "methods": ["vera", "ia3"],
        "datasets": ["vessels", "cifar"],
        "seeds": [5],
        "set": {"beta": 0.1},
    }
    described = profile(all={}, some=one)
    runs = list_jobs(described, "all", tmp_path)
    methods, datasets, seeds = ("lora", "vera", "pvera"), ("digits", "vessels"), (1, 0)
    assert [(r.seed, r.dataset, r.method) for r in runs] == [
        (seed, dataset, method) for seed in seeds for dataset in datasets for method in methods
    ]
    for run in runs:
        assert (
            [c.grid for c in run.member_configs] == [{}]
            if run.method == "lora"
            else [{"learning_rate": rate} for rate in GRID["learning_rate"]]
        )
        assert run.protocol == CORRECTED
        assert {c.beta for c in run.member_configs} == {1e-6 if run.method == "pvera" else 0.0}
    (run,) = list_jobs(described, "some", tmp_path)
    assert (run.folder, run.method, run.dataset, run.seed) == ("some", "vera", "vessels", 5)
    assert [c.adapter_lr for c in run.member_configs] == GRID["learning_rate"]
    assert {c.beta for c in run.member_configs} == {0.1}


@pytest.mark.parametrize(
    "change, rates",
    [({"set": {"learning_rate": 0.1}}, {0.1}), ({"vary": GRID}, set(GRID["learning_rate"]))],
)
def test_what_the_grid_would_replace_is_not_set_or_varied(change, rates, tmp_path):
    """Without a search the default would; an experiment's own grid replaces both."""
    vera = {"methods": ["vera"], **change}
    refused = profile(searched=vera, fixed=vera | {"search": False})
    for name in ("searched", "fixed"):
        advice = f"^experiments.{name}: 'learning_rate' is in 'set' or 'vary', and"
        with pytest.raises(InputError, match=advice):
            list_jobs(refused, name, tmp_path)
    described = profile(ranks=vera | {"grid": {"rank": [2, 8]}}, plain=vera | {"methods": ["lora"]})
    for name in ("ranks", "plain"):
        members = [c for r in list_jobs(described, name, tmp_path) for c in r.member_configs]
        assert {config.adapter_lr for config in members} == rates


def test_without_a_search_the_default_replaces_the_grid(tmp_path):
    fixed = profile(plain={"search": False})
    for described, name in ((fixed, "plain"), (fixed.replaced(fixed_grid=["tiny"]), "benchmark")):
        for run in list_jobs(described, name, tmp_path):
            assert [c.grid for c in run.member_configs] == [
                {} if run.method == "lora" else {"learning_rate": 1e-2}
            ]
    searched = list_jobs(profile(beta=SEARCH).replaced(fixed_grid=["tiny"]), "beta", tmp_path)
    rates = [(beta, rate) for beta in (0.0, 1e-3) for rate in (1e-2, 3e-3)]
    for run in searched:
        assert [(c.beta, c.adapter_lr) for c in run.member_configs] == rates, (
            "the experiment's own grid is searched"
        )
    assert len(searched) == 2
    with pytest.raises(InputError, match="^profile 'mine': methods.vera.default: is missing"):
        list_jobs(fixed.replaced(methods={"vera": {"grid": GRID}}), "plain", tmp_path)
    lora = {"alpha": 2.0, "grid": GRID, "default": {"rank": 16, "learning_rate": 1e-2}}
    for run in list_jobs(fixed.replaced(methods={"lora": lora}), "plain", tmp_path):
        (member,) = run.member_configs
        assert (member.method, member.adapter_lr) == (pvera.LoRA(rank=16, alpha=2.0), 1e-2)
        assert member.grid == lora["default"]


@pytest.mark.parametrize("method, head_lr", [("linear", 1e-2), ("vera", 1e-4)])
def test_a_searched_rate_is_the_heads_where_there_is_no_adapter(method, head_lr, tmp_path):
    described = profile().replaced(methods={method: {"grid": GRID}}, learning_rate=1e-4)
    (run, *_) = list_jobs(described, "benchmark", tmp_path)
    assert (run.member_configs[0].adapter_lr, run.member_configs[0].head_lr) == (1e-2, head_lr)


def test_each_value_has_runs_of_its_own(tmp_path):
    varied = {
        "methods": ["pvera"],
        "set": {"beta": 0.0},
        "vary": {"sigma": [0.3, 1.0]},
        "folder": "noise",
    }
    runs = list_jobs(profile(sizes=varied), "sizes", tmp_path)
    assert keys(runs, "folder") == {("noise_0.3",), ("noise_1.0",)}
    assert {(r.folder, c.method.sigma, c.beta) for r in runs for c in r.member_configs} == {
        ("noise_0.3", 0.3, 0.0),
        ("noise_1.0", 1.0, 0.0),
    }


def test_each_value_searches_and_chooses_for_itself(tmp_path):
    varied = {
        "methods": ["pvera"],
        "datasets": ["digits"],
        "vary": {"rank": [4, 8]},
        "choose": "first_seed",
    }
    described = profile(rank=varied)
    smaller, larger = list_jobs(described, "rank", tmp_path)
    assert (smaller.folder, larger.folder) == ("rank_4", "rank_8")
    for run in (smaller, larger):
        assert {c.method.rank for c in run.member_configs} == {int(run.folder[-1])}
        assert [c.grid for c in run.member_configs] == [
            {"learning_rate": rate} for rate in GRID["learning_rate"]
        ]
    finish(larger, 1)
    (second,) = [run for run in list_jobs(described, "rank", tmp_path) if run.seed == 0]
    assert second.folder == "rank_8" and [c.grid for c in second.member_configs] == [
        {"learning_rate": 1e-3}
    ]


def test_what_was_chosen_elsewhere_is_inherited(tmp_path):
    other = {"inherit": ["beta"], "set": {"beta": 0.5}}
    described = profile(beta=SEARCH, benchmark={"inherit": ["beta"]}, other=other)
    first, second = list_jobs(described, "beta", tmp_path)
    assert keys(list_jobs(described, "benchmark", tmp_path), "method") == {("lora",), ("vera",)}
    finish(first, 3)
    finish(second, None)
    listed = [run for run in list_jobs(described, "benchmark", tmp_path) if run.method == "pvera"]
    assert keys(listed, "dataset") == {("digits",)}, "a search that diverged ends what needs it"
    assert {(c.beta, c.adapter_lr) for run in listed for c in run.member_configs} == {
        (1e-3, 1e-2),
        (1e-3, 1e-3),
    }
    listed = [run for run in list_jobs(described, "other", tmp_path) if run.method == "pvera"]
    assert {(c.beta, c.adapter_lr) for run in listed for c in run.member_configs} == {
        (0.5, 1e-2),
        (0.5, 1e-3),
    }


@pytest.mark.parametrize("by_inherit", [True, False])
def test_a_search_of_other_settings_runs_again_before_its_choice_is_used(by_inherit, tmp_path):
    """Without `replace` it is refused, though it is of another experiment than the plan's."""
    follower = {"methods": ["pvera"], "seeds": [0, 1], "choose": "first_seed"}
    if by_inherit:
        follower["inherit"] = ["beta"]
    described = profile(beta=SEARCH, follower=follower).replaced(datasets=["digits"])
    name = "beta" if by_inherit else "follower"
    (search,) = (run for run in list_jobs(described, name, tmp_path) if run.seed == 0)
    finish(search, 1)
    if by_inherit:
        finish(list_jobs(described, "follower", tmp_path)[0])
    assert len(list_jobs(described, "follower", tmp_path)) == 2

    shorter = described.replaced(schedule=Schedule(epochs=1))
    plan = Plan(shorter, ("follower",), tmp_path)
    (again,) = plan.jobs()
    assert again.path == search.path and again.schedule.epochs == 1
    with pytest.raises(InputError, match=f"^1 result files .*, the first is {search.path}; use"):
        plan.states([again], compare_data=False)
    assert plan.count_waiting() == 1
    finish(again, 1)
    # The first seed that inherited it has to run again too, before the second.
    assert {job.folder for job in plan.jobs()} == {"follower"}
    assert plan.count_waiting() == (1 if by_inherit else 0)


@pytest.mark.parametrize("chooser", ["each_seed", "first_seed"])
def test_who_chooses_from_a_grid(chooser, tmp_path):
    described = profile(mine={"methods": ["lora", "vera"], "choose": chooser})

    def seeds(method: str) -> list[int]:
        return [
            r.seed
            for r in list_jobs(described, "mine", tmp_path)
            if (r.method, r.dataset) == (method, "digits")
        ]

    assert seeds("lora") == [1, 0], "LoRA has no grid"
    searching = {"each_seed": [1, 0], "first_seed": [1]}[chooser]
    assert seeds("vera") == searching
    for run in list_jobs(described, "mine", tmp_path):
        if run.seed == 1:
            finish(run, len(run.member_configs) - 1)
    assert seeds("vera") == [1, 0]
    second = next(
        r for r in list_jobs(described, "mine", tmp_path) if (r.method, r.seed) == ("vera", 0)
    )
    assert [c.grid for c in second.member_configs][-1] == {"learning_rate": 1e-3}
    assert len(second.member_configs) == (2 if chooser == "each_seed" else 1)


def test_the_official_beta_is_that_of_the_data_set(tmp_path):
    described = profile(
        published={"methods": ["pvera"], "protocol": "published", "set": {"beta": "published"}}
    )
    advice = "^the official code has no β for digits: write a number instead of 'published'"
    with pytest.raises(InputError, match=advice):
        list_jobs(described, "published", tmp_path)
    for run in list_jobs(described.replaced(datasets=["cifar", "dtd"]), "published", tmp_path):
        assert run.protocol == OFFICIAL_CODE and {c.beta for c in run.member_configs} == {
            OFFICIAL_BETA[run.dataset]
        }


#: The divisors' powers of ten.
POWERS = {
    6: (
        "cifar clevr_count diabetic_retinopathy eurosat patch_camelyon resisc45 smallnorb_azi "
        "smallnorb_ele"
    ),
    8: "clevr_dist dsprites_loc oxford_flowers102 svhn",
    10: "dsprites_ori",
    12: "kitti oxford_iiit_pet sun397",
    16: "caltech101 dmlab dtd",
}


def test_beta_is_the_inverse_of_the_divisor_on_each_of_the_19_data_sets():
    """Against the divisors of the KL term in the official code."""
    expected = {name: 1 / 10**power for power, names in POWERS.items() for name in names.split()}
    assert (
        expected == OFFICIAL_BETA
        and expected.keys() == set(paper_numbers.PAPER_DATASETS)
        and len(expected) == 19
    )


def test_each_difference_of_the_protocols_stands_alone(tmp_path):
    described = profile(protocol={"vary": {"protocol": list(PROTOCOLS)}, "search": False})
    listed = {(run.folder, run.method): run for run in list_jobs(described, "protocol", tmp_path)}
    assert {e for e, m in listed if m == "lora"} == {
        f"protocol_{name}"
        for name, entry in PROTOCOLS.items()
        if entry.only_method in (None, "lora")
    }
    corrected = listed["protocol_corrected", "lora"]
    for name in ("softmax_in_loss", "shuffle", "own_draws", "joint_stop"):
        run = listed[f"protocol_{name}", "lora"]
        changes = {"name": run.protocol.name, name: getattr(OFFICIAL_CODE, name)}
        assert asdict(run.protocol) == asdict(CORRECTED) | changes
        assert run == replace(corrected, folder=run.folder, protocol=run.protocol)
    assert listed["protocol_lora_same_draw", "lora"].member_configs[0].method == pvera.LoRA(
        rank=4, same_draw=True
    )


# Analyses


def test_analyses_are_listed_when_their_adapters_are_there(tmp_path):
    described = profile().replaced(choose="first_seed")
    for listing in (described, described.replaced(experiments={})):
        assert not any(list_jobs(listing, name, tmp_path) for name in ANALYSES)
    first = next(
        run for run in list_jobs(described, "benchmark", tmp_path) if run.method == "pvera"
    )
    finish(first)
    listed = {name: list_jobs(described, name, tmp_path) for name in ANALYSES}
    assert [name for name, runs in listed.items() if runs] == [
        "uncertainty",
        "out_of_distribution",
        "latents",
        "focus",
    ]
    assert listed["latents"][0].runs == (first,)
    assert listed["out_of_distribution"][0].tested == ("digits", "vessels")
    every = described.replaced(out_of_distribution=["vessels", "digits"])
    assert list_jobs(every, "out_of_distribution", tmp_path)[0].tested == ("vessels", "digits")


def test_predictors_are_compared_when_all_seeds_have_left_an_adapter(tmp_path):
    """Of PVeRA and of a dropout, but of no method without samples.

    A data set with a diverged seed has none.
    """
    dropout = {"methods": ["lora", "vera"], "search": False, "set": {"dropout": 0.5}}
    described = profile(dropped=dropout).replaced(analyses={"predictors": ["benchmark", "dropped"]})
    for run in [
        run for name in ("benchmark", "dropped") for run in list_jobs(described, name, tmp_path)
    ]:
        diverged = (run.dataset, run.seed) == ("vessels", 0)
        finish(run, None if diverged else 0)
    compared = list_jobs(described, "predictors", tmp_path)
    assert keys(compared, "folder", "dataset", "method") == {
        ("predictors", "digits", "pvera"),
        ("predictors_dropped", "digits", "lora"),
        ("predictors_dropped", "digits", "vera"),
    }
    for analysis in compared:
        assert [training.seed for training in analysis.runs] == [1, 0] and analysis.tested == (
            "digits",
        )
    compared[0].runs[1].path.unlink()
    assert len(list_jobs(described, "predictors", tmp_path)) == 2, "a seed is missing"


@pytest.mark.parametrize("chooser", ["each_seed", "first_seed"])
def test_adapters_of_other_settings_are_not_analysed(chooser, tmp_path):
    described = profile().replaced(choose=chooser)
    for _ in described.seeds:  # the second may wait for the first
        for run in list_jobs(described, "benchmark", tmp_path):
            finish(run)
    assert all(list_jobs(described, name, tmp_path) for name in ANALYSES)
    shorter = described.replaced(schedule=Schedule(epochs=1))
    assert not any(list_jobs(shorter, name, tmp_path) for name in ANALYSES)


def test_without_pictures_no_analysis_keeps_pixels(tmp_path):
    described = profile().replaced(pictures=False)
    for run in list_jobs(described, "benchmark", tmp_path):
        finish(run)
    assert list_jobs(described, "latents", tmp_path) == []
    assert {run.settings["pictures"] for run in list_jobs(described, "uncertainty", tmp_path)} == {
        False
    }


def test_an_analysis_reads_the_experiments_that_the_profile_names(tmp_path):
    described = profile(noisy={"methods": ["pvera"], "search": False}).replaced(
        analyses={"uncertainty": ["benchmark", "noisy"]}
    )
    for run in list_jobs(described, "noisy", tmp_path):
        finish(run)
    listed = list_jobs(described, "uncertainty", tmp_path)
    assert keys(listed, "folder") == {("uncertainty_noisy",)} and len(listed) == 4


# The committed results


@pytest.fixture
def recorded(monkeypatch):
    """Return what reads a record. Backbones and data of runs have the hashes of their records."""
    read = cache(results.read_record)
    monkeypatch.setattr(results, "read_record", read)
    names = ("weights_sha256", "image_size", "max_length")

    def config(run) -> dict:
        return read(run.path).config

    def backbone(run) -> dict:
        return {name: value for name, value in config(run).items() if name in names}

    monkeypatch.setattr(jobs.Job, "data_config", backbone)
    monkeypatch.setattr(inputs.Source, "data_key", lambda run, *tested: run)
    monkeypatch.setattr(inputs, "data_sha256", lambda run: config(run)["data_sha256"])
    return read


def committed(profile: Profile, read) -> tuple[set[Path], set[Path]]:
    """Return the paths of a profile's records: of trainings, and of analyses."""
    paths = {*(ROOT / "results" / profile.name).rglob("seed*.json")}
    trainings = {path for path in paths if read(path).members is not None}
    return trainings, paths - trainings


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_trainings_are_those_that_the_profile_lists(name, recorded):
    """Each configuration has the recorded hash, with the recorded hashes of backbone and data.

    So a clone finds nothing to train again.
    """
    profile = COMMITTED[name]
    listed = {key: list_jobs(profile, key, ROOT / "results") for key in profile.experiments}
    run_at = {run.path: run for runs in listed.values() for run in runs}
    trainings, _ = committed(profile, recorded)
    assert trainings
    assert trainings - run_at.keys() == set()
    for path in trainings & run_at.keys():
        run, record = run_at[path], recorded(path)
        assert [asdict(member) for member in run.member_configs] == record.config["members"], path
        assert (run.protocol.name, results.config_hash(run.config())) == (
            record.protocol,
            record.config_hash,
        )
    if not name.startswith("vtab"):  # whose profiles list more data sets than were trained
        missing = {
            key for key, runs in listed.items() if any(run.path not in trainings for run in runs)
        }
        assert all(profile.experiments[key].on_request for key in missing)


@pytest.mark.parametrize("name", ["synthetic", "vtab_tiny"])
def test_committed_analyses_are_of_the_committed_adapters(name, recorded):
    """So they can be computed again."""
    profile = COMMITTED[name]
    run_at = {
        run.path: run for key in ANALYSES for run in list_jobs(profile, key, ROOT / "results")
    }
    _, analyses = committed(profile, recorded)
    assert analyses and analyses <= run_at.keys()
    for path in analyses:
        run, record = run_at[path], recorded(path)
        assert results.config_hash(run.config()) == record.config_hash, path
        assert [sha256(adapter) for adapter in run.adapters] == record.config["adapter_sha256"]


# Profiles: keys, refusals and their messages


KEYS = {
    "data": "data/demo",
    "backbones": "[tiny]",
    "datasets": "[digits, vessels]",
    "seeds": "[0, 1]",
    "protocol": "corrected",
    "methods": "{lora: {grid: {rank: [2, 4]}, default: {rank: 4}}, pvera: {rank: 8}}",
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
    assert message.startswith(str(file)) and message.count("\n") == 0 and len(message) < 800, (
        message
    )
    return message.removeprefix(str(file)).removeprefix(": ")


def test_numbers_and_defaults(tmp_path):
    profile = Profile.read(
        write(tmp_path, learning_rate="1e-3", schedule="{epochs: 3, tolerance: 0}")
    )
    assert (profile.name, profile.learning_rate) == ("my", 1e-3)
    assert list(profile.experiments) == ["benchmark"]
    assert profile.schedule == Schedule(epochs=3, tolerance=0.0)
    schedule = {"batch_size": 16, "epochs": 3, "patience": 20}
    assert dict(profile.schedule) == schedule | {"tolerance": 0.0, "weight_decay": 1e-4}
    assert (profile.fixed_grid, profile.weights, profile.variants) == ([], {}, {})
    assert (profile.images, profile.title) == (None, None)
    assert (profile.pictures, profile.gpu, profile.is_text) == (True, False, False)
    with pytest.raises(ValidationError, match="frozen"):
        profile.seeds = [3]


def test_every_change_is_checked(tmp_path):
    profile = Profile.read(write(tmp_path))
    assert profile.replaced(seeds=[3], data=None).seeds == [3]
    with pytest.raises(
        InputError, match="^seeds.0: Input should be greater than or equal to 0, not -1$"
    ):
        profile.replaced(seeds=[-1])
    with pytest.raises(InputError, match="^unknown data set 'mnist'; choose from "):
        profile.replaced(datasets=["mnist"])


#: Changed key, its value, and the start of the message.
WRONG = {
    "text for a number": (
        {"learning_rate": "'1e-3'"},
        "learning_rate: Input should be a valid number, not '1e-3'",
    ),
    "not finite": (
        {"learning_rate": ".nan"},
        "learning_rate: Input should be a finite number, not nan",
    ),
    "β": (
        {"methods": "{pvera: {beta: paper}}"},
        "methods.pvera.beta: ",
    ),
    "a value twice": (
        {"seeds": "[0, 0]"},
        "seeds: 0 stands twice",
    ),
    "key of an experiment": (
        {"experiments": "{a: {sed: [0]}}"},
        "experiments.a.sed: unknown key",
    ),
    "experiment that is inherited": (
        {"experiments": "{a: {inherit: [b]}}"},
        "unknown experiment 'b'; choose from ",
    ),
    "experiment that inherits itself": (
        {"experiments": "{a: {inherit: [a]}}"},
        "experiments.a.inherit: 'a' waits for itself",
    ),
    "experiments that inherit each other": (
        {"experiments": "{b: {inherit: [c]}, c: {inherit: [b]}}"},
        "experiments.b.inherit: 'b' waits for itself",
    ),
    "experiment without a data set that is needed": (
        {"experiments": "{a: {datasets: [digits]}, b: {inherit: [a]}}"},
        "experiments.b.inherit: 'a' lacks 'vessels' in its datasets",
    ),
    "experiment without a backbone that is needed": (
        {
            "backbones": "[tiny, test_vit]",
            "experiments": "{a: {backbones: [test_vit]}, b: {backbones: [tiny], inherit: [a]}}",
        },
        "experiments.b.inherit: 'a' lacks 'tiny' in its backbones",
    ),
    "experiment that chooses several values": (
        {"experiments": "{a: {methods: [lora], vary: {rank: [2, 4]}}, b: {inherit: [a]}}"},
        "experiments.b.inherit: 'a' has 'vary', so it chooses no single value",
    ),
    "method that the profile lacks": (
        {"experiments": "{a: {methods: [lora, vera]}}"},
        "experiments.a.methods: 'vera' is none of lora, pvera",
    ),
    "data set that the profile lacks": (
        {"experiments": "{a: {datasets: [nuclei]}}"},
        "experiments.a.datasets: 'nuclei' is none of digits, vessels",
    ),
    "backbone that the profile lacks": (
        {"experiments": "{a: {backbones: [test_vit]}}"},
        "experiments.a.backbones: 'test_vit' is none of tiny",
    ),
    "protocol of an experiment": (
        {"experiments": "{a: {vary: {protocol: [mixed]}}}"},
        "unknown protocol 'mixed'; choose from corrected",
    ),
    "hyperparameter of an experiment": (
        {"experiments": "{a: {methods: [lora], set: {sigma: 1.0}}}"},
        "experiments.a.sigma: unknown hyperparameter",
    ),
    "value of an experiment": (
        {"experiments": "{a: {methods: [lora], grid: {rank: [0]}}}"},
        "LoRA: rank must be a",
    ),
    "unknown in a section": (
        {"schedule": "{epoch: 3}"},
        "schedule.epoch: unknown key",
    ),
    "choice": (
        {"protocol": "both"},
        "protocol: Input should be 'corrected' or 'published', not 'both'",
    ),
    "data set of texts": (
        {"datasets": "[rte]"},
        "datasets: 'rte' is a data set of texts",
    ),
    "reference": (
        {"weights": "{tin: a.pth}"},
        "weights: 'tin' is none of tiny",
    ),
    "hyperparameter": (
        {"methods": "{lora: {rnak: 4}}"},
        "methods.lora.rnak: unknown hyperparameter; choose from rank",
    ),
    "value that the method refuses": (
        {"methods": "{vera: {targets: qo}}"},
        "VeRA: targets must be one of q, k, v",
    ),
    "grid": (
        {"methods": "{lora: {grid: {rank: 2}}}"},
        "methods.lora.grid: rank: Input should be a valid list",
    ),
    "default": (
        {"methods": "{lora: {default: 4}}"},
        "methods.lora.default: Input should be a valid dictionary, not 4",
    ),
    "hyperparameter of a default": (
        {"methods": "{lora: {default: {rnak: 4}}}"},
        "methods.lora.rnak: unknown hyperparameter",
    ),
    "learning rate": (
        {"methods": "{lora: {grid: {learning_rate: [0.0]}}}"},
        "methods.lora.learning_rate: Input should be greater than 0, not 0.0",
    ),
    "text encoder": (
        {"backbones": "[minilm, tiny]", "datasets": "[rte]"},
        "unknown text encoder 'tiny'; choose from minilm, ",
    ),
    "data set of images": (
        {"backbones": "[minilm]"},
        "datasets: 'digits' is a data set of images",
    ),
    "variant": (
        {"variants": "{no_nose: 'z = μ'}"},
        "variants: 'no_nose' is none of benchmark",
    ),
    "variant of all methods": (
        {"variants": "{benchmark: All}"},
        "variants: experiment 'benchmark' must name the one method that it varies",
    ),
    "experiment of an analysis": (
        {"analyses": "{uncertainty: [bench]}"},
        "analyses.uncertainty: 'bench' is none of benchmark",
    ),
    "methods that are none": (
        {"methods": "[lora]"},
        "methods: Input should be a valid dictionary",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_key(case, tmp_path):
    keys, message = WRONG[case]
    assert refusal(write(tmp_path, **keys)).startswith(message)


def derived(folder: Path, content: str) -> Path:
    """Write a profile that has the one of `write` as its base."""
    file = folder / "mine.yaml"
    file.write_text(f"base: my\n{content}")
    return file


def test_a_base_gives_what_the_file_does_not_say(tmp_path):
    """A key replaces the base's. Methods are replaced one by one, and null leaves one out."""
    methods = "{lora: {rank: 2, alpha: 2.0}, pvera: {rank: 8}, adaptformer: {}}"
    write(tmp_path, methods=methods, schedule="{epochs: 5, patience: 3}", images="7")
    changed = "{lora: {rank: 4}, vera: {}, adaptformer: null}"
    content = f"schedule: {{epochs: 2}}\nseeds: [4]\nmethods: {changed}\n"
    profile = Profile.read(derived(tmp_path, content))
    assert (profile.name, profile.data) == ("mine", "data/demo")
    assert (profile.images, profile.seeds) == (7, [4])
    assert (profile.schedule.epochs, profile.schedule.patience) == (2, 20)
    assert profile.methods == {"lora": {"rank": 4}, "pvera": {"rank": 8}, "vera": {}}

    (tmp_path / "third.yaml").write_text("base: mine\nmethods: {pvera: null}\n")
    third = Profile.read(tmp_path / "third.yaml")
    assert third == profile.replaced(name="third", methods={"lora": {"rank": 4}, "vera": {}})


def test_experiments_may_name_what_a_selection_leaves_out(tmp_path):
    first = "{methods: [lora], datasets: [digits]}"
    experiments = f"{{a: {first}, b: {{datasets: [digits], inherit: [a]}}}}"
    whole = Profile.read(write(tmp_path, experiments=experiments))
    selected = whole.replaced(datasets=["vessels"], methods={"pvera": {}})
    based = Profile.read(derived(tmp_path, "datasets: [vessels]\nmethods: {lora: null}\n"))
    for described in (selected, based):
        assert not list_jobs(described, "a", tmp_path)


def test_bases_that_are_none(tmp_path):
    file = derived(tmp_path, "seeds: [0]\n")
    with pytest.raises(InputError, match="^unknown profile 'my': there is no .*my.yaml$"):
        Profile.read(file)
    base = write(tmp_path, methods="[lora]")
    with pytest.raises(InputError, match=f"^{base}: methods: Input should be a valid dictionary"):
        Profile.read(file)
    base.write_text("base: mine")
    with pytest.raises(InputError, match=f"^{file}: base: the file is its own base$"):
        Profile.read(file)


@pytest.mark.parametrize("methods", ["", "[lora]"])
def test_methods_on_a_base_are_a_dictionary(methods, tmp_path):
    write(tmp_path)
    file = derived(tmp_path, f"methods: {methods}")
    with pytest.raises(InputError, match=f"^{file}: methods: Input should be a valid dictionary"):
        Profile.read(file)


#: Content of a file, and a part of the message.
NO_PROFILE = {
    b"\x89PNG\r\n": " cannot be read: 'utf-8' codec can't decode byte 0x89",
    b"": "Input should be a valid dictionary",
    b"data: a\nseeds: [0": "line 2, column 8: seeds: [0 ^ (line: 2) expected ',' or ']'",
    b"data: a\nseeds: [0]\nseeds: [1]": 'found duplicate key "seeds"',
}


def test_what_is_no_profile(tmp_path):
    file = tmp_path / "my.yaml"
    for content, message in NO_PROFILE.items():
        file.write_bytes(content)
        assert message in refusal(file)
    with pytest.raises(InputError, match="^unknown profile 'none': there is no .*none.yaml$"):
        Profile.read(tmp_path / "none.yaml")
