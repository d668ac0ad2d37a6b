"""How threads of torch wait for each other: soon asleep, so that a busy machine is not kept busier by waiting."""

from __future__ import annotations

import os
import sys

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""Variables by which a person decides how threads wait."""
# About 20 µs, what it costs to sleep and be woken: less is slower on an idle machine, more on a busy one.
_SPINS = "2000"


def sleep_while_waiting() -> None:
    """Let OpenMP's threads fall asleep soon where they wait, unless the person has decided or torch is there already.

    By default they spin for milliseconds, and where other programs need the processors they spin against the very
    thread that they wait for (`benchmarks/busy.py`). OpenMP reads this once, when torch is imported. How many threads
    there are stays as it is: sums of another number of threads are rounded in another order.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOSEN):
        # GNU's OpenMP obeys the second, others the first.
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": _SPINS}


def warn_of_spinning(threads: int) -> None:
    """Say what to do where so many threads of torch spin while they wait, on a machine that is busy.

    Warns:
        UserWarning: torch was imported before lesion, nobody has decided how its threads wait, and the machine has more
            to do than it has processors.
    """
    if threads == 1 or any(name in os.environ for name in CHOSEN) or not hasattr(os, "getloadavg"):
        return
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        import warnings

        warnings.warn(
            "torch was imported before lesion, and this machine is busy: torch's threads spin while they wait for each"
            " other, which can make everything several times slower. Import lesion first, set OMP_WAIT_POLICY=PASSIVE,"
            " or call torch.set_num_threads(1).",
            stacklevel=3,
        )
