"""A prefill of many rows is the plain forward pass of each row alone under its edit, at the cost of the shared one."""

import pytest
import torch

import tiny
from alone import EDITS, assert_close, assert_each_row_is_as_alone, forward, prompts
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp, parts
from lesion.edits.gates import gated
from lesion.edits.table import tabulate
from lesion.engines.transformers.prefill import Prefilled, pad_left, prefill

unlike = pytest.mark.parametrize("family", tiny.UNLIKE)


def run(model, texts, edits, kept: int = 1) -> Prefilled:
    with gated(model) as gates, torch.inference_mode():
        return prefill(model, gates, texts, tabulate(edits, model.anatomy), padding=0, kept=kept)


def rows_per_block(model, texts, edits) -> tuple[list[int], Prefilled]:
    """How many rows each block really computed."""
    seen: list[int] = []
    handles = [
        block.module.register_forward_hook(
            lambda module, args, output: seen.append((output[0] if isinstance(output, tuple) else output).shape[0])
        )
        for block in model.anatomy.blocks
    ]
    found = run(model, texts, edits)
    for handle in handles:
        handle.remove()
    return seen, found


@unlike
def test_every_row_has_the_logits_keys_and_values_of_a_plain_pass_under_its_edit(family):
    model = tiny.model(family)
    last = ScaleMlp(len(model.anatomy.blocks) - 1, 0) if family != "unknown" else ScaleBlock(2)
    edits = [*EDITS, last] * 3
    texts = [text for text in prompts(3, seed=1) for _ in range(len(EDITS) + 1)]
    assert_each_row_is_as_alone(model, run(model, texts, edits, kept=4), texts, edits)


@unlike
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_as_many_prompts_as_tokens_heads_or_numbers_of_a_head_are_not_confused(family, count):
    # 2 and 4 are numbers of heads, 8 and 16 sizes of a head; with as many tokens, every axis could be taken for rows.
    model = tiny.model(family)
    texts = prompts(count, longest=count, shortest=count, seed=2)
    edits = [BASELINE, ScaleBlock(0, 0.5), ScaleBlock(1), ScaleAttention(2)]
    found = run(model, [text for text in texts for _ in edits], edits * count)
    for index, edit in enumerate(edits):
        with applied(model, edit), torch.inference_mode():
            logits = model.network(torch.tensor(texts)).logits[:, -1]
        assert_close(found.logits[index :: len(edits), 0], logits, edit)


@pytest.mark.parametrize(
    "edits",
    [
        [BASELINE],
        [BASELINE] * 3,
        [ScaleBlock(0)],
        [ScaleBlock(2)],
        [ScaleBlock(2), ScaleMlp(2), ScaleAttention(2, 1.5)],
        [ScaleMlp(1), ScaleBlock(1), ScaleMlp(1)],
        [ScaleBlock(2), ScaleBlock(1), ScaleBlock(0)],
        [ScaleBlock(0), BASELINE, ScaleBlock(0)],
        [ScaleBlock(1, 1.0), ScaleBlock(1)],
        [Compose((ScaleMlp(2), ScaleAttention(0))), Compose((ScaleAttention(1), ScaleBlock(2, 0.3)))],
    ],
    ids=lambda edits: ", ".join(map(str, edits)),
)
def test_any_set_of_edits_of_one_prompt_with_or_without_its_baseline(edits):
    model = tiny.model("gpt2")
    texts = prompts(1, longest=9, seed=4) * len(edits)
    assert_each_row_is_as_alone(model, run(model, texts, edits), texts, edits)


def joined(edit: Edit, layer: int, blocks: int) -> bool:
    """Whether a row under the edit is apart from the others here; a block that is taken away need not run for it."""
    first = min((part.layer for part in parts(edit)), default=blocks)
    return layer >= first + (edit == ScaleBlock(first) and first < blocks - 1)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt"])
