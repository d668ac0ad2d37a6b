"""Preflight: what the tokenizer and the configuration of a model show to be wrong, before its weights are loaded."""

from __future__ import annotations

from collections.abc import Mapping

from lesion.core.study_file import ModelChoice, Questions, TaskChoice
from lesion.models.gguf_checkpoint import pending
from lesion.models.load import configuration, tokenizer_of
from lesion.models.source import find as find_source
from lesion.tasks.catalogue import find
from lesion.tasks.conversation import Named
from lesion.tasks.prompts import resolve
from lesion.tasks.style import Style
from lesion.tasks.task import Task


def refuse_unfit_styles(
    study: Questions,
    chosen: ModelChoice,
    tasks: Mapping[TaskChoice, Task] | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Refuse a chat, or settings of one, for which a model has no chat template or one that does not heed them.

    A GGUF file that is not converted yet is not looked at: its tokenizer comes with the conversion.
    """
    styles = {task: Style.parse(style or "") for task, style in study.styles_of(chosen).items()}
    chats = {task: style for task, style in styles.items() if style.set or style.name == "chat"}
    if not chats or pending(find_source(str(chosen.source), chosen.revision)):
        return
    tokenizer = tokenizer_of(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
    known = {choice.name: task for choice, task in (tasks or {}).items()}
    reader = Named(str(chosen.source), tokenizer)
    for task, style in chats.items():
        resolve(reader, known.get(task) or find(task), str(style))


def refuse_unshared(chosen: ModelChoice, study: str, *, trust_remote_code: bool = False) -> None:
    """Refuse a model whose prompts cannot be shared between edits for a study that needs it.

    A GGUF file that is not converted yet is not looked at.
    """
    if not pending(find_source(str(chosen.source), chosen.revision)):
        from lesion.engines.transformers.engine import refuse_unloaded  # it needs torch

        config = configuration(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
        refuse_unloaded(config, chosen.name, study)
