"""What items share: templates of ioi found in its sentences, relations of facts, and groups that are no clusters."""

import pandas as pd
import pytest

from lesion.tasks.catalogue import find
from lesion.tasks.item_clusters import shared
from lesion.tasks.source import packaged


def items(name: str) -> pd.DataFrame:
    return pd.DataFrame([{"question": i.question, "gold": i.gold, "group": i.group} for i in find(name).load()])


def test_the_sentences_of_ioi_fall_into_the_templates_that_they_were_made_from():
    words, asked = packaged("benchmarks/ioi.toml"), items("ioi")
    found = shared("ioi", asked)
    openings = {template: template.split("{")[0] + template.rsplit("{giver}", 1)[1] for template in words["templates"]}
    made = []
    for sentence in asked["question"]:
        fits = [t for t, _ in openings.items() if sentence.startswith(t.split("{")[0]) and _verb(t) in sentence]
        assert len(fits) == 1
        made.append(fits[0])
    assert found.what == "template"
    assert len(set(zip(made, found.clusters, strict=True))) == len(words["templates"]) == found.count


def _verb(template: str) -> str:
    """What stands between giver and thing: ` handed `."""
    return template.split("{giver}")[1].split("{thing}")[0]


@pytest.mark.parametrize(("name", "what"), [("facts", "relation"), ("shuffled:primer:atlas", "relation")])
def test_facts_share_relations(name, what):
    asked = items(name)
    found = shared(name, asked)
    assert (found.what, found.clusters) == (what, tuple(asked["group"]))


def test_groups_that_describe_an_item_are_no_clusters():
    assert shared("primer:arithmetic", items("primer:arithmetic")) is None
    assert shared("arithmetic:add", items("arithmetic:add")) is None


def test_groups_of_a_file_are_clusters_as_far_as_there_are_any():
    rows = pd.DataFrame({"question": ["a", "b", "c"], "gold": ["1", "2", "3"], "group": ["x", "x", ""]})
    found = shared("mine.jsonl", rows)
    assert (found.what, found.clusters, found.count) == ("group", ("x", "x", ""), 2)
    assert shared("mine.jsonl", rows.assign(group="")) is None
    copies = shared("mine.jsonl", rows.assign(group="", question=["a", "b", "a"]))
    assert (copies.what, copies.count) == ("question", 2)
    assert shared("mine.jsonl", rows.assign(group="", question="")) is None, "questions that a log lacks are no copies"
