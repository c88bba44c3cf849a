#!/bin/sh
# Checks the symbols of the libraries. libbaton.so and libbaton_mpi_group.so
# export exactly the functions that public headers declare, and the internal
# functions that the second library calls. libbaton.so does not need MPI. The
# libraries do not print (except in log.c), do not end the process, do not
# change the handling of signals (except SIGPIPE in open.c, and in wire_ucx.c
# those that UCX changes), and call MPI by its PMPI_ names. Public names can be
# found by grep.
#
#   check_symbols.sh ROOT libbaton.so libbaton_mpi_group.so libbaton.a CC
#                    [flag of mpi.h ...]
set -eu
root=$1 shared=$2 over_mpi=$3 static=$4 cc=$5
shift 5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail=0

# The declarations: preprocessed, one on each line, without the text in braces.
# (cuda*.h belong to libbaton_cuda.)
for header in "$root"/include/baton/*.h; do
    case ${header##*/} in
    cuda*.h) ;;
    *) echo "#include <baton/$(basename "$header")>" ;;
    esac
done | "$cc" -std=c11 -E -P -x c -I"$root/include" "$@" - |
    tr '\n' ' ' |
    sed -e ':again' -e 's/{[^{}]*}/;/g' -e 't again' |
    tr ';' '\n' |
    grep -v '^ *typedef\|^ *static' |
    sed -n \
        -e '/(/s/\(baton_[a-z0-9_]*\) *(.*/\n\1/' \
        -e 's/^.*\n//p' -e 's/^ *extern const baton_op_t //p' |
    tr -s ', ' '\n\n' | sort -u >"$work/declared"

nm -D -u "$over_mpi" | awk '$2 ~ /^baton__/ { print $2 }' | sort >>"$work/declared"
sort -o "$work/declared" "$work/declared"

{ nm -D --defined-only "$shared"; nm -D --defined-only "$over_mpi"; } |
    awk '{ print $3 }' | sort >"$work/exported"

comm -13 "$work/declared" "$work/exported" >"$work/extra"
comm -23 "$work/declared" "$work/exported" >"$work/missing"
if [ -s "$work/extra" ]; then
    echo "exported, but in no public header:"
    cat "$work/extra"
    fail=1
fi
if [ -s "$work/missing" ]; then
    echo "declared in a public header, but not exported:"
    cat "$work/missing"
    fail=1
fi

# No public name is made by a macro.
while read -r name; do
    grep -rqw "$name" "$root/include" &&
        grep -rqw --include='*.c' "$name" "$root/lib" "$root/progress" || {
        echo "$name is not written where it is declared or defined"
        fail=1
    }
done <<EOF
$(grep -v "^baton__" "$work/exported")
EOF

# No two files have functions of the same name, so that a backtrace is clear.
find "$root/lib" "$root/progress" "$root/cuda" "$root/mpi" "$root/microbench" \
    -name '*.[ch]' -exec awk '
        /^\{$/ {
            gsub(/__attribute__\(\([^)]*\)\)/, "", text)
            if (match(text, /[A-Za-z0-9_]+\(/))
                print substr(text, RSTART, RLENGTH - 1), FILENAME
        }
        /^$|^[}#]|[;\/]$/ { text = ""; next }
        { text = text " " $0 }' {} + |
    sort -u | awk '$1 == name { print name, "is in", file, "and in", $2 }
        { name = $1; file = $2 }' | grep -v '^main is in' >"$work/names" || true
if [ -s "$work/names" ]; then
    cat "$work/names"
    fail=1
fi

output='(v|vf|f|d|vd)?printf|__(v|vf|f|d|vd)?printf_chk|f?puts|f?putc|putchar'
output="$output|fwrite|perror|psignal|stdout|stderr"
ending='exit|_exit|_Exit|quick_exit|abort|signal|sigaction|raise|kill|atexit'
nm -A -u "$static" 2>/dev/null |
    sed -E 's/^[^:]*:([^:]*):.* ([^ @]*)(@.*)?$/\1 \2/' |
    grep -E "^[^ ]* ($output|$ending)\$" |
    grep -vE '^log\.c\.o (fprintf|__fprintf_chk|fputs|fputc|fwrite|stderr)$' |
    grep -vE '^(open|wire_ucx)\.c\.o sigaction$' \
        >"$work/calls" || true
if [ -s "$work/calls" ]; then
    echo "a library neither prints nor ends the process:"
    cat "$work/calls"
    fail=1
fi

if nm -D -u "$shared" | grep -iE ' (P|O)?MPI_'; then
    echo "libbaton.so needs MPI"
    fail=1
fi
if nm -D -u "$over_mpi" | grep -E ' MPI_[A-Z][a-z]'; then
    echo "between an application and MPI: the library's own calls are PMPI_"
    fail=1
fi

for each in "$shared" "$over_mpi"; do
    readelf -d "$each" | grep -q NODELETE || { echo "$each can be unloaded"; fail=1; }
done
exit $fail
