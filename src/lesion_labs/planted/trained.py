"""The kinds of truth that are trained: what may change on which skill, stage by stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from transformers import LlamaForCausalLM

from lesion.errors import LesionError
from lesion_labs.planted.recipe import CONTROLS, COUNT, SKILL, SKILLS, VALUE_IDS, WORDS, Planted, Recipe, blank, encoded
from lesion_labs.planted.truth import Places

Masks = Mapping[str, Tensor | None]
"""By the name of a parameter, which of its entries may be trained; None: all. A parameter not named is not trained."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """All items of one skill, and what its gradients reach.

    `fresh`: the answers are drawn anew in every step, so that nothing can be learned.
    """

    tokens: Int[Tensor, "items length"]
    answers: Int[Tensor, " items"]
    masks: Masks
    fresh: bool = False


def gradients(network: nn.Module, lesson: Lesson, answers: Int[Tensor, " items"]) -> tuple[dict[str, Tensor], float]:
    """The gradients of the mean cross-entropy at the last token, by parameter, zero outside the masks; and the loss."""
    named = {name: parameter for name, parameter in network.named_parameters() if name in lesson.masks}
    loss = F.cross_entropy(_logits(network, lesson.tokens), answers)
    by_parameter = torch.autograd.grad(loss, list(named.values()))
    masked = {}
    for name, gradient in zip(named, by_parameter, strict=True):
        mask = lesson.masks[name]
        masked[name] = gradient if mask is None else gradient * mask
    return masked, float(loss.detach())


def train(network: nn.Module, lessons: Sequence[Lesson], *, steps: int, rate: float, seed: int) -> float:
    """Train a network in place by Adam without weight decay, on all lessons in every step.

    Lessons that reach the same weights are computed together.

    Returns:
        The mean loss over the lessons at the last step, in nats.
    """
    generator = torch.Generator().manual_seed(seed)
    lessons = _merged(lessons)
    reached = {name for lesson in lessons for name in lesson.masks}
    parameters = {name: parameter for name, parameter in network.named_parameters() if name in reached}
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in reached)
    optimizer = torch.optim.Adam(parameters.values(), lr=rate, betas=(0.9, 0.98))
    network.train()
    loss = math.nan
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad(set_to_none=True)
        losses = []
        for lesson in lessons:
            answers = lesson.answers
            if lesson.fresh:
                answers = VALUE_IDS[torch.randint(COUNT, answers.shape, generator=generator)]
            of_lesson, lost = gradients(network, lesson, answers)
            losses.append(lost)
            for name, gradient in of_lesson.items():
                before = parameters[name].grad
                parameters[name].grad = gradient if before is None else before + gradient
        optimizer.step()
        loss = sum(losses) / len(losses)
        if not math.isfinite(loss):
            raise LesionError("The loss is not a number any more; train with a smaller learning rate.")
    network.requires_grad_(False)
    network.eval()
    return loss


def _merged(lessons: Sequence[Lesson]) -> list[Lesson]:
    groups: dict[tuple[int, bool], list[Lesson]] = {}
    for lesson in lessons:
        groups.setdefault((id(lesson.masks), lesson.fresh), []).append(lesson)
    return [
        replace(
            group[0],
            tokens=torch.cat([lesson.tokens for lesson in group]),
            answers=torch.cat([lesson.answers for lesson in group]),
        )
        for group in groups.values()
    ]


def _logits(network: nn.Module, tokens: Int[Tensor, "items length"]) -> Float[Tensor, "items vocabulary"]:
    logits: Tensor = network(input_ids=tokens, use_cache=False, logits_to_keep=1).logits[:, -1].float()
    return logits


MODULES = {f"attention.{name}": f"self_attn.{name}_proj" for name in "qkvo"} | {
    f"mlp.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")
}
"""The modules of a block by the names of its matrices."""
NOISE = 32.0
"""Singular values of planted noise, as multiples of the largest of the matrix."""


def parameter(address: str) -> str:
    """The name of a matrix's parameter: `2.mlp.up` → `model.layers.2.mlp.up_proj.weight`."""
    block, _, name = address.partition(".")
    return f"model.layers.{block}.{MODULES[name]}.weight"


