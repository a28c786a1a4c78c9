"""What the module says of itself."""
import ast
import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import unittest

import numpy as np

import exattn
import support

HEADER = (support.SOURCE / "include/exattn/exattn.h").read_text()


def defined(name):
    return re.search(rf'^#define {name} "(.*)"$', HEADER, re.M)[1]


class Interface(unittest.TestCase):
    def test_versions(self):
        self.assertEqual(exattn.__version__, defined("EXATTN_VERSION"))
        self.assertEqual(exattn.definition, defined("EXATTN_DEFINITION"))

    def test_info(self):
        info = exattn.info()
        self.assertEqual(info["version"], exattn.__version__)
        self.assertEqual(info["definition"], exattn.definition)
        if hasattr(os, "sched_getaffinity"):
            self.assertEqual(info["processors"], len(os.sched_getaffinity(0)))
        # The names are those of exattn.h, but for auto.
        names = re.search(r'/\*\* ("auto".*); null for any other number', HEADER)[1]
        self.assertEqual(set(info["lanes"]) | {"auto"}, set(re.findall(r'"(\w+)"', names)))
        self.assertEqual(info["lanes"]["scalar"],
                         {"built": True, "cpu": True, "os": True, "exact": True, "fast": True, "width": 1})
        for flavour, kernel in info["auto"].items():
            lanes, of = kernel.split("/")
            self.assertEqual(of, flavour)
            self.assertTrue(info["lanes"][lanes][flavour])

    def test_lanes_of_environment(self):
        program = "import exattn; print(exattn.info()['auto'])"

        def automatic(lanes):
            return subprocess.run([sys.executable, "-c", program], env={**os.environ, "EXATTN_LANES": lanes}, check=True,
                                  capture_output=True, text=True).stdout.strip()

        self.assertEqual(automatic("scalar"), "{'exact': 'scalar/exact', 'fast': 'scalar/fast'}")
        self.assertEqual(automatic("none-such"), "{'exact': None, 'fast': None}")

    def test_stub(self):
        # Every function of the stub has the parameters and defaults that the function has.
        origin = importlib.util.find_spec("exattn").origin
        with open(os.path.join(os.path.dirname(origin), "__init__.pyi"), encoding="utf-8") as stub:
            tree = ast.parse(stub.read())
        found = set()
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            found.add(node.name)
            signature = inspect.signature(getattr(exattn, node.name))
            positional = [name for name, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
            keyword = {name: p.default for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}
            self.assertEqual([a.arg for a in node.args.args], positional)
            self.assertEqual([a.arg for a in node.args.kwonlyargs], list(keyword))
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
                if default is not None:  # an overload may make one required
                    self.assertEqual(ast.literal_eval(default), keyword[argument.arg], argument.arg)
        public = {name for name in exattn.__all__ if callable(getattr(exattn, name))}
        self.assertEqual(found, public)

    def test_docstrings(self):
        self.assertTrue(exattn.__doc__)
        for name in ("attention", "softmax"):
            function = getattr(exattn, name)
            for parameter in inspect.signature(function).parameters:
                self.assertRegex(function.__doc__.lower(), rf"\b{parameter}\b")

    def test_sha256(self):
        x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        wanted = hashlib.sha256(x.astype("<f4").tobytes()).hexdigest()
        for same in (x, x.astype(">f4"), np.asfortranarray(x), x[::-1].copy()[::-1], memoryview(x)):
            self.assertEqual(exattn.sha256(same), wanted)
        nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        self.assertEqual(exattn.sha256(np.empty((0, 3), np.float32)), nothing)
        self.assertEqual(exattn.sha256(np.array([True, False])), hashlib.sha256(b"\1\0").hexdigest())
        self.assertEqual(exattn.sha256(np.array([1], np.int64)), hashlib.sha256(b"\1" + bytes(7)).hexdigest())
        self.assertEqual(exattn.sha256(np.float16(1)), hashlib.sha256(b"\0\x3c").hexdigest())

    def test_real_block(self):
        # A block of a text recogniser; README.md has the hash, from `exattn attention`.
        data = support.SOURCE / "conformance/data/ocr-attention"
        q, k, v = (np.load(data / f"block_a_{name}.npy") for name in "qkv")
        out = exattn.attention(q, k, v)
        self.assertIn(f"sha256 {exattn.sha256(out)} 1x8x300x15", (support.SOURCE / "README.md").read_text())
        self.assertLess(np.abs(out - np.load(data / "block_a_out.npy")).max(), 2e-6)


class Page(unittest.TestCase):
    """docs/python.md: its examples run, in order, and print what the page says."""

    def test_examples(self):
        text = (support.SOURCE / "docs/python.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 4)
        names, checked = {}, 0
        for block in blocks:
            if "import torch" in block:  # with_torch.py runs these
                continue
            for line in ast.parse(block).body:
                source = ast.get_source_segment(block, line)
                comment = re.search(re.escape(source) + r"  # (.*)$", block, re.M)
                if isinstance(line, ast.Expr) and comment:
                    self.assertEqual(repr(eval(source, names)), comment[1])
                    checked += 1
                else:
                    exec(source, names)
        self.assertGreaterEqual(checked, 7)
