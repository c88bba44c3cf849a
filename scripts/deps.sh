#!/bin/sh
# Installs those Debian packages that Baton needs and that are missing. If there is
# an MPI, it is used; otherwise Open MPI is installed.
#
#   scripts/deps.sh           to build and test
#   scripts/deps.sh --no-mpi  only to build, and no MPI
#   scripts/deps.sh --demo    and to plot
#   scripts/deps.sh --ci      and to lint, to build with sanitizers, and to test over
#                             both MPIs and UCX; fails if mpicc is then another
#                             MPI's
#
# The source is formatted by clang-format 14, which is Debian 12's. Debian 13's
# clang-format 19 formats it differently.
set -eu
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac

packages="gcc libc6-dev make cmake pkg-config libevent-dev libhwloc-dev python3-cffi
    python3-numpy"
mpicc=$(command -v mpicc || true)
mpicc=${mpicc:+$(readlink -f "$mpicc")}
if [ "${1-}" != --no-mpi ]; then
    packages="$packages g++ help2man libcmocka-dev libmimalloc-dev
        libopenblas-dev python3-pytest"
    [ -n "$mpicc" ] || packages="$packages libopenmpi-dev openmpi-bin"
fi
for option in "$@"; do
    case $option in
    --no-mpi) ;;
    --demo) command -v gnuplot >/dev/null || packages="$packages gnuplot-nox" ;;
    --ci) packages="$packages clang clang-format clang-tidy llvm doxygen
        libclang-rt-dev iproute2 nftables locales mypy ninja-build procps python3-mpi4py
        python3-torch libopenmpi-dev openmpi-bin libmpich-dev mpich libucx-dev
        hpcc scalapack-mpi-test" ;;
    *)
        echo "usage: $0 [--no-mpi] | [--demo] [--ci]" >&2
        exit 2
        ;;
    esac
done

if ! command -v dpkg >/dev/null; then
    echo "$0: no dpkg here; install what corresponds to:" $packages >&2
    exit 1
fi
missing=
for package in $packages; do
    if ! dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed$'; then
        missing="$missing $package"
    fi
done
if [ -z "$missing" ]; then
    exit 0
fi

echo "installing:$missing"
sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "$0: not root, and no sudo; as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y"
if ! $apt install --no-install-recommends $missing </dev/null >/dev/null 2>&1
then
    # Often only the lists are missing or old.
    $apt update </dev/null
    $apt install --no-install-recommends $missing </dev/null
fi

# Debian prefers Open MPI to MPICH, unless the administrator has chosen an MPI.
is=$(readlink -f "$(command -v mpicc)" || true)
if [ "${1-}" != --no-mpi ] &&
    [ "$is" != "${mpicc:-$(readlink -f "$(command -v mpicc.openmpi)")}" ]; then
    echo "$0: mpicc is now $is;" >&2
    echo "choose by: update-alternatives --config mpi, and --config mpirun" >&2
    exit 1
fi
