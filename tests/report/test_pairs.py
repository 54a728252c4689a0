"""PVeRA's leads on each data set, with their intervals over test images."""

import numpy as np
from records import make_record

from pvera.report.tables import pairs
from pvera.study import results


def write_answers(root, correct):
    """Write predictions on two classes from method -> data set -> seed -> whether each test image is answered
    correctly."""
    records = []
    for method, of_method in correct.items():
        for dataset, of_seeds in of_method.items():
            for seed, right in enumerate(of_seeds):
                record = make_record(method, dataset, seed, int(np.sum(right)), len(right))
                path = results.run_path(root, *(record[key] for key in results.IDENTITY))
                labels = np.arange(len(right)) % 2
                results.write(path, record, np.eye(2)[np.where(right, labels, 1 - labels)], labels)
                records.append(record)
    return records


def test_leads_by_hand(tmp_path):
    """PVeRA is correct on 3 of 4 images with each seed, VeRA on 2 and 1: leads of 25 and 50 points."""
    runs = write_answers(tmp_path, {
        "vera": {"digits": [[1, 1, 0, 0], [1, 0, 0, 0]]}, "pvera": {"digits": [[1, 1, 1, 0], [1, 1, 1, 0]]},
    })  # fmt: skip
    (row,) = pairs.image_leads_table(tmp_path, runs, {}).data.itertuples()
    assert (row.method, row.lead, row.seeds, row.images, row.units) == ("vera", 37.5, 2, 4, 4)
    assert row.low < 37.5 < row.high and row.star  # 3 of 8 against 6 of 8
    table = pairs.image_leads_table(tmp_path, runs, {"digits": np.array([7, 7, 9, 9])})
    (row,) = table.data.itertuples()
    assert row.units == 2  # leads of 25 and 50 in two regions of two images
    assert row.lead == 37.5 and row.low < 0 < row.high
    assert "Data sets whose images share units: Digits (2 of 4)." in table.caption
    assert table.texts()[""].loc["Digits", "VeRA"].startswith(r"+37.5\* [")


def test_regions_widen_the_interval_and_the_star_stays(tmp_path):
    ahead = np.repeat(np.arange(20) < 12, 50)  # of each region, PVeRA alone answers all images or none
    runs = write_answers(tmp_path, {"vera": {"vessels": [~ahead]}, "pvera": {"vessels": [ahead]}})
    images, regions = (
        next(pairs.image_leads_table(tmp_path, runs, units).data.itertuples())
        for units in ({}, {"vessels": np.repeat(np.arange(20), 50)})
    )
    assert images.lead == regions.lead == 20 and images.star and regions.star
    assert images.low > 0 > regions.low
    assert regions.high - regions.low > 5 * (images.high - images.low)
