#!/bin/bash
# Makes the tables of the documentation that hold results, and their pictures.
#
#   scripts/tables.sh [--write] [TABLE ...]     all of them, if none is named
#   scripts/tables.sh --list
#
# A table is printed as Markdown, under a line with the command, the version, the
# machine and the CPU steal. With --write it replaces the lines between
# "<!-- tables.sh TABLE -->" and "<!-- end -->" in README.md or docs/, and writes
# docs/data/*.csv, from which scripts/pictures.sh draws the pictures of these
# pages. Tables of the simulator are the same on each machine. Measure the others
# on a machine that is otherwise idle; together they take an hour.
#
#   BUILD=build      the build folder, with commands and examples
#   PYTHON=python3   one that has torch and mpi4py, for torch_* and python_*
#   TORCH2=FOLDER    an environment with torch 2, made if there is none
#   PETSC=FOLDER     of PETSc's examples, for mpi_petsc (/usr/share/petsc)
#   TURNS=5          how often mpi_* run with and without libbaton_mpi
#   BYTES=LIST       fewer or shorter vectors, to try mpi_at_once, sparse_variants
set -euo pipefail
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${BUILD:-$root/build}")
sim=$build/microbench/baton-sim
train=$build/examples/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# ---- functions for all tables ----------------------------------------------

# Functions for awk. `at` has the number of a CSV file's field by the field's name.
# fill() fills a format with fields; %n stands for three significant digits.
fields='
    FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    function number(x) { return x < 1000 ? sprintf("%.3g", x) : sprintf("%.0f", x) }
    function fill(format, names, name, n, i, value) {
        n = split(names, name, " ")
        for (i = 1; i <= n; i++) {
            match(format, /%[.0-9]*[sfn]/)
            value = substr(format, RSTART, RLENGTH)
            format = substr(format, 1, RSTART - 1) \
                (value == "%n" ? number($at[name[i]]) \
                               : sprintf(value, $at[name[i]])) \
                substr(format, RSTART + RLENGTH)
        }
        return format
    }'

# rows FILE FORMAT FIELD ...: a row of Markdown for each row of the file.
rows() {
    awk -F, -v format="$2" -v names="${*:3}" \
        "$fields"' { print fill(format, names) }' "$1"
}

# grid FILE ROW COLUMN FORMAT FIELD ...: a table with a row and a column for each
# value of those two fields.
grid() {
    awk -F, -v row="$2" -v column="$3" -v format="$4" -v names="${*:5}" "$fields"'
        {
            r = $at[row]; c = $at[column]
            if (!(r in seen)) { seen[r] = 1; left[++lines] = r }
            if (!(c in known)) { known[c] = 1; head[++columns] = c }
            cell[r, c] = fill(format, names)
        }
        END {
            printf "| %s |", row
            for (c = 1; c <= columns; c++) printf " %s |", head[c]
            printf "\n|---|"
            for (c = 1; c <= columns; c++) printf "---|"
            for (r = 1; r <= lines; r++) {
                printf "\n| %s |", left[r]
                for (c = 1; c <= columns; c++)
                    printf " %s |", cell[left[r], head[c]]
            }
            print ""
        }' "$1"
}

# joined NAME VALUE=FILE ...: joins CSV files. Each row gets a first field, NAME, which
# has the VALUE of the row's file.
joined() {
    local name=$1 pair
    shift
    head -n 1 "${1#*=}" | sed "s/^/$name,/"
    for pair in "$@"; do
        tail -n +2 "${pair#*=}" | sed "s/^/${pair%%=*},/"
    done
}

# keep PICTURE FILE FIELD ...: with --write, writes the data from which a picture of
# the documentation is drawn, and draws the picture.
keep() {
    [ "$write" ] || return 0
    awk -F, -v OFS=, -v names="${*:3}" '
        FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n = split(names, name, " ") }
        {
            for (i = 1; i <= n; i++)
                printf "%s%s", $at[name[i]], i < n ? "," : "\n"
        }' "$2" >"$root/docs/data/$1.csv"
    "$root/scripts/pictures.sh" "$1"
}

# simulate FILE OPTION ...: the results of baton-sim partial.
simulate() {
    "$sim" partial "${@:2}" --csv "$1" >/dev/null
}

# trained FILE RANKS OPTION ...: the table that train prints, as CSV.
trained() {
    mpirun -np "$2" --oversubscribe --bind-to none "$train" "${@:3}" >"$work/log"
    sed -n '/^system /,$p' "$work/log" | sed 's/  */,/g' >"$1"
}

stolen() { # ticks of the processors: all, and those that the host took
    awk '/^cpu / { for (i = 2; i <= 9; i++) sum += $i; print sum, $9 }' /proc/stat
}

# ---- in the simulator: docs/modes.md ----------------------------------------

