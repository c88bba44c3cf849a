#!/bin/sh
# Checks the code that ptxas makes of the kernels: ptxas.sh NVCC SOURCE-ROOT
#
# A kernel uses at most 85 registers, so that three blocks of 256 threads fit on a
# processor. It spills no registers, and keeps no data in local memory. Kernels that
# read whole vectors load 16 bytes at a time.
set -u
nvcc=$1
root=$2
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

for source in select entries reduce; do
    "$nvcc" -std=c++17 -arch=sm_80 -fmad=false -I "$root/include" -I "$root" \
        -cubin -Xptxas -v --keep --keep-dir "$out" -o "$out/$source.cubin" \
        "$root/cuda/$source.cu" >>"$out/said" 2>&1 || {
        cat "$out/said"
        exit 1
    }
done

awk '
/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
/bytes stack frame/ && !/ 0 bytes stack frame, 0 bytes spill stores/ {
    print name " uses local memory: " $0
    bad = 1
}
/Used [0-9]+ registers/ {
    registers = $0
    sub(/.*Used /, "", registers)
    kernels++
    if (registers + 0 > 85) {
        print name " has " registers + 0 " registers, more than 85"
        bad = 1
    }
}
END {
    if (kernels < 164) {
        print "ptxas said something about " kernels + 0 " kernels, not 164"
        bad = 1
    }
    exit bad
}' "$out/said" || exit 1

for kernel in select/filter_tiles select/tally select/emit \
    reduce/reduce_vectors; do
    awk -v kernel="${kernel#*/}" '
    /\.entry/ { inside = index($0, kernel); if (inside) entries++ }
    inside && /ld\.global(\.nc)?\.v4\.[a-z]32/ { loads++ }
    END {
        if (loads < 8 * entries || entries == 0) {
            print kernel ": " loads + 0 " loads of 16 bytes in " entries + 0 \
                " kernels"
            exit 1
        }
    }' "$out/${kernel%/*}.ptx" || exit 1
done
