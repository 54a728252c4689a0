"""The language experiment from its profile to its result files."""

from dataclasses import replace

import pytest
import scripts
from sklearn.metrics import matthews_corrcoef
from text_tasks import encoder, encoder_folder, text_folder  # noqa: F401  fixtures

from pvera.data import glue, inputs
from pvera.report.scores import score_frame
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile

METHODS = ("linear", "bottleneck", "ia3", "dora", "lora", "vera", "pvera")


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
methods: {{linear: {{}}, bottleneck: {{ratio: 4}}, ia3: {{}}, adaptformer: {{}}, dora: {{rank: 2}},
          lora: {{grid: {{rank: [2, 4]}}, most_chosen: 4}}, vera: {{rank: 4}}, pvera: {{rank: 4}}}}
learning_rate: 1.0e-2
language: {{data: {text_folder}, backbones: [minilm], datasets: [cola], schedule: {{epochs: 1}},
           methods: {{vera: {{rank: 6}}}}, weights: {{minilm: {encoder_folder}}},
           experiments: {{language_beta: {{methods: [pvera], seeds: [0], grid: {{beta: [1.0e-2, 1.0e-4]}}}},
                          language: {{take: [language_beta], keep: true}}}}}}
""")
    return path


def arguments(profile, *more) -> list:
    return ["--profile", profile, "--device", "cpu", "--results", profile.parent / "results", *more]


def test_from_the_profile_to_the_result_files(profile, encoder, text_folder, capsys):
    text = Profile.read(profile).of_language().with_(datasets=["cola"], seeds=[0])
    root = profile.parent / "results"
    for experiment in ("language_beta", "language"):
        for run in list_runs(text, experiment, root):
            run.execute()
            assert run.state() == "done"
    (search,) = results.load_runs(root, "small", "language_beta")
    assert not list((root / "small" / "language_beta").rglob("*.npz"))
    records = results.load_runs(root, "small", "language")
    (test,) = inputs.load(text_folder, "cola", encoder, ["test"])
    assert [run["method"] for run in records] == sorted(METHODS)
    compared = []
    for record in records:
        assert (record["category"], record["config"]["max_length"]) == ("language", 30)
        assert "image_size" not in record["config"] and record["environment"]["transformers"]
        run = next(run for run in list_runs(text, "language", root) if run.method == record["method"])
        probabilities, labels = results.read_predictions(run.path)
        assert labels.tolist() == test.labels.tolist()
        assert record["config"]["pool"] == "mean"
        if (probabilities[:, 0] != probabilities[:, 1]).all():  # fp16 makes some scores equal
            assert record["test"]["matthews"] == pytest.approx(matthews_corrcoef(labels, probabilities.argmax(1)))
            assert record["test"]["correct"] == (probabilities.argmax(1) == labels).sum()
            compared.append(record["method"])
    assert len(compared) > 3
    assert len(records[4]["members"]) == 2  # LoRA's grid
    assert {m["beta"] for m in records[5]["config"]["members"]} == {search["chosen"]["grid"]["beta"]}
    scores = score_frame(records, "matthews")
    assert scores.shape == (1, 7) and scores.index[0][0] == "language"
    scripts.execute("train_language", *arguments(profile, "--seeds", "0", "--list"))
    printed = capsys.readouterr().out
    assert "small, language_beta: 1 of 1 runs are there" in printed
    assert "small, language: 7 of 7 runs are there" in printed


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
