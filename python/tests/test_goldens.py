"""Golden cases: inputs made here, by docs/goldens.md, give the hashes of the files."""
import hashlib
import json
import unittest

import numpy as np

import exattn
import support

GOLDEN = support.SOURCE / "golden"


def cases(kind):
    content = (GOLDEN / f"{kind}.json").read_bytes()
    sums = dict(reversed(line.split()) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    assert sums[f"{kind}.json"] == hashlib.sha256(content).hexdigest()
    golden = json.loads(content)
    assert golden["definition"] == exattn.definition
    return [case for case in golden["cases"] if case["tier"] == "quick"]


class Inputs:
    """The tensors of a case; bfloat16 goes by DLPack."""

    def __init__(self, case):
        p = self.params = case["params"]
        ragged_q, ragged_kv = "q_starts" in p, "kv_starts" in p
        shapes = {"q": (1 if ragged_q else p["batch"], p["heads"], p["q_len"], p["head_dim"]),
                  "k": (1 if ragged_kv else p["batch"], p["kv_heads"], p["kv_len"], p["head_dim"]),
                  "v": (1 if ragged_kv else p["batch"], p["kv_heads"], p["kv_len"], p["value_dim"]),
                  "sinks": (p["heads"],), "alibi": (p["heads"],)}
        self.storage, self.patterns = {}, {}
        for name, described in case["inputs"].items():
            self.storage[name] = "u8" if name == "mask_bool" else p.get("storage", {}).get(name, "f32")
            shape = tuple(described.get("shape", shapes.get(name)))
            self.patterns[name] = support.generate(described, shape, self.storage[name])

    def typed(self, name, patterns):
        kind = self.storage[name]
        if kind == "bf16":
            return support.bfloat16(patterns)
        return patterns if kind == "u8" else patterns.view(np.float32 if kind == "f32" else np.float16)

    def get(self, name, index=()):
        return self.typed(name, self.patterns[name][index]) if name in self.patterns else None

    def masks(self):
        return both(self.get("mask"), self.get("mask_bool"))


def both(additive, boolean):
    if boolean is None:
        return additive
    return boolean if additive is None else (additive, boolean)


def known_parameters(params):
    known = {"batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "value_dim", "storage", "scale", "softcap", "causal",
             "window", "q_offset", "q_offsets", "kv_lens", "q_starts", "kv_starts", "fully_masked",
             # Neither changes a hash of out and lse.
             "page_size", "resume"}
    return params.keys() <= known


def options(inputs):
    p = inputs.params
    return {"scale": None if p["scale"] == "default" else support.from_bits(p["scale"]),
            "softcap": support.from_bits(p["softcap"]) if "softcap" in p else 0.0,
            "causal": p["causal"], "window": p["window"], "fully_masked": p["fully_masked"],
            "sinks": inputs.get("sinks"), "alibi": inputs.get("alibi"), "return_lse": True}


def compute(inputs, **more):
    p = inputs.params
    return exattn.attention(inputs.get("q"), inputs.get("k"), inputs.get("v"), mask=inputs.masks(),
                            q_offset=p.get("q_offsets", p["q_offset"]), kv_len=p.get("kv_lens"), **options(inputs), **more)


def compute_ragged(inputs, **more):
    """A ragged case as a call for each sequence: a row's bits are the same in any batch."""
    p = inputs.params
    q = inputs.patterns["q"]
    out = np.full(q.shape[:3] + (p["value_dim"],), np.inf, np.float32)
    lse = np.full(q.shape[:3], np.inf, np.float32)
    everything = slice(None)
    for b in range(p["batch"]):
        one = slice(b, b + 1)
        rows = slice(*p["q_starts"][b:b + 2]) if "q_starts" in p else everything
        keys = slice(*p["kv_starts"][b:b + 2]) if "kv_starts" in p else everything
        columns = slice(0, keys.stop - keys.start) if "kv_starts" in p else everything
        at_q = (everything if "q_starts" in p else one, everything, rows)
        at_kv = (everything if "kv_starts" in p else one, everything, keys)

        def mask_of(name):
            if name not in inputs.patterns:
                return None
            mask = inputs.patterns[name]
            index = zip(mask.shape, (at_q[0], everything, rows, columns))
            return inputs.typed(name, mask[tuple(everything if size == 1 else part for size, part in index)])

        _, lse[at_q] = exattn.attention(
            inputs.get("q", at_q), inputs.get("k", at_kv), inputs.get("v", at_kv),
            mask=both(mask_of("mask"), mask_of("mask_bool")),
            q_offset=p["q_offsets"][b] if "q_offsets" in p else p["q_offset"],
            kv_len=p["kv_lens"][b] if "kv_lens" in p else None, out=out[at_q], **options(inputs), **more)
    return out, lse


class Goldens(unittest.TestCase):
    def flavours(self):
        automatic = exattn.info()["auto"]
        self.assertIsNotNone(automatic["exact"])
        # Emulating the fused multiply-add would take too long for these.
        return [flavour for flavour in ("exact", "fast") if automatic[flavour] is not None]

    def test_generator(self):
        # What docs/goldens.md says of {"kind": "normal", "seed": 1} and {"kind": "visible", "seed": 1, ...}.
        self.assertEqual([f"{w:016x}" for w in support.words(1, 2)], ["910a2dec89025cc1", "beeb8da1658eec67"])
        self.assertEqual(support.floats(1, 4).tolist(),
                         [-0.713043212890625, 1.238372802734375, 1.844329833984375, 1.3720703125])
        described, shape = {"kind": "normal", "seed": 1}, (2, 3, 4)
        for storage, wanted in (("f32", "58748a80ec795d6ebda9862f8843d1a8d75a7636e07349943987dbde7081631f"),
                                ("bf16", "8c02d9b54333dda33af8b2fb8fa39bf153381bdf9526a9e937c313456b834440"),
                                ("f16", "ad111a168e80db52b8c354430396610e55e34fec1be27663b354546eefa9ac7a")):
            self.assertEqual(exattn.sha256(support.generate(described, shape, storage)), wanted)
        self.assertEqual(exattn.sha256(support.generate({"kind": "visible", "seed": 1, "per_256": 128}, shape, "u8")),
                         "cd90e27ffdfcc3552829e0bdc6b44929d68e3c1aa5d0c268ac617408c30bfce9")
        boxes = [{"from": [0, 1, 1], "to": [2, 3, 2], "bits": "ff800000"},
                 {"from": [1, 2, 0], "to": [2, 3, 4], "bits": "3f800000"}]
        self.assertEqual(exattn.sha256(support.generate({**described, "set": boxes}, shape)),
                         "79941b66c51b33c383a02217ae6b043b89dca69cb488c894929d9170b5dda7b0")

    def test_attention(self):
        quick = cases("attention")
        self.assertGreaterEqual(len(quick), 387)
        ran = ragged = 0
        for case in quick:
            self.assertTrue(known_parameters(case["params"]), case["id"])
            inputs = Inputs(case)
            self.assertEqual(inputs.patterns.keys(), case["sha256"]["inputs"].keys())
            for name, wanted in case["sha256"]["inputs"].items():
                self.assertEqual(exattn.sha256(inputs.get(name)), wanted, f"{case['id']}: input {name}")
            apart = "q_starts" in case["params"] or "kv_starts" in case["params"]
            ragged += apart
            for flavour in self.flavours():
                out, lse = (compute_ragged if apart else compute)(inputs, flavour=flavour)
                wanted = case["sha256"][flavour]
                self.assertEqual(exattn.sha256(out), wanted["out"], f"{case['id']}, {flavour}: out")
                self.assertEqual(exattn.sha256(lse), wanted["lse"], f"{case['id']}, {flavour}: lse")
                ran += 1
        self.assertEqual(ran, len(quick) * len(self.flavours()))
        self.assertGreaterEqual(ragged, 19)
        print(f"attention: {ran} hashes of {len(quick)} quick cases, {ragged} of them ragged")

    def test_softmax(self):
        quick = cases("softmax")
        self.assertGreaterEqual(len(quick), 45)
        ran = 0
        for case in quick:
            shape = case["params"]["rows"], case["params"]["columns"]
            x = support.generate(case["inputs"]["x"], shape).view(np.float32)
            self.assertEqual(exattn.sha256(x), case["sha256"]["inputs"]["x"], case["id"])
            for flavour in self.flavours():
                self.assertEqual(exattn.sha256(exattn.softmax(x, flavour=flavour)), case["sha256"][flavour]["out"],
                                 f"{case['id']}, {flavour}")
                ran += 1
        self.assertEqual(ran, len(quick) * len(self.flavours()))
        print(f"softmax: {ran} hashes of {len(quick)} cases")
