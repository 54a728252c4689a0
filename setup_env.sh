# Source it from the repository's root. It installs the packages of requirements.lock into .venv and activates it.
# .venv/complete is written last and names the environment's sources. Interrupted, outdated and moved environments are
# made again.

find_python() { # prints the first Python for which the pinned packages have wheels
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' \
            2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "error: no Python 3.10 to 3.14 with its venv module found on PATH" >&2
    return 2
}

environment_is_current() {
    [ "$(cat .venv/complete 2>/dev/null)" = "$made_from" ] && .venv/bin/python -c '' 2>/dev/null
}

make_environment() {
    local python start=$SECONDS
    python=$(find_python)
    echo "Setting up .venv from requirements.lock: a minute or two, once." >&2
    "$python" -m venv --clear .venv
    # Compiling modules that are never imported would take a third of the time.
    .venv/bin/python -m pip install -qq --no-compile --disable-pip-version-check \
        -r requirements.lock -e '.[dev,language,notebooks,onnx,report,slurm,study,test]' || return
    echo "$made_from" >.venv/complete
    echo "Done in $((SECONDS - start)) s." >&2
}

made_from="$PWD $(cat requirements.lock pyproject.toml | cksum)"
if ! environment_is_current; then
    exec 9>.venv.lock
    if command -v flock >/dev/null && ! flock --nonblock 9; then
        echo "Waiting for another call that is setting up .venv." >&2
        flock 9
    fi
    if ! environment_is_current; then # no ||, which would switch off errexit inside
        make_environment
    fi
    exec 9>&-
fi
source .venv/bin/activate
unset PYTHONDONTWRITEBYTECODE # without bytecode each start compiles torch and timm anew, which takes seconds
