"""The base model of a bundled lineage: a small Llama or Qwen2 trained from scratch on the primer's documents.

Deterministic from its seed on one machine; every group of documents is a checkpoint from which training resumes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from lesion.errors import LesionError, UsageError, nearest
from lesion.labs.lineage import chat
from lesion.labs.lineage import checkpoints as checkpointing
from lesion.labs.lineage import tokenizer as tokenizers
from lesion.labs.lineage.data import GROUP, Batch, group
from lesion.tasks.primer.task import OPENING, document


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the base model.

    Args:
        family: the architecture, one of `FAMILIES`.
        seed: of the weights and of the document stream.
        groups: groups of documents (`data.GROUP` each) over which the rates rise, stay and fall.
        until: the group after which training ends, before the fall does: there, arithmetic has room to rise.
        tokens_per_batch: tokens in one optimizer step, padding included.
        learning_rate: of AdamW, at its peak.
        matrix_rate: of Muon, at its peak.
        weight_decay: of Muon.
        warmup: documents over which the rates rise.
        fall: the last part of training, over which the rates fall to a hundredth.
    """

    family: str = "llama"
    seed: int = 0
    groups: int = 150
    until: int = 128
    tokens_per_batch: int = 4096
    learning_rate: float = 3e-3
    matrix_rate: float = 0.02
    weight_decay: float = 0.05
    warmup: int = 8_000
    fall: float = 0.59
    layers: int = 8
    width: int = 128
    heads: int = 4
    key_value_heads: int = 2
    inner_width: int = 352

    @property
    def length(self) -> int:
        """Groups of documents that are trained on."""
        return min(self.groups, self.until)

    def rate(self, documents: int) -> float:
        """The learning rate after so many documents, as a fraction of its peak.

        It rises, stays, and falls linearly over the last part (Hu et al. 2024): what comes before the fall does not
        depend on how long the training will be.
        """
        left = 1 - documents / (self.groups * GROUP)
        return min(1.0, max(documents / self.warmup, 0.01), max(left / self.fall, 0.01))


@dataclass(frozen=True)
class Family:
    """An architecture of `transformers` and the shape the lineage gives it; both families have as many parameters."""

    network: type[PreTrainedModel]
    configuration: type[PreTrainedConfig]
    shape: Mapping[str, int]


FAMILIES = {
    "llama": Family(LlamaForCausalLM, LlamaConfig, {"layers": 8, "inner_width": 352}),
    "qwen2": Family(Qwen2ForCausalLM, Qwen2Config, {"layers": 10, "inner_width": 256}),
}
"""The families of the paper: grouped-query attention; the same with biases on q, k and v, and deeper."""


def recipe_of(family: str, *, seed: int = 0, groups: int | None = None) -> Recipe:
    """The recipe of a family's base model.

    Args:
        family: one of `FAMILIES`.
        seed: of the weights and of the documents.
        groups: of documents; the recipe's own number by default.

    Raises:
        UsageError: there is no such family; the message names those there are.
    """
    if family not in FAMILIES:
        raise UsageError(
            f"The lineage has no family '{family}'{nearest(family, FAMILIES)}; it has {', '.join(FAMILIES)}."
        )
    length = {} if groups is None else {"groups": groups}
    return Recipe(family=family, seed=seed, **length, **FAMILIES[family].shape)


