"""Where arrays lie, and who made them, changes no bit; nothing is copied; results land where they should."""
import array
import sys
import unittest

import numpy as np

import exattn
import support
from support import Dlpack, same_bits

B, H, HKV, TQ, TK, D, DV = 2, 4, 2, 13, 70, 24, 10
Q, K, V = support.floats(1, B, H, TQ, D), support.floats(2, B, HKV, TK, D), support.floats(3, B, HKV, TK, DV)
OUT, LSE = exattn.attention(Q, K, V, causal=True, q_offset=50, return_lse=True)


def attend(q=Q, k=K, v=V, **options):
    return exattn.attention(q, k, v, causal=True, q_offset=50, **options)


def strided(x, order, steps):
    """x with its axes in memory in that order, gaps, and negative strides where a step is below 0."""
    shape = tuple(x.shape[n] * abs(steps[n]) for n in order)
    room = np.full(shape, np.nan, x.dtype)
    view = room.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
    assert view.shape == x.shape
    view[...] = x
    return view


class OfInputs(unittest.TestCase):
    def test_strides(self):
        for order, steps in (((0, 2, 1, 3), (1, 1, 1, 1)), ((3, 2, 1, 0), (1, 1, 1, 1)), ((0, 1, 2, 3), (2, 3, 2, 3)),
                             ((0, 1, 2, 3), (-1, -1, -1, -1)), ((2, 0, 3, 1), (1, -2, 3, -1))):
            same_bits(self, attend(*(strided(x, order, steps) for x in (Q, K, V))), OUT)
        reversed_last = strided(Q, (0, 1, 2, 3), (1, 1, 1, -1))
        self.assertEqual(reversed_last.strides[3], -4)

    def test_broadcast(self):
        k, v = (np.broadcast_to(x[:1, :1], x.shape) for x in (K, V))
        self.assertEqual(k.strides[:2], (0, 0))
        same_bits(self, attend(Q, k, v), attend(Q, k.copy(), v.copy()))
        mask = support.floats(4, TQ, TK)
        same_bits(self, attend(mask=mask), attend(mask=np.broadcast_to(mask, (B, H, TQ, TK))))
        same_bits(self, attend(mask=mask[:1]), attend(mask=np.repeat(mask[:1], TQ, axis=0)))
        same_bits(self, attend(mask=(mask.T.copy().T, mask > -1)),
                  attend(mask=(mask, np.ascontiguousarray(np.broadcast_to(mask > -1, (B, H, TQ, TK))))))

    def test_read_only(self):
        q = Q.copy()
        q.flags.writeable = False
        same_bits(self, attend(q), OUT)

    def test_dimensions(self):
        one = attend(Q[0, 0], K[0, 0], V[0, 0])
        same_bits(self, one, OUT[0, 0])
        same_bits(self, attend(Q[0], K[0], V[0]), OUT[0])
        same_bits(self, exattn.attention(Q[0], K[0], V[0], causal=True, q_offset=50, return_lse=True)[1], LSE[0])

    def test_stride_that_is_never_stepped(self):
        odd = np.lib.stride_tricks.as_strided(Q, (1,) + Q.shape[1:], (3,) + Q.strides[1:])
        same_bits(self, attend(odd, K[:1], V[:1]), OUT[:1])

    def test_chunks(self):
        # A prompt in chunks by q_offset gives the rows of the prompt as a whole.
        for step in (1, 5):
            parts = [exattn.attention(Q[:, :, n:n + step], K, V, causal=True, q_offset=50 + n) for n in range(0, TQ, step)]
            same_bits(self, np.concatenate(parts, axis=2), OUT)

    def test_batch(self):
        parts = [attend(Q[n:n + 1], K[n:n + 1], V[n:n + 1]) for n in range(B)]
        same_bits(self, np.concatenate(parts), OUT)
        same_bits(self, exattn.attention(Q, K, V, causal=True, q_offset=[50, 50], kv_len=[TK, TK]), OUT)
        same_bits(self, exattn.attention(Q, K, V, causal=True, q_offset=np.array([50, 50]), kv_len=np.int32(TK)), OUT)

    def test_sinks_and_slopes(self):
        numbers = [0.5, -1.0, 2.0, 0.25]
        as_array = np.array(numbers, np.float32)
        for option in ("sinks", "alibi"):
            wanted = attend(**{option: numbers})
            for given in (tuple(numbers), as_array, np.repeat(as_array, 3)[::3], as_array[::-1].copy()[::-1],
                          Dlpack(as_array, support.FLOAT)):
                same_bits(self, attend(**{option: given}), wanted)