modes_even() {
    command='baton-sim partial --skew-ms 1 --ranks 32 --epochs 3200'
    # shellcheck disable=SC2086
    simulate "$work/a" ${command#* * }
    echo "| | mean latency, us | FULL's latency over it | active | expected |"
    echo "|---|---|---|---|---|"
    rows "$work/a" '| %s | %n | %n | %.2f | %.1f |' \
        mode latency_us full_over_this active active_expected
}

modes_quorum() {
    local q pairs=()
    command='baton-sim partial --skew-ms 1 --mode quorum --epochs 1000 --mode-ranks q'
    for q in 2 4 8 16 24 31 32; do
        simulate "$work/$q" --skew-ms 1 --mode quorum --epochs 1000 --mode-ranks $q
        pairs+=("$q=$work/$q")
    done
    joined q "${pairs[@]}" >"$work/all"
    keep quorum "$work/all" q latency_us
    echo "| q | mean latency, us | limit, us |"
    echo "|---|---|---|"
    rows "$work/all" '| %s | %.1f' q latency_us |
        awk '{ printf "%s | %.1f |\n", $0, $2 * ($2 - 1) / 2 / 32 * 1000 }'
}

modes_lateness() {
    local name pairs=()
    command='baton-sim partial --ranks 32 --epochs 1000 --skew LATENESS'
    for name in normal:1000:300 exponential:1000 pareto:300:1.5; do
        simulate "$work/$name" --ranks 32 --epochs 1000 --skew $name
        pairs+=("$name=$work/$name")
    done
    joined lateness "${pairs[@]}" >"$work/all"
    echo "FULL's mean latency over the mode's; in parentheses the mode's, in us:"
    echo
    grid "$work/all" lateness mode '%n (%n)' full_over_this latency_us
}

modes_ranks() {
    local name pairs=()
    command='baton-sim partial --mode full,majority,any,solo --mode-ranks 8 '
    command+='--epochs 50 --sweep ranks=32..4096 --skew LATENESS`, `--mode '
    command+='full,quorum --sweep ranks=32..512'
    for name in normal:1000:300 exponential:1000 pareto:300:1.5; do
        simulate "$work/rest" --mode full,majority,any,solo --mode-ranks 8 \
            --epochs 50 --sweep ranks=32..4096 --skew $name
        simulate "$work/quorum" --mode full,quorum --epochs 50 \
            --sweep ranks=32..512 --skew $name
        grep '^quorum' "$work/quorum" | cat "$work/rest" - >"$work/$name"
        pairs+=("$name=$work/$name")
    done
    joined skew "${pairs[@]}" >"$work/every"
    keep modes "$work/every" skew mode ranks full_over_this
    sed '1s/^skew/lateness/' "$work/every" | awk -F, '
        NR == 1 { print "skew," $0 }
        $3 == 32 || $3 == 512 || $3 == 4096 { print $1 " on " $3 "," $0 }' |
        (read -r head && echo "$head" && sort -t, -s -k 2,2 -k 4,4n) >"$work/all"
    echo "FULL's mean latency over the mode's; in parentheses the mode's, in us, and"
    echo "its active ranks:"
    echo
    grid "$work/all" skew mode '%n (%n; %.0f)' full_over_this latency_us active
}

# ---- in training ------------------------------------------------------------

# 4 ranks, one of which is late; with a picture.
late() {
    local common=(--scale 0.1 --epochs 24) modes=majority,quorum:2,solo
    command="mpirun -np 4 train ${common[*]} --systems mpi,full,$modes"
    command+='`, with `--late rotate --delay-ms 300`, `--late last --delay-ms 600` and'
    command+=' `--behind skip'
    trained "$work/1" 4 "${common[@]}" --late rotate --delay-ms 300 \
        --systems mpi,full,$modes
    trained "$work/2" 4 "${common[@]}" --late last --delay-ms 600 \
        --systems mpi,full,$modes
    trained "$work/3" 4 "${common[@]}" --late last --delay-ms 600 \
        --behind skip --systems mpi,full,$modes
    joined late "each rank in turn 30 ms=$work/1" \
        "always the same 60 ms=$work/2" \
        "the same that skips=$work/3" >"$work/all"
    echo "Milliseconds a step; in parentheses the loss after 384 steps:"
    echo
    awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        { print $0, NR == 1 ? "ms" : $at["seconds"] * 1000 / 384 }' \
        "$work/all" >"$work/steps"
    grid "$work/steps" late system '%n (%n)' ms loss
    keep late "$work/steps" late system ms loss
}

# Three seeds: with one alone, a mode's accuracy may be a point above or below.
severe() {
    local seed pairs=()
    command='mpirun -np 8 train --task digits --late all --scale 0.1 --seed SEED'
    for seed in 1 2 3; do
        trained "$work/$seed" 8 --task digits --late all --scale 0.1 --seed $seed \
            --systems full,quorum:7,quorum:6,majority,quorum:5,quorum:4,quorum:2,solo
        pairs+=("$seed=$work/$seed")
    done
    joined seed "${pairs[@]}" >"$work/all"
    echo "Accuracy at the end, in %; in parentheses the seconds:"
    echo
    grid "$work/all" system seed '%.1f (%.1f)' accuracy seconds
}

sparse_training() {
    local density systems
    command='mpirun -np 4 train --mode sparse --batch 64 --epochs 27 --systems '
    command+='dense,ALGORITHM:DENSITY,...'
    for density in 0.01 0.001; do
        systems=dense$(printf ",%s:$density" spardl topka topkdsa gtopk oktopk redsync)
        trained "$work/$density" 4 --mode sparse --batch 64 --epochs 27 \
            --systems "$systems"
    done
    echo "| algorithm | loss | accuracy, % | MB sent per rank | network, s |"
    echo "|---|---|---|---|---|"
    for density in 0.01 0.001; do
        rows "$work/$density" '| %s | %.4f | %.2f | %n | %n |' \
            system loss accuracy mb_sent network_s
    done | awk '!seen[$2]++'
}

sparse_seeds() {
    local seed pairs=()
    command='mpirun -np 4 train --mode sparse --batch 64 --epochs 27 --seed SEED'
    for seed in 1 2 3; do
        trained "$work/$seed" 4 --mode sparse --batch 64 --epochs 27 --seed $seed \
            --systems dense,spardl,oktopk,redsync
        pairs+=("$seed=$work/$seed")
    done
    joined seed "${pairs[@]}" >"$work/all"
    echo "Accuracy in %:"
    echo
    grid "$work/all" seed system %.2f accuracy
}

# A step of 15 Mi elements in milliseconds: SparDL with one team, what the library
# chooses with teams = automatic, and the rivals; then the largest difference
# between a simulated time and its formula.
sparse_links() {
    local density gbit alpha file
    command='baton-sim sparse --sweep ranks=8,14,64,256,1024 --density D --gbit G '
    command+='--alpha-us A --algorithm ...'
    for density in 0.01 0.001; do
        for gbit in 1 10 100; do
            for alpha in 5 50; do
                "$sim" sparse --sweep "ranks=8,14,64,256,1024" --density $density \
                    --gbit $gbit --alpha-us $alpha --csv "$work/all.csv" \
                    --algorithm spardl,topka,topkdsa,gtopk,oktopk,redsync,dense \
                    >/dev/null
                "$sim" sparse --sweep "ranks=8,14,64,256,1024" --density $density \
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
    awk -F, -v flat="$work/flat" '
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
            print "ranks,density,gbit,alpha_us,algorithm,ms" >flat
            for (p = 1; p <= count; p++) {
                split(points[p], of, ",")
                printf "| %s | %g%% | %s | %s", of[1], 100 * of[2], of[3], of[4]
                for (i = 1; i <= n; i++) {
                    printf " | %.3g", ms[points[p], names[i]]
                    print points[p] "," names[i] "," ms[points[p], names[i]] >flat
                    if (names[i] == "auto") printf " (%s)", choice[points[p]]
                }
                print " |"
            }
            printf "\nLargest difference from a formula: %.1e\n", largest
        }' "$work/heading" "$work/rows"
    keep sparse-links "$work/flat" ranks density gbit alpha_us algorithm ms
}

