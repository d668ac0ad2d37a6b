"""Drafts save steps and change no token: what a row says is what it says alone, wherever it leaves the draft."""

import pytest

import tiny
from alone import answered, assert_alone, greedy, prompts, questions
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp, ScaleParameters
from lesion.edits.selections.topk import Magnitude
from lesion.engines.endings import StopStrings
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.drafts import AGAIN, FILLED, SHORT, SPARE, Drafts
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.prefixes import Prefix
from lesion.engines.transformers.sequence import ActiveRequest

# Edits so slight that answers begin as the baseline's, and some leave it sooner or later.
SLIGHT: tuple[Edit, ...] = (
    BASELINE, ScaleBlock(1, 1.0), ScaleBlock(0, 0.99), ScaleMlp(1, 0.9), ScaleAttention(2, 0.8), ScaleBlock(2, 0.85),
    ScaleBlock(1), Compose((ScaleMlp(0, 0.97), ScaleBlock(2, 1.05))),
)  # fmt: skip


@pytest.mark.parametrize("family", tiny.UNLIKE)
def test_answers_that_leave_the_draft_at_any_place_are_those_of_the_edit_alone(family):
    model, requests = tiny.model(family), questions(prompts(4, seed=11), SLIGHT, 16)
    for batch_size in (5, 64):
        found, work = answered(model, requests, batch_size)
        assert_alone(model, requests, found)
        said = sum(len(response.token_ids) for response in found.values()) - len(requests)
        assert 0 < work.accepted < work.drafted
        # The first token of an answer comes with its prompt; every other one with a step or with the draft.
        assert said - work.accepted <= work.decoded <= said - work.accepted + work.idle


def test_without_an_edit_that_changes_anything_nobody_but_the_first_is_decoded():
    model = tiny.model("llama")
    requests = questions(prompts(3, seed=12), [BASELINE, *(ScaleBlock(layer, 1.0) for layer in range(3))], 16)
    found, work = answered(model, requests, 16)
    longest = {request.prompt: len(found[request.key].token_ids) for request in requests}
    assert work.decoded == sum(longest.values()) - len(longest)
    assert_alone(model, requests, found)


def test_sampled_answers_leave_the_draft_where_their_own_noise_says_so():
    model = tiny.model("llama")
    decoding = Decoding(12, temperature=0.8, top_p=0.9, seed=4)
    requests = questions(prompts(3, seed=13), SLIGHT, decoding=decoding) + [
        Request(f"other {item}", text, ScaleBlock(0, 0.99), Decoding(12, temperature=0.8, top_p=0.9, seed=5))
        for item, text in enumerate(prompts(3, seed=13))
    ]
    found, work = answered(model, requests, 16)
    assert_alone(model, requests, found)
    assert work.accepted > 0


def test_a_stop_string_or_an_end_within_the_draft_ends_the_answer_there():
    model = tiny.model("llama")
    special = set(model.tokenizer.all_special_ids)
    cases = []
    for text in prompts(8, seed=4):
        alone = {str(edit): greedy(model, text, edit, 14) for edit in SLIGHT[:3]}
        if not special & {token for said in alone.values() for token in said}:
            cases.append((text, {edit: model.tokenizer.decode(said) for edit, said in alone.items()}))
    assert len(cases) > 1
    for text, alone in cases:
        spoken = alone[str(BASELINE)]
        for at in range(1, 13, 3):
            stop = Decoding(14, stop=(spoken[at],))
            requests = [Request(str(edit), text, edit, stop) for edit in SLIGHT[:3]]
            for response in TransformersEngine(model, 8).answer(requests):
                assert response.answer.text == alone[response.key].partition(spoken[at])[0]


