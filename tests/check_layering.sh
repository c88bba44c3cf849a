#!/bin/sh
# The layers of lib/README.md, by the #include lines: a folder includes only
# what is below it, and each foreign header has one home.
#
#   check_layering.sh ROOT     checks a tree; prints each violation
#   check_layering.sh --self   plants violations in a tree of its own, one at a
#                              time, and fails unless each is found
set -eu

check() (
    cd "$1"
    found=
    for folder in include lib progress cuda examples microbench; do
        if [ -d "$folder" ]; then found="$found $folder"; fi
    done
    # shellcheck disable=SC2086
    grep -rn --include='*.[ch]' --include='*.cu' \
        '^[[:space:]]*#[[:space:]]*include' $found /dev/null | awk '
    function layer(path) {
        if (match(path, /^lib\/[a-z]+\//)) return substr(path, 5, RLENGTH - 5)
        sub(/\/.*/, "", path)
        return path
    }
    function bad(why) {
        print file ":" line ": includes " header ": " why
        failed = 1
    }
    # Each home is a pattern of paths; "" of a header that is not restricted.
    function home(header) {
        if (header == "mpi.h" || header == "baton/mpi.h")
            return "^(lib/transport/mpi[^/]*|include/baton/mpi[.]h$|" \
                   "examples/|microbench/)"
        if (header ~ /^event2?\// || header ~ /^(event|evutil)[.]h$/)
            return "^progress/loop[.]c$"
        if (header ~ /^cuda/) return "^cuda/"
        if (header ~ /^baton\/(coll|partial|sparse)[.]h$/)
            return "^(lib/coll/|include/|examples/|microbench/)"
        return ""
    }
    BEGIN {
        # What a layer may include besides itself and <baton/...>.
        below["base"] = " "
        below["transport"] = below["cuda"] = " base "
        below["ops"] = " base transport cuda "
        below["sched"] = below["ops"] "ops "
        below["progress"] = below["sched"] "sched "
        # A collective with a life of its own allocates and reports as the rest
        # does; of the engine it sees what its users see.
        below["coll"] = " base "
        below["include"] = " "
        below["examples"] = below["microbench"] = " "
    }
    {
        split($0, part, ":")
        file = part[1]; line = part[2]
        if (!match($0, /[<"][^">]*[">]/)) next
        quoted = substr($0, RSTART, 1) == "\""
        header = substr($0, RSTART + 1, RLENGTH - 2)
        here = layer(file)
        top = header; sub(/\/.*/, "", top)

        if (!(here in below)) bad("folder " here " is in no layer")
        if (header ~ /[.][.]\//) bad("no ../ in an #include")
        where = home(header)
        if (where != "" && file !~ where) bad("its home is " where)
        if (header == "hwloc.h") {
            if (here != "base" && here != "progress")
                bad("its home is one file of progress/ or lib/base/")
            if (hwloc != "" && hwloc != file) bad("its home is " hwloc)
            hwloc = file
        }
        if (top in below && top != here && top != header &&
            index(below[here], " " top " ") == 0)
            bad(top " is not below " here)
        if (here == "include" && quoted) bad("public headers say <baton/...>")
        if (here == "sched" &&
            header ~ /^(pthread|threads|time|unistd|poll)[.]h$|^sys\//)
            bad("sched is pure: no thread, clock or I/O")
    }
    END { exit failed }'
)

self() {
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    fail=0
    clean() {
        rm -rf "${tree:?}"/*
        mkdir -p "$tree/lib/base" "$tree/lib/transport" "$tree/lib/ops" \
            "$tree/lib/sched" "$tree/lib/coll" "$tree/progress" \
            "$tree/examples" "$tree/include/baton"
        echo '#include <mpi.h>' >"$tree/include/baton/mpi.h"
        echo '#include <baton/mpi.h>' >"$tree/lib/transport/mpi_post.c"
        echo '#include "base/alloc.h"' >"$tree/lib/sched/plan.c"
        echo '#include "pattern.h"' >"$tree/lib/coll/ring.c"
        echo '#include <event2/event.h>' >"$tree/progress/loop.c"
        echo '#include <hwloc.h>' >"$tree/progress/place.c"
        echo '#include "sched/run.h"' >"$tree/progress/step.c"
        echo '#include <baton/coll.h>' >"$tree/examples/03_own.c"
    }
    clean
    check "$tree" || { echo "self-test: a clean tree is refused"; fail=1; }
    while read -r file header; do
        clean
        echo "#include $header" >>"$tree/$file"
        if check "$tree" >/dev/null; then
            echo "self-test: not found: $file includes $header"
            fail=1
        fi
    done <<'LIST'
lib/base/log.c "ops/op.h"
lib/base/log.c <sched/run.h>
lib/base/log.c <mpi.h>
lib/base/log.c "../ops/op.h"
lib/transport/loop.c "cuda/stream.h"
lib/transport/loop.c <mpi.h>
lib/ops/message.c "sched/graph.h"
lib/sched/run.c "progress/step.h"
lib/sched/run.c <pthread.h>
lib/sched/run.c <event2/event.h>
lib/coll/barrier.c "ops/op.h"
lib/coll/barrier.c "sched/graph.h"
lib/coll/partial.c <baton/mpi.h>
progress/engine.c "coll/pattern.h"
progress/engine.c <baton/coll.h>
progress/engine.c <event2/event.h>
progress/engine.c <hwloc.h>
progress/engine.c <mpi.h>
progress/engine.c <cuda_runtime.h>
examples/01_dag.c "progress/step.h"
examples/01_dag.c <hwloc.h>
include/baton/coll.h "base/alloc.h"
include/baton/coll.h "schedule.h"
LIST
    return $fail
}

case ${1:-} in
--self) self ;;
"" | -*) echo "usage: $0 ROOT | --self" >&2; exit 2 ;;
*) check "$1" ;;
esac
