#!/bin/sh
# baton-top on one of two hosts, which scripts/hosts.sh emulates, names a rank of
# the other host: one that comes late, and one that is stopped.
#
#   top.sh BATON_TOP MPIRUN... BATON_SKEW
set -u
top=$1
shift
out=$(mktemp /tmp/top.XXXXXX) || exit 1
"$@" --systems full --skew-ms 3 --bytes 64 -i 100000 >"$out" 2>&1 &
job=$!
late=0

# look PATTERN: succeeds if baton-top prints the pattern.
look() {
    "$top" --once --job "$(pgrep -P $job baton-skew)" --hosts h1 --via on \
        >"$out.top" 2>&1
    grep -q "$1" "$out.top"
}

fail() {
    echo "top: $1"
    cat "$out" "$out.top"
    stop
    exit 1
}

stop() {
    kill -KILL $job $(pgrep baton-skew) 2>/dev/null
    wait 2>/dev/null
    rm -f "$out" "$out.top"
}

# On a busy machine the other rank may be the late one for some time.
until look "rank 1 is late by .* of \"" && look '^ *1 .* h1'; do
    [ $((late += 1)) -lt 60 ] || fail "rank 1 is not found to be late"
    sleep 0.3
done
other=$(pgrep baton-skew | grep -vx "$(pgrep -P $job baton-skew)")
# It may be stopped when it does not owe anything.
until kill -STOP $other && sleep 0.1 && look "1 rank waits for rank 1, which has not come"; do
    kill -CONT $other
    [ $((late += 1)) -lt 120 ] || fail "rank 1 is not found to be stopped"
    sleep 0.0$((late % 10))
done
stop
