"""Figure 7: Maps of the last layer's latents over the patches of a few images, for VeRA and PVeRA (Section 4.4).

    python experiments/latents.py --profile demo

Takes the adapters that experiments/train.py has left on the profile's first data set. Writes
results/<profile>/latents/<backbone>/<dataset>/<method>/seed<k>.json and, beside it, .npz with maps and
images. What exists is not computed again; what was made with another adapter is reported.
"""

from options import parse_training
from profile_options import changed, read_profile
from train import start

from pvera.study.script import run


def main() -> None:
    options = parse_training(__doc__, "latents")
    start(changed(read_profile(options.profile), options), options)


if __name__ == "__main__":
    run(main)
