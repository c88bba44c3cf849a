#!/bin/sh
# train as a user has it: sparse training learns about as well as dense
# training; a run that is saved in the middle goes on with the same bits;
# refusals.
#
#   train_sparse.sh TRAIN MPIRUN...
. "$(dirname "$0")/support/command.sh"
train=$1
shift
mpirun=$*

# With so many ranks.
try() {
    ranks=$1
    shift
    $mpirun -np "$ranks" "$train" --mode sparse "$@" >out 2>err
}

runs() {
    try "$@" || complain "failed: train $*"
}

# The bound is loose: few steps, few images.
runs 4 --epochs 8 --systems dense,spardl,oktopk,redsync:0.01 --csv a.csv
awk -F, '$2 == 8 { accuracy[$1] = $5; runs++ }
    END {
        for (name in accuracy) {
            if (accuracy[name] < accuracy["dense"] - 4) bad = 1
        }
        exit bad || runs != 4 || accuracy["dense"] < 85
    }' a.csv || complain "sparse training learns less than dense training"

# Saved in the middle of Ok-Topk's and RedSync's periods.
digests() {
    awk 'length($NF) == 16 { print $1, $NF }' out
}
small="--batch 12 --width 24"
runs 3 $small --epochs 2
digests >whole
runs 3 $small --epochs 1 --save saved
runs 3 $small --epochs 2 --load saved
digests | cmp -s - whole || complain "a loaded run ends with other bits"
[ "$(wc -l <whole)" -eq 7 ] || complain "not all algorithms ran"

# A file that is not there is named; the library's tests damage states.
rm saved-spardl-rank1
try 3 $small --epochs 2 --systems spardl --load saved &&
    complain "loads a file that is not there"
grep -q 'saved-spardl-rank1' err || complain "does not name the file"

for wrong in "--systems topka:2" "--systems spardel" "--systems quorum:9" \
    "--epochs 1.5" "--task hyper" "--digits /nonexistent"; do
    try 1 --epochs 1 $wrong && complain "takes $wrong"
    grep -q '^train: ' err || complain "does not say what is wrong: $wrong"
done
exit $fail
