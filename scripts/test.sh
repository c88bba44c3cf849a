#!/bin/sh
# Installs what is missing, builds Baton and runs all tests.
#
#   scripts/test.sh [cmake option ...]      e.g. -DBATON_WERROR=ON
#
# BUILD is the build folder, build/ by default. TESTS are options of ctest, e.g.
# TESTS="-L unit".
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build}

"$root/scripts/deps.sh"
cmake -S "$root" -B "$build" -DBATON_BUILD_TESTS=ON -DBATON_BUILD_EXAMPLES=ON "$@"
cmake --build "$build" -j "$(nproc)"
cd "$build"
# shellcheck disable=SC2086
ctest -j "$(nproc)" --output-on-failure --no-tests=error ${TESTS:-}
