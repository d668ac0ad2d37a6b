"""Contributions: what blocks and branches add to the residual stream, and heads give, over calibration texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.activations.batching import budget_of, run_in_batches
from lesion.activations.calibration import Calibration
from lesion.activations.token_sums import Batch, by_row
from lesion.arguments import validated
from lesion.edits.gates import lone_modules, same_weights
from lesion.edits.place import address
from lesion.edits.reference import Reference
from lesion.edits.replace import ReplacedUnit, place_of
from lesion.engines.checking import check_texts
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.owner import observing
from lesion.models.units import Heads
from lesion.progress import Silent, Watcher

# Tokens of a batch, padding included.
TOKENS_ON_ACCELERATOR = 16_384
TOKENS_ON_CPU = 2_048
FEWEST_TEXTS = 10
"""A position has a mean of its own where at least so many texts reach it."""

Kind = Literal["mean", "position", "resample"]
PLACES: tuple[ReplacedUnit, ...] = ("block", "attention", "mlp")


@validated
@observing("a reference", unedited=True)
def reference(
    model: Model,
    calibration: Calibration,
    *,
    kinds: Kind | Sequence[Kind] = "mean",
    units: ReplacedUnit | Sequence[ReplacedUnit] = PLACES,
    draws: int = 1,
    vectors: int = 512,
    seed: int = 0,
    batch_tokens: int | None = None,
    watcher: Watcher | None = None,
) -> Reference:
    """What every block, attention and MLP adds to the residual stream on some texts, for `Replace`; or what every query
    head gives at the input of the attention's output matrix.

    `position` and `resample` put what stands at a position of these texts at the same position of a prompt, so that
    both have to be aligned: in one form, behind the same solved problems, each token with one of the same role. Prompts
    of different lengths are refused; which texts are aligned with an item, `lesion.aligned` says.

    One pass over the texts, summed in float64: the mean over the first tokens of the texts and that over all others;
    means over the texts at each position that at least `FEWEST_TEXTS` of them reach; and the contributions at every
    token of a seeded sample of texts, the same at every place. Memory: places · `vectors` (of `position`: positions) ·
    width · 4 bytes, on the CPU, and more where the texts of the draws are longer; a model of 30 blocks, whose 90 places
    are 576 wide, takes 106 MB at 512 vectors. All heads of an attention together are as wide as the input of its output
    matrix: 35 MB more for such a model.

    Args:
        model: which is only read.
        calibration: of one draw, without replacement: prompts with their gold solutions.
        kinds: what the reference holds: `mean`, `position`, `resample`, or several of these.
        units: of which places: `block`, `attention`, `mlp`, `head`, or several of these.
        draws: how many texts `resample` has at least, one for each draw of `Replace`.
        vectors: further texts are added while these have so many tokens together, at most.
        seed: of which texts these are, any integer.
        batch_tokens: the most tokens of a batch, padding included; a longer text is a batch of its own.
        watcher: who is told how it goes.

    Returns:
        The reference. A branch and heads that are not known, a branch that is the sum of several modules, and a module
        that several blocks share, are not in it.

    Example:
        >>> texts = lesion.calibration(model, lesion.find_task("primer:arithmetic"), 50)
        >>> with lesion.applied(model, lesion.Replace("3", "mean", lesion.reference(model, texts))):
        ...     model.network(**model.tokenizer("2 + 2", return_tensors="pt"))

    Raises:
        UsageError: `draws`, `vectors` or `batch_tokens` is below 1, no kind or unit is given, heads are asked for of a
            model of which none are known, the calibration has several draws or draws a text twice, or it has too few
            texts for means at positions or for the draws, or prompts of different lengths for either.
        LesionError: what a place adds cannot be read or is not finite, the network does not know a token of the texts,
            or memory does not suffice for one text.
    """
    wanted = {kinds} if isinstance(kinds, str) else set(kinds)
    if wanted & {"position", "resample"}:
        _refuse_unaligned(calibration)
    return observed(model, calibration, wanted, units, draws, vectors, seed, batch_tokens, watcher)


def observed(
    model: Model,
    calibration: Calibration,
    wanted: Set[Kind],
    units: ReplacedUnit | Sequence[ReplacedUnit] = PLACES,
    draws: int = 1,
    vectors: int = 512,
    seed: int = 0,
    batch_tokens: int | None = None,
    watcher: Watcher | None = None,
) -> Reference:
    """`reference` of texts that need not be aligned: `resample` of such texts is for the spread of a place alone."""
    for number, what in ((draws, "draws"), (vectors, "vectors")):
        if number < 1:
            raise UsageError(f"{number} {what} were asked for; ask for at least 1.")
    refuse_several_draws(calibration)
    budget = budget_of(model, batch_tokens, TOKENS_ON_CPU, TOKENS_ON_ACCELERATOR)
    if not wanted:
        raise UsageError("A reference holds at least one kind: mean, position or resample.")
    places = {units} if isinstance(units, str) else set(units)
    if not places:
        raise UsageError("A reference holds the contributions of at least one unit: block, attention, mlp or head.")
    texts = calibration.texts
    if "position" in wanted and len(texts) < FEWEST_TEXTS:
        raise UsageError(
            f"A mean at a position is over at least {FEWEST_TEXTS} texts, and {calibration.data} gives {len(texts)};"
            " draw more texts, or take the mean (kind mean)."
        )
    if "resample" in wanted and draws > len(texts):
        raise UsageError(
            f"{draws} draws of resample take as many texts, and {calibration.data} gives {len(texts)}; ask for fewer,"
            " or draw more texts."
        )
    check_texts(model, texts)
    lengths = [len(text) for text in texts]
    sampled = _sampled(lengths, draws, vectors, seed) if "resample" in wanted else []
    collector = _Collector(model, lengths, sampled, _reached(lengths) if "position" in wanted else 1, places)
    watcher = watcher or Silent()
    watcher.begin(model.name, len(texts), 0, f"texts of {calibration.data}")

    def end(places: list[int]) -> None:
        collector.commit()
        watcher.answered(len(places))

    with collector.watched():
        run_in_batches(model, texts, budget, collector.begin, end)
    held: dict[str, dict[str, Tensor]] = {
        kind: vectors for kind, vectors in collector.result().items() if kind in wanted
    }
    of_sample = tuple(lengths[text] for text in sampled)
    return Reference(model.name, model.fingerprint, calibration.label, sum(lengths), held, texts=of_sample)


def _refuse_unaligned(calibration: Calibration) -> None:
    """Refuse prompts of different lengths: the same position is another token in each."""
    lengths = sorted(set(calibration.starts))
    if len(lengths) > 1:
        raise UsageError(
            f"The prompts of {calibration.data} have {lengths[0]} to {lengths[-1]} tokens, so that the same position is"
            " another token in each, and position and resample mean nothing there. Take texts that are aligned with an"
            " item (lesion.calibration(…, items=lesion.aligned(task, item))), or the mean (kinds='mean')."
        )


def refuse_several_draws(calibration: Calibration) -> None:
    """Refuse calibration texts from which no reference can be made: each has to count once."""
    if len(calibration.draws) != 1 or calibration.replacement:
        raise UsageError(
            "A reference is made from one draw of texts without replacement; give a calibration with one number of"
            " samples and one repeat."
        )


def _reached(lengths: Sequence[int]) -> int:
    """How many positions, from the first on, at least `FEWEST_TEXTS` texts reach."""
    return sorted(lengths, reverse=True)[FEWEST_TEXTS - 1]


def sampled(calibration: Calibration, draws: int, seed: int) -> list[int]:
    """The places of so many texts of `resample` among those of a calibration, in the order of the draws."""
    return _sampled([len(text) for text in calibration.texts], draws, 1, seed)


def _sampled(lengths: Sequence[int], draws: int, vectors: int, seed: int) -> list[int]:
    """The texts of `resample`, in the order of a hash of seed and number: so many, and more while the tokens fit."""
    order = sorted(range(len(lengths)), key=lambda text: hashlib.sha256(f"reference {seed}:{text}".encode()).digest())
    tokens = list(accumulate(lengths[text] for text in order))
    return [text for place, text in enumerate(order) if place < draws or tokens[place] <= vectors]


def _heads(model: Model) -> dict[str, Heads]:
    """The heads of every attention that has an output matrix of its own, by the address of that matrix."""
    addresses = same_weights(model)
    every = [block.attention.heads for block in model.anatomy.blocks if block.attention and block.attention.heads]
    if not every:
        model.anatomy.heads(0)  # says why
    return {heads.address: heads for heads in every if len(addresses[heads.matrix.address]) == 1}


class _Collector:
    """Hooks that take what every place adds in one pass over the texts. A batch counts when it is committed.

    The heads of an attention are taken together, under the address of its output matrix, and parted at the end.
    """

    def __init__(
        self, model: Model, lengths: list[int], sampled: Sequence[int], reach: int, units: Set[ReplacedUnit]
    ) -> None:
        self.model, self.lengths = model, lengths
        self.starts = torch.tensor([0, *lengths]).cumsum(0)
        width = model.network.config.get_text_config(decoder=True).hidden_size
        # Of every token, its place in the sample; −1 where it is not in it.
        self.slot = torch.full((sum(lengths),), -1)
        kept = 0
        for text in sampled:
            self.slot[self.starts[text] : self.starts[text + 1]] = torch.arange(kept, kept + lengths[text])
            kept += lengths[text]
        self.modules = {name: module for name, module in lone_modules(model).items() if place_of(name)[1] in units}
        self.heads = _heads(model) if "head" in units else {}
        self.sizes = dict.fromkeys(self.modules, width)
        self.sizes |= {address: heads.count * heads.size for address, heads in self.heads.items()}
        self.sums = {address: torch.zeros(size, dtype=torch.float64) for address, size in self.sizes.items()}
        self.sampled = {address: torch.zeros(kept, size) for address, size in self.sizes.items()}
        self.reach = reach
        self.at_positions = {
            address: torch.zeros(reach, size, dtype=torch.float64) for address, size in self.sizes.items()
        }
        self.pending: dict[str, tuple[Tensor, Tensor]] = {}
        self.before: dict[nn.Module, Tensor] = {}

    def begin(self, places: list[int], batch: Batch) -> None:
        """A batch of the texts at `places` starts."""
        self.batch = batch
        slots = [self.slot[self.starts[place] : self.starts[place + 1]] for place in places]
        self.tokens = torch.nn.utils.rnn.pad_sequence(slots, batch_first=True, padding_value=-1)
        self.pending = {}
        self.before.clear()

    def commit(self) -> None:
        """Add up the batch that has run."""
        if missing := sorted(set(self.sizes) - set(self.pending)):
            raise LesionError(
                f"A pass of {self.model.name} did not run through {missing[0]}, so what it adds cannot be read."
            )
        for place, (total, by_position) in self.pending.items():
            self.sums[place] += total
            self.at_positions[place][: len(by_position)] += by_position

    def result(self) -> dict[str, dict[str, Float[Tensor, "vectors width"]]]:
        """The vectors of a reference by kind and address."""
        tokens, first = sum(self.lengths), len(self.lengths)
        texts = (torch.tensor(self.lengths) > torch.arange(self.reach)[:, None]).sum(1, keepdim=True)
        at, means = {}, {}
        for place, total in self.at_positions.items():
            own = total / texts
            # Where every text is a single token, there are no others.
            others = (self.sums[place] - total[0]) / (tokens - first) if tokens > first else own[0]
            at[place], means[place] = torch.stack([*own, others]).float(), torch.stack([own[0], others]).float()
        return {kind: self._parted(of) for kind, of in (("mean", means), ("position", at), ("resample", self.sampled))}

    def _parted(self, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        places = {place: of for place, of in vectors.items() if place not in self.heads}
        return places | {
            address(heads.layer, "head", number): own
            for attention, heads in self.heads.items()
            for number, own in enumerate(vectors[attention].split(heads.size, 1))
        }

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Until the `with` ends, every pass is looked at."""
        with ExitStack() as stack:
            for address, module in self.modules.items():
                if "." not in address:
                    stack.enter_context(module.register_forward_pre_hook(self._enters, with_kwargs=True))
                stack.enter_context(module.register_forward_hook(partial(self._leaves, address)))
            for address, heads in self.heads.items():
                hook = partial(self._given, address)
                stack.enter_context(heads.matrix.module.register_forward_pre_hook(hook, with_kwargs=True))
            yield

    def _enters(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        stream = args[0] if args else kwargs.get("hidden_states")
        if isinstance(stream, Tensor):
            self.before[module] = stream.clone()  # a block may write into its input

    def _leaves(self, address: str, module: nn.Module, args: tuple[object, ...], output: Any) -> None:
        stream = output[0] if isinstance(output, tuple | list) else output
        self._take(address, stream, self.before.pop(module, None))

    def _given(self, address: str, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        self._take(address, args[0] if args else kwargs.get("input"), None)

    def _take(self, address: str, stream: object, before: Tensor | None) -> None:
        read = partial(by_row, batch=self.batch, size=self.sizes[address])
        of_heads = address in self.heads
        place = f"the heads of block {self.heads[address].layer}" if of_heads else address
        what = f"What {place} of {self.model.name} {'give' if of_heads else 'adds to the residual stream'}"
        added = read(stream) if isinstance(stream, Tensor) else None
        start = read(before.to(stream.device)) if before is not None and isinstance(stream, Tensor) else None
        if added is None or ("." not in address and start is None) or address in self.pending:
            raise LesionError(f"{what} cannot be read.")
        contribution = added.double() - start.double() if start is not None else added.double()
        mask = self.batch.mask(contribution.device)
        shown = contribution[mask]
        if not bool(shown.isfinite().all()):
            raise LesionError(f"{what} is not finite on these texts; load the model in bfloat16 or float32.")
        begun = contribution[:, : self.reach].masked_fill(~mask[:, : self.reach, None], 0.0).sum(0)
        self.pending[address] = shown.sum(0).cpu(), begun.cpu()
        rows, columns = (self.tokens >= 0).nonzero(as_tuple=True)
        where = tuple(index.to(contribution.device) for index in (rows, columns))
        self.sampled[address][self.tokens[rows, columns]] = contribution[where].float().cpu()
