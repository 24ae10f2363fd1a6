#!/bin/bash
# One client's script keeps Redis busy; the next client waits. Needs redis-server and redis-cli.
set -eu
dir=$(mktemp -d /tmp/shop-cache.XXXXXX)
redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" --logfile "$dir/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$dir"' EXIT
cli() { redis-cli -s "$dir/redis.sock" "$@"; }
until cli ping >/dev/null 2>&1; do sleep 0.05; done
cli set price:17 1995 >/dev/null
for _ in 1 2 3 4 5; do cli get price:17 >/dev/null; done
# Somebody's report: a loop without an end in sight, inside the server.
cli eval 'local sum = 0
  local start = redis.call("TIME")[1] + 0
  repeat
    for i = 1, 200000 do sum = (sum * 31 + i) % 1000003 end
  until redis.call("TIME")[1] - start >= 3
  return sum' 0 >/dev/null &
report=$!
sleep 0.5
cli get price:17 >/dev/null
wait $report
