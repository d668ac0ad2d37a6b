"""One owner at a time: whoever edits or runs a network holds it, and nobody's pass is under edits that are not theirs.

Edits are hooks on modules and values written into weights, which everybody shares who has the network. So each use of
it is a `Hold`. A hold is one's own in the context that made it (`contextvars`: a thread, or a task of asyncio and what
it starts), and there holds nest. Others wait, or are refused.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn

from lesion.errors import LesionError, UsageError

if TYPE_CHECKING:
    from lesion.models.model import Model

P = ParamSpec("P")
R = TypeVar("R")
PATIENCE = 10.0
"""Seconds to wait for a `with` in another thread; a call of the library there ends by itself and is waited for."""

# What resumes a generator to begin or end a `with`: the code that has the `with` stands behind it.
_WITHS = frozenset({__name__, "contextlib", "_pytest.fixtures"})
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_LOCK = threading.Condition()
_MINE: ContextVar[tuple[Hold, ...]] = ContextVar("lesion_holds", default=())
_OWNERS: WeakKeyDictionary[nn.Module, _Owner] = WeakKeyDictionary()


@dataclass(eq=False)
class Hold:
    """One use of a network.

    Attributes:
        name: of the model; what: is done with it, for messages.
        edits: whether what the network computes may be changed.
        calls: whether it is a call of the library, which evaluates and ends by itself, and not somebody's `with`.
        generator: identity of the frame of the generator that has the `with`; 0 where a plain function has it.
        lost: whether its weights were taken back too early, because an edit around it ended first.
        over: whether it has ended.
    """

    name: str
    what: str
    edits: bool = False
    calls: bool = False
    thread: threading.Thread = field(default_factory=threading.current_thread)
    generator: int = field(default_factory=lambda: _generator_of_the_with())
    lost: bool = False
    over: bool = False
    undo: ExitStack | None = None
    _modules: list[nn.Module] = field(default_factory=list)
    _training: list[nn.Module] = field(default_factory=list)

    def on_end(self, callback: Callable[..., object], *arguments: object) -> None:
        """Note what takes back a change of the weights; the latest runs first."""
        self.undo = self.undo or ExitStack()
        self.undo.callback(callback, *arguments)

    def refuse_copies(self, network: nn.Module) -> None:
        """Until the end, refuse to copy, pickle or save any part of a network whose weights are edited."""
        for module in network.modules():
            self.on_end(module.register_state_dict_pre_hook(_Uncopied(self.name)).remove)

    def evaluate(self) -> None:
        """Put every module that is in training mode into evaluation mode."""
        self._training += (training := [module for module in self._modules if module.training])
        for module in training:
            module.training = False

    def end(self) -> None:
        """Take back the weights and the mode of every module."""
        if self.undo is not None:
            self.undo.close()
        while self._training:
            self._training.pop().training = True

    def of_this_code(self) -> bool:
        """Whether the running code is inside the `with`, or was started there."""
        if self not in _MINE.get():
            return False
        return not self.generator or any(id(frame) == self.generator for frame in _frames())

    def __str__(self) -> str:
        if self.thread is not threading.current_thread():
            return f"by {self.what} in another thread ({self.thread.name})"
        return f"by {self.what} in {'a generator that has not ended' if self.generator else 'another task'}"


class _Owner:
    """Everybody who uses a network now, the innermost last."""

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.broken = ""  # why no edit and no pass is right any more
        self.networks: WeakSet[nn.Module] = WeakSet()
        self.changes = 0  # how many edits began or ended so far
        self.passes: dict[tuple[int, int], int] = {}  # `changes` at the begin of a pass, by its thread and its module

    @property
    def edits(self) -> list[Hold]:
        return [hold for hold in self.holds if hold.edits]

    def wait(self, name: str, what: str, edits: bool = False) -> None:
        """Wait, with the lock, until all holds are one's own, and before edits until no other thread is in a pass."""
        if self.broken:
            raise LesionError(self.broken)
        begun = time.monotonic()
        while True:
            late = time.monotonic() - begun > PATIENCE
            others = [hold for hold in self.holds if not hold.of_this_code()]
            if not others and (late or not edits or not self._passes_elsewhere()):
                break
            here = any(hold.thread is threading.current_thread() or not hold.thread.is_alive() for hold in others)
            if here or (late and not all(hold.calls for hold in others)):
                raise LesionError(
                    f"{name} is in use {others[-1]}, and {what} would be under edits that are not its own. End or close"
                    " that first, or load the model a second time. Threads that share one edit on purpose run in a copy"
                    " of its context: contextvars.copy_context().run."
                )
            _LOCK.wait(0.1)
        if any(hold.lost for hold in self.holds):
            raise LesionError(
                f"An edit of {name} was taken back because one around it ended first: end it before you go on."
            )

    def _passes_elsewhere(self) -> bool:
        others = {thread for thread, _ in self.passes} - {threading.get_ident()}
        return bool(others) and not others.isdisjoint(thread.ident for thread in threading.enumerate())

    def take(self, hold: Hold) -> None:
        with _LOCK:
            self.wait(hold.name, hold.what, hold.edits)
            _MINE.set((*(own for own in _MINE.get() if not own.over and own is not hold), hold))
            self.holds.append(hold)
            self.changes += hold.edits
            if hold.calls:
                hold.evaluate()

    def end(self, hold: Hold) -> None:
        """End a hold, and before it what holds after it have written; in whatever thread, and however often called."""
        with _LOCK:
            if hold.undo is not None and not hold.lost:
                written = [each for each in self.holds[self.holds.index(hold) :] if each.undo and not each.lost]
                for each in reversed(written):
                    each.lost = len(written) > 1
                    try:
                        each.end()
                    except Exception as error:  # the memory of the weights is none any more, or another
                        self.broken = (
                            f"Weights of {each.name} could not be put back after an edit, because the network was"
                            f" changed during it ({error}). Load the model again."
                        )
            hold.end()
            hold.over = True
            self.leave(hold)

    def leave(self, hold: Hold) -> None:
        with _LOCK:
            if hold in self.holds:
                self.holds.remove(hold)
                self.changes += hold.edits
                _LOCK.notify_all()


