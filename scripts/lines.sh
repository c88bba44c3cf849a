#!/bin/sh
# Counts the lines of code of each folder: an engineer who carries this on must
# be able to hold it in the head. Comments and blank lines are not counted, so
# that no word is ever saved to stay below a limit.
#
#   scripts/lines.sh            prints the table of lib/README.md
#   scripts/lines.sh --check    fails where a sum is above its limit, or a row of
#                               lib/README.md is off by more than 2 %
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

# What is counted together, and the most that it may be.
sums='include,lib,progress,cuda 53200
mpi 2600
microbench,examples 9000
tests 43700'

folders="include lib/base lib/ops lib/sched lib/transport progress lib/sim
    lib/coll/kit lib/coll/dense lib/coll/tune lib/coll/create lib/coll/partial
    lib/coll/stream lib/coll/sparse cuda mpi microbench examples tests"

# Of one or more folders: C and CUDA, as the preprocessor leaves it when it
# removes comments and expands nothing.
count() {
    find "$@" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) \
        -exec cat {} + |
        gcc -fpreprocessed -dD -E -P -x c - 2>/dev/null | grep -c .
}

table() {
    for folder in $folders; do
        if [ -d "$folder" ]; then
            printf '    %-18s %6d\n' "$folder" "$(count "$folder")"
        fi
    done
    echo "$sums" | while read -r together limit; do
        # shellcheck disable=SC2046
        printf '    %-28s %6d of at most %d\n' "$together" \
            "$(count $(echo "$together" | tr ',' ' '))" "$limit"
    done
}

check() {
    table | awk '
        / of at most / && $2 > $6 {
            print $1 ": " $2 " lines; at most " $6 " are allowed"
            failed = 1
        }
        FNR == NR { counted[$1] = $2; next }
        /^    [a-z\/,]+ +[0-9]+( of at most [0-9]+)?$/ { told[$1] = $2 }
        END {
            for (name in counted) {
                off = told[name] - counted[name]
                if (off < 0) off = -off
                if (off * 50 > counted[name]) {
                    print "lib/README.md: " name ": " told[name] " lines; " \
                        "there are " counted[name] ": see scripts/lines.sh"
                    failed = 1
                }
            }
            exit failed
        }' - lib/README.md
}

case ${1:-} in
"") table ;;
--check) check ;;
*)
    echo "usage: $0 [--check]" >&2
    exit 2
    ;;
esac
