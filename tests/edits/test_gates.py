"""Every row of a batch under its own edit is the same row alone under `applied`, in every family."""

import pytest
import torch
from references import everything_hooked, without_block
from torch import Tensor, nn
from transformers import DynamicCache

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.edits.gates import gated
from lesion.edits.standing import Standing
from lesion.edits.table import tabulate
from lesion.errors import LesionError, UsageError
from tiny import BUILDS, UNLIKE, model

EDITS = [
    BASELINE,
    ScaleBlock(0, 0),
    ScaleBlock(1, 0),
    ScaleBlock(2, 0),
    ScaleBlock(1, 0.5),
    ScaleAttention(1, 0),
    ScaleMlp(2, 0),
    ScaleMlp(0, 1.1),
    Compose((ScaleAttention(0, 0), ScaleMlp(2, -0.5), ScaleBlock(1, 1.1))),
]
STEPS = 8

families = pytest.mark.parametrize("family", BUILDS)
unlike = pytest.mark.parametrize("family", UNLIKE)
exact = pytest.mark.same_bits("one batch twice, under the same gates or none")


def prompts(rows: int = len(EDITS), length: int = 9) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(1))


def decode(network: nn.Module, ids: Tensor, before_step=lambda step, cache, last: last, steps: int = STEPS):
    """Greedy decoding with a cache: tokens [rows] and logits [rows, vocabulary] of every step."""
    cache = DynamicCache(config=network.config)
    tokens, logits = [], []
    for step in range(steps):
        ids = before_step(step, cache, ids)
        with torch.no_grad():
            last = network(ids, past_key_values=cache, use_cache=True).logits[:, -1]
        logits.append(last)
        tokens.append(last.argmax(-1))
        ids = tokens[-1][:, None]
    return tokens, logits


def decode_alone(subject, ids: Tensor, edit, steps: int = STEPS):
    with applied(subject, edit):
        tokens, logits = decode(subject.network, ids[None], steps=steps)
    return torch.cat(tokens), torch.cat(logits)


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@families
def test_rows_under_different_edits_answer_as_each_would_alone(family):
    subject, ids = model(family), prompts()
    with gated(subject) as gates:
        gates.assign(EDITS)
        tokens, logits = decode(subject.network, ids, steps=4)
    for row, edit in enumerate(EDITS):
        alone_tokens, alone_logits = decode_alone(subject, ids[row], edit, steps=4)
        assert torch.equal(torch.stack(tokens)[:, row], alone_tokens), edit
        assert_close(torch.stack(logits)[:, row], alone_logits)


@unlike
def test_the_same_prompt_under_different_edits_gets_different_logits(family):
    subject, ids = model(family), prompts()[:1].expand(len(EDITS), -1)
    with gated(subject) as gates:
        gates.assign(EDITS)
        last = subject.network(ids).logits[:, -1]
    distance = torch.cdist(last, last)
    assert (distance + torch.eye(len(EDITS)) > 0.01).all()


@unlike
def test_rows_dropped_reordered_and_repeated_in_mid_answer_keep_their_edits(family):
    subject, ids = model(family), prompts()
    moves = {2: [8, 6, 4, 3, 2, 0], 4: [5, 0, 0, 3], 6: [2, 3]}
    rows = list(range(len(EDITS)))

    with gated(subject) as gates:
        gates.assign(EDITS)

        def move(step, cache, last):
            if step not in moves:
                return last
            kept = torch.tensor(moves[step])
            rows[:] = [rows[row] for row in moves[step]]
            gates.select(kept)
            cache.batch_select_indices(kept)
            return last[kept]

        _, logits = decode(subject.network, ids, before_step=move)
    assert rows == [8, 3]
    for row, original in enumerate(rows):
        _, alone = decode_alone(subject, ids[original], EDITS[original])
        assert_close(torch.stack([step[row] for step in logits[6:]]), alone[6:])


