#!/bin/sh
# Runs the programs in bin/ beside this script, which need a GPU, one after another,
# each under a time limit, and says what each one proved. scripts/test_gpu.sh makes
# the folder of both (--bundle), in which this script is run.sh. The programs only
# need the NVIDIA driver.
#
# The outputs are in log/. With ONLY="NAME ..." only these programs run. If
# compute-sanitizer is in PATH, the suites run under it as well. The exit code is
# 1 if a suite failed, and 77 if there is no GPU.
set -u
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$here/log"
passed=0
failed=
skipped=

# suite NAME SECONDS PROOF COMMAND...
suite() {
    name=$1
    limit=$2
    proof=$3
    shift 3
    log=$here/log/$(echo "$name" | tr ' ,' '__').txt
    timeout "$limit" "$@" >"$log" 2>&1
    code=$?
    case $code in
    0)
        passed=$((passed + 1))
        echo "passed   $name: $proof"
        ;;
    77)
        skipped="$skipped $name"
        echo "skipped  $name: $(sed -n 's/^skipped: //p' "$log" | head -n 1)"
        ;;
    *)
        failed="$failed $name"
        [ $code -eq 124 ] && echo "FAILED   $name: no end after $limit s" ||
            echo "FAILED   $name: exit status $code"
        tail -n 15 "$log" | sed 's/^/         /'
        ;;
    esac
}

# Calls "$1" with the name, the limit in seconds and the proof of each program.
each() {
    while IFS='|' read -r name limit proof; do
        case " ${ONLY:-$name} " in
        *" $name "*) [ ! -x "$here/bin/$name" ] || "$1" ;;
        esac
    done <<END
test_attach|60|a machine without a GPU gets an error that says why
gpu_reduce|600|reductions have the host's bits, for any values and alignment
gpu_select|600|selections and lists have the host's bits
gpu_port|600|the port passes its conformance suite
gpu_peers|120|a process copies from the device memory of another one
gpu_epochs|600|epochs begin and end in stream order, also when they fail
gpu_sparse|900|sparse steps on the device have the host's results
cuda_training|300|the example trains, and its loss falls
END
}

run_plain() {
    suite "$name" "$limit" "$proof" "$here/bin/$name"
}

# The tools check each access, so the suites run fewer rounds, and get more time.
# The suites provoke errors of CUDA's API, which must not count as findings. Under a
# tool a query of a stream may wait for all other streams. Then an engine can't end
# the epoch for which a stream waits. So programs that use wait_on, which sometimes
# hang, are left out.
run_checked() {
    case $name in
    test_* | gpu_epochs | gpu_sparse | cuda_training) return ;;
    esac
    suite "$tool of $name" 1800 "$tool found nothing in $name" \
        env TEST_ROUNDS=200 compute-sanitizer --tool "$tool" \
        --report-api-errors no --target-processes all --error-exitcode 1 \
        "$here/bin/$name"
}

each run_plain
gpus=$passed
[ -x "$here/bin/test_attach" ] && gpus=$((gpus - 1))
if [ "$gpus" -gt 0 ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        each run_checked
    done
else
    echo "memcheck and racecheck were not run: no GPU, or no compute-sanitizer"
fi

[ -z "$skipped" ] || echo "skipped:$skipped"
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
if [ -n "$skipped" ] && [ "$gpus" -le 0 ]; then
    exit 77
fi
echo "all others passed"
