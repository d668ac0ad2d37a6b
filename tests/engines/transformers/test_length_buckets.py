"""Bands cover every row once, as wide as it needs, and attention by bands is attention over what each row holds."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import tiny
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.length_buckets import CUT, ROWS, WORTH, Band, bands, by_bands, can_cut


@given(st.lists(st.integers(1, 500), min_size=1, max_size=6 * ROWS))
def test_bands_are_neighbours_that_cover_every_row_and_read_no_more_than_the_window(lengths):
    found = bands(lengths)
    assert [band.start for band in found] == [0, *(band.stop for band in found[:-1])]
    assert found[-1].stop == len(lengths)
    for band in found:
        assert band.start % ROWS == 0
        assert band.width == max(lengths[band.start : band.stop])
    assert sum((stop - start) * width for start, stop, width in found) <= len(lengths) * max(lengths)


def test_neighbours_are_one_band_when_parting_them_would_spare_little():
    assert bands([100] * ROWS + [100 - WORTH // ROWS] * ROWS) == [Band(0, 2 * ROWS, 100)]
    assert bands([100] * ROWS + [99 - WORTH // ROWS] * ROWS) == [
        Band(0, ROWS, 100),
        Band(ROWS, 2 * ROWS, 99 - WORTH // ROWS),
    ]


def module(group: int) -> torch.nn.Module:
    """A layer that attends with so many query heads for each head of keys."""
    made = torch.nn.Module()
    made.num_key_value_groups, made.is_causal = group, True  # type: ignore[assignment]
    return made


def naive(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int]) -> np.ndarray:
    """Attention of each row over its last `length` columns, [rows, 1, heads, size], in float64."""
    q, k, v = (tensor.double().numpy() for tensor in (query, key, value))
    group = q.shape[1] // k.shape[1]
    out = np.zeros((q.shape[0], 1, q.shape[1], q.shape[3]))
    for row, length in enumerate(lengths):
        for head in range(q.shape[1]):
            scores = k[row, head // group, -length:] @ q[row, head, 0] / np.sqrt(q.shape[3])
            weights = np.exp(scores - scores.max())
            out[row, 0, head] = weights @ v[row, head // group, -length:] / weights.sum()
    return out


def drawn(lengths: list[int], heads: int, key_heads: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(len(lengths))
    rows, width = len(lengths), max(lengths)
    query = torch.randn(rows, heads, 1, 8, generator=random)
    key, value = torch.randn(2, rows, key_heads, width, 8, generator=random)
    mask = (torch.arange(width) >= width - torch.tensor(lengths)[:, None])[:, None, None]
    return query, key, value, mask


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 2), (2, 2)])
def test_each_band_reads_no_column_that_its_rows_do_not_hold(heads, key_heads):
    lengths = [60] * ROWS + [7, 20, 3, 1] * (ROWS // 4) + [45]
    query, key, value, mask = drawn(lengths, heads, key_heads)
    expected = naive(query, key, value, lengths)
    # Reached by whoever reads more than the band's longest row holds, masked or not.
    key[ROWS : 2 * ROWS, :, :-20] = value[ROWS : 2 * ROWS, :, :-20] = float("nan")
    layer = module(heads // key_heads)
    whole, _ = ALL_ATTENTION_FUNCTIONS[CUT](layer, query, key, value, mask)
    assert whole.isnan().any()
    with by_bands(bands(lengths)):
        found, _ = ALL_ATTENTION_FUNCTIONS[CUT](layer, query, key, value, mask)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_whoever_attends_otherwise_is_left_alone_and_everything_is_put_back():
    lengths = [40] * ROWS + [5] * ROWS
    query, key, value, mask = drawn(lengths, 2, 2)
    layer = module(1)
    key[ROWS:, :, :-5] = float("nan")
    stock = ALL_ATTENTION_FUNCTIONS[CUT]
    elsewhere: list[torch.Tensor] = []

    def attend() -> torch.Tensor:
        output: torch.Tensor = ALL_ATTENTION_FUNCTIONS[CUT](layer, query, key, value, mask)[0]
        return output

    with by_bands(bands(lengths)):
        assert not attend().isnan().any()
        # Another thread's pass, one over other rows, and one of two tokens see all columns.
        thread = threading.Thread(target=lambda: elsewhere.append(attend()))
        thread.start()
        thread.join()
        fewer = [tensor[1:] for tensor in (query, key, value, mask)]
        assert ALL_ATTENTION_FUNCTIONS[CUT](layer, *fewer)[0].isnan().any()
        twice = query.repeat(1, 1, 2, 1)
        assert ALL_ATTENTION_FUNCTIONS[CUT](layer, twice, key, value, mask)[0].isnan().any()
    assert elsewhere[0].isnan().any()
    assert attend().isnan().any()
    with pytest.raises(ZeroDivisionError), by_bands(bands(lengths)):
        print(1 // 0)
    assert ALL_ATTENTION_FUNCTIONS[CUT] is stock


def test_threads_whose_passes_overlap_are_each_cut_by_their_own_bands_and_leave_nothing():
    stock = ALL_ATTENTION_FUNCTIONS[CUT]
    first, second = [40] * ROWS + [5] * ROWS, [30] * ROWS + [3] * ROWS
    inside, left = threading.Event(), threading.Event()
    found: list[torch.Tensor] = []

    def attend(lengths: list[int], held: int) -> torch.Tensor:
        query, key, value, mask = drawn(lengths, 2, 2)
        key[ROWS:, :, :-held] = float("nan")
        output: torch.Tensor = ALL_ATTENTION_FUNCTIONS[CUT](module(1), query, key, value, mask)[0]
        return output

    def other() -> None:
        with by_bands(bands(second)):
            inside.set()
            left.wait(30)
            found.append(attend(second, 3))

    thread = threading.Thread(target=other)
    with by_bands(bands(first)):
        thread.start()
        inside.wait(30)
        found.append(attend(first, 5))
    assert attend(first, 5).isnan().any()
    left.set()
    thread.join()
    assert len(found) == 2
    assert not any(output.isnan().any() for output in found)
    assert ALL_ATTENTION_FUNCTIONS[CUT] is stock


def test_a_network_is_decoded_by_bands_where_it_attends_by_the_function_that_is_cut(monkeypatch):
    model = tiny.model("llama")
    assert can_cut(model.network.config)
    seen: list[int] = []

    def counted(cut):
        seen.append(len(cut))
        return by_bands(cut)

    monkeypatch.setattr("lesion.engines.transformers.batch.by_bands", counted)
    texts = [tuple(range(5, 5 + length)) for length in [2] * ROWS + [40] * ROWS]
    requests = [
        Request(f"{edit} {index}", text, edit, Decoding(6))
        for edit in (BASELINE, ScaleBlock(0))
        for index, text in enumerate(texts)
    ]
    engine = TransformersEngine(model, 2 * ROWS)
    together = {response.key: response.token_ids for response in engine.answer(requests)}
    assert max(seen) > 1
    monkeypatch.setattr("lesion.engines.transformers.batch.can_cut", lambda config: False)
    engine = TransformersEngine(model, 1)
    few = [request for index, request in enumerate(requests) if index % 16 == 0]
    assert {response.key: response.token_ids for response in engine.answer(few)} == {
        request.key: together[request.key] for request in few
    }
