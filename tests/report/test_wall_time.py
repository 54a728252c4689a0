"""The time of a profile by experiment, on hand-made records."""

from records import make_record, write_all

from pvera.report.tables import wall_time


def records():
    def of(seconds, **options):
        return make_record(**options) | {"cost": {"wall_seconds": seconds, "peak_memory_mb": 1}}

    return [
        of(60, method="lora"), of(180, method="lora", seed=1), of(24, method="linear"),
        # Further seeds of a grid that the benchmark searched: each data set has its own value.
        of(20, experiment="components_vera", method="vera", seed=3, grid={"learning_rate": [1e-3]}),
        of(40, experiment="components_vera", method="vera", seed=3, dataset="vessels", grid={"learning_rate": [1e-2]}),
        of(36, experiment="protocol_published"), of(60, experiment="protocol_shuffle"),
        of(240, experiment="uncertainty") | {"members": []},
    ]  # fmt: skip


def test_shares_and_epochs_by_hand(tmp_path):
    write_all(tmp_path, records())
    data = wall_time.wall_times(tmp_path, "mine")
    assert len(data) == 8 and data["seconds"].sum() == 660
    experiments, methods = (
        cells.T.to_dict("list") for cells in wall_time.wall_time_table(data, "mine").texts().values()
    )
    # Grids of two and three members, 23 epochs each.
    assert methods == {"Linear": ["1", "0.4", "46", "0.52"], "LoRA": ["2", "4.0", "138", "1.74"]}
    assert experiments == {
        "Benchmark": ["3", "4.4", "40.0", "88.0"],
        "Components": ["2", "1.0", "9.1", "30.0"],
        "Differences of the protocols": ["2", "1.6", "14.5", "48.0"],
        "Monte Carlo inference": ["1", "4.0", "36.4", "240.0"],
    }
