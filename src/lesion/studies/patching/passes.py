"""Forward passes of patching: pairs of prompts, the values of both runs, and runs into which some of them are put.

Rows of one pair are the same below the block that is patched and before the first patched token. So each pass starts
with one row, from which the others branch off before their block, and the keys and values of earlier tokens are those
of the run itself, computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.arguments import validated
from lesion.edits.gates import lone_modules
from lesion.edits.place import address
from lesion.edits.replace import place_of
from lesion.engines.checking import check_texts
from lesion.engines.transformers.branching import with_branches
from lesion.engines.transformers.engine import way_of
from lesion.engines.transformers.growing import Growth
from lesion.engines.transformers.memory import ran_out
from lesion.engines.transformers.prefill import rows_to_score
from lesion.engines.transformers.prefix_cache import Recorder
from lesion.engines.transformers.states import has_keys
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.patching.result import Direction
from lesion.studies.patching.study import POSITIONS, Kind
from lesion.tasks.continuations import encode_contrast
from lesion.tasks.counterparts import corruptions_of
from lesion.tasks.task import Item, Task

CANDIDATES = 60
"""At most so many corrupted items are tried for an item."""


@dataclass(frozen=True)
class Pair:
    """A clean and a corrupted prompt of the same length.

    Attributes:
        right: first token of what is right after the clean prompt; tempting: of what is right after the corrupted one.
        texts: the two questions; answers: the two right texts.
    """

    item: str
    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    right: int
    tempting: int
    texts: tuple[str, str] = ("", "")
    answers: tuple[str, str] = ("", "")

    @cached_property
    def different(self) -> tuple[int, ...]:
        """The positions at which the tokens differ; before the first of them both runs are the same."""
        return tuple(at for at, (a, b) in enumerate(zip(self.clean, self.corrupted, strict=True)) if a != b)

    @cached_property
    def positions(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of every class that is not empty, in the order of `POSITIONS`."""
        first, end, final = self.different[0], len(self.clean) - 1, self.different[-1]
        classes: dict[str, tuple[int, ...]] = {
            "earlier different": tuple(at for at in self.different[:-1] if at != end),
            "last different": (final,) if final != end else (),
            "next": (final + 1,) if final + 1 < end else (),
            "last": (end,),
        }
        known = {at for places in classes.values() for at in places}
        every = tuple(range(first, end + 1))
        classes |= {"between": tuple(at for at in every if at not in known), "all": every}
        return {name: classes[name] for name in POSITIONS if classes[name]}


def pair_of(model: Model, task: Task, item: Item, style: str | None) -> Pair | None:
    """The item with the first corrupted item that fits it; None where none does.

    It fits if its prompt has as many tokens, and the two right answers begin with different tokens, the same ones
    behind either prompt.
    """
    for other in islice(corruptions_of(task, item), CANDIDATES):
        try:
            clean, corrupted = (
                encode_contrast(model, task, replace(one, choices=(one.gold, another.gold)), style)
                for one, another in ((item, other), (other, item))
            )
        except UsageError:
            raise
        except LesionError:  # two answers that cannot be told apart behind a prompt, or a prompt that is too long
            continue
        fits = (clean.right, clean.tempting) == (corrupted.tempting, corrupted.right)
        if fits and len(clean.prompt) == len(corrupted.prompt) and clean.prompt != corrupted.prompt:
            texts, answers = (item.question, other.question), (item.gold, other.gold)
            return Pair(item.id, clean.prompt, corrupted.prompt, clean.right, clean.tempting, texts, answers)
    return None


class Place(NamedTuple):
    """What is patched: the residual stream after a block, what its attention or its MLP adds, or what a head gives.

    A query head is patched at the input of the attention's output matrix; `head` is its number, None of other places.
    """

    kind: Kind
    layer: int
    head: int | None = None

    def __str__(self) -> str:
        return address(self.layer, self.kind, self.head)

    @property
    def site(self) -> Place:
        """Where its values are read and put: all heads of a block have one site, itself without a number."""
        return self._replace(head=None)


class Patch(NamedTuple):
    """Values at some positions of a place, put from one run into the other."""

    place: Place
    positions: tuple[int, ...]


class Readout(NamedTuple):
    """What a run says of the next token: two logits, and the log-probability of the right token in nats."""

    right: float
    tempting: float
    log_probability: float

    @property
    def difference(self) -> float:
        """The logit difference, right − tempting."""
        return self.right - self.tempting


