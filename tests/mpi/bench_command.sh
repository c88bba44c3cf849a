#!/bin/sh
# baton-bench as a user has it: each collective on short vectors, sparse ones, the
# rows of their files; with 2 ranks also ways, layers and places, and what is refused.
#
#   bench_command.sh BATON_BENCH CMAKE RANKS MPIRUN...     (cmake reads JSON)
set -u
bench=$1 cmake=$2 ranks=$3
shift 3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail=0

complain() {
    echo "bench_command: $1"
    cat out err
    fail=1
}

# rows FILE COLLECTIVE SYSTEMS SIZES: a row for each system and size, with the
# fifteen members; the best of MPI's systems has the ratio 1, by definition.
cat >rows.cmake <<'SCRIPT'
file(READ "${FILE}" text)
string(JSON count LENGTH "${text}")
math(EXPR expected "${SYSTEMS} * ${SIZES}")
if(NOT count EQUAL expected)
    message(FATAL_ERROR "${count} rows, expected ${expected}")
endif()
math(EXPR last "${count} - 1")
set(best 0)
foreach(i RANGE ${last})
    string(JSON members LENGTH "${text}" ${i})
    string(JSON collective GET "${text}" ${i} collective)
    string(JSON ranks GET "${text}" ${i} ranks)
    string(JSON system TYPE "${text}" ${i} system)
    string(JSON bytes TYPE "${text}" ${i} bytes)
    string(JSON us GET "${text}" ${i} median_us)
    string(JSON ratio GET "${text}" ${i} ratio_to_best_mpi)
    if(NOT "${members} ${collective} ${ranks} ${system} ${bytes}"
       STREQUAL "15 ${COLLECTIVE} ${RANKS} STRING NUMBER" OR NOT us GREATER 0
       OR NOT ratio GREATER 0)
        message(FATAL_ERROR "row ${i}: ${members} ${collective} ${ranks} "
                            "${system} ${bytes} ${us} ${ratio}")
    endif()
    string(JSON system GET "${text}" ${i} system)
    if(NOT system MATCHES "^baton" AND ratio EQUAL 1)
        math(EXPR best "${best} + 1")
    endif()
endforeach()
if(best LESS SIZES)
    message(FATAL_ERROR "no best system of MPI's at each size")
endif()
SCRIPT
rows() {
    "$cmake" -DFILE="$1" -DCOLLECTIVE="$2" -DRANKS="$ranks" -DSYSTEMS="$3" \
        -DSIZES="$4" -P rows.cmake >out 2>err || complain "rows of $2"
}

# runs ARGUMENT...: succeeds under mpirun.
runs() {
    "$mpirun" "$@" >out 2>err || complain "failed: baton-bench $*"
}

# refuses PATTERN ARGUMENT...: fails, and a line of its complaint matches.
refuses() {
    pattern=$1
    shift
    "$bench" "$@" >out 2>err </dev/null &&
        complain "succeeded: baton-bench $*"
    grep -Eq -- "$pattern" err ||
        complain "no complaint like '$pattern': baton-bench $*"
}

# With as many ranks as processors MPI waits without yielding: where the machine
# has other work, each of its calls takes a time slice.
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
    if grep -q '^# persistent: skipped' out; then
        systems=mpi,impi,baton
        rows rows.json $collective 3 3
    else
        rows rows.json $collective 4 3
    fi
done
runs barrier --systems mpi,impi,baton,baton:dissemination --repetitions 3 \
    --json rows.json
rows rows.json barrier 4 1

# One run for the files and the plot.
plot=
if command -v gnuplot >/dev/null; then
    plot="--plot a.svg"
fi
# shellcheck disable=SC2086
runs allreduce --bytes 8..32,96K --repetitions 1 --csv rows.csv $plot \
    --systems mpi,impi,baton,baton:ring --json rows.json
rows rows.json allreduce 4 4
[ "$(wc -l <rows.csv)" -eq 17 ] || complain "not 17 lines of CSV"
grep -q '^collective,system,ranks,hosts,bytes,way,memory,place,layers,median_us,ratio_to_best_mpi,p10_us,p90_us,computation_us,hidden_percent$' rows.csv ||
    complain "no heading of the CSV"