@exact
@pytest.mark.parametrize("family", ["llama", "opt", "gemma3"])
def test_rows_refilled_from_a_table_are_under_the_edits_of_the_table(family):
    subject, ids = model(family), prompts()
    table = tabulate(EDITS, subject.anatomy)
    with gated(subject) as gates:
        for chosen in ([0, 3, 8], [5, 5], [7, 6, 2, 1, 0]):
            gates.assign_table(table.select(torch.tensor(chosen)))
            logits = subject.network(ids[chosen]).logits
            gates.assign([EDITS[edit] for edit in chosen])
            assert torch.equal(subject.network(ids[chosen]).logits, logits)


@unlike
def test_rows_seated_in_a_standing_assignment_are_under_the_edits_of_its_table(family):
    subject, ids = model(family), prompts()
    rows = torch.arange(len(EDITS)).roll(1)
    with gated(subject) as gates, torch.no_grad():
        standing = Standing(tabulate(EDITS, subject.anatomy), len(EDITS))
        gates.assign_standing(standing)
        unedited = subject.network(ids).logits
        standing.seat(rows, torch.arange(len(EDITS)))
        seated = subject.network(ids[rows.argsort()]).logits[rows]
        gates.assign(EDITS)
        assert_close(subject.network(ids).logits, seated)
    with torch.no_grad():
        assert_close(subject.network(ids).logits, unedited)


@unlike
def test_a_row_whose_neighbour_breaks_its_numbers_is_not_touched(family):
    subject, ids = model(family), prompts(2)
    clean = without_block(subject.network, family, 1)(ids[1:]).logits
    for parameter in subject.anatomy.block(1).module.parameters():
        with torch.no_grad():
            parameter.fill_(float("nan"))
    with gated(subject) as gates:
        gates.assign([BASELINE, ScaleBlock(1, 0)])
        broken, cut = subject.network(ids).logits
    assert broken.isnan().all()
    assert_close(cut, clean[0])


def break_off_between_gates(subject, ids: Tensor) -> None:
    with gated(subject) as gates:
        gates.assign(EDITS)
        subject.network(ids)
        raise RuntimeError("in the middle")


@exact
@unlike
def test_the_hooks_are_gone_afterwards_also_after_an_exception(family):
    subject, ids = model(family), prompts()
    hooks, expected = everything_hooked(subject.network), subject.network(ids).logits
    with pytest.raises(RuntimeError, match="in the middle"):
        break_off_between_gates(subject, ids)
    assert everything_hooked(subject.network) == hooks
    assert torch.equal(subject.network(ids).logits, expected)


@unlike
def test_a_batch_with_another_number_of_rows_is_refused(family):
    subject = model(family)
    with gated(subject) as gates:
        for assigned in (EDITS, [BASELINE] * len(EDITS), []):
            gates.assign(assigned)
            with pytest.raises(LesionError, match=rf"batch of 2 rows .* assigned to {len(assigned)}:"):
                subject.network(prompts(2))


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
@pytest.mark.parametrize("edit", [ScaleBlock(2, 0), ScaleMlp(1, 0.5), ScaleAttention(1, 0)], ids=str)
def test_a_row_may_join_the_batch_up_to_the_block_that_its_edit_changes_but_not_later(family, edit):
    subject, ids = model(family), prompts(1)
    expected = [decode_alone(subject, ids[0], other)[1][0] for other in (BASELINE, edit)]

    def grow_before(layer):
        def grow(module, args):
            return (args[0].expand(2, -1, -1).clone(), *args[1:]) if args[0].shape[0] == 1 else args

        return subject.anatomy.block(layer).module.register_forward_pre_hook(grow, prepend=True)

    def last_logits():
        with torch.no_grad():
            return subject.network(ids, use_cache=False).logits[:, -1]

    table = tabulate([BASELINE, edit], subject.anatomy)
    with gated(subject) as gates:
        gates.assign_table(table, growing=True)
        for layer in range(edit.layer + 1):
            joining = grow_before(layer)
            assert_close(last_logits(), torch.stack(expected))
            joining.remove()
        joining = grow_before(2)
        if edit.layer < 2:
            with pytest.raises(LesionError, match=rf"Row 1 joined the batch above block {edit.layer} of tiny:{family}"):
                last_logits()
        joining.remove()
        with pytest.raises(LesionError, match=rf"Row 1 joined the batch above block {edit.layer}"):
            last_logits()


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_a_pass_that_starts_below_the_head_is_watched_too(family):
    subject = model(family)
    inner = subject.network.model if family == "llama" else subject.network.model.decoder
    with gated(subject) as gates:
        gates.assign([BASELINE] * 3)
        with pytest.raises(LesionError, match="batch of 2 rows"):
            inner(input_ids=prompts(2))
        gates.assign_everywhere(ScaleMlp(1, 0))
        inner(input_ids=prompts(2))
        subject.anatomy.block(1).module.forward = lambda hidden_states, *args, **kwargs: hidden_states
        with pytest.raises(LesionError, match=r"1\.mlp did not take hold"):
            inner(input_ids=prompts(2))


