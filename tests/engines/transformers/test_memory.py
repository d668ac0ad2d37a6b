"""When memory runs out the engine goes on with half the rows and says the same; one row cannot be halved."""

import pytest
import torch

import architectures_zoo as zoo
import lesion.engines.transformers.batch
import lesion.engines.transformers.engine
import tiny
from alone import answered, assert_alone, prompts, questions
from lesion.engines.engine import Decoding
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.memory import ran_out, rows_that_fit
from lesion.errors import LesionError
from lesion.models.load import wrap

CPU = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8"
)


@pytest.fixture
def model():
    return tiny.model("llama")


def limit_rows(model, most: int, error: Exception, only_steps: bool = False) -> None:
    """A device on which a pass of more than `most` rows fails."""

    def hook(module, args, kwargs):
        rows, length = kwargs["input_ids"].shape
        if rows > most and (length == 1 or not only_steps):
            raise error

    model.network.register_forward_pre_hook(hook, with_kwargs=True)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU)], ids=["gpu", "cpu"])
@pytest.mark.parametrize("only_steps", [True, False], ids=["in steps", "anywhere"])
def test_memory_that_suffices_for_three_rows_gives_the_same_answers_each_once(model, error, only_steps):
    requests = questions(prompts(3), limit=9)
    limit_rows(model, 3, error, only_steps)
    found, work = answered(model, requests, 14)
    assert_alone(model, requests, found)
    assert work.batch_size == 3


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_memory_that_runs_out_while_tokens_are_drawn_repeats_no_answer(model, monkeypatch, fails):
    # Drawing happens after the new rows have taken their slots.
    requests = questions(prompts(3), decoding=Decoding(6, temperature=1.0))
    whole, calls = lesion.engines.transformers.batch.sample, []

    def sample(*args):
        calls.append(len(args[0]))
        if len(calls) == fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(*args)

    monkeypatch.setattr(lesion.engines.transformers.batch, "sample", sample)
    found, work = answered(model, requests)
    assert_alone(model, requests, found)
    assert work.batch_size == 4


def test_memory_that_does_not_suffice_for_one_row_is_an_error_that_says_what_to_do(model):
    limit_rows(model, 0, torch.OutOfMemoryError("CUDA out of memory"))
    engine = TransformersEngine(model, batch_size=5)
    with pytest.raises(LesionError, match=r"Memory does not suffice .* tiny:llama; use --dtype bfloat16"):
        list(engine.answer(questions(prompts(3))))
    assert engine.work.batch_size == 1


def test_another_failure_is_not_taken_for_want_of_memory(model):
    limit_rows(model, 0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    engine = TransformersEngine(model, batch_size=5)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        list(engine.answer(questions(prompts(3))))
    assert engine.work.batch_size == 5


def test_what_torch_says_when_a_cpu_has_no_memory_left_is_understood():
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)
    assert ran_out(failed.value)


def test_the_first_guess_holds_what_it_says_in_a_quarter_of_the_memory(model, monkeypatch):
    # 3 layers × keys and values × 2 heads × 8 numbers × 4 bytes × 256 positions
    row = 3 * 2 * 2 * 8 * 4 * 256
    for rows, expected in ((10, 10), (0, 1), (10**6, 192)):
        monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 4 * rows, "SC_PAGE_SIZE": row}.__getitem__)
        assert rows_that_fit(model) == expected


@pytest.mark.parametrize("sharers", [1, 2])
def test_rows_of_a_network_that_keeps_states_are_counted_by_their_states(sharers, monkeypatch):
    model = wrap(zoo.made("mamba2"), tiny.tokenizer(), "states")
    config = model.network.config
    inner = config.num_heads * config.head_dim
    convolved = (inner + 2 * config.n_groups * config.state_size) * config.conv_kernel
    row = config.num_hidden_layers * (convolved + inner * config.state_size) * 4
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 4 * 10 * sharers, "SC_PAGE_SIZE": row}.__getitem__)
    assert TransformersEngine(model, sharers=sharers).rows() == 10
