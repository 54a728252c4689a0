"""GLUE's files with their quirks, the split into training and validation."""

import numpy as np
import pytest

from pvera.data import glue
from pvera.errors import InputError

#: Lines of the original files.
LINES = {
    "cola": b"gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThe \"more pseudo they.\n",
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
    file = root / glue.GLUE[name].folder / f"{split}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("name", LINES)
def test_original_files(tmp_path, name):
    place(tmp_path, name, LINES[name])
    loaded = glue.load_split(tmp_path, name, "test")
    texts, labels = READ[name]
    assert loaded.texts == texts
    assert loaded.labels.tolist() == labels and loaded.labels.dtype == np.int64


def test_split_is_a_fixed_permutation(tmp_path):
    lines = "".join(f"x\t{i % 2}\t\ttext {i}\n" for i in range(101))
    place(tmp_path, "cola", lines.encode(), "train")
    train, validation = (glue.load_split(tmp_path, "cola", split) for split in ("train", "validation"))
    assert (len(train), len(validation)) == (81, 20)
    assert sorted(train.texts + validation.texts) == sorted((f"text {i}",) for i in range(101))
    assert train.texts != sorted(train.texts)
    assert [int(t[0].split()[1]) % 2 for t in train.texts] == train.labels.tolist()
    assert glue.load_split(tmp_path, "cola", "train").texts == train.texts


BAD = {
    "columns": ("cola", b"a\t1\t\tgood\nb\t1\tbad\n", "line 2: expected 4 columns, not 3"),
    "label": ("cola", b"a\t2\t\tgood\n", "line 1: label '2' is not one of 0, 1"),
    "word": ("rte", b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tyes\n", "line 2: label 'yes' is not one of entail"),
    "header": ("rte", b"0\ta\tb\tentailment\n", "line 1: expected the header"),
    "empty": ("cola", b"", "is empty"),
    "header alone": ("rte", b"index\tsentence1\tsentence2\tlabel\n", "is empty"),
    "encoding": ("cola", b"a\t1\t\tgood\na\t1\t\t\xff\xfe\n", "cannot be read: line 2 is not UTF-8 text"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_line(tmp_path, case):
    name, content, message = BAD[case]
    file = place(tmp_path, name, content)
    with pytest.raises(InputError) as error:
        glue.load_split(tmp_path, name, "test")
    assert str(file) in str(error.value) and message in str(error.value) and "\n" not in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="train.tsv does not exist"):
        glue.load_split(tmp_path, "rte", "validation")
