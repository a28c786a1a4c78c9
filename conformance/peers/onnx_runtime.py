"""ONNX Runtime's attention operators, each a model of one node, through its C interface: that is how its own users in C
and C++ call it, and nothing is copied on the way."""
import ctypes
import glob
import os
import struct

import numpy as np

from contestant import Contestant

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "..", "..", "build", "peers", "node_modules", "onnxruntime-node")


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


KINDS = {"float32": 1, "int32": 6}  # of elements, in models and in the C interface


def tensor_type(name, array):
    dims = b"".join(field(1, field(1, size)) for size in array.shape)
    return field(1, name) + field(2, field(1, field(1, KINDS[array.dtype.name]) + field(2, dims)))


def model(operator, domain, inputs, outputs, attributes):
    node = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    node += field(4, operator) + field(7, domain)
    for name, value in attributes.items():
        is_float = isinstance(value, float)
        node += field(5, field(1, name) + field(2 if is_float else 3, value) + field(20, 1 if is_float else 2))
    graph = field(1, node) + field(2, operator)
    graph += b"".join(field(11, tensor_type(name, array)) for name, array in inputs.items())
    graph += b"".join(field(12, tensor_type(name, array)) for name, array in outputs.items())
    imports = field(8, field(1, "") + field(2, 23)) + field(8, field(1, "com.microsoft") + field(2, 1))
    return field(1, 10) + imports + field(7, graph)


# ---- The C interface: a table of functions, whose places no later version changes


class Api:
    PLACES = dict(
        GetErrorMessage=2, CreateEnv=3, CreateSessionFromArray=8, Run=9, CreateSessionOptions=10,
        SetIntraOpNumThreads=24, CreateTensorWithDataAsOrtValue=49, CreateCpuMemoryInfo=69, ReleaseStatus=93,
        ReleaseSession=95, ReleaseValue=96, ReleaseSessionOptions=100)

    def __init__(self, path):
        get_base = ctypes.CDLL(path).OrtGetApiBase
        get_base.restype = ctypes.POINTER(ctypes.c_void_p)
        base = get_base()
        self.version = ctypes.CFUNCTYPE(ctypes.c_char_p)(base[1])().decode()
        table = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p))(base[0])(ctypes.c_uint32(1))
        self.functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_char_p if name == "GetErrorMessage" else ctypes.c_void_p)(table[place])
            for name, place in self.PLACES.items()}
        self.environment = self.make("CreateEnv", 3, b"peers")  # 3: errors alone are worth a message
        self.memory = self.make("CreateCpuMemoryInfo", 1, 0)

    def call(self, name, *args):
        status = self.functions[name](*args)
        if status:
            message = self.functions["GetErrorMessage"](ctypes.c_void_p(status)).decode()
            self.release("Status", ctypes.c_void_p(status))
            raise RuntimeError(f"ONNX Runtime: {message}")

    def make(self, name, *args):
        made = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(made))
        return made

    def release(self, kind, handle):
        self.functions["Release" + kind](handle)


def load():
    """None if it isn't installed."""
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(os.uname().machine)
    files = glob.glob(os.path.join(PACKAGE, "bin", "napi-v*", os.uname().sysname.lower(), machine or "", "libonnxruntime.*"))
    return Api(sorted(files)[-1]) if files else None


# ---- Contestants


class Operator(Contestant):
    def __init__(self, api, threads, operator, domain, inputs, outputs, attributes, unpack):
        """Outputs are arrays that are written in place; one that is also an input is worked on in place."""
        self.api = api
        options = api.make("CreateSessionOptions")
        try:
            api.call("SetIntraOpNumThreads", options, ctypes.c_int(threads))
            data = model(operator, domain, inputs, outputs, attributes)
            self.session = api.make("CreateSessionFromArray", api.environment, data, ctypes.c_size_t(len(data)), options)
        finally:
            api.release("SessionOptions", options)
        self.arrays = [*inputs.values(), *outputs.values()]  # have to live as long as what refers to them
        self.values = [self.tensor(array) for array in self.arrays]
        names = lambda tensors: (ctypes.c_char_p * len(tensors))(*(name.encode() for name in tensors))
        values = lambda some: (ctypes.c_void_p * len(some))(*(value.value for value in some))
        size = len(inputs)
        arguments = (
            self.session, None, names(inputs), values(self.values[:size]), ctypes.c_size_t(size), names(outputs),
            ctypes.c_size_t(len(outputs)), values(self.values[size:]))
        try:
            super().__init__(
                "ORT " + operator, lambda: api.call("Run", *arguments), unpack(next(iter(outputs.values()))))
        except RuntimeError:
            self.close()
            raise

    def tensor(self, array):
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        return self.api.make(
            "CreateTensorWithDataAsOrtValue", self.api.memory, ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes), shape, ctypes.c_size_t(array.ndim), KINDS[array.dtype.name])

    def close(self):
        for value in self.values:
            self.api.release("Value", value)
        self.api.release("Session", self.session)


def rows_first(array):
    """[heads, rows, dim] as [1, rows, heads * dim]."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).reshape(1, array.shape[1], -1)


def heads_first(shape):
    return lambda x: x.reshape(shape.q_len, shape.heads, shape.head_dim).swapaxes(0, 1)


def attention(api, threads, problem):
    q, k, v = (x[None] for x in (problem.q, problem.k, problem.v))
    return Operator(
        api, threads, "Attention", "", dict(q=q, k=k, v=v), dict(out=np.empty_like(q)),
        dict(is_causal=int(problem.shape.causal)), lambda x: x[0])


def multi_head_attention(api, threads, problem):
    shape = problem.shape
    if shape.heads != shape.kv_heads:
        return None  # has no such thing
    q = rows_first(problem.q)
    # Heads first is how a cache comes, and saves a copy; rows first may take the fused path. Each where it is faster.
    arrange = (lambda x: x[None]) if shape.q_len == 1 else rows_first
    return Operator(
        api, threads, "MultiHeadAttention", "com.microsoft", dict(q=q, k=arrange(problem.k), v=arrange(problem.v)),
        dict(out=np.empty_like(q)), dict(num_heads=shape.heads), heads_first(shape))


def group_query_attention(api, threads, problem):
    """Keys and values come as a cache that the operator puts the rows of its queries into, in place: it holds all."""
    shape = problem.shape
    if shape.heads == shape.kv_heads:
        return None  # is for models with fewer key heads, and always causal
    q = rows_first(problem.q)
    k, v = problem.k[None], problem.v[None]
    inputs = dict(
        q=q, k=rows_first(problem.k[:, -shape.q_len :]), v=rows_first(problem.v[:, -shape.q_len :]), past_k=k, past_v=v,
        last=np.array([shape.kv_len - 1], np.int32), total=np.array([shape.kv_len], np.int32))
    return Operator(
        api, threads, "GroupQueryAttention", "com.microsoft", inputs,
        dict(out=np.empty_like(q), present_k=k, present_v=v),
        dict(num_heads=shape.heads, kv_num_heads=shape.kv_heads), heads_first(shape))


OPERATORS = [attention, multi_head_attention, group_query_attention]