[ -z "$plot" ] || grep -q '</svg>' a.svg || complain "no plot"

runs allreduce --bytes 8,96K --repetitions 1 --place in --memory shared \
    --systems mpi,impi,baton --json rows.json
rows rows.json allreduce 3 2
"$mpirun" allreduce --bytes 8 --repetitions 1 --memory device >out 2>err ||
    grep -q '^baton-bench: --memory device: .' err ||
    complain "a missing GPU is not told"

# ---- sparse ------------------------------------------------------------------

# sparse_rows FILE ROWS: so many rows, whose members begin with those that are
# promised, in this order. Baton's sparse algorithms have all numbers.
cat >sparse.cmake <<'SCRIPT'
set(keys algorithm ranks n k teams median_us select_us bytes_sent messages
    rounds nnz bytes_formula messages_formula rounds_formula over_mpi_residual
    p10_us p90_us)
file(READ "${FILE}" text)
string(JSON count LENGTH "${text}")
if(NOT count EQUAL ROWS)
    message(FATAL_ERROR "${count} rows, expected ${ROWS}")
endif()
list(JOIN keys "\": [^:]*, \"" pattern)
string(REGEX MATCHALL "{\"${pattern}\": [^:]*}" rows "${text}")
list(LENGTH rows ordered)
if(NOT ordered EQUAL ROWS)
    message(FATAL_ERROR "${ordered} rows have their keys in order")
endif()
math(EXPR last "${ROWS} - 1")
foreach(i RANGE ${last})
    string(JSON algorithm GET "${text}" ${i} algorithm)
    string(JSON ranks GET "${text}" ${i} ranks)
    set(numbers ranks n k median_us nnz over_mpi_residual)
    if(NOT algorithm MATCHES "^(dense|mpi|mpi_residual)$")
        set(numbers ${keys})
        list(REMOVE_AT numbers 0)
    endif()
    foreach(key ${numbers})
        string(JSON value GET "${text}" ${i} ${key})
        string(JSON type TYPE "${text}" ${i} ${key})
        if(NOT type STREQUAL NUMBER OR value LESS 0)
            message(FATAL_ERROR "${algorithm}: ${key} is ${value}")
        endif()
    endforeach()
    string(JSON us GET "${text}" ${i} median_us)
    if(NOT ranks EQUAL RANKS OR NOT us GREATER 0)
        message(FATAL_ERROR "${algorithm}: ${ranks} ranks, ${us} us")
    endif()
endforeach()
SCRIPT
sparse_rows() {
    "$cmake" -DFILE="$1" -DROWS="$2" -DRANKS="$ranks" -P sparse.cmake \
        >out 2>err || complain "rows of sparse"
}

runs sparse --bytes 4000 --density 0.01,1 --repetitions 1 --json sparse.json
sparse_rows sparse.json 18
grep -q '"select_us": null' sparse.json || complain "what is not counted is not null"
for algorithm in spardl topka topkdsa gtopk oktopk redsync dense mpi \
    mpi_residual; do
    [ "$(grep -c "{\"algorithm\": \"$algorithm\"," sparse.json)" -eq 2 ] ||
        complain "not 2 rows of $algorithm"
done
runs sparse --bytes 4,4000 --algorithm spardl,mpi_residual --repetitions 2 \
    --teams "1,$ranks,0" --json sparse.json --csv sparse.csv
sparse_rows sparse.json 8
[ "$(wc -l <sparse.csv)" -eq 9 ] || complain "not 9 lines of CSV"
"$mpirun" sparse --teams 7 --json unused.json >out 2>err &&
    complain "7 teams of $ranks ranks"
grep -q -- "--teams: 7 does not divide the number of ranks, $ranks\$" err ||
    complain "no complaint about 7 teams"
[ "$ranks" -eq 2 ] || exit $fail

# ---- ways, layers, memory, places ---------------------------------------------

# contains COUNT PATTERN: sweep.json has so many such rows.
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

# What else is refused is in test_microbench_bench.
refuses "COMMAND: 'broadcast' is not one of allreduce, bcast" broadcast
refuses "no algorithm of allreduce is called \"rang\".*nearest is ring" \
    allreduce --systems baton:rang
refuses "can't write /nonexistent/a" allreduce --json /nonexistent/a
exit $fail
