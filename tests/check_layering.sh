#!/bin/sh
# Checks the layers of lib/README.md: a folder includes, calls and declares only
# things of its own and of the folders below it. The folders of lib/coll have an
# order of their own, and so have those of progress. The header of a foreign library
# is included only in the files that may use it. Neither files nor folders call or
# include each other in a circle.
#
#   check_layering.sh ROOT OBJECT... [-- OBJECT...]...
#                              checks a tree, the objects of libbaton, and those
#                              of each other library or program; prints violations
#   check_layering.sh --self   plants violations in a tree of its own, one at a
#                              time; fails unless each is found
set -eu

# The layers that each layer may use, besides itself and <baton/...>. coll may use
# base, to allocate memory and report errors, but sees only the public headers of the
# engine. A transport makes groups by a public header, as a transport of an application
# would. cuda/ and mpi/ are libraries of their own, so they see only public headers.
layers='
    below["base"] = below["include"] = below["cuda"] = " "
    below["mpi"] = " "
    below["transport"] = below["coll"] = " base "
    below["ops"] = " base transport "
    below["sched"] = below["ops"] "ops "
    below["progress"] = below["sched"] "sched "
    below["sim"] = below["progress"] "progress "
    below["examples"] = below["microbench"] = " "
'

# The folders that each folder of lib/coll, lib/coll/sparse or progress may use there.
# A folder that is not listed may use none of the others.
ladder='
    below["dense"] = " kit "
    below["tune"] = below["partial"] = " kit dense "
    below["create"] = " kit dense tune "
    below["sparse"] = " kit dense tune partial "
    below["sparse/algorithms"] = below["sparse/backends"] = " sparse/core "
    below["sparse/object"] = " sparse/core sparse/algorithms sparse/backends "
    below["sparse/tensors"] = " sparse/core sparse/object "
    below["progress/epoch"] = " progress/state "
    below["progress/membership"] = below["progress/epoch"] "progress/epoch "
    below["progress/driving"] = below["progress/membership"] "progress/membership "
    below["progress/calls"] = below["progress/driving"] "progress/driving "
'

# Prints lines "symbol OBJECT TYPE NAME", with the type that nm prints.
symbols() {
    nm -A -P "$@" | awk '{ sub(/:$/, "", $1); print "symbol", $1, $3, $2 }'
}

