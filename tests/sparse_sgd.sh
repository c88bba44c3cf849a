#!/bin/sh
# sparse_sgd as a user has it: sparse training learns about as well as dense
# training; a run that is saved in the middle goes on with the same bits; files;
# refusals.
#
#   sparse_sgd.sh SPARSE_SGD CMAKE      (cmake reads JSON)
set -u
sgd=$1 cmake=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail=0

complain() {
    echo "sparse_sgd: $1"
    cat out err
    fail=1
}

runs() {
    "$sgd" "$@" >out 2>err || complain "failed: sparse_sgd $*"
}

# The rows, without the times: algorithm, density, ..., digest.
digests() {
    awk '/^[a-z]+ +[0-9.]+ +[0-9]+ / { print $1, $2, $3, $NF }' out
}

# The bound is loose: few steps, few images.
runs --steps 150 --density 0.01 --algorithms dense,spardl,oktopk,redsync \
    --csv a.csv --json a.json
awk '/%/ { sub("%", "", $5); accuracy[$1] = $5 }
    END {
        for (name in accuracy) {
            if (accuracy[name] < accuracy["dense"] - 4) bad = 1
            runs++
        }
        exit bad || runs != 4 || accuracy["dense"] < 85
    }' out || complain "sparse training learns less than dense training"
grep -q '^spardl,0.01,150,' a.csv || complain "a.csv lacks the last step"
cat >json.cmake <<'SCRIPT'
file(READ a.json text)
string(JSON points LENGTH "${text}" 3 points)
string(JSON name GET "${text}" 3 algorithm)
if(points LESS 2 OR NOT name STREQUAL "spardl")
    message(FATAL_ERROR "a.json: ${name} has ${points} points")
endif()
SCRIPT
"$cmake" -P json.cmake >out 2>err || complain "a.json is wrong"

# Saved at a step that is in the middle of Ok-Topk's and RedSync's periods.
small="--parameters 3000 --ranks 3 --batch 4 --density 0.02 --steps 40"
runs $small --clip 1 --warmup 3
digests >whole
runs $small --clip 1 --warmup 3 --save saved --at 23
runs $small --clip 1 --warmup 3 --load saved
digests | cmp -s - whole || complain "a loaded run ends with other bits"
[ "$(wc -l <whole)" -eq 7 ] || complain "not all algorithms ran"

# A file that was cut, of another algorithm, or is not there.
for damage in cut other gone; do
    cp saved-spardl-0.02-rank1 kept
    case $damage in
    cut) head -c 100 kept >saved-spardl-0.02-rank1 ;;
    other) cp saved-topka-0.02-rank1 saved-spardl-0.02-rank1 ;;
    gone) rm saved-spardl-0.02-rank1 ;;
    esac
    "$sgd" $small --clip 1 --warmup 3 --algorithms spardl --load saved \
        >out 2>err && complain "loads a file that is $damage"
    grep -q 'saved-spardl-0.02-rank1' err || complain "does not name the file"
    mv kept saved-spardl-0.02-rank1
done

for wrong in "--density 2" "--algorithms spardel" "--ranks 0" "--save x" \
    "--steps 1.5" "--teams 3" "--digits /nonexistent"; do
    "$sgd" --steps 1 $wrong >out 2>err && complain "takes $wrong"
    grep -q '^sparse_sgd: ' err || complain "does not say what is wrong"
done
exit $fail
