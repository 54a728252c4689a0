"""PVeRA's components: variants without noise and without KL term, and searches crossed with learning rates."""

from dataclasses import replace

import pytest
import torch
from tiny import make_images, make_vit, perturb
from trained import make_profile

import pvera
from pvera import InputError, PVeRA
from pvera.study import results, runs
from pvera.study.description import Ablations
from pvera.study.scheduler import pending
from pvera.study.training import TrainingConfig

RATES = [1e-2, 3e-3]


@pytest.fixture
def profile(tmp_path):
    """Two tasks, two seeds; VeRA and PVeRA have a third."""
    return make_profile(
        tmp_path,
        ("digits", "vessels"),
        seeds=[0, 1],
        component_seeds=[0, 1],
        further_seeds=[2],
        beta=[0.0, 1e-3],
        alpha=[4.0, 16.0],
        search_rates=RATES,
        methods={
            "lora": {"rank": 4},
            "vera": {"rank": 4, "grid": {"learning_rate": [1e-2, 1e-3]}, "most_chosen": 1e-2},
            "pvera": {"rank": 4, "grid": {"learning_rate": [1e-2, 1e-3]}, "most_chosen": 1e-2},
        },
    )


def test_without_noise_training_takes_the_mean():
    images = make_images()
    models = {
        noise: perturb(pvera.adapt(make_vit(), PVeRA(rank=8, noise=noise), num_classes=5, seed=0))
        for noise in (False, True)
    }
    mean = models[True].eval()(images)
    kl = models[True].kl_divergence()
    assert not torch.allclose(models[True].train()(images), mean)
    torch.testing.assert_close(models[False].train()(images), mean)
    torch.testing.assert_close(models[False].kl_divergence(), kl)
    with models[False].sampling(seed=0):
        assert not torch.allclose(models[False](images), mean), "draws are still possible"


def test_a_new_hyperparameter_is_left_out_at_its_default():
    assert "noise" not in PVeRA().describe()
    assert PVeRA(noise=False).describe() == PVeRA().describe() | {"noise": False}


def test_each_value_is_searched_with_each_rate(profile, tmp_path):
    for experiment, method, values in (("beta", "pvera", [0.0, 1e-3]), ("alpha", "vera", [4.0, 16.0])):
        listed = profile.runs(experiment, tmp_path)
        assert [(run.dataset, run.method, run.seed) for run in listed] == [
            ("digits", method, 0),
            ("vessels", method, 0),
        ]
        for run in listed:
            assert [c.grid for c in run.candidates] == [
                {experiment: value, "learning_rate": rate} for value in values for rate in RATES
            ]
            assert [c.adapter_lr for c in run.candidates] == 2 * RATES
    assert [c.method.alpha for c in listed[0].candidates] == [4.0, 4.0, 16.0, 16.0]
    for name, method in (("beta", "pvera"), ("alpha", "vera")):
        single = profile.with_(**{name: [2.0]})
        assert single.runs(name, tmp_path) == [], "a single value needs no search"
        (run, *_) = (r for r in single.runs({"beta": "benchmark", "alpha": "equal_budget"}[name], tmp_path)
                     if r.method == method)  # fmt: skip
        values = [c.beta if name == "beta" else c.method.alpha for c in run.candidates]
        assert not run.waits and set(values) == {2.0}
    assert profile.with_(alpha=[]).runs("alpha", tmp_path) == []
    assert profile.with_(alpha=[]).runs("equal_budget", tmp_path) == []
    with pytest.raises(InputError, match="beta: is missing, the values to search for digits"):
        profile.with_(beta=[]).runs("beta", tmp_path)


def test_components_differ_only_as_their_names_say(profile, tmp_path):
    listed = {(run.experiment, run.dataset, run.seed): run for run in profile.runs("components", tmp_path)}
    assert {key[0] for key in listed} == {f"components_{name}" for name in ("vera", "no_noise", "no_kl", "pvera")}
    assert {key[2] for key in listed if key[0] == "components_vera"} == {2}, "the benchmark trains the others"
    assert {key[2] for key in listed if key[0] == "components_no_kl"} == {0, 1}
    of = {key[0].removeprefix("components_"): run for key, run in listed.items() if key[1] == "digits"}
    assert [(c.method.noise, c.beta) for c in of["no_noise"].candidates] == 2 * [(False, 0.0)]
    assert [(c.method.noise, c.beta) for c in of["no_kl"].candidates] == 2 * [(True, 0.0)]
    assert not of["no_noise"].waits and not of["no_kl"].waits and of["pvera"].waits
    benchmark = next(run for run in profile.runs("benchmark", tmp_path) if (run.method, run.seed) == ("vera", 1))
    assert replace(of["vera"], seed=1, experiment="benchmark") == benchmark


def test_a_searched_value_reaches_the_runs_that_wait(profile, tmp_path):
    run = next(run for run in profile.runs("equal_budget", tmp_path) if run.seed == 1)
    assert run.waits and run.resolved() == run
    with pytest.raises(InputError, match="α of digits is not known: .*/alpha/.* is missing, or all of it diverged"):
        runs.execute(run)
    search = profile.runs("alpha", tmp_path)[0]
    runs.execute(replace(search, training=replace(search.training, epochs=1)))
    chosen = results.read(search.path)["chosen"]["grid"]
    ready = run.resolved()
    assert not ready.waits
    assert [c.method.alpha for c in ready.candidates] == 2 * [chosen["alpha"]]
    assert [c.adapter_lr for c in ready.candidates] == [1e-2, 1e-3]


