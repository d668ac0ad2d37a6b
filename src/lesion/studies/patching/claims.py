"""What a patching study claims: where the answer is carried, what writes it there, and which heads take part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import WHOLE_SHARE
from lesion.report.rows import subject
from lesion.studies.patching.result import HALF, PatchedCell, PatchedTask
from lesion.studies.patching.study import Kind

NAMED = 3
"""So many heads are named in a sentence."""
WHERE = {
    "earlier different": "earlier differing tokens",
    "last different": "last differing token",
    "next": "token behind the last differing one",
    "between": "tokens between",
    "last": "last token",
    "all": "tokens from the first difference on",
}
"""Classes of positions as they stand in a sentence behind *the*."""
CARRIED = "At least half of the answer is restored at {places}."
NOT_HALF = "No kind of position is shown to restore half of the answer."
UNTOLD = "Where the answer is carried cannot be told: {why}."
STRONGEST = f"Most is restored at the {{position}} after block{wording.SPACE}{{layer}}: {{effect}}{{chance}}."
CHANCE = ", which {pairs} do not show to be beyond chance (p {p}, corrected for {patches:,} patches)"
WRITER = (
    f"Of what a single {{branch}} adds, that of block{wording.SPACE}{{layer}} at the {{position}} restores most:"
    " {effect}{chance}."
)
BREAKER = "Put from the corrupted run into the clean one, it takes {effect} of the answer away."
RESTORE = "{moved} of {heads} single heads restore a share beyond chance, most {named}."
TAKE = "{moved} of {heads} single heads take a share away beyond chance, most {named}."
NO_HEAD = "No single head of {heads} is shown to move the difference."
TEST = "Student's test over pairs, corrected by Holm's method over all cells of the model and task, at .05"


@rule(
    CARRIED,
    NOT_HALF,
    UNTOLD,
    STRONGEST,
    needs=f"an effect whose interval is at 50 % or above, and which is beyond chance ({TEST}); a logit difference above"
    " 0 by its interval, and more than half of the clean runs that prefer the right token. The last token after the"
    " last block restores all by construction and does not count",
)
def where_it_is_carried(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """Over which blocks the residual stream of which token carries the answer."""
    for task in tasks:
        if not task.told:
            few = f"only {WHOLE_SHARE.text(task.clean_right)} of the clean runs prefer the right token"
            why = few if task.clean_right <= HALF else "the corruption is not shown to change the logit difference"
            yield Claim((UNTOLD.format(why=why),), (task,), subject(task, tasks))
            continue
        end = (task.blocks - 1, "last")  # from there the answer itself is read
        stream = [cell for cell in task.of("denoise", "block") if (cell.layer, cell.position) != end]
        if not stream:
            continue
        carrying = [cell for cell in stream if cell.carries]
        if not carrying:
            yield Claim(
                (NOT_HALF, _strongest(stream, task)),
                ((task, max(stream, key=lambda cell: cell.size)),),
                subject(task, tasks),
            )
            continue
        positions = sorted({cell.position for cell in carrying}, key=lambda name: _layers(carrying, name))
        places = [f"the {WHERE[name]} ({wording.numbered('block', _layers(carrying, name))})" for name in positions]
        yield Claim(
            (CARRIED.format(places=wording.listed(places)), _strongest(carrying, task)),
            tuple((task, cell) for cell in carrying),
            subject(task, tasks),
        )


def _layers(cells: Iterable[PatchedCell], position: str) -> list[int]:
    return sorted(cell.layer for cell in cells if cell.position == position)


def _strongest(cells: Sequence[PatchedCell], task: PatchedTask) -> str:
    best = max(cells, key=lambda cell: cell.effect.value or 0.0)
    effect = WHOLE_SHARE.text(best.effect)
    return STRONGEST.format(position=WHERE[best.position], layer=best.layer, effect=effect, chance=_chance(best, task))


def _chance(cell: PatchedCell, task: PatchedTask) -> str:
    """Empty where the effect is beyond chance."""
    p = wording.p_value(1.0 if cell.effect.p_corrected is None else cell.effect.p_corrected)
    return (
        "" if cell.is_shown else CHANCE.format(pairs=wording.counted(task.pairs, "pair"), p=p, patches=len(task.cells))
    )


@rule(
    WRITER,
    BREAKER,
    needs=f"the largest effect; whether it is beyond chance: {TEST}",
)
def what_writes_it(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """The attention and the MLP that restore most at one class of positions, with what they break the other way."""
    branches: tuple[tuple[Kind, str], ...] = (("attention", "attention"), ("mlp", "MLP"))
    for task in (task for task in tasks if task.told):
        for kind, name in branches:
            cells = [cell for cell in task.of("denoise", kind) if cell.position != "all"]
            best = max(cells, key=lambda cell: cell.effect.value or 0.0, default=None)
            if best is None:
                continue
            other = task.at("noise", kind, best.layer, best.position)
            sentences = [
                WRITER.format(
                    branch=name,
                    layer=best.layer,
                    position=WHERE[best.position],
                    effect=WHOLE_SHARE.text(best.effect),
                    chance=_chance(best, task),
                )
            ]
            rows = [(task, best)]
            if other is not None:
                sentences.append(BREAKER.format(effect=WHOLE_SHARE.text(other.effect)))
                rows.append((task, other))
            yield Claim(tuple(sentences), tuple(rows), subject(task, tasks))


@rule(
    RESTORE,
    TAKE,
    NO_HEAD,
    needs=TEST,
)
def which_heads(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """The heads that restore and that take away most, each at its strongest class of positions but `all`."""
    for task in (task for task in tasks if task.told):
        cells = [cell for cell in task.of("denoise", "head") if cell.position != "all"]
        cells = cells or list(task.of("denoise", "head"))
        heads = len({(cell.layer, cell.head) for cell in cells})
        sentences, rows = [], []
        for sign, sentence in ((1, RESTORE), (-1, TAKE)):
            own = [cell for cell in cells if cell.is_shown and sign * (cell.effect.value or 0.0) > 0]
            if own:
                largest = sorted(own, key=lambda cell: -cell.size)[:NAMED]
                moved = len({(cell.layer, cell.head) for cell in own})
                named = wording.listed([_head(cell) for cell in largest])
                sentences.append(sentence.format(moved=moved, heads=heads, named=named))
                rows += [(task, cell) for cell in largest]
        if cells and not sentences:
            sentences = [NO_HEAD.format(heads=heads)]
            rows = [(task, max(cells, key=lambda cell: cell.size))]
        if cells:
            yield Claim(tuple(sentences), tuple(rows), subject(task, tasks))


def _head(cell: PatchedCell) -> str:
    return f"{cell.layer}.{cell.head} at the {WHERE[cell.position]} ({WHOLE_SHARE.text(cell.effect)})"
