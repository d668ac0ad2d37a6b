"""A model under an edit for lm-evaluation-harness: `python -m lesion.harness_model --model lesion --model_args …`.

The harness knows the models of other packages once they are imported. This module, run, is its command with one more
model; imported, it makes its Python interface know the model. It needs the harness installed.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import lm_eval.models  # noqa: F401  (the harness's own models; it looks for them only where none is known)
from lm_eval.api.model import LM, TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from lesion.edits.edit import BASELINE, EditLike
from lesion.edits.files.artefact import edit_for
from lesion.edits.table import refuse_unknown_places
from lesion.engines.config import EngineChoice, opened
from lesion.engines.engine import Decoding, Request
from lesion.errors import LesionError, UsageError, nearest
from lesion.models.load import Model, load
from lesion.tasks import chat
from lesion.tasks.harness.subtask import Settings, generation
from lesion.tasks.harness.tokens import HarnessTokens, Part
from lesion.tasks.task import Answer

Reply = TypeVar("Reply")

# What the harness's command passes on where nothing is said, which is left to lesion.
_DEFAULTS = {"batch_size": 1, "max_batch_size": None, "device": "cuda:0"}


@register_model("lesion")
class LesionModel(LM):
    """What the harness asks: a model, every one of whose answers is given under one edit.

    Texts become tokens as they do in the harness's own `hf` model; chat templates are applied as there.

    Args:
        model: `bundled:NAME`, a folder, a hub id, or a model that is loaded already.
        edit: in any form (`lesion.edits.files.artefact`): `23×0`, `0-3x0+7.mlp×0.5`, an `.edit` file; None: none.
        pretrained: another name for `model`, as `hf` has it.
        revision, dtype, device, trust_remote_code: see `lesion.load`; `auto` is float32 on a CPU.
        engine: `transformers` or `vllm`.
        batch_size: rows at once; `auto`: as many as fit.
        max_batch_size: the most rows at once where the batch size is `auto`.
        max_length: the most tokens of a prompt and its answer together; the model's context where None.
        add_bos_token: whether texts begin with the tokenizer's special tokens; None: as the tokenizer has it.
        chat_template_args: further arguments of the chat template.
        seed: of sampled answers.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        edit: EditLike = None,
        pretrained: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        engine: str = "transformers",
        batch_size: int | str = "auto",
        max_batch_size: int | None = None,
        max_length: int | None = None,
        add_bos_token: bool | None = None,
        trust_remote_code: bool = False,
        chat_template_args: Settings | None = None,
        seed: int = 0,
        **unknown: Any,
    ) -> None:
        super().__init__()
        _refuse(unknown)
        source = pretrained if model is None else model
        if source is None:
            raise UsageError("Say which model: --model_args model=bundled:llama-base, a folder or a hub id.")
        if isinstance(edit, int):
            raise UsageError(
                f"The harness read the edit as the number {edit}, as it reads 0x0, which is hexadecimal to it; write"
                " 0×0 or 0*0."
            )
        self._stack = ExitStack()
        make_engine = self._stack.enter_context(opened(EngineChoice(engine)))
        if isinstance(source, Model):
            self.model = source
        elif trust_remote_code:
            self.model = load(source, revision=revision, dtype=dtype, device=device, trust_remote_code=True)
        else:
            self.model = make_engine.load(source, revision=revision, dtype=str(dtype), device=device)
        self.edit = BASELINE if edit is None else edit_for(self.model, edit)
        refuse_unknown_places(self.edit, self.model.anatomy)
        self.engine = make_engine(self.model, _batch_size(batch_size, max_batch_size))
        self.tokenizer = self.model.tokenizer
        self.max_length = self.model.context if max_length is None else min(int(max_length), self.model.context)
        self.tokens = HarnessTokens(self.tokenizer, self.max_length, self.model.name, add_bos_token)
        self.chat_template_args = dict(chat_template_args or {})
        self.seed = int(seed)
        self._device = self.model.device
        self._answered_by = ""

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> LesionModel:
        """From `--model_args`, which come before what the command says elsewhere (`--batch_size`, `--device`)."""
        further = {key: value for key, value in (additional_config or {}).items() if value != _DEFAULTS.get(key)}
        return cls(**{**further, **arg_dict})

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> LesionModel:
        """From `--model_args` as one text."""
        from lm_eval.utils import simple_parse_args_string

        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """For every (context, continuation) its log-probability in nats, and whether greedy decoding says it."""
        parts = [self.tokens.likelihood([request.args[:2]]) for request in requests]

        def reply(answers: list[Answer]) -> tuple[float, bool]:
            (score,), greedy = answers[0].scores, answers[0].greedy or (False,)
            return score, greedy[0]

        return self._replies("loglikelihood", requests, parts, reply, disable_tqdm)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """For every text its log-probability in nats, long ones in windows of `max_length` tokens."""
        parts = [self.tokens.rolling(request.args[0]) for request in requests]

        def reply(answers: list[Answer]) -> float:
            return float(sum(answer.scores[0] for answer in answers))

        return self._replies("loglikelihood_rolling", requests, parts, reply, disable_tqdm)

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """For every (context, settings) what the model says, up to a stop string."""
        before: Counter[str] = Counter()  # a question that is asked several times is to be sampled anew each time
        decodings, parts = [], []
        for context, settings, *_ in (request.args for request in requests):
            decodings.append(decoding_of(settings, self.seed + before[context]))
            parts.append((self.tokens.generation(context, decodings[-1].max_new_tokens),))
            before[context] += 1
        return self._replies(
            "generate_until", requests, parts, lambda answers: answers[0].text, disable_tqdm, decodings
        )

    def _replies(
        self,
        kind: str,
        requests: Sequence[Any],
        parts: Sequence[Sequence[Part]],
        reply: Callable[[list[Answer]], Reply],
        disable_tqdm: bool,
        decodings: Sequence[Decoding] | None = None,
    ) -> list[Reply]:
        """What the answers to the parts of every request come to, in the order of the requests."""
        pending = [
            Request(
                f"request {index}/{place}",
                part.prompt,
                self.edit,
                decodings[index] if decodings else Decoding(),
                part.choices,
            )
            for index, several in enumerate(parts)
            for place, part in enumerate(several)
        ]
        answers: dict[str, Answer] = {}
        answering = self.engine.answer(pending)
        for response in tqdm(answering, f"Running {kind} requests", len(pending), disable=disable_tqdm):
            answers[response.key] = response.answer
            self._answered_by = response.engine
        replies = []
        for index, (request, several) in enumerate(zip(requests, parts, strict=True)):
            replies.append(reply([answers[f"request {index}/{place}"] for place in range(len(several))]))
            self.cache_hook.add_partial(kind, request.args, replies[-1])
        return replies

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as one text; a template that takes no system message is asked again without it."""
        settings = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": not add_generation_prompt,
            **self.chat_template_args,
        }
        for turns in (chat_history, [turn for turn in chat_history if turn["role"] != "system"]):
            try:
                return chat.render(self.tokenizer, turns, self.model.name, **settings)
            except LesionError as error:
                refused = error
        raise UsageError(f"{refused}") from refused

    chat_template = TemplateLM.chat_template

    @property
    def tokenizer_name(self) -> str:
        """A name for the harness's cache of prompts."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    @property
    def eot_token_id(self) -> int | None:
        """The token that ends a text."""
        return self.tokenizer.eos_token_id

    def get_model_info(self) -> dict[str, str]:
        """What stands in the harness's results beside the arguments."""
        return {
            "model_dtype": str(self.model.dtype),
            "lesion_model": self.model.name,
            "lesion_fingerprint": self.model.fingerprint,
            "lesion_edit": str(self.edit),
            "lesion_engine": self._answered_by,
        }

    def close(self) -> None:
        """Let go of the engine."""
        self._stack.close()


