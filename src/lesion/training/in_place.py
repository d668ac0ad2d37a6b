"""Training in place: a network is as it was afterwards, but for its weights."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lesion.engines.transformers.memory import ran_out
from lesion.errors import LesionError
from lesion.models.load import Model

# What TRL writes into a configuration in passing.
_SETTINGS = ("pad_token_id", "output_router_logits", "router_aux_loss_coef", "use_cache")


@contextmanager
def trained_in_place(model: Model) -> Iterator[None]:
    """Give a network to a training: afterwards it is in eval mode and without gradients, whatever happened.

    Also as before are what trainers leave on a network or its configuration, and the state of the random number
    generators (Python's, NumPy's and PyTorch's). Only the change of the weights stays.
    """
    network = model.network
    if any(p.dtype != torch.float32 for p in network.parameters() if p.is_floating_point()):
        raise LesionError(
            f"{model.name} is in half precision, in which small steps of a training are lost; load it with"
            " dtype='float32'."
        )
    if model.device.type == "cuda" and torch.cuda.device_count() > 1:
        raise LesionError("Trainings use one accelerator; show only that one with CUDA_VISIBLE_DEVICES.")
    own = dict(vars(network))
    configuration = network.config.get_text_config()
    settings = {name: getattr(configuration, name) for name in _SETTINGS if hasattr(configuration, name)}
    generation = copy.deepcopy(network.generation_config)
    luck = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        vars(network).clear()
        vars(network).update(own)
        for name, value in settings.items():
            setattr(configuration, name, value)
        network.generation_config = generation
        network.zero_grad(set_to_none=True)
        network.eval().requires_grad_(False)
        random.setstate(luck[0])
        np.random.set_state(luck[1])


def require_trl() -> None:
    """Refuse to train without TRL and PEFT."""
    try:
        import peft  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise LesionError(
            f"Training needs TRL and PEFT ({error}); install them with: pip install 'lesion[labs]'"
        ) from error


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say what to do where memory runs out in a step of `what`, its size as the person set it."""
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        raise LesionError(f"A step of {what} does not fit into memory; train with fewer.") from error