@pytest.mark.parametrize("family", ["llama", "opt", "mixtral"])
def test_a_block_run_by_itself_is_gated_and_its_rows_are_counted(family):
    subject = model(family)
    block, stream = subject.anatomy.block(1).module, torch.randn(2, 5, 32)
    extra = {}
    if family != "opt":
        positions = torch.arange(5)[None]
        extra["position_embeddings"] = subject.network.model.rotary_emb(stream, positions)
    with gated(subject) as gates:
        gates.assign([ScaleBlock(1, 0), BASELINE])
        out = block(stream, **extra)
        assert torch.equal(out[0], stream[0])
        assert not torch.equal(out[1], stream[1])
        for unit in (ScaleBlock, ScaleMlp):
            gates.assign([unit(1, 0), BASELINE, BASELINE, BASELINE])
            with pytest.raises(LesionError, match="batch of 2 rows"):
                block(stream, **extra)


@exact
def test_before_any_assignment_nothing_is_edited():
    subject, ids = model("llama"), prompts()
    expected = subject.network(ids).logits
    with gated(subject):
        assert torch.equal(subject.network(ids).logits, expected)


def test_an_edit_of_all_rows_stays_when_rows_are_selected():
    subject = model("llama")
    with gated(subject) as gates:
        gates.assign_everywhere(ScaleBlock(1, 0))
        expected = subject.network(prompts()).logits
        gates.select(torch.tensor([4, 2]))
        assert_close(subject.network(prompts()[[4, 2]]).logits, expected[[4, 2]])


@exact
def test_an_assignment_that_is_refused_leaves_the_one_before_it():
    subject, ids = model("llama"), prompts(2)
    with gated(subject) as gates:
        gates.assign([BASELINE, ScaleBlock(1, 0)])
        expected = subject.network(ids).logits
        with pytest.raises(UsageError, match=r"there is no block 12: tiny:llama has blocks 0 to 2\."):
            gates.assign([ScaleBlock(0, 0), ScaleBlock(12, 0)])
        assert torch.equal(subject.network(ids).logits, expected)


@exact
def test_a_place_that_no_row_edits_any_more_costs_nothing_and_can_be_edited_again():
    subject, ids = model("llama"), prompts(2)
    with gated(subject) as gates:
        gates.assign([ScaleBlock(1, 0), BASELINE])
        edited = subject.network(ids).logits
        gates.select(torch.tensor([1, 1]))
        block, seen = subject.anatomy.block(1).module, []
        for first in (True, False):
            block.register_forward_hook(lambda module, args, output: seen.append(output), prepend=first)
        subject.network(ids)
        own, passed_on = seen
        assert own is passed_on
        gates.assign([ScaleBlock(1, 0), BASELINE])
        assert torch.equal(subject.network(ids).logits, edited)


@exact
def test_an_edit_around_gates_holds_for_every_row():
    subject, ids = model("llama"), prompts(2)
    with applied(subject, ScaleBlock(0, 0)), gated(subject) as gates:
        gates.assign([BASELINE, ScaleMlp(2, 0)])
        both = subject.network(ids).logits
    with gated(subject) as gates:
        gates.assign([ScaleBlock(0, 0), Compose((ScaleBlock(0, 0), ScaleMlp(2, 0)))])
        assert torch.equal(subject.network(ids).logits, both)


@exact
def test_gates_work_the_same_under_inference_mode():
    subject, ids = model("gemma2"), prompts()
    with gated(subject) as gates:
        gates.assign(EDITS)
        expected = subject.network(ids).logits
        with torch.inference_mode():
            assert torch.equal(subject.network(ids).logits, expected)
