"""Drafts: what a prompt was answered under one edit is what another edit's answer is first compared with.

Most edits change an answer late or not at all. So one row of every prompt goes ahead, the baseline where it is asked
for, and its answer is the draft of the others: the pass over their prompt runs over the draft as well, each row keeps
what it would have said itself, and goes on from there. Nothing is guessed: every token is the row's own.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable

from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.sequence import ActiveRequest

# Share of the drafted tokens that an edit must have said for the next draft to be worth its pass. A processor computes
# every token of a pass; an accelerator computes a hundred in the time of one. Where recorded steps fill it, a token
# takes 0.6 in a pass of what it takes in a step (7B on an H200: 0.025 and 0.040 ms).
WORTH_ON_CPU, WORTH, WORTH_RECORDED = 0.3, 0.05, 0.6
# Of edits that are not worth a draft, one prompt in so many is drafted all the same: later questions may be others.
AGAIN = 16
# Tokens of a draft that are compared in any case, and of an edit's first drafts on a processor: later ones reach so
# many times as far as those before were said.
SHORT, FIRST_ON_CPU, FURTHER = 4, 32, 2
# Rows that are shorter than this share of the longest are not padded to its length, unless that takes so few tokens
# that a pass of their own would cost more.
FILLED, SPARE = 0.8, 48

Question = tuple[tuple[int, ...], Decoding]


class Drafts:
    """The rows that wait, the next one last, and the answers that they may begin with.

    Rows of one prompt enter together, the longest prompts first; where a batch is to be filled, those that are expected
    to have the longest answers, so that none of these is at work alone in the end.

    Args:
        worth: share of drafted tokens that must be accepted, where a draft runs through all blocks; None: no row waits
            for a draft.
        first: tokens of an edit's first drafts; None compares whole answers.
        lent: answers that are known already, by question; those of this batch are added.
        even: whether rows behind prefixes share a pass only where they have equally many tokens to read.
        filling: whether no row waits for a draft as long as there is room for it.
    """

    def __init__(
        self,
        blocks: int,
        worth: float | None,
        first: int | None = None,
        lent: dict[Question, tuple[int, ...]] | None = None,
        even: bool = False,
        filling: bool = False,
    ) -> None:
        self.blocks = blocks
        self.worth = worth
        self.first = first
        self.even = even
        self.filling = filling
        self.ready: list[ActiveRequest] = []
        self._following: dict[Question, list[ActiveRequest]] = {}
        self._lent = {} if lent is None else lent
        self._tally: dict[tuple[int, Decoding], _Tally] = defaultdict(_Tally)

    def __len__(self) -> int:
        return len(self.ready) + sum(map(len, self._following.values()))

    @property
    def rows(self) -> list[ActiveRequest]:
        """All that wait."""
        return [*self.ready, *(row for group in self._following.values() for row in group)]

    def wait(self, rows: Iterable[ActiveRequest]) -> None:
        """Let rows wait: one of every question goes ahead, unless its answer is known."""
        together: dict[Question, list[ActiveRequest]] = defaultdict(list)
        for row in rows:
            if row.request.traced or self.worth is None:
                self._insert(row)
            else:
                together[_question(row.request)].append(row)
        for question, group in together.items():
            if question in self._lent:
                self._let(group, self._lent[question])
                continue
            # The row without an edit, or one whose edit begins in the middle: the blocks there are missed least.
            leader = min(group, key=lambda row: (row.start < self.blocks, abs(row.start - self.blocks / 2)))
            self._insert(leader)
            group.remove(leader)
            if group:
                self._following[question] = group

    def take(self, rows: int, tokens: int) -> list[ActiveRequest]:
        """The next rows, at most `rows` and `tokens` with padding, but always one.

        Rows of one prompt stay together, and much shorter ones wait for a pass of their own, where that can be. Tokens
        that are computed once for many rows do not count, but with them a pass is at most twice as large.
        """
        while self.filling and self._following and len(self.ready) < rows:
            question, group = next(iter(self._following.items()))
            self._insert(group.pop())
            if not group:
                del self._following[question]
        taken: list[ActiveRequest] = []
        fresh: list[int] = []
        whole = 0
        while self.ready and len(taken) < rows:
            row = self.ready[-1]
            if self._spared(row):
                self._insert(self.ready.pop())
                continue
            # The longest is first; what exceeds one pass enters with the next.
            fresh.append(row.fresh)
            whole, longest = max(whole, len(row.given)), max(fresh)
            uneven = min(fresh) < FILLED * longest and len(fresh) * longest - sum(fresh) > SPARE
            if self.even and (row.prefix.rank or (taken and taken[0].prefix.rank)):
                uneven = min(fresh) < longest
            if taken and (uneven or len(fresh) * longest > tokens or len(fresh) * whole > 2 * tokens):
                break
            taken.append(self.ready.pop())
        while self.ready and self.ready[-1].given == taken[-1].given != taken[0].given:
            self.ready.append(taken.pop())
        return taken

    def entered(self, rows: Iterable[ActiveRequest]) -> None:
        """Take note of how these rows' drafts went."""
        for row in rows:
            if row.draft:
                tally = self._tally[row.column, row.request.decoding]
                tally.rows += 1
                tally.drafted += len(row.draft)
                tally.accepted += row.accepted

    def finished(self, row: ActiveRequest) -> None:
        """Lend the answer of a row that went ahead to those that follow it."""
        question = _question(row.request)
        if question not in self._lent:
            # Nothing follows the last token.
            self._lent[question] = tuple(row.generated[:-1])
            self._let(self._following.pop(question, []), self._lent[question])

    def again(self, rows: Iterable[ActiveRequest]) -> None:
        """Let rows wait that could not enter, as they are; what they share with others may be another than before."""
        self.ready += rows
        self.ready.sort(key=self._order)

    def _let(self, rows: Iterable[ActiveRequest], draft: tuple[int, ...]) -> None:
        for row in rows:
            row.draft, row.known = draft[: row.limit - 1], len(draft)
            self._insert(row)

    def _spared(self, row: ActiveRequest) -> bool:
        """Whether a row enters later and without its draft, since its edit has said too little of other drafts.

        A draft that is long against what its edit said of others is cut.
        """
        if len(row.draft) <= SHORT or self.worth is None:
            return False
        tally = self._tally[row.column, row.request.decoding]
        # The blocks that do not run for this row alone cost it nothing.
        share = (self.blocks - row.start) / self.blocks or 1.0
        if tally.worth(self.worth * share):
            row.draft = row.draft[: tally.reach(self.first)]
            return False
        row.draft = ()
        return True

    def _insert(self, row: ActiveRequest) -> None:
        insort(self.ready, row, key=self._order)

    def _order(self, row: ActiveRequest) -> tuple[int, int, int, tuple[int, ...], int]:
        # In powers of two, so that prompts of about one length still share a pass.
        length = (row.known or row.limit).bit_length() if self.filling else 0
        return -row.prefix.rank, length, row.fresh, row.request.prompt, -row.column


class _Tally:
    def __init__(self) -> None:
        self.rows = 0
        self.drafted = 0
        self.accepted = 0
        self.passed = 0

    def reach(self, first: int | None) -> int | None:
        """Tokens of the next draft that are compared, where not all are."""
        if first is None or not self.rows:
            return first
        return max(SHORT, FURTHER * self.accepted // self.rows)

    def worth(self, share: float) -> bool:
        """Whether another draft is worth its pass, and now and then although it is not."""
        if self.accepted >= share * self.drafted:
            return True
        self.passed += 1
        return self.passed % AGAIN == 0


def _question(request: Request) -> Question:
    return request.prompt, request.decoding
