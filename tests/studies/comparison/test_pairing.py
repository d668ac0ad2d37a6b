"""What of two folders is compared, what is said of the rest, and what is refused."""

import pytest
from made_answers import folder

import lesion
from lesion.outputs import own

YES = {"x": True, "y": True, "z": False}
BASE = {"baseline": YES, "3×0": YES}


def notes(*folders, **options) -> str:
    return " ".join(lesion.compare(*folders, **options).summary.notes)


def test_items_of_one_side_only_or_that_read_otherwise_are_left_out_and_counted(tmp_path):
    a = folder(tmp_path / "a", BASE)
    b = folder(tmp_path / "b", {"baseline": {"x": True, "w": False}}, model="other")
    result = lesion.compare(a, b)
    assert result.summary.pairs[0].cells[0].items == 1
    assert "sums: 1 item in common, of 3 in a and 2 in b; the others are left out." in result.summary.notes
    assert "1 edit of a or b without a counterpart" in " ".join(result.summary.notes)
    changed = folder(tmp_path / "changed", BASE, model="other", question="How much is {item}?")
    with pytest.raises(lesion.UsageError, match=r"no item of a task in common: a has sums.* the data has changed"):
        lesion.compare(a, changed)


def test_an_edit_without_an_item_in_common_is_noted_and_nothing_to_compare_is_refused(tmp_path):
    a = folder(tmp_path / "a", {"baseline": {"x": True}, "3×0": {"y": False}})
    b = folder(tmp_path / "b", {"baseline": YES, "3×0": {"x": False}}, model="other")
    assert "sums: no item was answered by both under 3×0; left out." in notes(a, b)
    c = folder(tmp_path / "c", {"4×0": YES}, model="third")
    with pytest.raises(lesion.UsageError, match="a and c have no edit in common"):
        lesion.compare(a, c)


def test_nothing_in_common_says_what_each_has(tmp_path):
    a, b = folder(tmp_path / "a", BASE), folder(tmp_path / "b", BASE, task="products")
    with pytest.raises(lesion.UsageError, match=r"a has sums \(3 items\); b has products \(3 items\)"):
        lesion.compare(a, b)


def test_a_task_of_one_side_only_is_noted(tmp_path):
    a, b = folder(tmp_path / "a", BASE), folder(tmp_path / "b", BASE, model="other")
    folder(b, BASE, model="other", task="products")
    assert "Of a and b only b answered products, which is left out." in notes(a, b)
    assert "products" not in notes(a, b, tasks="sums")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"decoding": "greedy max=9 stop=[]"}, "max_new_tokens is 8 in a and 9 in b"),
        ({"decoding": "greedy max=8 stop=['.']"}, r"stop is \[\] in a and \['.'\] in b"),
        ({"decoding": "T=0.7 p=1 seed=0 gumbel max=8 stop=[]"}, "temperature is 0 in a and 0.7 in b"),
        ({"decoding": "greedy max=8 stop=[] stop_loops=4"}, "stop_loops is 0 in a and 4 in b"),
        ({"decoding": "greedy max=8 stop=[] thinking_tokens=4"}, "thinking_tokens is 0 in a and 4 in b"),
        ({"style": "chat", "study": 'prompt_style = "chat"\n'}, "prompt_style is raw in a and chat in b"),
        (
            {"style": "chat", "study": 'models = [{source = "other", prompt_style = "chat"}]\n'},
            "prompt_style is raw in a and chat in b",
        ),
    ],
)
def test_answers_that_were_prompted_or_decoded_otherwise_are_refused_by_the_key(tmp_path, other, says):
    a, b = folder(tmp_path / "a", BASE), folder(tmp_path / "b", BASE, model="other", **other)
    with pytest.raises(lesion.UsageError, match=says):
        lesion.compare(a, b)


