# Source it from the repository's root. It installs what the scripts and notebooks need into .venv, in the versions of
# requirements.lock, and activates it. `install_for_tests` adds what run_tests.sh needs.

# Runs a command that installs packages, unless FILE, which is written last, names the sources as they are now: what
# was interrupted, outdated or moved is made again. Of two calls at once, one waits.
once() { # FILE COMMAND...
    local file=$1 start=$SECONDS status=0
    shift
    if is_current "$file"; then
        return
    fi

    exec 9>.venv.lock || return
    if command -v flock >/dev/null && ! flock --nonblock 9; then
        echo "Waiting for another call that is installing packages." >&2
        flock 9
    fi
    if ! is_current "$file"; then
        echo "Installing packages into ${file%/*}: a minute or two, once." >&2
        if "$@"; then
            echo "$made_from" >"$file"
            echo "Done in $((SECONDS - start)) s." >&2
        else
            status=$?
        fi
    fi
    exec 9>&-
    return "$status"
}

is_current() { # FILE
    [ "$(cat "$1" 2>/dev/null)" = "$made_from" ] && "${1%/*}/bin/python" -c '' 2>/dev/null
}

make_environment() { # FOLDER PACKAGES...
    local python
    python=$(find_python) || return
    "$python" -m venv --clear "$1" || return
    install_packages "$@"
}

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

install_packages() { # FOLDER PACKAGES...
    local python=$1/bin/python
    shift
    # Neither compiles: compiling modules that are never imported would take a third of the time.
    if ! install_with_uv "$@"; then
        echo "uv cannot be had or failed: installing with pip, which takes longer." >&2
        "$python" -m pip install -qq --no-compile --disable-pip-version-check "$@"
    fi
}

install_with_uv() { # PACKAGES...
    local uv=uv
    if ! command -v uv >/dev/null; then
        "$python" -m pip install -qq --disable-pip-version-check uv || return
        uv=${python%/*}/uv
    fi

    # Packages come from where pip is told to look, and torch in the build that lies there.
    local settings
    settings=$("$python" -m pip config list)
    local -x UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$(values_of index-url)}
    local -x UV_INDEX=${UV_INDEX:-$(values_of extra-index-url)}
    local -x UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match} # pip's
    local -x UV_FIND_LINKS=${UV_FIND_LINKS:-$(values_of find-links | tr ' ' ,)}
    local -a install=("$uv" pip install --quiet --python "$python")

    # Otherwise in the build for this machine, where its index can be reached: without a GPU it is far smaller.
    if [ -z "$UV_INDEX$UV_FIND_LINKS" ] && UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=5 "${install[@]}" --dry-run --no-deps \
        --torch-backend auto --constraint requirements.lock torch 2>/dev/null; then
        install+=(--torch-backend auto)
    fi
    "${install[@]}" "$@"
}

values_of() { # NAME: prints the values of one of pip's `settings`; the first line of several wins, a variable's
    local values
    values=$(sed -n "s/^[^=]*\.$1='\(.*\)'$/\1/p" <<<"$settings" | sed '1!d; s/\\n/ /g')
    echo $values # unquoted: one blank between values
}

install_for_tests() {
    once .venv/complete-tests install_packages .venv --constraint requirements.lock -e '.[dev,test]'
}

made_from="$PWD $(cat requirements.lock requirements-site.lock pyproject.toml | cksum)"
once .venv/complete make_environment .venv --constraint requirements.lock \
    -e '.[language,notebooks,onnx,report,slurm,study]' || return
source .venv/bin/activate
unset PYTHONDONTWRITEBYTECODE # without bytecode each start compiles torch and timm anew, which takes seconds
