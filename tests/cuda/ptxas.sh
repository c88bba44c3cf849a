#!/bin/sh
# What ptxas makes of the selection kernels: ptxas.sh NVCC SOURCE-ROOT
#
# Each has registers for three blocks of 256 threads on a processor (85 of them),
# none spills, and those that read vectors load 16 bytes at a time.
set -u
nvcc=$1
root=$2
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

"$nvcc" -std=c++17 -arch=sm_80 -fmad=false -I "$root/include" -I "$root" \
    --ptx -o "$out/kernels.ptx" "$root/tests/cuda/ptxas.cu" || exit 1
"$(dirname "$nvcc")/ptxas" -arch=sm_80 -v -o "$out/kernels.cubin" \
    "$out/kernels.ptx" 2>"$out/said" || {
    cat "$out/said"
    exit 1
}

awk '
/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
/bytes spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ {
    print name " spills: " $0
    bad = 1
}
/Used [0-9]+ registers/ {
    for (i = 1; i < NF; i++) {
        if ($i == "Used") {
            registers = $(i + 1)
        }
    }
    kernels++
    if (registers > 85) {
        print name " has " registers " registers, more than 85"
        bad = 1
    }
}
END {
    if (kernels < 9) {
        print "ptxas said something about " kernels " kernels, not 9"
        bad = 1
    }
    exit bad
}' "$out/said" || exit 1

for kernel in filter_tiles tally emit; do
    awk -v kernel="$kernel" '
    /\.entry/ { inside = index($0, kernel); if (inside) entries++ }
    inside && /ld\.global(\.nc)?\.v4\.[a-z]32/ { loads++ }
    END {
        if (loads < 8 * entries || entries == 0) {
            print kernel ": " loads " loads of 16 bytes in " entries " kernels"
            exit 1
        }
    }' "$out/kernels.ptx" || exit 1
done
