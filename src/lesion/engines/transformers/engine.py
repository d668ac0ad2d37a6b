"""Batched decoding on plain Hugging Face models, every row under its own edit of blocks and branches.

Rows leave when their answer is finished and new ones enter without waiting for the slowest; prompts are computed once
for all edits up to the block where they part (`prefill.py`), and what one edit has answered is what others' answers are
compared with first (`drafts.py`). Networks that this does not fit answer by their own `generate` (`simple.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig

from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock, of_places, of_spectra
from lesion.edits.gates import Gates, hung
from lesion.edits.lowrank import BUDGET, factor_bytes
from lesion.edits.standing import rows_standing
from lesion.edits.table import Table, Written, by_rows, in_weights, tabulate, with_scaled_weights
from lesion.edits.unit_rows import refuse_other_models
from lesion.edits.weights import written
from lesion.engines.checking import check_requests
from lesion.engines.endings import StopStrings
from lesion.engines.engine import Decoding, Request, Response, Work
from lesion.engines.transformers.batch import Batch
from lesion.engines.transformers.drafts import FIRST_ON_CPU, WORTH, WORTH_ON_CPU, WORTH_RECORDED, Drafts, Question
from lesion.engines.transformers.memory import halve, ran_out, rows_that_fit
from lesion.engines.transformers.prefill import TOKENS
from lesion.engines.transformers.prefixes import Prefixes
from lesion.engines.transformers.recorded import Record, RecordedBatch, cuda_graphs, longest, masks_of
from lesion.engines.transformers.scoring import scored
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.transformers.simple import Simple
from lesion.engines.transformers.static_slots import Masks
from lesion.engines.transformers.ways import Kind, Way, kept_by, odd_by
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.owner import held, resting

# Rows of a batch that may stand empty before new ones are let in, as a share: fewer prefills against idle rows.
REFILL = 1 / 8


class TransformersEngine:
    """Answers requests with one Hugging Face model.

    Truncations of a matrix that all rows pass through are masked row by row; others are written into the weights.
    Requests are answered in groups that share an edit of weights, those without one first, in evaluation mode. Between
    two responses of the first group others may use the model. Then the weights are those of the present group, and
    nobody else may, until the iterator is exhausted, closed or dropped.

    Args:
        batch_size: rows at once at most; `auto` starts from what memory there is. Halved whenever that runs out.
        recorder: makes what records the steps of a batch; by default CUDA graphs on a CUDA device, nothing elsewhere.
        sharers: engines that share the memory here.
    """

    def __init__(
        self,
        model: Model,
        batch_size: int | str = "auto",
        recorder: Callable[[], Record | None] | None = None,
        sharers: int = 1,
    ) -> None:
        self.model = model
        self._recorder = cuda_graphs if recorder is None and model.device.type == "cuda" else recorder
        self._sharers = sharers if batch_size == "auto" else 0
        self._guessed = batch_size == "auto"
        if batch_size == "auto":
            batch_size = rows_that_fit(model, sharers)
        self.work = Work(batch_size=int(batch_size))
        if self.work.batch_size < 1:
            raise UsageError(f"The batch size must be at least 1, not {batch_size}.")
        self._answered: dict[Question, tuple[int, ...]] = {}
        padding = model.tokenizer.pad_token_id
        # Some tokenizers name a padding token that the network has no embedding for. Any token will do: it is masked.
        known = padding is not None and 0 <= padding < model.network.get_input_embeddings().num_embeddings
        self._padding: int = padding if known else 0

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Responses as they are finished, in any order; every request gets exactly one."""
        waiting = list(requests)
        edits = list(dict.fromkeys([BASELINE, *(request.edit for request in waiting)]))
        by_row = [self._by_row(edit) for edit in edits]
        way = way_of(self.model)
        self._masks = masks_of(self.model) if self._recorder and way.fast else None
        table = tabulate(by_row, self.model.anatomy)
        refuse_other_models(table.replacements, self.model)
        column: dict[Edit, int] = {edit: index for index, edit in enumerate(edits)}
        check_requests(self.model, waiting)
        stops = StopStrings.of(self.model.tokenizer, waiting)
        self.rows()
        shared = {edit: in_weights(edit, self.model.anatomy) for edit in edits}
        groups: dict[Written, list[Request]] = {((), ()): []}
        for request in waiting:
            groups.setdefault(shared[request.edit], []).append(request)
        truncated = {
            edit: tuple(part.address for part in of_spectra(rows)) for edit, rows in zip(edits, by_row, strict=True)
        }
        worth, first = (WORTH_ON_CPU, FIRST_ON_CPU) if self.model.device.type == "cpu" else (WORTH, None)
        recorded = isinstance(self._masks, Masks)
        worth = WORTH_RECORDED if recorded else worth
        drafts = Drafts(table.blocks, worth if way.drafts else None, first, self._answered, way.states, recorded)
        with held(self.model, "answers to requests", edits=True, calls=True) as hold, hung(self.model, hold) as gates:
            for (weights, truncations), group in groups.items():
                with written(self.model, weights, truncations):
                    for part in self._that_fit(group, truncated):
                        if way.fast:
                            responses = self._group(gates, part, table, column, stops, drafts)
                        else:
                            simple = Simple(self.model, gates, way, by_row, table, stops, self.work)
                            responses = simple.answered([(request, column[request.edit]) for request in part])
                        for response in responses:
                            with resting(self.model, hold):
                                yield replace(response, engine=self.description)

    def rows(self) -> int:
        """The batch size, of `auto` by what a row turned out to keep."""
        way = way_of(self.model)
        if self._sharers and (way.states or not way.fast):
            self.work.batch_size = rows_that_fit(self.model, self._sharers, way.row_bytes, slowest=not way.fast)
        self._sharers = 0
        return self.work.batch_size

    @cached_property
    def description(self) -> str:
        """What answers, in words: `transformers 5.23.0, torch 2.13.0, float32, sdpa, cpu`."""
        attention = getattr(self.model.network.config, "_attn_implementation", None) or "eager"
        dtype, device = self.model.dtype_name, self.model.device
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        versions = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"
        return f"{versions}, {dtype}, {attention}, {where}"

    def _by_row(self, edit: Edit) -> Compose:
        """What of an edit each row of a batch can have for itself."""
        anatomy = self.model.anatomy
        places = of_places(with_scaled_weights(edit, anatomy))
        return Compose((places, *(cut for cut in of_spectra(edit) if by_rows(cut, anatomy))))

    def _that_fit(self, group: Sequence[Request], truncated: Mapping[Edit, tuple[str, ...]]) -> Iterator[list[Request]]:
        """A group in parts, each with no more truncated matrices than their thin factors fit the memory for them."""
        matrix = self.model.anatomy.matrix
        order = {address: index for index, address in enumerate(self.model.anatomy.scored)}
        ordered = sorted(group, key=lambda r: sorted(order[address] for address in truncated[r.edit]))
        part: list[Request] = []
        there: set[str] = set()
        for request in ordered:
            more = there.union(truncated[request.edit])
            if part and len(more) > len(there) and sum(factor_bytes(matrix(address)) for address in more) > BUDGET:
                yield part
                part, more = [], set(truncated[request.edit])
            part.append(request)
            there = more
        yield part

    def _group(
        self,
        gates: Gates,
        group: Sequence[Request],
        table: Table,
        column: Mapping[Edit, int],
        stops: Mapping[str, StopStrings],
        drafts: Drafts,
    ) -> Iterator[Response]:
        entries = [(request, column[request.edit]) for request in group]
        prefixes = Prefixes(self.model, gates, table, self._padding, self.work, entries, way_of(self.model))
        yield from scored(prefixes, entries)
        starts = table.first_edited().tolist()
        drafts.wait(
            ActiveRequest.of(self.model, one, column, stops[one.key], starts[column], prefixes.of(one, column))
            for one, column in entries
            if not one.choices and not one.tokens
        )
        yield from self._generate(drafts, prefixes)

    def _batch(self, prefixes: Prefixes, waiting: Drafts) -> Batch:
        rows = waiting.rows
        if rows and self._recorder and isinstance(self._masks, Masks):
            most = self.work.batch_size
            if self._guessed:
                most = max(1, way_of(self.model).rows_of(longest(self.model, rows), most))
            return RecordedBatch(
                prefixes, rows, self._masks, self._recorder(), min(most, rows_standing(prefixes.table))
            )
        return Batch(prefixes, rows)

    def _generate(self, waiting: Drafts, prefixes: Prefixes) -> Iterator[Response]:
        batch = self._batch(prefixes, waiting)
        while waiting or batch.live:
            taken: list[ActiveRequest] = []
            try:
                free = batch.size - batch.live
                # The last ones do not wait for more room than they need.
                if free >= max(1, min(batch.size * REFILL, len(waiting))) or not batch.live:
                    taken = waiting.take(free, TOKENS)
                elif waiting and batch.grow(waiting):
                    continue
                if taken:
                    finished = batch.enter(taken)
                    waiting.entered(taken)
                else:
                    if not waiting:
                        batch.shrink()
                    finished = batch.step()
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                shared = prefixes.give_up()
                # Some of those that were to enter may have done so already.
                for row in taken:
                    row.forget()
                waiting.again({id(row): row for row in [*batch.leave(), *taken]}.values())
                if not shared:
                    self.work.batch_size, self._guessed = batch.size, False
                    halve(self.work, self.model, error)
                batch = self._batch(prefixes, waiting)
                continue
            if finished:
                batch.rest()
                for row, finish in finished:
                    waiting.finished(row)
                    yield row.response(finish, self.model)


