"""Values by hand, and by the formula in float64."""
import math
import unittest

import numpy as np

import exattn
import support

INF, NAN = math.inf, math.nan
BOTH = ("exact", "fast")


def column(*numbers):
    return np.array(numbers, np.float32)[:, None]


class ByHand(unittest.TestCase):
    """Queries or keys of 0 make all scores 0, so that every row gives the mean of the values that it sees."""

    q, k, v = column(0, 0, 0), column(0, 0, 0, 0, 0), column(1, 2, 3, 4, 5)

    def expect(self, wanted, **options):
        for flavour in BOTH:
            out = exattn.attention(self.q, self.k, self.v, flavour=flavour, **options)
            np.testing.assert_array_max_ulp(out, column(*wanted), 1 if flavour == "fast" else 0)

    def test_mean(self):
        self.expect([3, 3, 3])

    def test_causal(self):
        self.expect([1, 1.5, 2], causal=True)
        self.expect([2, 2.5, 3], causal=True, q_offset=2)
        self.expect([3, 3, 3], causal=True, q_offset=2**40)

    def test_window(self):
        self.expect([1, 1.5, 2.5], causal=True, window=2)  # keys 0; 0 and 1; 1 and 2
        self.expect([3, 3.5, 4], window=3, q_offset=2)  # keys from 0, 1, 2 on
        self.expect([0, 0, 0], window=1, q_offset=10)  # no key

    def test_kv_len(self):
        self.expect([1.5, 1.5, 1.5], kv_len=2)
        self.expect([1.5, 1.5, 1.5], kv_len=[2])
        self.expect([0, 0, 0], kv_len=0)

    def test_bool_mask(self):
        mask = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
        self.expect([3, 4, 0], mask=mask)
        self.expect([3, 4, 0], mask=mask.astype(np.uint8) * 7)
        self.expect([2.5, 2.5, 2.5], mask=np.array([[True, True, True, True, False]]))

    def test_added_mask(self):
        # Weights 1 and 1/2 (ln 2 apart), and a key hidden by -inf.
        mask = np.array([[0, -INF, -INF, -INF, -INF], [-INF, -INF, -INF, 0, -INF], [-INF] * 5], np.float32)
        self.expect([1, 4, NAN], mask=mask)
        self.expect([1, 4, 0], mask=mask, fully_masked="zero")
        out = exattn.attention(self.q[:1], self.k[:2], self.v[:2], mask=np.array([[0, -math.log(2)]], np.float32))
        self.assertAlmostEqual(out[0, 0], (1 + 2 / 2) / (1 + 1 / 2), delta=1e-6)

    def test_both_masks(self):
        additive = np.array([[0, 0, -INF, -INF, 0]], np.float32)
        seen = np.array([[True, True, True, False, False]])
        self.expect([1.5, 1.5, 1.5], mask=(additive, seen))

    def test_hidden_and_masked_values_differ(self):
        v = self.v.copy()
        v[4] = NAN
        self.assertEqual(exattn.attention(self.q, self.k, v, mask=np.array([[1, 1, 1, 1, 0]], bool))[0, 0], 2.5)
        # Visible, with the weight 0: 0 * NaN (definition, section 4).
        self.assertTrue(np.isnan(exattn.attention(self.q, self.k, v, mask=np.array([[0, 0, 0, 0, -INF]], np.float32))).all())

    def test_sinks(self):
        self.expect([2.5, 2.5, 2.5], sinks=[0.0])  # 15 over 5 keys and a sink of the same weight
        self.expect([3, 3, 3], sinks=np.array([-INF], np.float32))
        self.expect([0, 0, 0], sinks=[0], kv_len=0)

    def test_grouped_heads(self):
        q, k = np.zeros((4, 1, 1), np.float32), np.zeros((2, 1, 1), np.float32)
        v = np.array([10, 20], np.float32).reshape(2, 1, 1)
        self.assertEqual(exattn.attention(q, k, v).ravel().tolist(), [10, 10, 20, 20])

    def test_lse(self):
        out, lse = exattn.attention(self.q, self.k, self.v, return_lse=True)
        self.assertEqual((out.shape, lse.shape, lse.dtype), ((3, 1), (3,), np.float32))
        np.testing.assert_array_max_ulp(lse, np.full(3, math.log(5), np.float32), 1)
        _, lse = exattn.attention(self.q, self.k, self.v, return_lse=True, kv_len=0)
        self.assertEqual(lse.tolist(), [-INF] * 3)

    def test_scale_and_softcap(self):
        # One key: lse is its score, 3 * 5 times the scale.
        def score(**options):
            return exattn.attention(column(3), column(5), column(1), return_lse=True, **options)[1][0]

        self.assertEqual(score(), 15)  # 1 / sqrt(1)
        self.assertEqual(score(scale=0.5), 7.5)
        self.assertEqual(score(scale=np.float32(-2)), -30)
        self.assertEqual(score(scale=0), 0)
        self.assertEqual(score(softcap=0.25), 0.25)  # tanh(60) is 1
        self.assertAlmostEqual(score(softcap=10), 10 * math.tanh(1.5), delta=1e-5)
        self.assertEqual(exattn.attention(np.ones((1, 4), np.float32), np.ones((1, 4), np.float32), column(1),
                                          return_lse=True)[1][0], 2)  # 4 / sqrt(4)

    def test_alibi(self):
        # Row at 1; keys at 0, 1, 2 get 2^-1, 1, 2^-1 by a slope of ln 2.
        out = exattn.attention(column(0), column(0, 0, 0), column(4, 1, 8), q_offset=1, alibi=[math.log(2)])
        self.assertAlmostEqual(out[0, 0], (4 / 2 + 1 + 8 / 2) / 2, delta=1e-6)

    def test_empty(self):
        for shape in ((0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)):
            out, lse = exattn.attention(*[np.empty(shape, np.float32)] * 3, return_lse=True)
            self.assertEqual((out.shape, lse.shape), (shape, shape[:3]))
        self.assertEqual(exattn.attention(self.q, self.k[:0], self.v[:0]).tolist(), [[0]] * 3)

    def test_softmax(self):
        for flavour in BOTH:
            def softmax(*row):
                return exattn.softmax(np.array(row, np.float32), flavour=flavour).tolist()

            self.assertEqual(softmax(7, 7, 7, 7), [0.25] * 4)
            self.assertEqual(softmax(0, -INF, 0, -INF), [0.5, 0, 0.5, 0])
            self.assertEqual(softmax(), [])
            self.assertTrue(np.isnan(softmax(1, NAN)).all())
            self.assertTrue(np.isnan(softmax(-INF, -INF)).all())


