#!/bin/sh
# Tests examples/train as a user runs it. Training learns; sparse training about
# as well as dense training. Also tests wrong arguments.
#
#   train_learns.sh TRAIN MPIRUN...
. "$(dirname "$0")/support/command.sh"
train=$1
shift
mpirun=$*

# try RANKS OPTION...: trains on RANKS ranks.
try() {
    ranks=$1
    shift
    $mpirun -np "$ranks" "$train" "$@" >out 2>err
}

runs() {
    try "$@" || complain "failed: train $*"
}

# The bound is loose, as there are few steps and few images.
runs 4 --mode sparse --epochs 8 --systems dense,spardl,oktopk,redsync:0.01
awk 'head { accuracy[$1] = $4; runs++ }
    $1 == "system" { head = $4 == "accuracy" }
    END {
        for (name in accuracy) {
            if (accuracy[name] < accuracy["dense"] - 4) bad = 1
        }
        exit bad || runs != 4 || accuracy["dense"] < 85
    }' out || complain "sparse training learns less than dense training"

runs 3 --mode full --epochs 4
awk '$1 == "overlap" && $4 >= 85 { learned = 1 } END { exit !learned }' out ||
    complain "training does not learn"

for wrong in "--systems topka:2" "--systems spardel" "--systems quorum:9" \
    "--epochs 1.5" "--task hyper" "--digits all" "--seed"; do
    try 1 --mode sparse --epochs 1 $wrong && complain "takes $wrong"
    grep -q 'train: ' err || complain "does not say what is wrong: $wrong"
done

# Alone, and under mpirun.
for alone in "" "$mpirun -np 2"; do
    for help in -h --help; do
        $alone "$train" $help >out 2>err && grep -q -- '--batch=N' out && [ ! -s err ] ||
            complain "no help: $alone train $help"
    done
done
exit $fail