_ways: WeakKeyDictionary[torch.nn.Module, Way] = WeakKeyDictionary()
"""Networks that were tried, and in which way they answer."""


def way_of(model: Model) -> Way:
    """The fastest way in which a network answers as it does alone.

    What its cache holds decides whether it may answer in the fast way. A network outside the table of families, or
    whose cache is another, is tried with three short prompts under three edits, way after way.
    """
    network = model.network
    if network not in _ways:
        kept = kept_by(model)
        way = kept if model.anatomy.known and kept.fast and not kept.states else _tried(model, kept)
        _ways[network] = replace(kept, kind=way.kind, why=way.why)
    return _ways[network]


def refuse_simple(model: Model, study: str) -> None:
    """Refuse a network for a study whose passes share prompts between edits."""
    if not (way := way_of(model)).fast:
        raise _needs_fast(model.name, way.why, study)


def refuse_unloaded(config: PretrainedConfig, name: str, study: str) -> None:
    """As `refuse_simple`, before the weights are loaded, as far as the configuration tells."""
    if why := odd_by(config):
        raise _needs_fast(name, why, study)


def _needs_fast(name: str, why: str, study: str) -> LesionError:
    return LesionError(
        f"{name} answers in the simple way, since {why}; {study} needs the fast way. `lesion ablate`,"
        " `lesion evaluate` and `lesion drift` work."
    )


