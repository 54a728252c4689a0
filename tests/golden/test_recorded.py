"""Runs give the numbers that they gave before: each method on images and on texts, and an analysis.

Numbers are equal up to rounding, which depends on processor and torch.
"""

import json
from functools import partial

import pytest
import recorded
import torch

from pvera.study import plan

NUMBERS = json.loads(recorded.FILE.read_text())
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-7, check_dtype=False)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return recorded.of_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return recorded.of_texts(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("method", recorded.METHODS)
def test_each_method_on_images(images, method, tmp_path):
    close(recorded.training(images, "benchmark", method, tmp_path), NUMBERS["images"][method])


@pytest.mark.parametrize("method", recorded.ON_TEXTS)
def test_each_method_on_texts(texts, method, tmp_path):
    numbers, expected = (
        recorded.training(texts, "benchmark", method, tmp_path),
        NUMBERS["texts"][method],
    )
    for each in (numbers, expected):
        each["test"].pop(
            "ace"
        )  # many texts are alike to this encoder: rounding puts them into one bin or the next
    close(numbers, expected)


def test_an_analysis(images, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "SAMPLE_COUNTS", [2, 4])  # as it was recorded
    recorded.training(images, "benchmark", "pvera", tmp_path)
    no_longer_made = ("covered", "truth_images")
    expected = {
        name: value for name, value in NUMBERS["uncertainty"].items() if name not in no_longer_made
    }
    made = recorded.analysis(images, tmp_path)
    for added in ("single_confidence", "single_predicted"):  # after the recording
        made.pop(added)
    close(made, expected)
