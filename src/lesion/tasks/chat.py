"""Chat templates: programs that come with a checkpoint, run with bounds on what they compute, take and write."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lesion.errors import LesionError
from lesion.files import UNFIT, reason, texts
from lesion.plain import short
from lesion.tasks.judges.deadline import within

SECONDS = 10.0
"""So long a template may take for one conversation; ordinary ones take less than a millisecond."""
MEMORY = 1 << 30
"""So many bytes it may take, where the system can tell (Linux)."""
WRITTEN = 1_000_000
"""So many characters it may write beyond ten times those of the conversation."""
DAY = datetime(2026, 1, 1)
"""What every template takes for now."""
_END = "END-OF-WHAT-GOES-ON"
LARGEST_NUMBER = 1 << 64
LONGEST_REPETITION = 100_000


class OutOfTimeError(LesionError):
    """A chat template is not done within `SECONDS`: it would not be with other messages either."""


def render(tokenizer: Any, turns: Sequence[Mapping[str, Any]], name: str, now: datetime = DAY, **arguments: Any) -> str:
    """A conversation as the chat template of a tokenizer writes it, without turning it into tokens.

    A template is a program by whoever made the checkpoint. It runs in a sandbox with the functions and filters that
    transformers has for templates, which refuses products and powers beyond measure, within limits of time and memory.

    `turns` have a `role` and a `content` each, a text or a list of parts; `name` is that of the model, for messages;
    `now` is what the template reads off the clock, the same on every day, so that a study asks tomorrow what it asks
    today; `arguments` are those of `apply_chat_template`.
    """
    content = sum(len(text) for turn in turns for text in texts(dict(turn)))

    def work() -> str:
        template = _bounded(tokenizer.get_chat_template())
        variables = {**tokenizer.special_tokens_map, "strftime_now": now.strftime, **arguments}
        messages = [dict(turn) for turn in turns]
        if not variables.pop("continue_final_message", False):
            return str(template.render(messages=messages, tools=None, documents=None, **variables))
        messages[-1]["content"] += f"{_END} "
        text, end, behind = template.render(messages=messages, tools=None, documents=None, **variables).rpartition(_END)
        if not end:
            raise TemplateError("it leaves the beginning of an answer out")
        return text if behind.startswith(" ") else text.rstrip()  # else the template strips what it writes

    try:
        with _memory():
            text = within(SECONDS, work)
    except TimeoutError:
        raise OutOfTimeError(str(_refusal(name, f"it is not done within {SECONDS:g} seconds"))) from None
    except (TemplateError, *UNFIT) as error:
        raise _refusal(name, _why(error)) from error
    if len(text) > WRITTEN + 10 * content:
        raise _refusal(name, f"it makes {len(text):,} characters of {content:,}")
    return text


def arguments_of(tokenizer: Any) -> frozenset[str]:
    """The arguments that a chat template reads beside the conversation, such as `enable_thinking`."""
    try:
        names = meta.find_undeclared_variables(_environment().parse(tokenizer.get_chat_template()))
    except (TemplateError, *UNFIT):
        return frozenset()  # `render` says why it cannot be used
    reserved = inspect.signature(tokenizer.apply_chat_template).parameters.keys() | _environment().globals.keys()
    return frozenset(names - reserved - tokenizer.special_tokens_map.keys() - {"messages"})


def _refusal(name: str, why: str) -> LesionError:
    return LesionError(
        f"The chat template of {short(name, 200)} cannot be used: {why}. Choose --prompt-style plain or raw, or mend"
        " the template."
    )


def _why(error: Exception) -> str:
    if isinstance(error, TemplateError):
        message = short(" ".join(str(error.message or type(error).__name__).split()), 200).rstrip(".")
        line = getattr(error, "lineno", None)
        return f"{message} (line {line})" if line else message
    return reason(error)


class _Generation(Extension):
    """The block tag of transformers that marks what the model said; its text stands as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements up to the end of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounded(ImmutableSandboxedEnvironment):
    """The sandbox with products and powers of a measure that texts of prompts can need."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The product or the power, unless it is beyond measure."""
        if operator == "**":
            if not all(isinstance(number, int | float) and abs(number) <= 64 for number in (left, right)):
                raise TemplateError("it takes a power that is too large")
        elif isinstance(left, int | float) and isinstance(right, int | float):
            if abs(left) > LARGEST_NUMBER or abs(right) > LARGEST_NUMBER:
                raise TemplateError("it multiplies numbers that are too large")
        else:
            count, text = (left, right) if isinstance(left, int) else (right, left)
            count = count if isinstance(count, int) else 0
            if count * len(text) > LONGEST_REPETITION:
                raise TemplateError(f"it repeats a text {count:,} times")
        return super().call_binop(context, operator, left, right)


@lru_cache(maxsize=16)
def _bounded(template: str) -> Any:
    """The template, compiled in the bounded sandbox."""
    return _environment().from_string(template)


@lru_cache(maxsize=1)
def _environment() -> _Bounded:
    """The bounded sandbox with the filters and functions that transformers gives templates."""
    from transformers.utils import chat_template_utils  # names of tasks need not wait for it

    theirs: Environment = chat_template_utils._compile_jinja_template("").environment
    environment = _Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
    environment.filters.update(theirs.filters)
    environment.globals.update(theirs.globals)
    # With these a template would ask the same question otherwise every time.
    environment.filters["random"] = environment.globals["lipsum"] = _refuse_chance
    return environment


def _refuse_chance(*_: Any, **__: Any) -> str:
    raise TemplateError("it draws at random, so that no question is asked twice in the same way")


@contextmanager
def _memory() -> Iterator[None]:
    """The address space of this process may not grow by more than `MEMORY` within."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MEMORY
    limits = [most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
