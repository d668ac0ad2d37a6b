"""The base model of a bundled lineage: a small Llama or Qwen2 trained from scratch on the primer's documents.

Deterministic from its seed on one machine; every group of documents is a checkpoint from which training resumes.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lesion.errors import LesionError, UsageError
from lesion.models.source import CHECKPOINTS
from lesion.progress import SILENT, Watcher
from lesion.tasks.primer.task import OPENING, Document, document
from lesion.training import checkpoint
from lesion.training.resume import Point, Progress
from lesion_labs.lineage import tokenizer as tokenizers
from lesion_labs.lineage.tokenizer import give_form

# Documents are drawn, sorted by length and cut into batches in groups of this many, so that padding stays small.
GROUP = 2048
PROMPT_WEIGHT = 0.1
# An arithmetic solution is some thirty tokens long, an answer of the others is one: token by token they would hardly
# be heard beside it.
ANSWER_WEIGHT = {"arithmetic": 1.0, "atlas": 5.0, "reading": 8.0, "text": 0.3, "listing": 1.0, "echo": 1.0}


@dataclass(frozen=True)
class Batch:
    """Padded documents and the weight of each token in the loss.

    Attributes:
        weights: at least 1 for answer tokens, less for prompts and running text, 0 for padding and the first.
        documents: number of documents up to and including this batch's group share.
    """

    tokens: Int[Tensor, "rows length"]
    weights: Float[Tensor, "rows length"]
    documents: int


def group(tokenizer: PreTrainedTokenizerBase, seed: int, number: int, tokens_per_batch: int) -> Iterator[Batch]:
    """The batches of one group of documents, in an order of the seed's making."""
    documents = [document(seed, number * GROUP + index) for index in range(GROUP)]
    cuts: list[list[tuple[list[int], list[float]]]] = [[]]
    for row in sorted(_rows(tokenizer, documents), key=lambda row: len(row[0])):
        # Sorted by length: the present row is the longest of its batch.
        if (len(cuts[-1]) + 1) * len(row[0]) > tokens_per_batch:
            cuts.append([])
        cuts[-1].append(row)
    random.Random(f"batches {seed} {number}").shuffle(cuts)
    seen = number * GROUP
    for cut in cuts:
        seen += len(cut)
        length = max(len(tokens) for tokens, _ in cut)
        tokens = torch.full((len(cut), length), tokenizer.pad_token_id)
        weights = torch.zeros(len(cut), length)
        for index, (ids, weights_of_row) in enumerate(cut):
            tokens[index, : len(ids)] = torch.tensor(ids)
            weights[index, : len(ids)] = torch.tensor(weights_of_row)
        yield Batch(tokens, weights, seen)


def _rows(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]) -> list[tuple[list[int], list[float]]]:
    """Token ids and weights of each document; every answer ends in the end-of-text token."""
    turns = [turn for made in documents for turn in made.turns]
    heads = iter(tokenizer([before for before, _ in turns], add_special_tokens=False)["input_ids"])
    answers = [f" {learned}" if before else learned for before, learned in turns]
    tails = iter(tokenizer(answers, add_special_tokens=False)["input_ids"])
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    rows = []
    for made in documents:
        ids, weights = [tokenizer.bos_token_id], [0.0]
        for turn in range(len(made.turns)):
            head = [*(newline if turn else ()), *next(heads)]
            tail = [*next(tails), tokenizer.eos_token_id]
            ids += head + tail
            weights += [PROMPT_WEIGHT] * len(head) + [ANSWER_WEIGHT[made.skill]] * len(tail)
        rows.append((ids, weights))
    return rows


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the base model.

    Args:
        seed: of the weights and of the document stream.
        groups: groups of documents (`data.GROUP` each) over which the rates rise, stay and fall.
        until: the group after which training ends, before the fall does: there, arithmetic has room to rise.
        tokens_per_batch: of one optimizer step, padding included.
        learning_rate, matrix_rate: of AdamW and of Muon, at their peaks.
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


FAMILIES: Mapping[str, Mapping[str, int]] = {
    "llama": {"layers": 8, "inner_width": 352},
    "qwen2": {"layers": 10, "inner_width": 256},
}
"""The families of the paper by their model type in `transformers`, with shapes of as many parameters: grouped-query
attention; the same with biases on q, k and v, and deeper."""


def recipe_of(family: str, *, seed: int = 0, groups: int | None = None) -> Recipe:
    """The recipe of a family's base model, with its own number of groups of documents by default."""
    length = {} if groups is None else {"groups": groups}
    return Recipe(family=family, seed=seed, **length, **FAMILIES[family])


