"""Analyse the adapters that trainings have left (Figures 1 and 5 to 9, Algorithm 1, Sections 4.3 and 4.4, appendix C).

    python experiments/analyse.py --profile demo

uncertainty draws several Monte Carlo samples of every test image: spread, Algorithm 1 and 95 % t-intervals.
out_of_distribution and latents look at the last layer's latents of VeRA and PVeRA. rivals, dropout_rivals and
beta_rivals hold PVeRA's draws against other methods of uncertainty on all seeds at once: dropout, ensembles, Laplace,
temperature scaling; on the test images, on corrupted ones, and on those of other data sets.

Each analysis writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json and, beside it, .npz.
Existing results are not computed again; the script reports those of another adapter.
"""

from train import parse, start

from pvera.errors import run_script


def main(words: list[str] | None = None) -> None:
    start(parse(__doc__, "analyse", words))


if __name__ == "__main__":
    run_script(main)
