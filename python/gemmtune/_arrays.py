"""Arrays of any library as pointers: numpy and what looks like it by its array interface, all others by DLPack. gemmtune_read_arrays()
in include/gemmtune/c.h decides which of them are right.

A DLPack producer gets the stream that the kernel will run on, so that it waits for its own work."""

import ctypes
import functools
import re
import sys
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

from . import _library as c
from .errors import InvalidArgument, Unsupported, WrongType

_cpu, _cuda, _cuda_host, _cuda_managed = 1, 2, 3, 13
legacy_stream = 1


class _Device(Structure):
    _fields_ = [("kind", c_int32), ("index", c_int32)]


class _DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DataType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)

# DLPack's (code, bits): signed 0, unsigned 1, float 2, bfloat 4, float8_e4m3fn 10, float8_e4m3fnuz 11, float4_e2m1fn 17.
_by_dlpack = {(2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (0, 8): "i8", (1, 8): "u8", (10, 8): "f8_e4m3fn",
              (11, 8): "f8_e4m3fnuz", (0, 32): "i32", (14, 8): "u8"}
_by_name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8", "int32": "i32",
            "float8_e4m3fn": "f8_e4m3fn", "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e8m0fnu": "u8"}
_names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_bytes = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2}


class Typed:
    """An array whose bits have another type than it says: numpy has no bf16 and no fp8 of its own."""

    def __init__(self, array, type):
        if type not in c.types[1:]:
            raise WrongType(f"type '{type}', expected one of {', '.join(c.types[1:])}")
        self.array = array
        self.type = type


def as_type(array, type):
    """`array`'s bits as another type of the same size: as_type(uint16_array, "bf16"), as_type(uint8_array, "f8_e4m3fn")."""
    return Typed(array, type)


class Operand:
    """What a kernel needs to know of one array. Strides are in elements; `device` is ("cpu", 0) or ("cuda", index)."""

    __slots__ = ("name", "array", "keep", "pointer", "shape", "strides", "bytes", "type", "device", "read_only", "description")

    def __init__(self, name, array, pointer, shape, strides, bytes, type, device, keep=None, read_only=False):
        self.name, self.array, self.pointer, self.shape, self.strides = name, array, pointer, tuple(shape), tuple(strides)
        self.bytes, self.type, self.device, self.keep, self.read_only = bytes, type, device, keep, read_only

    def describe(self):
        """As a gemmtune_array."""
        count = len(self.shape)
        return c.Array(data=self.pointer, type=c.array_i32 if self.type == "i32" else c.types.index(self.type), dimensions=count,
                       sizes=(c_int64 * count)(*self.shape), strides=(c_int64 * count)(*self.strides), read_only=self.read_only)

    def is_dense(self):
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


def _dense_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _from_interface(name, array, interface):
    text = interface["typestr"]
    known = _by_name.get(getattr(getattr(array, "dtype", None), "name", ""))
    simple = re.fullmatch(r"([<>|=])[a-zA-Z](\d+)", text)
    if not simple or interface.get("data") is None:
        raise _wrong_type(name, array)
    size = int(simple.group(2))
    byte_strides = interface.get("strides") or tuple(step * size for step in _dense_strides(interface["shape"]))
    if simple.group(1) == (">" if sys.byteorder == "little" else "<"):
        raise InvalidArgument(f"{name} has elements of foreign byte order ({text}), expected the machine's: copy it with "
                              "astype(dtype.newbyteorder('='))")
    if size == 0 or any(step % size for step in byte_strides):
        raise InvalidArgument(f"{name} has elements of {size} bytes with strides of {list(byte_strides)} bytes, expected multiples: "
                              "make it contiguous")
    pointer, read_only = interface["data"]
    return Operand(name, array, pointer, interface["shape"], (step // size for step in byte_strides), size, known, ("cpu", 0),
                   read_only=read_only)


def _from_dlpack(name, array, stream):
    kind, index = array.__dlpack_device__()
    if kind in (_cuda, _cuda_managed):
        capsule = array.__dlpack__(stream=stream or legacy_stream)
    elif kind in (_cpu, _cuda_host):
        capsule = array.__dlpack__()
    else:
        raise Unsupported(f"{name} is on DLPack's device kind {int(kind)}, expected an array of a CPU or of CUDA")
    tensor = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), POINTER(_Tensor)).contents
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else _dense_strides(shape)
    data_type = (tensor.dtype.code, tensor.dtype.bits)
    return Operand(name, array, (tensor.data or 0) + tensor.byte_offset, shape, strides,
                   max(1, tensor.dtype.bits * tensor.dtype.lanes // 8),
                   _by_dlpack.get(data_type) if tensor.dtype.lanes == 1 else None,
                   ("cpu", 0) if kind in (_cpu, _cuda_host) else ("cuda", int(index)), keep=capsule)


def _wrong_type(name, array):
    return WrongType(f"{name} has elements of type {getattr(array, 'dtype', type(array).__name__)}, expected one of "
                     f"{', '.join(dict.fromkeys(_by_name.values()))}")


def refuse_traced(name, array):
    """Of JAX's arrays those that jit, grad, vmap and the like put in place of values."""
    if _is_jax(array) and isinstance(array, sys.modules["jax"].core.Tracer):
        raise Unsupported(f"{name} is a {type(array).__name__} without values: gemmtune's operations run on arrays, not inside of jax.jit, "
                          "jax.grad or jax.vmap; call them outside")


def refuse_immutable(name, array):
    if _is_jax(array):
        raise InvalidArgument(f"{name} is an array of JAX, which are immutable: expected an array to write to, or none")


def read(name, array, stream=None):
    """The operand `array`; `stream`: of a CUDA array, what will read it."""
    wanted = None
    if isinstance(array, Typed):
        wanted, array = array.type, array.array
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):
        array = numpy.asarray(array)  # the interface of a number points to memory that is gone
    refuse_traced(name, array)
    if hasattr(array, "__array_interface__"):
        operand = _from_interface(name, array, array.__array_interface__)
    elif hasattr(array, "__dlpack__"):
        operand = _from_dlpack(name, array, stream)
    else:
        raise WrongType(f"{name} is a {type(array).__name__}, expected an array: numpy's, or one with __dlpack__")
    if wanted and operand.bytes != _bytes.get(wanted, 1):
        raise WrongType(f"{name} has elements of {operand.bytes} bytes, expected {_bytes.get(wanted, 1)} as those of {wanted}")
    operand.type = wanted or operand.type
    if operand.type is None:
        raise _wrong_type(name, array)
    return operand