# The symbols that objects use, and the objects that define them. A file that
# must not include a layer must not call it either. Public functions may be
# called from coll, whose builders call no other functions, from transports, and
# from the layers above. A header declares only functions of its own layer.
calls() (
    cd "$1"
    shift
    {
        symbols "$@"
        grep -rnoE --include='*.h' \
            '^([a-z_0-9]+ )*[a-z_0-9]+ \**baton__[a-z_0-9]+\(' lib progress |
            sed -E 's/^([^:]*):([0-9]+):.*(baton__[a-z_0-9]+)\($/declared \1 \2 \3/'
    } | awk '
    function layer(path,    piece) {
        # An object is root/lib/layer/.../name.c.o, and a header is
        # lib/layer/name.h.
        if (!match(path, /(^|\/)lib\/[a-z]+(\/[a-z]+)*\/[a-z_0-9.]+$/))
            return "progress"
        path = substr(path, RSTART)
        sub(/^\//, "", path)
        split(path, piece, "/")
        return piece[2]
    }
    function allowed(from, to, symbol) {
        return from == to || index(below[from], " " to " ") > 0 ||
               ((from == "coll" || from == "transport") && symbol !~ /^baton__/)
    }
    BEGIN {'"$layers"'}
    $1 == "symbol" && $4 ~ /^baton_/ {
        if ($3 == "U") uses[$2 " " $4] = 1
        else if ($3 ~ /[A-TV-Z]/) home[$4] = layer($2)
    }
    $1 == "declared" { declared[$2 ":" $3 " " $4] = layer($2) }
    END {
        for (use in uses) {
            split(use, part, " ")
            from = layer(part[1])
            to = home[part[2]]
            if (to != "" && !allowed(from, to, part[2])) {
                print part[1] ": calls " part[2] ": " to " is not below " from
                failed = 1
            }
        }
        for (each in declared) {
            split(each, part, " ")
            to = home[part[2]]
            if (to != "" && to != declared[each]) {
                print part[1] ": declares " part[2] ", which " to " defines"
                failed = 1
            }
        }
        exit failed
    }'
)

# Prints lines "FILE FOLDER OTHER VERB NAME": a file in this folder includes or
# calls something in another folder, or declares something that the other folder
# defines.
folder_uses() (
    cd "$1"
    shift
    {
        symbols "$@"
        grep -rnoE --include='*.h' \
            '^([a-z_0-9]+ )*[a-z_0-9]+ \**baton__[a-z_0-9]+[(;]' lib progress |
            sed -E 's/^([^:]*):[0-9]+:.*(baton__[a-z_0-9]+).$/declares \1 \2/'
        grep -rnoE --include='*.[ch]' '^ *# *include "[^"]+/[^"]+"' lib progress |
            sed -E 's/^([^:]*):[0-9]+:[^"]*"(.*)"$/includes \1 \2/'
    } | awk '
    function folder(path) {
        # An object is TARGET.dir/lib/layer/.../name.c.o.
        sub(/^.*[.]dir\//, "", path)
        sub(/\/[^\/]*$/, "", path)
        return path
    }
    function use(file, other, verb, name) {
        if (folder(file) != other) print file, folder(file), other, verb, name
    }
    $1 == "symbol" && $4 ~ /^baton_/ {
        if ($3 == "U") uses[$2 " calls " $4] = 1
        else if ($3 ~ /[A-TV-Z]/) home[$4] = folder($2)
    }
    $1 == "declares" { uses[$2 " declares " $3] = 1 }
    $1 == "includes" {
        use($2, ($3 ~ /^progress\// ? "" : "lib/") folder($3), "includes", $3)
    }
    END {
        for (each in uses) {
            split(each, part, " ")
            if (part[3] in home) use(part[1], home[part[3]], part[2], part[3])
        }
    }'
)

# Checks the order of the folders of lib/coll and of progress.
folders() (
    folder_uses "$@" | awk '
    BEGIN {'"$ladder"'}
    function between(ladder) {
        return $2 ~ "^" ladder "(/|$)" && $3 ~ "^" ladder "(/|$)"
    }
    between("lib/coll") || between("progress") {
        split($2, from, "/")
        split($3, to, "/")
        here = from[3]
        there = to[3]
        if (between("progress")) {
            here = $2
            there = $3
        } else if (here == there) {
            here = here "/" from[4]
            there = there "/" to[4]
        }
        if ($4 == "declares")
            print $1 ": declares " $5 ", which " there " defines"
        else if (index(below[here], " " there " ") == 0)
            print $1 ": " $4 " " $5 ": " there " is not below " here
        else
            next
        failed = 1
    }
    END { exit failed }'
)

# Prints lines "FROM TO" for sources that use a symbol of another source,
# according to the objects of one library or program. Other programs may have
# symbols with the same names.
used() {
    symbols "$@" | awk '
        { sub(/^.*[.]dir\//, "", $2); sub(/[.]o$/, "", $2) }
        $3 == "U" { uses[$2 " " $4] = 1 }
        $3 ~ /[A-T]/ { home[$4] = $2 }
        END {
            for (use in uses) {
                split(use, part, " ")
                if (part[2] in home) print part[1], home[part[2]]
            }
        }'
}

# Prints lines "FROM TO" for files of a tree that include one another.
included() (
    cd "$1"
    found=
    for folder in lib progress cuda mpi microbench examples; do
        if [ -d "$folder" ]; then found="$found $folder"; fi
    done
    # shellcheck disable=SC2086
    grep -rnoE --include='*.[ch]' --include='*.cu' --include='*.cuh' \
        '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+"' $found |
        sed -E 's/:[0-9]+:[^"]*"(.*)"$/ \1/' | awk '
        {
            from = ""
            if ($2 !~ /\//) { from = $1; sub(/[^\/]*$/, "", from) }
            else if ($1 ~ /^microbench/) from = "microbench/"
            else if ($1 ~ /^(lib|progress)/ && $2 !~ /^progress/) from = "lib/"
            print $1, from $2
        }'
)

# Fails if the lines "FROM TO" contain a circle. tsort names the members of the
# first one.
acyclic() {
    tsort 2>&1 >/dev/null | awk -v of="$1" '
        / input contains a loop/ {
            if (found++) exit
            print "a circle of " of ":"
            next
        }
        found { print "    " $2 }
        END { exit found > 0 }'
}

# Finds circles of files and of folders, in a library or program, which is a set
# of objects, and in its headers.
circles() {
    includes=$(included "$1")
    shift
    uses=$(used "$@")
    echo "$uses" | acyclic files &&
        echo "$includes" | acyclic files &&
        printf '%s\n' "$uses" "$includes" | sed -E 's|/[^/ ]*( \|$)|\1|g' |
        acyclic folders
}

check() (
    cd "$1"
    found=
    for folder in include lib progress cuda mpi examples microbench; do
        if [ -d "$folder" ]; then found="$found $folder"; fi
    done
    # shellcheck disable=SC2086
    grep -rn --include='*.[ch]' --include='*.cu' \
        --include='*.cuh' '^[[:space:]]*#[[:space:]]*include' $found /dev/null | awk '
    function layer(path) {
        if (match(path, /^lib\/[a-z]+\//)) return substr(path, 5, RLENGTH - 5)
        sub(/\/.*/, "", path)
        return path
    }
    function bad(why) {
        print file ":" line ": includes " header ": " why
        failed = 1
    }
    # Returns a pattern of the paths of files that may include the header. "" means
    # that all files may.
    function home(header) {
        if (header == "mpi.h" || header == "baton/mpi.h")
            return "^(lib/transport/mpi/([a-z]+_mpi[.]c|over_mpi[.]h)$|" \
                   "include/baton/mpi[.]h$|" \
                   "mpi/|examples/|microbench/)"
        if (header ~ /^event2?\// || header ~ /^(event|evutil)[.]h$/)
            return "^progress/driving/event_loop[.]c$"
        if (header ~ /^uc[pts]\//)
            return "^lib/transport/mpi/wire_ucx[.]c$"
        if (header ~ /^(cuda|cub\/|cooperative_groups)/)
            return "^(cuda/|examples/cuda_[a-z]+[.]cu$|microbench/bench/device[.]c$)"
        if (header == "baton/tuning.h" && file == "mpi/call.h")
            return "" # what each collective reduces, and which vectors it has
        if (header ~ /^baton\/(coll|partial|sparse|tensors|tuning)[.]h$/)
            return "^(lib/coll/|include/|examples/|microbench/)"
        return ""
    }
    BEGIN {'"$layers"'}
    {
        split($0, part, ":")
        file = part[1]; line = part[2]
        if (!match($0, /[<"][^">]*[">]/)) next
        quoted = substr($0, RSTART, 1) == "\""
        header = substr($0, RSTART + 1, RLENGTH - 2)
        here = layer(file)
        top = header; sub(/\/.*/, "", top)

        # A folder of microbench has the name of a layer.
        if (here == "microbench" && (getline ignored < (here "/" header)) >= 0)
            top = here
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
        rm -rf "${tree:?}/lib" "$tree/progress" "$tree/examples" \
            "$tree/include" "$tree/cuda" "$tree/mpi" "$tree/microbench"
        mkdir -p "$tree/lib/base" "$tree/lib/transport/mpi" "$tree/lib/ops" \
            "$tree/lib/sched" "$tree/lib/coll/dense" "$tree/lib/coll/partial" \
            "$tree/progress/driving" "$tree/progress/epoch" \
            "$tree/progress/state" "$tree/examples" "$tree/include/baton" \
            "$tree/cuda" "$tree/mpi" \
            "$tree/microbench/common" "$tree/microbench/bench"
        echo '#include <mpi.h>' >"$tree/include/baton/mpi.h"
        echo '#include <baton/mpi.h>' >"$tree/lib/transport/mpi/wire_mpi.c"
        echo '#include <ucp/api/ucp.h>' >"$tree/lib/transport/mpi/wire_ucx.c"
        echo '#include "base/alloc.h"' >"$tree/lib/sched/plan.c"
        echo '#include "coll/kit/pattern.h"' >"$tree/lib/coll/dense/ring.c"
        echo '#include <event2/event.h>' >"$tree/progress/driving/event_loop.c"
        echo '#include <hwloc.h>' >"$tree/progress/driving/place.c"
        echo '#include "sched/run.h"' >"$tree/progress/driving/step.c"
        echo '#include <baton/coll.h>' >"$tree/examples/03_own.c"
        echo '#include <cuda_runtime_api.h>' >"$tree/cuda/streams.c"
        echo '#include "cuda/kernels.h"' >"$tree/cuda/reduce.cu"
        echo '#include <baton/mpi.h>' >"$tree/mpi/call.h"
        echo '#include "mpi/call.h"' >"$tree/mpi/types.c"
    }
    # define FILE NAME [CALLED]: makes an object with this function.
    define() {
        mkdir -p "$(dirname "$tree/objects.dir/$1")"
        echo "void $2(void); ${3:+void $3(void);} void $2(void) { ${3:+$3();} }" |
            cc -x c -c -o "$tree/objects.dir/$1.o" -
    }
    # finds WHAT [FILE...]: expects that a circle of these files, or of headers,
    # is found.
    finds() {
        what=$1 objects=$clean_objects
        shift
        for file; do objects="$objects $tree/objects.dir/$file.o"; done
        # shellcheck disable=SC2086
        if circles "$tree" $objects >/dev/null; then
            echo "self-test: not found: $what"
            fail=1
        fi
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
lib/base/log.c "../ops/op.h"
lib/transport/inproc.c <mpi.h>
lib/transport/mpi/poll.c <baton/mpi.h>
lib/ops/message.c "sched/graph.h"
lib/sched/run.c "progress/driving/step.h"
lib/sched/run.c <pthread.h>
lib/coll/dense/barrier.c "sched/graph.h"
lib/coll/partial/partial.c <baton/mpi.h>
progress/driving/engine.c "coll/kit/pattern.h"
progress/driving/engine.c <baton/coll.h>
progress/driving/engine.c <event2/event.h>
progress/driving/engine.c <hwloc.h>
cuda/streams.c "base/alloc.h"
mpi/types.c "base/alloc.h"
mpi/types.c <baton/coll.h>
progress/driving/engine.c "mpi/call.h"
examples/01_dag.c <cuda_runtime.h>
examples/01_dag.c "progress/driving/step.h"
include/baton/coll.h "base/alloc.h"
include/baton/coll.h "build.h"
LIST
    define progress/driving/step.c baton__step
    define lib/sched/run.c go baton__step
    clean_objects="$tree/objects.dir/progress/driving/step.c.o"
    calls "$tree" "$clean_objects" ||
        { echo "self-test: clean objects are refused"; fail=1; }
    if calls "$tree" "$clean_objects" "$tree/objects.dir/lib/sched/run.c.o" \
        >/dev/null; then
        echo "self-test: not found: an upward call"
        fail=1
    fi
    echo 'void baton__step(void);' >"$tree/lib/sched/run.h"
    if calls "$tree" "$clean_objects" >/dev/null; then
        echo "self-test: not found: an upward declaration"
        fail=1
    fi
    clean
    circles "$tree" "$clean_objects" ||
        { echo "self-test: a tree without circles is refused"; fail=1; }
    # Two files, and the folders that they are in, call each other.
    while read -r there back; do
        define "$there" there back
        define "$back" back there
        finds "calls of $there and $back" "$there" "$back"
    done <<'LIST'
lib/base/there.c lib/base/back.c
progress/there.c lib/sched/back.c
mpi/there.c mpi/back.c
cuda/there.c cuda/back.cu
microbench/common/there.c microbench/bench/back.c
LIST
    # Two folders call each other, but no two files do.
    define microbench/common/there.c there back
    define microbench/bench/back.c back
    define microbench/bench/again.c again ever
    define microbench/common/ever.c ever
    finds "calls of folders" microbench/common/there.c microbench/bench/back.c \
        microbench/bench/again.c microbench/common/ever.c
    # A folder calls another one, which includes its header.
    echo '#include "common/ever.h"' >"$tree/microbench/bench/back.c"
    finds "a call against an #include" microbench/common/there.c \
        microbench/bench/back.c
    # Files include each other. Then folders do, but no two files.
    while read -r there back again ever; do
        clean
        mkdir -p "$(dirname "$tree/$again")"
        echo "#include \"$back\"" >"$tree/$there"
        echo "#include \"$ever\"" >"$tree/$again"
        finds "$there and $again include each other"
    done <<'LIST'
lib/sched/plan.h sched/run.h lib/sched/run.h sched/plan.h
lib/coll/dense/tree.c coll/partial/given.h lib/coll/partial/given.c coll/dense/tree.h
lib/transport/mpi/poll.h transport/shm/ring.h lib/transport/shm/host.c transport/mpi/links.h
mpi/comms.h mpi/entries.h mpi/entries.h mpi/comms.h
cuda/launch.h cuda/kernels.h cuda/kernels.h cuda/launch.h
microbench/bench/rows.h common/table.h microbench/common/table.c bench/rows.h
LIST
    # Two programs have functions of the same names, which is not a circle.
    clean
    define microbench/bench/main.c start report
    define microbench/bench/report.c report
    define microbench/sim/main.c start
    define microbench/sim/report.c report start
    at=$tree/objects.dir/microbench
    "$0" "$tree" "$clean_objects" \
        -- "$at/bench/main.c.o" "$at/bench/report.c.o" \
        -- "$at/sim/main.c.o" "$at/sim/report.c.o" ||
        { echo "self-test: two programs are taken for one"; fail=1; }
    if "$0" "$tree" "$clean_objects" -- "$at/bench/report.c.o" \
        -- "$at/bench/main.c.o" "$at/sim/report.c.o" >/dev/null; then
        echo "self-test: not found: a circle in the last program"
        fail=1
    fi
    folders_self
    return $fail
}

# Plants violations of the order of folders in lib/coll and progress, by
# includes and by symbols.
folders_self() {
    coll=$tree/lib/coll
    compile() { # FOLDER CODE
        mkdir -p "$tree/a.dir/$1"
        {
            echo 'void baton__kit(void); void baton__dense(void);'
            echo 'void baton__core(void); extern const int baton__host;'
            echo 'void baton__epoch(void); void baton__recovery(void);'
            echo "$2"
        } | cc -x c -c -o "$tree/a.dir/$1/a.c.o" -
    }
    compile lib/coll/kit 'void baton__kit(void) {}'
    compile lib/coll/dense 'void baton__dense(void) { baton__kit(); }'
    compile lib/coll/sparse/core 'void baton__core(void) { baton__dense(); }'
    compile lib/coll/sparse/backends 'const int baton__host = 1;'
    compile progress/epoch 'void baton__epoch(void) {}'
    compile progress/membership 'void baton__recovery(void) { baton__epoch(); }'
    mv "$tree/a.dir" "$tree/clean"
    clean_folders() {
        clean
        rm -rf "$tree/a.dir"
        cp -r "$tree/clean" "$tree/a.dir"
        mkdir -p "$coll/kit" "$coll/sparse/core" "$coll/sparse/tensors"
        echo 'void baton__kit(void);' >"$coll/kit/flow.h"
        echo '#include "coll/kit/flow.h"' >"$coll/dense/begin.h"
        echo '#include "coll/dense/begin.h"' >"$coll/sparse/core/step.c"
        echo '#include "coll/sparse/object/object.h"' >"$coll/sparse/tensors/plan.c"
        echo '#include "progress/state/task.h"' >"$tree/progress/epoch/epoch.h"
    }
    found() {
        # shellcheck disable=SC2046
        if folders "$tree" $(find "$tree/a.dir" -name '*.o') >/dev/null; then
            echo "self-test: not found: $1"
            fail=1
        fi
    }
    clean_folders
    # shellcheck disable=SC2046
    folders "$tree" $(find "$tree/a.dir" -name '*.o') ||
        { echo "self-test: clean folders are refused"; fail=1; }
    while read -r file header; do
        clean_folders
        mkdir -p "$tree/${file%/*}"
        echo "#include $header" >>"$tree/$file"
        found "$file includes $header"
    done <<'LIST'
lib/coll/kit/ring.c "coll/dense/begin.h"
lib/coll/dense/barrier.c "coll/tune/tune.h"
lib/coll/dense/barrier.c "coll/partial/parts.h"
lib/coll/tune/choose.c "coll/create/create.h"
lib/coll/tune/choose.c "coll/partial/parts.h"
lib/coll/create/create.c "coll/partial/parts.h"
lib/coll/partial/parts.h "coll/tune/tune.h"
lib/coll/partial/parts.h "coll/sparse/core/core.h"
lib/coll/sparse/object/sparse.c "coll/create/create.h"
lib/coll/sparse/core/core.h "coll/sparse/algorithms/algorithms.h"
lib/coll/sparse/core/core.h "coll/sparse/backends/backends.h"
lib/coll/sparse/algorithms/gtopk.c "coll/sparse/backends/backends.h"
lib/coll/sparse/algorithms/gtopk.c "coll/sparse/object/object.h"
lib/coll/sparse/backends/host.c "coll/sparse/algorithms/algorithms.h"
lib/coll/sparse/object/sparse.c "coll/sparse/tensors/tensors.h"
lib/coll/sparse/tensors/plan.c "coll/sparse/backends/backends.h"
lib/coll/sparse/sparse.c "coll/sparse/core/core.h"
lib/coll/stream/requests.c "coll/kit/flow.h"
progress/state/stepper.h "progress/epoch/epoch.h"
progress/epoch/queues.c "progress/membership/notice.h"
progress/membership/watchdog.c "progress/driving/step.h"
progress/driving/engine.h "progress/calls/calls.h"
progress/there.c "progress/state/task.h"
progress/driving/engine.c "progress/there.h"
progress/other/there.c "progress/state/task.h"
LIST
    while read -r folder code; do
        clean_folders
        compile "$folder" "$code"
        found "$folder has $code"
    done <<'LIST'
lib/coll/kit void baton__kit(void) { baton__dense(); }
lib/coll/partial void baton__partial(void) { baton__core(); }
lib/coll/sparse/algorithms int baton__algorithm(void) { return baton__host; }
progress/state void baton__task(void) { baton__epoch(); }
progress/epoch void baton__epoch(void) { baton__recovery(); }
progress void baton__here(void) { baton__recovery(); }
LIST
    while read -r header line; do
        clean_folders
        echo "$line" >>"$tree/$header"
        found "$header has $line"
    done <<'LIST'
lib/coll/kit/flow.h void baton__dense(void);
lib/coll/sparse/core/core.h extern const int baton__host;
progress/epoch/epoch.h void baton__recovery(void);
LIST
}

case ${1:-} in
--self) self ;;
"" | -*) echo "usage: $0 ROOT | --self" >&2; exit 2 ;;
*)
    root=$1
    shift
    check "$root"
    libbaton=yes
    while [ $# -gt 0 ]; do
        objects=
        while [ $# -gt 0 ] && [ "$1" != -- ]; do
            [ -f "$1" ] || { echo "$1: no such object"; exit 2; }
            objects="$objects $1"
            shift
        done
        # shellcheck disable=SC2086
        if [ "$libbaton" ]; then
            calls "$root" $objects
            folders "$root" $objects
        fi
        # shellcheck disable=SC2086
        circles "$root" $objects
        libbaton=
        if [ $# -gt 0 ]; then shift; fi
    done
    ;;
esac
