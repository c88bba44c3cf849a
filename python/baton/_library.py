"""The lowest layer: the functions of libbaton as C has them, called by cffi.

`lib` has the functions and constants of include/baton/ (and a few of MPI), `ffi` their
types, and `check(status)` raises what a status means. A call releases the GIL while it is
in C. All other modules of the package are built on these three.

The library is looked for in this order: the file that the variable BATON_LIBRARY names;
the folder build/ of a source tree that this package is in; the folders above an installed
package; the paths of the dynamic loader.
"""
import os
import pathlib

from baton import errors
from baton._declarations import ffi

MPICH_COMM_WORLD = 0x44000000

_INSTALL = """\
Baton's Python package needs the C library libbaton, which was not found.
To build and install it, in Baton's source tree:
    scripts/deps.sh
    cmake -S . -B build && cmake --build build -j2
    sudo cmake --install build && sudo ldconfig
Or name the file: export BATON_LIBRARY=/path/to/libbaton.so.0
Tried:
"""


def _places():
    """Yields where the library may be, the first one that exists being the one."""
    named = os.environ.get("BATON_LIBRARY")
    if named:
        yield named
        return
    package = pathlib.Path(__file__).resolve().parent
    if (package.parents[1] / "include" / "baton" / "baton.h").exists():
        yield str(package.parents[1] / "build" / "libbaton.so")
    for folder in list(package.parents)[1:4]:  # prefix/lib of .../pythonX/site-packages
        yield str(folder / "libbaton.so.0")
    yield "libbaton.so.0"


def _open():
    tried = []
    for place in _places():
        if os.sep in place and not os.path.exists(place) and len(place) < 4096:
            tried.append(f"    {place}: no such file")
            continue
        try:
            # Open MPI opens plugins that expect its symbols to be global.
            return ffi.dlopen(place, ffi.RTLD_NOW | ffi.RTLD_GLOBAL)
        except OSError as error:
            tried.append(f"    {error}")
    raise ImportError(_INSTALL + "\n".join(tried))


lib = _open()
version = ffi.string(lib.baton_version()).decode()
_wanted = f"{lib.BATON_VERSION_MAJOR}.{lib.BATON_VERSION_MINOR}."
if not version.startswith(_wanted):
    raise ImportError(f"this Python package is for libbaton {_wanted}x, and the library "
                      f"that was found is {version}: install both of one version")

_BY_STATUS = {}
for _class in errors.Error.__subclasses__():
    _class.status = getattr(lib, _class.name)
    _BY_STATUS[_class.status] = _class


def error(status, text=None):
    """The exception for a status; its text is that of this thread's last failed call."""
    if text is None:
        text = ffi.string(lib.baton_error_message()).decode(errors="replace")
    made = _BY_STATUS.get(status, errors.Error)(
        text or ffi.string(lib.baton_status_text(status)).decode())
    made.status = status
    return made


def check(status):
    """Raises the exception of `status`, a baton_status_t, unless it is BATON_OK."""
    if status:
        raise error(status)


def options(kind, **fields):
    """A new `kind *` whose `size` is set; other fields are zero, or as given."""
    made = ffi.new(f"{kind} *")
    made.size = ffi.sizeof(kind)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
