#!/bin/sh
# Tests baton-bench as a user runs it: each collective on short vectors, sparse
# all-reduces, and the rows of the files that it writes. With 2 ranks also tests
# ways, layers and places, and wrong arguments.
#
#   bench_command.sh BATON_BENCH CMAKE RANKS MPIRUN...     (cmake reads JSON)
. "$(dirname "$0")/../support/command.sh"
bench=$1 cmake=$2 ranks=$3
shift 3

# rows FILE COUNT PATTERN: expects that the JSON file has COUNT rows, and that each
# row matches.
cat >rows.cmake <<'SCRIPT'
file(READ "${FILE}" text)
string(JSON count LENGTH "${text}")
if(NOT count EQUAL COUNT)
    message(FATAL_ERROR "${count} rows, expected ${COUNT}")
endif()
SCRIPT
rows() {
    "$cmake" -DFILE="$1" -DCOUNT="$2" -P rows.cmake >out 2>err ||
        complain "$1"
    [ "$(grep -Ec "$3" "$1")" -eq "$2" ] || complain "not $2 rows of $3"
}
some='[0-9][0-9.e+-]*'
any="($some|null)"

# dense COLLECTIVE SYSTEMS SIZES: expects that rows.json has a row for each
# system and size. The fastest of MPI's systems has the ratio 1, by definition.
dense() {
    rows rows.json $(($2 * $3)) "\\{\"collective\": \"$1\", \"system\": \"[^\"]+\", \
\"ranks\": $ranks, \"hosts\": 1, \"bytes\": $some, \"way\": \"wait\", \
\"memory\": \"[a-z]+\", \"place\": \"[a-z]+\", \"layers\": 1, \
\"median_us\": $some, \"ratio_to_best_mpi\": $some, \"p10_us\": $some, \
\"p90_us\": $some, \"computation_us\": null, \"hidden_percent\": null\\}"
    [ "$(grep -c '"system": "[^b].*"ratio_to_best_mpi": 1,' rows.json)" \
        -ge "$3" ] || complain "no best system of MPI's at each size"
}

# runs ARGUMENT...: expects that the command succeeds under mpirun.
runs() {
    "$mpirun" "$@" >out 2>err || complain "failed: baton-bench $*"
}

# refuses PATTERN ARGUMENT...: expects that the command fails, and that a line
# of its error matches.
refuses() {
    pattern=$1
    shift
    "$bench" "$@" >out 2>err </dev/null &&
        complain "succeeded: baton-bench $*"
    grep -Eq -- "$pattern" err ||
        complain "no complaint like '$pattern': baton-bench $*"
}

# With as many ranks as processors MPI waits without yielding. So if the machine
# has other work, each call of MPI takes a time slice.
cat >run <<SCRIPT
#!/bin/sh
OMPI_MCA_mpi_yield_when_idle=1 exec $* -np $ranks "$bench" "\$@"
SCRIPT
chmod +x run
mpirun=./run

# ---- every collective --------------------------------------------------------

systems=mpi,impi,persistent,baton
for collective in bcast reduce allgather reduce_scatter alltoall gather scatter
do
    runs $collective --bytes 8,4100,96K --repetitions 1 --systems $systems \
        --json rows.json
    count=4
    if grep -q '^# persistent: skipped' out; then
        count=3
    fi
    dense $collective $count 3
done
runs barrier --systems mpi,impi,baton,baton:dissemination --repetitions 3 \
    --json rows.json
dense barrier 4 1

# One run writes the files and the plot.
plot=
if command -v gnuplot >/dev/null; then
    plot="--plot a.svg"
fi
# shellcheck disable=SC2086
runs allreduce --bytes 8..32,96K --repetitions 1 --csv rows.csv $plot \
    --systems mpi,impi,baton,baton:ring --json rows.json
dense allreduce 4 4
[ "$(wc -l <rows.csv)" -eq 17 ] || complain "not 17 lines of CSV"
grep -q '^collective,system,ranks,hosts,bytes,way,memory,place,layers,median_us,ratio_to_best_mpi,p10_us,p90_us,computation_us,hidden_percent$' rows.csv ||
    complain "no heading of the CSV"
[ -z "$plot" ] || [ "$(grep -Ec '<title>(impi|baton:ring)</title>' a.svg)" -eq 2 ] ||
    complain "no plot, or not of each system"

runs allreduce --bytes 8,96K --repetitions 1 --place in --memory shared \
    --systems mpi,impi,baton --json rows.json
dense allreduce 3 2
"$mpirun" allreduce --bytes 8 --repetitions 1 --memory device >out 2>err ||
    grep -q '^baton-bench: --memory device: .' err ||
    complain "a missing GPU is not told"

# ---- sparse ------------------------------------------------------------------

# sparse COUNT ALGORITHMS NUMBER: expects COUNT rows of these algorithms. NUMBER is a
# pattern for the numbers that only sparse steps of Baton have.
sparse() {
    grep -E "\"algorithm\": \"($2)\"" sparse.json >rows.json
    [ "$(grep -Ec "\\{\"algorithm\": \"[a-z_]+\", \"ranks\": $ranks, \
\"n\": $some, \"k\": $some, \"teams\": $3, \"median_us\": $some, \
\"select_us\": $3, \"bytes_sent\": $3, \"messages\": $3, \"rounds\": $3, \
\"nnz\": $some, \"bytes_formula\": $3, \"messages_formula\": $3, \
\"rounds_formula\": $3, \"over_mpi_residual\": $some, \"p10_us\": $some, \
\"p90_us\": $some\\}" rows.json)" -eq "$1" ] || complain "not $1 rows of $2"
}

runs sparse --bytes 4000 --density 0.01,1 --repetitions 1 --json sparse.json
rows sparse.json 18 .algorithm
grep -q '"select_us": null' sparse.json || complain "what is not counted is not null"
for algorithm in spardl topka topkdsa gtopk oktopk redsync; do
    sparse 2 $algorithm "$some"
done
for algorithm in dense mpi mpi_residual; do
    sparse 2 $algorithm "$any"
done
runs sparse --bytes 4,4000 --algorithm spardl,mpi_residual --repetitions 2 \
    --teams "1,$ranks,0" --json sparse.json --csv sparse.csv
sparse 6 spardl "$some"
sparse 2 mpi_residual "$any"
[ "$(wc -l <sparse.csv)" -eq 9 ] || complain "not 9 lines of CSV"
runs sparse --bytes 4000 --algorithm spardl --momentum 0.9 --short-velocity \
    --clip 1 --warm-up 99 --json sparse.json
grep -q '"select_us": null' sparse.json || complain "no dense steps of a warm-up"
"$mpirun" sparse --teams 7 --json unused.json >out 2>err &&
    complain "7 teams of $ranks ranks"
grep -q "teams is 7; allowed: the divisors of $ranks ranks" err ||
    complain "no complaint about 7 teams"
[ "$ranks" -eq 2 ] || exit $fail

# ---- ways, layers, memory, places ---------------------------------------------

# contains COUNT PATTERN: expects that COUNT rows of sweep.json match.
contains() {
    [ "$(grep -c "$2" sweep.json)" -eq "$1" ] || complain "not $1 rows of $2"
}

runs allreduce --bytes 4K --layers 1,3 --repetitions 1 --json sweep.json \
    --systems impi,baton --ways all
contains 18 '"median_us": [0-9]'
contains 8 '"hidden_percent": [0-9]'
contains 9 '"layers": 3,'
runs allreduce --bytes 8,96K --systems mpi,impi,baton --repetitions 1 \
    --ways unwaited,sleep --memory malloc,shared --place all --json sweep.json
contains 56 '"median_us": [0-9]'
contains 8 '"system": "baton", .*"way": "unwaited", .*"ratio_to_best_mpi": [0-9]'
contains 28 '"memory": "shared", '
contains 28 '"place": "in", '

# ---- refusals ----------------------------------------------------------------

# test_microbench_bench tests the other wrong arguments.
refuses "COMMAND: 'broadcast' is not one of allreduce, bcast" broadcast
refuses "no algorithm of allreduce is called \"rang\".*nearest is ring" \
    allreduce --systems baton:rang
refuses "can't write /nonexistent/a" allreduce --json /nonexistent/a
exit $fail
