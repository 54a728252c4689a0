"""The language experiment from its profile to its result files."""

from dataclasses import replace

import pytest
import scripts
from sklearn.metrics import matthews_corrcoef
from text_tasks import encoder, encoder_folder, text_folder  # noqa: F401  fixtures

from pvera.data import glue, inputs
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile


@pytest.fixture
def profile(tmp_path, encoder_folder, text_folder):
    """A profile file."""
    path = tmp_path / "small.yaml"
    path.write_text(f"""
data: unused
backbones: [tiny]
datasets: [digits]
seeds: [0, 1]
protocol: corrected
methods: {{adaptformer: {{}}, lora: {{grid: {{rank: [2, 4]}}, most_chosen: 4}}, pvera: {{rank: 4}}}}
learning_rate: 1.0e-2
language: {{data: {text_folder}, backbones: [minilm], datasets: [cola], schedule: {{epochs: 1}},
           weights: {{minilm: {encoder_folder}}},
           experiments: {{language_beta: {{methods: [pvera], seeds: [0], grid: {{beta: [1.0e-2, 1.0e-4]}}}},
                          language: {{take: [language_beta], keep: true}}}}}}
""")
    return path


def arguments(profile, *more) -> list:
    return ["--profile", profile, "--device", "cpu", "--results", profile.parent / "results", *more]


def test_from_the_profile_to_the_result_files(profile, encoder, text_folder, capsys):
    text, root = Profile.read(profile).of_language().with_(seeds=[0]), profile.parent / "results"
    for experiment in ("language_beta", "language"):
        for run in list_runs(text, experiment, root):
            run.execute()
            assert run.state() == "done" and run.pool == "mean"
    (search,) = results.load_runs(root, "small", "language_beta")
    lora, run = results.load_runs(root, "small", "language")
    assert len(lora["members"]) == 2 and run["category"] == "language" and run["config"]["max_length"] == 30
    assert {m["beta"] for m in run["config"]["members"]} == {search["chosen"]["grid"]["beta"]}
    probabilities, labels = results.read_predictions(results.path_of(root, run))
    (test,) = inputs.load(text_folder, "cola", encoder, ["test"])
    assert labels.tolist() == test.labels.tolist()
    assert run["test"]["matthews"] == pytest.approx(matthews_corrcoef(labels, probabilities.argmax(1)), abs=0.1)
    scripts.execute("train_language", *arguments(profile, "--seeds", "0", "--list"))
    assert "small, language: 2 of 2 runs are there" in capsys.readouterr().out


BAD = {
    "without GLUE's files": (["--datasets", "rte"], "train.tsv does not exist"),
    "images": (["--datasets", "vessels"], "'vessels' is a data set of images"),
    "no section": (["--profile", "demo"], "profile 'demo' has no language experiment"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(profile, text_folder, case, capsys, monkeypatch):
    cause, message = BAD[case]
    monkeypatch.setitem(glue.GLUE, "rte", replace(glue.GLUE["rte"], folder="elsewhere"))
    assert message in scripts.refusal("train_language", capsys, *arguments(profile, *cause))
