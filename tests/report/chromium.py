"""A page in a headless Chromium, driven over the DevTools pipe: no driver to install, no port to open."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

PLACES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def found() -> str | None:
    """The path of an installed Chromium, or None."""
    return next((path for name in PLACES if (path := shutil.which(name))), None)


class Chromium:
    """One tab. Collects requests, exceptions and console messages, in `requests` and `complaints`."""

    def __init__(self, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        path = found()
        assert path is not None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._count = 0
        self._buffer = b""
        self._usual = (width, height, dark)
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        there, self._out = os.pipe()
        self._in, back = os.pipe()

        def place() -> None:  # Chromium reads commands from 3 and writes to 4
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, back)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        self._process = subprocess.Popen(
            [path, *options, "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        targets = self._send("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session: str | None = None
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._send(f"{domain}.enable")
        self._show(*self._usual)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        """No script runs of the pages that are opened in between, as where a reader has switched them off."""
        self._send("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield
        finally:
            self._send("Emulation.setScriptExecutionDisabled", value=False)

    def open(self, url: str) -> None:
        """Load an address and wait until it and its script have run."""
        deadline = time.monotonic() + 30
        self._send("Page.navigate", url="about:blank")  # else another fragment would be no new load
        while self.ask("location.href") != "about:blank":
            assert time.monotonic() < deadline, "the former page was not left within 30 seconds"
        self.requests.clear()
        self.complaints.clear()
        self._send("Page.navigate", url=url)
        while self.ask("document.readyState + location.href.startsWith('about:')") != "completefalse":
            assert time.monotonic() < deadline, "the page was not loaded within 30 seconds"
            time.sleep(0.05)
        self.ask("typeof ready === 'undefined' ? null : ready")

    @contextmanager
    def shown(self, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[None]:
        """The tab as a window of another size, below 600 pixels a phone's, or in the dark."""
        self._show(width, height, dark)
        try:
            yield
        finally:
            self._show(*self._usual)

    def _show(self, width: int, height: int, dark: bool) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, of a promise when it is resolved."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key pressed and let go, as the keyboard would."""
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def move(self, x: float, y: float) -> None:
        """The mouse moved to a place in the window."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """A click with the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 16)
            assert piece, "Chromium went away"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(str(parameters["args"]))


def assert_tables_sort_by_number(tab: Chromium) -> None:
    """Every table of the page that is open sorts by each of its columns of numbers, what is none at the end."""
    for table in range(tab.ask("document.querySelectorAll('table.sortable').length")):
        of_table = f"document.querySelectorAll('table.sortable')[{table}]"
        columns = tab.ask(f"[...{of_table}.tHead.rows[0].cells].map((c, i) => c.classList.contains('n') ? i : -1)")
        for column in (column for column in columns if column >= 0):
            tab.ask(f"{of_table}.tHead.rows[0].cells[{column}].querySelector('button').click()")
            values = tab.ask(f"[...{of_table}.tBodies[0].rows].map(r => r.cells[{column}].dataset.v)")
            known = [float(value) for value in values if value != "None"]
            assert known == sorted(known)
            assert values[: len(known)] == [value for value in values if value != "None"]


def assert_quiet(tab: Chromium, address: str) -> None:
    """The page opens under its policy without complaint, and nothing but it is requested."""
    tab.open(address)
    assert tab.complaints == []
    assert tab.requests == [address]
