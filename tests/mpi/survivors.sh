#!/bin/sh
# Runs ranks, some of which are killed. Expects that COUNT other ranks report that
# they go on. mpirun's exit code says nothing about that, and between hosts mpirun
# does not end. If a rank reports that MPI itself hangs, all ranks run again.
#
#   survivors.sh COUNT MPIRUN... PROGRAM ARGS...
set -u
count=$1
shift
output=$(mktemp /tmp/survivors.XXXXXX) || exit 1 # TMPDIR is of one host
trap 'rm -f "$output"' EXIT

# have_come COUNT: succeeds if COUNT ranks have reported. (mpirun may put two reports
# on a line.)
have_come() {
    [ "$(grep -o 'goes on' "$output" | wc -l)" -ge "$1" ]
}

for run in 1 2 3; do
    "$@" >"$output" 2>&1 &
    job=$!
    tries=1200
    while ! have_come "$count" && ! grep -q 'MPI hangs' "$output" &&
        kill -0 $job 2>/dev/null && [ $tries -gt 0 ]; do
        sleep 0.1
        tries=$((tries - 1))
    done
    kill -TERM $job 2>/dev/null
    cat "$output"
    grep -q 'MPI hangs' "$output" || break
    wait $job
done
have_come "$count" && ! have_come $((count + 1))
