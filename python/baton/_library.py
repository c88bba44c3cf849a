"""The lowest layer: the functions of libbaton as C has them, called by cffi.

`lib` has the functions and constants of include/baton/, `ffi` their types, and
`check(status)` raises what a status means. A call releases the GIL while it is in C. All
other modules of the package are built on these three. `beside("mpi_group")` has the
functions that need MPI, and a few of MPI's own.

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
    """Returns where the library may be. The first place where it exists counts."""
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
    """Opens libbaton_`name`, which is beside libbaton. Unsupported: it can't be loaded."""
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
    """The exception for a status; its text is that of this thread's last failed call."""
    if text is None:
        text = ffi.string(lib.baton_error_message()).decode(errors="replace")
        text = text.split("\n    (wait gave up")[0]  # after its last slice, not the timeout
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
    """The exception for the status of a start, which is that of the first epoch's failure
    where a peer's news of that came before this rank's start."""
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
    """What a function writes through its last argument, a pointer to a `kind`."""
    made = ffi.new(f"{kind} *")
    check(function(*given, made))
    return made[0]


@functools.lru_cache(None)
def words(enum: Any) -> List[str]:
    """Returns the enumerators of a type, by their values, in lower case and without the common
    prefix."""
    names = [name for _, name in sorted(enum.elements.items()) if not name.endswith("_COUNT")]
    return [name[len(os.path.commonprefix(names)):].lower() for name in names]


def options(kind: str, alive: list, given: dict) -> Any:
    """A new `kind *`, whose fields are `given` by name: numbers, lists of them, text, or one
    of the words of a type; None leaves it as it is. `alive` gets what the struct points to.
    Invalid: there is no such option."""
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
    """Returns a base class for named tuples with the fields of a struct. Enumerators become
    words, except a status."""
    fields = dict(ffi.typeof(kind).fields)
    made = collections.namedtuple("made", fields)  # type: ignore[misc]
    setattr(made, "_words", {field: words(of.type) for field, of in fields.items()
                             if of.type.kind == "enum" and field != "status"})
    return made


def filled(of: Any, struct: Any) -> Any:
    """Returns the record of a struct."""
    values = {field: getattr(struct, field) for field in of._fields}
    values.update((field, ffi.string(value).decode(errors="replace")
                   if ffi.typeof(value).item.cname == "char" else list(value))
                  for field, value in values.items() if isinstance(value, ffi.CData))
    values.update((field, names[values[field]]) for field, names in of._words.items())
    return of(**values)
