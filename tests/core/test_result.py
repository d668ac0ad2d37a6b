"""A folder whose study has begun and has no result yet."""

import pytest

from lesion import registry
from lesion.errors import LesionError
from lesion.outputs import own


@pytest.mark.parametrize(
    "kind",
    [
        *("drift", "effects", "truncation", "isolation", "tuning", "interaction", "patching", "overlay"),
        *("comparison", "memory", "recall", "recall-sweep"),
    ],
)
def test_it_is_said_to_have_begun_and_what_to_do_next(kind, tmp_path):
    own(tmp_path, kind)
    with pytest.raises(LesionError, match=rf"^The {kind} study in .* is not finished: .*--out {tmp_path} again\.$"):
        registry.recall(tmp_path)
