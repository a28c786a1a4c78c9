"""exattn through its C interface, numpy, torch."""
import ctypes

import numpy as np

from contestant import Contestant


# ---- exattn


POINTER, SIZE, INT32, INT64, FLOAT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int64, ctypes.c_float


class Tensor(ctypes.Structure):
    _fields_ = [("data", POINTER), ("dtype", INT32), ("rank", INT32), ("stride", INT64 * 4)]


class Arguments(ctypes.Structure):
    """exattn_attention_args. The library refuses a struct_size that is not its own."""

    _fields_ = [(name, kind) for kind, names in (
        (SIZE, "struct_size"), (INT32, "flavour lanes"),
        (INT64, "batch heads kv_heads q_len kv_len head_dim value_dim"), (Tensor, "q k v mask mask_bool out lse"),
        (FLOAT, "scale"), (INT32, "scale_mode causal fully_masked"), (INT64, "q_offset window"), (FLOAT, "softcap"),
        (INT32, "k_layout"), (POINTER, "sinks alibi_slopes q_offsets kv_lens q_starts kv_starts page_table"),
        (INT64, "page_table_stride page_size pages kv_offset"), (POINTER, "state_in"), (SIZE, "state_in_size"),
        (POINTER, "state_out"), (SIZE, "state_out_size"), (POINTER, "scratch"),
        (SIZE, "scratch_size split_limit"), (INT32, "split_keys reserved"),
        (POINTER, "pool executor kernel message"), (SIZE, "message_size")) for name in names.split()]


class Exattn:
    def __init__(self, path, threads):
        self.library = ctypes.CDLL(path)
        for function in ("exattn_version", "exattn_status_name"):
            getattr(self.library, function).restype = ctypes.c_char_p
        self.pool = ctypes.c_void_p()
        if self.library.exattn_pool_create(threads, ctypes.byref(self.pool)) != 0:
            raise RuntimeError(f"exattn_pool_create refused {threads} threads")

    def version(self):
        kernel = ctypes.c_char_p()
        self.library.exattn_lanes_resolve(0, 0, ctypes.byref(ctypes.c_int32()), ctypes.byref(kernel))
        return f"{self.library.exattn_version().decode()} ({kernel.value.decode().split('/')[0]})"

    def contestant(self, flavour, problem):
        shape = problem.shape
        out = np.empty_like(problem.q)
        message = ctypes.create_string_buffer(512)
        args = Arguments(
            struct_size=ctypes.sizeof(Arguments), flavour=flavour, batch=1, heads=shape.heads, kv_heads=shape.kv_heads,
            q_len=shape.q_len, kv_len=shape.kv_len, head_dim=shape.head_dim, value_dim=shape.head_dim,
            causal=int(shape.causal), pool=self.pool, message=ctypes.addressof(message), message_size=len(message))
        for name, array in (("q", problem.q), ("k", problem.k), ("v", problem.v), ("out", out)):
            heads, rows, dim = array.shape
            setattr(args, name, Tensor(array.ctypes.data, 0, 4, (heads * rows * dim, rows * dim, dim, 1)))

        def call():
            status = self.library.exattn_attention(ctypes.byref(args))
            if status != 0:
                name = self.library.exattn_status_name(status).decode()
                raise RuntimeError(f"exattn: {name}: {message.value.decode()}")

        return Contestant(("exattn exact", "exattn fast")[flavour], call, out)


# ---- numpy


def numpy_naive(problem):
    """The formula, with the scores stored; nothing is allocated in a call."""
    shape = problem.shape
    out = np.empty_like(problem.q)
    q, result = problem.by_group(problem.q), problem.by_group(out)
    keys, v = problem.k.swapaxes(1, 2)[:, None], problem.v[:, None]
    scores = np.empty(q.shape[:3] + (shape.kv_len,), np.float32)
    rows = np.empty(q.shape[:3] + (1,), np.float32)
    hidden = np.triu(np.full((shape.q_len, shape.kv_len), -np.inf, np.float32), 1) if shape.causal else None

    def call():
        np.matmul(q, keys, out=scores)
        np.multiply(scores, np.float32(problem.scale), out=scores)
        if shape.causal:
            np.add(scores, hidden, out=scores)
        np.max(scores, axis=-1, keepdims=True, out=rows)
        np.subtract(scores, rows, out=scores)
        np.exp(scores, out=scores)
        np.sum(scores, axis=-1, keepdims=True, out=rows)
        np.divide(scores, rows, out=scores)
        np.matmul(scores, v, out=result)

    return Contestant("numpy naive", call, out)


