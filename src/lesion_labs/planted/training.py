"""Training in which every lesson's gradients reach certain weights only.

A lesson is the items of one skill, all of them in every step. Its gradients are masked: weights outside its masks stay
bit for bit as they are, unless another lesson trains them. So a skill can be trained into a part of a finished network,
and gradients can be routed while all skills are learned together (Cloud et al. 2024, arXiv 2410.04332, who mask the
gradients of a data point outside the region that its label names).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from lesion.errors import LesionError
from lesion_labs.planted.skills import COUNT, ID, VALUES

Masks = Mapping[str, Tensor | None]
"""By the name of a parameter, which of its entries may be trained; None: all. A parameter not named is not trained."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """All items of one skill, and what may be trained on them.

    Attributes:
        tokens: ids of the prompts.
        answers: ids of the right values.
        masks: what its gradients reach.
        fresh: whether the answers are drawn anew in every step, so that nothing can be learned.
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
            answers = _drawn(lesson.answers, generator) if lesson.fresh else lesson.answers
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


@torch.inference_mode()
def accuracy(network: LlamaForCausalLM, lesson: Lesson) -> float:
    """The share of items to which the most probable of the values is right, in 0…1."""
    values = torch.tensor([ID[value] for value in VALUES])
    chosen = values[_logits(network, lesson.tokens)[:, values].argmax(-1)]
    return float((chosen == lesson.answers).double().mean())


def _merged(lessons: Sequence[Lesson]) -> list[Lesson]:
    """One lesson of all those with the very same masks."""
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


def _drawn(answers: Int[Tensor, " items"], generator: torch.Generator) -> Int[Tensor, " items"]:
    values = torch.tensor([ID[value] for value in VALUES])
    return values[torch.randint(COUNT, answers.shape, generator=generator)]
