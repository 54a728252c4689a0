"""Profiles: keys, refusals and their messages."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pvera import InputError
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig

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
    assert profile.draws == [2, 4, 8, 16]
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