class OfTypes(unittest.TestCase):
    def test_float16(self):
        q, k, v = (x.astype(np.float16) for x in (Q, K, V))
        same_bits(self, attend(q, k, v), attend(*(x.astype(np.float32) for x in (q, k, v))))
        same_bits(self, attend(Q, k.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2), V), attend(Q, k.astype(np.float32), V))

    def test_bfloat16(self):
        upper = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (Q, K, V)]
        widened = [(x.astype(np.uint32) << 16).view(np.float32) for x in upper]
        same_bits(self, attend(*map(support.bfloat16, upper)), attend(*widened))
        same_bits(self, attend(support.bfloat16(upper[0][..., ::-1].copy()[..., ::-1]), widened[1], V), attend(widened[0], widened[1], V))
        self.assertEqual(exattn.sha256(support.bfloat16(upper[0])), exattn.sha256(upper[0]))

    def test_dlpack(self):
        same_bits(self, attend(*(Dlpack(x, support.FLOAT) for x in (Q, K, V))), OUT)
        same_bits(self, attend(Dlpack(Q, support.FLOAT, compact=True), Dlpack(K[:, :, ::-1], support.FLOAT, byte_offset=64)
                               , V), attend(Q, K[:, :, ::-1], V))
        same_bits(self, attend(mask=Dlpack(support.floats(4, TQ, TK) > 0, support.BOOL)),
                  attend(mask=support.floats(4, TQ, TK) > 0))
        same_bits(self, exattn.softmax(Dlpack(Q, support.FLOAT)), exattn.softmax(Q))
        self.assertEqual(exattn.sha256(Dlpack(Q.transpose(), support.FLOAT)), exattn.sha256(Q.transpose()))
        self.assertEqual(Dlpack.lent, {})  # all of it has been given back

    def test_dlpack_of_numpy(self):
        class Only:
            def __init__(self, x):
                self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__

        same_bits(self, attend(*map(Only, (Q, K, V.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)))), OUT)

    def test_dlpack_that_refuses_falls_back_to_array(self):
        class Refusing(Dlpack):
            def __dlpack__(self, *, stream=None):
                raise BufferError("bool is not known")

            def __array__(self, dtype=None):
                return self.array

        mask = support.floats(4, TQ, TK) > 0
        same_bits(self, attend(mask=Refusing(mask, support.BOOL)), attend(mask=mask))

    def test_buffers(self):
        q, k, v = Q[0, 0], K[0, 0], V[0, 0]
        same_bits(self, attend(*map(memoryview, (q, k, v))), OUT[0, 0])
        flat = array.array("f", q.tobytes())
        same_bits(self, attend(memoryview(flat).cast("B").cast("f", list(q.shape)), k, v), OUT[0, 0])
        same_bits(self, exattn.softmax(flat), exattn.softmax(q.ravel()))


class OfResults(unittest.TestCase):
    def test_new(self):
        self.assertEqual((OUT.shape, OUT.dtype, LSE.shape), ((B, H, TQ, DV), np.float32, (B, H, TQ)))
        self.assertTrue(OUT.flags.c_contiguous and OUT.flags.owndata and OUT.flags.writeable)

    def test_out(self):
        for order, steps in (((0, 1, 2, 3), (1, 1, 1, 1)), ((0, 2, 1, 3), (1, -1, 2, 1)), ((3, 0, 1, 2), (-1, 1, 1, -2))):
            out = strided(np.zeros_like(OUT), order, steps)
            base = out
            while base.base is not None:
                base = base.base
            self.assertIs(attend(out=out), out)
            same_bits(self, out, OUT)
            self.assertEqual(np.isnan(base).sum(), base.size - out.size)  # nothing but the view has been written
        out, lse = attend(out=out, return_lse=True)
        same_bits(self, lse, LSE)

    def test_out_is_a_buffer(self):
        room = array.array("f", bytes(4 * TQ * DV))
        out = memoryview(room).cast("B").cast("f", [TQ, DV])
        self.assertIs(attend(Q[0, 0], K[0, 0], V[0, 0], out=out), out)
        self.assertEqual(room.tobytes(), OUT[0, 0].tobytes())

    def test_softmax_in_place(self):
        wanted = exattn.softmax(Q)
        x = Q.copy()
        self.assertIs(exattn.softmax(x, out=x), x)
        same_bits(self, x, wanted)
        other = np.empty_like(Q).transpose(3, 2, 1, 0)
        same_bits(self, exattn.softmax(Q.T, out=other).copy(), exattn.softmax(Q.T.copy()))
        same_bits(self, exattn.softmax(Q[0, 0, 0]), wanted[0, 0, 0])


class OfReferences(unittest.TestCase):
    def test_nothing_is_kept(self):
        mask, sinks = support.floats(4, TQ, TK), np.zeros(H, np.float32)
        q = np.array(Q)
        out = np.empty_like(OUT)
        objects = (q, K, V, mask, sinks, out)
        before = [sys.getrefcount(x) for x in objects]
        for _ in range(100):
            attend(q, mask=(mask, mask > 0), sinks=sinks, alibi=sinks, out=out, return_lse=True)
            with self.assertRaises(ValueError):
                attend(q, mask=mask, sinks=sinks, out=out, kv_len=TK + 1)
            with self.assertRaises(ValueError):
                attend(q, V, V, mask=mask, sinks=sinks, out=out)
            exattn.softmax(q)
            exattn.sha256(q)
        self.assertEqual([sys.getrefcount(x) for x in objects], before)

    def test_memory_stays(self):
        def resident():
            with open("/proc/self/statm", encoding="ascii") as statm:
                return int(statm.read().split()[1]) * 4096

        if not sys.platform.startswith("linux"):
            return
        q, k = np.ones((1, 1, 64, 256), np.float32), Dlpack(np.ones((1, 1, 64, 256), np.float32), support.FLOAT)
        for _ in range(50):
            exattn.attention(q, k, k, return_lse=True, threads=1)
        before = resident()
        for _ in range(2000):  # 128 MiB of results
            exattn.attention(q, k, k, return_lse=True, threads=1)
        self.assertLess(resident() - before, 16 << 20)
        self.assertEqual(Dlpack.lent, {})