# ---- from Python: docs/torch.md, docs/python.md ------------------------------

# python RANKS FILE OPTION ...: runs a program of the source tree on RANKS ranks.
python() {
    BATON_LIBRARY=$build/libbaton.so PYTHONPATH=$root/python OMP_NUM_THREADS=1 \
        mpirun -np "$1" --oversubscribe --bind-to none \
        "${PYTHON:-python3}" "$root/$2" "${@:3}"
}

# Modes of gradient averaging, three seeds of each; with a picture.
torch_modes() {
    local mode seed
    command='mpirun -np 4 python3 examples/python/train.py --late-ms 100 --seed SEED'
    test -e "$build/digits.csv.gz" || "$root/scripts/digits.sh" "$build" >/dev/null
    for seed in 0 1 2; do
        for mode in full majority quorum:2 solo sparse:0.01; do
            python 4 examples/python/train.py --mode $mode --seed $seed --late-ms 100 \
                --digits "$build/digits.csv.gz" --csv "$work/torch" >/dev/null
        done
    done
    echo "| mode | accuracy after 440 steps, mean of 3 seeds | lowest | highest | ms a step |"
    echo "|---|---|---|---|---|"
    awk -F, '
        $3 == 440 {
            if (!n[$1]++) { modes[++count] = $1; least[$1] = 100 }
            sum[$1] += $5; ms[$1] += 1000 * $4 / $3
            if ($5 < least[$1]) least[$1] = $5
            if ($5 > most[$1]) most[$1] = $5
        }
        END {
            for (i = 1; i <= count; i++) {
                m = modes[i]
                printf "| %s | %.1f | %.1f | %.1f | %.0f |\n", m, sum[m] / n[m], \
                    least[m], most[m], ms[m] / n[m]
            }
        }' "$work/torch"
    awk -F, -v OFS=, '
        BEGIN { print "mode,steps,seconds,accuracy" }
        {
            if (!n[$1, $3]++) points[++count] = $1 "," $3
            seconds[$1 "," $3] += $4; accuracy[$1 "," $3] += $5
        }
        END {
            for (i = 1; i <= count; i++)
                print points[i], seconds[points[i]] / 3, accuracy[points[i]] / 3
        }' "$work/torch" >"$work/lines"
    keep torch-modes "$work/lines" mode steps seconds accuracy
}