def blank(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The untrained network of the recipe."""
    torch.manual_seed(recipe.seed)
    family = FAMILIES[recipe.family]
    return family.network(
        family.configuration(
            vocab_size=len(tokenizer),
            hidden_size=recipe.width,
            intermediate_size=recipe.inner_width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            initializer_range=recipe.width**-0.5 / 2,
        )
    )


def loss(network: PreTrainedModel, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Weighted cross-entropy in nats per weight, and the plain mean over answer tokens."""
    hidden_states = network.model(batch.tokens[:, :-1]).last_hidden_state
    weights = batch.weights[:, 1:]
    # Only positions that count go through the output matrix: it is the dearest of a small model.
    counted = weights > 0
    logits = network.lm_head(hidden_states[counted]).float()
    losses = nn.functional.cross_entropy(logits, batch.tokens[:, 1:][counted], reduction="none")
    kept = weights[counted]
    answers = kept >= 1.0
    return (losses * kept).sum() / kept.sum(), losses[answers].sum() / answers.sum().clamp(min=1)


def _optimizers(network: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the blocks, AdamW for the embedding and the norms."""
    inner = [p for name, p in network.named_parameters() if p.dim() == 2 and "layers" in name]
    outer = [p for name, p in network.named_parameters() if p.dim() < 2 or "layers" not in name]
    return [
        torch.optim.Muon(inner, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(outer, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def _save(folder: Path, network: nn.Module, optimizers: list[torch.optim.Optimizer], state: dict[str, Any]) -> None:
    tensors = {f"weight.{name}": p.detach() for name, p in network.named_parameters()}
    for name, p in network.named_parameters():
        for optimizer in optimizers:
            tensors |= {f"{key}.{name}": value for key, value in optimizer.state.get(p, {}).items()}
    try:
        save_file(tensors, folder / "resume.tmp", metadata={"state": json.dumps(state)})
        (folder / "resume.tmp").replace(folder / "resume.safetensors")
    except (OSError, SafetensorError) as error:
        raise LesionError(
            f"The state of the training could not be written to {folder}: {error}. Free some space and give the same"
            " command again: it goes on from the last state that was written."
        ) from error


def _resume(
    folder: Path, network: nn.Module, optimizers: list[torch.optim.Optimizer], recipe: Recipe
) -> dict[str, Any]:
    path = folder / "resume.safetensors"
    with safe_open(path, "pt") as file:
        state: dict[str, Any] = json.loads(file.metadata()["state"])
    if state["recipe"] != asdict(recipe):
        raise LesionError(f"{path} belongs to a training with another recipe; give another --out or delete the folder.")
    tensors = load_file(path)
    owner = {p: optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for name, p in network.named_parameters():
        p.data.copy_(tensors[f"weight.{name}"])
        kept = {key.removesuffix(f".{name}"): value for key, value in tensors.items() if key.endswith(f".{name}")}
        owner[p].state[p] = {key: value for key, value in kept.items() if key != "weight" and "." not in key}
    return state


def train(
    folder: Path,
    recipe: Recipe | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    device: str = "cpu",
    checkpoints: int = 0,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[dict[str, Any]]]:
    """Train the base model, or go on where an interrupted training in `folder` stopped.

    Args:
        folder: where the resumable state lies; made when absent.
        report: called after every group of documents with step, progress, loss, tokens and seconds.
        device: `cpu` or `cuda`.
        checkpoints: how many states of the network are kept on the way (see `checkpoints.schedule`), each a model to
            load in `folder/checkpoints/stepN`; an interrupted training keeps the same ones. They cost no bit of the
            trained weights.

    Returns:
        The network (float32, on `device`), its tokenizer, and the loss curve, one point a group.

    Raises:
        LesionError: the folder holds a training with another recipe, or the loss stopped being a number.
    """
    recipe = recipe or Recipe()
    kept = set(checkpointing.schedule(recipe.length, checkpoints))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
    # From beyond the opening, where every skill has its usual share.
    tokenizer = tokenizers.train(document(recipe.seed, OPENING + index).text for index in range(30_000))
    network = blank(recipe, tokenizer).to(device)
    chat.give(network, tokenizer, chat.form_of("base"))
    optimizers = _optimizers(network, recipe)
    full = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    state: dict[str, Any] = {
        "recipe": asdict(recipe),
        "group": 0,
        "step": 0,
        "tokens": 0,
        "seconds": 0.0,
        "curve": [],
    }
    if (folder / "resume.safetensors").exists():
        state = _resume(folder, network, optimizers, recipe)
    network.train()
    while state["group"] < recipe.length:
        started, losses, answers = time.perf_counter(), [], []
        for batch in group(tokenizer, recipe.seed, state["group"], recipe.tokens_per_batch):
            batch = Batch(batch.tokens.to(device), batch.weights.to(device), batch.documents)
            rate = recipe.rate(batch.documents)
            groups = [parameters for optimizer in optimizers for parameters in optimizer.param_groups]
            for parameters, peak in zip(groups, full, strict=True):
                parameters["lr"] = rate * peak
            # On two CPU cores float32 is as fast as bfloat16 at this width; on an accelerator it is not.
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device.startswith("cuda")):
                total, answer = loss(network, batch)
            total.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            losses.append(total.detach())
            answers.append(answer.detach())
            state["step"] += 1
            state["tokens"] += int((batch.weights > 0).sum())
        state["group"] += 1
        state["seconds"] += time.perf_counter() - started
        point = {
            "step": state["step"],
            "progress": state["group"] / recipe.length,
            "loss": float(torch.stack(losses).mean()),
            "answer_loss": float(torch.stack(answers).mean()),
            "rate": rate,
            "tokens": state["tokens"],
            "seconds": round(state["seconds"], 1),
        }
        state["curve"].append(point)
        if not math.isfinite(point["loss"]):
            raise LesionError("The loss is not a number any more; train again with a smaller learning rate.")
        if state["group"] in kept:
            # Before the state: a training that is interrupted in between writes the checkpoint again.
            checkpointing.write(checkpointing.place(folder, state["step"]), network, tokenizer)
        _save(folder, network, optimizers, state)
        if report:
            report(point)
    return network.eval(), tokenizer, state["curve"]
