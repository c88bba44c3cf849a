#!/bin/sh
# Checks that every public header compiles as C11 and as C++17, alone and when it is
# included twice, and that each initialiser does. Also checks that parsers of C that
# are not compilers accept the headers.
#
#   check_headers.sh ROOT CC CXX [flag of mpi.h ...]
#
# Without flags baton/mpi.h is not checked.
set -eu
root=$1 cc=$2 cxx=$3
shift 3
fail=0

for header in "$root"/include/baton/*.h; do
    name=baton/$(basename "$header")
    if [ "$name" = baton/mpi.h ] && [ $# -eq 0 ]; then
        continue # this build is without MPI
    fi
    for language in c c++; do
        case $language in
        c) compiler=$cc standard=c11 ;;
        *) compiler=$cxx standard=c++17 ;;
        esac
        printf '#include <%s>\n#include <%s>\n' "$name" "$name" |
            "$compiler" -std=$standard -x $language -fsyntax-only \
                -Wall -Wextra -Wpedantic -Werror \
                -I"$root/include" "$@" - ||
            { echo "$name does not compile alone as $standard"; fail=1; }
    done
done

for language in c c++; do
    case $language in
    c) compiler=$cc standard=c11 ;;
    *) compiler=$cxx standard=c++17 ;;
    esac
    {
        for header in "$root"/include/baton/*.h; do
            if [ "${header##*/}" != mpi.h ]; then
                echo "#include <baton/${header##*/}>"
            fi
        done
        sed -nE 's/^#define (BATON_[A-Z_]+)[ \\]+BATON_INITIALIZER\((.*)\)$/void f_\2(void); void f_\2(void) { \2 o = \1; (void)o; }/p' \
            "$root"/include/baton/*.h
    } | "$compiler" -std=$standard -x $language -fsyntax-only \
        -Wall -Wextra -Wpedantic -Werror -I"$root/include" "$@" - ||
        { echo "an initialiser does not compile as $standard"; fail=1; }
done

# Bindings of other languages need headers in which no function has a body, all
# numbers are literals, and no struct with hidden fields is passed by value.
# (cffi comes with pycparser.)
if python3 -c 'import cffi' 2>/dev/null; then
    fake=$(mktemp -d)
    touch "$fake/stdbool.h" "$fake/stddef.h" "$fake/stdint.h"
    {
        for header in "$root"/include/baton/*.h; do
            if [ "${header##*/}" != mpi.h ]; then
                echo "#include <baton/${header##*/}>"
            fi
        done | "$cc" -E -P -nostdinc -U__GNUC__ -I"$fake" -I"$root/include" -x c -
        sed -nE '/BATON_INITIALIZER|&baton_op_|__attribute__|[^ ]_H$/d
            s/^#define BATON_[A-Z0-9_]+ +[^ \\].*/&/p' "$root"/include/baton/*.h
    } | python3 -c '
import cffi, sys
ffi = cffi.FFI()
ffi.cdef(sys.stdin.read())
for name in ffi.list_types()[0]:
    of = ffi.typeof(name + " *")
    if of.kind == "pointer" and of.item.kind in ("struct", "union"):
        of.item.fields
' || { echo "a parser that is no compiler does not take the headers"; fail=1; }
    rm -r "$fake"
fi

# A newcomer reads baton.h from top to bottom, so it must stay short.
lines=$(cat "$root"/include/baton/baton.h "$root"/include/baton/types.h | wc -l)
if [ "$lines" -gt 620 ]; then
    echo "baton.h and types.h have $lines lines together; at most 620 are allowed"
    fail=1
fi
exit $fail
