"""The shapes that are measured, and inputs for them."""
from collections import namedtuple

import numpy as np


class Shape(namedtuple("Shape", "name heads kv_heads head_dim q_len kv_len causal")):
    @property
    def repeats(self):
        """Calls in one turn: more of the short ones, so that the clock and the first cache misses don't count."""
        pairs = self.q_len * self.kv_len * (0.5 if self.causal else 1)
        return max(1, min(20, int(5e8 / (4 * self.heads * self.head_dim * pairs))))


SHAPES = [
    Shape("BERT-base 128", 12, 12, 64, 128, 128, False),
    Shape("BERT-base 512", 12, 12, 64, 512, 512, False),
    Shape("MiniLM 128", 12, 12, 32, 128, 128, False),
    Shape("Whisper encoder 1500", 12, 12, 64, 1500, 1500, False),
    Shape("Whisper cross 1 x 1500", 12, 12, 64, 1, 1500, False),
    Shape("Whisper cross 448 x 1500", 12, 12, 64, 448, 1500, False),
    Shape("one head 4096", 1, 1, 64, 4096, 4096, False),
    Shape("Llama prefill 2048", 32, 8, 128, 2048, 2048, True),
    Shape("Llama decode 1 x 8192", 32, 8, 128, 1, 8192, False),
]


class Problem:
    """A shape with inputs q [H, Tq, D], k and v [Hkv, Tk, D]."""

    def __init__(self, shape):
        self.shape = shape
        random = np.random.default_rng(1)
        q_size = (shape.heads, shape.q_len, shape.head_dim)
        kv_size = (shape.kv_heads, shape.kv_len, shape.head_dim)
        self.q, self.k, self.v = (random.standard_normal(size, dtype=np.float32) for size in (q_size, kv_size, kv_size))
        self.scale = shape.head_dim**-0.5

    def by_group(self, tensor):
        """Query heads that share keys as [Hkv, H / Hkv, Tq, D], so that no key is copied; a single row of each of
        them as one matrix."""
        shape = self.shape
        group = shape.heads // shape.kv_heads
        rows = (1, group) if shape.q_len == 1 else (group, shape.q_len)
        return tensor.reshape(shape.kv_heads, *rows, shape.head_dim)

    def greatest_error(self, out):
        """Against the formula in float64; of evenly spread rows, with the first and the last, where there are many."""
        shape = self.shape
        count = min(shape.q_len, max(2, 4_000_000 // (shape.heads * shape.kv_len)))
        rows = np.unique(np.linspace(0, shape.q_len - 1, count).round().astype(int))
        worst = 0.0
        for head in range(shape.heads):
            k, v = (x[head * shape.kv_heads // shape.heads].astype(np.float64) for x in (self.k, self.v))
            scores = self.q[head, rows].astype(np.float64) @ k.T / np.sqrt(shape.head_dim)
            if shape.causal:
                scores[np.arange(shape.kv_len) > rows[:, None]] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            expected = weights @ v / weights.sum(axis=1, keepdims=True)
            worst = max(worst, np.nan_to_num(np.abs(out[head, rows] - expected), nan=np.inf).max())
        return float(worst)