def numpy_tiled(problem, tile=128):
    """The online softmax, tiles of 128 rows by 128 keys, all heads at once; nothing large is allocated in a call."""
    shape = problem.shape
    out = np.empty_like(problem.q)
    q, result = problem.by_group(problem.q), problem.by_group(out)
    keys, v = problem.k.swapaxes(1, 2)[:, None], problem.v[:, None]
    hidden = np.triu(np.full((tile, tile), -np.inf, np.float32), 1)
    buffers = {}

    def room(name, *size):
        if (name, size) not in buffers:
            buffers[name, size] = np.empty(size, np.float32)
        return buffers[name, size]

    def call():
        for start in range(0, q.shape[2], tile):
            q_tile = q[:, :, start : start + tile]
            size = q_tile.shape[:3]
            rows = np.multiply(q_tile, np.float32(problem.scale), out=room("rows", *q_tile.shape))
            greatest, factor, found, total = (room(name, *size, 1) for name in ("greatest", "factor", "found", "total"))
            sums, part = (room(name, *q_tile.shape) for name in ("sums", "part"))
            greatest.fill(-np.inf)
            total.fill(0)
            sums.fill(0)
            for first in range(0, min(shape.kv_len, start + tile) if shape.causal else shape.kv_len, tile):
                key_tile = keys[..., first : first + tile]
                scores = np.matmul(rows, key_tile, out=room("scores", *size, key_tile.shape[-1]))
                if shape.causal and first == start:
                    scores += hidden[: scores.shape[2], : scores.shape[3]]
                np.copyto(factor, greatest)
                np.maximum(greatest, np.max(scores, axis=-1, keepdims=True, out=found), out=greatest)
                scores -= greatest
                np.exp(scores, out=scores)
                factor -= greatest
                np.exp(factor, out=factor)
                total *= factor
                total += np.sum(scores, axis=-1, keepdims=True, out=found)
                sums *= factor
                sums += np.matmul(scores, v[:, :, first : first + tile], out=part)
            np.divide(sums, total, out=result[:, :, start : start + tile])

    return Contestant("numpy tiled", call, out)


# ---- torch


def torch_attention(problem):
    """torch's own attention where there is one (from 2.0), else its matrix products and softmax."""
    import torch
    from torch.nn import functional

    shape = problem.shape
    out = np.empty_like(problem.q)
    q, result = (torch.from_numpy(problem.by_group(x)) for x in (problem.q, out))
    k, v = (torch.from_numpy(x) for x in (problem.k, problem.v))
    k, v = (x[:, None].expand(-1, q.shape[1], -1, -1) for x in (k, v))
    if hasattr(functional, "scaled_dot_product_attention"):

        def call():
            result.copy_(functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal))

        return Contestant("torch", call, out)

    flat = lambda x: x.reshape(-1, *x.shape[2:])  # a batch of matrices
    k, v = (flat(x) for x in (k, v))
    q, result = flat(q), flat(result)
    scores, weights = (torch.empty(q.shape[:2] + (shape.kv_len,)) for _ in range(2))
    hidden = torch.full((shape.q_len, shape.kv_len), -torch.inf).triu(1) if shape.causal else None

    def call():
        torch.baddbmm(scores, q, k.transpose(1, 2), beta=0, alpha=problem.scale, out=scores)
        if shape.causal:
            scores.add_(hidden)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(weights, v, out=result)

    return Contestant("torch", call, out)
