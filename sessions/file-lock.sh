#!/bin/bash
# A nightly export holds a lock file while it compresses; the job that wants the lock next waits.
# Needs flock (util-linux) and xz.
set -eu
dir=$(mktemp -d /tmp/export.XXXXXX)
trap 'rm -rf "$dir"' EXIT
seq 1 500000 >"$dir/orders"
flock "$dir/export.lock" true
flock "$dir/export.lock" xz -9 --threads=1 --stdout "$dir/orders" >"$dir/orders.xz" &
export=$!
sleep 0.4
flock "$dir/export.lock" wc -l "$dir/orders" >/dev/null
wait $export
