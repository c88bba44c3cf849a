"""Arrays: the address, count, type and kind of memory of what users pass.

`operand(a)` takes numpy arrays, PyTorch tensors, and anything with `__dlpack__`,
`__array_interface__` or the buffer protocol. Elements must
lie one after another: an array with other strides is refused, as a copy would take the
result away from the caller.
"""
import ctypes
import sys

import numpy

from baton import errors
from baton._library import answer, ffi, lib

_NAMES = [ffi.string(lib.baton_dtype_name(i)).decode()
          for i in range(1, lib.BATON_DTYPE_COUNT)]
# By Baton's name: its number, and bytes of an element.
NUMBERS = {name: i + 1 for i, name in enumerate(_NAMES)}
SIZES = [0] + [lib.baton_dtype_size(i) for i in NUMBERS.values()]

_PAIRS = {f"{value}_i32": numpy.dtype([("value", numpy_name), ("index", "i4")], align=True)
          for value, numpy_name in (("i16", "i2"), ("i32", "i4"), ("i64", "i8"),
                                    ("f32", "f4"), ("f64", "f8"))}
# numpy's type for each of Baton's; bf16 has none, but the package ml_dtypes has.
NUMPY = {
    **{f"{kind}{8 * size}": numpy.dtype(f"{kind}{size}")
       for kind in "iu" for size in (1, 2, 4, 8)},
    "f16": numpy.dtype("f2"), "f32": numpy.dtype("f4"), "f64": numpy.dtype("f8"),
    "bool": numpy.dtype("?"), "c64": numpy.dtype("c8"), "c128": numpy.dtype("c16"),
    **_PAIRS,
}
_OF_NUMPY = {dtype: NUMBERS[name] for name, dtype in NUMPY.items()}
# By DLPack's code (int, uint, float, -, bfloat, complex, bool) and bits.
_OF_DLPACK = {(code, bits): NUMBERS[f"{kind}{bits}"] for code, kind, some in (
    (0, "i", (8, 16, 32, 64)), (1, "u", (8, 16, 32, 64)), (2, "f", (16, 32, 64)),
    (4, "bf", (16,)), (5, "c", (64, 128))) for bits in some}
_OF_DLPACK[6, 8] = NUMBERS["bool"]
_empty = ffi.new("char[64]")
NOWHERE = int(ffi.cast("uintptr_t", _empty))  # of arrays without elements: NULL means none
_HOST_DEVICES = {1, 3, 11}  # DLPack: CPU, pinned by CUDA, pinned by ROCm
_CUDA_DEVICES = {2, 13}  # CUDA, managed


class Operand:
    """What a call needs to know of an array. `keep` is what its memory lives in."""

    def __init__(self, address, count, dtype, memory, keep):
        self.address = ffi.cast("void *", address or NOWHERE)
        self.count = count
        self.dtype = dtype
        self.bytes = count * SIZES[dtype]
        self.memory = memory
        self.kind = count, dtype, memory
        self.keep = keep

    def __repr__(self):
        return describe(*self.kind)


def describe(count, dtype, memory):
    device = " of a device" if memory == lib.BATON_MEMORY_DEVICE else ""
    return f"{dtype_name(dtype)}[{count}]{device}"


def dtype_name(number):
    return _NAMES[number - 1]


def dtype_number(dtype):
    """Baton's number of a type: "f32", a numpy or a torch type."""
    if isinstance(dtype, str) and dtype in NUMBERS:
        return NUMBERS[dtype]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return _of_torch(dtype)
    return _of_numpy(numpy.dtype(dtype))


def operation(op):
    """A reduction by its name, "sum" and so on, or a `baton_op_t *` as it is."""
    if isinstance(op, str):
        return answer("const baton_op_t *", lib.baton_op_find, op.encode())
    return op


def _of_numpy(dtype):
    number = _OF_NUMPY.get(dtype)
    if number is None and dtype.name == "bfloat16":
        number = NUMBERS["bf16"]
    if number is None and dtype.names and len(dtype.names) == 2:
        fields = [dtype.fields[name] for name in dtype.names]
        for name, pair in _PAIRS.items():
            if dtype.itemsize == pair.itemsize and fields == list(pair.fields.values()):
                number = NUMBERS[name]
    if number is None:
        raise errors.Invalid(f"elements of type {dtype} can't be sent; the types are: "
                             + ", ".join(_NAMES) + ", in this machine's byte order")
    return number


def _of_torch(dtype):
    name = str(dtype).replace("torch.", "").replace("bfloat", "bf").replace("uint", "u")
    for word in ("int", "float", "complex"):
        name = name.replace(word, word[0])
    if name not in NUMBERS:
        raise errors.Invalid(f"elements of type {dtype} can't be sent")
    return NUMBERS[name]


def _refuse_strides(kind, shape, strides, remedy):
    raise errors.Invalid(
        f"{kind} of shape {tuple(shape)} with strides {tuple(strides)} is not contiguous: "
        f"its elements do not lie one after another; pass {remedy}")


