#!/bin/bash
# A script starts a program whose output goes into a pipe, and waits for it to end before it reads anything. The pipe
# holds 64 KiB; from then on each waits for the other. Needs python3.
set -u
timeout 4 /usr/bin/python3 -c '
import subprocess
listing = subprocess.Popen(["find", "/usr"], stdout=subprocess.PIPE)
listing.wait()      # communicate() would read meanwhile
'
true
