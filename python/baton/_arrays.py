"""Arrays: the address, count, type and kind of memory of the arrays that users pass.

`operand(a)` takes numpy arrays, PyTorch tensors, and objects with `__dlpack__`,
`__array_interface__` or the buffer protocol. Elements must lie one after another. An array
with other strides is refused: a copy would get the result, and not the caller's array.
"""
import ctypes
import functools
import math
import re
import sys
from typing import Any, Optional

import numpy

from baton import errors
from baton._library import answer, ffi, lib

_NAMES = [ffi.string(lib.baton_dtype_name(i)).decode() for i in range(lib.BATON_DTYPE_COUNT)]
# The number of each type, by its name; and the bytes of an element, by the type's number.
NUMBERS = {name: i for i, name in enumerate(_NAMES) if i}
SIZES = [0] + [lib.baton_dtype_size(i) for i in NUMBERS.values()]

# numpy's type for each type of Baton. numpy has none for bf16, but the package ml_dtypes has.
NUMPY = {name: numpy.dtype(f"{name[0]}{int(name[1:]) // 8}")
         for name in NUMBERS if re.fullmatch(r"[iufc]\d+", name)}
_PAIRS: dict = {name: numpy.dtype([("value", NUMPY[name[:-4]]), ("index", "i4")], align=True)
          for name in NUMBERS if name.endswith("_i32")}
NUMPY.update(_PAIRS, bool=numpy.dtype("?"))
_OF_NUMPY = {dtype: NUMBERS[name] for name, dtype in NUMPY.items()}
_OF_DLPACK = {0: "i", 1: "u", 2: "f", 4: "bf", 5: "c", 6: "bool"}  # by DLPack's type code
# The address of arrays without elements. (NULL means that there is no array.)
NOWHERE = int(ffi.cast("uintptr_t", _empty := ffi.new("char[64]")))
_MEMORY = {"cpu": lib.BATON_MEMORY_HOST, "cuda": lib.BATON_MEMORY_DEVICE}
# By DLPack's device type. 1 is the CPU; 3 and 11 are main memory that CUDA or ROCm has pinned.
# 2 is the memory of a CUDA device, and 13 memory that CUDA manages.
_OF_DEVICE = {1: "cpu", 3: "cpu", 11: "cpu", 2: "cuda", 13: "cuda"}


class Operand:
    """The properties of an array that a call needs. `keep` is the object that owns its memory."""

    def __init__(self, address: int, count: int, dtype: int, memory: int, keep: Any) -> None:
        # Two arrays without elements have two addresses: one and the same would mean "in place".
        self.address = ffi.cast("void *", address or id(self))
        self.bytes = count * SIZES[dtype]
        self.kind = self.count, self.dtype, self.memory = count, dtype, memory
        self.keep = keep

    def __repr__(self) -> str:
        return describe(*self.kind)


def describe(count: int, dtype: int, memory: int) -> str:
    return f"{_NAMES[dtype]}[{count}]" + " of a device" * (memory == lib.BATON_MEMORY_DEVICE)


def dtype_number(dtype: Any) -> int:
    """Returns Baton's number of a type, which is a name such as "f32", or numpy's or torch's."""
    if str(dtype).startswith("torch."):
        return _of_torch(dtype)
    return NUMBERS.get(str(dtype)) or _of_numpy(numpy.dtype(dtype))


def operation(op: Any) -> Any:
    """Returns the `baton_op_t *` of a reduction's name, such as "sum". `op` may also be a
    `baton_op_t *` itself, which is then returned."""
    named = isinstance(op, str)
    return answer("const baton_op_t *", lib.baton_op_find, op.encode()) if named else op


