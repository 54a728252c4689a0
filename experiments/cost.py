"""Count parameters and multiply-adds of every configuration in a profile's grids (Figure 3).

    python experiments/cost.py --profile synthetic

Writes results/<profile>/cost/<backbone>.json for the profile, and results/paper/cost for the
paper's sizes (DINOv2 ViT-S, B and L at 224 pixels), which the notebook shows too. Counting needs
only the backbones' shapes, so nothing is downloaded. Existing records are not counted again.
"""

import json
from pathlib import Path

from options import RESULTS, Parser, read_profile
from tqdm import tqdm

from pvera.errors import run_script
from pvera.files import read_json, write_atomically
from pvera.study import cost_records


def main() -> None:
    """Count the costs of the profile on the command line."""
    parser = Parser(__doc__)
    words = "name in experiments/profiles, or a YAML file (%(default)s)"
    parser.add_argument("--profile", default="demo", help=words)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    count(options.results, options.profile)


def count(root: Path, name: str) -> None:
    """Count the costs of a profile and of the paper's sizes that `root` lacks."""
    for each in dict.fromkeys([name, cost_records.PAPER_PROFILE]):
        profile = read_profile(each)
        for backbone in tqdm(profile.backbones, f"cost, {profile.name}", unit="backbone"):
            path = root / profile.name / "cost" / f"{backbone}.json"
            config = cost_records.counted_config(profile, backbone)
            # A grid that was changed since is counted again.
            if path.exists() and read_json(path)["config"] == config:
                continue
            record = cost_records.measure(profile, backbone)
            write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run_script(main)
