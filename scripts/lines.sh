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

# The folders that are counted together, each group with the most lines it may have.
sums='include,lib,progress,cuda 58750
mpi 2550
microbench,examples 8700
python 3590
tests,python/tests 52300'

folders="include lib/base lib/ops lib/sched lib/transport progress/state
    progress/epoch progress/membership progress/driving progress/calls lib/sim
    lib/coll/kit lib/coll/dense lib/coll/tune lib/coll/create lib/coll/partial
    lib/coll/sparse cuda mpi microbench examples python tests python/tests"

# Counts the lines of Python that have a token which is neither a comment nor a
# docstring.
python_lines='
import sys, tokenize
lines = set()
for path in sys.stdin.read().split():
    with open(path, "rb") as file:
        statement = []
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NEWLINE:
                if [each.type for each in statement] != [tokenize.STRING]:
                    lines |= {(path, line) for each in statement
                              for line in range(each.start[0], each.end[0] + 1)}
                statement = []
            elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT,
                                    tokenize.DEDENT, tokenize.ENCODING):
                statement.append(token)
print(len(lines))'

# count FOLDER ...: the lines of code of one or more folders. C and CUDA count as the
# preprocessor leaves them when it removes comments and expands nothing. Python
# counts without _declarations.py, which a script makes, and the folder python
# without its tests.
count() {
    c=$(find "$@" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) \
        -exec cat {} + |
        gcc -fpreprocessed -dD -E -P -x c - 2>/dev/null | grep -c .) || true
    case $* in
    python) outside='python/tests/*' ;;
    *) outside= ;;
    esac
    python=$(find "$@" -type f -name '*.py' ! -name _declarations.py \
        ! -path "$outside" | python3 -c "$python_lines")
    echo $((c + python))
}

table() {
    for folder in $folders; do
        if [ -d "$folder" ]; then
            printf '    %-19s %6d\n' "$folder" "$(count "$folder")"
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
