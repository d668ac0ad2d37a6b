"""Apply: `with applied(model, edit): …` makes an edit so and takes it back, whatever happens in between."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lesion.arguments import validated
from lesion.edits.edit import EditLike, of_places, of_spectra, of_weights
from lesion.edits.files.artefact import edit_for
from lesion.edits.gates import hung
from lesion.edits.table import with_scaled_weights
from lesion.edits.weights import written
from lesion.errors import UsageError
from lesion.models.build import has_own_forward
from lesion.models.fingerprint import fingerprint, not_finite, surroundings
from lesion.models.load import Model
from lesion.models.owner import held, refuse_edited


@validated
@contextmanager
def applied(model: Model, edit: EditLike) -> Iterator[Model]:
    """The model under `edit`, for every row of every forward pass inside the `with`; nested, edits add up.

    Hooks scale what blocks, branches and inner units add to the residual stream; scaled parameters, truncated matrices,
    and scaled matrices of experts and routers are written in place. Afterwards the weights are bit-identical: also
    after an exception, for tied weights, and for modules spread over devices. Selections are made on the weights as
    they are on entry; nested, the inner one chooses among edited weights. Where both change one place, the outer edit
    acts on what the inner one leaves: factors multiply, and what the outer one replaces is replaced whatever the inner
    one did.

    Args:
        model: whose network is edited, for everybody who uses it.
        edit: an edit, its text form, the path of an `.edit` file, what `read_edit` gave, or several of these, which are
            composed.

    Example:
        >>> with lesion.applied(model, "3x0"):
        ...     model.network(**model.tokenizer("2 + 2", return_tensors="pt")).logits

    Raises:
        UsageError: it is no edit, or names a place that the model does not have.
        LesionError: it was read from a file made for another model; a forward pass did not run through an edited place;
            the selected weights are none, all there are, or do not move (see `written`); or another thread, task or
            generator has the model (see `lesion.models.owner.held`).
    """
    edit = with_scaled_weights(edit_for(model, edit), model.anatomy)
    with held(model, f"the edit {str(edit)[:80]}", edits=True) as hold, hung(model, hold) as gates:
        gates.assign_everywhere(of_places(edit))
        with written(model, of_weights(edit), of_spectra(edit)):
            yield model


def as_it_is(model: Model) -> Model:
    """The model with the fingerprint of what it computes with now; it may have been changed since it was loaded."""
    refuse_edited(model.network, model.name, "what is measured")
    build = model.anatomy.build
    for name, module in model.network.named_modules():
        hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
        own_forward = has_own_forward(module) and (build is None or build.forwards.get(name) != vars(module)["forward"])
        if own_forward or not all(_HARMLESS.match(getattr(hook, "__module__", "")) for hook in hooks):
            raise UsageError(
                f"{model.name} has a {'forward of its own' if own_forward else 'hook'} on"
                f" {name or type(module).__name__}, so the baseline would not be the model as it is: take it away"
                " before you go on, or leave `applied` if it is an edit in force."
            )
    for matrix in model.anatomy.scored.values():
        if not matrix.packed:
            _ = matrix.tensor  # refuses what cannot be read any more
    now, around = fingerprint(model.network), surroundings(model.network)
    if around != model.surroundings:
        now = hashlib.sha256(f"{now} {around}".encode()).hexdigest()[:16]
    if now == model.fingerprint:
        return model
    return replace(model, fingerprint=now, origin=None, not_finite=not_finite(model.network))


# Hooks that look at every pass, hand out hidden states, or move tensors between devices.
_HARMLESS = re.compile(r"lesion\.models\.owner$|(transformers|accelerate)(\.|$)")
