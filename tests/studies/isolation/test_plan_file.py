"""`plan.json` as somebody may send it: what no evaluation plans is a damaged file."""

import json

import pytest

from lesion.errors import LesionError
from lesion.studies.isolation.plan import PLAN, read_plan

EDIT = {
    **{"edit": "2x0", "label": "2x0", "digest": "", "method": "custom", "keep": None, "samples": None, "repeat": None},
    **{"factor": 0.0, "random_of": None, "seed": None, "selected": 5, "total": 10, "achieved": None},
}
WHOLE = {
    **{"model": "m", "dtype": "float32", "tasks": {}, "chance": {}, "skill": None, "validation": None, "level": 0.95}
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"method": "nonsense"}, "no selection method 'nonsense'"),
        ({"total": 0}, "total"),
        ({"selected": -1}, "selected"),
    ],
)
def test_a_selection_that_is_none_is_damage_of_the_plan(change, fault, tmp_path):
    (tmp_path / PLAN).write_text(json.dumps({**WHOLE, "edits": [EDIT]}))
    assert read_plan(tmp_path).edits[0].share == 0.5
    (tmp_path / PLAN).write_text(json.dumps({**WHOLE, "edits": [{**EDIT, **change}]}))
    with pytest.raises(LesionError, match=f"plan.json is damaged .*{fault}.*remove it and run the command again"):
        read_plan(tmp_path)
