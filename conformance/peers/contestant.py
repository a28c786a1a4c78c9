"""What takes turns with others."""
import time

import numpy as np


class Contestant:
    def __init__(self, name, call, out):
        self.name, self.call, self.out = name, call, out
        out.fill(np.nan)
        call()  # warms up

    def turn(self, times):
        """Milliseconds of one call: the mean of so many, after one that doesn't count where they are short."""
        if times > 1:
            self.call()
        before = time.perf_counter()
        for _ in range(times):
            self.call()
        return (time.perf_counter() - before) * 1e3 / times

    def close(self):
        pass