# beside SYSTEM RANKS ...: adds the rows of scripts/beside.py to $work/all.
beside() {
    local ranks
    echo "ranks,point,system,us" >"$work/all"
    for ranks in "${@:2}"; do
        python "$ranks" scripts/beside.py "$1" | sed 1d >>"$work/all"
    done
    command="mpirun -np RANKS python3 scripts/beside.py $1"
}

# over POINT UNIT: a table of how many times as fast as the other system Baton is, with
# a column for each number of ranks. In parentheses are the other system's time and
# Baton's, divided by UNIT.
over() {
    awk -F, -v scale="$2" -v OFS=, '
        NR == 1 { print $1, $2, "times", "other", "baton"; next }
        $3 == "baton" {
            print $1 " ranks", $2, other / $4, other / scale, $4 / scale
        }
        { other = $4 }' "$work/all" >"$work/over"
    grid "$work/over" point ranks '%n (%n; %n)' times other baton |
        sed "1s/point/$1/"
}

torch_gloo() {
    beside gloo 2 4 8
    echo "gloo's time of \`dist.all_reduce\` over Baton's; in parentheses both in us:"
    echo
    over bytes 1
}

torch_ddp() {
    beside ddp 2 4
    echo "gloo's time of a step with mode \`full\` over Baton's; in parentheses both in ms:"
    echo
    over parameters 1000
}

torch_late() {
    beside late 4
    awk -F, -v OFS=, 'NR == 1 { print $0, "times"; next }
        $3 == "gloo" { gloo = $4 }
        { print $1, $2, $3, $4 / 1000, gloo / $4 }' "$work/all" >"$work/late"
    echo "| | ms a step | times as fast as gloo |"
    echo "|---|---|---|"
    rows "$work/late" '| %s | %n | %n |' system us times
}

# Two hosts of scripts/hosts.sh, a rank on each, whose links have 1 Gbit/s.
torch_sparse() {
    cat >"$work/paced" <<'END'
#!/bin/bash
for host in h0 h1; do
    on $host tc qdisc add dev eth0 root tbf rate 1gbit burst 256k latency 100ms
done 2>/dev/null || export LD_PRELOAD=$1
exec "${@:2}"
END
    cc -shared -fPIC -O2 -o "$work/pace.so" "$root/tests/pace.c" -ldl
    echo "ranks,point,system,us" >"$work/all"
    BATON_LIBRARY=$build/libbaton.so PYTHONPATH=$root/python OMP_NUM_THREADS=1 \
        "$root/scripts/hosts.sh" 2 bash "$work/paced" "$work/pace.so" mpirun -np 2 \
        --bind-to none "${PYTHON:-python3}" "$root/scripts/beside.py" sparse |
        sed 1d >>"$work/all"
    command='scripts/hosts.sh 2 mpirun -np 2 python3 scripts/beside.py sparse'
    echo "gloo's time of a step over that of mode \`sparse:0.01\`, at 1 Gbit/s between two"
    echo "emulated hosts; in parentheses both in ms:"
    echo
    over parameters 1000
}

python_mpi4py() {
    beside mpi4py 2 4
    echo "mpi4py's time of \`Allreduce\`, in place, over Baton's; in parentheses both in us:"
    echo
    over bytes 1
}

# start and wait of 8 bytes, by the package and in C, in turn.
python_overhead() {
    command='mpirun -np 2 python3 scripts/beside.py run`, `mpirun -np 2 '
    command+='baton-bench allreduce --bytes 8 --ways wait'
    for _ in 1 2 3 4 5; do
        bench bench 2 allreduce --systems baton --bytes 8 --ways wait --place in
        python 2 scripts/beside.py run | sed -n 's/^2,8,baton,//p' >>"$work/python"
    done
    awk -F, '$1 == "collective" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print $at["median_us"] }' "$work/bench" | sort -g | sed -n 3p >"$work/c"
    echo "| C, us | Python, us |"
    echo "|---|---|"
    printf '| %.2f | %.2f |\n' "$(cat "$work/c")" "$(sort -g "$work/python" | sed -n 3p)"
}

# ---- beside MPI: docs/measurements.md -----------------------------------------

