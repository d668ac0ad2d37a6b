"""One owner at a time: threads, tasks, generators, copies, modes and modules that were replaced."""

import asyncio
import contextlib
import copy
import io
import pickle
import threading

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lesion
import tiny
from lesion.errors import LesionError, UsageError
from lesion.models import owner
from lesion.models.load import wrap
from tiny import bits, same_bits

PLACE, WEIGHTS, OTHERS = "1x0", "1.mlp.up top 0.1", "0.attention.o top 0.3"
IDS = torch.tensor([[5, 6, 7, 8]])


def logits(model, ids=IDS):
    with torch.no_grad():
        return model.network(ids).logits.clone()


def logits_under(model, edit):
    with lesion.applied(model, edit):
        return logits(model)


def answer(model, edit=None):
    return model.generate("2 + 2", edit, max_new_tokens=3, prompt_style="raw")


@pytest.mark.parametrize("edits", [(WEIGHTS, OTHERS), (PLACE, WEIGHTS), (PLACE, "2x0"), (WEIGHTS, None)], ids=str)
def test_two_threads_with_different_edits_each_get_their_own_logits(edits):
    model = tiny.model("llama")
    expected = {edit: logits(model) if edit is None else logits_under(model, edit) for edit in edits}
    before, right = bits(model.network), dict.fromkeys(edits, 0)

    def passes(edit):
        for _ in range(20):
            result = logits(model) if edit is None else logits_under(model, edit)
            right[edit] += torch.equal(result, expected[edit])

    threads = [threading.Thread(target=passes, args=(edit,)) for edit in edits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == dict.fromkeys(edits, 20)
    assert same_bits(model.network, before)


def test_another_thread_is_refused_once_it_has_waited_for_an_edit(monkeypatch):
    monkeypatch.setattr(owner, "PATIENCE", 0.2)
    model, refusals = tiny.model("llama"), []

    def use(action):
        try:
            action(model)
        except LesionError as error:
            refusals.append(str(error))

    with lesion.applied(model, PLACE):
        for action in (logits, answer, lambda subject: logits_under(subject, "0x0")):
            thread = threading.Thread(target=use, args=(action,))
            thread.start()
            thread.join()
    assert len(refusals) == 3
    assert all("in use by the edit 1×0 in another thread (MainThread)" in refusal for refusal in refusals)


def test_interleaved_tasks_are_refused_and_tasks_inside_an_edit_share_it():
    model = tiny.model("llama")
    expected = logits_under(model, PLACE)

    async def under(edit):
        with lesion.applied(model, edit):
            await asyncio.sleep(0)
            return torch.equal(logits(model), expected)

    async def shared():
        return torch.equal(logits(model), expected)

    async def main():
        apart = await asyncio.gather(under(PLACE), under("2x0"), return_exceptions=True)
        with lesion.applied(model, PLACE):
            return apart, await asyncio.gather(shared(), shared()), await asyncio.to_thread(logits, model)

    apart, together, in_a_thread = asyncio.run(main())
    assert apart[0] is True
    assert "in another task" in str(apart[1])
    assert together == [True, True]
    assert torch.equal(in_a_thread, expected)


def test_nobody_runs_under_the_edit_of_a_generator_that_is_paused():
    model = tiny.model("llama")
    before = logits(model)

    def passes():
        with lesion.applied(model, PLACE):
            yield logits(model)
            yield logits(model)

    generator = passes()
    first = next(generator)
    for action in (logits, answer, lambda subject: logits_under(subject, "0x0")):
        with pytest.raises(LesionError, match="in a generator that has not ended"):
            action(model)
    assert torch.equal(next(generator), first)
    del generator
    assert torch.equal(logits(model), before)


@pytest.fixture
def edited():
    model = tiny.model("llama")
    with lesion.applied(model, PLACE):
        yield model


@contextlib.contextmanager
def own_context(model):
    with lesion.applied(model, PLACE):
        yield


def test_a_context_manager_or_a_fixture_that_holds_an_edit_is_no_paused_generator(edited):
    expected = logits(edited)
    model = tiny.model("llama")
    with own_context(model):
        assert torch.equal(logits(model), expected)


def test_a_stack_of_edits_is_taken_back_whoever_closes_it():
    model = tiny.model("llama")
    before = bits(model.network)
    stack = contextlib.ExitStack()
    for edit in (WEIGHTS, PLACE, "0.mlp.up top 0.2", OTHERS):
        stack.enter_context(lesion.applied(model, edit))
    thread = threading.Thread(target=stack.close)
    thread.start()
    thread.join()
    assert same_bits(model.network, before)
    assert logits(model).isfinite().all()


def test_after_an_edit_that_ended_around_another_passes_are_refused_until_both_have_ended():
    model = tiny.model("llama")
    before, expected = bits(model.network), logits(model)
    outer, inner = lesion.applied(model, WEIGHTS), lesion.applied(model, OTHERS)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(LesionError, match="began first ended first"):
        outer.__exit__(None, None, None)
    assert same_bits(model.network, before)
    with pytest.raises(LesionError, match="taken back because one around it ended first"):
        logits(model)
    with pytest.raises(LesionError, match="began first ended first"):
        inner.__exit__(None, None, None)
    assert torch.equal(logits(model), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("edit", [WEIGHTS, "1.mlp.upx0.5", OTHERS])
def test_weights_are_put_back_in_the_dtype_to_which_they_were_cast_meanwhile(edit, dtype):
    model = tiny.model("llama")
    before = {name: tensor.to(dtype) for name, tensor in bits(model.network).items()}
    with lesion.applied(model, edit):
        model.network.to(dtype)
    assert same_bits(model.network, before)


def test_a_model_whose_weights_cannot_be_put_back_is_refused_from_then_on():
    model = tiny.model("llama")
    with pytest.raises(LesionError, match="could not be put back"), lesion.applied(model, WEIGHTS):
        model.network.to("meta")
    for use in (lambda: logits(model), lambda: answer(model), lambda: logits_under(model, PLACE)):
        with pytest.raises(LesionError, match=r"could not be put back.*Load the model again"):
            use()


@pytest.mark.parametrize("edit", [PLACE, WEIGHTS])
def test_no_copy_is_made_of_an_edited_network_nor_of_a_part_whose_weights_are_edited(edit, tmp_path):
    model = tiny.model("llama")
    trunk = model.network.model
    copies = [
        lambda: copy.deepcopy(model),
        lambda: copy.deepcopy(model.network),
        lambda: pickle.dumps(model.network),
        lambda: torch.save(model.network, io.BytesIO()),
        lambda: model.network.save_pretrained(tmp_path),
        lambda: wrap(model.network, model.tokenizer, "copy"),
        lambda: lesion.reordered(model, "0,2"),
    ]
    parts = [
        lambda: trunk.save_pretrained(tmp_path),
        lambda: copy.deepcopy(trunk.layers[1]),
        lambda: pickle.dumps(trunk.layers[1].mlp.up_proj),
        lambda: torch.save(trunk.layers, io.BytesIO()),
        lambda: safetensors.torch.save_model(model.network, tmp_path / "model.safetensors"),
    ]
    with lesion.applied(model, edit):
        for make in [*copies, *(parts if edit == WEIGHTS else ())]:
            with pytest.raises(UsageError, match="edit in force"):
                make()
    for make in parts:
        make()
    assert torch.equal(logits(copy.deepcopy(model)), logits(model))


def twin(model):
    network = type(model.network)(model.network.config).eval()
    network.load_state_dict(model.network.state_dict(), assign=True)
    return wrap(network, model.tokenizer, "twin")


def twin_by_and_by(model):
    other = tiny.model("llama")
    other.network.load_state_dict(model.network.state_dict(), assign=True)
    return other


def with_the_same_blocks(model):
    network = type(model.network)(model.network.config).eval()
    network.model.layers = nn.ModuleList(list(model.network.model.layers)[::-1])
    return wrap(network, model.tokenizer, "the other way round")


@pytest.mark.parametrize(
    "share", [twin, twin_by_and_by, with_the_same_blocks, lambda model: lesion.reordered(model, "0,2")]
)
def test_networks_that_share_their_weights_have_one_owner(share, monkeypatch):
    monkeypatch.setattr(owner, "PATIENCE", 0.2)
    model = tiny.model("llama")
    other, before = share(model), bits(model.network)
    thread_errors = []

    def use():
        try:
            answer(other)
        except LesionError as error:
            thread_errors.append(str(error))

    with lesion.applied(model, WEIGHTS):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        with pytest.raises(UsageError, match="edit in force"):
            lesion.ablate(other, "primer:arithmetic", items=2, prompt_style="raw")
        with pytest.raises(UsageError, match="edit in force"):
            wrap(other.network, model.tokenizer, "again")
    assert "in use" in thread_errors[0]
    outer, inner = lesion.applied(model, WEIGHTS), lesion.applied(other, OTHERS)
    outer.__enter__()
    inner.__enter__()
    for each in (outer, inner):
        with pytest.raises(LesionError, match="began first ended first"):
            each.__exit__(None, None, None)
    assert same_bits(model.network, before)


@pytest.mark.parametrize("edit", [PLACE, WEIGHTS, "1.attention.head.0x0", "1.mlp.upx0.5"])
def test_a_study_inside_an_edit_is_refused(edit):
    model = tiny.model("llama")
    with lesion.applied(model, edit), pytest.raises(UsageError, match="edit in force"):
        lesion.ablate(model, "primer:arithmetic", items=2, prompt_style="raw")


def test_the_library_evaluates_and_gives_every_module_its_own_mode_back():
    model = tiny.model("llama")
    for module in model.network.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, _, output: output * (2.0 if module.training else 1.0))
    expected = answer(model), answer(model, "2x0.5")
    model.network.train()
    model.network.model.layers[0].eval()
    modes = [module.training for module in model.network.modules()]
    assert (answer(model), answer(model, "2x0.5")) == expected
    with pytest.raises(UsageError):
        answer(model, "9x0")
    assert [module.training for module in model.network.modules()] == modes
    texts = lesion.calibration(model, lesion.find_task("primer:arithmetic"), 3, style="raw")
    observed = lesion.observe(model, texts)
    assert [module.training for module in model.network.modules()] == modes
    model.network.eval()
    again = lesion.observe(model, texts)
    assert all(torch.equal(observed[0].sums[key].norms, again[0].sums[key].norms) for key in again[0].sums)


@pytest.mark.parametrize("reentrant", [True, False])
def test_blocks_that_are_computed_again_in_the_backward_pass_are_refused_under_an_edit(reentrant):
    model = tiny.model("llama")
    model.network.train().requires_grad_(True)

    def own(stream):
        return model.network(inputs_embeds=stream, labels=IDS).loss

    stream = model.network.get_input_embeddings()(IDS)
    with lesion.applied(model, WEIGHTS), pytest.raises(LesionError, match="gradient checkpointing"):
        checkpoint(own, stream, use_reentrant=reentrant)
    for module in model.network.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = lambda *args: checkpoint(*args, use_reentrant=reentrant)
    with lesion.applied(model, WEIGHTS), pytest.raises(LesionError, match="gradient checkpointing"):
        model.network(IDS, labels=IDS)


def test_gates_do_nothing_more_once_their_with_has_ended():
    model = tiny.model("llama")
    before = logits(model)
    with lesion.gated(model) as gates:
        gates.assign_everywhere(PLACE)
    for assign in (lambda: gates.assign_everywhere(PLACE), lambda: gates.assign([PLACE])):
        with pytest.raises(UsageError, match="are over"):
            assign()
    assert torch.equal(logits(model), before)