def _tried(model: Model, kept: Way) -> Way:
    """The first way in which a network answers as it does alone, given what it keeps."""
    why, alone = kept.why, Kind.ALONE if hasattr(model.network, "generate") else Kind.PLAIN
    reference = _trial(model, kept, alone)
    if isinstance(reference, str):  # what fails without a cache too says best itself what is wrong
        return Way(Kind.PLAIN, f"its own generate fails ({reference})")
    for kind in (Kind.FAST, Kind.MIXED, Kind.APART)[not kept.fast :]:
        answers = _trial(model, kept, kind)
        if isinstance(answers, str):
            why = why or f"the fast way failed a trial: {answers}"
        elif not _alike(answers, reference, model.dtype):
            why = why or "the fast way gave other answers in a trial"
        elif kind is Kind.FAST and not all(_shares(model, kept, kind, Kind.ALONE, n) for n in (1, 2)):
            why = "rows that share their prompt up to a block gave other answers in a trial"
        else:  # tried with more edits, where rows of several may share a batch at all
            return Way(Kind.SHARED if kind is Kind.MIXED and _shares(model, kept) else kind, why)
    return Way(alone, why)


def _shares(model: Model, kept: Way, kind: Kind = Kind.SHARED, apart: Kind = Kind.MIXED, prompts: int = 2) -> bool:
    """Whether rows that share their prompt up to any block answer as those that do not."""
    answers, others = (_trial(model, kept, each, prompts) for each in (kind, apart))
    return not isinstance(answers, str) and not isinstance(others, str) and _alike(answers, others, model.dtype)


def _trial(model: Model, kept: Way, kind: Kind, every: int = 0) -> dict[str, Response] | str:
    """Answers to a few requests in a way, or what went wrong; to `every` prompts, traced, under edits of all blocks."""
    count, last = model.network.get_input_embeddings().num_embeddings, len(model.anatomy.blocks) - 1
    shapes = ((3, 9), (7, 9))[:every] if every else ((3, 5), (7, 5), (3, 2))
    prompts = [tuple((step * place + 5) % count for place in range(length)) for step, length in shapes]
    edits = (BASELINE, ScaleBlock(0), ScaleBlock(last, 0.5))
    asked: list[tuple[tuple[int, ...], Edit]] = [(prompt, edit) for prompt in prompts for edit in edits]
    if every:
        asked = [(prompt, BASELINE) for prompt in prompts]
        asked += [(prompts[layer % every], ScaleBlock(layer, 0.5)) for layer in range(last + 1)]
    requests = [Request(f"{p} {e}", p, e, Decoding(max_new_tokens=4), traced=bool(every)) for p, e in asked]
    # Choices too: of these, all edits of all prompts share one pass.
    requests += [replace(r, key=f"{r.key} choices", choices=((0,), (1,), (2,))) for r in requests]
    _ways[model.network] = replace(kept, kind=kind)
    try:
        return {response.key: response for response in TransformersEngine(model, len(requests)).answer(requests)}
    except Exception as error:  # whatever its code raises
        return f"{type(error).__name__}: {error}"
    finally:
        del _ways[model.network]


def _alike(answers: Mapping[str, Response], others: Mapping[str, Response], dtype: torch.dtype) -> bool:
    """Whether answers are the same: in half precision, whether their log-probabilities are about the same."""
    exact = dtype == torch.float32

    def alike(response: Response, other: Response) -> bool:
        same = response.token_ids == other.token_ids
        one, two = ([*each.answer.scores, *(p for _, p in each.last if same)] for each in (response, other))
        close = len(one) == len(two) and np.allclose(one, two, rtol=0.0, atol=0.01 if exact else 1.0)
        return close and (same or not exact)

    return all(alike(response, others[key]) for key, response in answers.items())
