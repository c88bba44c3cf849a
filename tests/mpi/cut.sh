#!/bin/bash
# A random world on emulated hosts. While ranks make sums, the network is
# interrupted, a firewall refuses or drops connections (except MPI's), and ranks
# are killed. Only one side may go on, the one that shrink.h says, with all of
# its ranks. No rank may hang, and no living rank that MPI reaches may be lost.
#
#   cut.sh PROGRAM SEED [WORLDS]    calls hosts.sh; exit code 125: no hosts here
#
#   CUT_FAULT=cut|blink|refuse|reset|drop|kill    always this fault first
#   CUT_MPIRUN=PROGRAM                            instead of mpirun
#
# If MPI itself fails in a world, another world replaces it.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$1
recovery=--enable-recovery
mpirun=${CUT_MPIRUN:-mpirun}
! "$mpirun" --version | grep -q 'Open MPI) [5-9]' || recovery="--with-ft ulfm"

if [ "${4-}" != inside ]; then
    "$root/scripts/hosts.sh" 2 true || exit 125
    end=$(($2 + ${3:-1}))
    wrong=0 judged=0 skipped=0
    for ((seed = $2; seed < end || (judged + skipped == 0 && seed < end + 4); seed++)); do
        RANDOM=$((seed % 32768))
        "$root/scripts/hosts.sh" $((2 + RANDOM % 2)) "$0" "$program" $seed 1 inside
        case $? in
        0) judged=1 ;;
        77) ;; # MPI failed
        125) skipped=125 ;;
        *) judged=1 wrong=1 ;;
        esac
    done
    [ $judged = 1 ] || { echo "cut.sh: no world was judged"; exit $((skipped ? skipped : 1)); }
    exit $wrong
fi

seed=$2
RANDOM=$((seed % 32768))
hosts=$((2 + RANDOM % 2))
ranks=$((hosts + RANDOM % (8 - hosts)))
algorithms=($(sed -n 's/.*X(allreduce_\(.*\)).*/\1/p' "$root"/lib/coll/dense/algorithms.h))
algorithm=${algorithms[RANDOM % ${#algorithms[@]}]}
faults=(cut cut blink refuse reset drop kill kill)
fault=${CUT_FAULT:-${faults[RANDOM % 8]}}
[[ ! $fault =~ refuse|reset|drop ]] || [ "$(command -v nft)" ] ||
    { echo "cut.sh: no nft: apt-get install nftables"; exit 125; }
victim=$((RANDOM % ranks)) # of a kill; its host is cut, or gets the firewall
then=$((RANDOM % 3))       # 0: another rank is killed, too
[ $ranks != 2 ] || [ $fault != kill ] || then=1
second=$(((victim + 1 + RANDOM % (ranks - 1)) % ranks))
back=$((RANDOM % 2))       # a cable that is pulled for long is plugged in again
dir=$(mktemp -d /tmp/cut.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
export BATON_PEER_TIMEOUT_MS=${CUT_TIMEOUT_MS:-3000} BATON_SEED=$seed
ports=20000-21999 # of Open MPI and mpirun
export UCX_TCP_PORT_RANGE=20000-20999

say() {
    echo "cut: seed $seed: $hosts hosts, $ranks ranks, $algorithm, $fault of $victim" \
        "$([ $then != 0 ] || echo "and kill of $second"): $*"
}

# Reports what went wrong, and prints the ranks' messages.
wrong() {
    say "WRONG: $*"
    head -50 "$dir"/error.* "$dir"/end.* 2>/dev/null
    grep -av '^$' "$dir/output" | tail -30
    stop
    exit 1
}

stop() {
    kill -KILL $job $(cat "$dir"/process.?) 2>/dev/null
    wait $job 2>/dev/null
}

# until SECONDS COMMAND...: succeeds if the command succeeds within that time.
until_true() {
    local tries=$(($1 * 10))
    shift
    while ! "$@" 2>/dev/null; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.1
    done
}

# have NAME RANKS...: succeeds if these ranks have written NAME.
have() {
    local name=$1 rank
    shift
    for rank; do
        [ -e "$dir/$name.$rank" ] || return 1
    done
}

# Prints the host on which mpirun places a rank.
host_of() {
    echo $(($1 % hosts))
}

# firewall HOST VERDICT STATE: sets what the host does with packets from other
# hosts.
firewall() {
    on h$1 "nft add table ip cut; nft add chain ip cut in '{ type filter hook" \
        "input priority 0; }'; nft add rule ip cut in iif eth0 tcp sport" \
        "!= $ports tcp dport != $ports $3 $2"
}

kill_rank() {
    kill -KILL "$(cat "$dir/process.$1")"
    killed="$killed $1"
}

"$mpirun" -np $ranks --oversubscribe --bind-to none --map-by node $recovery \
    --mca btl_tcp_port_min_v4 20000 --mca btl_tcp_port_range_v4 1000 \
    --mca oob_tcp_dynamic_ipv4_ports 21000-21999 \
    "$program" "$dir" $algorithm >"$dir/output" 2>&1 </dev/null &
job=$!
all=$(seq 0 $((ranks - 1)))
killed=""
until_true 100 have process $all || wrong "the job did not come under way"
sleep 0.$((RANDOM % 10))
host=$(host_of $victim)
side="" # ranks that a cut leaves without the others
case $fault in
cut | blink)
    on switch ip link set h$host down
    [ $fault != cut ] || side=$(for rank in $all; do
        [ "$(host_of $rank)" != $host ] || echo $rank
    done)
    [ $fault != blink ] || sleep 1
    [ $fault != blink ] || on switch ip link set h$host up
    ;;
refuse) firewall $host "reject with tcp reset" "ct state new" ;;
drop) firewall $host drop "ct state new" ;;
reset) firewall $host "reject with tcp reset" "" ;;
kill) kill_rank $victim ;;
esac
[ $then != 0 ] || sleep 0.$((RANDOM % 10))
[ $then != 0 ] || kill_rank $second