class ByFormula(unittest.TestCase):
    """Against float64. Scores are below 20, where float32 is exact to 1e-6; so much is a weight off, and a mean."""

    def compare(self, shape, *, seed=1, alike=6e-6, **options):
        batch, heads, kv_heads, rows, keys, size, value_size = shape
        q = support.floats(seed, batch, heads, rows, size)
        k = support.floats(seed + 1, batch, kv_heads, keys, size)
        v = support.floats(seed + 2, batch, kv_heads, keys, value_size)
        wanted = support.formula(q, k, v, **options)
        for flavour in BOTH:
            for got, want in zip(exattn.attention(q, k, v, flavour=flavour, return_lse=True, **options), wanted):
                self.assertLess(np.abs(got - want).max(), alike)

    def test_shapes(self):
        for seed, shape in enumerate(((1, 1, 1, 1, 1, 1, 1), (2, 4, 4, 17, 65, 16, 16), (1, 6, 2, 33, 130, 64, 48),
                                      (3, 2, 1, 1, 300, 20, 7))):
            self.compare(shape, seed=10 * seed)

    def test_options(self):
        shape = (2, 4, 2, 19, 150, 24, 10)
        self.compare(shape, causal=True, q_offset=[100, 3])
        self.compare(shape, causal=True, window=40, q_offset=131)
        self.compare(shape, kv_len=[150, 70], scale=0.5)
        self.compare(shape, softcap=1.5)
        self.compare(shape, sinks=[0.5, -1, 2, 0])
        self.compare(shape, alibi=[0.5, 0.25, 0.125, 0.0625], q_offset=60)
        self.compare(shape, mask=support.floats(77, 2, 1, 19, 150))
        self.compare(shape, mask=support.floats(78, 1, 4, 1, 150) > 0)
        self.compare(shape, mask=support.floats(79, 19, 1), causal=True, q_offset=131, softcap=3.0, window=100,
                     sinks=[1, 2, 3, 4], alibi=[0.1, 0.2, 0.3, 0.4], kv_len=140, scale=0.3)

    def test_softmax(self):
        x = 4 * support.floats(5, 7, 333)
        e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        for flavour in BOTH:
            difference = exattn.softmax(x, flavour=flavour) / (e / e.sum(axis=1, keepdims=True)) - 1
            self.assertLess(np.abs(difference).max(), 2e-6)
