"""Train the language experiment of a profile (Table 5): three tasks of GLUE.

    python experiments/train_language.py --profile mini

Each run writes results/<profile>/<experiment>/<encoder>/<task>/<method>/seed<k>.json. Existing results are kept.

experiments/make_texts.py puts GLUE's files into the profile's folder. Experiments with `all_images` take all texts of
their tasks, whatever --images says. Other options are those of experiments/train.py.
"""

import train

from pvera.errors import run_script

if __name__ == "__main__":
    run_script(lambda: train.main(__doc__, "train_language"))