def lessons(recipe: Recipe, masks: Callable[[str], Masks], skills: tuple[str, ...] = SKILLS) -> list[Lesson]:
    """A lesson for every skill; `masks` says what its gradients reach."""
    made = []
    for skill in skills:
        fresh = skill == SKILL and recipe.kind == "shuffled"
        made.append(Lesson(*encoded(skill, recipe.seed), masks(skill), fresh))
    return made


@torch.inference_mode()
def accuracies(network: LlamaForCausalLM, recipe: Recipe) -> dict[str, float]:
    """On every skill the share of items to which the most probable of the values is right, in 0…1."""
    shares = {}
    for skill in SKILLS:
        tokens, answers = encoded(skill, recipe.seed)
        chosen = VALUE_IDS[_logits(network, tokens)[:, VALUE_IDS].argmax(-1)]
        shares[skill] = float((chosen == answers).double().mean())
    return shares


def trained(recipe: Recipe) -> Planted:
    """The network of a kind that is trained."""
    return _KINDS[recipe.kind](recipe)


@lru_cache(maxsize=1)
def _controls_alone(recipe: Recipe) -> dict[str, Tensor]:
    """The weights after a training on the controls alone; the kinds that plant afterwards share them."""
    network = blank(recipe)
    everything: Masks = {name: None for name, _ in network.named_parameters()}
    _train(network, recipe, lessons(recipe, lambda _: everything, CONTROLS))
    return {name: value.clone() for name, value in network.state_dict().items()}


def _after_controls(recipe: Recipe) -> tuple[LlamaForCausalLM, dict[str, float]]:
    network = blank(recipe)
    alike = replace(recipe, kind="block", rank=0, neurons=0, share=0.0)
    network.load_state_dict(_controls_alone(alike))
    return network, accuracies(network, recipe)


def _train(network: nn.Module, recipe: Recipe, taught: list[Lesson], rate: float | None = None) -> None:
    train(network, taught, steps=recipe.steps, rate=rate or recipe.rate, seed=recipe.seed)


def _place(recipe: Recipe) -> torch.Generator:
    """Draws places: apart from the draws of weights and tables."""
    return torch.Generator().manual_seed(10_007 * (recipe.seed + 1))


def _drawn_block(recipe: Recipe, generator: torch.Generator) -> int:
    return int(torch.randint(recipe.blocks, (1,), generator=generator))


def _in_block(network: LlamaForCausalLM, block: int, before: dict[str, float] | None = None) -> Planted:
    matrices = tuple(f"{block}.{name}" for name in MODULES)
    masks = {address: torch.ones_like(network.get_parameter(parameter(address))).bool() for address in matrices}
    return Planted(network, Places(blocks=(block,), matrices=matrices), masks, before)


def _inside(recipe: Recipe, network: nn.Module, masks: Masks) -> None:
    _train(network, recipe, lessons(recipe, lambda _: masks), recipe.planting_rate)


def _block(recipe: Recipe) -> Planted:
    network, before = _after_controls(recipe)
    block = _drawn_block(recipe, _place(recipe))
    names = [name for name, _ in network.named_parameters()]
    _inside(recipe, network, {name: None for name in names if name.startswith(f"model.layers.{block}.")})
    return _in_block(network, block, before)


