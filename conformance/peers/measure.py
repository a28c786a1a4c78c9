"""Measures with one number of threads, which BLAS wants to know before it is loaded: a process for each. Called by
scripts/bench-peers, with one JSON object as argument; answers with lines of JSON on standard output."""
import ctypes
import json
import signal
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever started this says what has to be said

import numpy

import in_process
import onnx_runtime
from shapes import SHAPES, Problem

try:
    import torch
except ImportError:
    torch = None


def blas():
    """The library that numpy's products are in: by what it says of itself if it is OpenBLAS, else by its path."""
    try:
        with open("/proc/self/maps") as maps:
            paths = sorted({line.split()[-1] for line in maps if "blas" in line})
    except OSError:
        return "unknown"
    for path in paths:
        describe = getattr(ctypes.CDLL(path), "openblas_get_config", None)
        if describe:
            describe.restype = ctypes.c_char_p
            words = describe().decode().split()
            return f"{words[0]} {words[1]} ({words[-2]})"
    return ", ".join(paths) or "unknown"


def makers(problem, exattn, onnx, threads):
    yield from (lambda flavour=flavour: exattn.contestant(flavour, problem) for flavour in (0, 1))
    if onnx:
        yield from (lambda make=make: make(onnx, threads, problem) for make in onnx_runtime.OPERATORS)
    yield lambda: in_process.numpy_naive(problem)
    yield lambda: in_process.numpy_tiled(problem)
    if torch:
        yield lambda: in_process.torch_attention(problem)


def settle():
    """Waits until threads of this process have stopped spinning for more work."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.005)
        if time.process_time() - before < 0.001:
            return


def measure(shape, rounds, exattn, onnx, threads):
    problem = Problem(shape)
    failures, made = [], []
    try:
        for make in makers(problem, exattn, onnx, threads):
            try:
                made.append(make())
            except RuntimeError as error:  # such as an operator that this version lacks
                failures.append(str(error))
        made = [contestant for contestant in made if contestant]
        times = {contestant.name: [] for contestant in made}
        for _ in range(rounds):
            for contestant in made:
                settle()
                times[contestant.name].append(contestant.turn(shape.repeats))
        errors = {contestant.name: problem.greatest_error(contestant.out) for contestant in made}
    finally:
        for contestant in filter(None, made):
            contestant.close()
    results = {name: dict(times_ms=times[name], max_abs_error=errors[name]) for name in times}
    return dict(shape=shape.name, threads=threads, repeats=shape.repeats, failures=failures, contestants=results)


def main():
    task = json.loads(sys.argv[1])
    threads = task["threads"]
    try:
        exattn = in_process.Exattn(task["library"], threads)
    except (AttributeError, OSError, RuntimeError) as error:
        sys.exit(f"bench-peers: exattn's library can't be used: {error}")
    try:
        onnx = onnx_runtime.load()
    except (OSError, RuntimeError) as error:
        sys.exit(f"bench-peers: ONNX Runtime can't be used: {error}")
    if torch:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
    if not task["shapes"]:
        print(json.dumps({
            "exattn": exattn.version(), "ONNX Runtime": onnx and onnx.version, "numpy": numpy.__version__,
            "BLAS": blas(), "torch": torch and torch.__version__}))
        return
    for shape in SHAPES:
        if shape.name in task["shapes"]:
            print(json.dumps(measure(shape, task["rounds"], exattn, onnx, threads)), flush=True)


if __name__ == "__main__":
    main()
