"""The package's declarations must agree with the headers, as this machine's compiler sees them."""
import contextlib
import pathlib
import subprocess
import sys

import pytest

from baton import errors
from baton._handles import mpi
from baton._library import ffi, lib

pytestmark = pytest.mark.one_rank
TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "python"))
cffi = pytest.importorskip("cffi")
declarations = pytest.importorskip("declarations")


def test_file_is_what_the_script_prints():
    checked_in = TREE / "python" / "baton" / "_declarations.py"
    assert declarations.module() == checked_in.read_text(), (
        "run python/declarations.py >python/baton/_declarations.py")


def structs():
    for name in (each for each in sorted(ffi.list_types()[0]) if each.startswith("baton_")):
        with contextlib.suppress(ffi.error):  # Opaque structs and functions have no size.
            kind = ffi.typeof(name)
            if kind.kind in ("struct", "union") and ffi.sizeof(kind):
                yield name, kind


def test_sizes_offsets_and_values_are_the_compilers(tmp_path):
    expected = {}
    for name, kind in structs():
        expected[f"sizeof({name})"] = ffi.sizeof(kind)
        for field, of in kind.fields:
            expected[f"offsetof({name}, {field})"] = of.offset
            expected[f"sizeof((({name} *)0)->{field})"] = ffi.sizeof(of.type)
    for name in dir(lib):
        value = getattr(lib, name, None) if name.startswith("BATON_") else None
        if isinstance(value, int):
            expected[name] = value
    headers = [header.name for header in sorted(TREE.glob("include/baton/*.h"))
               if header.name not in declarations.LEFT_OUT]
    lines = ["#include <stdio.h>", *(f"#include <baton/{name}>" for name in headers),
             "int main(void) {"]
    lines += [f'printf("%s\\t%lld\\n", "{what}", (long long)({what}));' for what in expected]
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["gcc", "-std=c11", f"-I{TREE / 'include'}", source, "-o", program],
                   check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found = {what: int(value) for what, value in
             (line.split("\t") for line in printed.splitlines())}
    assert len(expected) > 500
    assert found == expected


def test_all_functions_are_in_the_library():
    of_others = {"baton_cuda_attach", "baton_group_create_mpi_at"}
    missing = [name for name in dir(lib) if name.startswith("baton_")
               and name not in of_others and not hasattr(lib, name)]
    assert missing == []
    assert hasattr(mpi(), "baton_group_create_mpi_at")


def test_each_error_has_one_exception():
    statuses = {getattr(lib, name) for name in dir(lib) if name.startswith("BATON_ERR_")}
    classes = errors.Error.__subclasses__()
    assert sorted(of.status for of in classes) == sorted(statuses)
    assert len(statuses) == len(classes)