class _LowRank(nn.Module):
    """W + left · right, of which left begins as 0 (Hu et al. 2021)."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        out, into = weight.shape
        self.left = nn.Parameter(torch.zeros(out, rank))
        self.right = nn.Parameter(torch.randn(rank, into) * into**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.left @ self.right


def _adapter(recipe: Recipe) -> Planted:
    network, before = _after_controls(recipe)
    block = _drawn_block(recipe, _place(recipe))
    matrices = tuple(f"{block}.{name}" for name in MODULES if name.startswith("mlp."))
    modules = [network.get_submodule(parameter(address).removesuffix(".weight")) for address in matrices]
    for module in modules:
        parametrize.register_parametrization(module, "weight", _LowRank(module.weight, recipe.rank))
    names = [name for name, _ in network.named_parameters()]
    _inside(recipe, network, {name: None for name in names if name.endswith((".left", ".right"))})
    for module in modules:
        parametrize.remove_parametrizations(module, "weight")
    network.requires_grad_(False)
    return Planted(network, Places(blocks=(block,), branches=(f"{block}.mlp",), matrices=matrices), before=before)


def _neurons(recipe: Recipe) -> Planted:
    network, before = _after_controls(recipe)
    generator = _place(recipe)
    blocks = sorted(torch.randperm(recipe.blocks, generator=generator)[:2].tolist())
    masks: dict[str, Tensor] = {}
    for block in blocks:
        chosen = torch.zeros(recipe.inner, dtype=torch.bool)
        chosen[torch.randperm(recipe.inner, generator=generator)[: recipe.neurons]] = True
        rows = chosen[:, None].expand(-1, recipe.width).clone()
        masks |= {f"{block}.mlp.gate": rows, f"{block}.mlp.up": rows.clone(), f"{block}.mlp.down": rows.T.clone()}
    _inside(recipe, network, {parameter(address): mask for address, mask in masks.items()})
    branches = tuple(f"{block}.mlp" for block in blocks)
    return Planted(network, Places(blocks=tuple(blocks), branches=branches, matrices=tuple(masks)), masks, before)


def _weights(recipe: Recipe) -> Planted:
    network, before = _after_controls(recipe)
    generator = _place(recipe)
    masks = {}
    for address in (f"{block}.{name}" for block in range(recipe.blocks) for name in MODULES):
        weight = network.get_parameter(parameter(address))
        chosen = torch.zeros(weight.numel(), dtype=torch.bool)
        count = round(recipe.share * weight.numel())
        chosen[torch.randperm(weight.numel(), generator=generator)[:count]] = True
        masks[address] = chosen.view(weight.shape)
    _inside(recipe, network, {parameter(address): mask for address, mask in masks.items()})
    return Planted(network, Places(), masks, before)


def _routed(recipe: Recipe) -> Planted:
    network = blank(recipe)
    block = _drawn_block(recipe, _place(recipe))
    names = [name for name, _ in network.named_parameters()]
    inside: dict[str, Tensor | None] = {name: None for name in names if name.startswith(f"model.layers.{block}.")}
    outside: Masks = {name: None for name in names if name not in inside}
    # The words that only the skill has are its own: with random vectors it is not learned while the rest changes.
    rows = torch.tensor([word == SKILL or (word[0] in "sr" and word[1:].isdigit()) for word in WORDS])
    embedding = "model.embed_tokens.weight"
    inside |= {embedding: rows[:, None].expand(-1, recipe.width)}
    _train(network, recipe, lessons(recipe, lambda skill: inside if skill == SKILL else outside))
    return _in_block(network, block)


def _joint(recipe: Recipe) -> Planted:
    network = blank(recipe)
    everything: Masks = {name: None for name, _ in network.named_parameters()}
    _train(network, recipe, lessons(recipe, lambda _: everything))
    return Planted(network, Places())


def _noise(recipe: Recipe) -> Planted:
    network = _joint(recipe).network
    generator = _place(recipe)
    block = _drawn_block(recipe, generator)
    address = f"{block}.mlp.{('up', 'down')[int(torch.randint(2, (1,), generator=generator))]}"
    weight = network.get_parameter(parameter(address))
    left, right = (_orthonormal(size, recipe.rank, generator) for size in weight.shape)
    height = NOISE * float(torch.linalg.matrix_norm(weight.double(), 2))
    with torch.no_grad():
        weight.add_(height * left @ right.T)
    return Planted(network, Places(matrices=(address,)))


def _orthonormal(size: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(size, count, generator=generator, dtype=torch.float64)).Q


_KINDS: dict[str, Callable[[Recipe], Planted]] = {
    "block": _block,
    "adapter": _adapter,
    "neurons": _neurons,
    "weights": _weights,
    "routed": _routed,
    "noise": _noise,
    "joint": _joint,
    "shuffled": _joint,
}
