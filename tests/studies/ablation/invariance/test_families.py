"""Families of models: by their labels, by the names of bundled models, and by the revisions of one source."""

import pytest

from lesion.core.study_file import ModelChoice
from lesion.studies.ablation.invariance.families import families, step_of
from lesion.studies.ablation.invariance.result import axes


def found(*choices: str | dict[str, str], blocks: dict[str, int] | None = None):
    models = [ModelChoice(**({"source": choice} if isinstance(choice, str) else choice)) for choice in choices]
    return families(models, blocks or {})


@pytest.mark.parametrize(
    ("revision", "step"),
    [
        ("step23", 23), ("stage1-step5000-tokens21B", 5000), ("Step_7", 7), ("checkpoint-120", 120), ("1500", 1500),
        ("main", None), (None, None), ("0e9e39f249a16976918f6564b8830bc894c89659", None),
    ],
)  # fmt: skip
def test_the_step_is_the_number_in_the_name_and_a_commit_is_none(revision, step):
    assert step_of(revision) == step


def test_bundled_models_are_grouped_by_their_names_with_the_base_first():
    llama, qwen = found("bundled:llama-rlvr", "bundled:qwen2-base", "bundled:llama-base", "bundled:qwen2-instruct")
    assert (llama.family, qwen.family) == ("llama", "qwen2")
    assert [member.variant for member in llama.members] == ["base", "rlvr"]
    assert llama.base == "bundled:llama-base"
    assert [child.model for child in llama.children] == ["bundled:llama-rlvr"]
    assert axes(llama.members) == []


def test_models_without_labels_are_no_family():
    assert found("a", "b", "bundled:llama-base") == []


def test_labels_make_a_family_and_another_parent_is_no_child():
    (family,) = found(
        {"source": "a", "family": "f", "variant": "base"},
        {"source": "b", "family": "f", "variant": "distill", "parent": "c"},
        {"source": "d", "family": "f", "variant": "instruct"},
    )
    assert [member.model for member in family.finished] == ["a", "b", "d"]
    assert [child.model for child in family.children] == ["d"]


def test_a_parent_that_is_the_base_of_the_family_makes_a_child():
    (family,) = found(
        {"source": "a", "family": "f", "variant": "base"},
        {"source": "b", "family": "f", "variant": "rlvr", "parent": "a"},
    )
    assert [child.model for child in family.children] == ["b"]


def test_revisions_of_one_source_are_a_time_axis_by_step_with_the_model_at_the_end():
    (family,) = found(
        *({"source": "out/model", "revision": f"step{step}"} for step in (100, 20, 3)), "out/model", "elsewhere"
    )
    assert family.family == "out/model"
    (axis,) = axes(family.members)
    assert [checkpoint.step for checkpoint in axis.checkpoints] == [3, 20, 100]
    assert axis.end.model == "out/model"
    assert family.finished == [axis.end]
    assert family.base is None


def test_without_the_final_model_the_last_checkpoint_is_the_end():
    (family,) = found("owner/model@step1", "owner/model@step10", "owner/model@step2")
    (axis,) = axes(family.members)
    assert [checkpoint.model for checkpoint in axis.checkpoints] == ["owner/model@step1", "owner/model@step2"]
    assert (axis.end.model, axis.end.step) == ("owner/model@step10", None)
    assert [member.model for member in family.members] == [f"owner/model@step{step}" for step in (10, 1, 2)]


def test_a_labelled_training_belongs_to_its_family():
    label = {"family": "f", "variant": "base"}
    (family,) = found(
        {"source": "a", "revision": "step5", **label},
        {"source": "a", **label},
        {"source": "b", "family": "f", "variant": "rlvr"},
        blocks={"a": 4, "b": 4, "a@step5": 4},
    )
    assert family.base == axes(family.members)[0].end.model
    assert [member.model for member in family.members] == ["a", "b", "a@step5"]
    assert [member.blocks for member in family.members] == [4, 4, 4]


def test_a_revision_alone_pins_a_model_and_is_no_moment_of_its_training():
    (family,) = found(
        {"source": "a", "revision": "step143000", "family": "f", "variant": "base"},
        {"source": "b", "revision": "v2", "family": "f", "variant": "instruct"},
    )
    assert axes(family.members) == []
    assert [member.step for member in family.members] == [None, None]


def test_an_at_sign_in_the_middle_of_a_path_is_part_of_a_folders_name():
    assert found("runs@home/a", "runs@home/b") == []


def test_one_model_in_two_dtypes_is_no_training():
    assert found("a", {"source": "a", "dtype": "float16"}) == []
