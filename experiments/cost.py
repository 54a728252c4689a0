"""Count parameters and multiply-adds of every configuration in a profile's grids.

    python experiments/cost.py --profile mini

writes results/<profile>/cost/<backbone>.json for the profile, and results/paper/cost for the paper's real
sizes (DINOv2 ViT-S, B and L at 224 pixels), which the notebook shows beside it. Counting needs the shapes of
the backbones only, so nothing is downloaded. What exists is not counted again.
"""

import argparse
from pathlib import Path

from tqdm import tqdm

from pvera import efficiency
from pvera.errors import run
from pvera.profiles import Profile

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--profile", default="demo", help="name in experiments/profiles, or a YAML file")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the results")
    options = parser.parse_args()

    missing = []
    for name in dict.fromkeys([options.profile, efficiency.SIZES]):
        path = Path(name)
        profile = Profile.read(path if path.suffix else Path(__file__).parent / "profiles" / f"{name}.yaml")
        for backbone in profile.backbones:
            config = efficiency.config(profile, backbone)
            path = efficiency.record_path(options.results, profile.name, backbone)
            state = efficiency.state(path, config)
            if state == "different":
                print(f"{path} was counted for other grids: counting again", flush=True)
            if state != "done":
                missing.append((profile, backbone, path, len(config["methods"])))

    with tqdm(total=sum(number for *_, number in missing), unit="configuration", disable=not missing) as bar:
        for profile, backbone, path, _ in missing:
            bar.set_description(f"cost, {profile.name}: {backbone}")
            efficiency.write(path, efficiency.measure(profile, backbone, bar.update))


if __name__ == "__main__":
    run(main)
