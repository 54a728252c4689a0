"""Analyse the adapters that trainings have left.

They are for Figures 1 and 5 to 9, Algorithm 1, Sections 4.3 and 4.4, and Appendix C:

    python experiments/analyse.py --profile demo

    uncertainty            several Monte Carlo samples of every test image: predictive standard
                           deviation, Algorithm 1, 95 % t-intervals
    out_of_distribution    latents of VeRA and PVeRA for images of other data sets
    latents                maps of latents over an image's patches
    focus                  how well latents find the patches of an object
    predictors             PVeRA's samples against one pass, an ensemble of the seeds, and samples
                           of latent dropout

Each writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json and .npz.
Existing results are not computed again; the script reports those of another adapter.
"""

from argparse import Namespace

from execution import carry_out
from own_pictures import own_pictures_installed
from study_options import changed_profile, parse

from pvera.errors import run_script
from pvera.study.plan import ANALYSES


def main() -> None:
    """Analyse what the command line asks for."""
    analyse(parse(__doc__))


def analyse(options: Namespace) -> None:
    """Analyse the adapters of a profile's trainings."""
    with own_pictures_installed(options) as changed:
        profile = changed_profile(changed)
        names = ANALYSES if profile.analyses is None else profile.analyses
        carry_out(profile, names, changed)


if __name__ == "__main__":
    run_script(main)
