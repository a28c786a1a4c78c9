#!/usr/bin/env python3
"""exattn-1 in plain Python: attention and softmax whose bits are fixed, in both flavours.

Written from the page "The definition: exattn-1" alone, with nothing but the standard library, for readers and
for comparison rather than for speed. Functions follow the sections of that page, in its order, and keep its
names. Run as a program it speaks "exattn-protocol-1" on standard input and output, one JSON object a line.

Numbers are Python floats (binary64) that hold binary32 values; `f32` rounds every step back to binary32.
"""

import base64
import json
import math
import struct
import sys
from ctypes import c_float
from itertools import groupby, pairwise
from typing import Callable, NamedTuple

INFINITY = math.inf


# Section 1: numbers


def f32(x):
    """The binary32 number nearest to x, ties to even, with gradual underflow and overflow to infinity.

    For binary32 a and b, f32(a + b), f32(a - b), f32(a * b), f32(a / b) and f32(sqrt(a)) are the IEEE
    operations: binary64 has more than twice the digits, and range to spare, so rounding twice does no harm.
    """
    return c_float(x).value


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def number(u):
    """float(u) of the page."""
    return struct.unpack("<f", struct.pack("<I", u))[0]


NAN = number(0x7FC00000)


def written(x):
    """x as a result: there is one NaN."""
    return x if x == x else NAN


def quotient(a, b):
    """a / b for b that is not negative zero; Python's own division refuses a zero."""
    return f32(a / b) if b else a * INFINITY


def fma(a, b, c):
    """a * b + c rounded once.

    The product is exact in binary64. Of the rounded sum and its neighbour on the side of the exact one, that
    with an odd last digit stands for all that lies between them: the rounding to binary32 goes the right way.
    """
    product = a * b
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    if abs(error) > 0 and total / math.ulp(total) % 2 == 0:  # false as well for an error that is NaN
        total = math.nextafter(total, math.copysign(INFINITY, error))
    return f32(total)


def from_integer(n):
    """The binary32 number nearest to an integer n >= 0; digits after the first 50 count as 0 or not 0."""
    shift = max(0, n.bit_length() - 50)
    rest = n & ((1 << shift) - 1)
    return f32(math.ldexp(n >> shift | (rest != 0), shift))


# Section 2: flavours


class Flavour(NamedTuple):
    code: int  # in states (section 14)
    muladd: Callable
    divide: Callable  # by l


FLAVOURS = {
    "exact": Flavour(0, lambda a, b, c: f32(f32(a * b) + c), quotient),
    "fast": Flavour(1, fma, lambda x, l: f32(x * quotient(1.0, l))),
}


# Section 3: inputs


class Tensor:
    """A tensor of the protocol; 16-bit elements are widened."""

    def __init__(self, message):
        data = base64.b64decode(message["data"], validate=True)
        self.shape = message["shape"]
        count = math.prod(self.shape)
        if message["dtype"] == "bf16":
            self.values = [number(u << 16) for u in struct.unpack(f"<{count}H", data)]
        else:
            code = {"f32": "f", "f16": "e", "u8": "B"}[message["dtype"]]
            self.values = list(struct.unpack(f"<{count}{code}", data))

    def row(self, *index):
        """The innermost elements at an index; a dimension of size 1 stands for all of its indices."""
        start = 0
        for size, i in zip(self.shape, index):
            start = start * size + (i if size != 1 else 0)
        length = self.shape[-1]
        return self.values[start * length : (start + 1) * length]


def mask_row_of(mask, index, keys, absent):
    """The mask entries of a row, one for each key; `absent` without a mask."""
    entries = mask.row(*index) if mask else [absent]
    return entries * keys if len(entries) == 1 else entries


def default_scale(head_dim):
    return f32(1.0 / f32(math.sqrt(from_integer(head_dim))))


def sequences(batch, length, starts):
    """Of each sequence: where it is in the first dimension, its first row or key, and how many it has."""
    if starts is None:
        return [(b, 0, length) for b in range(batch)]
    return [(0, start, end - start) for start, end in pairwise(starts)]


# Section 4: which keys a row sees


def sees(position, j, causal, window, mask_bool_entry):
    """Whether the row at a position sees key j, which is there."""
    return (j <= position or not causal) and (j > position - window or window == 0) and mask_bool_entry != 0


# Section 6: a row


class State(NamedTuple):
    m: float
    l: float
    acc: list
    saw_key: bool
    has_sink: bool


class Key(NamedTuple):
    """A key that the row sees."""

    j: int
    key: list
    value: list
    bias: float


