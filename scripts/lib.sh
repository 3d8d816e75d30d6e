# shellcheck shell=bash disable=SC2034  # the facts are for the scripts that source this
# What every script here needs to know: facts first, then a few helpers. Sourced, never run.
#
# Everything the scripts make, target/ and the cached cargo-pgrx apart, lives in one state directory:
#
#   /var/tmp/outbox_ext-<uid>-<checkout>/   not in the checkout: the server's user cannot enter root's home,
#     15/                                   and a socket's path has at most 107 bytes
#       release/  debug/     copies of the system's PostgreSQL that get our release build, and the one with tests in it
#       cluster/NAME/        data/, log, and run/ with the socket
#       pgrx-home/           what pgrx would otherwise keep in ~/.pgrx
#       pgrx-data/           clusters of `cargo pgrx test`, gone when it ends
set -euo pipefail

# A PG* variable or a backtrace setting meant for somebody else's server must not steer ours.
for name in "${!PG@}"; do
    case $name in PG_* | PGRX_*) ;; *) unset "$name" ;; esac
done
export RUST_BACKTRACE=0              # else DETAIL of every error would carry a backtrace
unset MAKEFLAGS MFLAGS MAKELEVEL     # cargo would look for make's job server
export USER="${USER:-$(id -un)}"     # pgrx-tests connects as $USER; cron and containers leave it out
umask 022                            # the server's user must be able to read what root copies

root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

manifest_fact() { # SED-SCRIPT: what Cargo.toml says
    sed -n "$1" Cargo.toml
}

extension=outbox_ext
pg_major=${PG_MAJOR:-$(manifest_fact 's/^default = \["pg\([0-9]*\)"\].*/\1/p')}
pgrx_version=$(manifest_fact 's/^pgrx = .*"=\([0-9.]*\)".*/\1/p')
rust_version=$(manifest_fact 's/^rust-version = "\(.*\)"/\1/p')

uid=$(id -u)
if [ "$uid" = 0 ]; then
    server_user=postgres # PostgreSQL refuses to run as root
else
    server_user=$(id -un)
fi

state=/var/tmp/$extension-$uid-$(printf %s "$root" | sha256sum | cut -c1-8)
pg=$state/$pg_major
release_bin=$pg/release/lib/postgresql/$pg_major/bin
debug_bin=$pg/debug/lib/postgresql/$pg_major/bin
target=${CARGO_TARGET_DIR:-$root/target}

# cargo-pgrx of the right version may be the user's own, or ours, which is shared by all checkouts.
cargo_pgrx_root=${XDG_CACHE_HOME:-$HOME/.cache}/$extension/cargo-pgrx-$pgrx_version
PATH=$cargo_pgrx_root/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# pgrx finds PostgreSQL in this one place in every step: a PG_CONFIG variable that comes and goes
# between steps would make cargo rebuild the bindings each time.
unset PGRX_PG_CONFIG_PATH PGRX_PG_CONFIG_AS_ENV
export PGRX_HOME=$pg/pgrx-home

say() { echo "==> $*" >&2; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

as_root() {
    if [ "$uid" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root and there is no sudo: $*"
    fi
}

# With an empty environment: the server's behaviour and messages should not depend on who started it.
as_server() {
    local clean=(env -i PATH=/usr/bin:/bin LANG=C.UTF-8)
    if [ "$uid" = 0 ]; then
        (cd "$state" && runuser -u "$server_user" -- "${clean[@]}" "$@")
    else
        "${clean[@]}" "$@"
    fi
}

# The name is predictable and /var/tmp is open to all, so whoever made it first must have been us.
make_state() {
    mkdir -m 700 "$state" 2>/dev/null || true
    if [ ! -d "$state" ] || [ -L "$state" ] || [ ! -O "$state" ]; then
        die "$state is in the way: it is not a directory of $USER"
    fi
    if [ "$uid" = 0 ]; then
        chmod 755 "$state" # so that postgres gets to its cluster
    fi
}

# Runs the calling script again under the checkout's lock: two makes at once must not copy, build into or
# start the same thing. --close, or the server would inherit the lock and keep it.
one_at_a_time() { # ARGUMENTS OF THE SCRIPT…
    make_state
    [ -n "${OUTBOX_LOCKED:-}" ] || OUTBOX_LOCKED=1 exec flock --close "$state/lock" "$root/scripts/${0##*/}" "$@"
}
