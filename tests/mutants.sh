#!/bin/sh
# Checks whether the tests notice bugs. Each record of the files in mutants/
# plants one bug in a file of the library. The test that the record names must
# then fail: by a failed check, a crash or a hang. Without a bug all of these
# tests pass.
#
#   mutants.sh ROOT FOLDER [mutant ...]     FOLDER is made, and left behind
#
# Records follow a line that names their file and the test. A record ends with
# an empty line. Its lines with - are removed, those with + are added, and those
# with a space show the place:
#
#   lib/transport/mpi/poll.c, caught by BATON_SHM=0 mpi_dense.np3
#   sleeps_at_once: A rank that was woken sleeps before the message has come.
#     if (far->peers > 0) {
#   -     return AFTER_WAKE_US;
#   +     return us;
#
# Lines that are removed, and those that show the place, must be in the file
# exactly once, with any indentation. Otherwise the record is a failure, and
# must be made anew. The test is the name of a program, with arguments if it
# needs some, or NAME.npK, which runs it on K ranks. Variables for the test may
# stand before it.
#
# The library and the tests are built once. For a mutant, one file is compiled
# and linked before the library, so several mutants can be tried at a time. If a
# test includes the file, the test is compiled instead. Programs of dropin/ are
# run with libbaton_mpi in front of MPI, and a mutant of it is made from its
# objects in the same way.
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
patience=300 # seconds of a test without a bug, on a busy machine
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ---- one test ------------------------------------------------------------

spec_of() { # prints the test that a record names
    sed -n '2s/.*, caught by //p' "$1"
}

program_of() { # of a test
    for word in $1; do
        case $word in
        *=*) ;;
        *) echo "${word%%.np*}" && return ;;
        esac
    done
}

# The name that all files about a test begin with.
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
    # A program of cmocka ends at the first failed check.
    # shellcheck disable=SC2086
    env CMOCKA_TEST_ABORT=1 $settings timeout -k 1 $patience \
        $run "$1/$(program_of "$2")" $arguments \
        >"$3" 2>&1 </dev/null
}

