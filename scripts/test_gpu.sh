#!/bin/sh
# Builds Baton for this machine's GPU, without MPI, and tests what needs one: the
# conformance suite of device ports, the kernels against the host's, memory of
# another process, epochs in stream order, selection; then each but the example
# under compute-sanitizer's memcheck and racecheck, if it is there.
#
#   scripts/test_gpu.sh [cmake option ...]      e.g. -DBATON_CUDA_ARCHITECTURES=90
#
# BUILD is the build folder, build-gpu/ by default. Ends with 77, and the reason,
# where there is no GPU or no nvcc.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build-gpu}

skip() {
    echo "skipped: $1"
    exit 77
}

CUDA=${CUDA_HOME:-/usr/local/cuda}
PATH=$PATH:$CUDA/bin
command -v nvcc >/dev/null || skip "there is no nvcc"

# Kernels for the GPUs of this machine alone compile faster.
if gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
    2>/dev/null); then
    gpus=$(echo "$gpus" | tr -d '. ' | sort -u | paste -sd ';')
elif [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
    skip "there is no GPU: nvidia-smi finds none, and there is no /dev/nvidia0"
else
    gpus=
fi
cmake -S "$root" -B "$build" -DBATON_MPI=OFF -DBATON_CUDA=ON \
    -DBATON_CUDA_ARCHITECTURES="$gpus" "$@" || exit 1
cmake --build "$build" -j "$(nproc)" --target help |
    sed -n 's/^\.\.\. \(gpu_[a-z_]*\|cuda_training\)$/\1/p' \
        >"$build/gpu_targets"
suites=$(cat "$build/gpu_targets")
# shellcheck disable=SC2046
cmake --build "$build" -j "$(nproc)" --target test_attach test_elements \
    $suites || exit 1

# ---- is there a GPU? ---------------------------------------------------------

TEST_ROUNDS=1 "$build/tests/gpu_port" >"$build/there" 2>&1
if [ $? -eq 77 ]; then
    cat "$build/there"
    exit 77
fi

# ---- the suites --------------------------------------------------------------

failed=
skipped=

program() {
    if [ -x "$build/tests/$1" ]; then
        echo "$build/tests/$1"
    else
        echo "$build/examples/$1"
    fi
}

# suite NAME COMMAND...
suite() {
    name=$1
    shift
    echo "==== $name"
    timeout 1800 "$@"
    case $? in
    0) echo "==== $name: passed" ;;
    77)
        echo "==== $name: skipped"
        skipped="$skipped $name"
        ;;
    *)
        echo "==== $name: FAILED"
        failed="$failed $name"
        ;;
    esac
}

for name in test_attach test_elements $suites; do
    suite "$name" "$(program "$name")"
done

# The tools follow each access: fewer rounds. gpu_elements alone would take hours
# under racecheck, and gpu_peers has two processes.
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        for name in $suites; do
            case $name-$tool in
            cuda_training-* | gpu_elements-racecheck) continue ;;
            esac
            suite "$tool of $name" env TEST_ROUNDS=200 compute-sanitizer \
                --tool "$tool" --target-processes all --error-exitcode 1 \
                "$(program "$name")"
        done
    done
else
    echo "==== no compute-sanitizer: memcheck and racecheck were not run"
fi

[ -z "$skipped" ] || echo "==== skipped:$skipped"
if [ -n "$failed" ]; then
    echo "==== failed:$failed"
    exit 1
fi
echo "==== all passed"
