"""Map the last layer's latents over the patches of a few images, for VeRA and PVeRA (Figure 7, Section 4.4).

    python experiments/latents.py --profile demo

Reads the adapters of experiments/train.py on the profile's first data set. Writes
results/<profile>/latents/<backbone>/<dataset>/<method>/seed<k>.json and, beside it, .npz with maps and images. Existing
results are not computed again; the script reports those of another adapter.
"""

from train import launch

from pvera.study.script import run


def main() -> None:
    launch(__doc__, "latents")


if __name__ == "__main__":
    run(main)
