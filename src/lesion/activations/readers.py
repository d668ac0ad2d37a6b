"""Readers: which matrices read which input while a model runs, found by a probe and never by names alone.

A probe of two short rows of the texts shows for every module that holds a matrix whether it is called once, with one
vector per token. What does not hold is left out; nothing is guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.activations.batching import stopped_at_head
from lesion.activations.token_sums import Batch, TextSums, by_row, row_counts, row_sums
from lesion.errors import LesionError
from lesion.models.anatomy import HEAD
from lesion.models.load import Model
from lesion.models.matrices import Matrix

# How far the output may be from the one computed again, as a share of its largest value, in any dtype.
ERROR = 0.05


@dataclass(frozen=True, eq=False)
class Expert:
    """One expert by address and matrix: `first` reads the hidden states (gate and up, in one matrix or two, or up
    alone), `last` what is made of that.
    """

    first: tuple[tuple[str, Matrix], ...]
    last: tuple[str, Matrix]


@dataclass(frozen=True, eq=False)
class Experts:
    """The experts of one block that lie in stacked parameters, with every token that is routed to them.

    An expert is last(act(gate(x)) · up(x)) or last(act(up(x))), its matrices with biases or not; a module of
    transformers may have a gate of its own (`_apply_gate`).

    Attributes:
        activation: act.
    """

    module: nn.Module
    activation: nn.Module | None
    members: tuple[Expert, ...]

    @property
    def device(self) -> torch.device:
        """Of their weights."""
        return self.members[0].last[1].tensor.device

    @property
    def gated(self) -> bool:
        """Whether the first matrices give twice as much as the last is given."""
        expert = self.members[0]
        return sum(matrix.shape[0] for _, matrix in expert.first) == 2 * expert.last[1].shape[1]

    @property
    def counted(self) -> bool:
        """Whether activations can be counted: what act gives is known."""
        return self.activation is not None and (not self.gated or len(self.members[0].first) == 2)

    def inputs(self) -> Iterator[tuple[str, int, tuple[str, ...], bool]]:
        """Of every input: key, size, addresses of its readers, and whether its activations are counted."""
        for expert in self.members:
            (key, matrix), (last, end) = expert.first[0], expert.last
            yield key, matrix.shape[1], tuple(address for address, _ in expert.first), False
            yield last, end.shape[1], (last,), self.counted

    def sums(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], batch: Batch
    ) -> Iterator[tuple[str, TextSums]]:
        """The sums of every input over the tokens of every text that were routed to its expert."""
        rows, width = len(batch.lengths), batch.width
        count, routed = self._routed(args, kwargs)
        if count != rows * width:
            return
        for expert, (token, given, _) in zip(self.members, routed, strict=True):
            real = batch.mask(given.device).reshape(-1)[token]
            row, given = token[real] // width, given[real]
            active, product = self._inside(expert, given)
            tokens = torch.zeros(rows, dtype=torch.float64, device=given.device)
            tokens.index_add_(0, row, torch.ones_like(row, dtype=torch.float64))
            yield expert.first[0][0], TextSums(_added(given.double().square_(), row, rows), tokens, None)
            counts = None if active is None else _added((active > 0).double(), row, rows)
            yield expert.last[0], TextSums(_added(product.double().square_(), row, rows), tokens, counts)

    def explains(self, args: tuple[object, ...], kwargs: Mapping[str, object], output: object) -> bool:
        """Whether the module gave what is computed here from what it was given."""
        count, routed = self._routed(args, kwargs)
        if not count or not isinstance(output, Tensor) or output.numel() % count:
            return False
        total = torch.zeros(count, output.shape[-1], dtype=torch.float64, device=output.device)
        for expert, (token, given, weights) in zip(self.members, routed, strict=True):
            _, product = self._inside(expert, given)
            total.index_add_(0, token, _linear(product, expert.last[1]).double() * weights.double())
        # Experts side by side give what each makes of its tokens.
        error = float((total - output.reshape(-1, *total.shape).double().sum(0)).abs().max())
        return error <= ERROR * float(total.abs().max()) + 1e-30

    def _routed(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[int, list[tuple[Tensor, Tensor, Tensor]]]:
        """How many tokens came, and for every expert which of them it was given, as what, and the weights of each."""
        if (call := _call(args, kwargs)) is not None:
            hidden, index, weights = call
            chosen = [torch.nonzero(index == number, as_tuple=True) for number in range(len(self.members))]
            return len(hidden), [(token, hidden[token], weights[token, place, None]) for token, place in chosen]
        given = _incoming(args, kwargs)
        if given is None or given.shape[:-1].numel() % len(self.members):
            return 0, []
        by_expert = given.reshape(len(self.members), -1, given.shape[-1])
        tokens = [own.any(-1).nonzero()[:, 0] for own in by_expert]  # others came times 0
        return by_expert.shape[1], [
            (t, own[t], own.new_ones(len(t), 1)) for t, own in zip(tokens, by_expert, strict=True)
        ]

    def _inside(self, expert: Expert, given: Tensor) -> tuple[Tensor | None, Tensor]:
        """What act gives, where it can be counted, and what the last matrix is given."""
        parts = [_linear(given, matrix) for _, matrix in expert.first]
        active = self.activation(parts[0]) if self.counted and self.activation is not None else None
        if self.gated and hasattr(self.module, "_apply_gate"):
            return active, self.module._apply_gate(torch.cat(parts, -1))  # type: ignore[operator]
        assert active is not None  # `find_experts`
        return active, active * parts[1] if self.gated else active


def _linear(given: Tensor, matrix: Matrix) -> Tensor:
    """What a matrix of an expert gives, with its bias."""
    storage, bias = matrix.storage, None
    if matrix.bias is not None:
        bias = getattr(matrix.module, matrix.bias)[storage.expert]
        bias = bias[storage.start : storage.stop] if len(bias) > matrix.shape[0] else bias
    return nn.functional.linear(given, matrix.view(), bias)


def find_experts(module: nn.Module, held: Sequence[tuple[str, Matrix]]) -> Experts | None:
    """The experts whose matrices a module holds, where each has an end and one or two matrices before it."""
    by_number: dict[int, list[tuple[str, Matrix]]] = defaultdict(list)
    for address, matrix in held:
        if matrix.storage.expert is None or matrix.storage.groups != 1:
            return None
        by_number[matrix.storage.expert].append((address, matrix))
    if sorted(by_number) != list(range(len(by_number))) or {len(parts) for parts in by_number.values()} - {2, 3}:
        return None
    members = tuple(Expert(tuple(parts[:-1]), parts[-1]) for _, parts in sorted(by_number.items()))
    activation = getattr(module, "act_fn", None)
    experts = Experts(module, activation if callable(activation) else None, members)
    ((_, first), *_), (_, last) = members[0].first, members[0].last
    computed = experts.counted or (experts.gated and hasattr(module, "_apply_gate"))
    return experts if computed and first.shape[1] == last.shape[0] else None


def _call(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Tensor, Tensor, Tensor] | None:
    """(hidden states [tokens, width], expert numbers [tokens, k], their weights [tokens, k])."""
    values = [*args, *(kwargs[name] for name in ("hidden_states", "top_k_index", "top_k_weights") if name in kwargs)]
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(values) != 3 or len(tensors) != 3:
        return None
    hidden, index, weights = tensors
    hidden = hidden.reshape(-1, hidden.shape[-1])
    if index.is_floating_point() or index.dim() != 2 or index.shape != weights.shape or len(index) != len(hidden):
        return None
    return hidden, index, weights


def _added(values: Tensor, row: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, values.shape[1], dtype=values.dtype, device=values.device).index_add_(0, row, values)


PROBE_TOKENS = 5
# How far the first of two rows may be from the same row alone, as a share of its largest value, in any dtype.
PROBE_ERROR = 0.05

Take = Callable[[str, TextSums], None]


@dataclass(frozen=True, eq=False)
class Input:
    """One input that is followed, of `size` features, on `device`.

    Attributes:
        key: the address of the first matrix that reads it.
        readers: the addresses of all matrices that read it.
        counted: whether activations above 0 are counted, since a feed-forward branch ends in the matrix.
    """

    key: str
    size: int
    readers: tuple[str, ...]
    device: torch.device
    counted: bool


@dataclass(frozen=True, eq=False)
class _Dense:
    """An input that a module is given whole. `activation` gives act(gate); None where the input itself is it."""

    input: Input
    module: nn.Module
    activation: nn.Module | None


@dataclass(frozen=True, eq=False)
class Readers:
    """Everything of a model that can be followed."""

    dense: tuple[_Dense, ...]
    experts: tuple[Experts, ...]
    inputs: tuple[Input, ...]

    @contextmanager
    def watched(self, batch: Callable[[], Batch], take: Take) -> Iterator[None]:
        """Until the `with` ends, every pass gives the sums of every input, text by text, to `take`; those of `active`
        may follow.

        An input that comes in another shape than the probe saw is not given; the caller finds it missing.
        """

        def given(place: _Dense, _: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            incoming = _incoming(args, kwargs)
            rows = None if incoming is None else by_row(incoming, batch(), place.input.size)
            if rows is not None:
                counts = row_counts(rows, batch()) if place.input.counted and place.activation is None else None
                take(place.input.key, TextSums(row_sums(rows, batch()), batch().tokens(rows.device), counts))

        def activated(place: _Dense, _: nn.Module, __: tuple[object, ...], output: object) -> None:
            rows = by_row(output, batch(), place.input.size) if isinstance(output, Tensor) else None
            if rows is not None:
                take(place.input.key, TextSums(None, None, row_counts(rows, batch())))

        def routed(experts: Experts, _: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            for key, sums in experts.sums(args, kwargs, batch()):
                take(key, sums)

        with ExitStack() as stack:
            for place in self.dense:
                stack.enter_context(place.module.register_forward_pre_hook(partial(given, place), with_kwargs=True))
                if place.activation is not None:
                    stack.enter_context(place.activation.register_forward_hook(partial(activated, place)))
            for experts in self.experts:
                stack.enter_context(
                    experts.module.register_forward_pre_hook(partial(routed, experts), with_kwargs=True)
                )
            yield


@dataclass
class _Seen:
    """What the probe saw: every call of every module that matters, with what came in and what went out."""

    incoming: dict[nn.Module, list[Tensor | None]] = field(default_factory=lambda: defaultdict(list))
    versions: dict[nn.Module, int] = field(default_factory=dict)
    outgoing: dict[nn.Module, list[object]] = field(default_factory=lambda: defaultdict(list))
    plain: dict[nn.Module, bool] = field(default_factory=dict)
    calls: dict[nn.Module, tuple[tuple[object, ...], Mapping[str, object]]] = field(default_factory=dict)


def probe(model: Model, texts: Sequence[Sequence[int]] = ()) -> Readers:
    """Find out what can be followed, by two passes over a few tokens of the texts (any tokens, if all begin alike)."""
    holders: dict[nn.Module, list[tuple[str, Matrix]]] = defaultdict(list)
    for address, matrix in model.anatomy.scored.items():
        holders[matrix.module].append((address, matrix))
    ids = _tokens(model, texts).to(model.device)
    length = ids.shape[1]
    both, alone = (_run(model, rows, holders) for rows in (ids, ids[:1]))
    _refuse_overflow(model, both, holders)
    batch = Batch((length, length), length)

    groups: dict[tuple[object, ...], list[tuple[str, Matrix]]] = {}
    for module, held in holders.items():
        size = held[0][1].shape[1]
        tensor, first = (_only(seen.incoming[module]) for seen in (both, alone))
        if any(matrix.storage.expert is not None for _, matrix in held) or tensor is None or first is None:
            continue
        rows = by_row(tensor, batch, size)
        if rows is None or not both.plain.get(module, type(module) is nn.Linear):  # a pass stops before the head
            continue
        if not _alike(rows[0], first.reshape(-1, size)):
            continue  # rows and tokens do not lie as they seem to
        # Two views of one memory, unchanged in between, are one input.
        same = (tensor.device, tensor.data_ptr(), rows.shape, rows.stride(), both.versions[module])
        groups.setdefault(same, []).extend(held)
    order = {address: place for place, address in enumerate(model.anatomy.scored)}
    dense = []
    for members in groups.values():
        members.sort(key=lambda pair: order[pair[0]])
        key, first_matrix = members[0]
        counted, activation = _activation(model, key, both) if len(members) == 1 else (False, None)
        names = tuple(address for address, _ in members)
        place = Input(key, first_matrix.shape[1], names, first_matrix.device, counted)
        dense.append(_Dense(place, first_matrix.module, activation))
    experts = tuple(
        candidate
        for module, held in holders.items()
        if (candidate := find_experts(module, held)) is not None
        and len(both.outgoing[module]) == 1
        and candidate.explains(*both.calls[module], both.outgoing[module][0])
    )
    inputs = [place.input for place in dense]
    for block in experts:
        inputs += [Input(key, size, names, block.device, counted) for key, size, names, counted in block.inputs()]
    inputs.sort(key=lambda place: order[place.key])
    dense.sort(key=lambda place: order[place.input.key])
    return Readers(tuple(dense), experts, tuple(inputs))


def _tokens(model: Model, texts: Sequence[Sequence[int]]) -> Int[Tensor, "2 length"]:
    """Two different rows: the beginnings of two texts, repeated where a text is shorter; any tokens in their place."""
    length = min(PROBE_TOKENS, model.context)
    vocabulary = model.network.get_input_embeddings().weight.shape[0]
    some = [tuple(row) for row in ((torch.arange(2 * length) * 7 + 3) % vocabulary).view(2, length).tolist()]
    begun = [tuple((list(text) * length)[:length]) for text in texts if len(text)]
    return torch.tensor(list(dict.fromkeys([*begun, *some]))[:2])


def _refuse_overflow(model: Model, seen: _Seen, holders: Mapping[nn.Module, list[tuple[str, Matrix]]]) -> None:
    """Refuse what is not finite: it is like nothing, so that its matrices would be left out as if it were not seen."""
    for module, held in holders.items():
        if any(tensor is not None and not bool(tensor.isfinite().all()) for tensor in seen.incoming[module]):
            names = ", ".join(address for address, _ in held[:3])
            dtype = model.dtype_name
            raise LesionError(
                f"What flows into {names} of {model.name} is not finite in {dtype}: something before it gives values "
                f"that are too large. Load the model in bfloat16 or float32."
            )


def _run(model: Model, ids: Tensor, holders: Mapping[nn.Module, list[tuple[str, Matrix]]]) -> _Seen:
    seen = _Seen()

    def enters(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        # Held, so that no later tensor can take its place in memory.
        tensor = _incoming(args, kwargs)
        seen.incoming[module].append(tensor)
        seen.calls[module] = (args, kwargs)
        if tensor is not None:
            seen.versions[module] = tensor._version

    def leaves(module: nn.Module, args: tuple[object, ...], output: object) -> None:
        seen.outgoing[module].append(output)
        incoming = _only(seen.incoming[module])
        if module in holders and incoming is not None:  # now: what comes next may write into what it gave
            seen.plain[module] = _is_plain(module, holders[module][0][1], incoming, output)

    small = [
        part
        for block in model.anatomy.blocks
        for part in block.module.modules()
        if next(part.children(), None) is None and next(part.parameters(), None) is None
    ]
    with ExitStack() as stack:
        for module in dict.fromkeys([*holders, *small]):
            stack.enter_context(module.register_forward_pre_hook(enters, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(leaves))
        # Not in inference mode, whose tensors do not tell whether they were changed in place.
        with torch.inference_mode(False), torch.no_grad(), stopped_at_head(model) as run:
            run(ids, torch.ones_like(ids))
    return seen


def _only(tensors: Sequence[Tensor | None]) -> Tensor | None:
    return tensors[0] if len(tensors) == 1 else None


def _incoming(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor | None:
    """The one tensor that a module is given; None where there is none, or several to choose from."""
    if args:
        return args[0] if isinstance(args[0], Tensor) else None
    return _only([value for value in kwargs.values() if isinstance(value, Tensor)])


def _is_plain(module: nn.Module, matrix: Matrix, incoming: Tensor, given: object) -> bool:
    """Whether a module multiplies what comes in by its matrix: by its class, or by what it gave (routers)."""
    if type(module) in (nn.Linear, Conv1D):
        return True
    if matrix.storage.expert is not None:
        return False
    if matrix.packed:  # its numbers cannot be read: the shape of what it gave decides
        rows = matrix.storage.stop if matrix.storage.groups == 1 else 0
        return isinstance(given, Tensor) and given.shape[:-1] == incoming.shape[:-1] and given.shape[-1] >= rows
    weight = matrix.tensor
    if incoming.shape[-1] != weight.shape[-1]:
        return False
    expected = nn.functional.linear(incoming, weight).reshape(-1, weight.shape[0])
    return any(
        isinstance(tensor, Tensor)
        and tensor.shape[-1:] == weight.shape[:1]
        and tensor.numel() == expected.numel()
        and _alike(expected, tensor.reshape(expected.shape))
        for tensor in (given if isinstance(given, tuple | list) else (given,))
    )


def _alike(first: Float[Tensor, "*axes"], second: Float[Tensor, "*axes"]) -> bool:
    if first.shape != second.shape:
        return False
    scale = float(second.double().abs().max())
    return float((first.double() - second.double()).abs().max()) <= PROBE_ERROR * scale + 1e-30


def _activation(model: Model, address: str, seen: _Seen) -> tuple[bool, nn.Module | None]:
    """Whether the input of a matrix is made of activations that can be counted, and the module that gives act(gate).

    A plain MLP ends in what its activation gave. A gated one multiplies act(gate) by up: a module without weights whose
    input was what gate gave. Where neither is certain, nothing is counted.
    """
    if address == HEAD:
        return False, None
    layer, branch, name = address.split(".", 2)
    stem, _, last = name.rpartition(".")
    if branch != "mlp" or last not in ("down", "out"):
        return False, None
    matrices = model.anatomy.blocks[int(layer)].matrices
    prefix = f"{branch}.{stem}." if stem else f"{branch}."
    siblings = {full.removeprefix(prefix) for full in matrices if full.startswith(prefix)}
    if siblings in ({"in", "out"}, {"up", "down"}):
        return True, None
    if last != "down" or "gate" not in siblings:
        return False, None
    gate = matrices[f"{prefix}gate"]
    given = seen.outgoing[gate.module]
    if len(given) != 1 or not isinstance(given[0], Tensor) or gate.storage.groups != 1:
        return False, None
    gates = given[0][..., gate.storage.start : gate.storage.stop]

    def takes_gates(module: nn.Module) -> bool:
        incoming, outgoing = _only(seen.incoming[module]), seen.outgoing[module]
        return (
            incoming is not None
            and incoming.shape == gates.shape
            and incoming.data_ptr() == gates.data_ptr()
            and len(outgoing) == 1
            and isinstance(outgoing[0], Tensor)
            and outgoing[0].shape == gates.shape
            and next(module.parameters(), None) is None
        )

    modules = [module for module in seen.incoming if takes_gates(module)]
    return (True, modules[0]) if len(modules) == 1 else (False, None)
