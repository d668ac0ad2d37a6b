"""Recorders of decoding steps for a CPU: graphs of torch's operations, which stand for the kernels of a CUDA graph."""

from collections import Counter

import torch
from torch.fx.experimental.proxy_tensor import make_fx


class Recorder:
    """Records steps as graphs of operations, and counts its recordings and replays."""

    def __init__(self):
        self.calls = Counter()

    def __call__(self):
        return self.record

    def record(self, step):
        step()

        def run(nothing):
            step()
            return nothing

        graph, nothing = make_fx(run)(torch.zeros(1)), torch.zeros(1)
        self.calls["recorded"] += 1

        def replay():
            self.calls["replayed"] += 1
            graph.forward(nothing)  # called as a module, it would count as one

        return replay


def anew():
    """A recorder that records nothing: each step runs anew."""
    return None
