"""A time limit on a piece of Python work, in any thread and without signals or subprocesses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class _Expired(BaseException):
    """Raised inside the work by the watcher; no Exception, so that the work's own handlers let it through."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work()` returns, if it returns within `seconds`.

    A watcher thread raises an exception in the calling thread when the time is over, and again every tenth of
    a second should the work have swallowed it. It arrives between two bytecodes: one long call into C
    (raising an integer to a huge power) is not interrupted, so such calls must be kept out by other means.

    Raises:
        TimeoutError: the work took longer.
    """
    caller = ctypes.c_ulong(threading.get_ident())
    over = threading.Event()
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            interrupt(caller, ctypes.py_object(_Expired))
            wait = 0.1

    watcher = threading.Thread(target=watch, name="lesion-deadline", daemon=True)

    def settle() -> None:
        while True:
            try:
                over.set()
                watcher.join()
                interrupt(caller, None)  # nothing that was on its way may arrive after the return
                return
            except _Expired:
                continue

    watcher.start()
    try:
        try:
            return work()
        finally:
            settle()
    except _Expired:
        settle()
        raise TimeoutError(f"not done within {seconds:g} s") from None