@pytest.mark.parametrize("with_baseline", [True, False])
def test_each_block_computes_only_rows_that_differ_there(family, with_baseline):
    model = tiny.model(family)
    blocks = len(model.anatomy.blocks)
    edits = [BASELINE] * with_baseline + [ScaleBlock(layer) for layer in range(blocks)] + [ScaleMlp(1, 0.5)]
    texts = prompts(4, longest=7, seed=6)
    width = max(map(len, texts))
    seen, found = rows_per_block(model, [text for text in texts for _ in edits], edits * len(texts))
    expected = [
        # Per prompt: a row for every edit that has begun, and one for all that have not.
        len(texts) * (sum(joined(edit, layer, blocks) for edit in edits) + (with_baseline or layer < blocks - 1))
        for layer in range(blocks)
    ]
    assert seen == expected
    assert found.token_steps == sum(expected) * width // blocks
    assert found.token_steps < len(texts) * len(edits) * width


@unlike
def test_a_row_whose_first_block_is_gone_is_whole_whatever_else_its_edit_does(family):
    model = tiny.model(family)
    gone: list[Edit] = [
        Compose((ScaleBlock(0), ScaleMlp(0, 3.0))),
        Compose((ScaleBlock(0), ScaleBlock(1))),
        Compose((ScaleBlock(0), ScaleAttention(1, 0.5), ScaleBlock(2))),
        Compose((ScaleMlp(0, 0.5), ScaleBlock(1))),
        ScaleBlock(1),
    ]
    for edits in ([*gone, BASELINE], gone, [ScaleBlock(0), ScaleBlock(0), ScaleBlock(1, 0.5)]):
        texts = [text for text in prompts(3, seed=9) for _ in edits]
        assert_logits_as_alone(model, run(model, texts, edits * 3), texts, edits * 3)


def assert_logits_as_alone(model, found: Prefilled, texts, edits) -> None:
    for row, (text, edit) in enumerate(zip(texts, edits, strict=True)):
        assert_close(found.logits[row, -1], forward(model, text, edit)[0][-1], f"row {row} under {edit}")


@unlike
def test_a_number_of_positions_for_every_row_tells_the_logits_of_these_alone(family):
    model = tiny.model(family)
    edits = [BASELINE, ScaleBlock(0), ScaleBlock(1), ScaleMlp(2, 0.5), BASELINE]
    texts = [text for text in prompts(3, seed=10, shortest=5) for _ in edits]
    wanted = [1 + (row * 3) % 5 for row in range(len(texts))]
    with gated(model) as gates, torch.inference_mode():
        table = tabulate(edits * 3, model.anatomy)
        found = prefill(model, gates, texts, table, padding=0, wanted=wanted)
    assert len(found.computed) < sum(wanted), "the same row's logits are told once"
    for row, (text, edit, count) in enumerate(zip(texts, edits * 3, wanted, strict=True)):
        first = int(found.places[row])
        assert_close(found.computed[first : first + count, 0], forward(model, text, edit)[0][-count:], f"row {row}")


def test_a_baseline_asked_many_times_is_computed_once():
    model = tiny.model("llama")
    seen, _ = rows_per_block(model, prompts(2, seed=7) * 5, [BASELINE] * 10)
    assert seen == [2, 2, 2]


@pytest.mark.same_bits("one text twice, the same weights")
def test_after_a_pass_that_failed_the_blocks_run_on_the_rows_they_are_given():
    model = tiny.model("llama")
    texts = prompts(2, seed=8)

    def fail(module, args):
        raise RuntimeError("in the middle")

    handle = model.anatomy.blocks[2].module.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        run(model, texts * 2, [BASELINE, ScaleBlock(0), ScaleBlock(1), BASELINE])
    handle.remove()
    before = forward(tiny.model("llama"), texts[0])[0]
    assert torch.equal(forward(model, texts[0])[0], before)


def test_padding_stands_on_the_left_and_is_masked():
    tokens, mask = pad_left([(1, 2, 3), (4,), (5, 6)], padding=9)
    assert tokens.tolist() == [[1, 2, 3], [9, 9, 4], [9, 5, 6]]
    assert mask.tolist() == [[True, True, True], [False, False, True], [False, True, True]]
