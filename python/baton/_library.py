"""The lowest layer: calls the functions of libbaton by cffi.

`lib` has the functions and constants of include/baton/, `ffi` their types, and
`check(status)` raises the exception of a status. A call releases the GIL while it is in C.
All other modules of the package are built on these three. `beside("mpi_group")` returns the
library of the functions that need MPI, and a few of MPI's own.

The library is looked for in this order: the file that the variable BATON_LIBRARY names;
the folder of this package, where a wheel has it; the folder build/ of a source tree that
this package is in; the folders above an installed package; the paths of the dynamic loader.
"""
import collections
import functools
import os
import pathlib
from typing import Any, List, Optional, Tuple

from baton import errors
from baton._declarations import ffi

_WANTED = "{}.{}".format(*map(ffi.integer_const, ("BATON_VERSION_MAJOR", "BATON_VERSION_MINOR")))
_SONAME = "libbaton.so." + _WANTED
_INSTALL = f"""\
Baton's Python package needs the C library libbaton, which was not found.
To build and install it, in Baton's source tree:
    scripts/deps.sh && cmake -S . -B build && cmake --build build -j2
    sudo cmake --install build && sudo ldconfig
Or name the file: export BATON_LIBRARY=/path/to/{_SONAME}
Tried:
"""


def _places() -> list:
    """Returns the paths where the library may be, in the order in which they are tried."""
    if os.environ.get("BATON_LIBRARY"):
        return [os.environ["BATON_LIBRARY"]]
    above = pathlib.Path(__file__).resolve().parents  # prefix/lib of .../pythonX/site-packages
    return [above[0] / _SONAME, above[2] / "build" / "libbaton.so",
            *(of / _SONAME for of in above[2:5]), _SONAME]


def _open() -> Tuple[str, Any]:
    tried = []
    for place in map(str, _places()):
        try:
            if os.sep in place and not os.path.exists(place):
                raise OSError(f"{place}: no such file")
            return place, ffi.dlopen(place)
        except OSError as error:
            tried.append(f"    {error}")
    raise ImportError(_INSTALL + "\n".join(tried))


_place, lib = _open()


@functools.lru_cache(None)
def beside(name: str) -> Any:
    """Opens the library libbaton_NAME, which is in the folder of libbaton. Unsupported: it can't be
    loaded."""
    try:
        # Open MPI opens plugins that expect its symbols to be global.
        return ffi.dlopen(_place.replace("libbaton.so", f"libbaton_{name}.so"),
                          ffi.RTLD_NOW | ffi.RTLD_GLOBAL)
    except OSError as failed:
        raise errors.Unsupported(str(failed)) from None


version = ffi.string(lib.baton_version()).decode()
if not version.startswith(_WANTED + "."):
    raise ImportError(f"this Python package is for libbaton {_WANTED}, and the library "
                      f"that was found is {version}: install both of one version")

_BY_STATUS = {getattr(lib, of.name): of for of in errors.Error.__subclasses__()}
for _status, _class in _BY_STATUS.items():
    _class.status = _status


def error(status: int, text: Optional[str] = None) -> errors.Error:
    """Returns the exception of a status, with the message of this thread's last failed call."""
    if text is None:
        text = ffi.string(lib.baton_error_message()).decode(errors="replace")
        # The library names the time of the wait's last slice, and not the user's timeout.
        text = text.split("\n    (wait gave up")[0]
        for by in ("mpi", "store"):
            text = text.replace(f"baton_group_create_{by}", f"Group.from_{by}")
        text = text.replace("baton_group_create_sub", "Group.sub")
        for kind in ("group", "schedule", "partial", "sparse", "tensors"):
            text = text.replace(f"baton_{kind}_", f"{kind.title()}.")
    made = _BY_STATUS.get(status, errors.Error)(
        text or ffi.string(lib.baton_status_text(status)).decode())
    made.status = status
    return made


def failed_start(status: int, schedule: Any) -> errors.Error:
    """Returns the exception of the status of a start. If a peer reported that the first epoch
    had failed before this rank started it, that is the exception of that failure."""
    made, failure = error(status), ffi.new("baton_failure_t *")
    if (status == lib.BATON_ERR_FAILED and schedule != ffi.NULL
            and not lib.baton_schedule_failure(schedule, failure)):
        made = error(failure.status, str(made))
    return made


def check(status: int) -> None:
    """Raises the exception of `status`, a baton_status_t, unless it is BATON_OK."""
    if status:
        raise error(status)


def answer(kind: str, function: Any, *given: Any) -> Any:
    """Calls a function whose last argument is a pointer to a `kind`, and returns what it stores."""
    made = ffi.new(f"{kind} *")
    check(function(*given, made))
    return made[0]


@functools.lru_cache(None)
def words(enum: Any) -> List[str]:
    """Returns the enumerators of a type in the order of their values, in lower case and without
    their common prefix."""
    names = [name for _, name in sorted(enum.elements.items()) if not name.endswith("_COUNT")]
    return [name[len(os.path.commonprefix(names)):].lower() for name in names]


def options(kind: str, alive: list, given: dict) -> Any:
    """Returns a new `kind *` whose fields have the values `given` by name: numbers, lists of
    numbers, text, or a word of an enumeration. None leaves a field at its default. Adds to
    `alive` the memory to which the struct points. Invalid: the struct has no such field."""
    made = ffi.new(f"{kind} *")
    fields = dict(ffi.typeof(kind).fields)
    if fields.pop("size", None):
        made.size = ffi.sizeof(kind)
    for name, value in given.items():
        if name not in fields:
            raise errors.Invalid(f"no option {name}; there are: " + ", ".join(fields))
        if value is None:
            continue
        of = fields[name].type
        if of.kind == "enum" and isinstance(value, str):
            if value not in words(of):
                raise errors.Invalid(f'{name} is "{value}"; it may be: ' + ", ".join(words(of)))
            value = words(of).index(value)
        try:
            if of.kind == "pointer" and not isinstance(value, ffi.CData):
                value = value.encode() if isinstance(value, str) else list(value)
                value = ffi.new(ffi.getctype(of.item, "[]"), value)
                alive.append(value)
            setattr(made, name, value)
        except (OverflowError, TypeError) as wrong:
            raise errors.Invalid(f"option {name}: {wrong}") from None
    return made


def record(kind: str) -> Any:
    """Returns a base class for named tuples with the fields of a struct. The values of
    enumerations are words in the tuple, except those of a status."""
    fields = dict(ffi.typeof(kind).fields)
    made = collections.namedtuple("made", fields)  # type: ignore[misc]
    setattr(made, "_words", {field: words(of.type) for field, of in fields.items()
                             if of.type.kind == "enum" and field != "status"})
    return made


def filled(of: Any, struct: Any) -> Any:
    """Returns a tuple of the class `of`, which `record` has made, with the values of a struct."""
    values = {field: getattr(struct, field) for field in of._fields}
    values.update((field, ffi.string(value).decode(errors="replace")
                   if ffi.typeof(value).item.cname == "char" else list(value))
                  for field, value in values.items() if isinstance(value, ffi.CData))
    values.update((field, names[values[field]]) for field, names in of._words.items())
    return of(**values)
