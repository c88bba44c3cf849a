#!/usr/bin/python3
"""Prints the declarations of include/baton/ in a form that cffi can read.

    python/declarations.py >python/baton/_declarations.py     the module, for the package
    python/declarations.py --text                             the same to read, in C

The compiler's preprocessor removes comments and expands macros. cffi then makes a module of
the remaining text. The module is loaded in a millisecond, whereas parsing takes a quarter of a
second. tests/test_declarations.py fails if the file in the repository is out of date, or if
the compiler gives a struct another layout.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include"
LEFT_OUT = {"mpi.h"}  # it uses MPI's types; mpi_at.h declares the same without them
# Functions of MPI, and the struct in a capsule of DLPack.
ADDED = """
extern char ompi_mpi_comm_world[];
int MPI_Initialized(int *flag); int MPI_Finalized(int *flag); int MPI_Finalize(void);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
typedef struct dlpack_tensor {
    void *data; int32_t device, device_id, ndim; uint8_t code, bits; uint16_t lanes;
    int64_t *shape, *strides; uint64_t byte_offset;
} dlpack_tensor_t;
"""


def preprocess(*options):
    source = "".join(f"#include <baton/{header.name}>\n"
                     for header in sorted(INCLUDE.glob("baton/*.h")) if header.name not in LEFT_OUT)
    command = ["gcc", "-E", "-std=c11", f"-I{INCLUDE}", "-D__attribute__(x)=", *options,
               "-x", "c", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True, text=True).stdout


def numbers():
    """Yields the macros that stand for numbers."""
    for name, text in sorted(set(re.findall(r"^#define (BATON_[A-Z0-9_]+) (.+)$",
                                            preprocess("-dM"), re.M))):
        value = re.sub(r"\(size_t\)|(?<=\d)[uUlL]+", "", text)
        if re.fullmatch(r"[\d\sx<()+-]+", value):
            yield f"#define {name} {eval(value)}"


def text():
    """Returns the declarations without the parts that cffi can't read: the bodies of inline
    functions, const globals, and pointers to functions that return internal structs."""
    # The preprocessor's line markers tell which lines come from the headers.
    parts = re.findall(rf'^#.*"{INCLUDE}/baton/.*\n((?:(?!#).*\n)*)', preprocess(), re.M)
    headers = re.sub(r"static inline .*?\n}\n", "", "".join(parts), flags=re.S)
    headers = re.sub(r"\s+", " ", headers).replace("extern const ", "extern ")
    headers = re.sub(r"struct baton__\w+ \(\*(\w+)\)\([^)]*\)", r"void *\1", headers)
    return "\n".join([*numbers(), headers.replace("; ", ";\n")]) + ADDED


def module():
    """Returns the Python module that cffi makes of the text."""
    import cffi  # imported here, because -h and --text do not need it
    from cffi import recompiler
    ffi = cffi.FFI()
    ffi.cdef(text())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made.py")
        recompiler.make_py_source(ffi, "baton._declarations", path)
        return pathlib.Path(path).read_text(encoding="utf-8")


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
    else:
        sys.stdout.write(text() if sys.argv[1:] == ["--text"] else module())