def contiguous(operand):
    """A contiguous copy of the operand's array, aligned as its elements are; None if its library is not known."""
    if hasattr(operand.array, "__array_interface__"):
        import numpy as library
    elif type_module(operand.array) == "cupy":
        import cupy as library
    else:
        return None
    copied = library.array(operand.array, order="C")
    return Typed(copied, operand.type) if _by_name.get(copied.dtype.name) != operand.type else copied


def stream_of(array):
    """(the stream that work of this array's library goes to, whether the library will know of ours): as a number."""
    array = array.array if isinstance(array, Typed) else array
    if "cupy" in sys.modules and isinstance(array, sys.modules["cupy"].ndarray):
        return sys.modules["cupy"].cuda.get_current_stream().ptr or legacy_stream, True
    interface = getattr(array, "__cuda_array_interface__", None) if not _is_jax(array) else None
    if interface and interface.get("stream"):
        return interface["stream"], True
    return legacy_stream, False


def _is_jax(array):
    return type(array).__module__.split(".")[0] in ("jax", "jaxlib")


def synchronize(stream):
    """Waits for a stream of the current CUDA context."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuStreamSynchronize.argtypes = (c_void_p,)
    status = driver.cuStreamSynchronize(stream)
    if status:
        raise Unsupported(f"cuStreamSynchronize answers {status}")


@functools.lru_cache(maxsize=None)
def _driver():
    return ctypes.CDLL("libcuda.so.1")


def is_capturing(stream):
    """Whether work on a stream of the current CUDA context goes into a graph."""
    driver = _driver()
    driver.cuStreamIsCapturing.argtypes = (c_void_p, ctypes.POINTER(ctypes.c_int))
    state = ctypes.c_int()
    return driver.cuStreamIsCapturing(stream, ctypes.byref(state)) == 0 and state.value != 0


def _numpy_type(numpy, type):
    if type != "bf16":
        return numpy.dtype(_names.get(type, "uint8"))
    try:
        import ml_dtypes
    except ImportError:
        raise WrongType("the result is bf16, which numpy lacks: install ml_dtypes, choose another type (out_dtype=\"f16\"), or "
                        "give out=gemmtune.as_type(a uint16 array, \"bf16\")") from None
    return numpy.dtype(ml_dtypes.bfloat16)


def empty_like_of(array, shape, type):
    """A new array of `array`'s library and device, of 16-bit or float32 elements (others: bytes). Beside an array of as_type()
    one of bf16 is uint16, as numpy's must be."""
    bits = isinstance(array, Typed)
    array = array.array if isinstance(array, Typed) else array
    library = type_module(array)
    if hasattr(array, "__array_interface__"):
        import numpy
        if type == "bf16" and bits:
            return Typed(numpy.empty(shape, numpy.uint16), "bf16")
        return numpy.empty(shape, _numpy_type(numpy, type))
    name = _names.get(type, "uint8")
    if library == "cupy":
        import cupy
        return cupy.empty(shape, "float32" if name == "float32" else name)
    if library == "torch":  # a kernel by name; gemmtune.torch makes the results of its operators
        import torch
        return torch.empty(shape, dtype=getattr(torch, name), device=array.device)
    if library in ("jax", "jaxlib"):
        import jax
        # A buffer of its own, which nothing else refers to: the kernel may write it.
        made = jax.device_put(jax.numpy.zeros(shape, name), next(iter(array.devices())))
        return made.block_until_ready()
    raise WrongType(f"a result cannot be made for an array of {library}: give out=")


def type_module(array):
    return type(array).__module__.split(".")[0]
