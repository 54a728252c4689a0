"""Figure 6: The last layer's latents of VeRA and PVeRA adapters in and out of distribution (Section 4.4).

    python experiments/out_of_distribution.py --profile demo

Takes the adapters that experiments/train.py has left on the first data set of each category, and gives each
the test images of all of these. Writes
results/<profile>/out_of_distribution/<backbone>/<dataset>/<method>/seed<k>.json and, beside it, .npz with a
value per image. What exists is not computed again; what was made with another adapter is reported.
"""

from options import parse_training
from profile_options import changed, read_profile
from train import start

from pvera.study.script import run


def main() -> None:
    options = parse_training(__doc__, "out_of_distribution")
    start(changed(read_profile(options.profile), options), options)


if __name__ == "__main__":
    run(main)
