#!/bin/sh
# Fetches the handwritten digits with which the examples train: one file from
# Debian's package python3-sklearn, without installing that package.
#
#   scripts/digits.sh [BUILD]     writes BUILD/digits.csv.gz (default: build)
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
inside=./usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz

mkdir -p "$build"
build=$(cd "$build" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt downloads as a user of its own
cd "$work"
if ! apt-get -qq download python3-sklearn 2>error; then
    cat error >&2
    echo "$0: apt-get can't download python3-sklearn; as root: apt-get update" >&2
    exit 1
fi
dpkg-deb --fsys-tarfile python3-sklearn_*.deb | tar -xOf - "$inside" >digits
gzip -t digits
mv digits "$build/digits.csv.gz"
echo "$build/digits.csv.gz"
