"""Studies that cannot be built are refused with what can; a study is a TOML file like any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.registry import load_study, method_of
from lesion_labs.memory.model import codes
from lesion_labs.memory.study import MemoryStudy


@pytest.mark.parametrize(
    ("wrong", "explained"),
    [
        ({"classes": 1}, "classes must be a whole number from 2 to 256, not 1."),
        ({"noise": 1.0}, "noise must be a probability from 0 to below 1, not 1.0."),
        ({"noise": float("nan")}, "not NaN"),
        ({"classes": 20, "width": 20}, "give a width of at least 21, or gaussian codes"),
        ({"classes": 4, "inputs": 30, "width": 20}, "give a width of at least 30"),
        ({"classes": 200}, "width: 128 has no room for 201 orthonormal codes"),
        ({"classes": 4, "inputs": 3}, "give at least 4 inputs"),
        ({"inputs": 100_000}, "inputs must be a whole number from the number of classes to 1024"),
        ({"codes": "orthogonal"}, 'codes must be orthonormal or gaussian, not "orthogonal".'),
        ({"width": 0, "codes": "gaussian"}, "width must be a whole number from 1"),
        ({"steps": 0}, "steps must be"),
        ({"draws": 0}, "draws must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_what_cannot_be_built_is_refused_and_the_person_told_what_can(wrong, explained):
    with pytest.raises(UsageError) as caught:
        MemoryStudy.make(**wrong)
    assert explained in str(caught.value)
    assert "\n" not in str(caught.value)


@given(classes=st.integers(2, 12), extra=st.integers(0, 8), kind=st.sampled_from(("orthonormal", "gaussian")))
def test_the_least_width_that_is_named_is_enough(classes, extra, kind):
    inputs = classes + extra
    study = MemoryStudy.make(classes=classes, inputs=inputs, width=max(classes + 1, inputs), codes=kind)
    of_codes = codes(study)
    assert of_codes.outputs.shape == (classes + 1, study.width)
    assert of_codes.inputs.shape == (study.width, inputs)
    assert MemoryStudy.make(classes=classes).inputs == classes


def test_written_out_a_study_reads_back_and_is_of_the_memory_method(tmp_path):
    (tmp_path / "m.toml").write_text('kind = "memory"\nclasses = 4\nwidth = 24\ncodes = "gaussian"\n')
    study = load_study(tmp_path / "m.toml")
    assert isinstance(study, MemoryStudy)
    assert method_of(study).kind == "memory"
    assert MemoryStudy.parse(study.to_toml()) == study
    same = MemoryStudy.make(classes=4, inputs=4, width=24, codes="gaussian", title="another title")
    assert same.identity() == study.identity() != MemoryStudy.make(classes=4, width=24).identity()
