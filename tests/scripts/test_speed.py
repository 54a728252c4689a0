"""Timings: the record, the figures, and experiments/benchmark_speed.py on the small backbone."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import benchmark_speed
import pytest
import scripts

from pvera.report.tables import speed

ROOT = Path(__file__).resolve().parents[2]
MADE_BY = {"device": "cpu: Some(R) CPU", "threads": 2, "torch": "2", "timm": "1"}


def read(path):
    return json.loads(path.read_text())


def row(what="PVeRA, r = 8", part="step", precision="float32", ratio=1.2, target=1.25, backbone="tiny"):
    return part, backbone, precision, what, "frozen forward and backward", ratio, 1.0, ratio, target, None, None


def test_repeated_measurements_replace_old_ones(tmp_path):
    path = speed.record_path(tmp_path, MADE_BY["device"])
    assert path.name == "speed_cpu_some_r_cpu.json"
    speed.update(path, MADE_BY, [row("a"), row("a", precision="bfloat16"), row("b")])
    speed.update(path, MADE_BY, [row("b", part="memory"), row("a", ratio=1.1)])
    rows = [(r["what"], r["part"], r["precision"], r["ratio"]) for r in read(path)["rows"]]
    assert rows == [("a", "step", "float32", 1.1), ("a", "step", "bfloat16", 1.2), ("b", "step", "float32", 1.2),
                    ("b", "memory", "float32", 1.2)]  # fmt: skip
    assert speed.load_records(tmp_path) == [read(path)]
    assert path.with_suffix(".md").read_text() == speed.describe(read(path))


def described(*rows) -> str:
    return speed.describe({"environment": MADE_BY, "rows": [dict(zip(speed.COLUMNS, row)) for row in rows]})


def test_description_by_hand():
    rows = [
        row(), row("slow", ratio=1.3), row("free", target=None),
        ("memory", "tiny", "float32", "LoRA", "frozen", 3 * 2**20, 2 * 2**20, 1.5, 1.3, None, None),
        ("size", "tiny", "float32", "LoRA", "numbers", 41_000, 40_000, 1.025, 1.05, None, None),
    ]  # fmt: skip
    lines = described(*rows).splitlines()
    assert lines[2].endswith("| 1.200 s | 1.000 s | 1.200 | 1.25 | met |")
    assert lines[3].endswith("| 1.300 | 1.25 | **missed** |") and lines[4].endswith("| 1.200 |  |  |")
    assert "| 3 MiB | 2 MiB | 1.500 | 1.30 | **missed** |" in lines[5] and "| 41 kB | 40 kB |" in lines[6]
    spread = ("step", "tiny", "float32", "VeRA", "frozen", 1.0, 1.0, 1.1, 1.2, 1.05, 1.25)
    assert "| 1.100 (1.050 to 1.250) | 1.20 | met |" in described(spread)


def test_committed_records_are_their_pages():
    for path in (ROOT / "results/performance").glob("speed_*.json"):
        assert speed.describe(read(path)) == path.with_suffix(".md").read_text()


def test_paired_measurements_have_quartiles(monkeypatch):
    """Three pairs after the warm-up; a bound that counts twice."""
    bench = SimpleNamespace(seconds=lambda function: function())
    timed, frozen = iter([9, 4, 8, 18]), iter([9, 1, 1, 1.5])
    part = [("what", "bound", lambda: next(timed), lambda: next(frozen), 1.25, 2.0)]
    monkeypatch.setitem(benchmark_speed.PARTS, "step", lambda _: part)
    assert list(benchmark_speed.measure(bench, "step", 3)) == [("what", "bound", 8, 2, 4, 1.25, 3, 5)]


def test_the_script_measures_each_method(tmp_path, capsys):
    options = ("--backbones", "tiny", "--precisions", "float32", "--repeats", 1, "--output", tmp_path)
    scripts.execute("benchmark_speed", *options)
    (path,) = tmp_path.glob("speed_cpu_*.json")
    assert capsys.readouterr().out.strip() == path.with_suffix(".md").read_text().strip()
    rows = speed.frame(read(path))
    assert rows.groupby("part").size().to_dict() == {"step": 8, "evaluate": 5, "sample": 2}
    assert (rows[["value", "bound_value", "ratio", "low"]] > 0).all(axis=None)
    targets = rows[rows["part"] == "step"].set_index("what")["target"]
    assert targets["PVeRA, r = 32"] == targets["PVeRA, r = 32, grid of 3"] == 1.25 and targets["LoRA, r = 16"] == 1.15


def test_steps_beside_peft_are_of_equal_adapters(tmp_path, monkeypatch, capsys):
    """Losses of two steps agree: the first has b = 0, so that draws do not matter. Without peft there is one line."""
    small = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8}
    monkeypatch.setattr(benchmark_speed, "SIZES", small)
    bench = benchmark_speed.Bench(benchmark_speed.BESIDE_PEFT, "float32", "cpu")
    losses = {what: [function(), function()] for what, _, function, *_ in benchmark_speed.beside_peft(bench)}
    pairs = [(losses[what], losses[there]) for there in losses for what in losses if there.startswith(what + ", peft")]
    assert len(losses) == 11 and len(pairs) == 5
    for here, there in pairs:
        assert here[0] == pytest.approx(there[0], abs=1e-5) and here[1] < here[0]
    rows = {what: (here, frozen) for what, _, here, frozen, *_ in benchmark_speed.measure(bench, "memory", 1)}
    with_kl, without = (rows[f"PVeRA, r = 256{end}"] for end in (", KL term", ""))
    tokens, kept = 16 * 17, 4  # images and their tokens; adapted projections
    assert with_kl[0] - without[0] == pytest.approx(4 * 256 * tokens * kept, rel=0.01)  # μ in fp32
    assert without[0] > without[1] > 0
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "peft is not installed" in scripts.refusal(
        "benchmark_speed", capsys, "--parts", "peft", "--output", tmp_path
    )


def test_an_adapters_own_products_are_part_of_its_bound():
    rows = {what: values for what, *values in benchmark_speed.step(benchmark_speed.Bench("tiny", "float32", "cpu"))}
    assert rows["LoRA, r = 16"][0] == "frozen forward and backward" and rows["LoRA, r = 16"][-2:] == [1.15, 1.0]
    bound, *_, factor = rows["AdaptFormer, ratio = 4"]
    assert bound.endswith("and its own products") and 1 < factor < 1.5


@pytest.mark.parametrize(
    "option, value, message",
    [("--repeats", "0", "must be at least 1, not 0"), ("--backbones", "none", "unknown backbone 'none'")],
)
def test_bad_input_is_one_line(option, value, message, capsys):
    assert message in scripts.refusal("benchmark_speed", capsys, option, value)