def watch(model: Model) -> None:
    """Have every pass of a model's network looked at: whether it is under edits that are not its own."""
    trunk = model.anatomy.trunk(model.network)
    with _LOCK:
        owner = _owner_of(model.network, idle=True) or _Owner()
        for module in (model.network, trunk, model.anatomy.blocks[0].module):
            _OWNERS[module] = owner
        owner.networks.add(model.network)
    for module in {model.network, trunk}:  # a pass may be started from either
        if _begin_pass not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_begin_pass)
            module.register_forward_hook(_end_pass, always_call=True)
    if _refuse_saving not in model.network._state_dict_pre_hooks.values():
        model.network.register_state_dict_pre_hook(_refuse_saving)


def _owner_of(network: nn.Module, *, idle: bool) -> _Owner | None:
    """The owner of a network: one for all that share memory of weights, and that in use where they come to share it.

    A network without an owner gets one that nobody uses now only where `idle`.
    """
    own = _OWNERS.get(network)
    least = len(own.holds) if own else -1 if idle else 0
    with _LOCK:
        used = [owner for owner in {*_OWNERS.values()} - {own} if len(owner.holds) > least]
        others = [(each, owner) for owner in used for each in owner.networks]
    memory = _memory(network) if others else set()
    sharing = [owner for each, owner in others if not memory.isdisjoint(_memory(each))]
    return max([own, *sharing] if own else sharing, key=lambda owner: len(owner.holds), default=None)


def _memory(network: nn.Module) -> set[int]:
    """Where the weights of a network lie; of weights that are no plain memory, which objects they are."""
    plain = [(type(p) is nn.Parameter and not p.is_meta, p) for p in network.parameters()]
    return {(is_plain and p.untyped_storage().data_ptr()) or id(p) for is_plain, p in plain}


@contextmanager
def held(
    model: Model, what: str, *, edits: bool = False, calls: bool = False, unedited: bool = False
) -> Iterator[Hold]:
    """Have a model's network for oneself inside the `with`, however it ends and whoever ends it.

    Args:
        model: that is used.
        what: is done with it, for messages: `an edit`.
        edits: whether what it computes may be changed meanwhile.
        calls: a call of the library: every module is in evaluation mode meanwhile, and gets its own mode back.
        unedited: refuse to begin under an edit, also one's own.
    """
    if model.anatomy.build is not None:
        model.anatomy.build.refuse_another(model.network, model.name)
    if model.network not in _OWNERS or not _OWNERS[model.network].holds:
        watch(model)  # a copy, or it has come to share its weights
    owner = _OWNERS[model.network]
    hold = Hold(model.name, what, edits, calls, _modules=list(model.network.modules()) if calls else [])
    try:
        owner.take(hold)
        if unedited:
            refuse_edited(model.network, model.name, what)
        yield hold
    finally:
        try:
            owner.end(hold)
        except BaseException:  # Ctrl-C while weights are put back must not leave some of them edited
            owner.end(hold)
            raise
        if owner.broken:
            raise LesionError(owner.broken)
        if hold.lost:
            raise LesionError(
                f"Two edits of the weights of {model.name} were in force at once and the one that began first ended"
                " first. Both are taken back, and passes meanwhile are refused: end the inner one first."
            )


