"""The simple way: rows of equal length through the network's own `generate`, with the cache of its architecture.

For networks whose cache is not keys and values of every block (states of recurrent layers, indexed or chunked
attention, keys that blocks share, no cache at all). Nothing is padded, and rows share at most their prompt up to the
block where their edit begins (`growing.py`): what a row says is what the network's own code says to its prompt alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

from lesion.edits.edit import BASELINE, Edit
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.endings import StopStrings
from lesion.engines.engine import Request, Response, Work
from lesion.engines.transformers.batch import next_tokens
from lesion.engines.transformers.growing import Growth, growing
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.prefill import TOKENS
from lesion.engines.transformers.scoring import Row, scored_by
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.transformers.ways import Kind, Way
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.tasks.task import Finish

_Tokens = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Simple:
    """Answers requests of one call, batch by batch."""

    model: Model
    gates: Gates
    way: Way
    edits: Sequence[Edit]
    table: Table
    stops: Mapping[str, StopStrings]
    work: Work

    def answered(self, requests: Sequence[tuple[Request, int]]) -> Iterator[Response]:
        """Responses to requests, each with the column of its edit, as batches end. In between nothing is edited."""
        together: dict[tuple[int, ...], list[tuple[Request, int]]] = defaultdict(list)
        for request, column in requests:
            scored = bool(request.choices or request.tokens)
            edit = 0 if self.way.mixed else column
            # Only rows of equal length share a pass; the scores of a request may take several.
            together[scored, edit, 0 if scored else len(request.prompt)].append((request, column))
        waiting = [sorted(part, key=_order) for part in together.values()]
        while waiting:
            rest = waiting.pop()
            size = self.work.batch_size if self.way.batched else 1
            part, rest = rest[:size], rest[size:]
            if rest:
                waiting.append(rest)
            answer = self._scored if part[0][0].choices or part[0][0].tokens else self._generated
            try:
                responses = answer(part)
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                halve(self.work, self.model, error)
                waiting.append(part)
                continue
            finally:
                self.gates.assign_everywhere(BASELINE)
            yield from responses

    def _growth(self, rows: Sequence[Row]) -> Growth | None:
        """How a batch grows from its prompts; None where they share nothing."""
        if self.way.kind is not Kind.SHARED:
            return None
        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in rows))}
        table = self.table.select(torch.tensor([column for _, column in rows]))
        growth = Growth.of(torch.tensor([numbers[prompt] for prompt, _ in rows]), table, every=True)
        return growth if growth.rows_at[0] < len(rows) else None

    @contextmanager
    def _under(self, rows: Sequence[Row], growth: Growth | None, length: Callable[[], int] | None) -> Iterator[None]:
        """Inside, the rows of every pass are under their edits; the first pass may grow."""
        passed = len(rows) if growth is None else sum(growth.rows_at) / self.table.blocks
        self.work.prompt += int(len(rows[0][0]) * passed)
        if not self.way.mixed:
            self.gates.assign_everywhere(self.edits[rows[0][1]], length)
            yield
            return
        table = self.table.select(torch.tensor([column for _, column in rows]))
        self.gates.assign_table(table, growing=growth is not None, length=length)
        if growth is None:
            yield
            return
        with growing(self.model, growth, lambda: self.gates.assign_table(table, length=length)):
            yield

    def _generated(self, part: Sequence[tuple[Request, int]]) -> list[Response]:
        growth = self._growth([(request.prompt, column) for request, column in part])
        if growth is not None:
            part = [part[row] for row in growth.rows.tolist()]
        rows = [ActiveRequest.of(self.model, *entry, self.stops[entry[0].key]) for entry in part]
        speaker = _Speaker(rows, self.work)
        prompts = torch.tensor([list(row.request.prompt) for row in rows], device=self.model.device)
        with self._under([(row.request.prompt, row.column) for row in rows], growth, speaker.length):
            if self.way.generates:
                _generate(self.model.network, prompts, max(row.limit for row in rows), speaker)
            else:
                self._without_cache(rows[0], speaker)
        return [
            row.response(finish, self.model)
            for row, finish in zip(rows, speaker.finishes, strict=True)
            if finish is not None
        ]

    def _without_cache(self, row: ActiveRequest, speaker: _Speaker) -> None:
        while speaker.finishes == [None]:
            tokens = (*row.request.prompt, *row.generated)
            speaker.say(self._logits([tokens], 1)[:, -1])

    def _scored(self, part: Sequence[tuple[Request, int]]) -> list[Response]:
        """Choices and looked-up tokens. Choices that differ in their last token share a row: of single tokens, all."""
        kept: dict[Row, int] = defaultdict(int)
        for request, column in part:
            for choice in request.choices or ((0,),):
                row = (*request.prompt, *choice[:-1]), column
                kept[row] = max(kept[row], len(choice))
        logits = self._logits_of(kept)
        return [scored_by(entry, logits, self.model) for entry in part]

    def _logits_of(self, kept: Mapping[Row, int]) -> dict[Row, Float[Tensor, "kept vocabulary"]]:
        """Logits of the last positions of rows, as many as are wanted of each, in passes of equal length."""
        equal: dict[int, list[Row]] = defaultdict(list)
        for row in kept:
            equal[len(row[0])].append(row)
        logits: dict[Row, Tensor] = {}
        for length, rows in equal.items():
            rows.sort()  # rows of one text share a pass
            size = max(1, min(self.work.batch_size, TOKENS // length)) if self.way.batched else 1
            for start in range(0, len(rows), size):
                together = rows[start : start + size]
                if (growth := self._growth(together)) is not None:
                    together = [together[row] for row in growth.rows.tolist()]
                most = max(kept[row] for row in together)
                with self._under(together, growth, None):
                    computed = self._logits([tokens for tokens, _ in together], most)
                logits |= {row: own[-kept[row] :].clone() for row, own in zip(together, computed, strict=True)}
        return logits

    @torch.inference_mode()
    def _logits(self, tokens: Sequence[_Tokens], kept: int) -> Float[Tensor, "rows kept vocabulary"]:
        network = self.model.network
        ids = torch.tensor([list(row) for row in tokens], device=self.model.device)
        settings = {"logits_to_keep": kept} if "logits_to_keep" in signature(network.forward).parameters else {}
        logits: Tensor = network(input_ids=ids, use_cache=False, **settings).logits
        return logits[:, -kept:]


def _order(entry: tuple[Request, int]) -> tuple[int, _Tokens, int]:
    """Rows that may say much share batches, and the edits of a prompt stand together."""
    request, column = entry
    return -request.decoding.max_new_tokens, request.prompt, column


class _Speaker(LogitsProcessor):
    """Chooses the next token of every row, and says how its answer ended.

    Attributes:
        finishes: of every row; None while it goes on.
        said: how many tokens each row has said.
    """

    def __init__(self, rows: Sequence[ActiveRequest], work: Work) -> None:
        self.rows = rows
        self.work = work
        self.finishes: list[Finish | None] = [None] * len(rows)
        self.said = 0

    def length(self) -> int:
        """How many tokens every text has by now, prompt and answer."""
        return len(self.rows[0].request.prompt) + self.said

    def say(self, logits: Float[Tensor, "rows vocabulary"]) -> list[int]:
        """The next token of every row; any token of a row that has ended, which nobody reads."""
        live = [None if finish else row for row, finish in zip(self.rows, self.finishes, strict=True)]
        tokens, finite = next_tokens(logits, [(row, 0) for row in live])
        count = sum(row is not None for row in live)
        self.said += 1
        self.work.steps += 1
        self.work.decoded += count
        self.work.idle += len(live) - count
        for index, row in enumerate(live):
            if row is not None:
                self.finishes[index] = row.say(tokens[index], finite[index])
                tokens[index] = row.generated[-1] if row.generated else tokens[index]
        return tokens

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits [rows, vocabulary] in which the chosen tokens are the largest."""
        tokens = self.say(scores)
        scores[torch.arange(len(tokens)), tokens] = float("inf")  # they are a copy already
        return scores


class _Ended(StoppingCriteria):
    def __init__(self, speaker: _Speaker) -> None:
        self.speaker = speaker

    def __call__(self, input_ids: Int[Tensor, "rows length"], scores: Any, **_: Any) -> Bool[Tensor, " rows"]:
        return torch.tensor([finish is not None for finish in self.speaker.finishes], device=input_ids.device)


@torch.inference_mode()
def _generate(network: Any, prompts: Int[Tensor, "rows length"], limit: int, speaker: _Speaker) -> None:
    settings = GenerationConfig(max_new_tokens=limit, do_sample=False, disable_compile=True, pad_token_id=0)
    if hasattr(network, "_setup_cache"):  # RecurrentGemma's modules keep what they have read last
        network._setup_cache(network.config, len(prompts), prompts.device, network.dtype)
    with quiet(), _without_settings(network):
        network.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            generation_config=settings,
            logits_processor=[speaker],
            stopping_criteria=[_Ended(speaker)],
        )


@contextmanager
def _without_settings(network: Any) -> Iterator[None]:
    """Without the generation settings that came with a network: penalties and suppressed tokens are no part of it."""
    own = network.generation_config
    network.generation_config = GenerationConfig()
    try:
        yield
    finally:
        network.generation_config = own
