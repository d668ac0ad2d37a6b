"""Bad input against every command and the Python API: is every refusal one clear sentence?

    python benchmarks/campaign.py                  # all cases, a few minutes of one core
    python benchmarks/campaign.py --every 5        # each fifth
    python benchmarks/campaign.py --only received  # cases whose name matches the pattern

Every case runs in a process of its own, forked from this one, in a folder of its own, with 6 GiB of data beyond what
this process has and 30 seconds of processor time. What becomes of it:

    clear       it ends with 1 or 2 and one paragraph on standard error (faults of a study file stand listed below it)
    accepted    it ends with 0, and that is right
    lenient     it ends with 0, and should not
    refused     it is refused, and should not be
    unforeseen  "something went wrong that lesion did not foresee", a traceback, or another exception than LesionError
    hang        30 seconds of processor time, or 20 in which nothing happens
    crash       it is ended by a signal
    control     a control character or an override of direction reaches the terminal
    noise       something else stands on standard error before the paragraph
    lines       more than one paragraph
    long        more than 2,000 characters
    unhelpful   a bare word of Python's ("list index out of range", "'metadata'"), or a sentence without its end
    damage      a file outside of the case's own folder is made or changed

The share of clear cases is of those that are not accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from campaign_calls import calls
from campaign_cases import CHANGED, FOREIGN, Case, cases
from campaign_places import make
from campaign_received import received

RESULTS = Path(__file__).parent / "results" / "campaign_cpu_2026-11.json"
SECONDS, STILL, MEMORY, LONGEST = 30, 20, 6 << 30, 2000
LENT = "the victim"
# Lines that are ours: notes, and how many answers, texts, layers or steps there are so far.
_PROGRESS = re.compile(r"^\s*$|^note: |: [\d,]+ (of [\d,]+ )?[a-z]|block \d+, rate")
_BARE = re.compile(
    r"list index|out of range|has no attribute|not subscriptable|unhashable|'NoneType' object|not iterable"
    r"|unsupported operand|invalid literal|cannot be read: '\w+'\.|argument must be|object is not|unpack",
)


def outcome(case: Case, status: int, seconds: float, out: str, err: str, damage: str) -> str:
    """What became of a case (see above), by its status as `os.waitpid` gives it and what it wrote."""
    if os.WIFSIGNALED(status):
        hung = os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU)
        return "hang" if hung else "crash"
    code = os.WEXITSTATUS(status)
    text = out + err
    if code == FOREIGN or "did not foresee" in text or "Traceback" in text:
        return "unforeseen"
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter not in "\n\t\u200c\u200d" for letter in text):
        return "control"
    if damage or code == CHANGED:
        return "damage"
    if code == 0:
        return "lenient" if case.expect == "refused" else "accepted"
    if case.expect == "accepted":
        return "refused"
    if code not in (1, 2):
        return "crash"
    before, mark, paragraph = err.partition("lesion: ")
    if not mark and "lesion --help" in text and not case.arguments:
        return "clear"  # where to start
    if not mark and "Usage: lesion" in text and len(case.arguments) < 2:
        return "clear"  # the help of a group of commands
    if not mark or any(not _PROGRESS.search(line) for line in before.splitlines()):
        return "noise"
    first, *below = paragraph.rstrip("\n").split("\n")
    if any(not line.startswith("  ") for line in below):
        return "lines"
    if len(paragraph) > LONGEST:
        return "long"
    if _BARE.search(paragraph) or len(first) < 20 or not (below or first.endswith((".", "?"))):
        return "unhelpful"
    return "clear"


def run(case: Case, folder: Path) -> tuple[str, float, str]:
    """Run a case in a folder of its own; its outcome, its processor time in seconds, and the end of what it said."""
    inside = folder / "inside"
    inside.mkdir(parents=True)
    folder.chmod(0o755)
    inside.chmod(0o777)
    victim = folder / "victim"
    victim.write_text(LENT)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        _child(case, folder, inside)
    status, seconds = _watched(process)
    out, err = ((folder / name).read_text(encoding="utf-8", errors="backslashreplace") for name in ("stdout", "stderr"))
    there = {path.name for path in folder.iterdir()} - {"inside", "stdout", "stderr", "victim"}
    damage = f"{there} made" if there else "" if victim.read_text() == LENT else "the victim changed"
    return outcome(case, status, seconds, out, err, damage), seconds, (err or out)[-600:]


def _child(case: Case, folder: Path, inside: Path) -> None:
    """Become the case; never returns."""
    code = FOREIGN
    try:
        os.setsid()
        os.chdir(inside)
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", 0), (2, "stderr", 0)):
            place = name if number == 0 else str(folder / name)
            os.dup2(os.open(place, flags or os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
        if case.prepare is not None:
            case.prepare(inside)
        if case.plain_user:
            os.seteuid(65534)
        resource.setrlimit(resource.RLIMIT_DATA, (_memory() + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        before = case.digest(inside)
        code = case.call()
        if code and case.digest(inside) != before:
            code = CHANGED
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                code = FOREIGN
        os._exit(code)


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _watched(process: int) -> tuple[int, float]:
    """Wait for a process; ended is one in which nothing happens, or that is not done after ten minutes."""
    begun = moved = time.monotonic()
    used, pause = -1.0, 0.005
    while True:
        done, status, usage = os.wait4(process, os.WNOHANG)
        if done:
            return status, usage.ru_utime + usage.ru_stime
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
        now = time.monotonic()
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if (busy := sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")) > used:
            used, moved = busy, now
        if now - moved > STILL or now - begun > 600:
            os.killpg(process, signal.SIGKILL)


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    return found.stdout.strip()


def _prepared(places: Path) -> Callable[[list[str], Path], None]:
    def command(arguments: list[str], place: Path) -> None:
        made = run(Case("preparing", arguments=tuple(arguments), expect="accepted"), places / f"run-{time.time_ns()}")
        if made[0] != "accepted":
            raise SystemExit(f"{' '.join(arguments)}: {made[0]}: {made[2]}")

    return command


def tally(results: list[dict[str, Any]]) -> dict[str, Any]:
    """How many cases ended how, and the share of clear ones among those that are not accepted."""
    counts = Counter(result["outcome"] for result in results)
    others = len(results) - counts["accepted"]
    return {
        "cases": len(results),
        **dict(counts.most_common()),
        "clear_share": counts["clear"] / others if others else None,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--every", type=int, default=1, help="run each Nth case")
    options.add_argument("--only", default="", help="run cases whose name matches this pattern")
    options.add_argument("--places", type=Path, help="a folder for the material, kept for the next time")
    options.add_argument("--results", type=Path, default=RESULTS)
    options.add_argument("--show", action="store_true", help="print what every case said")
    chosen = options.parse_args()
    from lesion.cli import main as commands
    from lesion.report import drawing

    drawing.SCALE = 0.3
    commands._command()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        root = chosen.places or Path(scratch) / "places"
        Path(scratch).chmod(0o755)
        places = make(root.resolve(), _prepared(Path(scratch)))
        import lesion

        model = lesion.load(str(places.model))
        groups = {"commands": [*cases(places), *received(places)], "calls": calls(places, model)}
        report: dict[str, Any] = {"commit": _commit(), "machine": platform.processor() or platform.machine()}
        for group, all_cases in groups.items():
            results: list[dict[str, Any]] = []
            for case in [case for case in all_cases if re.search(chosen.only, f"{group} {case.name}")][:: chosen.every]:
                folder = Path(scratch) / "case"
                found, seconds, said = run(case, folder)
                shutil.rmtree(folder)
                results.append({"case": case.name, "outcome": found, "seconds": round(seconds, 2), "said": said})
                if found not in ("clear", "accepted") or chosen.show:
                    print(f"{found:10} {case.name!a}\n           {said.strip()[-300:]!a}", flush=True)
            counted = tally(results)
            kept = [result for result in results if result["outcome"] not in ("clear", "accepted")]
            total = sum(float(result["seconds"]) for result in results)
            report[group] = {**counted, "processor_seconds": round(total), "others": kept}
            print(f"{group}: {counted}; {total:.0f} s of processor time", flush=True)
    report["minutes"] = round((time.monotonic() - begun) / 60, 1)
    chosen.results.parent.mkdir(exist_ok=True)
    chosen.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
