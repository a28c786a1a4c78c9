"""Tensors of torch, where it is installed; exit code 77 (skipped) where it is not."""
import importlib.util
import math
import re
import sys
import unittest

import numpy as np

import exattn
import support

if importlib.util.find_spec("torch") is None:
    print("torch is not installed")
    sys.exit(77)

import torch  # noqa: E402

Q, K, V = (support.floats(n, 2, 4, 30, 16) for n in range(3))


class Tensors(unittest.TestCase):
    def test_types_and_strides(self):
        q, k, v = map(torch.from_numpy, (Q, K, V))
        wanted = exattn.attention(Q, K, V, causal=True)
        turned = k.transpose(1, 3).contiguous().transpose(1, 3)
        support.same_bits(self, exattn.attention(q, turned, v, causal=True), wanted)
        half = [x.half() for x in (q, k, v)]
        support.same_bits(self, exattn.attention(*half), exattn.attention(*(x.float() for x in half)))
        brain = [x.bfloat16() for x in (q, k, v)]
        support.same_bits(self, exattn.attention(*brain), exattn.attention(*(x.float() for x in brain)))
        self.assertEqual(exattn.sha256(q), exattn.sha256(Q))

    def test_masks(self):
        mask = torch.ones(30, 30).tril() > 0
        wanted = exattn.attention(Q, K, V, causal=True)
        support.same_bits(self, exattn.attention(Q, K, V, mask=mask), wanted)
        support.same_bits(self, exattn.attention(Q, K, V, mask=mask.to(torch.uint8)), wanted)

    def test_out(self):
        out = torch.empty(2, 4, 30, 16)
        exattn.attention(Q, K, V, out=out.numpy())
        support.same_bits(self, out.numpy(), exattn.attention(Q, K, V))
        with self.assertRaisesRegex(TypeError, "out is of type Tensor"):
            exattn.attention(Q, K, V, out=out)

    def test_gradients_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "detach"):
            exattn.attention(torch.from_numpy(Q).requires_grad_(), K, V)

    def test_as_torch_computes(self):
        q, k, v = (torch.from_numpy(x).double() for x in (Q, K, V))
        scores = q @ k.transpose(2, 3) / math.sqrt(16)
        scores = scores.masked_fill(torch.ones(30, 30).tril() == 0, -math.inf)
        wanted = scores.softmax(dim=3) @ v
        self.assertLess(np.abs(exattn.attention(Q, K, V, causal=True) - wanted.numpy()).max(), 6e-6)
        if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
            theirs = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (Q, K, V)), is_causal=True)
            self.assertLess(np.abs(exattn.attention(Q, K, V, causal=True) - theirs.numpy()).max(), 6e-6)

    def test_page(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", (support.SOURCE / "docs/python.md").read_text(), re.M | re.S)
        blocks = [block for block in blocks if "import torch" in block]
        self.assertGreaterEqual(len(blocks), 1)
        for block in blocks:
            exec(block, {})


if __name__ == "__main__":
    unittest.main()