def observing(what: str, *, unedited: bool) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function hold the model that is its first argument, as a call of the library; arguments as of `held`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def holding(*args: P.args, **kwargs: P.kwargs) -> R:
            model: Any = args[0] if args else kwargs["model"]
            with held(model, what, calls=True, unedited=unedited):
                return function(*args, **kwargs)

        return holding

    return decorate


@contextmanager
def resting(model: Model, hold: Hold) -> Iterator[None]:
    """Let others have the network while a generator of the library hands something out, if it left all as it was."""
    owner = _OWNERS[model.network]
    if owner.holds[-1] is not hold:  # the weights are edited
        yield
        return
    owner.leave(hold)
    around = owner.edits
    yield  # after an exception nothing goes on
    owner.take(hold)
    if owner.edits != [*around, hold]:
        raise LesionError(
            f"An edit of {model.name} began or ended while {hold.what} went on: read all answers or close the iterator"
            " first."
        )


def refuse_edited(network: nn.Module, name: str, what: str) -> None:
    """Refuse what would be stored under the name and the fingerprint of the unedited model."""
    owner = _owner_of(network, idle=False)
    if owner is not None and owner.edits:
        raise UsageError(
            f"{name} has an edit in force, and {what} would go by the name of the model without it: leave"
            " `applied` before you go on. Studies take edits as arguments."
        )


def _begin_pass(module: nn.Module, args: tuple[object, ...]) -> None:
    owner = None if torch.compiler.is_compiling() else _OWNERS.get(module)
    if owner is None:
        return
    with _LOCK:
        if owner.holds or owner.broken:
            owner.wait(owner.holds[-1].name if owner.holds else "", "a forward pass")
        owner.passes[threading.get_ident(), id(module)] = owner.changes
    if owner.edits and _computed_again(module):
        raise LesionError(
            f"{owner.edits[-1].name} is edited, and gradient checkpointing would compute its blocks again during the"
            " backward pass, when the edit may be over. Switch it off while an edit is in force:"
            " network.gradient_checkpointing_disable()."
        )


def _end_pass(module: nn.Module, args: tuple[object, ...], output: object) -> None:
    owner = None if torch.compiler.is_compiling() else _OWNERS.get(module)
    if owner is None:
        return
    with _LOCK:
        begun = owner.passes.pop((threading.get_ident(), id(module)), owner.changes)
        _LOCK.notify_all()
    if begun != owner.changes and output is not None:  # without an output, the pass has failed by itself
        raise LesionError(
            "An edit of this network began or ended in another thread during this forward pass, so its logits are"
            " neither with the edit nor without: use `applied` or `generate` in both threads."
        )


@dataclass(frozen=True)
class _Uncopied:
    """Refuses that a module on which it hangs is saved, copied or pickled; its state may be looked at."""

    name: str

    def __call__(self, *_: object) -> None:
        if any(frame.f_code.co_name in ("save_pretrained", "save_model") for frame in _frames()):
            self.__reduce_ex__()

    def __reduce_ex__(self, *_: object) -> NoReturn:
        raise UsageError(
            f"{self.name} has an edit in force, and would be copied or saved with it or as if there were none: leave"
            " `applied` first, or write the edited model with lesion.apply."
        )


def _refuse_saving(module: nn.Module, prefix: str, keep_vars: bool) -> None:
    owner = _OWNERS.get(module)
    if owner is not None and owner.edits:
        _Uncopied(owner.edits[-1].name)()


def _computed_again(network: nn.Module) -> bool:
    """Whether blocks of this pass are computed again for its gradients."""
    if torch.is_inference_mode_enabled():
        return False
    if torch.is_grad_enabled() and any(
        getattr(part, "gradient_checkpointing", False) and part.training for part in network.modules()
    ):
        return True
    return any(frame.f_globals.get("__name__") == "torch.utils.checkpoint" for frame in _frames())


def _generator_of_the_with() -> int:
    """The frame of the generator in whose body the present `with` stands; 0 where it is not in a generator.

    The generator of a context manager is not meant, but the code that has it in its `with`; nor one that a wrapper of
    the same name runs.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (caller := frame.f_back) is not None:
        module, wraps = caller.f_globals.get("__name__"), caller.f_code.co_name == frame.f_code.co_name
        resumed = module in _WITHS or (wraps and caller.f_globals is frame.f_globals)
        if frame.f_globals.get("__name__") not in _WITHS and not (frame.f_code.co_flags & _GENERATOR and resumed):
            break
        frame = caller
    return id(frame) if frame is not None and frame.f_code.co_flags & _GENERATOR else 0


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