# bench NAME RANKS OPTION ...: runs baton-NAME, which adds rows to $work/NAME.
bench() {
    mpirun -np "$2" --oversubscribe --bind-to none \
        "$build/microbench/baton-$1" "${@:3}" --csv "$work/csv" >/dev/null
    cat "$work/csv" >>"$work/$1"
}

# against FILE ROW: a table of how many times as fast as MPI Baton is: out of place,
# and in place. It has a row for each value of the awk expression ROW, and a column
# for each size.
against() {
    awk -F, '
        $1 == "collective" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["system"] == "baton" {
            bytes = $at["bytes"]
            row = '"$2"'
            size = bytes < 1024 ? bytes " B" : bytes < 1048576 ? \
                bytes / 1024 " KiB" : bytes / 1048576 " MiB"
            if (!(row in seen)) { seen[row] = 1; rows[++height] = row }
            if (!(size in known)) { known[size] = 1; sizes[++width] = size }
            if ($at["place"] == "out")
                out[row, size] = sprintf("%.2f", $at["ratio_to_best_mpi"])
            else
                in_place[row, size] = sprintf("; %.2f", $at["ratio_to_best_mpi"])
        }
        END {
            line = "| |"; rule = "|---|"
            for (c = 1; c <= width; c++) {
                line = line " " sizes[c] " |"
                rule = rule "---|"
            }
            print line "\n" rule
            for (r = 1; r <= height; r++) {
                line = "| " rows[r] " |"
                for (c = 1; c <= width; c++)
                    line = line " " out[rows[r], sizes[c]] \
                        in_place[rows[r], sizes[c]] " |"
                print line
            }
        }' "$1"
}

skew() {
    local ranks
    command='mpirun -np RANKS baton-skew --systems mpi,solo,quorum:2,majority'
    for ranks in 4 8 32; do
        bench skew $ranks --systems mpi,solo,quorum:2,majority
    done
    awk -F, 'NR == 1 { print "point," $0 }
        $1 != "system" { print $2 " ranks: " $3 " B," $0 }' "$work/skew" \
        >"$work/all"
    keep skew "$work/all" ranks bytes system mean_us
    echo "Mean latency of \`MPI_Allreduce\` over that of each mode; in parentheses"
    echo "the mode's, in us:"
    echo
    grid "$work/all" point system '%n (%n)' ratio_to_mpi mean_us
}

allreduce() {
    local options='--memory malloc --repetitions 7 --bytes '
    options+=8,1K,4K,16K,64K,256K,1M,4M,16M
    command="scripts/matrix.sh DIR $options"
    # shellcheck disable=SC2086
    RANKS="1 2 3 4 8 16 2@2 4@2" BENCH=$build/microbench/baton-bench \
        "$root/scripts/matrix.sh" "$work/matrix" $options >/dev/null
    if [ "$write" ]; then cp "$work/matrix/matrix.svg" "$root/docs/"; fi
    find "$work/matrix" -name '*.csv' | sort -V | xargs cat >"$work/all"
    awk -F, 'NR == 1 || $2 == "baton"' "$work/all" >"$work/baton"
    keep allreduce "$work/baton" ranks hosts way place bytes ratio_to_best_mpi
    echo "The fastest MPI all-reduce's time over Baton's, out of place; in place:"
    echo
    against "$work/all" '$at["ranks"] ($at["ranks"] > 1 ? " ranks" : " rank") \
        ($at["hosts"] > 1 ? " on " \
        $at["hosts"] " hosts" : "") ", " $at["way"]'
}

sparse_steps() {
    local ranks
    command='mpirun -np RANKS baton-bench sparse --bytes 4M,16M'
    for ranks in 4 8; do
        bench bench $ranks sparse --bytes 4M,16M
    done
    awk -F, 'NR == 1 { print "point," $0 }
        $1 != "algorithm" { print $2 " ranks: " $3 * 4 / 1048576 " MiB," $0 }' \
        "$work/bench" >"$work/all"
    echo "Time of a step at 1 %, with selection, over that of \`MPI_Allreduce\` and"
    echo "the pass that adds the gradient to a residual; in parentheses us:"
    echo
    grid "$work/all" algorithm point '%n (%n)' over_mpi_residual median_us
}

sparse_variants() {
    local ranks options name
    command='mpirun -np RANKS baton-bench sparse --algorithm spardl OPTIONS'
    for ranks in 2 4 8; do
        while IFS=: read -r name options; do
            rm -f "$work/bench"
            # shellcheck disable=SC2086
            bench bench $ranks sparse --algorithm spardl \
                --bytes "${BYTES:-16M}" $options </dev/null
            awk -F, -v OFS=, -v ranks=$ranks -v name="$name" '
                NR > 1 { print ranks, name, $6 / 1000 }' "$work/bench" >>"$work/rows"
        done <<END
plain:
clip:--clip 1
momentum:--momentum 0.9
short velocity:--momentum 0.9 --short-velocity
both:--momentum 0.9 --clip 1
both and short velocity:--momentum 0.9 --clip 1 --short-velocity
END
    done
    { echo P,variant,ms; cat "$work/rows"; } >"$work/all"
    grid "$work/all" P variant '%n' ms
}