def test_the_first_seed_searches_for_the_others(profile, tmp_path):
    profile = profile.with_(search_once=True, training=replace(profile.training, epochs=1))

    def runs_of(method: str) -> dict[tuple[str, int], runs.Run]:
        listed = [*profile.runs("benchmark", tmp_path), *profile.runs("components", tmp_path)]
        return {(r.experiment, r.seed): r for r in listed if r.method == method and r.dataset == "digits"}

    vera = runs_of("vera")
    assert not vera["benchmark", 0].waits
    assert not runs_of("lora")["benchmark", 1].waits, "there is no grid"
    assert vera["benchmark", 1].waits and vera["components_vera", 2].waits
    with pytest.raises(InputError, match="the best of the grid of digits is not known: .*/benchmark/.* is missing"):
        runs.execute(vera["benchmark", 1])
    runs.execute(vera["benchmark", 0])
    chosen = results.read(vera["benchmark", 0].path)["chosen"]["grid"]
    for run in (vera["benchmark", 1], vera["components_vera", 2]):
        ready = run.resolved()
        assert not ready.waits and [c.grid for c in ready.candidates] == [chosen]

    pvera_runs = runs_of("pvera")
    own_search = pvera_runs["components_no_noise", 1].searched
    assert own_search == (("grid", str(pvera_runs["components_no_noise", 0].path)),)
    of_beta = profile.runs("beta", tmp_path)[0]
    first, second = pvera_runs["benchmark", 0], pvera_runs["benchmark", 1]
    assert first.searched == (("beta", str(of_beta.path)),)
    assert second.searched == (*first.searched, ("grid", str(first.path)))
    runs.execute(replace(of_beta, training=profile.training))
    beta = results.read(of_beta.path)["chosen"]["grid"]["beta"]
    halfway = second.resolved()
    assert halfway.searched == second.searched[1:] and {c.beta for c in halfway.candidates} == {beta}
    runs.execute(first)
    (candidate,) = second.resolved().candidates
    assert candidate.beta == beta and candidate.grid == results.read(first.path)["chosen"]["grid"]


CHANGES = {
    "another order": {"grid": [1e-2, 1e-3, 1e-4]},
    "fewer values": {"grid": [1e-3, 1e-2]},
    "other values": {"grid": [1e-4, 1e-3, 3e-2]},
    "another β": {"beta": [1e-6]},
    "more epochs": {"training": TrainingConfig(epochs=2)},
    "half precision": {"precision": "bfloat16"},
    "few images": {"images": 10},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_search_of_another_configuration_chooses_for_no_other_seed(change, profile, tmp_path):
    """It will be replaced; until then the other seeds wait."""

    def runs_of(grid: list[float], **changes) -> list[runs.Run]:
        settings = {"training": TrainingConfig(epochs=1), "beta": [1e-3], "search_once": True, "datasets": ["digits"]}
        methods = {"pvera": {"rank": 4, "grid": {"learning_rate": grid}}}
        return replace(profile, methods=methods, **settings | changes).runs("benchmark", tmp_path)

    grid = [1e-4, 1e-3, 1e-2]
    first, second = runs_of(grid)
    runs.execute(first)
    chosen = results.read(first.path)["chosen"]["grid"]
    assert [c.grid for c in second.resolved().candidates] == [chosen]
    first, second = runs_of(**{"grid": grid} | CHANGES[change])
    assert first.state() == "different" and second.waits and second.resolved() == second
    assert pending([first, second], replace=True) == [first, second]
    with pytest.raises(InputError, match="/benchmark/.* is missing, or .* was made with another configuration$"):
        runs.execute(second)
    runs.execute(first)
    assert [run.waits for run in pending([first, second], replace=True)] == [False]


def test_what_waits_for_a_result_that_is_replaced_waits_again(profile, tmp_path):
    """Here the data has changed, of which a plan says nothing."""
    methods = {"pvera": profile.methods["pvera"]}
    settings = {"methods": methods, "search_once": True, "datasets": ["digits"], "training": TrainingConfig(epochs=1)}
    listed = [run for name in ("beta", "benchmark") for run in replace(profile, **settings).runs(name, tmp_path)]
    for run in listed:
        runs.execute(run)
    assert pending(listed) == pending(listed, replace=True) == []
    image = tmp_path / "data/digits/images/test3.png"
    image.write_bytes((tmp_path / "data/digits/images/test4.png").read_bytes())
    assert pending(listed, replace=True) == listed


def test_ablations_search_the_rates_of_searches(profile, tmp_path):
    searched = replace(profile, ablations=Ablations(["digits"], [2, 4], ["q"], search=True, seeds=[1]))
    (run,) = searched.runs("rank", tmp_path)
    assert run.seed == 1
    assert [c.grid for c in run.candidates] == [{"rank": r, "learning_rate": rate} for r in (2, 4) for rate in RATES]
