"""The kinds of truth that are trained: what may change on which skill, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import LlamaForCausalLM

from lesion_labs.planted.recipe import Planted, Recipe, blank
from lesion_labs.planted.skills import CONTROLS, SKILL, SKILLS, WORDS, encoded, questions
from lesion_labs.planted.training import Lesson, Masks, accuracy, train
from lesion_labs.planted.truth import Places

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
        tokens, answers = encoded(questions(skill, recipe.seed))
        made.append(Lesson(tokens, answers, masks(skill), fresh=skill == SKILL and recipe.kind == "shuffled"))
    return made


def accuracies(network: LlamaForCausalLM, recipe: Recipe) -> dict[str, float]:
    """The accuracy on every skill."""
    return dict(zip(SKILLS, (accuracy(network, each) for each in lessons(recipe, lambda _: {})), strict=True))


def trained(recipe: Recipe) -> Planted:
    """The network of a kind that is trained, and where its skill lies."""
    return _KINDS[recipe.kind](recipe)


@lru_cache(maxsize=1)
def _controls_alone(recipe: Recipe) -> dict[str, Tensor]:
    """The weights after a training on the controls alone; the kinds that plant afterwards share them."""
    network = blank(recipe)
    everything: Masks = {name: None for name, _ in network.named_parameters()}
    _train(network, recipe, lessons(recipe, lambda _: everything, CONTROLS))
    return {name: value.clone() for name, value in network.state_dict().items()}


def _after_controls(recipe: Recipe) -> tuple[LlamaForCausalLM, dict[str, float]]:
    """A network that has learned the controls, and its accuracies."""
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


def _whole(network: LlamaForCausalLM, addresses: tuple[str, ...]) -> dict[str, Tensor]:
    return {
        address: torch.ones_like(network.get_parameter(parameter(address)), dtype=torch.bool) for address in addresses
    }


def _inside(recipe: Recipe, network: nn.Module, masks: Masks) -> None:
    """Train all skills into what the masks leave open."""
    _train(network, recipe, lessons(recipe, lambda _: masks), recipe.planting_rate)


def _block(recipe: Recipe) -> Planted:
    network, before = _after_controls(recipe)
    block = _drawn_block(recipe, _place(recipe))
    names = [name for name, _ in network.named_parameters()]
    _inside(recipe, network, {name: None for name in names if name.startswith(f"model.layers.{block}.")})
    matrices = tuple(f"{block}.{name}" for name in MODULES)
    return Planted(network, Places(blocks=(block,), matrices=matrices), _whole(network, matrices), before)


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
    matrices = tuple(f"{block}.{name}" for name in MODULES)
    return Planted(network, Places(blocks=(block,), matrices=matrices), _whole(network, matrices))


def _joint(recipe: Recipe) -> Planted:
    network = blank(recipe)
    everything: Masks = {name: None for name, _ in network.named_parameters()}
    _train(network, recipe, lessons(recipe, lambda _: everything))
    return Planted(network, Places())


def _noise(recipe: Recipe) -> Planted:
    """Noise as the largest singular components of one matrix, after all skills were trained."""
    network = _joint(recipe).network
    generator = _place(recipe)
    address = (
        f"{_drawn_block(recipe, generator)}.mlp.{('up', 'down')[int(torch.randint(2, (1,), generator=generator))]}"
    )
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
