"""Recorded steps: every row says what plain decoding says under its edit alone, and no replayed step calls Python.

Without a CUDA device a step is recorded as a graph of torch's operations, which stand for the kernels of a CUDA graph:
what a hook or the engine decided in Python while it was recorded stays so at every replay.
"""

import random
import shutil
from collections import Counter
from weakref import WeakKeyDictionary

import pytest
import torch
from replaced import some_heads, some_reference
from torch.nn.modules.module import register_module_forward_pre_hook

import tiny
from alone import EDITS, SLIDING, assert_alone, prompts, questions, sliding
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.lowrank import LowRank
from lesion.edits.replace import Replace
from lesion.edits.table import maskable
from lesion.edits.units import ScaleExpert, ScaleGroup, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import engine, pace, recorded
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.pace import Pace
from lesion.engines.transformers.recorded import RecordedBatch, masks_of
from lesion.engines.transformers.static_slots import Masks
from lesion.models.load import wrap
from recording import Recorder, anew


def ask(model, requests, batch_size=8, recorder=anew):
    engine = TransformersEngine(model, batch_size, recorder)
    assert isinstance(masks_of(model), Masks)
    found = {response.key: response for response in engine.answer(requests)}
    assert found.keys() == {request.key for request in requests}
    return found


@pytest.fixture
def modules_called():
    """How many modules were called, of whatever network: no hook runs but when its module is called."""
    calls = Counter()
    handle = register_module_forward_pre_hook(lambda *_: calls.update(modules=1))
    yield calls
    handle.remove()


class Watching(Recorder):
    """Counts the modules that are called in replays, which should be none."""

    def __init__(self, modules_called):
        super().__init__()
        self.modules_called = modules_called

    def record(self, step):
        replay = super().record(step)

        def watched():
            before = self.modules_called["modules"]
            replay()
            self.calls["in replays"] += self.modules_called["modules"] - before

        return watched


@pytest.mark.parametrize("family", tiny.BUILDS)
def test_replayed_steps_say_what_each_edit_says_alone_and_call_no_module(family, modules_called):
    model, requests, recorder = tiny.model(family), questions(prompts(5)), Watching(modules_called)
    assert_alone(model, requests, ask(model, requests, recorder=recorder))
    assert modules_called["modules"] > 100
    assert recorder.calls["recorded"] <= 3
    assert recorder.calls["replayed"] > 40
    assert recorder.calls["in replays"] == 0


@pytest.mark.parametrize("network", SLIDING)
def test_a_sliding_window_slides_over_each_rows_own_tokens(network):
    model = sliding(network)
    requests = questions(prompts(4, longest=20, seed=1), edits=(BASELINE, ScaleBlock(0)), limit=12)
    assert_alone(model, requests, ask(model, requests, batch_size=3))


def test_eager_attention_is_given_a_mask_that_it_can_add():
    network = tiny.tiny("gemma2")
    network.set_attn_implementation("eager")
    model, requests = wrap(network, tiny.tokenizer(), "tiny:eager"), questions(prompts(3))
    assert_alone(model, requests, ask(model, requests))


def paced(monkeypatch, step, first=4):
    """Have steps of so many rows take as long as `step` says, and the first batch begin with few rows."""
    monkeypatch.setattr(pace, "FIRST", first)
    monkeypatch.setattr(recorded, "_paces", WeakKeyDictionary())
    monkeypatch.setattr(Pace, "note", lambda self, rows, seconds: self.seconds.update({rows: step(rows)}))