def test_each_models_own_prompt_style_and_another_engine_are_noted(tmp_path):
    a = folder(tmp_path / "a", BASE)
    b = folder(tmp_path / "b", BASE, model="other", style="chat", engine="another engine")
    assert "each model was prompted in its own style, a in raw and b in chat" in notes(a, b)
    assert "a was answered by by hand, b by another engine" in notes(a, b)
    stopped = folder(tmp_path / "c", BASE, model="third", study="[stop]\neffect = 0.1\n")
    assert "c stopped asking once a cell was decided" in notes(a, stopped)
    search = folder(tmp_path / "d", BASE, model="fourth", kind="truncation")
    assert "d chose its edits on some of these items" in notes(a, search)


def two_models(place, names):
    for name in names:
        folder(place, BASE, model=name)
    return place


def test_models_of_several_are_compared_by_name_else_with_the_first(tmp_path):
    a, b = two_models(tmp_path / "a", ("m", "n")), two_models(tmp_path / "b", ("n", "m", "k"))
    result = lesion.compare(a, b)
    assert [(pair.a, pair.b) for pair in result.summary.pairs] == [("a · n", "b · n"), ("a · m", "b · m")]
    assert "Only one of the two has k." in " ".join(result.summary.notes)
    c = folder(tmp_path / "c", BASE, model="c")
    assert [(pair.a, pair.b) for pair in lesion.compare(c, a).summary.pairs] == [("c", "a · m"), ("c", "a · n")]
    assert "have no model of one name: each is compared with c." in notes(c, a)
    assert [(pair.a, pair.b) for pair in lesion.compare(a).summary.pairs] == [("m", "n")]
    with pytest.raises(lesion.UsageError, match="holds one model; name a second folder"):
        lesion.compare(c)


def test_other_edits_of_the_same_blocks_are_aligned_where_the_model_is_the_same(tmp_path):
    a = folder(tmp_path / "a", BASE | {"2×0 + 3×0": YES, "12×0": YES})
    b = folder(tmp_path / "b", {"baseline": YES, "3.attention×0": YES, "3.mlp.up top 0.1": YES, "2.mlp×0 + 3×0": YES})
    result = lesion.compare(a, b)
    edits = [(cell.edit_a, cell.edit_b) for cell in result.summary.pairs[0].cells]
    assert edits == [
        ("baseline", "baseline"),
        ("2×0 + 3×0", "2.mlp×0 + 3×0"),
        ("3×0", "3.attention×0"),
        ("3×0", "3.mlp.up top 0.1"),
    ]
    assert "sums: 1 edit of a or b without a counterpart" in " ".join(result.summary.notes)
    other = folder(tmp_path / "c", {"baseline": YES, "3.attention×0": YES}, model="other")
    assert [cell.edit for cell in lesion.compare(a, other).summary.pairs[0].cells] == ["baseline"]


def test_folders_have_names_that_tell_them_apart_or_those_that_are_given(tmp_path):
    places = [folder(tmp_path / name / "out", BASE, model=name) for name in ("p", "q")]
    assert [side.label for side in lesion.compare(*places).summary.sides] == ["p/out", "q/out"]
    assert [side.label for side in lesion.compare(*places, labels=["base", "tuned"]).summary.sides] == ["base", "tuned"]
    with pytest.raises(lesion.UsageError, match="2 folders and 1 labels"):
        lesion.compare(*places, labels="base")


def test_folders_without_answers_are_refused_with_what_to_do(tmp_path):
    a = folder(tmp_path / "a", BASE)
    drift, search = tmp_path / "drift", tmp_path / "search"
    for place in (drift, search):
        place.mkdir()
        own(place, place.name)
    for given, says in (
        ((a, tmp_path / "nowhere"), "nowhere is no folder"),
        ((a, drift), "drift holds no answers to compare; name folders of `lesion ablate`"),
        ((a, search), "search is a search, which compares its choice .* write it with `lesion apply`"),
        ((a, a), "is named twice"),
        ((), "folders is missing; give a list of output folders of studies"),
    ):
        with pytest.raises(lesion.UsageError, match=says):
            lesion.compare(*given)
    with pytest.raises(lesion.UsageError, match=r"Neither a nor b has answers to sms \(nearest: sums\)"):
        lesion.compare(a, folder(tmp_path / "b", BASE, model="other"), tasks="sms")
