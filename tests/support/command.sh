# What the tests of commands share; a test sources it before all else. It works
# in a folder of its own, and ends with `exit $fail`.
# shellcheck shell=sh
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail=0

# complain SENTENCE: the test fails; shows what the last command wrote.
complain() {
    echo "$(basename "$0" .sh): $1"
    cat out err
    fail=1
}