def bias_of(muladd, mask_entry, slope, position, j):
    """Section 6.1: the bias of a key; mask_entry is +0 without a mask."""
    if slope is None:
        return mask_entry
    return muladd(-slope, from_integer(abs(position - j)), mask_entry)


def score(muladd, q, key, scale, softcap):
    """Section 6.1."""
    d = 0.0
    for q_x, k_x in zip(q, key.key):
        d = muladd(q_x, k_x, d)
    if softcap is None:
        return muladd(d, scale, key.bias)
    t = f32(d * scale)
    return muladd(softcap, T(muladd, quotient(t, softcap)), key.bias)


def sum_of_16(numbers):
    """Section 6.4: sixteen partial sums and their tree, for pairs of an index and a number."""
    sums = [0.0] * 16
    for j, x in numbers:
        sums[j % 16] = f32(sums[j % 16] + x)
    for half in (8, 4, 2, 1):
        sums = [f32(sums[t] + sums[t + half]) for t in range(half)]
    return sums[0]


def largest(numbers):
    """The largest of the numbers that are not NaN; -inf if there is none."""
    return max((x for x in numbers if x == x), default=-INFINITY)


def take_block(muladd, state, q, block, scale, softcap):
    """Sections 6.1 to 6.6: the state after a block, of which the row sees the keys given."""
    s = [score(muladd, q, key, scale, softcap) for key in block]
    m = max(state.m, largest(s))
    shift = 0.0 if m == -INFINITY else m
    p = [E(muladd, f32(s_j - shift)) for s_j in s]
    block_sum = sum_of_16((key.j, p_j) for key, p_j in zip(block, p))
    if state.m == -INFINITY:
        alpha = 0.0
    elif state.m == shift:
        alpha = 1.0
    else:
        alpha = E(muladd, f32(state.m - shift))
    l = muladd(state.l, alpha, block_sum)
    acc = [f32(acc_x * alpha) for acc_x in state.acc]
    for p_j, key in zip(p, block):
        acc = [muladd(p_j, v_x, acc_x) for v_x, acc_x in zip(key.value, acc)]
    return State(m, l, acc, True, state.has_sink)