Values = Mapping[Place, Float[Tensor, "two length width"]]
"""Per site, its values in the clean run and in the corrupted one; of heads side by side."""


def sites_of(model: Model) -> dict[Place, nn.Module]:
    """The module whose output is each site, or whose input it is of heads; without unknown and shared ones, and without
    branches that several modules make together.
    """
    sites: dict[Place, nn.Module] = {}
    for name, module in lone_modules(model).items():
        layer, unit, _ = place_of(name)
        sites[Place(unit, layer)] = module
    matrices = {
        block.index: heads.matrix.module
        for block in model.anatomy.blocks
        if block.attention and (heads := block.attention.heads)
    }
    shared = Counter(matrices.values())
    return {**sites, **{Place("head", layer): module for layer, module in matrices.items() if shared[module] == 1}}


def places_of(model: Model) -> list[Place]:
    """Every place that can be patched, heads one by one."""
    return [
        place
        for site in sites_of(model)
        for place in (
            [site._replace(head=head) for head in range(model.anatomy.heads(site.layer).count)]
            if site.kind == "head"
            else [site]
        )
    ]


@validated
@torch.inference_mode()
def read(model: Model, pair: Pair) -> tuple[Readout, Readout, Values]:
    """Run both prompts once: what each says, and the values of every place at every position."""
    check_texts(model, [pair.clean, pair.corrupted])
    values: dict[Place, Tensor] = {}
    tokens = torch.tensor([pair.clean, pair.corrupted], device=model.device)
    sites = sites_of(model)
    with _hooks(sites, lambda layer: 2, lambda place, stream: values.update({place: stream.clone()})):
        output = model.network(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    if missed := sites.keys() - values.keys():
        raise LesionError(f"A pass of {model.name} did not run through {min(map(str, missed))}; it cannot be patched.")
    clean, corrupted = _readouts(output.logits[:, -1], pair)
    return clean, corrupted, values


@validated
def patched(
    model: Model,
    pair: Pair,
    values: Values,
    direction: Direction,
    patches: Sequence[Patch],
    batch_size: int | None = None,
) -> list[Readout]:
    """What the model says under each patch.

    Args:
        values: of `read`.
        direction: `denoise` puts clean values into the corrupted run, `noise` corrupted ones into the clean run.
        patches: no position lies before the first differing token, where both runs are the same.
        batch_size: rows of one pass; by default what is fastest. Halved where memory runs out.
    """
    source, tokens = (0, pair.corrupted) if direction == "denoise" else (1, pair.clean)
    # A state is that of all tokens before it, and not of any number of them.
    states = way_of(model).states
    starts = [0 if states else min(patch.positions) for patch in patches]
    cached = _cached(model, tokens[: max(starts, default=0)])
    readouts: dict[int, Readout] = {}
    for start in sorted(set(starts)):
        prefix = {at: (keys[:, :, :start], held[:, :, :start]) for at, (keys, held) in cached.items() if start}
        rows = batch_size or rows_to_score(model, len(tokens), start)
        order = sorted((at for at, own in enumerate(starts) if own == start), key=lambda at: patches[at].place.layer)
        while order:
            taken = order[:rows]
            try:
                logits = _pass(model, tokens, start, prefix, values, source, [patches[index] for index in taken])
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                if rows == 1:
                    raise LesionError(
                        f"Memory does not suffice to patch one row of {model.name}; use --dtype bfloat16, or a device"
                        " with more memory."
                    ) from error
                rows = max(1, min(rows, len(taken)) // 2)
                continue
            readouts.update(zip(taken, _readouts(logits, pair), strict=True))
            order = order[rows:]
    return [readouts[index] for index in range(len(patches))]


Cached = Mapping[int, tuple[Tensor, Tensor]]


@torch.inference_mode()
def _cached(model: Model, tokens: Sequence[int]) -> Cached:
    """Keys and values of the first tokens of a run, by the layers that have them; empty where there are none."""
    if not tokens:
        return {}
    cache = Recorder(model.network.config)
    ids = torch.tensor([tokens], device=model.device)
    model.network(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=torch.tensor([len(tokens) - 1]))
    return {at: (layer.keys, layer.values) for at, layer in enumerate(cache.layers) if has_keys(layer)}


@torch.inference_mode()
def _pass(
    model: Model,
    tokens: Sequence[int],
    start: int,
    prefix: Cached,
    values: Values,
    source: int,
    patches: Sequence[Patch],
) -> Float[Tensor, "patches vocabulary"]:
    """The last logits of a run under each of these patches, which are sorted by layer and begin at `start`."""
    blocks = len(model.anatomy.blocks)
    rows_at = [1 + sum(patch.place.layer <= layer for patch in patches) for layer in range(blocks)]
    count = 1 + len(patches)
    none = torch.zeros(count, dtype=torch.long)
    growth = Growth(torch.arange(count), none, rows_at, none.bool())
    by_site: dict[Place, list[int]] = {}
    for row, patch in enumerate(patches, start=1):
        by_site.setdefault(patch.place.site, []).append(row)

    def put(site: Place, stream: Tensor) -> Tensor:
        parts = model.anatomy.heads(site.layer).count if site.kind == "head" else 1
        apart = stream.unflatten(-1, (parts, -1)).clone()
        held = values[site].unflatten(-1, (parts, -1))
        cells = [
            (row, at, patches[row - 1].place.head or 0) for row in by_site[site] for at in patches[row - 1].positions
        ]
        row, position, part = torch.tensor(cells).unbind(1)
        given = held[source, position.to(held.device), part.to(held.device)].to(apart)
        apart[row.to(apart.device), (position - start).to(apart.device), part.to(apart.device)] = given
        done.add(site)
        return apart.flatten(-2)

    def before(layer: int, keys: Tensor, of_layer: Tensor) -> None:
        keys[:, :, :start], of_layer[:, :, :start] = prefix[layer]

    done: set[Place] = set()
    sites = sites_of(model)
    length = len(tokens)
    cache = Recorder(model.network.config, start, before) if prefix else Recorder(model.network.config)
    with (
        with_branches(model, growth),
        _hooks({site: sites[site] for site in by_site}, lambda layer: rows_at[layer], put),
    ):
        output = model.network(
            input_ids=torch.tensor([tokens[start:]], device=model.device),
            attention_mask=torch.ones(1, length, dtype=torch.long, device=model.device),
            position_ids=torch.arange(start, length, device=model.device)[None],
            past_key_values=cache,
            use_cache=True,
            # Given a number, Gemma's last blocks run on so many tokens.
            logits_to_keep=torch.tensor([length - start - 1]),
        )
    if missed := by_site.keys() - done:
        raise LesionError(f"A pass of {model.name} did not run through {min(map(str, missed))}; it cannot be patched.")
    logits: Tensor = output.logits[1:, -1]
    return logits


@contextmanager
def _hooks(
    sites: Mapping[Place, nn.Module], rows: Callable[[int], int], use: Callable[[Place, Tensor], Tensor | None]
) -> Iterator[None]:
    """While inside, `use` sees every site as [rows, length, width] and may give another in its stead."""

    def look(site: Place, module: nn.Module, *passed: Any) -> Any:
        """A hook before a module, which is passed its arguments, or behind it, which is passed its output too."""
        first, *others = passed[-1] if isinstance(passed[-1], tuple) else (passed[-1],)
        if not isinstance(first, Tensor):
            raise LesionError(f"{site} gives back a {type(first).__name__}, no tensor; it cannot be patched.")
        # OPT's MLP gives [rows · length, width].
        given = use(site, first.reshape(rows(site.layer), -1, first.shape[-1]))
        if given is None:
            return None
        given = given.view(first.shape)
        return (given, *others) if isinstance(passed[-1], tuple) else given

    with ExitStack() as hooks:
        for site, module in sites.items():
            register = module.register_forward_pre_hook if site.kind == "head" else module.register_forward_hook
            # First of all hooks: transformers collects hidden states in hooks, and means the patched ones.
            hooks.enter_context(register(partial(look, site), prepend=True))
        yield


def _readouts(logits: Float[Tensor, "rows vocabulary"], pair: Pair) -> list[Readout]:
    """What rows of logits say, with the normalisation in float32 at least."""
    logits = logits.float()
    chosen = logits[:, [pair.right, pair.tempting]].double()
    log_probability = chosen[:, 0] - logits.logsumexp(-1).double()
    if not bool(torch.isfinite(chosen).all()):
        raise LesionError("A patched run has logits that are not finite; load the model in bfloat16 or float32.")
    return [Readout(*map(float, row)) for row in torch.column_stack([chosen, log_probability]).tolist()]