def test_a_row_that_breaks_within_the_draft_keeps_what_it_has_said_and_breaks_no_other():
    model = tiny.model("llama")
    (text,) = prompts(1, seed=14)
    said = greedy(model, text, BASELINE, 10)
    # Under an edit that changes nothing, but gives a number that is none once the fourth token has been read.
    broken = ScaleBlock(0, 0.999)

    def poison(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        rows, length = hidden.shape[:2]
        if length > len(text) and rows > 2:
            hidden[-1, len(text) + 3 :] = float("nan")
        return output

    handle = model.anatomy.blocks[2].module.register_forward_hook(poison)
    requests = [Request(str(edit), text, edit, Decoding(10)) for edit in (BASELINE, ScaleBlock(0, 1.001), broken)]
    requests.append(Request("last", text, ScaleBlock(1, 1.001), Decoding(10)))
    found = {response.key: response for response in TransformersEngine(model, 8).answer(requests)}
    handle.remove()
    finishes = [found[request.key].answer.finish for request in requests]
    assert finishes.count("nonfinite") == 1
    (hurt,) = (response for response in found.values() if response.answer.finish == "nonfinite")
    assert hurt.token_ids == said[: len(hurt.token_ids)]
    assert len(hurt.token_ids) == 4
    for request in requests:
        if request.key != hurt.key:
            assert found[request.key].token_ids == greedy(model, text, request.edit, 10)


def rows(texts, edits: int, blocks: int = 4, decoding: Decoding = Decoding(9)) -> list[ActiveRequest]:  # noqa: B008 - frozen
    """Rows of every text under edits that begin at block 0, 1, …, the last of which changes nothing."""
    stop = StopStrings(tiny.tokenizer(), ())
    return [
        ActiveRequest(Request(f"{text} {column}", text, decoding=decoding), column, min(column, blocks), 9, (2,), stop)
        for text in texts
        for column in range(edits)
    ]


def test_one_row_of_every_prompt_goes_ahead_the_baseline_or_one_that_begins_in_the_middle():
    for edits, first in ((5, 4), (4, 2), (1, 0)):
        waiting = Drafts(blocks=4, worth=0.5)
        waiting.wait(rows([(5, 6), (7, 8, 9)], edits))
        assert [(row.request.prompt, row.column) for row in waiting.ready] == [((5, 6), first), ((7, 8, 9), first)]
        assert len(waiting) == 2 * edits


def test_those_that_follow_get_the_answer_but_for_its_last_token_and_no_more_than_they_may_say():
    waiting = Drafts(blocks=4, worth=0.5)
    waiting.wait(rows([(5, 6)], 5))
    (leader,) = waiting.take(8, 100)
    assert not waiting.ready
    leader.generated = [11, 12, 13, 2]
    waiting.finished(leader)
    assert [(row.column, row.draft) for row in waiting.take(9, 100)] == [(column, (11, 12, 13)) for column in range(4)]
    late = rows([(5, 6)], 1)
    late[0].limit = 2
    waiting.wait(late)
    assert late[0].draft == (11,)


def test_where_a_batch_is_to_be_filled_no_row_waits_for_a_draft_while_there_is_room():
    waiting = Drafts(blocks=4, worth=0.5, filling=True)
    waiting.wait(rows([(5, 6), (7, 8)], 5))
    taken = waiting.take(7, 100)
    assert len(taken) == 7
    assert not any(row.draft for row in taken)
    leader = next(row for row in taken if row.request.prompt == (7, 8))
    leader.generated = [11, 12, 13, 2]
    waiting.finished(leader)
    assert len(waiting) == 3
    later = waiting.take(9, 100)
    assert len(later) == 3
    assert all(row.draft == (11, 12, 13) for row in later if row.request.prompt == (7, 8))


def test_where_a_batch_is_to_be_filled_rows_with_the_longest_answers_enter_first():
    waiting = Drafts(blocks=4, worth=None, filling=True)
    short, long, known = rows([(1,) * 9, (2,) * 8, (3,) * 7], 1)
    short.limit, long.limit, known.limit, known.known = 8, 300, 300, 60
    waiting.wait([short, long, known])
    assert [waiting.take(1, 100) for _ in range(3)] == [[long], [known], [short]]


def test_an_edit_that_says_other_things_is_spared_long_drafts_but_for_one_in_so_many():
    waiting = Drafts(blocks=4, worth=0.5)
    drafted = []
    for item in range(5 * AGAIN):
        waiting.wait(rows([(5, item)], 5))
        (leader,) = waiting.take(1, 100)
        leader.generated = list(range(SHORT + 5))
        waiting.finished(leader)
        taken = waiting.take(8, 100) + (waiting.take(8, 100) if waiting.ready else [])
        assert not waiting
        for row in taken:
            row.accepted = len(row.draft) if row.column else 0
        waiting.entered(taken)
        drafted.append([bool(row.draft) for row in sorted(taken, key=lambda row: row.column)])
    assert all(all(of_item[1:]) for of_item in drafted)
    assert 2 <= sum(of_item[0] for of_item in drafted) <= 7
    short = rows([(5, 1000)], 5)
    waiting.wait(short)
    (leader,) = waiting.take(1, 100)
    leader.generated = [11] * (SHORT + 1)
    waiting.finished(leader)
    assert all(row.draft == (11,) * SHORT for row in waiting.ready)


def test_an_edit_s_first_drafts_are_short_and_later_ones_reach_twice_as_far_as_it_said_of_those_before():
    waiting = Drafts(blocks=4, worth=0.3, first=32)
    compared = []
    for item, said in enumerate((32, 40, 6, 6, 6, 0)):
        both = rows([(5, item)], 2, decoding=Decoding(200))
        for row in both:
            row.limit = 200
        waiting.wait(both)
        (leader,) = waiting.take(1, 1000)
        leader.generated = list(range(101))
        waiting.finished(leader)
        (row,) = waiting.take(1, 1000)
        row.accepted = min(said, len(row.draft))
        waiting.entered([row])
        compared.append(len(row.draft))
    # Twice the mean of 32; of 32 and 40; of 32, 40 and 6; and so on.
    assert compared == [32, 64, 72, 52, 42, 36]


def test_a_pass_takes_whole_prompts_and_no_row_that_is_much_shorter_than_the_longest():
    waiting = Drafts(blocks=4, worth=0.5)
    long, other, short = (5,) * 100, (6,) * 99, (7,) * int(100 * FILLED - 1)
    assert (100 - len(short)) * 4 > SPARE
    waiting.again(rows([long, other, short], 4))
    assert [row.request.prompt for row in waiting.take(6, 10000)] == [long] * 4
    assert [row.request.prompt for row in waiting.take(20, 10000)] == [other] * 4
    # A prompt that does not fit is parted.
    assert [row.request.prompt for row in waiting.take(3, 10000)] == [short] * 3
    assert len(waiting.take(3, 1)) == 1
    assert not waiting
    # Nor is a pass begun to spare a few tokens of padding.
    fewer = (8,) * (100 - SPARE // 2)
    waiting.again(rows([long, fewer], 2))
    assert len(waiting.take(9, 10000)) == 4
    waiting.again(rows([long, fewer], 3))
    assert len(waiting.take(9, 10000)) == 3


def test_answers_of_the_unedited_weights_are_drafts_for_edits_of_weights():
    model = tiny.model("llama")
    slight = ScaleParameters(Magnitude(0.1), 1.01)
    requests = questions(prompts(3, seed=15), [slight, BASELINE], 16)
    found, work = answered(model, requests, 16)
    assert work.accepted > 0
    assert_alone(model, requests, found)


def test_when_less_is_shared_than_before_those_that_wait_are_put_in_order_anew():
    waiting = Drafts(blocks=4, worth=0.5)
    short, long = rows([tuple(range(10)), tuple(range(20))], 1)
    long.prefix = Prefix(tuple(range(15)), rank=1)
    waiting.wait([short, long])
    assert [row.fresh for row in (short, long)] == [10, 5]
    (entered,) = waiting.take(1, 100)
    assert entered is short, "what shares nothing is first"
    long.prefix.tokens, long.prefix.rank = (), 0
    waiting.again([entered])
    assert waiting.take(1, 100) == [long], "the longest is first"
