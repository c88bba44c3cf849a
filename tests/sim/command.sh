#!/bin/sh
# Tests baton-sim as a user runs it: each command, its files, and wrong arguments.
#
#   sim_command.sh BATON_SIM CMAKE      (cmake reads JSON)
. "$(dirname "$0")/../support/command.sh"
sim=$1 cmake=$2 root=$(cd "$(dirname "$0")/../.." && pwd)

# runs ARGUMENT...: expects success, and no output but the table.
runs() {
    "$sim" "$@" >out 2>err || complain "failed: baton-sim $*"
    [ ! -s err ] || complain "complained: baton-sim $*"
}

# prints PATTERN ARGUMENT...: expects that a line of the table matches.
prints() {
    pattern=$1
    shift
    runs "$@"
    grep -Eq "$pattern" out || complain "no line like '$pattern': baton-sim $*"
}

# agrees COMMAND ARGUMENT...: expects that each algorithm takes the time of its
# formula, if it has one. Leaves COMMAND.csv, with a line for each algorithm.
agrees() {
    runs "$@" --csv "$1.csv"
    LC_ALL=C awk -F, 'NR == 1 { while ($++at != "difference" && at < NF); next }
        $at ^ 2 > 1e-18 { exit 1 }' "$1.csv" ||
        complain "not the time of a formula: baton-sim $*"
}

# refuses OPTION ARGUMENT...: expects status 2 at once, and a message that begins
# with the command and names the option.
refuses() {
    option=$1
    shift
    "$sim" "$@" >out 2>err </dev/null
    status=$?
    [ $status -eq 2 ] || complain "status $status, not 2: baton-sim $*"
    head -n 1 err | grep -q "^baton-sim.*: $option: " ||
        complain "does not name $option: baton-sim $*"
    [ ! -s out ] || complain "ran all the same: baton-sim $*"
}

# json FILE [MEMBER]: expects a JSON array, at the top or in a member.
json() {
    cat >json.cmake <<'SCRIPT'
file(READ "${FILE}" text)
string(JSON count LENGTH "${text}" ${MEMBER})
if(count LESS 1)
    message(FATAL_ERROR "${FILE}: nothing in it")
endif()
SCRIPT
    "$cmake" -DFILE="$1" -DMEMBER="${2:-}" -P json.cmake >out 2>err ||
        complain "no JSON: $1"
}

# ---- commands ----------------------------------------------------------------

agrees allreduce --ranks 8 --gamma-ns 0.1
runs allreduce --ranks 7 --prove --bytes 256 --epochs 3 --skew exponential:20
runs broadcast --ranks 9 --root 5 --prove --bytes 4K
prints 'dissemination +1000 +15\.000 +15\.000' barrier --ranks 1000
runs partial --ranks 9 --prove --epochs 10 --skew uniform:0:100 --bytes 4K
runs partial --ranks 12 --prove --host-ranks 4 --lag 3 --bytes 4K
runs allreduce --ranks 16 --multi-ported --sync-bytes 1K --overhead-us 0.2 \
    --speed uniform:0.5:1
prints 'solo .* 1\.00 +0\.00 +1\.0 ' partial --skew-ms 1 --ranks 32 --epochs 32
prints 'majority .* 16\.50 +[0-9.]+ +16\.5 ' partial --skew-ms 1 --ranks 32 --epochs 32 \
    --prove --bytes 64
prints 'spardl +14 .* -?[0-9.]+e-1[0-9] .* spardl +1 +8 +8 +8 +292106\.0 ' sparse \
    --ranks 14 --density 0.01 --alpha-us 50 --gbit 1
agrees sparse --ranks 8 --count 64K --density 0.125
runs sparse --ranks 6 --teams 3 --algorithm all --payload --count 1K --steps 3
prints 'auto .* spardl +14 ' sparse --ranks 14 --algorithm auto --teams 0

# ---- files -------------------------------------------------------------------

runs allreduce --sweep ranks=2..16 --csv a.csv --json a.json
json a.json
[ "$(wc -l <a.csv)" -eq $((4 * $(wc -l <allreduce.csv) - 3)) ] || complain "lines of a.csv"
runs partial --skew-ms 1 --ranks 4 --epochs 4 --json b.json
json b.json
runs sparse --ranks 14 --sweep teams=1,2,7,14 --csv s.csv --json s.json
json s.json
[ "$(wc -l <s.csv)" -eq $((4 * $(wc -l <sparse.csv) - 3)) ] || complain "lines of s.csv"
grep -q '"simulation": "full blocks"' s.json ||
    complain "s.json does not say what was simulated"
# The same seed gives the same bytes, another one does not.
for seed in 1 1 2; do
    runs partial --mode majority --ranks 16 --epochs 3 --skew exponential:30 \
        --lag uniform:0:5 --speed lognormal:1:0.2 --seed $seed --trace new.json
    json new.json traceEvents
    if [ ! -e first.json ]; then
        mv new.json first.json
    elif cmp -s first.json new.json; then
        [ $seed -eq 1 ] || complain "another seed, the same trace"
    else
        [ $seed -ne 1 ] || complain "the same seed, another trace"
    fi
done

if command -v gnuplot >/dev/null; then
    runs allreduce --sweep bytes=1K..64K --plot e.svg
    grep -q '<title>rabenseifner</title>' e.svg && grep -q '>64K<' e.svg ||
        complain "e.svg is no plot"
    runs sparse --sweep density=0.001,0.01 --plot lines.svg
    grep -q '<title>spardl</title>' lines.svg || complain "lines.svg is no plot"
fi
PATH=/nonexistent "$sim" allreduce --sweep bytes=1K..64K --plot f.svg >out 2>err
if [ $? -ne 1 ] || [ -s out ] || ! grep -q gnuplot-nox err; then
    complain "a missing gnuplot is not told at once with its package"
