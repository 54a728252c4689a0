"""Profiles, changed by a script's options."""

import os
from argparse import Namespace
from pathlib import Path

from options import ROOT

from pvera.errors import InputError
from pvera.study.profiles import Profile


def read_profile(name: str) -> Profile:
    """Read the profile of that name in experiments/profiles, or in that file."""
    path = Path(name)
    return Profile.read(path if path.suffix else ROOT / "experiments" / "profiles" / f"{name}.yaml")


def changed(profile: Profile, options: Namespace) -> Profile:
    """Return `profile` with the command line's changes: an option replaces the key of the same name."""
    if options.methods:
        unknown = {name: {} for name in options.methods if name not in profile.methods}
        kept = {name: profile.methods[name] for name in profile.methods if name in options.methods}
        profile = profile.with_(methods=kept | unknown)
    schedule = {key: getattr(options, key) for key in ("epochs", "batch_size")}
    profile = profile.with_(training=profile.training.with_(**schedule))
    if options.learning_rate is not None:
        profile = profile.with_(methods={name: fixed(one, options) for name, one in profile.methods.items()})
    replaced = vars(profile).keys() & vars(options).keys() - {"methods", "weights"}
    profile = profile.with_(**{key: getattr(options, key) for key in replaced})
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


def fixed(of_method: dict, options: Namespace) -> dict:
    """Return a method's settings with the learning rate of the command line in place of a grid of learning rates."""
    if "learning_rate" not in of_method.get("grid", {}):
        return of_method
    others = {key: value for key, value in of_method.items() if key not in ("grid", "most_chosen")}
    return others | {"learning_rate": options.learning_rate}
