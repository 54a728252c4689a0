#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
trap 'exit 130' INT

for argument in "$@"; do
    if [ "$argument" = -h ] || [ "$argument" = --help ]; then
        cat <<'TEXT'
usage: bash run_all.sh [demo|synthetic|vtab_tiny|vtab_small|rehearsal|paper|paper_text] [options of experiments/train.py]

Sets up .venv on first use, trains the profile's missing runs, analyses their adapters (uncertainty, out of
distribution, latents, costs), executes the notebooks in analysis/ on its results and prints the main table.

  demo       three small tasks, no download (default): 7 to 20 minutes on two cores, set-up included
  synthetic  twelve tasks that a program draws, no download; results are committed: docs/synthetic.md
  vtab_tiny  VTAB-1k at 32 pixels on ViT-Ti/8: days on two cores; --datasets names some of the 19
  vtab_small VTAB-1k at 98 pixels on DINOv2 ViT-S/14: needs a GPU, or patience
  rehearsal  paper with stand-ins for data and weights, no download: minutes on two cores
  paper      VTAB-1k on DINOv2: downloads what is not there, and needs a GPU
  paper_text GLUE on DeBERTa-V3, likewise

After an interruption, the same command resumes. Results lie in results/<profile>, figures and executed notebooks in
figures/<profile>. Among the options are

  --slurm [FILE]   submits the runs to the cluster in FILE (experiments/slurm.yaml), and waits for them
  --workers N      trains N runs side by side on this machine, on its GPUs in turn
  --help           this text; python experiments/train.py --help lists all options
TEXT
        exit
    fi
done
profile=demo
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    profile=$1
    shift
fi
if [ ! -f "experiments/profiles/$profile.yaml" ]; then
    echo "error: no profile '$profile' in experiments/profiles" >&2
    exit 2
fi

source setup_env.sh
if [ "$profile" = rehearsal ]; then
    python experiments/rehearsal.py "$@"
else
    python experiments/run_profile.py "$profile" "$@"
fi
