#!/bin/bash
# Kills ranks at random, over real MPI, until the time is up. The survivors must
# soon get an error that names the dead rank, and shrink the group to one that
# works. No rank may hang, results must be right, and no file or process may be
# left behind. A world is one mpirun, with random ranks, work and faults. Prints a
# table of the cases that were covered, and the log of each world in which something
# was wrong. The exit code is then 1.
#
#   scripts/soak.sh [MINUTES [SEED]]     default: 30, and one from the clock
#
# Half of the time all ranks are on one host, the other half (root only) on two
# emulated hosts of hosts.sh.
#
#   SOAK=build/tests/mpi_soak   the program
#   SOAK_WORLDS=N               at most N worlds, on each number of hosts
#   SOAK_HOSTS=1                on one host only; 2 is for the use of hosts.sh
#   SOAK_BOUND_MS=1000          how long a survivor may take; between hosts, and
#                               with BATON_SHM=0, BATON_PEER_TIMEOUT_MS more,
#                               which is 3000 here. Time in which this script or
#                               a rank was ready and could not run is not counted
#   SOAK_MOMENT, SOAK_WORK, SOAK_SETTING   always this moment, work or setting, one
#                               of the lists `moments`, `works` and `settings` below
set -u
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
program=${SOAK:-$root/build/tests/mpi_soak}
minutes=${1:-30}
seed=${2:-$((${EPOCHREALTIME/[.,]/} % 1000000000))}
worlds=${SOAK_WORLDS:-1000000}
hosts=${SOAK_HOSTS:-1}
bound=${SOAK_BOUND_MS:-1000}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 # mpirun counts the processors of hosts.sh twice
export BATON_PEER_TIMEOUT_MS=3000
recovery=--enable-recovery
! mpirun --version | grep -q 'Open MPI) [5-9]' || recovery="--with-ft ulfm"
dir=$(mktemp -d /tmp/soak.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
folders=${TMPDIR:-/tmp} # Open MPI 5 leaves some there; hosts.sh removes its own
[ "$hosts" != 1 ] || folders=$dir

# A read of this descriptor with a time-out sleeps without a process. (If there are
# only 32768 process numbers, bash 5.2 may wait forever for a short process.)
exec {never}<> <(:)

moments=(awake awake asleep call reduce copy commit leave stop everyone
         orders create)
works=(dense dense small small partial partial "partial sparse" sparse)
algorithms=("" $(sed -n 's/.*X(allreduce_\(.*\)).*/\1/p' "$root"/lib/coll/dense/algorithms.h))
settings=(A=A A=A A=A A=A BATON_SHM=0 BATON_CMA=0 BATON_SHM_BUFFERS=0
          BATON_PROGRESS=manual)
delays=(0 50 300 3000 30000)

now() {
    microseconds=${EPOCHREALTIME/[.,]/}
}

# Prints the numbers of the ranks' processes ("process"), or also of the children
# that they have started ("process|child").
processes() {
    awk -v what="^($1)\$" '$1 ~ what { print $4 }' "$log" 2>/dev/null
}

# True after all ranks have ended or are done. (If all ranks die, mpirun may go on.)
# A single awk looks at all ranks: bash 5.2 with 32768 process numbers may wait
# forever for one of many short processes.
are_done() {
    awk -v ranks=$ranks -v moment="$moment" '
    $1 == "process" { process[$2] = $4; started++ }
    $1 == "done" { finished[$2] = 1 }
    END {
        if (started < ranks) exit 1
        for (rank in process)
            if ((moment == "everyone" || !(rank in finished)) &&
                (getline line <("/proc/" process[rank] "/stat")) > 0) exit 1
    }' "$log" 2>/dev/null
}

# Open MPI 4.1.4 has two faults, which are no faults of Baton. It ends a rank that is
# sending to a dying rank on another host (ob1 says FATAL), which this function adds
# to the log. And it may loop forever in the list of a socket's events
# (loops_in_mpi).
note_mpi() {
    local process
    while read -r process; do
        echo "died_in_mpi $(awk -v p="$process" '$1 == "process" && $4 == p {
            print $2 }' "$log") $microseconds"
    done < <(sed -n 's/^\[[^:]*:0*\([0-9]*\)\] .*pml_ob1.* FATAL$/\1/p' \
        "$dir/output") >>"$log"
}

stacks() {
    gdb -p "$1" -batch -ex 'thread apply all bt' 2>/dev/null |
        grep -E '^(Thread|#)'
}