def take_keys(muladd, state, q, keys, scale, softcap):
    """Sections 5 and 6: all keys that the row sees, in blocks of 64 absolute positions."""
    for _, block in groupby(keys, lambda key: key.j // 64):
        state = take_block(muladd, state, q, list(block), scale, softcap)
    return state


def output(flavour, state, zero_if_fully_masked):
    """Section 6.7."""
    if not (state.saw_key or state.has_sink) or (state.l == 0 and zero_if_fully_masked):
        return [0.0] * len(state.acc)
    return [written(flavour.divide(acc_x, state.l)) for acc_x in state.acc]


def log_sum_exp(muladd, state):
    """Section 6.8."""
    return written(f32(state.m + L(muladd, state.l)))


# Section 7: the exponential


K_EXP_CUT = number(0xC2AEAC4F)
K_LOG2E = number(0x3FB8AA3B)
K_LN2_HIGH = number(0x3F317200)
K_LN2_LOW = number(0x35BFBE8E)
K_ROUND = number(0x4B40007F)
K_EXP = [number(u) for u in (0x3EFFFFFD, 0x3E2AAA49, 0x3D2AAD13, 0x3C091CBE, 0x3AB4A643)]  # kExp2 to kExp6


def polynomial(muladd, coefficients, x):
    """From the last coefficient to the first: g = muladd(g, x, coefficient)."""
    g = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        g = muladd(g, x, coefficient)
    return g


def E(muladd, x):
    """For x <= 0 or NaN; also for x up to 20 (section 13)."""
    if x != x:
        return x
    if x < K_EXP_CUT:
        return 0.0
    y = muladd(x, K_LOG2E, K_ROUND)
    n = f32(y - K_ROUND)
    r = muladd(-n, K_LN2_LOW, muladd(-n, K_LN2_HIGH, x))
    g = polynomial(muladd, K_EXP, r)
    r2 = f32(r * r)
    f = f32(1.0 + muladd(r2, g, r))
    return f32(f * number(bits(y) << 23 & 0xFFFFFFFF))


# Section 8: the logarithm


K_SQRT_HALF = number(0x3F3504F3)
K_LOG = [number(u) for u in (0x3EAAAAB8, 0xBE80011A, 0x3E4CCA27, 0xBE2A337F,  # kLog3 to kLog10
                             0x3E11CE71, 0xBE074B66, 0x3E00ACBA, 0xBD9537BC)]


def L(muladd, x):
    """For x = 0, x >= 1, or NaN."""
    if x == 0:
        return -INFINITY
    if x != x or x == INFINITY:
        return x
    k = (bits(x) - bits(K_SQRT_HALF)) >> 23
    f = number(bits(x) - (k << 23))
    n = from_integer(k)
    r = f32(f - 1.0)
    r2 = f32(r * r)
    g = polynomial(muladd, K_LOG, r)
    w = f32(r2 * f32(r * g))
    w = muladd(n, K_LN2_LOW, w)
    w = muladd(r2, -0.5, w)
    y = f32(r + w)
    return muladd(n, K_LN2_HIGH, y)


# Section 10: sinks


def start(sink, value_dim):
    """The state of a row before its first key; sink is -inf where there are no sinks, which is the same."""
    acc = [0.0] * value_dim
    if sink == -INFINITY:
        return State(-INFINITY, 0.0, acc, False, False)
    if math.isfinite(sink):
        return State(sink, 1.0, acc, False, True)
    return State(-INFINITY, NAN, acc, False, True)


# Section 11: softmax rows


def softmax_row(flavour, x):
    m = largest(x)
    e = [E(flavour.muladd, f32(x_j - m)) for x_j in x]
    l = sum_of_16(enumerate(e))
    return [written(flavour.divide(e_j, l)) for e_j in e]


# Section 13: the hyperbolic tangent


K_TANH_SMALL = number(0x3F500000)
K_TANH_ONE = number(0x41200000)
K_TANH = [number(u) for u in (0xBEAAAA9C, 0x3E088525, 0xBD5C85C5,  # kTanh3, kTanh5, ..., kTanh13
                              0x3CAE22A4, 0xBBF08067, 0x3ACA9071)]


def T(muladd, x):
    if x != x:
        return x
    a = abs(x)
    if a < K_TANH_SMALL:
        a2 = f32(a * a)
        h = f32(a2 * polynomial(muladd, K_TANH, a2))
        t = muladd(a, h, a)
    elif a <= K_TANH_ONE:
        w = E(muladd, f32(a + a))
        u = f32(1.0 + w)
        t = f32(1.0 - quotient(2.0, u))
    else:
        t = 1.0
    return math.copysign(t, x)


# Section 14: states


HEADER = "<8sIIQQQQQQ"  # name, flavour, 0, B, H, Tq, Dv, position of the next key, 1 for ragged queries


def packed_row(state):
    flags = state.saw_key + 2 * state.has_sink
    acc = [written(acc_x) for acc_x in state.acc]
    return struct.pack(f"<ffI{len(acc)}f", state.m + 0.0, written(state.l), flags, *acc)  # -0 + +0 = +0


def unpacked_state(data, expected_header, kv_offset):
    """The positions after the last key of each sequence, and the states of all rows in the order of lse."""
    header, expected = struct.unpack_from(HEADER, data), struct.unpack(HEADER, expected_header)
    name, flavour, zero, batch, heads, q_len, value_dim, position, ragged = header
    if position != kv_offset or header[:7] != expected[:7] or ragged != expected[8]:
        raise ValueError("the state does not belong to this call")
    ends = struct.unpack_from(f"<{batch}Q", data, 64)
    rows = [State(m, l, acc, bool(flags & 1), bool(flags & 2))
            for m, l, flags, *acc in struct.iter_unpack(f"<ffI{value_dim}f", data[64 + 8 * batch :])]
    return ends, rows


# A call: every row of sections 3 to 6


def attention(flavour_name, params, inputs, state=None):
    """The tensors `out` and `lse` and the `state` after the call; `state` is the one that it goes on from."""
    flavour = FLAVOURS[flavour_name]
    muladd = flavour.muladd
    batch, heads, q_len, value_dim = (params[name] for name in ("batch", "heads", "q_len", "value_dim"))
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    mask, mask_bool, sinks, slopes = (inputs.get(name) for name in ("mask", "mask_bool", "sinks", "alibi"))
    scale, softcap = params["scale"], params.get("softcap")
    scale = default_scale(params["head_dim"]) if scale == "default" else number(int(scale, 16))
    softcap = number(int(softcap, 16)) if softcap else None
    causal, window, kv_offset = params["causal"], params["window"], params.get("kv_offset", 0)
    zero_if_fully_masked = params["fully_masked"] == "zero"

    q_starts = params.get("q_starts")
    q_sequences = sequences(batch, q_len, q_starts)
    q_batch = batch if q_starts is None else 1
    q_offsets = params.get("q_offsets", [params["q_offset"]] * batch)
    kv_sequences = sequences(batch, params["kv_len"], params.get("kv_starts"))
    kv_stored = [count for _, _, count in kv_sequences]
    kv_counts = [min(pair) for pair in zip(kv_stored, params.get("kv_lens", kv_stored))]

    longest = params["kv_len"] if "kv_starts" not in params else max(kv_stored, default=0)
    next_position = -(-(kv_offset + longest) // 64) * 64
    header = struct.pack(HEADER, b"exattn-1", flavour.code, 0, batch, heads, q_len, value_dim, next_position,
                         q_starts is not None)
    ends = [kv_offset + count for count in kv_counts]
    earlier = None
    if state is not None:
        earlier_ends, earlier = unpacked_state(state, header, kv_offset)
        ends = [end if count else before for end, count, before in zip(ends, kv_counts, earlier_ends)]

    rows = q_batch * heads * q_len
    out = [[0.0] * value_dim] * rows
    lse = [0.0] * rows
    packed = [bytes(4 * (3 + value_dim))] * rows

    for b in range(batch):
        q_b, q_first, q_count = q_sequences[b]
        kv_b, kv_first, _ = kv_sequences[b]
        for h in range(heads):
            kv_head = h // (heads // params["kv_heads"])
            keys = [k.row(kv_b, kv_head, kv_first + n) for n in range(kv_counts[b])]
            values = [v.row(kv_b, kv_head, kv_first + n) for n in range(kv_counts[b])]
            sink = sinks.values[h] if sinks else -INFINITY
            slope = slopes.values[h] if slopes else None
            for i in range(q_count):
                position = q_offsets[b] + i
                index = (q_b, h, q_first + i)
                mask_row = mask_row_of(mask, index, kv_counts[b], 0.0)
                mask_bool_row = mask_row_of(mask_bool, index, kv_counts[b], 1)
                visible = (
                    Key(j, keys[n], values[n], bias_of(muladd, mask_row[n], slope, position, j))
                    for n, j in enumerate(range(kv_offset, kv_offset + kv_counts[b]))
                    if sees(position, j, causal, window, mask_bool_row[n])
                )
                row = (q_b * heads + h) * q_len + q_first + i
                before = earlier[row] if earlier is not None else start(sink, value_dim)
                after = take_keys(muladd, before, q.row(*index), visible, scale, softcap)
                out[row] = output(flavour, after, zero_if_fully_masked)
                lse[row] = log_sum_exp(muladd, after)
                packed[row] = packed_row(after)

    return {
        "out": encoded([q_batch, heads, q_len, value_dim], [x for row in out for x in row]),
        "lse": encoded([q_batch, heads, q_len], lse),
        "state": base64.b64encode(header + struct.pack(f"<{batch}Q", *ends) + b"".join(packed)).decode(),
    }


def softmax(flavour_name, params, inputs):
    flavour, x = FLAVOURS[flavour_name], inputs["x"]
    rows, columns = params["rows"], params["columns"]
    y = [y_j for row in range(rows) for y_j in softmax_row(flavour, x.row(row))]
    return {"out": encoded([rows, columns], y)}


# The protocol


KNOWN = {
    "attention": "batch heads kv_heads q_len kv_len head_dim value_dim storage scale softcap causal window"
                 " q_offset q_offsets kv_lens q_starts kv_starts kv_offset fully_masked"
                 " q k v mask mask_bool sinks alibi",
    "softmax": "rows columns x",
}


def encoded(shape, values):
    data = struct.pack(f"<{len(values)}f", *values)
    return {"dtype": "f32", "shape": shape, "data": base64.b64encode(data).decode()}


def first_answer(message):
    if (message["protocol"], message["definition"]) != ("exattn-protocol-1", "exattn-1"):
        sys.exit("another protocol or definition")
    return {"protocol": "exattn-protocol-1", "name": "exattn in plain Python", "version": "1",
            "flavours": list(FLAVOURS)}


def answer(message):
    request, operation = message["request"], message["operation"]
    flavour, params = message["flavour"], message["params"]
    unknown = {*params, *message["inputs"]} - set(KNOWN.get(operation, "").split())
    if unknown:
        return {"request": request, "unsupported": " ".join([operation, *sorted(unknown)])}
    try:
        inputs = {name: Tensor(tensor) for name, tensor in message["inputs"].items()}
        if operation == "softmax":
            outputs = softmax(flavour, params, inputs)
        else:
            state = base64.b64decode(message["state"], validate=True) if "state" in message else None
            outputs = attention(flavour, params, inputs, state)
    except Exception as problem:
        return {"request": request, "error": repr(problem)}
    return {"request": request, "outputs": {name: outputs[name] for name in message["outputs"]}}


def main():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        print(json.dumps(first_answer(message) if "protocol" in message else answer(message)), flush=True)


if __name__ == "__main__":
    main()
