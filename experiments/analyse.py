"""Analyse the adapters that trainings have left (Figures 1 and 5 to 9, Algorithm 1, Sections 4.3 and 4.4, appendix C).

    python experiments/analyse.py --profile demo

    uncertainty            several Monte Carlo samples of every test image: spread, Algorithm 1, 95 % t-intervals
    out_of_distribution    latents of VeRA and PVeRA for images of other data sets
    latents                maps of latents over an image's patches
    focus                  how well latents find the patches of an object
    predictors             PVeRA's samples against one pass, an ensemble of the seeds, and samples of latent dropout

Each analysis writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json and, beside it, .npz.
Existing results are not computed again; the script reports those of another adapter.
"""

import train

from pvera.errors import run_script

if __name__ == "__main__":
    run_script(lambda: train.main(__doc__, "analyse"))
