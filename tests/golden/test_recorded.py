"""Runs give the numbers that they gave before: each method on images and on texts, and an analysis.

Numbers are equal up to rounding, which depends on processor and torch.
"""

import json

import numpy as np
import pytest
import recorded

NUMBERS = json.loads(recorded.FILE.read_text())


def assert_close(actual, expected, place: str = "") -> None:
    """Compare nested dicts and lists, number by number."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), place
        for name in expected:
            assert_close(actual[name], expected[name], f"{place}.{name}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), place
        for index, value in enumerate(expected):
            assert_close(actual[index], value, f"{place}[{index}]")
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-7, err_msg=place)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return recorded.of_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return recorded.of_texts(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("method", recorded.METHODS)
def test_each_method_on_images(images, method, tmp_path):
    assert_close(recorded.training(images, "benchmark", method, tmp_path), NUMBERS["images"][method])


@pytest.mark.parametrize("method", recorded.ON_TEXTS)
def test_each_method_on_texts(texts, method, tmp_path):
    assert_close(recorded.training(texts, "language", method, tmp_path), NUMBERS["texts"][method])


def test_an_analysis(images, tmp_path):
    recorded.training(images, "benchmark", "pvera", tmp_path)
    no_longer_made = ("covered", "truth_images")
    expected = {name: value for name, value in NUMBERS["uncertainty"].items() if name not in no_longer_made}
    assert_close(recorded.analysis(images, tmp_path), expected)


def test_the_comparison_notices_differences():
    pvera = NUMBERS["images"]["pvera"]
    for other in (pvera | {"test": {}}, pvera | {"curves": pvera["curves"][:1]}, NUMBERS["images"]["vera"]):
        with pytest.raises(AssertionError):
            assert_close(other, pvera)
    assert_close(pvera, pvera)
