#!/bin/sh
# Runs Debian's hpcc and ScaLAPACK's test programs, which check their own
# results. Baton takes all of their collectives. packages.sh BATON-MPIRUN, on 4
# ranks.
set -eu
mpirun=$1
run() {
    timeout 100 "$mpirun" --blocking --oversubscribe -np 4 "$@"
}
programs=/usr/lib/$(gcc -print-multiarch)/scalapack/openmpi-tests
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

sed 's/^1000  /200   /; s/^80  /32  /' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
run hpcc
if ! grep -q '^Success=1' hpccoutf.txt || grep FAILED hpccoutf.txt; then
    echo "hpcc has failed" >&2
    exit 1
fi

cp /usr/share/scalapack/*.dat .
for program in xdlu xdqr; do
    run "$programs/$program" | tee out
    if ! grep -q '[1-9][0-9]* tests completed and passed' out || ! grep -q ' 0 tests completed and failed' out; then
        echo "$program has failed" >&2
        exit 1
    fi
done
