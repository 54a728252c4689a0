"""The sentences of a caption that say which runs are behind a table."""

from collections.abc import Iterable

import pandas as pd

from pvera.report.scores import Records, Result, chosen_member, diverged, record_of
from pvera.report.text import title
from pvera.study.records import IDENTITY
from pvera.study.stopping import LIMIT

#: More data sets than these are counted, not named.
MAX_NAMED = 6


def caption_source(results: Iterable[Result]) -> str:
    """Describe the runs behind a table, for its caption.

    Args:
        results: Of trainings or of analyses on one backbone.

    Returns:
        Sentences: profile, protocol, seeds, data sets and limits; then how many runs are missing or
        diverged.
    """
    # Components may share trainings, which then come twice: one record per identity.
    by_identity = {tuple(map(record.get, IDENTITY)): record for record in map(record_of, results)}
    records = list(by_identity.values())
    first = records[0]
    seeds = sorted({record["seed"] for record in records})
    facts = [
        f"Profile {first['profile']}, {first['protocol']} protocol",
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        *_data_phrases(records),
        *_limit_phrases(records),
    ]

    count = len(records)
    sentences = ["; ".join(facts), f"{count} runs" if count > 1 else "1 run"]
    # An analysis has no members and no scores.
    if "members" in first:
        expected = _expected_runs(records)
        if expected > count:
            sentences.append(f"Missing: {expected - count} of {expected}")
        without_scores = sum(map(diverged, records))
        if without_scores:
            sentences.append(f"Diverged and left out: {without_scores}")
    return " ".join(f"{sentence}." for sentence in sentences)


def _limit_phrases(records: Records) -> list[str]:
    """Return the limits that the trainings of `records` share, as phrases."""
    config = records[0]["config"]
    phrases = []
    if "max_epochs" in config:
        phrase = f"at most {config['max_epochs']} epochs"
        chosen = [chosen_member(record) for record in records if not diverged(record)]
        # The limit ended these before early stopping did.
        ended = sum(member["status"] == LIMIT for member in chosen)
        if ended:
            phrase += f" ({ended} of {len(chosen)} chosen trainings reached this limit)"
        phrases.append(phrase)
    if config["precision"] != "float32":
        phrases.append(config["precision"])
    if config["images"]:
        phrases.append(f"a trial on the first {config['images']} samples of each split")
    return phrases


def _data_phrases(records: Records) -> list[str]:
    """Return the data sets, their copy, and how it differs from VTAB-1k, as phrases."""
    names = list(dict.fromkeys(record["dataset"] for record in records))
    # What `vtab.find_differences` found, once per data set.
    findings = dict.fromkeys(
        f"{title(record['dataset'])} {', '.join(record['data_differs'])}"
        for record in records
        if "data_differs" in record
    )
    copies = sorted({record["data_copy"] for record in records if record.get("data_copy")})

    named = f"data sets: {', '.join(map(title, names))}"
    phrases = [named if len(names) <= MAX_NAMED else f"{len(names)} data sets"]
    if copies:
        differences = f" ({'; '.join(findings)})" if findings else ""
        phrases.append(f"copy of the data: {copies[0]}{differences}")
    return phrases


def _expected_runs(records: Records) -> int:
    """Return the number of runs if each method had all its seeds on all its data sets."""
    runs = pd.DataFrame(records, columns=["experiment", "method", "dataset", "seed"])
    found = runs.groupby(["experiment", "method"])[["dataset", "seed"]].nunique()
    return (found["dataset"] * found["seed"]).sum()
