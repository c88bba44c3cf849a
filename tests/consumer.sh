#!/bin/sh
# Installs Baton in a new directory and moves that. Then builds a program
# outside of the tree with it, by find_package and by pkg-config, and runs the
# program.
#
#   consumer.sh ROOT BUILD CMAKE CC CXX
set -eu
root=$1 build=$2 cmake=$3 cc=$4 cxx=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
cp -r "$root/tests/consumer" "$work/source"
cd "$work"

for command in skew bench info sim; do
    if [ ! -x "prefix/bin/baton-$command" ]; then
        echo "bin/baton-$command is not installed"
        exit 1
    fi
done
prefix/bin/baton-info >info.txt
if [ -x prefix/bin/baton-mpirun ]; then
    find prefix -name libbaton_mpi.so | grep -q . && prefix/bin/baton-mpirun --help >help.txt
fi
for file in man/man1/baton-sim.1 doc/baton/LICENSE doc/baton/docs/modes.md \
    baton/plot.gp; do
    if [ ! -s "prefix/share/$file" ]; then
        echo "share/$file is not installed"
        exit 1
    fi
done
if command -v gnuplot >/dev/null; then
    prefix/bin/baton-sim allreduce --algorithm ring --sweep ranks=2,4 --plot a.svg >sim.txt
    grep -q '<title>ring</title>' a.svg || {
        echo "the installed baton-sim draws no picture"
        exit 1
    }
fi
# Each link of the installed pages leads to a file, or to a heading.
dead=$(cd prefix/share/doc/baton && grep -o '](\([^)#]*\)' README.md CHANGELOG.md docs/*.md |
    sed 's/\(.*\):](/\1 /' | while read -r page target; do
    case $target in
    "" | https:*) ;;
    *) [ -e "$(dirname "$page")/$target" ] || echo "$page: no $target" ;;
    esac
done)
if [ -n "$dead" ]; then
    echo "$dead"
    exit 1
fi
# The installed Python package finds the library beside it.
package=$(find "$work/prefix" -path '*/baton/__init__.py')
if /usr/bin/python3 -c 'import cffi, numpy' 2>/dev/null; then
    PYTHONPATH=${package%/baton/__init__.py} /usr/bin/python3 -c \
        'import baton; print("python:", baton.__version__, baton.simulate(
            lambda s, source, target, op: s.collective("allreduce", source, target),
            8, bytes=64, alpha_us=1).us)'
fi
# README.md contains the first example.
sed -n '/^#include/,$p' "$root/examples/00_first_sum.c" >first_sum.c
if ! awk '/^```c$/ { getline; on = /^#include/ } /^```$/ { on = 0 } on' "$root/README.md" |
    diff - first_sum.c; then
    echo "README.md prints another program than examples/00_first_sum.c"
    exit 1
fi
# README.md has the right number of algorithms.
algorithms=$(grep -c '^    X(' "$root/lib/coll/dense/algorithms.h")
if ! grep -q "\*\*$algorithms algorithms\*\*" "$root/README.md"; then
    echo "README.md does not say that there are $algorithms algorithms"
    exit 1
fi

echo "find_package:"
"$cmake" -S source -B build -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$work/prefix" >log 2>&1 || { cat log; exit 1; }
"$cmake" --build build >log 2>&1 || { cat log; exit 1; }
build/consumer

echo "pkg-config:"
pc=$(find "$work/prefix" -name baton.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir baton)
# shellcheck disable=SC2046
"$cc" -std=c11 source/main.c $(pkg-config --cflags --libs baton-mpi) -o consumer
LD_LIBRARY_PATH=$lib ./consumer
# The commands know an algorithm that a preloaded shared object adds.
# shellcheck disable=SC2046
"$cc" -shared -fPIC "$root/examples/03_own_allreduce.c" \
    $(pkg-config --cflags --libs baton-mpi) -o chain.so
LD_LIBRARY_PATH=$lib LD_PRELOAD=$PWD/chain.so prefix/bin/baton-sim allreduce \
    --algorithm chain --ranks 5 --bytes 1K --prove
for standard in c++17 c++20; do
    # shellcheck disable=SC2046
    "$cxx" -std=$standard -Wall -Werror source/main.cpp \
        $(pkg-config --cflags --libs baton-mpi) -o consumer_cpp
    LD_LIBRARY_PATH=$lib ./consumer_cpp
done

echo "find_package, a project of C++ alone:"
"$cmake" -S source -B build_cpp -Dlanguage=CXX -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_PREFIX_PATH="$work/prefix" >log 2>&1 || { cat log; exit 1; }
"$cmake" --build build_cpp >log 2>&1 || { cat log; exit 1; }
build_cpp/consumer

# libevent and hwloc are linked as shared libraries, as Debian has them. A
# completely static program would need their dependencies, too.
echo "libbaton.a:"
# shellcheck disable=SC2046
"$cc" -std=c11 source/main.c $(pkg-config --cflags baton-mpi) "$lib/libbaton.a" \
    $(pkg-config --libs baton-mpi | sed 's/-lbaton[a-z_]*//g') \
    $(pkg-config --libs $(pkg-config --print-requires-private baton)) -lm \
    -o consumer_static
./consumer_static
