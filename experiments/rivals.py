"""Compare PVeRA's draws with other uncertainty methods on the same backbone.

    python experiments/rivals.py --profile mini

Reads the adapters that experiments/train.py keeps (benchmark, dropout, beta_effects), all seeds of a method at once.
Computes one pass with the mean, Monte Carlo samples of PVeRA and of dropout, ensembles of seeds, and Laplace
approximations of the last layer, each before and after temperature scaling; on the test images, on corrupted ones, and
on those of other data sets. Writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json, k the
first seed, and, beside it, .npz with the scores. Existing results are not computed again; the script reports those of
other adapters.
"""

from train import launch

from pvera.study.script import run


def main() -> None:
    launch(__doc__, "rivals")


if __name__ == "__main__":
    run(main)
