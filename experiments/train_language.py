"""Train the language experiment of a profile (Table 5): GLUE, and generated text tasks.

    python experiments/train_language.py --profile mini

Each run writes results/<profile>/<experiment>/<encoder>/<task>/<method>/seed<k>.json. Existing results are kept.

GLUE's tasks without files in the profile's folder are left out, unless --datasets names them;
experiments/make_texts.py --glue puts the files there. The experiment full_sets trains on all texts of its tasks,
whatever --images says. Other options are those of experiments/train.py.
"""

from argparse import Namespace
from pathlib import Path

from train import parse_training, start

from pvera.data import glue
from pvera.errors import run_script
from pvera.study.profiles import Profile


def main(words: list[str] | None = None) -> None:
    profile, options = parse_training(__doc__, "train_language", words)
    start(at_hand(profile, options), options)


def at_hand(profile: Profile, options: Namespace) -> Profile:
    """Return `profile` without GLUE's missing tasks, if other tasks are left and --datasets names none."""
    there = [
        name
        for name in profile.datasets
        if glue.TASKS[name].suite != "glue" or (Path(profile.data) / glue.TASKS[name].folder).exists()
    ]
    if options.datasets or not there or there == profile.datasets:
        return profile
    absent = ", ".join(glue.TASKS[name].title for name in profile.datasets if name not in there)
    print(f"{profile.name}: without {absent}, which experiments/make_texts.py --glue puts there")
    return profile.with_(datasets=there)


if __name__ == "__main__":
    run_script(main)
