"""The change of the accuracy in another precision, on hand-made records."""

import pytest
from records import make_record

from pvera.errors import InputError
from pvera.report.tables import precision


def runs(correct, kind):
    return [
        make_record(method, dataset, seed, value, 100, config={"precision": kind})
        for (method, dataset), values in correct.items()
        for seed, value in enumerate(values)
    ]


FULL = runs(
    {("lora", "digits"): [50, 52, 54], ("pvera", "digits"): [60, 60, 63], ("lora", "vessels"): [1, 2, 3]}, "float32"
)
HALF = runs({("lora", "digits"): [53, 53, 56], ("pvera", "digits"): [60, 58]}, "bfloat16")


def test_changes_by_hand():
    """LoRA: 54 against 52, deviation 2. PVeRA: 59 against 60 of the two seeds that both have, deviation 0."""
    data = precision.precision_table(FULL, HALF).data.set_index("method")
    assert data["change"].to_dict() == pytest.approx({"lora": 2, "pvera": -1})
    assert data["spread"].to_dict() == pytest.approx({"lora": 2, "pvera": 0})
    assert data["within"].to_dict() == {"lora": True, "pvera": False}


def test_runs_on_other_data_are_not_compared():
    other = [HALF[0] | {"config": HALF[0]["config"] | {"data_sha256": "drawn anew"}}, *HALF[1:]]
    with pytest.raises(InputError, match="lora/digits/0: the runs differ in more than the precision: in data_sha256"):
        precision.precision_table(FULL, other)


def test_table():
    made = precision.precision_table(FULL, HALF)
    (cells,) = made.texts().values()
    assert cells["Digits"].to_dict() == {"LoRA": "+2.0 (2.0)", "PVeRA": "−1.0 (0.0)"}
    assert "bfloat16 minus that in float32" in made.caption and "1 of 2 changes" in made.caption
    assert "change is +0.50 points" in made.caption