fi
"$sim" barrier --json /nonexistent/g.json >out 2>err
if [ $? -ne 1 ] || ! grep -q /nonexistent/g.json err; then
    complain "a file that can't be written is not told"
fi

# ---- refusals ----------------------------------------------------------------

# Tests one wrong value of each kind (test_microbench_bench tests more), and options
# that need or exclude each other.
refuses COMMAND
refuses COMMAND fly
refuses argument allreduce ring
refuses --ranks allreduce --ranks 0
refuses --bytes allreduce --bytes 12
refuses --bytes broadcast --bytes 4Q
refuses --algorithm allreduce --algorithm rign
refuses --chunk-bytes allreduce --algorithm binomial --chunk-bytes 64
refuses --alpha-us barrier --alpha-us -1
refuses --host-alpha-us allreduce --host-alpha-us 1
refuses --skew allreduce --skew uniform:5:1
refuses --speed allreduce --speed normal:1
refuses --density sparse --sweep density=0.1 --density 0.1
refuses --exchange sparse --exchange ring
refuses --sweep sparse --sweep bytes=8..16
refuses --root broadcast --ranks 8 --root 8
refuses --root broadcast --sweep ranks=4..16 --root 4
refuses --skew-ms partial --skew 1 --skew-ms 1
refuses --sweep allreduce --sweep ranks=8..4
refuses --sweep allreduce --sweep alpha=1..2
refuses --sweep barrier --sweep bytes=8..16
refuses --ranks allreduce --sweep ranks=2..4 --ranks 8
refuses --bytes allreduce --sweep bytes=8,16 --bytes 8
refuses --plot sparse --plot a.svg
refuses --plot allreduce --sweep ranks=2..4 --plot a.pdf
refuses --trace allreduce --trace a.json
refuses --trace barrier --multi-ported --trace a.json

runs --help
for command in allreduce broadcast barrier partial sparse; do
    grep -q "^  $command " out || complain "--help does not list $command"
done
for command in allreduce broadcast barrier partial sparse; do
    prints "^Usage: baton-sim $command" $command --help
done
# ---- help, and Ctrl-C --------------------------------------------------------

for script in "$root"/scripts/*.sh "$root/tests/mutants.sh" "$root/.ci/run"; do
    "$script" -h >out 2>err </dev/null && [ -s out ] && [ ! -s err ] ||
        complain "no help: $script -h"
done
# -IS hides the packages that the programs import. first_sum.py has no options.
for script in "$root"/scripts/*.py "$root"/tests/*.py "$root/python/declarations.py" \
    "$root/python/baton/trace.py" "$root"/examples/python/[!f]*.py; do
    command -v python3 >/dev/null || continue
    python3 -IS "$script" -h >out 2>err </dev/null && [ -s out ] && [ ! -s err ] ||
        complain "no help: $script -h"
done
for command in "" allreduce broadcast barrier partial sparse; do
    # shellcheck disable=SC2086
    prints '^Usage: baton-sim' $command -h
done

(cd "$root/.ci" && ./run -h) >out 2>err && [ ! -s err ] ||
    complain "no help by a relative path: .ci/run -h"

# Without --foreground, timeout sends the signal twice (to its child, then to
# the whole process group), and the second one ends baton-sim at once.
timeout --foreground -k 60 -s INT 3 "$sim" barrier --ranks 99 --epochs 1000000 >out 2>err
grep -q 'interrupted after .* of 1000000 epochs' err ||
    complain "an interrupted run does not say how far it came"
[ "$(wc -l <err)" -eq 1 ] || complain "progress is shown to what is no terminal"
timeout --foreground -k 60 -s INT 3 "$sim" allreduce --algorithm ring --ranks 4096 >out 2>err
grep -Eq 'interrupted after .*: [0-9]+ schedules.*, 0 of 1 epochs' err ||
    complain "an interrupted build does not say how far it came"
timeout --foreground -k 20 -s INT 3 "$sim" partial --mode solo --ranks 30000 --epochs 10 >out 2>err
[ $? -eq 124 ] && grep -q 'interrupted after' err ||
    complain "an interrupted run does not end at once"

# ---- on a terminal -----------------------------------------------------------

# terminal ARGUMENT...: runs the command on a terminal of 80 columns.
terminal() {
    COLUMNS=80 script -qec "$*" /dev/null </dev/null | tr -d '\r' >out 2>err
}

script -qec true /dev/null >/dev/null 2>&1 </dev/null || exit $fail
for command in allreduce broadcast barrier partial "partial --skew-ms 1" sparse; do
    terminal "'$sim' $command --ranks 8 --csv t.csv"
    [ "$(awk '{ if (length($0) > most) most = length($0) }
        END { print most }' out)" -le 80 ] || complain "wider than 80: $command"
    grep -q ' more columns: ' out || complain "no hint at other columns: $command"
    [ "$(head -n 1 t.csv | tr ',' '\n' | wc -l)" -gt 9 ] ||
        complain "the file lacks columns, too: $command"
done
# A loaded machine may need longer for the first line.
for seconds in 3 9 27; do
    terminal "timeout --foreground -k 60 -s INT $seconds '$sim' barrier --ranks 99 \
        --epochs 1000000"
    line='messages: [0-9]* s, [0-9]* % done, about [0-9]* s left'
    ! grep -q "$line" out || break
done
grep -q "$line" out || complain "no progress on a terminal"
terminal ". '$root/scripts/progress.sh'; date() { echo \$((progress_began + 9)); }; \
    show \"\$(so_far 1 4 s)\""
grep -q '1 of 4 s done, about 27 s left' out || complain "no progress of scripts"
exit $fail
