"""What `accelerator.py` has found so far, in a file that is whole after every entry."""

from __future__ import annotations

import gc
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Left = Callable[[], float]
"""Seconds that are left."""


class Findings:
    """Entries by section. Called with a name and a value, it notes them; printed and written at once."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.section = file, ""
        self.entries: dict[str, dict[str, Any]] = {}
        self.began = time.perf_counter()

    def __call__(self, name: str, value: Any) -> None:
        """Note a finding of this section."""
        at = round(time.perf_counter() - self.began, 1)
        self.entries.setdefault(self.section, {})[name] = value
        print(f"[{at:7.1f}] {self.section} {name}: {json.dumps(value, default=str)[:700]}", flush=True)
        self.write()

    def attempt(self, name: str, run: Callable[[], Any]) -> None:
        """Run, and note how it fails."""
        try:
            run()
        except Exception as error:  # whatever it is, the rest goes on
            lines = traceback.format_exc().splitlines()
            self(f"{name} FAILED", {"error": f"{type(error).__name__}: {error}"[:600], "traceback": lines[-24:]})
        finally:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def write(self) -> None:
        """To the file, in one step."""
        if self.file is None:
            return
        aside = self.file.with_suffix(".part")
        aside.write_text(json.dumps(self.entries, indent=1, default=str) + "\n", encoding="utf-8")
        aside.replace(self.file)


def clock(device: str | torch.device) -> float:
    """Seconds, with all work on the device done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