def decoding_of(settings: Settings, seed: int) -> Decoding:
    """How an answer is decoded, by what a task of the harness states."""
    limit, stop, others = generation(settings)
    if others:
        raise UsageError(
            f"lesion decodes with until, max_gen_toks, do_sample, temperature and top_p; {', '.join(sorted(others))} "
            f"is not known to it. Leave it out of --gen_kwargs or of the task."
        )
    sample, temperature = settings.get("do_sample"), float(settings.get("temperature") or 0.0)
    return Decoding(
        max_new_tokens=limit,
        stop=stop,
        temperature=0.0 if sample is False else temperature or float(bool(sample)),
        top_p=float(settings.get("top_p") or 1.0),
        seed=seed,
    )


def _batch_size(batch_size: int | str, most: int | None) -> int | str:
    if str(batch_size).startswith("auto"):
        return "auto" if most is None else int(most)
    if not str(batch_size).isdigit():
        raise UsageError(f"The batch size is a whole number or auto, not '{batch_size}'.")
    return int(batch_size)


def _refuse(unknown: Mapping[str, object]) -> None:
    if unknown:
        name = next(iter(unknown))
        known = [key for key in inspect.signature(LesionModel).parameters if key != "unknown"]
        raise UsageError(
            f"The model lesion has no argument '{name}'{nearest(name, known)}; in --model_args there may stand "
            f"{', '.join(known)}."
        )


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
