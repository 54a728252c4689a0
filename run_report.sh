#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
trap 'exit 130' INT

profile=${1:-}
if [ "$profile" = -h ] || [ "$profile" = --help ]; then
    cat <<'TEXT'
usage: bash run_report.sh [profile]

Builds a site from the outputs of the notebooks on the committed results, or on those of a profile: the notebooks by
their place in the paper, the tables, the documentation and the library's reference. It can be read without a server and
a network. Sets up .venv and .venv-site on first use; then it takes about a minute.
TEXT
    exit
fi
if [ $# -gt 1 ] || [ -n "$profile" ] && [ ! -f "experiments/profiles/$profile.yaml" ]; then
    echo "error: no profile '$*' in experiments/profiles" >&2
    exit 2
fi

source setup_env.sh
# MkDocs has a separate environment, so it changes no version behind the results.
once .venv-site/complete make_environment .venv-site --requirement requirements-site.lock

python experiments/report_pages.py ${profile:+--profile "$profile"}
REPORT="$PWD/build/report/${profile:-committed}" NO_MKDOCS_2_WARNING=1 \
    .venv-site/bin/python -m mkdocs build --strict --quiet --config-file mkdocs/mkdocs.yml
echo "Report: build/report/site/index.html"
