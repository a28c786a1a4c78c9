"""Measures with one number of threads, which BLAS wants to know before it is loaded: a process for each. Called by
scripts/bench-peers, with one JSON object as argument; answers with lines of JSON on standard output."""
import ctypes
import json
import signal
import sys
import time
from statistics import median

import numpy

import in_process
import onnx_runtime
from shapes import SHAPES, Problem, Shape

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


def makers(problem, exattn, threads):
    yield from (lambda flavour=flavour: exattn.contestant(flavour, problem) for flavour in (0, 1))
    if onnx_runtime.version():
        yield from (lambda make=make: make(problem, threads) for make in onnx_runtime.OPERATORS)
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


def measure(shape, rounds, exattn, threads):
    problem = Problem(shape)
    failures, made = [], []
    try:
        for make in makers(problem, exattn, threads):
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


def empty_call(threads):
    """Milliseconds of a call of ONNX Runtime that has next to nothing to compute: the cost of calling it."""
    contestant = onnx_runtime.attention(Problem(Shape("one number", 1, 1, 1, 1, 1, False)), threads)
    try:
        return median(contestant.turn(100) for _ in range(5))
    finally:
        contestant.close()


def main():
    task = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the processes of ONNX Runtime
    threads = task["threads"]
    try:
        exattn = in_process.Exattn(task["library"], threads)
    except (AttributeError, OSError, RuntimeError) as error:
        sys.exit(f"bench-peers: exattn's library can't be used: {error}")
    if torch:
        torch.set_num_threads(threads)
    if not task["shapes"]:
        print(json.dumps({
            "exattn": exattn.version(), "ONNX Runtime": onnx_runtime.version(), "numpy": numpy.__version__,
            "BLAS": blas(), "torch": torch and torch.__version__}))
        return
    call = empty_call(threads) if onnx_runtime.version() else None
    for shape in SHAPES:
        if shape.name in task["shapes"]:
            result = measure(shape, task["rounds"], exattn, threads)
            print(json.dumps(dict(result, empty_onnx_runtime_call_ms=call)), flush=True)


main()
