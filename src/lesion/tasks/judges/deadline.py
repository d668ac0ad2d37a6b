"""A time limit on a piece of Python work, in any thread and without signals or subprocesses."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

AGAIN = 0.5
"""Seconds after which work that swallowed the interruption is interrupted again."""
PATIENCE = 10
"""How many times its limit work may take by the wall clock, where other programs hold the processor or it waits."""


class _Expired(BaseException):
    """Raised inside the work by the watcher; no Exception, so that the work's own handlers let it through."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work()` returns, if it returns within `seconds` of processor time.

    Processor time of the calling thread, so that a busy machine changes no verdict; and at most `PATIENCE` times as
    much by the wall clock, which alone counts where a thread has no clock of its own (Windows). A watcher thread
    raises an exception in the calling thread when the time is over, and again every half second should the work have
    swallowed it. It arrives between two bytecodes: one long call into C (raising an integer to a huge power) is not
    interrupted, so such calls must be kept out by other means. Garbage collection rests meanwhile.
    """
    caller = ctypes.c_ulong(threading.get_ident())
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    returned = threading.Event()
    guard = threading.Lock()
    over = sent = False
    computed = _processor_clock()
    start = computed()

    def watch() -> None:
        nonlocal sent
        wait, latest = seconds, time.monotonic() + PATIENCE * seconds
        while not returned.wait(wait):
            left = min(seconds - (computed() - start), latest - time.monotonic())
            if not sent and left > 0:
                wait = max(left, 1e-3)
                continue
            with guard:
                if over:
                    return
                sent = True
                interrupt(caller, ctypes.py_object(_Expired))
            wait = AGAIN

    watcher = threading.Thread(target=watch, name="lesion-deadline", daemon=True)

    def settle() -> None:
        nonlocal over
        while True:
            try:
                with guard:
                    over = True  # from here on nothing more is sent
                break
            except _Expired:
                continue
        if sent:
            # What was sent may still be on its way. Taken back with NULL, CPython 3.11 would go on looking for it, and
            # never leave the head of a function while a trace function is set. So one more is sent, which takes the
            # place of one on its way, and is met here.
            try:
                interrupt(caller, ctypes.py_object(_Expired))
                while True:
                    pass
            except _Expired:
                pass
        # Only now: an exception inside `Thread.join` can mark a running thread as stopped.
        returned.set()
        watcher.join()

    # An interruption inside a callback of the garbage collector would be reported and lost.
    with _no_collection():
        try:
            try:
                watcher.start()  # the time may be over before this returns
                return work()
            finally:
                settle()
        except _Expired:
            settle()
            raise TimeoutError(f"not done within {seconds:g} s") from None


def _processor_clock() -> Callable[[], float]:
    """The seconds for which the calling thread has computed, for any thread to read; else those that have gone by."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


_counting = threading.Lock()
_paused = 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage collection off, until the last of the threads that want it so has left."""
    global _paused
    with _counting:
        was_on = gc.isenabled() or _paused > 0
        _paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _counting:
            _paused -= 1
            if _paused == 0 and was_on:
                gc.enable()
