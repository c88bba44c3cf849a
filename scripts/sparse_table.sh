#!/bin/sh
# The table of docs/sparse.md, as Markdown: a step of each sparse all-reduce of
# 15 Mi elements in the simulator, in milliseconds. Each line has the ranks, the
# density, the link, SparDL with one team, what the library chooses with
# teams = automatic, and the rivals. Ends with the largest relative difference
# between a simulated time and its formula. Deterministic; takes some minutes.
#
#   scripts/sparse_table.sh [BATON_SIM [RANKS,...]]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
sim=${1:-$root/build/microbench/baton-sim}
ranks=${2:-8,14,64,256,1024}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for density in 0.01 0.001; do
    for gbit in 1 10 100; do
        for alpha in 5 50; do
            "$sim" sparse --sweep "ranks=$ranks" --density $density \
                --gbit $gbit --alpha-us $alpha --csv "$work/all.csv" \
                --algorithm spardl,topka,topkdsa,gtopk,oktopk,redsync,dense \
                >/dev/null
            "$sim" sparse --sweep "ranks=$ranks" --density $density \
                --gbit $gbit --alpha-us $alpha --csv "$work/auto.csv" \
                --algorithm auto --teams 0 >/dev/null
            for file in all auto; do
                awk -v link="$density,$gbit,$alpha" \
                    'NR > 1 { print link "," $0 }' "$work/$file.csv"
            done
        done
    done
done >"$work/rows"

head -n 1 "$work/all.csv" >"$work/heading"
awk -F, '
    FNR == NR { for (i = 1; i <= NF; i++) at[$i] = i + 3; next }
    {
        point = $at["ranks"] "," $1 "," $2 "," $3
        name = $at["algorithm"]
        if (!(point in seen)) { seen[point] = 1; points[++count] = point }
        ms[point, name] = $at["us"] / 1000
        if (name == "auto") choice[point] = $at["chosen"] \
            ($at["chosen"] == "spardl" ? ", d = " $at["teams"] : "")
        difference = $at["difference"] < 0 ? -$at["difference"] \
                                           : $at["difference"]
        if (difference > largest) largest = difference
    }
    END {
        n = split("spardl auto topka topkdsa gtopk oktopk redsync dense", \
            names, " ")
        print "| P | density | Gbit/s | alpha, us | SparDL, d = 1 | " \
            "automatic | TopkA | TopkDSA | gTopk | Ok-Topk | RedSync | " \
            "dense |"
        print "|---|---|---|---|---|---|---|---|---|---|---|---|"
        for (p = 1; p <= count; p++) {
            split(points[p], of, ",")
            printf "| %s | %g%% | %s | %s", of[1], 100 * of[2], of[3], of[4]
            for (i = 1; i <= n; i++) {
                printf " | %.3g", ms[points[p], names[i]]
                if (names[i] == "auto") printf " (%s)", choice[points[p]]
            }
            print " |"
        }
        printf "\nLargest difference from a formula: %.1e\n", largest
    }' "$work/heading" "$work/rows"
