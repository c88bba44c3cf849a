#!/bin/sh
# Builds Baton for this machine's GPU, without MPI, into one folder, and runs what
# needs a GPU there: scripts/gpu_suites.sh lists the programs, and what each one
# proves.
#
#   scripts/test_gpu.sh [cmake option ...]      e.g. -DBATON_CUDA_ARCHITECTURES=90
#   scripts/test_gpu.sh --bundle DIR [cmake option ...]
#
# --bundle only builds: for one kind of GPU, of compute capability 9.0 unless an
# option says otherwise, into DIR. Copied to a machine with a GPU and its driver,
# DIR/run.sh runs it there; nothing else is needed.
#
# BUILD is the build folder, build-gpu/ by default, and CMAKE_GENERATOR may be
# Ninja. Ends with 77, and the reason, where there is no GPU or no nvcc.
set -u
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build-gpu}
bundle=$build/bundle
bundles=no
if [ "${1:-}" = --bundle ]; then
    bundle=${2:?--bundle needs a folder}
    bundles=yes
    shift 2
fi

skip() {
    echo "skipped: $1"
    exit 77
}

CUDA=${CUDA_HOME:-/usr/local/cuda}
PATH=$PATH:$CUDA/bin
command -v nvcc >/dev/null || skip "there is no nvcc"

# Kernels for the GPUs of this machine alone compile faster.
gpus=90
if [ $bundles = no ]; then
    if gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
        2>/dev/null); then
        gpus=$(echo "$gpus" | tr -d '. ' | sort -u | paste -sd ';')
    elif [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
        skip "there is no GPU: nvidia-smi finds none, and there is no /dev/nvidia0"
    else
        gpus=
    fi
fi

# ---- the folder ----------------------------------------------------------------

cmake -S "$root" -B "$build" -DBATON_MPI=OFF -DBATON_CUDA=ON \
    -DBATON_BUILD_TESTS=ON -DBATON_BUILD_EXAMPLES=ON \
    -DBATON_CUDA_ARCHITECTURES="$gpus" "$@" || exit 1
# make lists "... NAME", and Ninja "NAME: phony".
programs=$(cmake --build "$build" --target help |
    sed -n 's/^\(\.\.\. \)\{0,1\}\([a-z_-]*\)\(: .*\)\{0,1\}$/\2/p' |
    grep -x 'gpu_[a-z]*\|test_attach\|cuda_training' |
    sort -u)
[ -n "$programs" ] || {
    echo "no programs to build were found"
    exit 1
}
# shellcheck disable=SC2086
cmake --build "$build" -j "$(nproc)" --target $programs || exit 1

rm -rf "${bundle:?}/bin" "${bundle:?}/lib"
mkdir -p "$bundle/bin" "$bundle/lib" || exit 1
for name in $programs; do
    file=$(find "$build/tests" "$build/examples" -name "$name" -type f |
        head -n 1)
    cp "$file" "$bundle/bin/" || exit 1
    # All libraries but those of the C library and of the driver.
    ldd "$file" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
        grep -v '/\(libc\|libm\|libdl\|librt\|libpthread\|libcuda\)\.so' |
        while read -r library; do
            cp -L "$library" "$bundle/lib/" || exit 1
        done || exit 1
done
cp "$root/scripts/gpu_suites.sh" "$bundle/run.sh" || exit 1
if [ $bundles = yes ]; then
    echo "$bundle: $(du -sh "$bundle" | cut -f 1), run it with $bundle/run.sh"
    exit 0
fi
exec "$bundle/run.sh"