engine() {
    command='mpirun -np 2 baton-bench engine'
    bench bench 2 engine
    echo "| | median | p10 | p90 | |"
    echo "|---|---|---|---|---|"
    rows "$work/bench" '| %s | %n | %n | %n | %s |' name value p10 p90 unit
}

simulator() {
    command='baton-sim allreduce --algorithm recursive_doubling --bytes 8 --sweep '
    command+=ranks=4096..262144
    # shellcheck disable=SC2086
    "$sim" ${command#* } --csv "$work/all" >/dev/null
    echo "| ranks | messages | building, s | simulating, s | messages a second |"
    echo "|---|---|---|---|---|"
    rows "$work/all" '| %s | %s | %n | %n | %n |' \
        ranks messages build_s run_s messages_per_s
}

# ---- libbaton_mpi: docs/mpi.md ------------------------------------------------

# calls RANKS TURNS MODE:CALL:BYTES ...: runs scripts/mpi_calls.c in turn with MPI
# alone and with libbaton_mpi; adds lines "RANKS,SYSTEM,MODE,CALL,BYTES,US" to
# $work/calls.
calls() {
    local ranks=$1 turns=$2 turn
    shift 2
    [ -e "$work/mpi_calls" ] ||
        mpicc -O2 -o "$work/mpi_calls" "$root/scripts/mpi_calls.c"
    for ((turn = 0; turn < turns; turn++)); do
        mpirun -np "$ranks" --oversubscribe --bind-to none \
            "$work/mpi_calls" "$@" | sed "s/^/$ranks,MPI,/" >>"$work/calls"
        "$build/baton-mpirun" -np "$ranks" --oversubscribe \
            "$work/mpi_calls" "$@" | sed "s/^/$ranks,Baton,/" >>"$work/calls"
    done
}

# in_turn ROW COLUMN: a table of the times that calls() has measured, as medians over
# the turns. It has a row for each value of the awk expression ROW, and two columns
# for each value of COLUMN.
in_turn() {
    awk -F, '
        function size(bytes) {
            return bytes < 1024 ? bytes " B" : bytes < 1048576 ? \
                bytes / 1024 " KiB" : bytes / 1048576 " MiB"
        }
        function median(key,   n, i, j, us) {
            n = number[key]
            for (i = 1; i < n; i++)
                for (j = i; j > 0 && times[key, j - 1] > times[key, j]; j--) {
                    us = times[key, j]
                    times[key, j] = times[key, j - 1]
                    times[key, j - 1] = us
                }
            us = times[key, int(n / 2)]
            return us < 1000 ? sprintf("%.3g", us) : sprintf("%.0f", us)
        }
        {
            row = '"$1"'; column = '"$2"'
            if (!(row in known)) { known[row] = 1; rows[++height] = row }
            if (!(column in seen)) { seen[column] = 1; columns[++width] = column }
            key = row SUBSEP column SUBSEP $2
            times[key, number[key]++ + 0] = $6
        }
        END {
            printf "| |"
            for (c = 1; c <= width; c++) printf " %s: MPI | Baton |", columns[c]
            printf "\n|---|"
            for (c = 1; c <= width; c++) printf "---|---|"
            for (r = 1; r <= height; r++) {
                printf "\n| %s |", rows[r]
                for (c = 1; c <= width; c++) {
                    key = rows[r] SUBSEP columns[c] SUBSEP
                    if ((key "MPI", 0) in times)
                        printf " %s | %s |", median(key "MPI"), median(key "Baton")
                    else
                        printf " | |"
                }
            }
            print ""
        }' "$work/calls"
}

mpi_at_once() {
    local ranks bytes asked=()
    command='mpirun -np RANKS mpi_calls wait:Iallreduce:BYTES'
    for bytes in ${BYTES:-8 1024 4096 32768 262144 1048576 16777216}; do
        asked+=("wait:Iallreduce:$bytes")
    done
    for ranks in 2 4 8; do
        calls $ranks "${TURNS:-5}" "${asked[@]}"
    done
    in_turn 'size($5)' '$1 " ranks"'
}

mpi_overlap() {
    local bytes mode asked=()
    command='mpirun -np 2 mpi_calls MODE:CALL:BYTES'
    for mode in wait compute early; do
        for bytes in 8 64 1024 4096; do
            asked+=("$mode:Ireduce_scatter:$bytes")
        done
        asked+=("$mode:Ireduce_scatter_block:8")
        for bytes in 4096 16384 65536 131072 262144 1048576; do
            asked+=("$mode:Ibcast:$bytes")
        done
    done
    calls 2 "${TURNS:-5}" "${asked[@]}"
    in_turn '"`MPI_" $4 "`, " size($5)' \
        '$3 == "wait" ? "at once" : $3 == "compute" ? "computes" : $3'
}

mpi_left() {
    local ranks
    command='mpirun -np RANKS mpi_calls first:Iallreduce:8 next:Iallreduce:8'
    for ranks in 2 4 8; do
        calls $ranks "${TURNS:-5}" first:Iallreduce:8 next:Iallreduce:8
    done
    in_turn '$3 == "first" ? "`MPI_Comm_dup` and the first `MPI_Iallreduce`" \
        : "the next ones"' '$1 " ranks"'
}

# The time of an iteration of PETSc's example, which is in Debian's packages petsc-dev
# and libpetsc3.*-dev-examples.
mpi_petsc() {
    local solver turn system run source
    command='mpirun -np 2 ex2 -m 100 -n 100 -ksp_type SOLVER'
    source=$(find "${PETSC:-/usr/share/petsc}" -path '*/ksp/ksp/tutorials/ex2.c' \
        2>"$work/log" | sort | tail -n 1 | grep .) || { echo "$0: mpi_petsc needs PETSc's examples" >&2; return 1; }
    # shellcheck disable=SC2046
    mpicc -O2 -o "$work/ex2" "$source" $(pkg-config --cflags --libs petsc)
    for solver in groppcg pipecg; do
        for ((turn = 0; turn < ${TURNS:-5}; turn++)); do
            for system in MPI Baton; do
                run="mpirun --bind-to none"
                [ $system = MPI ] || run=$build/baton-mpirun
                $run -np 2 --oversubscribe "$work/ex2" -m 100 -n 100 \
                    -ksp_type $solver -pc_type jacobi -ksp_max_it 500 \
                    -ksp_rtol 1e-50 -log_view |
                    awk -v head="2,$system,wait,$solver,0," '
                        /iterations/ { count = $NF }
                        $1 == "KSPSolve" { print head $4 * 1e6 / count }' \
                        >>"$work/calls"
            done
        done
    done
    in_turn '"`" $4 "`, us an iteration"' '"2 ranks"'
}

# ---- the paper of SparDL: docs/sparse.md ----------------------------------------

# Its figure 8, and the same ratios in the simulator.
sparse_paper() {
    local options='--ranks 14 --density 0.01 --alpha-us 50 --gbit 1'
    command="baton-sim sparse $options --count 15M\`, \`baton-sim sparse $options "
    command+='--count 1M --payload --steps 4'
    # shellcheck disable=SC2086
    "$sim" sparse $options --count 15M --csv "$work/a" >/dev/null
    # shellcheck disable=SC2086
    "$sim" sparse $options --count 1M --payload --steps 4 --csv "$work/b" >/dev/null
    joined data "no data=$work/a" "with data=$work/b" >"$work/all"
    awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { ratio[$1, $at["algorithm"]] = sprintf("%.3g", $at["this_over_spardl"]) }
        function row(name, key, paper) {
            print "| " name " | " paper " | " ratio["no data", key] " | " \
                ratio["with data", key] " |"
        }
        END {
            print "| | VGG-19 | VGG-11 | LSTM-IMDB | LSTM-PTB | no data | with data |"
            print "|---|---|---|---|---|---|---|"
            row("TopkA", "topka", "5.1 | 4.7 | 3.8 | 4.5")
            row("TopkDSA", "topkdsa", "6.4 | 5.6 | 2.7 | 5.0")
            row("Ok-Topk", "oktopk", "1.6 | 2.2 | 1.8 | 2.3")
        }' "$work/all"
}

# ---- rows of docs/measurements.md in README.md -----------------------------------

# Measures nothing: the rows are from the tables of that page.
measured() {
    command=
    awk -F' *[|] *' '
        function least(a, b) { return a == "" || b < a ? b : a }
        function most(a, b) { return b > a ? b : a }
        # The time in parentheses of a cell "RATIO (TIME)".
        function time(cell) { sub(/.*[(]/, "", cell); return cell + 0 }
        /^[|] 32 ranks: / {
            for (mode = 4; mode <= 6; mode += 2) {
                low[mode] = least(low[mode], $mode + 0)
                high[mode] = most(high[mode], $mode + 0)
            }
        }
        $2 == "spardl" { four = time($4); eight = time($6) }
        $2 == "mpi_residual" { four = time($4) / four; eight = time($6) / eight }
        $2 == "start_thread" { start = $3 }
        $2 == "idle_highest" { idle = $3 }
        $2 == "65536" { sim = $5 }
        END {
            print "| compared with MPI on as many ranks | times as fast |"
            print "|---|---|"
            print "| solo all-reduce, 32 ranks that arrive 1 ms apart, 64 B to" \
                " 64 KiB | " low[4] " to " high[4] " |"
            print "| majority all-reduce, the same | " low[6] " to " high[6] " |"
            printf "| sparse step of 16 MiB at 1 %% by SparDL; MPI'"'"'s is" \
                " `MPI_Allreduce` and a residual | %.2f on 4 ranks, %.2f on 8 |\n\n", \
                four, eight
            print "| Baton alone | |"
            print "|---|---|"
            printf "| a schedule of one empty node, start to wait | %.2f us |\n", start
            printf "| an idle engine on which other ranks may start something |" \
                " %.3f %% of a core |\n", idle
            printf "| 8-byte recursive doubling simulated on 65,536 ranks |" \
                " %.1f s |\n", sim
        }' "$root/docs/measurements.md"
}

# ---- PyTorch: docs/torch.md --------------------------------------------------

# Python with the newest torch that there is, in an environment of 6 GB.
torch_2() {
    local folder=${TORCH2:-$build/torch2}
    if [ ! -e "$folder/made" ]; then
        python3 -m venv "$folder"
        "$folder/bin/pip" install -q torch numpy cffi mpi4py pytest >&2
        touch "$folder/made"
    fi
    echo "$folder/bin/python"
}

torchs_own() {
    local newest python
    command='mpirun -np 3 python3 python/tests/torchs_own.py'
    newest=$(torch_2)
    echo "| torch | ranks | run | pass with both | fail with baton | fail with both |" \
        "fail with gloo |"
    echo "|---|---|---|---|---|---|---|"
    for python in /usr/bin/python3 "$newest"; do
        rm -f "$work/ends"
        until
            BATON_LIBRARY=$build/libbaton.so PYTHONPATH=$root/python \
                mpirun -np 3 --oversubscribe --bind-to none "$python" \
                "$root/python/tests/torchs_own.py" --ends "$work/ends" \
                >"$work/log" 2>/dev/null || true # mpirun complains of how ranks end
            grep '^| ' "$work/log"
        do
            # If a rank has hung in gloo, the next job goes on after the test that hung.
            [ -s "$work/ends" ] && ! cmp -s "$work/ends" "$work/before" || return 1
            cp "$work/ends" "$work/before"
        done
    done
}

# ---- one after another -------------------------------------------------------

# Prints a table, and above it the command, the version, the machine and the CPU
# steal.
describe() {
    local before after
    rm -f "$work"/{skew,bench,calls,rows,torch,python} # tables add rows to these files
    before=$(stolen)
    "$1" >"$work/table"
    [ "$command" ] || { cat "$work/table"; return; }
    after=$(stolen)
    # shellcheck disable=SC2086
    set -- $before $after
    echo "By \`$command\`, with Baton $("$build/microbench/baton-info" --version |
        awk 'NR == 1 { print $NF }') of $(git -C "$root" log -1 --format=%cs);" \
        "$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo |
        head -n 1), Linux $(uname -r | sed 's/-.*//'), $(mpirun --version |
        head -n 1 | sed 's/mpirun (//; s/)//'); CPU steal" \
        "$(awk "BEGIN { printf \"%.1f\", ($4 - $2) * 100 / ($3 - $1 + 1) }") %."
    echo
    cat "$work/table"
}

