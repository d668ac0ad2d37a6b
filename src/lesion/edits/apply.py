"""Apply: `with applied(model, edit): …` makes an edit so and takes it back, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lesion.edits.edit import Edit
from lesion.edits.gates import gated
from lesion.models.load import Model


@contextmanager
def applied(model: Model, edit: Edit) -> Iterator[Model]:
    """The model under `edit`, for every row of every forward pass inside the `with`; nested, edits add up.

    The weights are never written: hooks scale what the edited places add to the residual stream, and they
    are gone afterwards, also after an exception. Tied weights and modules dispatched over devices are
    therefore safe.

    Example:
        >>> with applied(model, ScaleBlock(3, 0.0)):
        ...     model.network.generate(**model.tokenizer("2 + 2", return_tensors="pt"))

    Raises:
        UsageError: the edit names a place that the model does not have.
        LesionError: a forward pass did not run through a place that is edited.
    """
    with gated(model) as gates:
        gates.assign_everywhere(edit)
        yield model
