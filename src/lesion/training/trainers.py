"""Trainers: TRL's, made quiet, writing nothing, and able to go on from any step.

In both `trl.SFTTrainer` and `trl.GRPOTrainer` (1.16) are replaced

- the checkpoints (pickles) by `resume.Progress`, every few steps;
- the sampler: the data set is laid out in the order of use and begins at the step from which the training goes on;
- the random state: all generators are seeded by (seed, step) when a step begins, so that none has to be kept;
- optimizer and schedule, which must be able to begin in the middle;
- the message to the Hugging Face hub that a trainer was made, progress bars, printed logs, model cards, and the
  estimate of floating point operations, which walks through all parameters at every step.

This module needs TRL: import it inside a function, behind `in_place.require_trl()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import GRPOTrainer, SFTTrainer

from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.training.resume import Progress
from lesion.training.schedule import seed_all
from lesion.training.supervised import IGNORED

CLIP = 1.0  # the largest norm of a gradient
SECONDS = 120.0  # after which a state is written at the end of a step, however few steps there were


def settings(model: Model, out: Path, rows: int, steps: int) -> dict[str, Any]:
    """Arguments of `SFTConfig` and `GRPOConfig` alike, for so many steps of `rows` sequences."""
    return {
        "output_dir": str(out),
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 1,
        "max_steps": steps,
        "max_grad_norm": CLIP,
        "use_cpu": model.device.type == "cpu",
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "shuffle_dataset": False,
        "push_to_hub": False,
    }


class Quiet:
    """What is left out of both trainers; stands before TRL's class."""

    point: Mapping[str, float]

    def _send_telemetry(self) -> None:
        """Nothing is sent anywhere."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Whoever saves the model writes its card."""

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted."""
        return 0

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("trainings are saved by lesion.training.resume, without pickles")

    def measured(self) -> Mapping[str, float]:
        """What was measured at the last step."""
        return self.point


@dataclass(eq=False)
class Step(TrainerCallback):
    """What is done at the beginning and at the end of every step.

    Args:
        measured: what was measured at a step, `loss` among it.
        every: steps between two states that are written; after `SECONDS` one is written earlier.
        check: called after each step, before it may be written; what it raises ends the training.
    """

    progress: Progress
    seed: int
    measured: Callable[[], Mapping[str, float]]
    every: int
    watcher: Watcher
    check: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        self.saved = self.progress.seconds

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seed every generator by seed and step."""
        seed_all(self.seed, self.progress.step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure, count, write now and then, and report; a loss that is not a number ends the training."""
        progress = self.progress
        point = dict(self.measured())
        if not math.isfinite(point["loss"]):
            raise LesionError(
                f"The loss is not a number any more at step {progress.step + 1:,}; train again with a smaller learning"
                " rate, into another folder."
            )
        if "tokens" in point and progress.points:
            point["tokens"] += progress.points[-1]["tokens"]
        progress.step += 1
        progress.points.append({"step": progress.step, **point, "seconds": round(progress.seconds, 3)})
        if self.check is not None:
            self.check(progress)
        slow = progress.seconds - self.saved >= SECONDS
        if slow or progress.step % self.every == 0 or state.global_step >= state.max_steps:
            progress.save()
            self.saved = progress.seconds
        self.watcher.answered(1)


def prepare(trainer: Any, step: Step) -> None:
    """Give a trainer its callback, and take away those that print."""
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(step)


class Supervised(Quiet, SFTTrainer):
    """SFTTrainer on token ids, with TRL's loss: the mean cross-entropy in nats over the completion tokens of a step
    (and the load-balancing loss of experts, where the architecture has one).

    On a CPU, TRL puts every position through the output head. Here a hook lets only the positions before a completion
    token into the head; what the model does behind it, such as capping logits, it still does.
    """

    def _get_train_sampler(self, dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a step, as a tensor of no axes."""
        labels = inputs.pop("labels")[:, 1:]
        learned = labels != IGNORED
        logits, extra = learned_logits(model, inputs, learned, self.aux_loss_enabled)
        loss = nn.functional.cross_entropy(logits.float(), labels[learned])
        if extra is not None:
            loss = loss + self.router_aux_loss_coef * extra
        rate = self.optimizer.param_groups[0]["lr"]
        self.point = {"loss": float(loss.detach()), "rate": rate, "tokens": int(learned.sum())}
        return loss


def learned_logits(
    network: Any, inputs: Mapping[str, Tensor], learned: Bool[Tensor, "rows predicted"], experts: bool = False
) -> tuple[Float[Tensor, "learned vocabulary"], Float[Tensor, ""] | None]:
    """The logits [learned tokens, vocabulary] of some positions alone, and the load-balancing loss of experts if asked
    for.

    `learned` says which tokens are to be predicted, from the second on.
    """
    kept = nn.functional.pad(learned, (0, 1))

    def select(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (arguments[0].reshape(*kept.shape, -1)[kept], *arguments[1:])

    more = {"output_router_logits": True} if experts else {}
    with network.get_output_embeddings().register_forward_pre_hook(select):
        outputs = network(**inputs, use_cache=False, **more)
    return outputs.logits, outputs.aux_loss if experts else None


class Reinforced(Quiet, GRPOTrainer):
    """GRPOTrainer on token ids, whose answers come from the package's own engine.

    TRL's are the groups, their advantages, and the clipped loss. Replaced are

    - *generation*: the very ids of a prompt are used, and rows that are finished leave the batch at once;
    - *the loss pass*: rows without an advantage have no gradient and are left out, rows are padded on their right, so
      that absolute positions are those of the answering pass, and as in `Supervised` only the positions before a
      completion token pass through the head; entropies are not computed.

    Args:
        answer: from the prompts of the data set, each as often as it has generations, to token ids of prompts and
            completions and the texts of these.
    """

    def __init__(self, *, answer: Callable[[list[str]], tuple[list[Any], list[Any], list[str]]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.answer = answer
        self.point = {}

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        self.model.eval()
        prompt_ids, completion_ids, texts = self.answer(prompts)
        self.model.train()
        return prompt_ids, completion_ids, None, texts, None, {}, None, []

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a step, as a tensor of no axes."""
        moved = inputs["advantages"] != 0
        if not moved.all():
            # At least one row, so that every weight has a gradient, if of 0: the moments fade as they do in any step.
            kept = moved.nonzero()[:, 0] if moved.any() else torch.zeros(1, dtype=torch.long, device=moved.device)
            rows = len(moved)
            inputs = {
                name: value[kept] if value.dim() and len(value) == rows else value for name, value in inputs.items()
            }
        loss = self._compute_loss(model, inputs)
        self.point = {"loss": float(loss.detach()), "rate": self.optimizer.param_groups[0]["lr"]}
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        experts = bool(kwargs.get("compute_aux_loss"))
        scored = attention_mask.bool().clone()
        scored[:, :-logits_to_keep] = False
        # Tokens that count come first, in their order: from left padding to right padding.
        places = (1 - attention_mask).argsort(dim=1, stable=True)[:, : int(attention_mask.sum(1).max())]
        ids, mask, learned = (values.gather(1, places) for values in (input_ids, attention_mask, scored))
        logits, extra = learned_logits(model, {"input_ids": ids, "attention_mask": mask}, learned[:, 1:], experts)
        chances = (logits.float() / self.temperature).log_softmax(-1)
        taken = chances.gather(1, ids[learned][:, None])[:, 0]
        laid = torch.zeros(ids.shape, device=ids.device).masked_scatter(learned, taken)
        whole = torch.zeros(input_ids.shape, device=ids.device).scatter(1, places, laid)
        spread = whole[:, -logits_to_keep:]
        return spread, torch.zeros_like(spread), extra
