#!/bin/sh
# Kills one rank of a running job: mpirun must end the job, with a message and
# an exit code, within 10 seconds.
#
#   mpi_kill.sh PROGRAM LAUNCHER...     (mpi_victim; mpirun with its options)
set -u
program=$1
shift
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "mpi_kill: $1"
    cat "$dir/output"
    if kill -0 "$job" 2>/dev/null; then
        kill -TERM "$job"
    fi
    exit 1
}

"$@" "$program" "$dir/victim" >"$dir/output" 2>&1 &
job=$!

# Starting 4 ranks under a sanitizer takes a while: not what is measured.
tries=0
while [ ! -e "$dir/victim" ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the job did not come under way in 60 s"
    kill -0 "$job" 2>/dev/null || fail "the job ended by itself"
    sleep 0.1
done
kill -KILL "$(cat "$dir/victim")" || fail "the victim was gone"

tries=0
while kill -0 "$job" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "mpirun still ran 10 s after a rank was killed"
    sleep 0.1
done
wait "$job"
code=$?
[ $code -ne 0 ] || fail "mpirun reported success"
grep -qi 'signal 9\|killed' "$dir/output" || fail "no message names the signal"
echo "mpi_kill: the job ended with code $code, $tries tenths of a second later:"
grep -i 'signal 9\|killed' "$dir/output" | head -n 1
