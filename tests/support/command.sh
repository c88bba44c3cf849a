# Shared by the tests of commands. A test sources this file before all else,
# then works in a temporary folder, and ends with `exit $fail`.
# shellcheck shell=sh
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail=0

# complain SENTENCE makes the test fail. It prints the sentence, and the files out
# and err, which the last command has written.
complain() {
    echo "$(basename "$0" .sh): $1"
    cat out err
    fail=1
}
