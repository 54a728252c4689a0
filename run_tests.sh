#!/usr/bin/env bash
# Checks the code in .venv, which is made on first use. Arguments go to pytest.
#   bash run_tests.sh                  what CI checks: style, types, layers, and all tests except the slow ones
#   bash run_tests.sh -m slow          only the slow tests
#   bash run_tests.sh -n 0 -k merge    in one process, the tests whose name has "merge"
# With PVERA_CIFAR10_ZIP=FILE, a zip of <class>/<number>.jpg, also the tests on CIFAR-10's photographs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
trap 'exit 130' INT
source setup_env.sh
install_for_tests
if [ $# -eq 0 ]; then
    ruff check --quiet .
    ruff format --check --quiet .
    mypy --no-error-summary
    lint-imports --no-logo
fi
# Two processes of one thread each: the models are too small to share among threads.
export OMP_NUM_THREADS=1
python -m pytest -n 2 "$@"