def _of_numpy(dtype: Any) -> int:
    number = _OF_NUMPY.get(dtype) or (NUMBERS["bf16"] if dtype.name == "bfloat16" else None)
    if number is None and dtype.names and len(dtype.names) == 2:
        fields = [dtype.fields[name] for name in dtype.names]
        for name, pair in _PAIRS.items():
            if dtype.itemsize == pair.itemsize and fields == list(pair.fields.values()):
                number = NUMBERS[name]
    if number is None:
        raise errors.Invalid(f"elements of type {dtype} can't be sent; the types are: "
                             + ", ".join(NUMBERS) + ", in this machine's byte order")
    return number


@functools.lru_cache(None)
def _of_torch(dtype: Any) -> int:
    name = re.sub(r"torch\.|(?<=u)int|(?<=i)nt|(?<=f)loat|(?<=c)omplex", "", str(dtype))
    if name not in NUMBERS:
        raise errors.Invalid(f"elements of type {dtype} can't be sent")
    return NUMBERS[name]


def _refuse_strides(kind: str, shape: Any, strides: Any, remedy: str) -> None:
    raise errors.Invalid(
        f"{kind} of shape {tuple(shape)} with strides {tuple(strides)} is not contiguous: "
        f"its elements do not lie one after another; pass {remedy}")


def _from_numpy(a: numpy.ndarray, writable: bool) -> Operand:
    if isinstance(a, numpy.ma.MaskedArray):
        raise errors.Invalid("the mask of a masked array would be ignored: pass a.filled(0), "
                             "or a.data to send all elements")
    if not a.flags.c_contiguous:
        _refuse_strides("a numpy array", a.shape, a.strides, "numpy.ascontiguousarray(a), "
                        "or a.T if that is contiguous")
    if writable and not a.flags.writeable:
        raise errors.Invalid("the result goes into this array, which is read-only: pass one "
                             "that can be written, or out=")
    return Operand(a.__array_interface__["data"][0], a.size, _of_numpy(a.dtype),
                   lib.BATON_MEMORY_HOST, a)


