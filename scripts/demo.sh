#!/bin/sh
# Takes about a minute: installs what is missing, builds Baton, and measures what
# a late rank costs in an all-reduce of Baton. Prints a table, and draws a plot. If
# mpicc is installed, MPI's all-reduce is measured beside it; no MPI is needed.
#
#   scripts/demo.sh [option of baton-skew ...]
#
# RANKS is the number of ranks (8), BUILD the build folder (build/), PLOT the
# file of the plot (skew.svg, here).
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build}
ranks=${RANKS:-8}
plot=${PLOT:-$PWD/skew.svg}

"$root/scripts/deps.sh" --no-mpi --demo
echo "building in $build"
cmake -S "$root" -B "$build" -DBATON_BUILD_MICROBENCH=ON >/dev/null
cmake --build "$build" -j "$(nproc)" --target baton-skew >/dev/null

set -- --bytes 64,4096,65536 --iterations 192 --plot "$plot" "$@"
echo "baton-skew $*, on $ranks ranks"
if ! command -v mpicc >/dev/null; then
    # The first rank prints the table. If another rank fails, the first rank fails, too.
    rank=$ranks
    while [ $((rank -= 1)) -gt 0 ]; do
        RANK=$rank WORLD_SIZE=$ranks "$build/microbench/baton-skew" "$@" &
    done
    RANK=0 WORLD_SIZE=$ranks "$build/microbench/baton-skew" "$@"
    wait
    echo "the plot is in $plot"
    exit
fi
if [ "$(id -u)" -eq 0 ]; then
    # Open MPI refuses to run as root unless it is told twice.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# All ranks are on this host; Open MPI 5 complains of IPv6 addresses.
export OMPI_MCA_btl_tcp_disable_family=6
mpirun -np "$ranks" --oversubscribe --bind-to none \
    "$build/microbench/baton-skew" "$@"
echo "the plot is in $plot"
