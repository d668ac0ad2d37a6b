"""Studies by hand: what drift, isolation, effects and patching measure, against plain hooks on one text at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lesion.activations.calibration import Calibration, Draw
from lesion.activations.hidden_states import hidden_states
from lesion.activations.observation import observe
from lesion.activations.readout import first, readout
from lesion.edits.edit import Scale, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.transformers.engine import refuse_simple
from lesion.errors import LesionError
from lesion.models.anatomy import Block
from lesion.models.load import Model
from lesion.models.matrices import Matrix
from lesion.plain import some
from lesion.studies.effects.measurement import Text, measure
from lesion.studies.patching.passes import Pair, Patch, Place, patched, read
from lesion.verification.by_hand import NoReferenceError, changed

CLOSE = 1e-4
"""How far numbers of a float32 model may be apart, as a share of the largest, where only the order of sums differs."""
Texts = Sequence[tuple[int, ...]]


def drift(model: Model, texts: Texts) -> str:
    """What is wrong with hidden states of texts in batches, beside those of each text alone; empty where nothing is."""
    blocks = [block.module for block in model.anatomy.blocks]
    with hidden_states(model, texts) as states:
        for place, text in enumerate(texts):
            streams: list[Tensor] = []
            hooks = [
                blocks[0].register_forward_pre_hook(_takes_input(streams), with_kwargs=True),
                *(block.register_forward_hook(_takes_output(streams)) for block in blocks),
            ]
            _run(model, text)
            for hook in hooks:
                hook.remove()
            for layer, stream in enumerate(streams):
                own = torch.from_numpy(states.layer(layer, states.text_of == place))
                # Several streams lie before rows and tokens, or behind them.
                alone = stream[:, 0].movedim(0, 1) if len(stream) > 1 else stream[0]
                if not _close(own, alone.flatten(1)):
                    return f"the hidden states of layer {layer}"
    return ""


def isolate(model: Model, texts: Texts) -> str:
    """What is wrong with the sums by which weights are isolated, beside those of a loop over what single products are
    given; empty where nothing is.
    """
    names = tuple(str(place) for place in range(len(texts)))
    draw = Draw(len(texts), 0, tuple(range(len(texts))))
    kept = (False,) * len(texts)
    (inputs,) = observe(model, Calibration("texts", "raw", 0, False, True, names, tuple(texts), kept, (draw,)))
    scored = model.anatomy.scored
    norms: dict[str, Tensor] = {}
    with _one_expert_at_a_time(model):
        for text in texts:
            with _Given(scored) as given:
                _run(model, text)
            for address, rows in given.rows.items():
                norm = torch.cat(rows).double().square().sum(0).sqrt()
                norms[address] = norms.get(address, 0.0) + norm
    followed = [address for address in inputs.readers if address in norms]
    for address in followed:
        if not _close(inputs.sums[inputs.readers[address]].norms, norms[address].float()):
            return f"what flows into {address}"
    if unseen := [address for address in scored if address not in inputs.readers]:
        count = f"{len(unseen)} of {len(scored)} matrices"
        raise LesionError(f"what flows into {count} cannot be followed ({some(unseen)})")
    if not followed:
        raise NoReferenceError("its matrices are multiplied in none of the usual ways")
    return ""


def effects(model: Model, texts: Texts) -> str:
    """What is wrong with the effects of blocks and branches on a text, beside plain passes with each switched off."""
    refuse_simple(model, "effects")
    blocks = model.anatomy.blocks
    edits: list[Scale] = [ScaleBlock(block.index) for block in blocks]
    edits += [ScaleAttention(block.index) for block in blocks if block.attention is not None]
    edits += [ScaleMlp(block.index) for block in blocks if block.mlp is not None]
    text = Text(texts[0], texts[1][:2])

    def log_probability() -> float:
        logits = _run(model, text.read)[-len(text.gold) :].double()
        return float(logits.log_softmax(-1).gather(1, torch.tensor(text.gold, device=logits.device)[:, None]).mean())

    measured, clean = measure(readout(model, texts[0]), text, edits), log_probability()
    for edit in edits:
        with changed(model, edit):
            loss = clean - log_probability()
        if abs(loss - measured.loss[edit.address]) > CLOSE * max(1.0, abs(loss)):
            return f"what is lost without {edit.address}"
    written = measured.embedding + measured.offset + sum(measured.direct[str(block.index)] for block in blocks)
    if abs(written - measured.logit) > CLOSE * max(1.0, abs(measured.logit)):
        return "the direct effects do not add up to the logit"
    return ""


def patch(model: Model, texts: Texts) -> str:
    """What is wrong with patched runs, beside plain passes with what the other run gave put there by a hook."""
    refuse_simple(model, "patching")
    clean, middle = texts[0], len(texts[0]) // 2
    known = model.network.get_input_embeddings().num_embeddings
    corrupted = (*clean[:middle], (clean[middle] + 1) % known, *clean[middle + 1 :])
    pair = Pair("clean", clean, corrupted, right=texts[1][0], tempting=texts[1][1])
    _, _, values = read(model, pair)
    modules = {place: module for block in model.anatomy.blocks for place, module in _modules(block) if place in values}
    patches = [Patch(place, positions) for place in modules for positions in ((middle,), (len(clean) - 1,))]
    for each, said in zip(patches, patched(model, pair, values, "denoise", patches), strict=True):
        place, positions = each
        streams: list[Tensor] = []
        hook = modules[place].register_forward_hook(_takes_output(streams))
        _run(model, clean)
        hook.remove()
        hook = modules[place].register_forward_hook(_puts(streams[0], positions))
        logits = _run(model, corrupted)[-1]
        hook.remove()
        if abs(float(logits[pair.right] - logits[pair.tempting]) - said.difference) > CLOSE * float(logits.abs().max()):
            return f"a run into which {place} was put"
    return ""


def _modules(block: Block) -> Iterator[tuple[Place, nn.Module]]:
    yield Place("block", block.index), block.module
    if block.attention is not None:
        yield Place("attention", block.index), block.attention.tail
    if block.mlp is not None:
        yield Place("mlp", block.index), block.mlp.tail


@torch.inference_mode()
def _run(model: Model, text: Sequence[int]) -> Float[Tensor, "tokens vocabulary"]:
    logits: Tensor = model.network(input_ids=torch.tensor([list(text)], device=model.device), use_cache=False).logits[0]
    return logits


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= CLOSE * (1 + other.abs().max()))


def _takes_input(streams: list[Tensor]) -> Callable[..., None]:
    return lambda module, args, kwargs: streams.append((args[0] if args else kwargs["hidden_states"]).clone())


def _takes_output(streams: list[Tensor]) -> Callable[..., None]:
    def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        stream: Any = first(output)
        streams.append(stream.clone())

    return keep


def _puts(values: Tensor, positions: Sequence[int]) -> Callable[..., Any]:
    """A hook that puts what a module gave in another run at some positions."""

    def put(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        given = output[0] if isinstance(output, tuple) else output
        stream, other = (each.reshape(-1, each.shape[-1]) for each in (given.clone(), values))
        stream[list(positions)] = other[list(positions)]
        stream = stream.view_as(given)
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    return put


class _Given(TorchFunctionMode):
    """Collects by address what is multiplied by each matrix, [rows, in], in whatever module that happens."""

    PRODUCTS = (nn.functional.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, torch.bmm, torch.addmm)

    def __init__(self, matrices: Mapping[str, Matrix]) -> None:
        super().__init__()
        self.rows: dict[str, list[Tensor]] = defaultdict(list)
        held: dict[int, dict[str, nn.Module]] = defaultdict(dict)
        for address, matrix in matrices.items():
            tensor, expert = matrix.tensor, matrix.storage.expert
            held[(tensor if expert is None else tensor[expert]).data_ptr()][address] = matrix.module
        # Blocks that share weights (Zamba 2) cannot be told apart by them.
        self._addresses = {place: (*own,) for place, own in held.items() if len({*own.values()}) == 1}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self.PRODUCTS:
            given, weight = args[1:3] if func is torch.addmm else args[:2]
            pairs = zip(given, weight, strict=True) if func is torch.bmm else [(given, weight)]
            for rows, matrix in pairs:
                for address in self._addresses.get(matrix.data_ptr(), ()) if matrix.dim() == 2 else ():
                    self.rows[address].append(rows.reshape(-1, rows.shape[-1]))
        return func(*args, **(kwargs or {}))


@contextmanager
def _one_expert_at_a_time(model: Model) -> Iterator[None]:
    """A mixture computes with one expert after the other, in place of all in one product."""
    before = model.network.get_experts_implementation()
    with_experts = any(matrix.storage.expert is not None for matrix in model.anatomy.scored.values())
    if with_experts:
        model.network.set_experts_implementation("eager")
    try:
        yield
    finally:
        if with_experts:
            model.network.set_experts_implementation(before)
