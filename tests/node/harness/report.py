"""What the run prints: each step with its time, and what it saw."""

import time


class Report:
    def __init__(self):
        self.began = time.monotonic()

    def __call__(self, text):
        print(f"[{time.monotonic() - self.began:6.1f} s]   {text}", flush=True)

    def step(self, title):
        print(f"[{time.monotonic() - self.began:6.1f} s] {title}", flush=True)