def _from_numpy(a, writable):
    if not a.flags.c_contiguous:
        _refuse_strides("a numpy array", a.shape, a.strides, "numpy.ascontiguousarray(a), "
                        "or a.T if that is contiguous")
    if writable and not a.flags.writeable:
        raise errors.Invalid("the result goes into this array, which is read-only: pass one "
                             "that can be written, or out=")
    return Operand(a.__array_interface__["data"][0], a.size, _of_numpy(a.dtype),
                   lib.BATON_MEMORY_HOST, a)


def _from_torch(torch, a):
    if a.layout is not torch.strided:
        raise errors.Invalid(f"a tensor of layout {a.layout} can't be sent: pass its values")
    if a.device.type not in ("cpu", "cuda"):
        raise errors.Invalid(f"a tensor on {a.device} can't be sent; cpu and cuda can")
    if not a.is_contiguous():
        _refuse_strides("a tensor", a.shape, a.stride(), "a.contiguous()")
    if a.is_conj() or a.is_neg():
        raise errors.Invalid("a tensor that is conjugated or negated lazily can't be sent: "
                             "pass a.resolve_conj().resolve_neg()")
    memory = (lib.BATON_MEMORY_HOST if a.device.type == "cpu" else lib.BATON_MEMORY_DEVICE)
    return Operand(a.data_ptr(), a.numel(), _of_torch(a.dtype), memory, a)


def _contiguous(shape, strides):
    """Whether strides, in elements or bytes of one, are those of C's order."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _from_dlpack(a):
    capsule = a.__dlpack__()
    tensor = ffi.cast("dlpack_tensor_t *", _capsule_pointer(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.strides != ffi.NULL:
        strides = [tensor.strides[i] for i in range(tensor.ndim)]
        if not _contiguous(shape, strides):
            _refuse_strides(f"a {type(a).__name__}", shape, strides, "a contiguous copy")
    number = _OF_DLPACK.get((tensor.code, tensor.bits))
    if number is None or tensor.lanes != 1:
        raise errors.Invalid(f"elements of DLPack's type code {tensor.code} with "
                             f"{tensor.bits} bits can't be sent")
    if tensor.device not in _HOST_DEVICES | _CUDA_DEVICES:
        raise errors.Invalid(f"memory of DLPack's device type {tensor.device} can't be "
                             "sent; that of the CPU and of CUDA can")
    memory = (lib.BATON_MEMORY_HOST if tensor.device in _HOST_DEVICES
              else lib.BATON_MEMORY_DEVICE)
    count = 1
    for extent in shape:
        count *= extent
    return Operand(int(ffi.cast("uintptr_t", tensor.data)) + tensor.byte_offset, count,
                   number, memory, (a, capsule))


def operand(a, writable=True):
    """The Operand of an array, which is not copied. `writable`: results go into it.

    Invalid: strides, a type that Baton does not have, or memory that is read-only or on a
    device of another kind. TypeError: `a` is no array.
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
        return _from_dlpack(a)
    try:
        view = memoryview(a)
    except TypeError:
        raise TypeError(f"an array is needed: numpy's, a tensor, or what has __dlpack__, "
                        f"__array_interface__ or a buffer, and not {type(a).__name__}; "
                        "numpy.array(...) makes one") from None
    return _from_numpy(numpy.asarray(view), writable)


def exactly(a, writable, count, dtype):
    """The Operand of an array of that many elements (None: of any) of that type."""
    given = operand(a, writable)
    count = given.count if count is None else count
    if (given.count, given.dtype) != (count, dtype):
        raise errors.Invalid(f"{given!r} was given, and {dtype_name(dtype)}[{count}] is "
                             "needed")
    return given


def empty_like(a, shape):
    """A new array of the kind and type of `a`, for a result."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        return torch.empty(shape, dtype=a.dtype, device=a.device)
    if isinstance(a, numpy.ndarray):
        return numpy.empty(shape, a.dtype)
    raise errors.Invalid(f"out= is needed with a {type(a).__name__}")


def _torch_for(dtype):
    """PyTorch, if it is loaded and the type is bf16, which numpy does not have."""
    return sys.modules.get("torch") if dtype == NUMBERS["bf16"] else None


def _numpy_of(dtype):
    """numpy's type; for bf16 that of its bits."""
    return NUMPY.get(dtype_name(dtype), numpy.dtype("u2"))


def empty(count, dtype):
    """A new vector, of the kind that `vector` returns."""
    torch = _torch_for(dtype)
    return (numpy.empty(count, _numpy_of(dtype)) if torch is None
            else torch.empty(count, dtype=torch.bfloat16))


def vector(pointer, count, dtype, owner=None):
    """A numpy array, or of bf16 a tensor, over memory of the library, which lives as long
    as `owner` does, and keeps that alive; with None it can be written, and may not outlive
    a call."""
    if owner is not None:
        pointer = ffi.gc(ffi.cast("char *", pointer), lambda _: owner)
    torch = _torch_for(dtype)
    if torch is not None and count == 0:
        return torch.empty(0, dtype=torch.bfloat16)
    view = ffi.buffer(pointer, count * SIZES[dtype]) if count else bytearray()
    if torch is not None:
        return torch.frombuffer(view, dtype=torch.bfloat16)
    made = numpy.frombuffer(view, _numpy_of(dtype))
    made.flags.writeable = owner is None
    return made