# Finds the ranks that must go on.
lives() {
    local rank
    for rank in $all; do
        [[ " $killed " == *" $rank "* ]] || echo $rank
    done
}
living=$(lives)
for rank in $living; do
    [[ " "$(echo $side)" " == *" $rank "* ]] && here="${here-} $rank" ||
        there="${there-} $rank"
done
if [ -n "$side" ] || [ -n "$killed" ]; then
    until_true 60 have error $living || wrong "a rank does not notice"
    # If the network works again before both sides have agreed, it may happen
    # that no rank goes on.
    [ $fault != cut ] || sleep $((back == 0 ? 3 : 2 * BATON_PEER_TIMEOUT_MS / 1000 + 1))
    [ $fault != cut ] || [ $back = 0 ] || on switch ip link set h$host up
fi
[ -n "$side$killed" ] || sleep 6 # longer than the time-out
touch "$dir/stop"
until_true 60 have end $living || wrong "a rank hangs"
# Finds the ranks that went on, with the ranks of their groups.
groups=$(for rank in $living; do
    grep -h '^[0-9]' "$dir/end.$rank" | cut -d' ' -f2-
done | sort | uniq -c)
count=$(echo "$groups" | grep -c .)
died_in_mpi=$(grep -ac 'pml_ob1.* FATAL$' "$dir/output")
[ "$died_in_mpi" = 0 ] || { say "MPI failed"; stop; exit 77; }
if [ -z "$side" ]; then
    # If no rank of the same host is left to report the end of a rank, the end
    # may be unknown.
    unsure=$(for rank in $killed; do
        mate=""
        for other in $living; do
            [ "$(host_of $other)" != "$(host_of $rank)" ] || mate=$other
        done
        [ -n "$mate" ] || echo $rank
    done)
    lead=$(($(echo $living | wc -w) - $(echo $unsure | wc -w)))
    lowest=$(printf '%s\n' $living $unsure | sort -n | head -1)
    [ $lead != 0 ] || [[ " "$(echo $unsure)" " != *" $lowest "* ]] || lead=-1
    [ "$count" = 1 ] || { [ "$count" = 0 ] && [ $lead -lt 0 ]; } ||
        wrong "not one group goes on"
    [ "$count" = 0 ] || [ "$(echo $groups | cut -d' ' -f2-)" = "$(echo $living)" ] ||
        wrong "not all that live go on"
else
    # A rank that was killed after the interruption may count as a living one of
    # the other side.
    [ "$count" -le 1 ] || wrong "more than one side goes on"
    [ -n "$killed" ] || {
        lead=$(($(echo $here | wc -w) - $(echo $there | wc -w)))
        [ $lead != 0 ] || { [[ " $here " == *" 0 "* ]] && lead=1 || lead=-1; }
        [ $lead -gt 0 ] && expected=$here || expected=$there
        [ "$(echo $groups | cut -d' ' -f2-)" = "$(echo $expected)" ] ||
            wrong "not the right side goes on"
    }
fi
# No message may say of a living rank that it has ended.
for rank in $living; do
    ! grep -hE "rank $rank( \\([^)]*\\))? is gone: (its process has ended|another rank has seen)" \
        "$dir"/error.* "$dir"/end.* 2>/dev/null | grep -v 'or connections to it' |
        grep -q . || wrong "rank $rank is said to have ended"
done
say "as it should be:" $groups
stop
exit 0
