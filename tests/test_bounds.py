"""Counts that cannot be meant are refused before work begins, and alike in study files, commands and Python."""

import pytest

from commandline import lesion
from lesion.bounds import MOST, check
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.studies.ablation.study import Study
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.study import IsolationStudy
from lesion.tasks.catalogue import find
from lesion_labs.memory.study import MemoryStudy

MODEL = "bundled:llama-base"
ASKED = f"{MODEL} --task primer:arithmetic --out OUT"


@pytest.mark.parametrize("name", MOST)
def test_the_most_is_allowed_and_one_more_is_not(name):
    check(**{name: MOST[name]})
    with pytest.raises(UsageError, match=f"^{name}: .* is too large; it goes up to {MOST[name]:,}"):
        check(**{name: MOST[name] + 1})
    with pytest.raises(UsageError):
        check(**{name: 10**5000})


COMMANDS = f"""
drift {ASKED} --runs 100000000
drift {ASKED} --clusters 100000000
isolate {MODEL} --skill primer:arithmetic --control primer:atlas --out OUT --repeats 1000000000
evaluate {ASKED} --random-controls 100000000
tune {ASKED} --rows 100000000
ablate {ASKED} --items 9999999999999999999999999
ablate {ASKED} --workers 100000000
ablate {MODEL} --task fewshot:99999999999:primer:arithmetic --out OUT
lab lineage --checkpoints 1000000 --out OUT
lab memory --width 10000000 --out OUT
lab recall --corpus /dev/zero --out OUT
run /dev/zero
"""


@pytest.mark.parametrize("command", COMMANDS.strip().splitlines())
def test_a_command_refuses_at_once_what_cannot_be_meant(command, capsys, tmp_path):
    done = lesion(capsys, *(str(tmp_path / "out") if part == "OUT" else part for part in command.split()))
    assert done.code == 2, done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_python_refuses_the_same():
    for refused in (
        lambda: DriftStudy.make(kind="drift", models=["m"], task="t", runs=10**8),
        lambda: DriftStudy.make(kind="drift", models=["m"], task="t", clusters=[50, 10**8]),
        lambda: IsolationStudy.make(kind="isolation", model="m", skill="s", controls=["c"], samples=10**12),
        lambda: Study.make(models=["m"], tasks=["t"], items=10**12),
        lambda: Study.make(models=["m"], tasks=["t"], seed=10**5000),
        lambda: MemoryStudy.make(codes="gaussian", width=10**7),
        lambda: EngineChoice(workers=10**8),
        lambda: find("fewshot:9999:primer:arithmetic"),
    ):
        with pytest.raises(UsageError):
            refused()


def test_a_study_of_thousands_of_faults_is_told_soon(capsys, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('models = ["m"]\ntasks = ["t"]\n' + "".join(f"unknown{number} = 1\n" for number in range(3000)))
    done = lesion(capsys, "run", study)
    assert done.code == 2
    assert "has 3,000 faults" in done.err
    assert "line 3: there is no key 'unknown0'" in done.err
    assert done.err.endswith("  and 2,980 more.\n")
    assert done.err.count("\n") == 22
