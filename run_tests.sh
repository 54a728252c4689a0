#!/usr/bin/env bash
# Runs the tests in .venv, which is made on first use. Arguments go to pytest.
#   bash run_tests.sh                  all but the slow ones
#   bash run_tests.sh -m slow          the slow ones
#   bash run_tests.sh -n 0 -k merge    in one process, those whose name has "merge"
# With PVERA_CIFAR10_ZIP=FILE, a zip of <class>/<number>.jpg, also those on CIFAR-10's photographs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
trap 'exit 130' INT
source setup_env.sh
# Two processes of one thread each: the models are too small to share among threads.
export OMP_NUM_THREADS=1
python -m pytest -n 2 "$@"