loops_in_mpi() {
    stacks "$1" | grep -q evmap_io_active && sleep 1 &&
        stacks "$1" | grep -q evmap_io_active
}

# Waits until all ranks have died or are done, and then ends the job. Looks every
# 20 ms, and logs a pause if a look came late. The job hangs after a number of looks
# and not after a time, so that a machine that stands still is no fault.
watch() {
    local before looks=0
    now
    while kill -0 $job 2>/dev/null; do
        before=$microseconds
        read -rt 0.02 -u "$never"
        now
        [ $((microseconds - before)) -lt 60000 ] ||
            echo "pause - $microseconds $((microseconds - before))" >>"$log"
        ! are_done || break
        if [ $((looks += 1)) -eq 1500 ]; then
            echo "FAULT - $microseconds hangs" >>"$log"
            for process in $(processes process); do
                stacks "$process" >>"$dir/output"
                ! loops_in_mpi "$process" || echo "loops_in_mpi - 0" >>"$log"
            done
            break
        fi
    done
    kill -KILL $job $(processes "process|child") 2>/dev/null
    wait $job 2>/dev/null
}

# Checks a log, whose lines are "WORD RANK MICROSECONDS ...". Prints all faults, and
# "slowest NOTICE SHRINK": the longest times, in ms, from the death of a rank to an
# error, and from an error to a shrunk group.
check() {
    local ms=$bound late=0
    case "$hosts $setting" in
    2* | *BATON_SHM=0) ms=$((bound + BATON_PEER_TIMEOUT_MS)) late=1 ;;
    esac
    # The messages that a rank has sent through MPI may be lost when the rank leaves,
    # and a partial all-reduce fails when any rank does. So the last epochs of the
    # other ranks may fail.
    [[ $work != *partial* ]] || late=1
    awk -v victim="$victim" -v struck="$victim" -v ranks="$ranks" \
        -v bound="$ms" -v late=$late \
        -v moment="$moment" -v stall="${SOAK_STALL_MS:-100}" '
    function fault(text) { faults[fault_count++] = text }
    # The longest time for which any rank was kept from running between two instants.
    # Each rank logs figures of this time. Between two figures it is interpolated.
    function kept_back(from, to,   rank, i, begin, end, share, sum, most) {
        for (rank in figures) {
            sum = 0
            for (i = 1; i < figures[rank]; i++) {
                begin = at[rank, i - 1] > from ? at[rank, i - 1] : from
                end = at[rank, i] < to ? at[rank, i] : to
                if (begin < end) {
                    share = (end - begin) / (at[rank, i] - at[rank, i - 1])
                    sum += share * (delay[rank, i] - delay[rank, i - 1])
                }
            }
            most = sum > most ? sum : most
        }
        return most
    }
    # milliseconds of running time between two instants
    function between(from, to,   us, p, begin) {
        us = to - from
        for (p = 0; p < pauses; p++) {
            begin = stop[p] - pause[p] > from ? stop[p] - pause[p] : from
            if (begin < stop[p] && begin < to) {
                us -= (stop[p] < to ? stop[p] : to) - begin
            }
        }
        us -= kept_back(from, to)
        return us > 0 ? us / 1000 : 0
    }
    # The first pass over the log reads all figures.
    NR == FNR && $1 == "pause" { stop[pauses] = $3; pause[pauses++] = $4 }
    NR == FNR && $1 == "delayed" {
        at[$2, figures[$2] + 0] = $3
        delay[$2, figures[$2]++] = $4
    }
    NR == FNR { next }
    # If a connection between two hosts is refused, the peer may live behind a
    # firewall. So if there are two ranks, neither may go on alone.
    /connections to it are refused/ { unsure = 1 }
    $1 == "FAULT" && !(unsure && ranks == 2 && /: partition: /) {
        fault(substr($0, 7))
    }
    $1 == "died" { died = $3 + $4 }
    $1 == "died" && moment == "everyone" { victim = victim "|" $2 }
    /^died_/ { victim = victim "|" $2 }
    $1 == "died_later" { later = 1 }
    $1 == "died_in_mpi" { in_mpi++ }
    $1 == "loops_in_mpi" { loops = 1 }
    /^(died|done)/ { ended[$2] }
    $1 == "result" && moment != "orders" {
        if (($4 in result) && result[$4] != $5) {
            fault("epoch " $4 " has another result on rank " $2)
        }
        result[$4] = $5
    }
    $1 == "before" { descriptors[$2] = $4 }
    $1 == "after" && !(moment == "leave" && $2 == struck) && ($4 > descriptors[$2] || $5 > 0) {
        fault("descriptors before: " descriptors[$2] ", after, and maps: " $0)
    }
    # These lines are of the moment "orders": ranks destroy objects in any order.
    $1 == "begin" { begin[$2] = $3 }
    $1 == "end" && between(begin[$2], $3) > stall {
        fault(between(begin[$2], $3) " ms: " $0)
    }
    $1 == "leave" && moment == "orders" && $3 > last[$4] { last[$4] = $3 }
    $1 == "left" && moment == "orders" {
        ms = between(last[$4], $3)
        slowest = ms > slowest ? ms : slowest
        if (ms > stall) {
            fault("stall of " ms " ms: " $0)
        }
    }
    { line[FNR] = $0 }
    END {
        kills = moment !~ (late ? "^(stop|orders)$" : "^(leave|stop|orders)$")
        for (i = 1; i <= FNR; i++) {
            $0 = line[i]
            if ($1 == "error") {
                ms = between(died, $3)
                slowest = ms > slowest ? ms : slowest
                if (!kills) {
                    fault("nobody was to fail: " $0)
                } else if (ms > bound) {
                    fault("after " ms " ms: " $0)
                }
                # A rank that first hears of a recovery learns the cause when it
                # recovers itself. A rank in the first exchange of a creation does
                # not learn the cause.
                if ($0 !~ "BATON_ERR_(TRANSPORT|FAILED): .*rank (" victim \
                          ")( \\([^)]*\\))?( is gone|, tag [0-9]+, [0-9]+ bytes: |" \
                          ", and closed its group)" &&
                    $0 !~ /recovers their group after a failure/ &&
                    $0 !~ /create: .* could not be made on another rank/ &&
                    !(late && /has called baton_group_create_mpi/)) {
                    fault("does not say that rank " victim " is gone: " $0)
                }
                told = $3 > told ? $3 : told
            }
            if ($1 == "shrunk") {
                living = ranks - 1 - later
                if (moment != "everyone" &&
                    ($4 > living || $4 < living - in_mpi)) {
                    fault($4 " ranks live: " $0)
                }
                ms = between(told, $3)
                shrink = ms > shrink ? ms : shrink
                if (ms > bound) {
                    fault(ms " ms to shrink: " $0)
                }
            }
            begin[$2] = $1 == "leave" ? $3 : begin[$2]
            if ($1 == "left" && $2 != victim && died) {
                ms = between(died > begin[$2] ? died : begin[$2], $3)
                if (ms > bound) {
                    fault("rank " $2 " took " ms " ms to destroy")
                }
            }
        }
        for (rank = 0; rank < ranks && moment != "everyone"; rank++) {
            if (!(rank in ended)) {
                fault("rank " rank " did not come to its end")
            }
        }
        for (i = 0; i < fault_count; i++) {
            print(loops ? "MPI loops, and: " : "FAULT ") faults[i]
        }
        print "slowest", int(slowest), int(shrink)
    }' "$log" "$log"
}

