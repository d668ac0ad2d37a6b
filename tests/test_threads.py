"""How threads wait: asleep, decided before torch is imported, never against the person's own setting."""

import json
import os
import re
import subprocess
import sys
import warnings

import pytest

from lesion.threads import CHOSEN, sleep_while_waiting, warn_of_spinning

SHOWN = "print(json.dumps([os.environ.get('OMP_WAIT_POLICY'), torch.get_num_threads()]))"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """A new process without any setting of OpenMP; it shows what its OpenMP has read."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**plain, "OMP_DISPLAY_ENV": "VERBOSE"},
        timeout=300,
        check=True,
    )


def test_openmp_of_torch_reads_that_its_threads_sleep():
    done = python(f"import json, os, lesion, torch; {SHOWN}")
    assert json.loads(done.stdout)[0] == "PASSIVE"
    assert set(re.findall(r"OMP_WAIT_POLICY ?= ?'(\w+)'", done.stderr)) == {"PASSIVE"}
    assert set(re.findall(r"GOMP_SPINCOUNT ?= ?'(\d+)'", done.stderr)) <= {"2000"}  # of GNU's OpenMP alone


@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_person_has_set_is_left_alone(name, monkeypatch):
    for other in CHOSEN:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "1")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    sleep_while_waiting()
    assert {other: os.environ.get(other) for other in CHOSEN} == {
        other: "1" if other == name else None for other in CHOSEN
    }


def test_a_program_that_imports_torch_and_not_lesion_is_left_alone():
    done = python(f"import json, os, torch; {SHOWN}")
    assert json.loads(done.stdout)[0] is None


@pytest.mark.parametrize(("load", "warned"), [(1e6, True), (0.0, False)])
def test_a_torch_that_was_imported_first_is_warned_of_on_a_busy_machine_alone(load, warned, monkeypatch):
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_spinning(2)
        warn_of_spinning(1)
    assert ["Import lesion first" in str(warning.message) for warning in caught] == [True] * warned
