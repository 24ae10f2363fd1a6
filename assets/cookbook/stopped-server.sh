#!/bin/bash
# Somebody has attached a debugger to the server and looks at it. Needs redis-server, redis-cli and gdb.
set -eu
dir=$(mktemp -d /tmp/cache.XXXXXX)
redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" --logfile "$dir/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$dir"' EXIT
until redis-cli -s "$dir/redis.sock" ping >/dev/null 2>&1; do sleep 0.05; done
{ sleep 5; echo quit; } | gdb -q -nx -p "$server" >/dev/null 2>&1 &
until grep -q '^State:.t' "/proc/$server/status"; do sleep 0.05; done
redis-cli -s "$dir/redis.sock" ping
wait %2