def _from_torch(torch: Any, a: Any) -> Operand:
    if a.layout is not torch.strided:
        raise errors.Invalid(f"a tensor of layout {a.layout} can't be sent: pass its values")
    if a.device.type not in _MEMORY:
        raise errors.Invalid(f"a tensor on {a.device} can't be sent; cpu and cuda can")
    if not a.is_contiguous():
        _refuse_strides("a tensor", a.shape, a.stride(), "a.contiguous()")
    if a.is_conj() or a.is_neg():
        raise errors.Invalid("a tensor that is conjugated or negated lazily can't be sent: "
                             "pass a.resolve_conj().resolve_neg()")
    return Operand(a.data_ptr(), a.numel(), _of_torch(a.dtype), _MEMORY[a.device.type], a)


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def _is_read_only(a: Any) -> bool:
    """Whether the memory of an array must not change. DLPack did not say so before its version 1.
    The buffer protocol does, but has neither bf16 nor memory of devices. JAX's arrays never
    change."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(a, jax.Array):
        return True
    try:
        return memoryview(a).readonly
    except (TypeError, ValueError, BufferError):
        return False


def _from_dlpack(a: Any, writable: bool) -> Operand:
    if writable and _is_read_only(a):
        raise errors.Invalid(f"the memory of a {type(a).__name__} is read-only; pass "
                             "an array that can be written, or out=")
    capsule = a.__dlpack__()
    tensor = ffi.cast("dlpack_tensor_t *", _capsule_pointer(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.strides != ffi.NULL:
        strides = [tensor.strides[i] for i in range(tensor.ndim)]
        expected = [math.prod(shape[i + 1:]) for i in range(len(shape))]
        if 0 not in shape and any(extent > 1 and stride != of for extent, stride, of
                                  in zip(shape, strides, expected)):
            _refuse_strides(f"a {type(a).__name__}", shape, strides, "a contiguous copy")
    kind = _OF_DLPACK.get(tensor.code)
    number = NUMBERS.get(kind if kind == "bool" else f"{kind}{tensor.bits}")
    if number is None or tensor.lanes != 1:
        raise errors.Invalid(f"elements of DLPack's type code {tensor.code} with "
                             f"{tensor.bits} bits can't be sent")
    if tensor.device not in _OF_DEVICE:
        raise errors.Invalid(f"memory of DLPack's device type {tensor.device} can't be "
                             "sent; that of the CPU and of CUDA can")
    return Operand(int(ffi.cast("uintptr_t", tensor.data)) + tensor.byte_offset,
                   math.prod(shape), number, _MEMORY[_OF_DEVICE[tensor.device]], (a, capsule))


def operand(a: Any, writable: bool = True) -> Operand:
    """Returns the Operand of an array, without copying it. If `writable`, Baton may write to it.

    Invalid: the array has strides, a type that Baton does not have, or memory that is
    read-only or of another kind of device. TypeError: `a` is no array.
    """
    if isinstance(a, numpy.ndarray):
        return _from_numpy(a, writable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        return _from_torch(torch, a)
    if hasattr(a, "__array_interface__"):
        made = numpy.asarray(a)
        if writable and made.size and not numpy.may_share_memory(made, numpy.asarray(a)):
            kind = ("numpy scalar" if isinstance(a, numpy.generic) else type(a).__name__)
            raise errors.Invalid(f"a {kind} can't be written, as numpy takes a copy of it: "
                                 "pass numpy.array(a)")
        return _from_numpy(made, writable)
    if hasattr(a, "__dlpack__"):
        return _from_dlpack(a, writable)
    try:
        view = memoryview(a)
    except TypeError:
        raise TypeError(f"an array is needed: numpy's, a tensor, or what has __dlpack__, "
                        f"__array_interface__ or a buffer, and not {type(a).__name__}; "
                        "numpy.array(...) makes one") from None
    return _from_numpy(numpy.asarray(view), writable)


def exactly(a: Any, writable: bool, count: Optional[int], dtype: int,
            memory: int = lib.BATON_MEMORY_HOST) -> Operand:
    """Returns the Operand of an array, which must have `count` elements (None: any number), this
    type and this memory."""
    given = operand(a, writable)
    needed = given.count if count is None else count, dtype, memory
    if given.kind != needed:
        raise errors.Invalid(f"{given!r} was given, and {describe(*needed)} is needed")
    return given


def empty_like(a: Any, shape: tuple) -> Any:
    """Returns a new array for a result, of the same kind and type as `a`."""
    if hasattr(a, "new_empty"):  # a tensor
        return a.new_empty(shape)
    if isinstance(a, numpy.ndarray):
        return numpy.empty(shape, a.dtype)
    raise errors.Invalid(f"out= is needed with a {type(a).__name__}")


def _over(buffer: Any, dtype: int) -> Any:
    """Returns a buffer as a numpy array. numpy has no bf16. So for bf16 this returns a tensor if
    PyTorch is loaded, else an array of the bits as uint16."""
    torch = sys.modules.get("torch") if dtype == NUMBERS["bf16"] else None
    if torch is None:
        return numpy.frombuffer(buffer, NUMPY.get(_NAMES[dtype], "u2"))
    return torch.frombuffer(buffer if len(buffer) else bytearray(2),
                            dtype=torch.bfloat16)[:len(buffer) // 2]


def empty(count: int, dtype: int) -> Any:
    """Returns a new vector, of the same kind as those of `vector`."""
    return _over(numpy.empty(count * SIZES[dtype], "u1"), dtype)


def vector(pointer: Any, count: int, dtype: int, owner: Any = None) -> Any:
    """Returns memory of the library as a vector (see `_over`). The memory lives as long as
    `owner`, which the vector keeps alive. If `owner` is None the vector can be written, and must
    not be used after the call that has passed it."""
    if owner is not None:
        pointer = ffi.gc(ffi.cast("char *", pointer), lambda _: owner)
    made = _over(ffi.buffer(pointer, count * SIZES[dtype]) if count else bytearray(), dtype)
    if isinstance(made, numpy.ndarray):
        made.flags.writeable = owner is None
    return made
