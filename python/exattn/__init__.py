"""exattn: attention with the same bits everywhere, for arrays of numpy, DLPack and the buffer protocol.

`attention` and `softmax` compute; `sha256` hashes what came out, for comparison with another machine, number of threads,
lane kind or program; `info` says what this machine can do. "Definition" below is docs/definition.md of the source, whose
version is `exattn.definition`.
"""
import hashlib
import os

import numpy

from . import _core

__version__ = _core.version
definition = _core.definition

__all__ = ["attention", "definition", "info", "sha256", "softmax"]


def _usable_processors():
    """How many processors this process may use, at least 1 and at most what a pool can have."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _core.most_threads)


def attention(q, k, v, *, mask=None, causal=False, q_offset=0, window=0, sinks=None, alibi=None, softcap=0.0, scale=None,
              flavour="exact", lanes="auto", kv_len=None, enable_gqa=True, fully_masked="nan", return_lse=False, out=None,
              threads=None):
    """softmax(scale * q k^T + mask) v, with the bits of the definition, sections 3 to 10 and 13.

    Arrays may have any strides, also 0 and negative ones; nothing is copied. They are numpy arrays, buffers, or have
    __dlpack__ (on the CPU), such as tensors of torch. Nothing may write to them during the call.

    q: queries, [B, H, Tq, D], or without leading dimensions down to [Tq, D]; float32, float16 or bfloat16.
    k: keys, [B, Hkv, Tk, D], as many dimensions as q. Query head h reads head h // (H / Hkv).
    v: values, [B, Hkv, Tk, Dv].
    mask: 2 to 4 dimensions, broadcast to [B, H, Tq, Tk]. float32: added to the scores. bool (or uint8): True, any byte
        but 0, shows the key to the row, False hides it. A tuple of both kinds, (float32, bool): both. A visible key with
        -inf added still multiplies its value by 0 (section 4).
    causal: row i sees keys j <= q_offset + i only: by absolute positions, aligned to key 0 unless q_offset says so.
    q_offset: absolute position of query row 0, an int or one for each sequence, [B]. For the last Tq of Tk positions it
        is Tk - Tq.
    window: above 0, row i sees keys j > q_offset + i - window only; 0: no window.
    sinks: [H], a logit for each head that takes part in the softmax without a value (section 10); float32, or a list.
    alibi: [H], slopes: -slope * |position of the row - position of the key| is added; float32, or a list.
    softcap: above 0: scores become softcap * tanh(score / softcap) before masks are added; 0: they stay.
    scale: factor of the scores, rounded to float32; None: 1 / sqrt(D) (section 3).
    flavour: "exact": unfused binary32, the same bits on every machine; "fast": fused multiply-add (section 2).
    lanes: "auto", or a lane kind of info()["lanes"]. Changes no bit.
    kv_len: how many keys there are, an int or one for each sequence, [B]; None: Tk.
    enable_gqa: False refuses an Hkv that is not H; True: H may be a multiple of Hkv.
    fully_masked: what a row gives whose visible scores are all -inf, "nan" or "zero" (section 9). A row that sees no
        key gives 0.
    return_lse: True: returns (out, lse), lse being the natural log-sum-exp of each row's scores, q's shape without D.
    out: where the result goes: float32, q's shape with Dv for D, writable, apart from all inputs. numpy array or buffer.
    threads: how many threads compute, the caller's among them; None: all processors that this process may use. Changes
        no bit. Pools are kept, one for each number; calls at the same time on one number take turns.

    Returns out, or a new float32 array in C order.

    Other Python threads run during the call. Every error is found before anything is written: ValueError, beginning with
    the library's name for it, such as EXATTN_ERROR_SIZE; TypeError for what is no array or no number; MemoryError;
    RuntimeError if the system refuses threads.
    """
    return _core.attention(q, k, v, mask, causal, q_offset, window, sinks, alibi, softcap, scale, flavour, lanes, kv_len,
                           enable_gqa, fully_masked, return_lse, out,
                           _usable_processors() if threads is None else threads)


def softmax(x, *, flavour="exact", lanes="auto", out=None, threads=None):
    """Softmax over the last axis, with the bits of the definition, section 11.

    x: 1 to 4 dimensions, float32, any strides. A row with a NaN or +inf, or all -inf, is NaN throughout.
    out: float32 of x's shape, writable: apart from x, or x itself.

    Flavour, lanes, threads, the result and errors are as for attention.
    """
    return _core.softmax(x, flavour, lanes, out, _usable_processors() if threads is None else threads)


def sha256(array):
    """SHA-256 of the elements' little-endian bytes in C order, in hex: what golden files and `exattn attention` have.

    array: as for attention, or any numpy array of numbers; bfloat16 counts as its two bytes. A shape or a dtype is not
    hashed. See docs/goldens.md, "Hashes", and the definition, section 12.
    """
    elements = _core.as_numpy(array)
    if elements.dtype.hasobject or elements.dtype.names is not None:
        raise TypeError(f"array has dtype {elements.dtype}, must have one of numbers")
    if elements.dtype.kind in "iufc":
        elements = elements.astype(elements.dtype.newbyteorder("<"), copy=False)
    elements = numpy.ascontiguousarray(elements)
    return hashlib.sha256(elements.reshape(-1).view(numpy.uint8)).hexdigest()


def info():
    """What this build and this machine have, as a dict.

    "version" and "definition": str. "processors": how many threads None gives. "lanes": for each lane kind whether it is
    built, whether cpu and os have it, whether it is usable for the exact and the fast flavour, and its width in float32
    numbers. "auto": the kernel that lanes="auto" leads to for each flavour, such as "avx2/exact"; None if there is none
    (or the environment variable EXATTN_LANES names one that can't be had).
    """
    return {**_core.info(), "processors": _usable_processors()}
