"""Plans: which runs an experiment lists, before and after what they need is there; the committed results are those."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from tiny import make_images, make_vit, perturb

import pvera
from pvera import InputError, PVeRA
from pvera.data import glue, inputs
from pvera.files import sha256
from pvera.study import results
from pvera.study.plan import EXPERIMENTS, list_runs, named, of_script
from pvera.study.profiles import Ablations, Baselines, Effects, Noise, Profile, Published
from pvera.study.protocol import CORRECTED, PUBLISHED_BETA
from pvera.study.runs import Run

ROOT = Path(__file__).resolve().parents[2]
RATES = [1e-2, 3e-3]
GRID = {"learning_rate": [1e-2, 1e-3]}


@pytest.fixture
def profile():
    """Two tasks, two seeds; VeRA and PVeRA have a third."""
    return Profile(
        name="mine",
        data="data",
        backbones=["tiny"],
        datasets=["digits", "vessels"],
        protocol="corrected",
        seeds=[0, 1],
        component_seeds=[0, 1, 2],
        beta=[0.0, 1e-3],
        alpha=[4.0, 16.0],
        search_rates=RATES,
        methods={
            "lora": {"rank": 4},
            "vera": {"rank": 4, "grid": GRID, "most_chosen": 1e-2},
            "pvera": {"rank": 4, "grid": GRID, "most_chosen": 1e-2},
        },
    )


def finish(run: Run, member: int | None = 0) -> None:
    """Write the record of a finished run that chose a member, or whose members all diverged."""
    config = {"seed": run.seed}
    chosen = None if member is None else {"member": member, "epoch": 1, "grid": run.candidates[member].grid}
    record = {"schema": results.SCHEMA} | {name: getattr(run, name) for name in results.IDENTITY}
    record |= {"category": "natural", "protocol": run.protocol.name, "config": config, "members": []}
    results.write(run.path, record | {"config_hash": results.config_hash(config), "chosen": chosen, "test": None})


def keys(runs: list, *names: str) -> set:
    return {tuple(getattr(run, name) for name in names) for run in runs}


# Searches, and what needs their values


def test_each_value_is_searched_with_each_rate(profile, tmp_path):
    for experiment, method, values in (("beta", "pvera", [0.0, 1e-3]), ("alpha", "vera", [4.0, 16.0])):
        listed = list_runs(profile, experiment, tmp_path)
        assert keys(listed, "dataset", "method", "seed") == {("digits", method, 0), ("vessels", method, 0)}
        for run in listed:
            assert [c.grid for c in run.candidates] == [
                {experiment: value, "learning_rate": rate} for value in values for rate in RATES
            ]
            assert [c.adapter_lr for c in run.candidates] == 2 * RATES
        single = profile.with_(**{experiment: [2.0]})
        assert list_runs(single, experiment, tmp_path) == [], "a single value needs no search"
        users = {"beta": "benchmark", "alpha": "equal_budget"}
        run = next(r for r in list_runs(single, users[experiment], tmp_path) if r.method == method)
        assert {c.beta if experiment == "beta" else c.method.alpha for c in run.candidates} == {2.0}
    assert [c.method.alpha for c in listed[0].candidates] == [4.0, 4.0, 16.0, 16.0]
    none = profile.with_(alpha=[])
    assert list_runs(none, "alpha", tmp_path) == list_runs(none, "equal_budget", tmp_path) == []
    with pytest.raises(InputError, match="profile 'mine': beta: is missing, the values to search for digits"):
        list_runs(profile.with_(beta=[]), "beta", tmp_path)
    published = profile.with_(datasets=["cifar"])
    assert list_runs(published.with_(beta=[]), "beta", tmp_path) == [], "β of VTAB-1k is published"
    run = next(r for r in list_runs(published, "benchmark", tmp_path) if r.method == "pvera")
    assert {c.beta for c in run.candidates} == {PUBLISHED_BETA["cifar"]}


def test_a_run_is_listed_when_its_value_was_found(profile, tmp_path):
    def listed(experiment: str) -> list[Run]:
        return [r for r in list_runs(profile, experiment, tmp_path) if r.method in ("vera", "pvera")]

    alpha, _ = list_runs(profile, "alpha", tmp_path)
    assert listed("equal_budget") == []
    finish(alpha, 3)
    assert keys(listed("equal_budget"), "dataset", "seed") == {("digits", seed) for seed in (0, 1, 2)}
    for run in listed("equal_budget"):
        assert [c.method.alpha for c in run.candidates] == [16.0, 16.0]
        assert [c.adapter_lr for c in run.candidates] == GRID["learning_rate"]

    beta, other = list_runs(profile, "beta", tmp_path)
    assert keys(listed("benchmark"), "method") == {("vera",)}
    finish(beta, 2)
    finish(other, None)
    of_pvera = [run for run in listed("benchmark") if run.method == "pvera"]
    assert keys(of_pvera, "dataset") == {("digits",)}, "a search that diverged ends what needs it"
    assert {c.beta for run in of_pvera for c in run.candidates} == {1e-3}


def test_the_first_seed_searches_for_the_others(profile, tmp_path):
    profile = profile.with_(search_once=True, beta=[1e-3], seeds=[1, 0], component_seeds=[4, 3])

    def seeds_of(folder: str, method: str) -> set:
        runs = list_runs(profile, folder.partition("_")[0], tmp_path)
        return {run.seed for run in runs if (run.experiment, run.method) == (folder, method)}

    assert seeds_of("benchmark", "vera") == {1} and seeds_of("benchmark", "lora") == {0, 1}, "LoRA has no grid"
    assert seeds_of("components_vera", "vera") == set() and seeds_of("components_no_noise", "pvera") == {4}
    for run in list_runs(profile, "benchmark", tmp_path):
        if run.method != "lora":
            finish(run, 1)
    for run in list_runs(profile, "components", tmp_path):
        if run.experiment == "components_no_noise":
            finish(run, 0)
    assert seeds_of("benchmark", "vera") == {0, 1} and seeds_of("components_vera", "vera") == {3, 4}
    assert seeds_of("components_no_noise", "pvera") == {3, 4} and seeds_of("components_no_kl", "pvera") == {4}
    second = next(r for r in list_runs(profile, "benchmark", tmp_path) if (r.method, r.seed) == ("pvera", 0))
    assert [c.grid for c in second.candidates] == [{"learning_rate": 1e-3}]


def test_a_grid_that_is_not_searched_needs_its_most_chosen_value(profile, tmp_path):
    fixed = profile.with_(fixed_grid=["tiny"], beta=[1e-3])
    for run in list_runs(fixed, "benchmark", tmp_path):
        assert [c.grid for c in run.candidates] == [{} if run.method == "lora" else {"learning_rate": 1e-2}]
    with pytest.raises(InputError, match="^profile 'mine': methods.vera.most_chosen: is missing"):
        list_runs(fixed.with_(methods={"vera": {"grid": GRID}}), "benchmark", tmp_path)


# Experiments


def test_components_differ_only_as_their_names_say(profile, tmp_path):
    profile = profile.with_(beta=[1e-3])
    listed = {(run.experiment, run.dataset, run.seed): run for run in list_runs(profile, "components", tmp_path)}
    assert {key[0] for key in listed} == {f"components_{name}" for name in ("vera", "no_noise", "no_kl", "pvera")}
    assert {key[2] for key in listed if key[0] == "components_vera"} == {2}, "the benchmark trains the others"
    assert {key[2] for key in listed if key[0] == "components_no_kl"} == {0, 1, 2}
    of = {key[0].removeprefix("components_"): run for key, run in listed.items() if key[1] == "digits"}
    assert [(c.method.noise, c.beta) for c in of["no_noise"].candidates] == 2 * [(False, 0.0)]
    assert [(c.method.noise, c.beta) for c in of["no_kl"].candidates] == 2 * [(True, 0.0)]
    benchmark = next(r for r in list_runs(profile, "benchmark", tmp_path) if (r.method, r.seed) == ("vera", 1))
    assert replace(of["vera"], seed=1, experiment="benchmark", keep=True) == benchmark


def test_what_takes_long_has_a_subset_of_the_data_sets(profile, tmp_path):
    described = profile.with_(
        datasets=["digits", "vessels", "flowers"],
        subset=["flowers", "digits", "counting"],
        beta=[0.0, 1e-3],
        published=Published(methods=["vera"], beta=1e-3, seeds=[0]),
        rivals=Baselines(),
    )
    of = {name: {run.dataset for run in list_runs(described, name, tmp_path)} for name in of_script("train")}
    assert of["dropout"] == {"digits", "flowers"}
    everywhere = ("benchmark", "beta", "alpha", "components", "published")
    assert all(of[name] == {"digits", "vessels", "flowers"} for name in everywhere)


def test_text_tasks_on_all_their_texts(tmp_path):
    text = MINI.of_language().with_(datasets=["entailment", "mrpc"])  # RTE's and CoLA's files are missing
    runs = list_runs(text, "full_sets", tmp_path)
    assert {run.dataset for run in runs} == {"mrpc"} and {run.images for run in runs} == {None}
    assert {run.images for run in list_runs(text, "language", tmp_path)} == {text.images}
    assert all(len(run.candidates) == 3 for run in runs), "each method searches its learning rate"
    assert {(run.method, run.seed) for run in runs} == {(method, 0) for part in text.full for method in part.methods}
    few = text.with_(methods={"lora": text.methods["lora"]})  # as --methods does
    assert {run.method for run in list_runs(few, "full_sets", tmp_path)} == {"lora"}
    rest = {name: value for name, value in dict(text).items() if name != "full"}
    assert list_runs(Profile.build(rest), "full_sets", tmp_path) == []


def test_one_learning_rate_for_all_text_tasks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    from train import parse_training

    text, _ = parse_training("", "train_language", ["--profile", "mini", "--learning-rate", "0.02"])
    full = [options for part in text.full for options in part.methods.values()]
    assert len(full) == sum(len(part.methods) for part in MINI.of_language().full) > 0
    assert all("grid" not in options and options["learning_rate"] == 0.02 for options in full)


def test_noise_of_fixed_size_and_the_published_protocol(profile, tmp_path):
    assert list_runs(profile, "noise", tmp_path) == list_runs(profile, "published", tmp_path) == []
    described = profile.with_(
        noise=Noise(sigma=0.5, sizes=[3.0], dropout=[0.1]),
        published=Published(methods=["vera", "pvera"], beta=1e-3, seeds=[0, 5]),
        search_once=True,
        datasets=["digits", "textures", "vessels"],
    )
    listed = list_runs(described, "noise", tmp_path)
    assert {run.seed for run in listed} == {0}, "the other seeds take what it chose"
    places = {"sigma_0.5": described.datasets} | dict.fromkeys(("sigma_3", "dropout_0.1"), ["digits", "vessels"])
    assert keys(listed, "experiment", "dataset") == {(f"noise_{at}", name) for at in places for name in places[at]}
    each = list_runs(described.with_(search_once=False, component_seeds=[0, 7]), "noise", tmp_path)
    assert {run.seed for run in each if run.experiment == "noise_sigma_0.5"} == {0, 7}
    assert {run.seed for run in each if run.experiment != "noise_sigma_0.5"} == set(described.seeds)
    kept = keys([run for run in each if run.keep], "experiment", "dataset", "seed")
    assert kept == {("noise_sigma_0.5", dataset, 0) for dataset in ("digits", "vessels")}
    for run in each:
        if run.keep:
            finish(run)
    drawn = list_runs(described.with_(search_once=False), "uncertainty", tmp_path)
    assert keys(drawn, "experiment", "dataset") == {("uncertainty_noise_sigma_0.5", name) for _, name, _ in kept}
    of = {run.experiment: run.candidates for run in listed}
    for folder, sigma in (("noise_sigma_0.5", 0.5), ("noise_sigma_3", 3.0)):
        assert {(c.method.key, c.method.sigma, c.beta) for c in of[folder]} == {("pvera", sigma, 0.0)}
    dropped = {(c.method.key, c.method.dropout, c.method.dropout_on) for c in of["noise_dropout_0.1"]}
    assert dropped == {("vera", 0.1, "latent")}
    published = list_runs(described.with_(fixed_grid=["tiny"]), "published", tmp_path)
    assert len(published) == 3 * 2 * 2 and {run.seed for run in published} == {0, 5}
    assert {run.protocol.name for run in published} == {"published"}
    assert all(len(run.candidates) == 2 for run in published), "each seed searches its own grid"
    assert {c.beta for run in published for c in run.candidates if run.method == "pvera"} == {1e-3}


def test_ablations_train_their_values_side_by_side(profile, tmp_path):
    profile = profile.with_(beta=[1e-3])
    described = {"datasets": ["vessels"], "rank": [2, 4], "targets": ["q", "qkv"]}
    fixed = profile.with_(ablations=Ablations(**described, search=False))
    (rank, _), (position, _) = (list_runs(fixed, name, tmp_path) for name in ("rank", "position"))
    assert [c.grid for c in rank.candidates] == [{"rank": 2}, {"rank": 4}]
    shown = [(c.method.targets, c.method.rank, c.adapter_lr, c.beta) for c in position.candidates]
    assert shown == [("q", 4, 1e-2, 1e-3), ("qkv", 4, 1e-2, 1e-3)]
    methods = {"pvera": {"rank": 4, "grid": GRID}}  # a grid that is searched needs no most chosen value
    searched = profile.with_(ablations=Ablations(**described, search=True), search_rates=RATES, methods=methods)
    runs = list_runs(searched, "rank", tmp_path)
    assert [run.seed for run in runs] == [0, 1]
    for run in runs:
        assert [c.grid for c in run.candidates] == [
            {"rank": r, "learning_rate": rate} for r in (2, 4) for rate in GRID["learning_rate"]
        ], "the rates of the grid, not those of the searches of β and α"
    assert list_runs(fixed.with_(datasets=["digits"]), "rank", tmp_path) == []
    wrong = profile.with_(ablations=Ablations(**described | {"targets": ["qx"]}, search=False))
    with pytest.raises(InputError, match="targets must be different letters out of q, k, v, not 'qx'"):
        list_runs(wrong, "position", tmp_path)


def test_each_difference_of_the_protocols_is_an_experiment(profile, tmp_path):
    methods = {name: {"rank": 4, "grid": GRID, "most_chosen": 1e-2} for name in ("lora", "vera", "pvera")}
    effects = Effects(datasets=["vessels"], methods=["lora", "vera", "pvera", "dora"], seeds=[0], grids=["lora"])
    profile = profile.with_(methods=methods, effects=effects, beta=[1e-3], search_once=True, fixed_grid=["tiny"])
    listed = {(run.experiment, run.method): run for run in list_runs(profile, "protocol", tmp_path)}
    differences = {"softmax_in_loss", "shuffle", "own_draws"}
    everywhere = {f"protocol_{name}" for name in differences | {"corrected", "published"}}
    own = {"protocol_lora_same_draw", "protocol_corrected_grid", "protocol_joint_stop"}
    assert {e for e, m in listed if m == "lora"} == everywhere | own
    assert {e for e, m in listed if m == "pvera"} == everywhere | {"protocol_pvera_init", "protocol_pvera_kl"}
    corrected = listed["protocol_corrected", "lora"]
    for name in differences:
        one, published = listed[f"protocol_{name}", "lora"], listed["protocol_published", "lora"]
        values = asdict(one.protocol).items()
        changed = [key for key, value in values if key != "name" and value != getattr(corrected.protocol, key)]
        assert changed == [name] and getattr(one.protocol, name) == getattr(published.protocol, name)
        assert one.candidates == corrected.candidates
    same_draw = listed["protocol_lora_same_draw", "lora"].candidates[0].method
    assert same_draw == pvera.LoRA(rank=4, same_draw=True)
    grid = listed["protocol_corrected_grid", "lora"]
    assert len(grid.candidates) == 2 and len(corrected.candidates) == 1, "the whole grid, wherever it is not searched"
    assert grid.protocol == CORRECTED and len(grid.candidates) == 2 and grid.training == corrected.training
    together = listed["protocol_joint_stop", "lora"]
    assert together == replace(grid, experiment=together.experiment, protocol=together.protocol)
    assert asdict(together.protocol) == asdict(CORRECTED) | {"name": together.protocol.name, "joint_stop": True}
    names = {e: run.protocol.name for (e, _), run in listed.items() if e != "protocol_corrected_grid"}
    assert len(set(names.values())) == len(names), "names are unique"


def test_analyses_are_listed_when_their_adapters_are_there(profile, tmp_path):
    profile = profile.with_(beta=[1e-3], rivals=Baselines(betas=[0.0]))
    names = of_script("analyse")
    assert not any(list_runs(profile, name, tmp_path) for name in names)
    first, *others = [r for r in list_runs(profile, "benchmark", tmp_path) if r.method == "pvera"]
    finish(first)
    listed = {name: list_runs(profile, name, tmp_path) for name in names}
    assert {name: len(runs) for name, runs in listed.items() if runs} == {
        "uncertainty": 1, "out_of_distribution": 1, "latents": 1, "focus": 1}  # fmt: skip
    assert listed["latents"][0].trained == (first,) and not listed["latents"][0].fitted
    assert listed["out_of_distribution"][0].tested == ("digits", "vessels")
    every = profile.with_(out_of_distribution=["vessels", "digits"])
    assert list_runs(every, "out_of_distribution", tmp_path)[0].tested == ("vessels", "digits")
    for run in others:
        finish(run, None if run.seed else 0)
    compared = {run.dataset: run for run in list_runs(profile, "rivals", tmp_path)}
    seeds = {name: [one.seed for one in run.trained] for name, run in compared.items()}
    assert seeds == {"digits": [0], "vessels": [0]}, "seed 1 diverged"
    assert compared["digits"].tested == ("digits", "vessels") and compared["digits"].fitted
    for run in list_runs(profile, "beta_effects", tmp_path):
        finish(run)
    along = list_runs(profile, "beta_rivals", tmp_path)
    assert keys(along, "experiment", "dataset") == {("beta_rivals_0", "digits"), ("beta_rivals_0", "vessels")}
    assert keys(along[0].trained, "seed") == {(0,), (1,)}
    assert not along[0].settings["shifts"] and along[0].tested == ("digits",)


# The registry


def test_names_of_experiments(profile, tmp_path):
    assert named("protocol_pvera_kl").name == "protocol"
    assert named("language_beta").name == "language_beta", "no variant of language"
    with pytest.raises(InputError, match="there is no experiment 'bench'"):
        named("bench")
    with pytest.raises(InputError, match="language reads texts, this profile describes images"):
        list_runs(profile, "language", tmp_path)
    with pytest.raises(InputError, match="unknown experiment 'bench'"):
        list_runs(profile, "bench", tmp_path)


# The committed results


@pytest.fixture
def recorded(monkeypatch):
    """Runs whose backbones and data have the hashes of their records."""

    def read(run) -> dict:
        return json.loads(run.path.read_text())["config"]

    names = ("weights_sha256", "image_size", "max_length")
    of_backbone = lambda run: {name: value for name, value in read(run).items() if name in names}  # noqa: E731
    monkeypatch.setattr(inputs, "describe_backbone", of_backbone)
    monkeypatch.setattr(inputs, "tests_sha256", lambda run: read(run)["data_sha256"])
    splits = lambda run: read(run)["data_sha256" if isinstance(run, Run) else "splits_sha256"]  # noqa: E731
    monkeypatch.setattr(inputs, "splits_sha256", splits)


MINI = Profile.read(ROOT / "experiments/profiles/mini.yaml")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_results_are_those_that_the_profile_lists(name, recorded):
    """Each configuration has the recorded hash, with the recorded hashes of backbone and data. So a clone finds
    nothing to compute anew, and can compute the analyses of VeRA and PVeRA anew: their adapters are there."""
    profile = MINI.of_language() if EXPERIMENTS[name].script == "train_language" else MINI
    runs = list_runs(profile, name, ROOT / "results")
    assert runs or name in ("noise", "published", "language_beta")
    for run in runs:
        if not run.path.exists():  # GLUE's, whose files may be missing
            assert run.dataset in glue.TASKS
            continue
        record = json.loads(run.path.read_text())
        assert results.config_hash(run.config()) == record["config_hash"], run.path
        if name in ("uncertainty", "out_of_distribution", "latents", "focus"):
            assert sha256(run.adapters[0]) == record["config"]["adapter_sha256"]


def test_without_noise_training_takes_the_mean():
    images, models = make_images(), {}
    for noise in (False, True):
        models[noise] = perturb(pvera.adapt(make_vit(), PVeRA(rank=8, noise=noise), num_classes=5, seed=0))
    mean = models[True].eval()(images)
    assert not torch.allclose(models[True].train()(images), mean)
    torch.testing.assert_close(models[False].train()(images), mean)
    with models[False].sampling(seed=0):
        assert not torch.allclose(models[False](images), mean), "draws are still possible"
