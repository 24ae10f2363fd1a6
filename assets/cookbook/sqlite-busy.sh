#!/bin/bash
# Two shells use one database file. One has begun a transaction and is at its prompt; the other wants to write.
# Needs sqlite3.
set -eu
dir=$(mktemp -d /tmp/orders.XXXXXX)
trap 'rm -rf "$dir"' EXIT
sqlite3 "$dir/orders.db" 'CREATE TABLE orders(item, state); INSERT INTO orders VALUES("lamp", "new")'
{
  echo 'BEGIN EXCLUSIVE;'
  echo ".shell touch $dir/begun; sleep 5"
  echo 'COMMIT;'
} | sqlite3 "$dir/orders.db" &
until [ -e "$dir/begun" ]; do sleep 0.05; done
sqlite3 -cmd '.timeout 20000' "$dir/orders.db" 'UPDATE orders SET state = "paid"'
wait
