"""Threads change no bit; calls may come from any thread, and from the child of a fork; other threads run meanwhile."""
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import exattn
import support

Q, K, V = (support.floats(n, 2, 4, 200, 32) for n in range(3))
WANTED = exattn.sha256(exattn.attention(Q, K, V, causal=True, threads=1))


def computed(threads):
    return exattn.sha256(exattn.attention(Q, K, V, causal=True, threads=threads))


class Threads(unittest.TestCase):
    def test_counts(self):
        for threads in (None, 1, 2, 3, 7):
            self.assertEqual(computed(threads), WANTED)
        self.assertEqual(len({exattn.sha256(exattn.softmax(Q, threads=n)) for n in (None, 1, 2, 5)}), 1)

    def test_lanes(self):
        usable = [name for name, lanes in exattn.info()["lanes"].items() if lanes["exact"]]
        self.assertIn("scalar", usable)
        for lanes in usable:
            self.assertEqual(exattn.sha256(exattn.attention(Q, K, V, causal=True, lanes=lanes)), WANTED, lanes)

    def test_pools_are_kept(self):
        def threads_of_process():
            return len(os.listdir("/proc/self/task"))

        if not sys.platform.startswith("linux"):
            return
        computed(3)
        before = threads_of_process()
        for _ in range(20):
            computed(3)
        self.assertEqual(threads_of_process(), before)

    def test_concurrent_calls(self):
        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            self.assertEqual(set(callers.map(computed, [1, 2, 3, None] * 16)), {WANTED})

    def test_others_run_meanwhile(self):
        ticks, stop = 0, threading.Event()

        def tick():
            nonlocal ticks
            while not stop.is_set():
                time.sleep(0.001)
                ticks += 1

        other = threading.Thread(target=tick)
        other.start()
        try:
            q = support.floats(9, 1, 1, 1024, 64)
            for heads in (8, 64, 512, 2048):
                many = [q] * 3
                many = [x.repeat(heads, axis=1) for x in many]
                before = ticks
                exattn.attention(*many, threads=1)
                during = ticks - before
                if during > 10:
                    break
        finally:
            stop.set()
            other.join()
        # With the lock held there would be one or two at the ends of a call, however long it takes.
        self.assertGreater(during, 10)


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forks(unittest.TestCase):
    def in_child(self, check):
        """Whether check() holds in the child of a fork; False, too, if it does not come back."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if check() else 1
            finally:
                os._exit(code)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def test_child_has_its_own_threads(self):
        self.assertEqual(computed(2), WANTED)
        self.assertTrue(self.in_child(lambda: computed(2) == WANTED and computed(3) == WANTED))
        self.assertTrue(self.in_child(lambda: self.in_child(lambda: computed(2) == WANTED)))  # and its child's child
        self.assertEqual(computed(2), WANTED)

    def test_fork_during_a_call(self):
        stop = threading.Event()

        def call():
            while not stop.is_set():
                computed(2)

        caller = threading.Thread(target=call)
        caller.start()
        try:
            for _ in range(5):
                self.assertTrue(self.in_child(lambda: computed(2) == WANTED))
        finally:
            stop.set()
            caller.join()

    def test_exit_during_a_call(self):
        # A daemon thread may be computing when the interpreter ends.
        program = ("import threading, support, exattn, time\n"
                   "q = support.floats(1, 1, 64, 1024, 64)\n"
                   "call = lambda: [exattn.attention(q, q, q, threads=2) for n in range(100)]\n"
                   "threading.Thread(target=call, daemon=True).start()\n"
                   "time.sleep(0.3)\n")
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
