"""What rows begin with may have been computed before: then each row is as if all of it had been computed now."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lesion.engines.transformers.prefix_cache
import tiny
from alone import EDITS, assert_close, assert_each_row_is_as_alone, forward, prompts
from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.edits.gates import gated
from lesion.edits.table import tabulate
from lesion.engines.transformers.prefill import Prefilled, prefill
from lesion.engines.transformers.prefix_cache import Begun, Past, known, put_columns

families = pytest.mark.parametrize("family", tiny.UNLIKE)


def past(model, text, edits) -> Past:
    """One text under many edits."""
    with gated(model) as gates, torch.inference_mode():
        found = prefill(model, gates, [text] * len(edits), tabulate(edits, model.anatomy), padding=0)
    return Past(found.kept, len(text))


def run(model, texts, edits, begun, **options) -> Prefilled:
    with gated(model) as gates, torch.inference_mode():
        return prefill(model, gates, texts, tabulate(edits, model.anatomy), padding=0, begun=begun, **options)


@families
def test_rows_of_two_prefixes_and_of_none_are_as_if_computed_whole(family):
    model = tiny.model(family)
    first, second = prompts(2, longest=9, shortest=6, seed=1)
    pasts = [past(model, first, EDITS), past(model, second, EDITS), None]
    texts, edits, begun = [], [], []
    for index, rest in enumerate(prompts(7, longest=5, seed=2)):
        one = pasts[index % 3]
        text = (*((first, second, ())[index % 3]), *rest)
        for column, edit in enumerate(EDITS):
            texts.append(text)
            edits.append(edit)
            begun.append(Begun(one, column) if one else None)
    found = run(model, texts, edits, begun)
    assert_each_row_is_as_alone(model, found, texts, edits)


# One prompt, or as many as heads, in every other family: what matters is that no axis is taken for another.
@pytest.mark.parametrize(
    ("family", "count"), [(family, (1, 4)[number % 2]) for number, family in enumerate(tiny.UNLIKE)]
)
def test_rests_of_one_length_and_rests_of_a_single_token(family, count):
    model = tiny.model(family)
    prefix = prompts(1, longest=8, shortest=8, seed=3)[0]
    one = past(model, prefix, EDITS)
    for length in (1, 4):
        texts = [(*prefix, *rest) for rest in prompts(count, longest=length, shortest=length, seed=4)]
        rows = [(text, column) for text in texts for column in range(len(EDITS))]
        edits = [EDITS[column] for _, column in rows]
        found = run(model, [text for text, _ in rows], edits, [Begun(one, column) for _, column in rows])
        assert found.token_steps <= len(rows) * length
        assert_each_row_is_as_alone(model, found, [text for text, _ in rows], edits)


def test_only_what_follows_runs_and_of_no_row_more_than_of_the_longest():
    model = tiny.model("llama")
    prefix = tuple(range(20, 32))
    one = past(model, prefix, [BASELINE])
    seen: list[tuple[int, ...]] = []
    handle = model.anatomy.blocks[0].module.register_forward_hook(
        lambda module, args, output: seen.append(tuple((output[0] if isinstance(output, tuple) else output).shape[:2]))
    )
    texts = [(*prefix, 5), (*prefix, 6, 7, 8), (9,) * 3]
    found = run(model, texts, [BASELINE] * 3, [Begun(one, 0), Begun(one, 0), None])
    handle.remove()
    assert seen == [(3, 3)]
    assert found.token_steps == 9
    assert found.mask.sum(1).tolist() == [13, 15, 3]


@pytest.mark.parametrize("wanted", [[1, 3, 2, 1], [2, 2, 2, 2]])
def test_wanted_positions_are_counted_from_the_end_as_ever(wanted):
    model = tiny.model("llama")
    prefix = prompts(1, longest=8, shortest=8, seed=5)[0]
    edits: list[Edit] = [BASELINE, ScaleBlock(1)]
    one = past(model, prefix, edits)
    texts = [(*prefix, *rest) for rest in prompts(2, longest=6, shortest=4, seed=6) for _ in edits]
    found = run(model, texts, edits * 2, [Begun(one, 0), Begun(one, 1)] * 2, wanted=wanted)
    for row, (text, edit, count) in enumerate(zip(texts, edits * 2, wanted, strict=True)):
        first = int(found.places[row])
        assert_close(found.computed[first : first + count, 0], forward(model, text, edit)[0][-count:], f"row {row}")


def test_a_row_under_an_edit_that_breaks_the_model_breaks_no_other():
    model = tiny.model("llama")
    edits: list[Edit] = [BASELINE, ScaleBlock(1, 1e38)]
    prefix = prompts(1, longest=8, shortest=8, seed=7)[0]
    one = past(model, prefix, edits)
    rests = prompts(3, longest=5, seed=8)
    texts = [(*prefix, *rest) for rest in rests for _ in edits] + [rests[0]] * 2
    begun = [Begun(one, 0), Begun(one, 1)] * 3 + [None, None]
    found = run(model, texts, edits * 4, begun)
    for row in range(0, len(texts), 2):
        assert_close(found.logits[row, -1], forward(model, texts[row])[0][-1], row)


@given(data=st.data())
@pytest.mark.parametrize("large", [1, 10**9], ids=["row by row", "gathered"])
def test_columns_are_copied_as_a_loop_over_rows_and_columns_would(large, data):
    shape = [data.draw(st.integers(1, most), what) for what, most in (("held", 4), ("heads", 3), ("length", 9))]
    width, start = data.draw(st.integers(1, shape[2]), "width"), data.draw(st.integers(0, 3), "start")
    rows = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True), "rows")
    sources = [data.draw(st.integers(0, shape[0] - 1), "source") for _ in rows]
    starts = [data.draw(st.integers(-width, shape[2] - width), "start of a row") for _ in rows]
    held = torch.arange(1.0, 1 + 2 * shape[0] * shape[1] * shape[2]).view(*shape, 2)
    target, expected = (torch.zeros(5, shape[1], start + width + 1, 2) for _ in range(2))
    for row, source, first in zip(rows, sources, starts, strict=True):
        for column in range(width):
            expected[row, :, start + column] = held[source, :, max(0, first + column)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lesion.engines.transformers.prefix_cache, "LARGE", large)
        put_columns(target, torch.tensor(rows), start, held, torch.tensor(sources), torch.tensor(starts), width)
    assert torch.equal(target, expected)


def test_what_is_known_of_a_prompt_is_known_for_all_of_its_rows():
    one, other = Past([], 5), Past([], 7)
    rows = [Begun(one, 0), Begun(other, 0), None, Begun(other, 0)]
    assert known([0, 0, 1, 2], rows, 3) == [5, 0, 7]