# Checks that no process of the world runs on, and that no file of it is left in
# /dev/shm.
check_rest() {
    local tries=200 left
    while [ $((tries -= 1)) -gt 0 ]; do
        left=$(processes "process|child" |
            while read -r process; do
                grep -qs "^State:.[^Z]" "/proc/$process/status" &&
                    echo "process $process"
            done
            ls /dev/shm | grep '^baton' | grep -vxFf "$dir/before"
            [ "$hosts" = 1 ] || on h1 ls /dev/shm | grep '^baton')
        [ -n "$left" ] || return 0
        sleep 0.05
    done
    echo "FAULT left: $left"
}

# Runs one world. Prints nothing if there was no fault.
world() {
    RANDOM=$((seed % 32768))
    local i
    for ((i = 0; i < 3 + seed / 32768 % 7; i++)); do : $RANDOM; done
    ranks=$((2 + RANDOM % 7))
    victim=$((RANDOM % ranks))
    moment=${SOAK_MOMENT:-${moments[RANDOM % ${#moments[@]}]}}
    work=${works[RANDOM % ${#works[@]}]}
    epoch=$((1 + RANDOM % (RANDOM % 4 ? 8 : 300)))
    delay=$((${delays[RANDOM % 5]} * (1 + RANDOM % 100) / 100))
    child=$((RANDOM % 3))
    count=$((1 << RANDOM % 18))
    case $moment in
    copy) count=$((1 << (18 + RANDOM % 3))) work=dense delay=$((delay / 10)) ;;
    call | reduce) work=dense ;;
    stop) count=$((1 + RANDOM % 2500)) child=0 ;;
    orders) epoch=$((hosts == 1 ? 20 : 8)) work=partial child=0 ;;
    esac
    work=${SOAK_WORK:-$work}
    case "$moment $work" in # these moments exist only in these kinds of work
    call\ dense* | reduce\ dense* | copy\ dense* | orders\ partial*) ;;
    call* | reduce* | copy* | orders*) moment=awake ;;
    esac
    algorithm=${algorithms[RANDOM % ${#algorithms[@]}]}
    setting=${SOAK_SETTING:-${settings[RANDOM % ${#settings[@]}]}}
    log=$dir/log
    rm -rf "$log" "$dir"/prterun.*
    ls /dev/shm | grep '^baton' >"$dir/before"
    set -- "$moment" $victim $epoch $delay $child "$work" $count \
        $((RANDOM % 8)) "$algorithm"
    BATON_SEED=$seed env "$setting" TMPDIR="$folders" mpirun -np $ranks --oversubscribe \
        --bind-to none $recovery "$program" "$log" "$@" \
        >"$dir/output" 2>&1 </dev/null &
    job=$!
    watch
    note_mpi
    { check; check_rest; } >"$dir/checked"
    kind=$moment
    ! grep -q '^\(died\|loops\)_in_mpi' "$log" || kind="$kind, and MPI failed"
    [ "$work" != small ] || kind="$kind, small messages"
    [ $child != 1 ] || [ "$moment" = stop ] || kind="$kind, with a child"
    echo "$hosts $(awk '$1 == "slowest" { print $2, $3 }' "$dir/checked") $kind" \
        >>"$table"
    grep -q FAULT "$dir/checked" || return 0
    echo "soak: WRONG: seed $seed, hosts $hosts: $setting, $ranks ranks, $*"
    grep -a FAULT "$dir/checked"
    grep -av '^result' "$log" | tail -60
    grep -av '^\[' "$dir/output" | tail -${SOAK_TAIL:-40}
    echo
    return 1
}

# run_for SECONDS: runs worlds until this time has passed.
run_for() {
    local wrong=0 end begin ran=0
    now
    begin=$microseconds
    end=$((begin + $1 * 1000000))
    while [ $((worlds -= 1)) -ge 0 ]; do
        show "soak: $ran worlds on $hosts hosts, $(so_far \
            $(((microseconds - begin) / 1000000)) "$1" s)"
        world >"$dir/told" || wrong=1
        show
        cat "$dir/told"
        ran=$((ran + 1))
        seed=$((seed + 1))
        now
        [ $microseconds -lt $end ] || break
    done
    return $wrong
}

. "$root/scripts/progress.sh"
seconds=$(awk "BEGIN { print int($minutes * 60) }")
if [ "$hosts" != 1 ]; then
    table=${SOAK_TABLE:-$dir/table}
    run_for "$seconds"
    exit
fi
echo "soak: $minutes minutes, seed $seed"
table=$dir/table
both=0
[ -n "${SOAK_HOSTS-}" ] || ! "$root/scripts/hosts.sh" 2 true 2>/dev/null || both=1
wrong=0
run_for $((seconds / (1 + both))) || wrong=1
if [ $both = 1 ]; then
    SOAK_HOSTS=2 SOAK_TABLE=$table "$root/scripts/hosts.sh" 2 "$0" \
        "$(awk "BEGIN { print $minutes / 2 }")" $seed || wrong=1
fi
sort "$table" | awk '
    { key = $1 " " substr($0, length($1 $2 $3) + 4) }
    !(key in number) { order[rows++] = key }
    { number[key]++; slowest[key] = $2 > slowest[key] ? $2 : slowest[key] }
    { shrink[key] = $3 > shrink[key] ? $3 : shrink[key] }
    END {
        print "hosts  worlds  slowest notice  shrink  what"
        for (i = 0; i < rows; i++) {
            key = order[i]
            printf "%5s  %6d  %11d ms  %3d ms  %s\n", substr(key, 1, 1),
                number[key], slowest[key], shrink[key], substr(key, 3)
        }
    }'
exit $wrong
