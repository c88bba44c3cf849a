#!/bin/sh
# Whether the tests would notice. Each patch of mutants/ plants one bug in a file
# of the library; the test that it names must fail then, with a failed check, a
# crash or a hang. Without a bug all of these tests pass. A patch that no longer
# applies is a failure too: then make it anew.
#
#   mutants.sh ROOT FOLDER [mutant ...]     FOLDER is made, and left behind
#
# "Caught by:" is the name of a test's program, with arguments if need be; or
# NAME.npK, which runs it on K ranks; after variables for it, if any:
#
#   Caught by: BATON_SHM=0 mpi_dense.np3
#
# The library and the tests are built once. A mutant is its one file compiled
# and linked ahead of the library, so several are tried side by side.
set -eu
patience=120 # seconds of a test without a bug
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ---- one test ------------------------------------------------------------

program_of() { # of what "Caught by:" says
    for word in $1; do
        case $word in
        *=*) ;;
        *) echo "${word%%.np*}" && return ;;
        esac
    done
}

# Where files about what "Caught by:" says are.
name_of() { echo "$1" | tr -c 'A-Za-z0-9.\n' '_'; }

# try FOLDER SPEC OUTPUT: runs a test whose program is in the folder.
try() {
    settings="" run="" arguments=""
    for word in $2; do
        case $word in
        *=*) settings="$settings $word" ;;
        *.np*) run="mpirun --oversubscribe --bind-to none -np ${word##*.np}" ;;
        baton-fuzz) arguments="--seeds 1000" ;;
        *)
            if [ "$word" != "$(program_of "$2")" ]; then
                arguments="$arguments $word"
            fi
            ;;
        esac
    done
    # shellcheck disable=SC2086
    env $settings timeout -k 1 $patience \
        $run "$1/$(program_of "$2")" $arguments \
        >"$3" 2>&1 </dev/null
}

# How a test failed: fuzz says which seed did, others which check.
describe() {
    line=$(grep -am 1 -e '^seed [0-9]* fails: ' -e '\[  FAILED  \] test' \
        -e '^rank [0-9]*[:,]' "$1") || line="it crashes or hangs"
    printf '%.110s' "$line"
}

# ---- one mutant ----------------------------------------------------------

# compile SOURCE: the command that compiles it, without its input and output.
compile() {
    awk -v name="/$1\"" '
        /"command":/ { command = $0 }
        /"file":/ && index($0, name) { print command; exit }' \
        "$build/compile_commands.json" |
        sed 's/^ *"command": "//; s/",$//; s/\\\(.\)/\1/g; s/ -o .*//'
}

# The command that links a program, run in the build folder.
link() {
    if [ -f "$build/build.ninja" ]; then
        ninja -C "$build" -t commands "tests/$1" | tail -1
    else
        sed 's#^#cd tests \&\& #' "$build/tests/CMakeFiles/$1.dir/link.txt"
    fi
}

# mutant PATCH: one line about it; fails unless its test does.
mutant() {
    name=$(basename "$1" .patch)
    spec=$(sed -n 's/^Caught by: //p' "$1")
    program=$(program_of "$spec")
    file=$(sed -n 's#^+++ b/##p' "$1")
    own=$work/$name
    began=$(date +%s)
    mkdir -p "$own/$(dirname "$file")"
    cp "$root/$file" "$own/$file"
    if ! (cd "$own" && patch --strip=1 --fuzz=0 --silent --input="$1" \
        >"$own/output" 2>&1); then
        echo "$name: the patch does not apply: $(tail -1 "$own/output")"
        return 1
    fi
    if ! (cd "$build" && eval "$(compile "$file")" \
        "-iquote '$root/$(dirname "$file")' -w" \
        "-o '$own/mutant.o' -c '$own/$file'" >"$own/output" 2>&1 &&
        eval "$(link "$program" | sed "s# -o [^ ]*# '$own/mutant.o' -o '$own/$program'#
            s# [^ ]*libbaton\.so[^ ]*# '$build/libbaton.a' $libraries#")" \
            >"$own/output" 2>&1); then
        echo "$name: does not compile:"
        tail -20 "$own/output"
        return 1
    fi
    caught=false
    patience=$(cat "$work/patience.$(name_of "$spec")")
    # Where threads race, one run may miss what the next one meets.
    for _ in 1 2 3 4 5; do
        if ! try "$own" "$spec" "$own/output"; then
            caught=true
            break
        fi
    done
    took=$(($(date +%s) - began))
    if $caught; then
        echo "$name: $took s: $spec: $(describe "$own/output")"
        rm -rf "$own"
    else
        echo "$name: $took s: NOT CAUGHT by $spec"
        return 1
    fi
}

if [ "$1" = --one ]; then
    root=$2 work=$3 build=$3/build
    # What a program needs beside the library.
    libraries=$(link test_run | sed 's/.*libbaton\.a//; s/ && :$//')
    mutant "$4" || echo "$4" >>"$work/failed"
    exit
fi

# ---- all -----------------------------------------------------------------

if [ "$1" = --plain ]; then
    output=$3/output.$(name_of "$4")
    began=$(date +%s)
    if try "$3/build/tests" "$4" "$output"; then
        # A bug may make it hang: that is found in a few times its own time.
        echo $((10 + 4 * ($(date +%s) - began))) \
            >"$3/patience.$(name_of "$4")"
        exit
    fi
    echo "$4 fails without a bug:"
    tail -20 "$output"
    echo "$4" >>"$3/failed"
    exit
fi

root=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
shift 2
build=$work/build
jobs=$(nproc)
patches=
for name in "$@"; do
    patches="$patches $root/tests/mutants/$name.patch"
done
if [ $# -eq 0 ]; then patches=$(echo "$root"/tests/mutants/*.patch); fi
specs=$work/specs
# shellcheck disable=SC2086
sed -n 's/^Caught by: //p' $patches | sort -u >"$specs"
rm -f "$work/failed"
programs=$(while read -r spec; do program_of "$spec"; done <"$specs" |
    sort -u)
generator=
if command -v ninja >/dev/null; then generator="-G Ninja"; fi
launcher=
if command -v ccache >/dev/null; then
    launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
fi
# Optimised as little as is quick in all.
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" $generator $launcher -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -DBATON_BUILD_EXAMPLES=OFF \
    -DBATON_BUILD_MICROBENCH=OFF -DBATON_CUDA=OFF >/dev/null
# shellcheck disable=SC2086
cmake --build "$build" -j "$jobs" --target baton_static test_run $programs \
    >"$work/output" 2>&1 || {
    tail -20 "$work/output"
    exit 1
}
for step in plain one; do
    if [ $step = plain ]; then
        tr '\n' '\0' <"$specs"
    else
        # shellcheck disable=SC2086
        printf '%s\0' $patches
    fi | xargs -0 -n 1 -P "$jobs" "$0" --$step "$root" "$work"
    if [ -f "$work/failed" ]; then
        echo "$(wc -l <"$work/failed") failed"
        exit 1
    fi
done
