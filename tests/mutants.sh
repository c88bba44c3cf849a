#!/bin/sh
# Whether the tests would notice. Each patch of mutants/ plants one bug in a copy
# of the tree; the test that it names ("Caught by:") must fail then, with a
# failed check, a crash or a hang. Without a bug all of these tests pass. A patch
# that no longer applies is a failure too: then make it anew.
#
#   mutants.sh ROOT FOLDER [mutant ...]     FOLDER is made, and left behind
set -eu
root=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
shift 2
tree=$work/tree
build=$work/build
seeds=10000
patience=120 # seconds of a test

# Everything is built anew: a run before may have ended with a bug in the tree.
rm -rf "$tree"
mkdir -p "$tree"
(cd "$root" && tar cf - CMakeLists.txt cuda include lib progress microbench \
    scripts tests) | (cd "$tree" && tar xmf -)
# Optimised as little as is quick in all.
cmake -S "$tree" -B "$build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -DBATON_BUILD_EXAMPLES=OFF \
    -DBATON_BUILD_MICROBENCH=OFF -DBATON_CUDA=OFF >/dev/null

# Builds and runs one test; its output in $work/output. 0: it passes, 1: it
# fails, 2: it cannot be built.
try() {
    cmake --build "$build" -j "$(nproc)" --target "$1" >"$work/output" 2>&1 ||
        return 2
    arguments=
    if [ "$1" = baton-fuzz ]; then arguments="--seeds $seeds"; fi
    # shellcheck disable=SC2086
    timeout -k 1 $patience "$build/tests/$1" $arguments \
        >"$work/output" 2>&1 </dev/null || return 1
}

# How a test failed: fuzz says which seed did, others which check.
describe() {
    line=$(grep -am 1 -e '^seed [0-9]* fails: ' -e '\[  FAILED  \] test' \
        "$work/output") || line="it crashes or hangs"
    printf '%.150s' "$line"
}

mutate() {
    (cd "$tree" && patch --strip=1 --fuzz=0 --silent "$@" \
        >"$work/output" 2>&1)
}

patches=
for name in "$@"; do
    patches="$patches $root/tests/mutants/$name.patch"
done
if [ $# -eq 0 ]; then patches=$(echo "$root"/tests/mutants/*.patch); fi
# shellcheck disable=SC2086
tests=$(sed -n 's/^Caught by: //p' $patches | sort -u)

for test in $tests; do
    if ! try "$test"; then
        echo "$test fails without a bug:"
        tail -20 "$work/output"
        exit 1
    fi
done
alive=0
for patch in $patches; do
    name=$(basename "$patch" .patch)
    test=$(sed -n 's/^Caught by: //p' "$patch")
    if ! mutate --input="$patch"; then
        echo "$name: the patch does not apply: $(tail -1 "$work/output")"
        exit 1
    fi
    result=0
    try "$test" || result=$?
    case $result in
    0) echo "$name: NOT CAUGHT by $test" && alive=$((alive + 1)) ;;
    1) echo "$name: $test: $(describe)" ;;
    *)
        echo "$name: does not compile:"
        tail -20 "$work/output"
        exit 1
        ;;
    esac
    mutate --reverse --input="$patch"
done
if [ $alive -gt 0 ]; then
    echo "$alive bugs are not caught"
    exit 1
fi
