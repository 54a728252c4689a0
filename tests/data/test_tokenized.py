"""Texts as tokens: batches and order."""

import numpy as np
import torch
from text_tasks import encoder, encoder_folder, text_folder  # noqa: F401  fixtures

from pvera.data import glue, tokenized


def test_batches_are_padded_to_their_own_longest(encoder, text_folder):
    texts = glue.load_split(text_folder, "rte", "test")
    batch = tokenized.TextData(tokenized.encode(encoder, texts), torch.device("cpu"))
    alone = [
        dict(encoder.tokenizer(*text, truncation=True, max_length=30, return_tensors="pt")) for text in texts.texts
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
    assert batch.labels.tolist() == texts.labels.tolist()
