#!/bin/sh
# Pulls the cable between two hosts under a running job; run by scripts/hosts.sh.
#
#   hosts_cable.sh soon PROGRAM MPIRUN...   plugged in again after 3 s: the job
#                                           goes on, with right sums
#   hosts_cable.sh never PROGRAM MPIRUN...  out for good: each rank fails, and
#                                           names one on the other host
#   hosts_cable.sh kill PROGRAM MPIRUN...   no cable: a host's ranks are killed,
#                                           and the job ends
set -u
how=$1
program=$2
shift 2
dir=$(mktemp -d /tmp/cable.XXXXXX) || exit 1 # TMPDIR is of one host
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "hosts_cable, $how: $1"
    cat "$dir"/output "$dir"/error.* 2>/dev/null
    exit 1
}

# until SECONDS COMMAND...: whether the command succeeds within that time.
until_true() {
    tries=$(($1 * 10))
    shift
    while ! "$@" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

ended() {
    ! kill -0 "$job"
}

# names_peer RANK PEERS: its sentence names one of these as not answering: as a
# peer that is gone, or as that of the transfer that failed first. It may be the
# sentence of the other rank on its host, whose epoch failed before.
names_peer() {
    grep -q ": rank $2[ ,].*: its host has not answered" "$dir/error.$1" ||
        fail "rank $1 names no peer on the other host"
}

failed() {
    set -- "$dir"/error.?
    [ $# -eq 4 ]
}

export BATON_PEER_TIMEOUT_MS=3000
[ "$how" = never ] || export BATON_PEER_TIMEOUT_MS=30000
"$@" "$program" "$dir" >"$dir/output" 2>&1 &
job=$!
until_true 60 test -e "$dir/ready" || fail "the job did not come under way"
case $how in
soon)
    on switch ip link set h1 down
    sleep 3
    on switch ip link set h1 up
    sleep 1
    touch "$dir/stop"
    until_true 60 ended || fail "the job did not end"
    wait $job || fail "the job failed"
    ;;
never)
    on switch ip link set h1 down
    until_true 30 failed || fail "not every rank failed within 30 s"
    names_peer 0 '[23]'
    names_peer 1 '[23]'
    names_peer 2 '[01]'
    names_peer 3 '[01]'
    cat "$dir"/error.?
    kill -KILL $job
    ;;
kill)
    on h1 pkill -KILL mpi_cable
    until_true 10 ended || fail "the job still ran 10 s later"
    wait $job && fail "mpirun reported success"
    ;;
esac
echo "hosts_cable, $how: as it should be"
