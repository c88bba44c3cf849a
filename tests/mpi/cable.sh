#!/bin/sh
# Interrupts the network between two hosts during a job of 4 ranks, which
# scripts/hosts.sh runs. Or kills a rank: then mpirun must end the job, with a
# message and an exit code.
#
#   cable.sh soon PROGRAM MPIRUN...   plugged in again after 3 s: the job goes
#                                     on, with right sums
#   cable.sh never PROGRAM MPIRUN...  out for good: each rank fails, and names
#                                     one on the other host
#   cable.sh one PROGRAM MPIRUN...    one rank is killed; needs no hosts
#   cable.sh stop PROGRAM MPIRUN...   one is stopped for too long: the others fail
#                                     and name it; when it goes on it fails, too
set -u
how=$1
program=$2
shift 2
dir=$(mktemp -d /tmp/cable.XXXXXX) || exit 1 # TMPDIR is of one host
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "cable, $how: $1"
    cat "$dir"/output "$dir"/error.* 2>/dev/null
    kill -TERM "$job" 2>/dev/null
    exit 1
}

# until SECONDS COMMAND...: succeeds if the command succeeds within that time.
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

# names_peer RANK PEERS: expects that the error of this rank says that one of
# the peers is gone, because it does not answer, or because another rank has
# reported that.
names_peer() {
    silent="it has not answered for 3.0 s"
    grep -qE ": rank $2 \(host [^,]*, process [0-9]*\) is gone: ($silent|another rank has lost it)" \
        "$dir/error.$1" && grep -q "$silent" "$dir"/error.* ||
        fail "rank $1 does not name rank $2"
}

# all_have NAME: succeeds if every rank has written DIR/NAME.RANK.
all_have() {
    [ -e "$dir/$1.0" ] && [ -e "$dir/$1.1" ] && [ -e "$dir/$1.2" ] &&
        [ -e "$dir/$1.3" ]
}

export BATON_PEER_TIMEOUT_MS=3000
[ "$how" != soon ] || export BATON_PEER_TIMEOUT_MS=30000
"$@" "$program" "$dir" >"$dir/output" 2>&1 &
job=$!
until_true 60 all_have process || fail "the job did not come under way"
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
    until_true 30 all_have error || fail "not every rank failed within 30 s"
    names_peer 0 '[23]'
    names_peer 1 '[23]'
    names_peer 2 '[01]'
    names_peer 3 '[01]'
    cat "$dir"/error.?
    kill -KILL $job $(cat "$dir"/process.?) 2>/dev/null # mpirun of Open MPI 5 leaves them
    ;;
stop)
    kill -STOP "$(cat "$dir/process.1")" || fail "rank 1 was gone"
    touch "$dir/error.1"
    until_true 30 all_have error || fail "not every rank failed within 30 s"
    names_peer 0 1
    names_peer 2 1
    names_peer 3 1
    rm "$dir/error.1"
    kill -CONT "$(cat "$dir/process.1")"
    until_true 30 all_have error || fail "rank 1 did not fail within 30 s"
    grep -qE 'it has lost this rank|rank 1[ ,].* not answered' "$dir/error.1" ||
        fail "rank 1 is not told"
    cat "$dir"/error.?
    kill -KILL $job $(cat "$dir"/process.?) 2>/dev/null # mpirun of Open MPI 5 leaves them
    ;;
one)
    kill -KILL "$(cat "$dir/process.1")" || fail "rank 1 was gone"
    until_true 60 ended || fail "the job still ran 60 s later"
    wait $job && fail "mpirun reported success"
    grep -qi 'signal 9\|killed' "$dir/output" ||
        fail "no message names the signal"
    ;;
esac
echo "cable, $how: as it should be"
