"""Train what a profile lists.

    python experiments/train.py --profile demo

    beta        searches PVeRA's β where the paper gives none; the others need it
    benchmark   every method on every data set with every seed
    rank        PVeRA with several ranks
    position    PVeRA on several combinations of query, key and value
    protocol    the differences between the paper and its published program, one at a time

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit what is missing, and return
    python experiments/train.py --profile paper --status                 what has become of it

experiments/slurm.yaml explains what the file holds. What is queued or running is not submitted again.
"""

from pvera import cli
from pvera.errors import run
from pvera.profiles import EXPERIMENTS

if __name__ == "__main__":
    run(lambda: cli.main(__doc__, EXPERIMENTS))
