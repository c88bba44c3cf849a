#!/bin/sh
# Takes about a minute: installs what is missing, builds Baton, and measures what
# a late rank costs in an all-reduce, with MPI and with Baton. Prints a table, and
# draws a plot.
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

"$root/scripts/deps.sh" --demo
echo "building in $build"
cmake -S "$root" -B "$build" -DBATON_BUILD_MICROBENCH=ON >/dev/null
cmake --build "$build" -j "$(nproc)" --target baton-skew >/dev/null

if [ "$(id -u)" -eq 0 ]; then
    # Open MPI refuses to run as root unless it is told twice.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# All ranks are on this host; Open MPI 5 complains of IPv6 addresses.
export OMPI_MCA_btl_tcp_disable_family=6
set -- --bytes 64,4096,65536 --iterations 192 --plot "$plot" "$@"
echo "mpirun -np $ranks baton-skew $*"
mpirun -np "$ranks" --oversubscribe --bind-to none \
    "$build/microbench/baton-skew" "$@"
echo "the plot is in $plot"
