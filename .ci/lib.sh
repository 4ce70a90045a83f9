# Sourced by the scripts beside it: where things are, and how a step is shown.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What is fetched or built once and outlives the checkout.
if [ -n "${PGTRICKLE_CACHE:-}" ]; then
    cache=$PGTRICKLE_CACHE
elif [ "$(id -u)" = 0 ] || [ -w /var/cache/pgtrickle ]; then
    cache=/var/cache/pgtrickle
else
    cache=$HOME/.cache/pgtrickle
fi
mkdir -p "$cache/log"

pg15=/usr/lib/postgresql/15/bin/pg_config
pg18=$cache/pg18/bin/pg_config

pg_config_of() {
    case $1 in
        15) echo "$pg15" ;;
        18) echo "$pg18" ;;
        *) echo "there is no PostgreSQL $1 here" >&2; return 1 ;;
    esac
}

# cargo-pgrx of our own lives in the cache, so that the user's one is left as it is.
export PATH=$cache/tools/bin:$HOME/.cargo/bin:$PATH
export PGRX_HOME=$cache/pgrx
# One value for every build, because a change of it rebuilds pgrx.
export PGRX_PG_CONFIG_PATH=$pg15
# cargo-pgrx passes a linker flag that gives every dependency a second set of artifacts, against linkers that drop
# the schema section. rustc's present linker keeps it (the build fails clearly where one does not), and without the
# flag install, tests and benches share one compilation of pgrx.
export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1

# step LABEL LOG COMMAND...: runs a command with its output in a log, and says in one line what it was and how long
# it took. A line every ten seconds shows that it lives; a failure shows the end of the log.
step() {
    local label=$1 log=$cache/log/$2.log
    shift 2
    local begin=$SECONDS shown=$SECONDS pid status=0
    "$@" > "$log" 2>&1 < /dev/null &
    pid=$!
    # A background process of a script ignores Ctrl-C, so it is passed on.
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        if ((SECONDS - shown >= 10)); then
            shown=$SECONDS
            echo "    ... $label, $((SECONDS - begin)) s"
        fi
    done
    wait "$pid" || status=$?
    trap - INT TERM
    if [ "$status" = 0 ]; then
        echo "$label: $((SECONDS - begin)) s"
    else
        echo "$label: FAILED after $((SECONDS - begin)) s; the end of $log:" >&2
        tail -n 40 "$log" >&2
    fi
    return "$status"
}