# Prints how a test failed: for fuzz the seed that did, and for others the
# check. For programs of cmocka it prints the test that began last.
describe() {
    line=$(grep -am 1 -e '^seed [0-9]* fails: ' -e ': error: ' \
        -e '^rank [0-9]*[:,]' -e '/dropin_[a-z]*\.c:' "$1") ||
        line="it crashes or hangs"
    line=${line##* --- "$root/"}
    test=$(sed -n 's/^\[ RUN *\] //p' "$1" | tail -1)
    printf '%.110s' "${test:+$test: }${line%%: error: *}"
}

# ---- one mutant ----------------------------------------------------------

# compile SOURCE: prints the command that compiles a source, without its input
# and output.
compile() {
    awk -v name="/$1\"" '
        /"command":/ { command = $0 }
        /"file":/ && index($0, name) { print command; exit }' \
        "$build/compile_commands.json" |
        sed 's/^ *"command": "//; s/",$//; s/\\\(.\)/\1/g; s/ -o .*//'
}

# Prints the command that links a program. It is run in the build folder.
link() {
    if [ -f "$build/build.ninja" ]; then
        ninja -C "$build" -t commands "tests/$1" | tail -1
    else
        sed 's#^#cd tests \&\& #' "$build/tests/CMakeFiles/$1.dir/link.txt"
    fi
}

# plant RECORD FILE: prints the file with the bug.
plant() {
    awk '
        function trimmed(text) {
            gsub(/^[ \t]+|[ \t]+$/, "", text)
            return text
        }
        FNR == NR && FNR > 2 {
            if (!/^[+]/) before[++olds] = trimmed(substr($0, 2))
            if (!/^-/) after[++news] = substr($0, 2)
        }
        FNR != NR { line[lines = FNR] = $0 }
        END {
            for (at = 1; at <= lines; at++) {
                for (i = 1; i <= olds; i++)
                    if (trimmed(line[at + i - 1]) != before[i]) break
                if (i > olds) {
                    found++
                    place = at
                }
            }
            if (olds == 0 || found != 1) {
                print found + 0 " places" >"/dev/stderr"
                exit 1
            }
            for (i = 1; i < place; i++) print line[i]
            for (i = 1; i <= news; i++) print after[i]
            for (i = place + olds; i <= lines; i++) print line[i]
        }' "$1" "$2"
}

# mutant RECORD: prints one line about a mutant. Fails unless its test fails.
mutant() {
    name=$(basename "$1")
    spec=$(spec_of "$1")
    program=$(program_of "$spec")
    file=$(sed -n '2s/, caught by .*//p' "$1")
    own=$work/$name
    began=$(date +%s)
    mkdir -p "$own/$(dirname "$file")"
    if ! plant "$1" "$root/$file" >"$own/$file" 2>"$own/output"; then
        echo "$name: make it anew: $(tail -1 "$own/output")"
        return 1
    fi
    source=$file at=$own/$file except=NONE
    test=$(ls "$root/tests/"*"/$program.c" 2>/dev/null) || test=/dev/null
    if grep -q "^#include \"${file#lib/}\"" "$test"; then
        source=${test#"$root/tests/"} at=$test except=$program.c.o
    fi
    objects=$(find "$build/CMakeFiles/baton_mpi.dir/mpi" -name '*.o' \
        ! -path "*/$file.o" -exec printf "'%s' " {} +)
    if ! (cd "$build" && eval "$(compile "$source")" \
        "-iquote '$own' -iquote '$own/lib' -iquote '$root/$(dirname "$file")'" \
        "-w -o '$own/mutant.o' -c '$at'" >"$own/output" 2>&1 &&
        eval "$(link "$program" | sed "s# [^ ]*/$except##
            s# -o [^ ]*# '$own/mutant.o' -o '$own/$program'#
            s# [^ ]*libbaton_mpi_group\.so[^ ]*##g
            s# [^ ]*libbaton\.so[^ ]*# '$build/libbaton.a' $libraries#
            s# [^ ]*libbaton_mpi\.so# $objects libbaton_mpi_group.so libbaton.so#")" \
            >"$own/output" 2>&1); then
        echo "$name: does not compile:"
        tail -20 "$own/output"
        return 1
    fi
    caught=false
    patience=$(cat "$work/patience.$(name_of "$spec")")
    # If threads race, one run may miss what the next one finds. A test that has
    # run out of time has noticed the bug only if it ends within this time
    # without the bug: the machine may be slow for a moment.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        code=0
        try "$own" "$spec" "$own/output" || code=$?
        case $code in
        0) continue ;;
        124 | 137) try "$build/tests" "$spec" "$own/plain" || continue ;;
        esac
        caught=true
        break
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
    # The libraries that a program needs beside Baton.
    libraries=$(link test_run | sed 's/.*libbaton\.a//; s/ && :$//')
    mutant "$4" || echo "$4" >>"$work/failed"
    exit
fi

# ---- all -----------------------------------------------------------------

if [ "$1" = --plain ]; then
    output=$3/output.$(name_of "$4")
    began=$(date +%s)
    if try "$3/build/tests" "$4" "$output"; then
        # A bug may make a test hang. So a mutant gets a few times the test's
        # own time.
        echo $((5 + 2 * ($(date +%s) - began))) \
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
# Each record becomes a file: its name, its place, and the change.
rm -rf "$work/records" "$work/failed"
mkdir "$work/records"
awk -v folder="$work/records" '
    function refuse(why) {
        print why ": " $0
        exit 1
    }
    FNR == 1 || /^$/ { file = "" }
    /^$/ { next }
    /^[a-z].*, caught by / {
        if (file != "") refuse("this belongs before the first of its records")
        place = $0
        next
    }
    file != "" { print >file; next }
    {
        file = folder "/" substr($0, 1, index($0, ":") - 1)
        if (made[file]++) refuse("there are two records of this name")
        print $0 "\n" place >file
    }' "$root"/tests/mutants/*
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046
    set -- $(ls "$work/records")
fi
specs=$work/specs
for name in "$@"; do
    spec_of "$work/records/$name"
done | sort -u >"$specs"
programs=$(while read -r spec; do program_of "$spec"; done <"$specs" |
    sort -u)
generator=
if command -v ninja >/dev/null; then generator="-G Ninja"; fi
launcher=
if command -v ccache >/dev/null; then
    launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
fi
# Optimised as little as makes the whole quickest.
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" $generator $launcher -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -DBATON_BUILD_TESTS=ON \
    -DBATON_BUILD_MICROBENCH=OFF -DBATON_CUDA=OFF -DBATON_LINKED=ON >/dev/null
# shellcheck disable=SC2086
cmake --build "$build" -j "$jobs" --target baton_static baton_mpi test_run $programs \
    >"$work/output" 2>&1 || {
    tail -20 "$work/output"
    exit 1
}
# More jobs than processors, since waiting for a hang needs none.
side=$((3 * jobs))
for step in plain one; do
    if [ $step = plain ]; then
        tr '\n' '\0' <"$specs"
    else
        printf "$work/records/%s\0" "$@"
    fi | xargs -0 -n 1 -P "$side" "$0" --$step "$root" "$work"
    if [ -f "$work/failed" ]; then
        echo "failed: $(sed 's#.*/##' "$work/failed" | tr '\n' ' ')"
        exit 1
    fi
done
