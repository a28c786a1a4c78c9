"""Every error has its type and its words, and nothing has been written then."""
import unittest

import numpy as np

import exattn
import support
from support import Dlpack

Q, K = support.floats(1, 2, 4, 3, 8), support.floats(2, 2, 2, 5, 8)
WRITTEN = np.float32(-1)


class Errors(unittest.TestCase):
    def refuse(self, kind, words, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertEqual(type(caught.exception), kind)
        self.assertEqual(str(caught.exception), words)

    def attention(self, words, *, kind=ValueError, q=Q, k=K, v=K, **options):
        # Also that what the caller gives for the result is not touched.
        if "out" not in options:
            options["out"] = np.full(q.shape[:-1] + v.shape[-1:], WRITTEN) if isinstance(q, np.ndarray) and isinstance(
                v, np.ndarray) and q.ndim else None
        out = options["out"]
        before = out.copy() if isinstance(out, np.ndarray) else None
        self.refuse(kind, words, exattn.attention, q, k, v, **options)
        if before is not None:
            np.testing.assert_array_equal(out, before)

    def test_shapes(self):
        self.attention("EXATTN_ERROR_SIZE: the head size of k is 7, must be 8", k=K[..., :7])
        self.attention("EXATTN_ERROR_SIZE: the length of v is 4, must be 5", v=K[:, :, :4])
        self.attention("EXATTN_ERROR_SIZE: the batch of k is 1, must be 2", k=K[:1], v=K[:1])
        self.attention("EXATTN_ERROR_SIZE: the number of heads of v is 1, must be 2", v=K[:, :1])
        self.attention("EXATTN_ERROR_SIZE: the number of dimensions of k is 3, must be 4, as of q", k=K[0])
        self.attention("EXATTN_ERROR_SIZE: the number of dimensions of v is 2, must be 4, as of q", v=K[0, 0])
        self.attention("EXATTN_ERROR_SIZE: the number of dimensions of q is 1 (shape [8]), must be 2 to 4", q=Q[0, 0, 0])
        self.attention("EXATTN_ERROR_SIZE: the number of dimensions of q is 5 (shape [1, 2, 4, 3, 8]), must be 2 to 4",
                       q=Q[None])
        self.attention("EXATTN_ERROR_HEADS: heads is 4 and kv_heads 3, heads must be a multiple of kv_heads", k=np.ones((2, 3, 5, 8), np.float32),
                       v=np.ones((2, 3, 5, 8), np.float32))
        self.attention("EXATTN_ERROR_HEADS: the number of heads of k is 2, must be 4, as of q, with enable_gqa=False",
                       enable_gqa=False)
        self.attention("EXATTN_ERROR_SIZE: head_dim is 0, must be 1 or more", q=Q[..., :0], k=K[..., :0])
        self.refuse(ValueError, "EXATTN_ERROR_SIZE: the number of dimensions of x is 0 (shape []), must be 1 to 4",
                    exattn.softmax, np.float32(1))

    def test_types(self):
        wanted = ", must be float32, float16 or bfloat16"
        self.attention("EXATTN_ERROR_ENUM: the dtype of q is float64" + wanted, q=Q.astype(np.float64))
        self.attention("EXATTN_ERROR_ENUM: the dtype of v is bool" + wanted, v=K > 0)
        self.attention("EXATTN_ERROR_ENUM: the dtype of k is uint16" + wanted, k=K.astype(np.uint16))
        self.attention("EXATTN_ERROR_ENUM: the dtype of k is DLPack code 1 of 16 bits" + wanted,
                       k=Dlpack(K.astype(np.uint16), support.UNSIGNED))
        self.attention("EXATTN_ERROR_ENUM: the dtype of q is >f4, must be in the byte order of this machine",
                       q=Q.astype(np.dtype(np.float32).newbyteorder()))
        self.refuse(ValueError, "EXATTN_ERROR_ENUM: the dtype of x is float16, must be float32", exattn.softmax,
                    Q.astype(np.float16))
        array = "an array: of numpy, by the buffer protocol, or by DLPack"
        self.attention(f"q is of type list, must be {array}", kind=TypeError, q=Q.tolist())
        self.attention(f"k is of type NoneType, must be {array}", kind=TypeError, k=None)
        self.attention("flavour must be a str", kind=TypeError, flavour=0)
        self.attention("causal must be a bool", kind=TypeError, causal=None)
        self.attention("window must be an int", kind=TypeError, window=1.5)
        self.attention("softcap must be a number", kind=TypeError, softcap="1")
        self.attention("threads must be an int", kind=TypeError, threads="2")
        self.attention("q_offset must be an int or a sequence of ints, one for each sequence of the batch", kind=TypeError,
                       q_offset=1.0)
        self.attention("kv_len[1] must be an int", kind=TypeError, kv_len=[1, 2.5])
        self.attention("sinks[0] must be a number", kind=TypeError, sinks=["1", 2, 3, 4])
        self.refuse(TypeError, "array has dtype object, must have one of numbers", exattn.sha256, np.array([None]))

    def test_names(self):
        self.attention("EXATTN_ERROR_ENUM: flavour is 'precise', must be 'exact' or 'fast'", flavour="precise")
        self.attention("EXATTN_ERROR_ENUM: fully_masked is 'NaN', must be 'nan' or 'zero'", fully_masked="NaN")
        self.attention("EXATTN_ERROR_LANES_UNKNOWN: lanes is 'avx', must be one of auto, scalar, sse2, avx2, avx512, neon64, "
                       "avx512n", lanes="avx")
        absent = [name for name, lanes in exattn.info()["lanes"].items() if not lanes["built"]]
        self.assertTrue(absent)  # x86 and arm64 have not all of them
        self.attention(f"EXATTN_ERROR_LANES_UNSUPPORTED: lanes {absent[0]} are not in this build", lanes=absent[0])

    def test_numbers(self):
        self.attention("EXATTN_ERROR_OFFSET: q_offset is -1, must be 0 or more", q_offset=-1)
        self.attention("EXATTN_ERROR_OFFSET: q_offsets[1] is -2, must be 0 or more", q_offset=[0, -2])
        self.attention("EXATTN_ERROR_SIZE: the size of q_offset is 3, must be 2, the batch", q_offset=[0, 1, 2])
        self.attention(f"EXATTN_ERROR_OVERFLOW: q_offset is {2**63}, must fit in 64 bits", q_offset=2**63)
        self.attention(f"EXATTN_ERROR_OVERFLOW: q_offset {2**63 - 1} + q_len 3 does not fit in 64 bits", q_offset=2**63 - 1)
        self.attention("EXATTN_ERROR_OFFSET: kv_lens[0] is 6, must be 0 to kv_len, 5", kv_len=6)
        self.attention("EXATTN_ERROR_OFFSET: kv_lens[1] is -1, must be 0 to kv_len, 5", kv_len=[5, -1])
        self.attention("EXATTN_ERROR_SIZE: the size of sinks is 2, must be 4, heads", sinks=[0, 0])
        self.attention("EXATTN_ERROR_SIZE: the shape of alibi is [1, 4], must be [4], heads", alibi=np.zeros((1, 4), np.float32))
        self.attention("EXATTN_ERROR_ENUM: the dtype of alibi is float64, must be float32", alibi=np.zeros(4))
        self.attention("EXATTN_ERROR_OPTION: softcap is negative (bits BF800000), must be finite and above 0, or +0: none",
                       softcap=-1)
        self.attention("EXATTN_ERROR_OPTION: softcap is 1e-60, must be within the range of float32", softcap=1e-60)
        self.attention("EXATTN_ERROR_OPTION: scale is 1e+39, must be within the range of float32", scale=1e39)
        for threads in (0, -1, 4097):
            self.attention(f"EXATTN_ERROR_THREADS: threads is {threads}, must be 1 to 4096, or None: all processors that this "
                           "process may use", threads=threads)

    def test_masks(self):
        scores = "which can't be broadcast to [2, 4, 3, 5] (batch, heads, queries, keys)"
        self.attention(f"EXATTN_ERROR_SIZE: the shape of mask is [3, 4], {scores}", mask=np.zeros((3, 4), np.float32))
        self.attention(f"EXATTN_ERROR_SIZE: the shape of mask[1] is [2, 3, 5], {scores}",
                       mask=(np.zeros((3, 5), np.float32), np.ones((2, 3, 5), bool)))
        self.attention("EXATTN_ERROR_SIZE: the number of dimensions of mask is 1 (shape [5]), must be 2 to 4",
                       mask=np.zeros(5, np.float32))
        self.attention("EXATTN_ERROR_ENUM: the dtype of mask is int64, must be float32 (added to the scores), bool or uint8 "
                       "(0 hides the key)", mask=np.ones((3, 5), np.int64))
        self.attention("EXATTN_ERROR_ENUM: the dtype of mask[0] is bool, must be float32",
                       mask=(np.ones((3, 5), bool), np.ones((3, 5), bool)))
        self.attention("EXATTN_ERROR_ENUM: the dtype of mask[1] is float32, must be bool or uint8 (0 hides the key)",
                       mask=(np.zeros((3, 5), np.float32), np.zeros((3, 5), np.float32)))
        self.attention("mask is a tuple of 1, must be an array, or a pair: float32 to add, and bool", kind=TypeError,
                       mask=(np.zeros((3, 5), np.float32),))

    def test_out(self):
        out = np.full((2, 4, 3, 8), WRITTEN)
        self.attention("EXATTN_ERROR_SIZE: the shape of out is [2, 4, 3, 7], must be [2, 4, 3, 8]", out=out[..., :7])
        self.attention("EXATTN_ERROR_ENUM: the dtype of out is float16, must be float32", out=out.astype(np.float16))
        self.attention("out is of type Dlpack, must be an array of numpy or a writable buffer (of a tensor of torch, "
                       "tensor.numpy() is one: no copy)", kind=TypeError, out=Dlpack(out, support.FLOAT))
        read_only = out.copy()
        read_only.flags.writeable = False
        self.attention("EXATTN_ERROR_OPTION: out is read-only, must be writable", out=read_only)
        self.attention("EXATTN_ERROR_OPTION: out is read-only, must be writable", out=memoryview(out).toreadonly())
        q = Q.copy()
        self.attention("EXATTN_ERROR_OVERLAP: out overlaps q, must share no memory with it", q=q, out=q)
        v = support.floats(3, 2, 4, 3, 8)
        self.attention("EXATTN_ERROR_OVERLAP: out overlaps v, must share no memory with it", k=v.copy(), v=v[:, :, ::-1], out=v,
                       q=v.copy())
        self.attention("EXATTN_ERROR_OVERLAP: out.stride puts two elements of out [batch, heads, q_len, value_dim] at one "
                       "address, each must have its own", out=np.lib.stride_tricks.as_strided(out, out.shape, (384, 96, 0, 4)))
        x = support.floats(1, 4, 4)
        self.refuse(ValueError, "EXATTN_ERROR_OVERLAP: y is x, but with other strides: in place they must be the same",
                    exattn.softmax, x, out=x.T)

    def test_strides(self):
        records = np.zeros(Q.shape, np.dtype([("number", np.float32), ("more", np.uint8)]))
        self.attention("EXATTN_ERROR_STRIDES: stride 3 of q is 5 bytes, must be a multiple of the 4 bytes of an element",
                       q=records["number"])
        unaligned = np.zeros(Q.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(Q.shape)
        self.attention("EXATTN_ERROR_ALIGNMENT: q.data must be aligned to 4 bytes", q=unaligned)

    def test_dlpack(self):
        self.attention("EXATTN_ERROR_OPTION: the DLPack device type of k is 2, must be 1, memory of the CPU",
                       k=Dlpack(K, support.FLOAT, device=2))

        class Twice(Dlpack):
            def __dlpack__(self, *, stream=None):
                self.capsule = getattr(self, "capsule", None) or super().__dlpack__(stream=stream)
                return self.capsule

        k = Twice(K, support.FLOAT)
        self.attention("v.__dlpack__() gave no capsule named \"dltensor\" that is still to be used", kind=TypeError, k=k, v=k)

        class Failing(Dlpack):
            def __dlpack__(self, *, stream=None):
                raise BufferError("not today")

        self.attention("not today", kind=BufferError, k=Failing(K, support.FLOAT))
        self.assertEqual(Dlpack.lent, {})

    def test_memory(self):
        # A broadcast query makes a huge result out of little memory.
        q = np.broadcast_to(np.zeros((1, 1), np.float32), (2**50, 1))
        with self.assertRaises(MemoryError):
            exattn.attention(q, q[:1], q[:1])
