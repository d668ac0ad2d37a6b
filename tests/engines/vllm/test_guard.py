"""The effect guard on a running vLLM: broken edits are made on purpose, and it must find each."""

from collections.abc import Iterator

import pytest

from lesion.edits.edit import BASELINE, ScaleBlock, Truncate
from lesion.edits.units import ScaleHead
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.vllm import hooks as vllm_hooks
from lesion.engines.vllm import slices as vllm_slices
from lesion.engines.vllm.engine import VllmEngine
from lesion.engines.vllm.worker import Watch
from lesion.errors import LesionError
from lesion.models.load import Model, load
from vllm_cases import NEEDED, answers, assert_same, generations, prompts

pytest.importorskip("vllm", reason=NEEDED)

EDITS = (BASELINE, ScaleBlock(2), Truncate("2.mlp.up", 0.1), ScaleBlock(4, 0.5))


@pytest.fixture(scope="module")
def model() -> Model:
    return load("bundled:llama-base")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[VllmEngine]:
    with VllmEngine(model, 8, in_process=True) as engine:
        yield engine


@pytest.fixture
def unproven(engine: VllmEngine) -> VllmEngine:
    """The engine as if it were new."""
    engine._proved = set()
    return engine


def asked(model: Model, edit) -> list[Request]:
    return generations(prompts(model), [BASELINE, edit])


def test_a_hook_that_does_nothing_is_found(model, unproven, monkeypatch):
    monkeypatch.setattr(vllm_hooks, "scale_contribution", lambda before, after, factor, ends: after)
    with pytest.raises(LesionError, match=r"a control edit \(block\) changes log-probabilities of"):
        answers(unproven, asked(model, ScaleBlock(2)))
    assert not unproven._proved


def test_a_block_that_is_not_run_is_found(model, unproven):
    answers(unproven, asked(model, ScaleBlock(2)))
    block = worker(unproven).gates.places[2, 0].layer.module
    hooks = dict(block._forward_hooks)
    block._forward_hooks.clear()
    try:
        with pytest.raises(LesionError, match="edit of 2 did not take hold"):
            answers(unproven, asked(model, ScaleBlock(2)))
    finally:
        block._forward_hooks.update(hooks)
    answers(unproven, asked(model, ScaleBlock(2)))


def test_the_factors_of_another_head_are_found(model, unproven, monkeypatch):
    table = vllm_hooks._Units.table
    monkeypatch.setattr(vllm_hooks._Units, "table", lambda *arguments: table(*arguments)[:, ::-1].copy())
    with pytest.raises(LesionError, match=r"a control edit \(head\) changes log-probabilities of"):
        answers(unproven, asked(model, ScaleHead(2, 0)))


def test_the_factors_of_another_row_differ_from_the_other_engine(model, unproven, monkeypatch):
    requests = generations(prompts(model)[:2], [ScaleHead(2, head, -4.0) for head in range(4)])
    expected = answers(TransformersEngine(model, 8), requests)
    assert_same(answers(unproven, requests), expected)
    assign = vllm_hooks._Inputs.assign
    monkeypatch.setattr(vllm_hooks._Inputs, "assign", lambda gate, rows, factor: assign(gate, rows, factor.roll(1, 0)))
    with pytest.raises(AssertionError):
        assert_same(answers(unproven, requests), expected)


def worker(engine: VllmEngine) -> Watch:
    return engine._running.engine.model_executor.driver_worker.worker._lesion


def test_an_edit_that_stays_is_found(model, unproven, monkeypatch):
    begin = vllm_hooks.TokenGates.begin

    def sticky(self, columns, counts, device):
        sticky.seen = max(sticky.seen, int(columns.max(initial=0)))
        begin(self, columns * 0 + sticky.seen, counts, device)

    sticky.seen = 0
    monkeypatch.setattr(vllm_hooks.TokenGates, "begin", sticky)
    with pytest.raises(LesionError, match="are not those of before"):
        answers(unproven, asked(model, ScaleBlock(2)))


def test_weights_that_are_not_written_are_found(model, unproven, monkeypatch):
    monkeypatch.setattr(vllm_slices.Slices, "_repack", lambda *_: None)
    with pytest.raises(LesionError, match=r"a control edit \(weights\) changes log-probabilities"):
        answers(unproven, asked(model, Truncate("2.mlp.up", 0.1)))


def test_weights_written_under_packed_ones_are_found(model, unproven, monkeypatch):
    # What happens when the packing is overlooked: the weight is written, and nothing reads it.
    monkeypatch.setattr(vllm_slices, "_packed", lambda module: False)
    with pytest.raises(LesionError):
        answers(unproven, asked(model, Truncate("2.mlp.up", 0.1)))


def test_weights_that_stay_are_found(model, unproven, monkeypatch):
    restore = vllm_slices.Slices.restore
    with monkeypatch.context() as patch:
        patch.setattr(vllm_slices.Slices, "restore", lambda self: None)
        with pytest.raises(LesionError, match=r"\(weights\) was taken back, .* are not those of before"):
            answers(unproven, asked(model, Truncate("2.mlp.up", 0.1)))
    restore(worker(unproven).slices)
    assert_same(
        answers(unproven, asked(model, EDITS[2])), answers(TransformersEngine(model, 8), asked(model, EDITS[2]))
    )
