#!/bin/sh
# baton-top on one of two hosts, which scripts/hosts.sh emulates, names a rank of
# the other host: one that comes late, one that is stopped, and one whose
# schedule has no rank on this host. A host that does not reply is left out.
#
#   top.sh BATON_TOP BATON_SKEW MPI_LATE MPIRUN...
set -u
top=$1
skew=$2
sub=$3
shift 3
out=$(mktemp /tmp/top.XXXXXX) || exit 1
late=0

# own PROGRAM: prints the number of the process of rank 0.
own() {
    pgrep -P $job "$(basename "$1")" | head -1
}

# look PATTERN OPTION...: succeeds if baton-top prints the pattern.
look() {
    pattern=$1
    shift
    timeout -k 5 60 "$top" --job "$(own "$program")" "$@" >"$out.top" 2>&1
    grep -q -- "$pattern" "$out.top"
}

fail() {
    echo "top: $1"
    cat "$out" "$out.top"
    stop
    exit 1
}

stop() {
    kill -KILL $job $(pgrep baton-skew) $(pgrep mpi_late) ${sleepers-} 2>/dev/null
    wait 2>/dev/null
    sleepers=
    rm -f "$out" "$out.top"
}

# until_seen PATTERN OPTION...: on a busy machine another rank may be the late
# one for some time. Like srun, the command passes on only whole lines.
until_seen() {
    until look "$@" --hosts h1 \
        --via "sh -c 'on \"\$@\" | grep -a --line-buffered \"\"' sh"; do
        [ $((late += 1)) -lt 60 ] || fail "not printed: $1"
        sleep 0.3
    done
}

program=$sub
"$@" -np 4 "$sub" >"$out" 2>&1 &
job=$!
until_seen 'rank 3 is late by .* of "some/sum"' --once
stop

# A rank keeps only a few of its last times, and it takes long to find jobs on a
# host with many processes.
for _ in $(seq 600); do
    sleep 1000 &
    sleepers="${sleepers-} $!"
done
"$@" -np 2 "$sub" all >"$out" 2>&1 &
job=$!
until_seen 'rank 1 is late by .* of "some/sum"' --once
stop

program=$skew
"$@" -np 2 "$skew" --systems full --skew-ms 3 --bytes 64 -i 100000 >"$out" 2>&1 &
job=$!
until_seen "rank 1 is late by .* of \"" --once
until_seen '^ *1 .* h1' --once
# Few epochs are in each report, and no rank is late in more than all of them.
! timeout -k 5 3 "$top" --job "$(own "$skew")" -i 0.1 --hosts h1 --via on \
    >"$out.top" || fail "baton-top ended"
! grep -E 'in 1(0[1-9]|[1-9][0-9]) % of epochs' "$out.top" ||
    fail "more than 100 %"
look '"host": "a\\"b"' --once --json --hosts 'a"b' \
    --via "sh -c 'shift; exec on h1 \"\$@\"' sh" || fail "a quote is not escaped"
for via in "exec <&- >&-; sleep 1000 #" "sleep 1000 #"; do
    { look "1 ranks on these hosts" --once --hosts h1 --via "sh -c '$via' #" &&
        grep -q "host h1: no reply" "$out.top"; } || fail "$via"
done
look "names no host" --hosts , || fail "no host"
look "without --hosts" --hosts h1 --prometheus - || fail "--prometheus"
other=$(pgrep baton-skew | grep -vx "$(own "$skew")")
# If the rank is stopped while no other rank waits for it, it is stopped again later.
until kill -STOP $other && sleep 0.1 &&
    look "1 rank waits for rank 1, which has not come" --once --hosts h1 --via on; do
    kill -CONT $other
    [ $((late += 1)) -lt 120 ] || fail "rank 1 is not found to be stopped"
    sleep 0.0$((late % 10))
done
stop
