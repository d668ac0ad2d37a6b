"""Replaced contributions, independently: plain hooks on modules named by hand, and loops over texts and positions."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter

import torch
from headed import HEADS, SIZE, projection
from references import stack
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lesion.edits.edit import Edit, parts
from lesion.edits.place import UNITS
from lesion.edits.reference import Reference
from lesion.edits.replace import Replace
from lesion.models.load import Model

NORMED = {"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"}
# The module whose output is what a branch adds, a norm behind it included.
ADDS = {
    "gpt_neox": {"attention": "attention", "mlp": "mlp"},
    "gpt2": {"attention": "attn", "mlp": "mlp"},
    "opt": {"attention": "self_attn", "mlp": "fc2"},
    "unknown": {"attention": "norm_behind", "mlp": "ffn"},
    "gemma2": NORMED,
    "gemma3": NORMED,
    "olmo2": NORMED,
}
PLAIN = {"attention": "self_attn", "mlp": "mlp"}
TEXTS = (3, 5, 2, 4)


def some_reference(model: Model, texts: tuple[int, ...] = TEXTS, seed: int = 0, width: int = 32) -> Reference:
    """A reference of any numbers at every place of a tiny model."""
    generator = torch.Generator().manual_seed(seed)
    numbers = [str(block.index) for block in model.anatomy.blocks]
    addresses = [number if unit == "block" else f"{number}.{unit}" for number in numbers for unit in UNITS]
    sampled = {address: torch.randn(sum(texts), width, generator=generator) for address in addresses}
    means = {address: torch.randn(2, width, generator=generator) for address in sampled}
    # For positions 0 to 5, and behind them.
    at = {address: torch.randn(7, width, generator=generator) for address in sampled}
    fitted = {address: torch.randn(2, width, generator=generator) for address in sampled}
    kinds = {"mean": means, "position": at, "resample": sampled, "optimal": fitted}
    return Reference(model.name, model.fingerprint, "some texts", 99, kinds, texts=texts)


def some_heads(model: Model, family: str) -> Reference:
    """A reference of any numbers at every head of a tiny model."""
    generator = torch.Generator().manual_seed(0)
    addresses = [f"{block.index}.attention.head.{head}" for block in model.anatomy.blocks for head in range(HEADS)]
    counts = {"mean": 2, "position": 7, "resample": sum(TEXTS), "optimal": 2}
    kinds = {
        kind: {address: torch.randn(count, SIZE.get(family, 8), generator=generator) for address in addresses}
        for kind, count in counts.items()
    }
    return Reference(model.name, model.fingerprint, "some texts", 99, kinds, texts=TEXTS)


def number_at(part: Replace, position: int) -> int:
    """The number of the vector of the reference that a replacement puts at a position."""
    if part.kind != "resample":
        return min(position, len(part.reference.vectors[part.kind][part.address]) - 1)
    lengths = part.reference.texts
    tokens = [(text, at) for text, length in enumerate(lengths) for at in range(length)]
    position = min(position, max(lengths) - 1)
    later = [(part.draw + step) % len(lengths) for step in range(len(lengths))]
    return next(tokens.index((text, position)) for text in later if (text, position) in tokens)


def module_of(network: PreTrainedModel, family: str, layer: int, unit: str):
    """The block, or the module whose output a branch adds."""
    block = stack(network, family)[layer]
    return block if unit == "block" else attrgetter(ADDS.get(family, PLAIN)[unit])(block)


@contextmanager
def replaced(network: PreTrainedModel, family: str, edit: Edit, length: int) -> Iterator[None]:
    """A network whose passes over whole texts of this length are under an edit of replacements."""

    def hook_of(part):
        def hook(module, args, kwargs, output):
            stream = output[0] if isinstance(output, tuple) else output
            before = (args[0] if args else kwargs["hidden_states"]) if part.unit == "block" else 0
            chosen = [number_at(part, position) for position in range(length)]
            vectors = part.reference.vectors[part.kind][part.address][chosen]
            put = vectors.repeat(stream.numel() // (32 * length), 1).view_as(stream) + before
            return (put, *output[1:]) if isinstance(output, tuple) else put

        return hook

    def head_hook_of(part):
        def hook(module, args):
            given = args[0].clone().view(-1, length, args[0].shape[-1])
            start = int(part.address.rpartition(".")[2]) * SIZE.get(family, 8)
            chosen = [number_at(part, position) for position in range(length)]
            given[..., start : start + SIZE.get(family, 8)] = part.reference.vectors[part.kind][part.address][chosen]
            return (given.view(args[0].shape), *args[1:])

        return hook

    with ExitStack() as hooks:
        for part in parts(edit):
            if "head" in part.address:
                module = projection(network, family, int(part.address.partition(".")[0]))
                hooks.callback(module.register_forward_pre_hook(head_hook_of(part)).remove)
                continue
            module = module_of(network, family, part.layer, part.unit)
            hooks.callback(module.register_forward_hook(hook_of(part), with_kwargs=True).remove)
        yield


def contributions(network: PreTrainedModel, family: str, texts) -> dict[str, Tensor]:
    """What every place adds at every token of some texts, run one by one: [tokens, 32] float64, in their order."""
    collected: dict[str, list[Tensor]] = {}

    def hook_of(address, whole):
        def hook(module, args, kwargs, output):
            stream = output[0] if isinstance(output, tuple) else output
            before = (args[0] if args else kwargs["hidden_states"]).double() if whole else 0
            collected.setdefault(address, []).append((stream.double() - before).reshape(-1, 32))

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for layer in range(len(stack(network, family))):
            for unit in UNITS:
                address = str(layer) if unit == "block" else f"{layer}.{unit}"
                module = module_of(network, family, layer, unit)
                hook = hook_of(address, unit == "block")
                hooks.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        for text in texts:
            network(torch.tensor([list(text)]), use_cache=False)
    return {address: torch.cat(parts) for address, parts in collected.items()}


def of_heads(network: PreTrainedModel, family: str, texts) -> dict[str, Tensor]:
    """What every head gives at every token of some texts, run one by one: [tokens, size] float64, in their order."""
    collected: dict[str, list[Tensor]] = {}
    size = SIZE.get(family, 8)

    def hook_of(layer):
        def hook(module, args):
            for head in range(HEADS):
                own = args[0].double().reshape(-1, HEADS * size)[:, head * size : (head + 1) * size]
                collected.setdefault(f"{layer}.attention.head.{head}", []).append(own)

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for layer in range(len(stack(network, family))):
            hooks.callback(projection(network, family, layer).register_forward_pre_hook(hook_of(layer)).remove)
        for text in texts:
            network(torch.tensor([list(text)]), use_cache=False)
    return {address: torch.cat(parts) for address, parts in collected.items()}


def in_one_pass_and_with_a_cache(network: PreTrainedModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of tokens read at once, and of the same tokens with a cache: five first, then one by one."""
    with torch.no_grad():
        whole = network(ids).logits
        cache = DynamicCache(config=network.config)
        pieces = [network(ids[:, :5], past_key_values=cache, use_cache=True).logits]
        for step in range(5, ids.shape[1]):
            pieces.append(network(ids[:, step : step + 1], past_key_values=cache, use_cache=True).logits)
    return whole, torch.cat(pieces, 1)


def alone_and_padded(network: PreTrainedModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of one row of tokens, and of the same row behind four tokens of padding."""
    padded = torch.cat([torch.full((1, 4), 7), ids], 1)
    mask = torch.cat([torch.zeros(1, 4, dtype=torch.long), torch.ones_like(ids)], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        given = network(padded, attention_mask=mask, position_ids=positions, use_cache=False).logits
        return network(ids, use_cache=False).logits, given[:, 4:]