# Puts a file between the marks of a table.
place() {
    local page
    page=$(grep -l "^<!-- tables.sh $1 -->$" "$root"/README.md "$root"/docs/*.md) || {
        echo "$0: no page has the marks of $1" >&2
        return 1
    }
    awk -v mark="<!-- tables.sh $1 -->" -v table="$2" '
        $0 == mark { print; while ((getline line < table) > 0) print line; skip = 1 }
        $0 == "<!-- end -->" { skip = 0 }
        !skip { print }' "$page" >"$work/page"
    cat "$work/page" >"$page"
}

all='modes_even modes_quorum modes_lateness modes_ranks late severe
    sparse_training sparse_seeds sparse_links skew allreduce sparse_steps
    sparse_variants engine simulator torch_modes torch_gloo torch_ddp torch_late torch_sparse
    torchs_own python_mpi4py python_overhead mpi_at_once mpi_overlap mpi_left
    sparse_paper measured mpi_petsc'
write=
while [ $# -gt 0 ]; do
    case $1 in
    --write) write=1 ;;
    --list) echo $all | tr ' ' '\n'; exit ;;
    -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) break ;;
    esac
    shift
done
. "$root/scripts/progress.sh"
ended=0
for table in ${*:-$all}; do
    case " $(echo $all) " in
    *" $table "*) ;;
    *) echo "$0: no table $table; there are: $(echo $all)" >&2; exit 2 ;;
    esac
    echo "$(date +%H:%M:%S) $table" \
        "($(so_far $ended "$(echo ${*:-$all} | wc -w)"))" >&2
    describe "$table" >"$work/shown"
    if [ "$write" ]; then place "$table" "$work/shown"; else cat "$work/shown"; fi
    ended=$((ended + 1))
done
