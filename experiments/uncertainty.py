"""Run Monte Carlo inference with PVeRA's adapters (Figures 5, 8 and 9, Algorithm 1, Section 4.3, appendix C).

    python experiments/uncertainty.py --profile demo

Computes, per test image and number of draws, the spread of the softmax scores, whether the image counts as correct
(Algorithm 1), and the 95 % t-interval of the most predicted class's score; on some images also whether the interval
holds the mean of many further draws. Writes results/<profile>/uncertainty/<backbone>/<dataset>/pvera/seed<k>.json and,
beside it, .npz. Existing results are not computed again; the script reports those of another adapter.
"""

from train import launch

from pvera.study.script import run


def main() -> None:
    launch(__doc__, "uncertainty")


if __name__ == "__main__":
    run(main)