def blank(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The untrained network of the recipe."""
    torch.manual_seed(recipe.seed)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            recipe.family,
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
    return network


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


DOZEN = 12
LATE = 6


def schedule(groups: int, count: int = DOZEN, late: int = LATE) -> tuple[int, ...]:
    """After how many groups of documents a checkpoint is kept: at equal ratios from the first group to the last.

    Most is learned early, and so most checkpoints are; but the last ratio spans a third of the training, in which a
    chain of thought comes to be.

    Args:
        groups: of the whole training.
        count: checkpoints at equal ratios, or one a group where there are fewer groups; 0 keeps none at all.
        late: how many more lie between the last two, at equal distances.
    """
    if count < 0:
        raise UsageError(f"A training keeps 0 checkpoints or more, not {count}.")
    kept = [] if count == 0 else [1 if min(count, groups) > 1 else groups]
    for left in range(min(count, groups) - 1, 0, -1):
        # Where a ratio comes to less than one group, one group; from there on, equal ratios over what is left.
        kept.append(max(kept[-1] + 1, round(kept[-1] * (groups / kept[-1]) ** (1 / left))))
    if len(kept) > 1:
        before, end = kept[-2:]
        between = {before + round((end - before) * place / (late + 1)) for place in range(1, late + 1)}
        kept = sorted({*kept, *between})
    return tuple(kept)


def write(
    folder: Path, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype = torch.float16
) -> None:
    """Write a network, in half precision by default, with its tokenizer; it stays as it is."""
    checkpoint.write(folder, copy.deepcopy(network).to("cpu", dtype), tokenizer)


def place(out: Path, step: int) -> Path:
    """Where the checkpoint of a training into `out` after so many steps lies: `lesion` loads it as revision `stepN`."""
    return out / CHECKPOINTS / f"step{step}"


def _optimizers(network: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the blocks, AdamW for the embedding and the norms."""
    inner = [p for name, p in network.named_parameters() if p.dim() == 2 and "layers" in name]
    outer = [p for name, p in network.named_parameters() if p.dim() < 2 or "layers" not in name]
    return [
        torch.optim.Muon(inner, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(outer, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def train(
    folder: Path,
    recipe: Recipe,
    device: str = "cpu",
    checkpoints: int = 0,
    watcher: Watcher = SILENT,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[Point]]:
    """Train the base model, or go on where an interrupted training in `folder` stopped.

    So many `checkpoints` of the network are kept on the way (`schedule`), which cost no bit of the trained
    weights.

    Returns:
        The network (float32, on `device`), its tokenizer, and the curve: for every group `step`, `progress` (0…1),
        `loss`, `answer_loss`, `rate`, `tokens` and `seconds`.
    """
    kept = set(schedule(recipe.length, checkpoints))
    # From beyond the opening, where every skill has its usual share.
    tokenizer = tokenizers.train(document(recipe.seed, OPENING + index).text for index in range(30_000))
    network = blank(recipe, tokenizer).to(device)
    give_form(network, tokenizer, "base")
    optimizers = _optimizers(network, recipe)
    rates = [(group, group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
    progress = Progress(folder, asdict(recipe), dict(network.named_parameters()), *optimizers)
    tokens = progress.points[-1]["tokens"] if progress.points else 0
    watcher.begin(f"{recipe.family}-base", recipe.length, len(progress.points), "groups of documents")
    network.train()
    for number in range(len(progress.points), recipe.length):
        losses, answers = [], []
        for batch in group(tokenizer, recipe.seed, number, recipe.tokens_per_batch):
            batch = Batch(batch.tokens.to(device), batch.weights.to(device), batch.documents)
            rate = recipe.rate(batch.documents)
            for parameters, peak in rates:
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
            progress.step += 1
            tokens += int((batch.weights > 0).sum())
        point: Point = {
            "step": progress.step,
            "progress": (number + 1) / recipe.length,
            "loss": float(torch.stack(losses).mean()),
            "answer_loss": float(torch.stack(answers).mean()),
            "rate": rate,
            "tokens": tokens,
            "seconds": round(progress.seconds, 1),
        }
        progress.points.append(point)
        if not math.isfinite(point["loss"]):
            raise LesionError("The loss is not a number any more; train again with a smaller learning rate.")
        if number + 1 in kept:
            # Before the state: a training that is interrupted in between writes the checkpoint again.
            write(place(folder, progress.step), network, tokenizer)
        progress.save()
        watcher.note(
            f"{100 * point['progress']:5.1f} %  step {progress.step:,}  loss {point['loss']:.3f}"
            f"  answers {point['answer_loss']:.3f}  {tokens / 1e6:.1f}M tokens"
        )
        watcher.answered(1)
    return network.eval(), tokenizer, progress.points
