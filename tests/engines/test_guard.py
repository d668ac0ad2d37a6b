"""The effect guard stops what edits nothing, and what does not come back; nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.engines.engine import Request
from lesion.engines.vllm.weights import LENGTH, NEW, PROMPTS, probes, prove
from lesion.errors import LesionError


class Engine:
    """Says the sum of a prompt, plus an edit; with faults to choose from."""

    def __init__(self, *, effect: int = 1, sticky: bool = False) -> None:
        self.effect, self.sticky = effect, sticky
        self.edit = 0


class Trial:
    def __init__(self, engine: Engine, strength: int = 1) -> None:
        self.engine, self.strength = engine, strength

    @contextmanager
    def edited(self) -> Iterator[None]:
        self.engine.edit = self.engine.effect * self.strength
        yield
        if not self.engine.sticky:
            self.engine.edit = 0

    def answers(self, prompts, *, edited: bool):
        return tuple((sum(prompt) + self.engine.edit,) for prompt in prompts)


PROMPTS_TRIED = ((1, 2), (3, 4), (5, 6), (7, 8))


def test_an_engine_that_edits_and_forgets_passes():
    prove([Trial(Engine())], PROMPTS_TRIED, "edits of blocks")


def test_the_next_trial_is_made_where_one_changes_nothing():
    engine = Engine()
    prove([Trial(engine, 0), Trial(engine, 1)], PROMPTS_TRIED, "edits of blocks")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"effect": 0}, "not one of 4 answers changed under a control edit"),
        ({"sticky": True}, "4 of 4 answers are not those of the unedited model any more"),
    ],
)
def test_a_fault_stops_the_study_and_is_named(fault, told):
    with pytest.raises(LesionError, match=told) as error:
        prove([Trial(Engine(**fault)), Trial(Engine(**fault), 2)], PROMPTS_TRIED, "edits of blocks on an engine")
    assert "The effect guard stops this study, edits of blocks on an engine" in str(error.value)


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(NEW + 1, 2000))
def test_probes_are_long_and_of_the_tokens_that_are_asked(lengths, context):
    requests = [Request(str(n), tuple(range(n, n + length))) for n, length in enumerate(lengths)]
    found = probes(requests, context)
    if not requests:
        assert found == ()
        return
    assert len(found) == PROMPTS
    known = {token for request in requests for token in request.prompt}
    for prompt in found:
        assert set(prompt) <= known
        assert len(prompt) + NEW <= context
        assert len(prompt) == min(LENGTH, context - NEW)
