"""Compute the last layer's latents of VeRA and PVeRA in and out of distribution (Figure 6, Section 4.4).

    python experiments/out_of_distribution.py --profile demo

Reads the adapters of experiments/train.py on the first data set of each category, and gives each adapter the test
images of all these data sets. Writes results/<profile>/out_of_distribution/<backbone>/<dataset>/<method>/seed<k>.json
and, beside it, .npz with a value per image. Existing results are not computed again; the script reports those of
another adapter.
"""

from train import launch

from pvera.study.script import run


def main() -> None:
    launch(__doc__, "out_of_distribution")


if __name__ == "__main__":
    run(main)