@pytest.mark.parametrize("recorder", [anew, Recorder()])
def test_rows_leave_and_enter_while_windows_widen_and_the_batch_grows_and_shrinks(recorder, monkeypatch):
    monkeypatch.setattr(recorded, "WINDOW", 8)
    paced(monkeypatch, lambda rows: 10.0 + max(0, rows - 8) * 10)  # seconds, as many as a recording never takes
    model, rng = tiny.model("llama"), random.Random(1)
    texts = prompts(40, seed=2)
    limits = [rng.choice([1, 3, 17, 24, 31]) for _ in texts]
    requests = [
        Request(f"{i}", text, EDITS[i % len(EDITS)], Decoding(limit))
        for i, (text, limit) in enumerate(zip(texts, limits, strict=True))
    ]
    sizes, resize = [], RecordedBatch._resize

    def watched(batch, rows):
        sizes.append(rows)
        resize(batch, rows)

    monkeypatch.setattr(RecordedBatch, "_resize", watched)
    engine = TransformersEngine(model, "auto", recorder)
    assert isinstance(masks_of(model), Masks)
    found = {response.key: response for response in engine.answer(requests)}
    assert_alone(model, requests, found)
    # From 4 rows to 8 and 16, where a step takes nine times as long; then down as rows finish.
    assert sizes[:2] == [8, 16]
    assert sorted(sizes[2:], reverse=True) == sizes[2:] != []
    # The first token of an answer comes with its prompt; what was said behind an end counts as decoded, too.
    said = sum(len(found[request.key].token_ids) - 1 for request in requests)
    assert said <= engine.work.decoded + engine.work.accepted
    assert engine.work.replayed == (0 if recorder is anew else engine.work.steps)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_fused_steps_say_what_each_edit_says_alone(family, monkeypatch):
    said_of_fused_steps(family, {"backend": "aot_eager"}, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch's compiler needs a compiler of C++")
def test_fused_steps_of_torchs_own_compiler_say_what_each_edit_says_alone(monkeypatch):
    said_of_fused_steps("llama", recorded.COMPILER, monkeypatch)


class AsFused(Recorder):
    """Records steps, but for those that were fused: they are repeated as they are, without any hook too."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.fused, whole = [], recorded.fused
        monkeypatch.setattr(recorded, "fused", lambda step: self.fused.append(whole(step)) or self.fused[-1])

    def record(self, step):
        return step if step in self.fused else super().record(step)


def said_of_fused_steps(family, compiler, monkeypatch):
    """Answers of a sweep so long that compiling pays, against each alone; steps are compiled then, and once."""
    monkeypatch.setattr(recorded, "COMPILER", compiler)
    model, requests, recorder = tiny.model(family), questions(prompts(7)), AsFused(monkeypatch)
    for seconds, expected in ((1e-3, 0), (1e3, 1)):
        paced(monkeypatch, lambda rows, seconds=seconds: seconds * rows)
        assert_alone(model, requests, ask(model, requests, batch_size=16, recorder=recorder))
        assert len(recorder.fused) == expected
    assert model.network not in recorded._unfusable


def test_what_cannot_be_compiled_is_recorded_as_it_is_and_not_compiled_again(monkeypatch):
    paced(monkeypatch, lambda rows: 1e3 * rows)
    monkeypatch.setattr(recorded, "COMPILER", {"backend": lambda graph, inputs: 1 / 0})
    model, requests = tiny.model("llama"), questions(prompts(4))
    for _ in range(2):
        assert_alone(model, requests, ask(model, requests, batch_size=8, recorder=Recorder()))
    assert "ZeroDivisionError" in recorded._unfusable[model.network]
    assert model.network not in recorded._unrecordable


def test_sampled_traced_and_greedy_rows_share_a_batch():
    model = tiny.model("llama")
    decodings = [Decoding(9, temperature=1.0, seed=1), Decoding(7, temperature=0.6, top_p=0.8), Decoding(5)]
    requests = [
        Request(f"{i}/{edit}/{how}", text, edit, decoding, traced=i == 1)
        for i, text in enumerate(prompts(2, seed=3))
        for edit in (BASELINE, ScaleBlock(2))
        for how, decoding in enumerate(decodings)
    ]
    found, others = (ask(model, requests, recorder=recorder) for recorder in (Recorder(), None))
    assert_alone(model, requests, found)
    for request in requests:
        assert [token for token, _ in found[request.key].last] == [token for token, _ in others[request.key].last]
        assert bool(found[request.key].last) == request.traced


def test_an_edit_that_breaks_the_numbers_breaks_no_other_row_nor_the_next_one_in_its_slot():
    model, broken = tiny.model("llama"), ScaleBlock(1, 1e38)
    requests = questions(prompts(7, seed=7), edits=(BASELINE, broken, ScaleBlock(1)))
    found = ask(model, requests, batch_size=3, recorder=Recorder())
    assert {found[request.key].answer.finish for request in requests if request.edit == broken} == {"nonfinite"}
    assert_alone(model, [request for request in requests if request.edit != broken], found)


def test_answers_that_reach_the_end_of_the_context_leave_no_row_beyond_it():
    # Learned positions end with the context: a step beyond it would be an index out of range.
    model = tiny.model("gpt2")
    long = prompts(1, 250, shortest=250)[0]
    requests = [Request("long", long, BASELINE, Decoding(6)), *questions(prompts(2), edits=(BASELINE,), limit=60)]
    assert_alone(model, requests, ask(model, requests, batch_size=3))


def test_what_cannot_be_recorded_runs_anew_from_where_it_was_and_is_not_tried_again():
    model, requests, tried = tiny.model("llama"), questions(prompts(3)), []

    def record(step):
        tried.append(step)
        step()
        step()
        raise RuntimeError("operation not permitted when stream is capturing")

    for _ in range(2):
        assert_alone(model, requests, ask(model, requests, recorder=lambda: record))
    assert len(tried) == 1


def test_memory_that_runs_out_in_a_recording_halves_the_batch():
    model, requests, sizes = tiny.model("llama"), questions(prompts(3)), []

    def record(step):
        if not sizes:
            sizes.append(0)
            raise torch.OutOfMemoryError
        return Recorder().record(step)

    engine = TransformersEngine(model, 8, lambda: record)
    assert_alone(model, requests, {response.key: response for response in engine.answer(requests)})
    assert engine.work.batch_size == 4


def replays_that_say_what_hooks_say(model, requests, modules_called):
    """How many steps were replayed; what hooks on every pass say is compared with plain references elsewhere."""
    recorder = Watching(modules_called)
    found, others = (ask(model, requests, recorder=how) for how in (recorder, None))
    assert {key: each.token_ids for key, each in found.items()} == {key: each.token_ids for key, each in others.items()}
    assert len({each.token_ids for each in found.values()}) > len(requests) // 3
    assert recorder.calls["in replays"] == 0
    return recorder.calls["replayed"]


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt", "mixtral"])
def test_heads_groups_neurons_matrices_and_experts_are_replayed(family, modules_called):
    model = tiny.model(family)
    of_mlp = [ScaleExpert(1, 2), ScaleExpert(2, 0, 0.5)] if family == "mixtral" else [ScaleNeuron(2, 7, 2.0)]
    edits = [
        *(BASELINE, ScaleBlock(1), ScaleHead(0, 0), ScaleHead(1, 3, 1.5), Compose((ScaleBlock(0), ScaleHead(2, 1)))),
        *([ScaleGroup(1, 1)] if family in ("llama", "mixtral") else []),
        *(*of_mlp, ScaleMatrix(1, "attention.v"), ScaleMatrix(2, "attention.q", 0.5)),
    ]
    assert replays_that_say_what_hooks_say(model, questions(prompts(3), edits), modules_called) > 10


@pytest.mark.parametrize("family", ["llama", "gemma3", "opt"])
def test_replaced_contributions_are_replayed_also_those_of_positions(family, modules_called):
    model = tiny.model(family)
    some = some_reference(model, seed=1)
    edits = [
        *(BASELINE, ScaleMlp(2, 0.5), Replace("0", "mean", some), Replace("1", "resample", some)),
        *(Replace("1", "position", some), Replace("1.attention", "resample", some, 2), Replace("2.mlp", "mean", some)),
        Compose((ScaleBlock(0), Replace("1.mlp", "resample", some))),
    ]
    assert replays_that_say_what_hooks_say(model, questions(prompts(3, longest=20), edits), modules_called) > 10


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3"])
def test_truncations_and_replaced_heads_are_replayed(family, modules_called):
    model = tiny.model(family)
    some, blocks = some_heads(model, family), range(2)
    matrices = [m.address for layer in blocks for m in model.anatomy.block(layer).matrices.values() if maskable(m)]
    truncated = [
        Truncate(address, *((0.25, "top"), (0.5, "bottom"), (0.0, "top"))[i % 3]) for i, address in enumerate(matrices)
    ]
    replaced = [Replace(f"1.attention.head.{head}", kind, some) for head, kind in enumerate(("mean", "position"))]
    edits = [BASELINE, ScaleBlock(1), *truncated[::2], Compose((ScaleBlock(0), truncated[1])), *replaced]
    assert replays_that_say_what_hooks_say(model, questions(prompts(3, longest=20), edits), modules_called) > 10


def test_a_truncated_head_is_replayed_and_matrices_that_no_row_truncates_are_not_run(modules_called, monkeypatch):
    model, run = tiny.model("llama"), Counter()
    whole = LowRank.assign_buffer
    monkeypatch.setattr(LowRank, "assign_buffer", lambda low, *given: run.update([low.address]) or whole(low, *given))
    # Factors of one matrix fill the memory for them, so that each truncation is a group of its own.
    monkeypatch.setattr(engine, "BUDGET", 1)
    edits = [BASELINE, Truncate("head", 0.5), Truncate("1.mlp.up", 0.25)]
    assert replays_that_say_what_hooks_say(model, questions(prompts(3), edits), modules_called) > 10
    assert run["head"] == run["1.mlp.up"] == run.total() // 2
