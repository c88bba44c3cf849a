#!/bin/sh
# Compares all-reduces with the fastest that MPI has, for many sizes and numbers of
# ranks, also on emulated hosts (root only), and draws a page of the results. Runs
# baton-bench allreduce.
#
#   scripts/matrix.sh DIR [option of baton-bench allreduce ...]
#
# DIR gets a CSV file for each number of ranks, and matrix.svg, which is drawn from
# all CSV files in DIR. So a page may be measured in pieces; a later row replaces
# an earlier one. A quick page: --bytes 8,1K,64K,1M --turn-ms 2.
#
#   RANKS="1 2 3 4 8 16 32 2@2 4@2"   ranks, or ranks@hosts; "": only draw
#   BENCH=build/microbench/baton-bench
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
bench=${BENCH:-$root/build/microbench/baton-bench}
dir=${1:?usage: matrix.sh DIR [option of baton-bench allreduce ...]}
shift
mkdir -p "$dir"
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

. "$root/scripts/progress.sh"
points=${RANKS-1 2 3 4 8 16 32 2@2 4@2}
ended=0
for ranks in $points; do
    run=
    case $ranks in *@*) run="$root/scripts/hosts.sh ${ranks#*@}" ;; esac
    echo "$(date +%H:%M:%S) $ranks ranks: baton-bench allreduce $*" \
        "($(so_far $ended "$(echo "$points" | wc -w)"))"
    # shellcheck disable=SC2086
    $run mpirun -np "${ranks%@*}" --oversubscribe --bind-to none "$bench" \
        allreduce --systems mpi,impi,persistent,libnbc_ring,baton \
        --bytes 8,64,256,1K,4K,16K,64K,256K,1M,4M,16M,64M \
        --ways unwaited,sleep --memory malloc,shared --place out,in \
        --repetitions 9 --turn-ms 4 "$@" --csv "$dir/new" >"$dir/log"
    grep -E 'skipped|CPU steal' "$dir/log"
    cat "$dir/new" >>"$dir/$ranks.csv"
    sed -n 's/^# CPU steal: \([0-9.]*\) %.*/\1/p' "$dir/log" >>"$dir/steal"
    rm "$dir/new" "$dir/log"
    ended=$((ended + 1))
done

machine="$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo |
    head -n 1), Linux $(uname -r | sed 's/-.*//'), $(mpirun --version |
    sed -n '1s/mpirun (//; 1s/)//p'); CPU steal at most $(sort -n "$dir/steal" |
    tail -n 1) %"
find "$dir" -name '*.csv' | sort -t/ -k "$(echo "$dir/" | tr -cd / | wc -c)" \
    -V | xargs awk -F, -v machine="$machine" '
    function words(bytes) {
        bytes += 0
        return bytes < 1024 ? bytes " B" : bytes < 1048576 ? bytes / 1024 "K" \
            : bytes / 1048576 "M"
    }
    # Red below 1, white at 1, blue from 4 on.
    function color(ratio, part) {
        part = log(ratio) / log(ratio < 1 ? 2.5 : 4)
        part = part < -1 ? -1 : part > 1 ? 1 : part
        return part < 0 ? sprintf("#ff%02x%02x", 255 + 200 * part, \
            255 + 215 * part) : sprintf("#%02x%02xff", 255 - 175 * part, \
            255 - 110 * part)
    }
    FNR == 1 { panel[++panels] = FILENAME }
    $1 == "collective" { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["system"] == "baton" {
        name = $at["way"] ", " $at["memory"] ", " $at["place"]
        memories[$at["memory"]] = ", " $at["memory"]
        if (!(name in row)) { row[name] = rows++; names[rows] = name }
        sizes[$at["bytes"] + 0] = 1
        ratio[panels, name, $at["bytes"] + 0] = $at["ratio_to_best_mpi"]
        slow[panels, name, $at["bytes"] + 0] = \
            $at["p90_us"] > 3 * $at["median_us"]
        title[panels] = $at["ranks"] ($at["ranks"] > 1 ? " ranks" : " rank") \
            ($at["hosts"] > 1 ? " on " $at["hosts"] " hosts" : "")
    }
    END {
        for (b in sizes) {
            columns++
            for (c in sizes) column[b] += c + 0 < b + 0
        }
        wide = 150 + 36 * columns
        high = 46 + 15 * rows
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" " \
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"10\" " \
            "text-anchor=\"middle\">\n<style>.page { fill: #fff } " \
            "@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } " \
            ".on_page { fill: #e6edf3 } }</style>\n<rect width=\"100%%\" " \
            "height=\"100%%\" class=\"page\"/>\n", 2 * wide, high * int((panels + 1) / 2) + 46
        printf "<text class=\"on_page\" x=\"%d\" y=\"16\" font-size=\"13\">" \
            "All-reduce: time of the fastest of MPI over that of Baton, " \
            "medians. Blue: Baton is faster; red: MPI is; *: p90 above 3 " \
            "medians</text>\n<text class=\"on_page\" x=\"%d\" y=\"32\">%s" \
            "</text>\n", wide, wide, machine
        # If there is only one kind of memory, the names of rows leave it out.
        for (m in memories) kinds++
        for (p = 1; p <= panels; p++) {
            left = (p - 1) % 2 * wide
            top = 40 + int((p - 1) / 2) * high
            printf "<text class=\"on_page\" x=\"%d\" y=\"%d\" " \
                "font-size=\"12\">%s</text>\n", \
                left + 75, top + 24, title[p]
            for (b in column) printf "<text class=\"on_page\" x=\"%d\" " \
                "y=\"%d\">%s</text>\n", \
                left + 164 + 36 * column[b], top + 24, words(b)
            for (r = 1; r <= rows; r++) {
                y = top + 30 + 15 * (r - 1)
                shown = names[r]
                if (kinds == 1) for (m in memories) sub(memories[m], "", shown)
                printf "<text class=\"on_page\" x=\"%d\" y=\"%d\" " \
                    "text-anchor=\"end\">%s</text>\n", left + 142, y + 11, shown
                for (b in column) if ((p, names[r], b) in ratio) {
                    v = ratio[p, names[r], b]
                    printf "<rect x=\"%d\" y=\"%d\" width=\"35\" " \
                        "height=\"14\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">" \
                        "%.*f%s</text>\n", left + 147 + 36 * column[b], y, \
                        color(v), left + 164 + 36 * column[b], y + 11, \
                        v < 9.95 ? 2 : v < 99.5 ? 1 : 0, v, \
                        slow[p, names[r], b] ? "*" : ""
                }
            }
        }
        print "</svg>"
    }' >"$dir/matrix.svg"
echo "$dir/matrix.svg"
