"""What tests share: inputs of golden files, the formula in float64, and DLPack without another package."""
import ctypes
import math
import os
import pathlib

import numpy as np

import exattn

SOURCE = pathlib.Path(os.environ.get("EXATTN_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))


# ---- Inputs by docs/goldens.md, "Generator"


def words(seed, count):
    """word(seed, i) for 0 <= i < count."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


PATTERN = {"f32": np.uint32, "bf16": np.uint16, "f16": np.uint16, "u8": np.uint8}
KEPT_BITS = {"f32": 32, "bf16": 8, "f16": 11}


def normal(seed, count, storage, exponent):
    w = words(seed, count)
    s = sum(((w >> np.uint64(16 * n)) & np.uint64(0xFFFF)).astype(np.int64) for n in range(4)) - 131070
    magnitude = np.abs(s)
    below = np.maximum(np.frexp(magnitude.astype(np.float64))[1] - KEPT_BITS[storage], 0)
    magnitude = magnitude >> below << below
    values = np.ldexp(np.where(s < 0, -magnitude, magnitude).astype(np.float64), -exponent)
    if storage == "f16":
        return values.astype(np.float16).view(np.uint16)
    patterns = values.astype(np.float32).view(np.uint32)
    return patterns if storage == "f32" else (patterns >> np.uint32(16)).astype(np.uint16)


def generate(described, shape, storage="f32"):
    """The bit patterns of an input, as a golden file describes it."""
    known = {"kind", "seed", "shape", "scale_exponent", "bits", "per_256", "set"}
    if not described.keys() <= known:
        raise ValueError(f"unknown keys: {described.keys() - known}")
    count, pattern = math.prod(shape), PATTERN[storage]
    kind = described["kind"]
    if kind == "normal":
        flat = normal(described["seed"], count, storage, described.get("scale_exponent", 15))
    elif kind == "bits":
        flat = words(described["seed"], count).astype(pattern)
    elif kind == "constant":
        flat = np.full(count, int(described["bits"], 16), pattern)
    elif kind == "visible":
        flat = (words(described["seed"], count) >> np.uint64(56) < described["per_256"]).astype(pattern)
    else:
        raise ValueError(f"unknown kind {kind}")
    array = flat.reshape(shape)
    for box in described.get("set", []):
        array[tuple(map(slice, box["from"], box["to"]))] = int(box["bits"], 16)
    return array


def floats(seed, *shape):
    return generate({"kind": "normal", "seed": seed}, shape).view(np.float32)


def from_bits(text):
    """A number from the eight hex digits of a float32."""
    return float(np.array(int(text, 16), np.uint32).view(np.float32))


# ---- The formula


def visible(shape, *, causal=False, q_offset=0, window=0, kv_len=None, mask=None):
    """Which keys a row sees: section 4 of the definition."""
    batch, heads, rows, keys = shape
    position = np.broadcast_to(np.asarray(q_offset), (batch,))[:, None, None, None] + np.arange(rows)[:, None]
    key = np.arange(keys)
    seen = np.ones(shape, bool)
    if kv_len is not None:
        seen &= key < np.broadcast_to(np.asarray(kv_len), (batch,))[:, None, None, None]
    if causal:
        seen &= key <= position
    if window > 0:
        seen &= key > position - window
    if mask is not None and mask.dtype == bool:
        seen &= mask
    return seen, np.abs(position - key)


def formula(q, k, v, *, mask=None, sinks=None, alibi=None, softcap=0.0, scale=None, **positions):
    """(out, lse) of [B, H, T, D] arrays in float64, by the textbook: all scores at once. Every row has to see a key."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1).astype(np.float64) for x in (k, v))
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k)
    scores *= 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    seen, distance = visible(scores.shape, mask=mask, **positions)
    if mask is not None and mask.dtype != bool:
        scores = scores + mask
    if alibi is not None:
        scores = scores - np.asarray(alibi, np.float64)[:, None, None] * distance
    weights = np.where(seen, np.exp(scores), 0)
    total = weights.sum(axis=3)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks, np.float64))[:, None]
    return np.einsum("bhij,bhjd->bhid", weights, v) / total[..., None], np.log(total)


# ---- DLPack


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
FLOAT, BFLOAT, BOOL, UNSIGNED = 2, 4, 6, 1


class Dlpack:
    """An array that has nothing but DLPack: numpy's memory, said to be of the type `code`. Counts what is lent."""

    lent = {}
    _deleter = _Deleter(lambda address: Dlpack.lent.pop(address) and None)

    def __init__(self, array, code, *, device=1, compact=False, byte_offset=0):
        self.array, self.code, self.device, self.compact, self.byte_offset = array, code, device, compact, byte_offset

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, *, stream=None):
        array = self.array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(n // array.itemsize for n in array.strides))
        managed = _Managed()
        managed.tensor = _Tensor(array.ctypes.data - self.byte_offset, self.device, 0, array.ndim, self.code,
                                 8 * array.itemsize, 1, shape, None if self.compact else strides, self.byte_offset)
        managed.deleter = self._deleter
        address = ctypes.addressof(managed)
        Dlpack.lent[address] = (managed, array, shape, strides)
        return _new_capsule(address, b"dltensor", None)


def bfloat16(patterns):
    return Dlpack(patterns, BFLOAT)


def same_bits(test, a, b):
    test.assertEqual(a.shape, b.shape)
    test.assertEqual(a.dtype, b.dtype)
    test.assertEqual(exattn.sha256(a), exattn.sha256(b))
