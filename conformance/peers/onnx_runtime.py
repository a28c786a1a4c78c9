"""ONNX Runtime's attention operators, each a model of one node in a process of its own."""
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(HERE, "..", "..", "build", "peers", "node_modules")


def version():
    """None if it isn't installed."""
    if not shutil.which("node"):
        return None
    try:
        with open(os.path.join(PACKAGES, "onnxruntime-node", "package.json")) as file:
            return json.load(file)["version"]
    except OSError:
        return None


# ---- Models: the few messages of onnx.proto that are needed, by the numbers of their fields


def varint(number):
    low = bytes([number & 127 | (128 if number > 127 else 0)])
    return low + varint(number >> 7) if number > 127 else low


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor_type(name, array):
    dims = b"".join(field(1, field(1, size)) for size in array.shape)
    kind = {"float32": 1, "int32": 6}[array.dtype.name]
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def model(operator, domain, node_inputs, inputs, outputs, attributes):
    node = b"".join(field(1, name) for name in node_inputs) + b"".join(field(2, name) for name in outputs)
    node += field(4, operator) + field(7, domain)
    for name, value in attributes.items():
        is_float = isinstance(value, float)
        node += field(5, field(1, name) + field(2 if is_float else 3, value) + field(20, 1 if is_float else 2))
    graph = field(1, node) + field(2, operator)
    graph += b"".join(field(11, tensor_type(name, array)) for name, array in inputs.items())
    graph += b"".join(field(12, tensor_type(name, array)) for name, array in outputs.items())
    imports = field(8, field(1, "") + field(2, 23)) + field(8, field(1, "com.microsoft") + field(2, 1))
    return field(1, 10) + imports + field(7, graph)


# ---- Contestants


class Contestant:
    def __init__(self, operator, domain, node_inputs, inputs, outputs, attributes, threads, unpack, like={}):
        self.name, self.unpack = "ORT " + operator, unpack
        self.result = next(iter(outputs.values()))
        self.process = None
        self.folder = tempfile.TemporaryDirectory()
        model_file = self.path("model.onnx")
        with open(model_file, "wb") as file:
            file.write(model(operator, domain, node_inputs, inputs, outputs, attributes))
        for name, array in inputs.items():
            array.tofile(self.path(name))
        describe = lambda name, array, **more: dict(name=name, type=array.dtype.name, dims=array.shape, **more)
        self.process = subprocess.Popen(
            ["node", os.path.join(HERE, "onnx_runtime.js")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, NODE_PATH=PACKAGES))
        try:
            self.ask(
                open=model_file, threads=threads,
                inputs=[describe(name, array, file=self.path(name)) for name, array in inputs.items()],
                outputs=[describe(name, array, like=like.get(name)) for name, array in outputs.items()])
            self.turn(1)  # warms up
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ask(self, **request):
        """Outside its turns the process is stopped: its threads would spin on for a while, at the cost of others."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)
        answer = json.loads(line or '{"error": "the process ended"}')
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer

    def turn(self, times):
        return self.ask(run=times)["ms"]

    @property
    def out(self):
        self.ask(save=self.path("out"))
        return self.unpack(np.fromfile(self.path("out"), np.float32).reshape(self.result.shape))

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


def rows_first(array):
    """[heads, rows, dim] as [1, rows, heads * dim]."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).reshape(1, array.shape[1], -1)


def attention(problem, threads):
    q, k, v = (x[None] for x in (problem.q, problem.k, problem.v))
    return Contestant(
        "Attention", "", "qkv", dict(q=q, k=k, v=v), dict(out=q), dict(is_causal=int(problem.shape.causal)), threads,
        lambda x: x[0])


def heads_first(shape):
    return lambda x: x.reshape(shape.q_len, shape.heads, shape.head_dim).swapaxes(0, 1)


def multi_head_attention(problem, threads):
    shape = problem.shape
    if shape.heads != shape.kv_heads:
        return None  # has no such thing
    q = rows_first(problem.q)
    # Heads first is how a cache comes, and saves a copy; rows first may take the fused path. Each where it is faster.
    arrange = (lambda x: x[None]) if shape.q_len == 1 else rows_first
    return Contestant(
        "MultiHeadAttention", "com.microsoft", "qkv", dict(q=q, k=arrange(problem.k), v=arrange(problem.v)),
        dict(out=q), dict(num_heads=shape.heads), threads, heads_first(shape))


def group_query_attention(problem, threads):
    """Keys and values come as a cache that the operator puts the rows of its queries into, in place: it holds all."""
    shape = problem.shape
    if shape.heads == shape.kv_heads:
        return None  # is for models with fewer key heads, and always causal
    q = rows_first(problem.q)
    k, v = problem.k[None], problem.v[None]
    inputs = dict(
        q=q, k=rows_first(problem.k[:, -shape.q_len :]), v=rows_first(problem.v[:, -shape.q_len :]), past_k=k, past_v=v,
        last=np.array([shape.kv_len - 1], np.int32), total=np.array([shape.kv_len], np.int32))
    return Contestant(
        "GroupQueryAttention", "com.microsoft", list(inputs), inputs, dict(out=q, present_k=k, present_v=v),
        dict(num_heads=shape.heads, kv_num_heads=shape.kv_heads), threads, heads_first(shape),
        like=dict(present_k="past_k", present_v="past_v"))


OPERATORS = [attention, multi_head_attention, group_query_attention]
