#!/bin/bash
# A job in a container with little CPU time holds a lock; a job outside wants it. Needs flock, gzip, and the right to
# make a control group (root).
set -eu
dir=$(mktemp -d /tmp/backup.XXXXXX)
if [ -d /sys/fs/cgroup/cpu ]; then
  group=/sys/fs/cgroup/cpu/backup.$$
  mkdir "$group"
  echo 100000 >"$group/cpu.cfs_period_us"
  echo 5000 >"$group/cpu.cfs_quota_us"
else
  echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
  group=/sys/fs/cgroup/backup.$$
  mkdir "$group"
  echo '5000 100000' >"$group/cpu.max"
fi
trap 'rm -rf "$dir"; sleep 0.3; rmdir "$group"' EXIT
head -c 8000000 /dev/urandom >"$dir/data"
sh -c 'echo $$ >"$1/cgroup.procs"; exec flock "$2/lock" gzip -1 -c "$2/data"' - "$group" "$dir" >/dev/null &
sleep 0.5
flock "$dir/lock" true
wait
