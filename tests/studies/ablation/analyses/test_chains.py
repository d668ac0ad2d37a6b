"""How chains of thought break under an edit: counted naively, tested exactly, and said as it is."""

from dataclasses import replace
from math import comb

import pytest
from made import form, records, study, valid

from lesion.statistics.paired import holm
from lesion.studies.ablation.analyses import chains
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.result import Material

ITEMS, LAYERS = 10, 4


def chain(layer: int | None, item: int) -> str:
    """The made world: block 0 leaves a salad of words, block 1 wrong equations, block 2 none; block 3 changes one."""
    end = f"The answer is {item + 2}."
    if layer == 0:
        return "is has so Ann pears of answer buys the and she of the two is she"
    if layer == 1 or (layer == 3 and item == 0):
        return f"Ann has {item} pears and buys 2, so she has {item} + 2 = {item + 3} pears. {end}"
    if layer == 2:
        return f"Ann has {item} pears and buys 2. {end}"
    return f"Ann has {item} pears and buys 2, so she has {item} + 2 = {item + 2} pears. {end}"


def material(say=chain) -> Material:
    answers, items = records(("base",), ("sums",))
    numbers = answers["item"].str.partition("-")[2].astype(int)
    layers = [None if edit == "baseline" else int(edit.partition("×")[0]) for edit in answers["edit"]]
    texts = [say(layer, item) for layer, item in zip(layers, numbers, strict=True)]
    return Material(
        valid(form(("base",), ("sums",))), answers.assign(text=texts, gold=(numbers + 2).astype(str)), items
    )


def told(of: Material) -> list[str]:
    return [claim.text.replace("\N{NO-BREAK SPACE}", " ") for claim in chains.part(of).claims]


def test_equations_are_counted_under_every_edit_and_tested_against_the_unedited_chains():
    (broken,) = chains.broken(material())
    assert (broken.without.calculating, broken.without.wrong, broken.without.equations) == (1, 0, ITEMS)
    by_block = {row.cut: row for row in broken.rows}
    assert [by_block[str(layer)].calculating for layer in range(LAYERS)] == [0, 1, 0, 1]
    assert [by_block[str(layer)].wrong for layer in range(LAYERS)] == [0, 1, 0, 0.1]
    assert [by_block[str(layer)].mistaken for layer in range(LAYERS)] == [0, ITEMS, 0, 1]
    assert [by_block[str(layer)].language for layer in range(LAYERS)] == [0, 1, 1, 1]
    # All of ten pairs on one side, and one of one: 2 · 2⁻¹⁰ and 1, corrected over the four blocks.
    more = [1.0, 2 * 0.5**10, 1.0, 1.0]
    assert [by_block[str(layer)].more.p for layer in range(LAYERS)] == pytest.approx(more)
    assert [by_block[str(layer)].more.p_corrected for layer in range(LAYERS)] == pytest.approx(holm(more))
    assert comb(10, 0) * 2 * 0.5**10 == by_block["0"].fewer.p == by_block["2"].fewer.p


def test_the_words_that_a_chain_has_in_common_with_the_unedited_one_are_counted_to_the_first_other_word():
    (broken,) = chains.broken(material())
    by_block = {row.cut: row for row in broken.rows}
    unedited, edited = (chain(layer, 5).split() for layer in (None, 1))
    common = next(place for place, pair in enumerate(zip(unedited, edited, strict=True)) if pair[0] != pair[1])
    assert (by_block["0"].same, by_block["1"].same, by_block["3"].same) == (0, common, len(unedited))


def test_a_claim_says_which_blocks_break_equations_and_which_leave_none():
    assert told(material()) == [
        "Without block 1 more chains have a wrong equation: 100 % against 0 % unedited (corrected p .0078)."
        " Without block 0 fewer chains have an equation: 0 % against 100 % unedited (corrected p .0078; 0 % are"
        " still language); likewise without block 2."
    ]


def test_of_several_edits_each_claim_names_its_own():
    (one,) = chains.broken(material())
    half = replace(one, curve=replace(one.curve, factor=0.5))
    assert [claim.subject for claim in chains.how_chains_break([one, half])] == [
        "Block switched off",
        "Block scaled by 0.5",
    ]


def test_without_a_difference_nothing_is_said_to_be_unbroken():
    assert told(material(lambda layer, item: chain(None, item))) == [
        "No block is shown to make more chains calculate wrongly, or fewer calculate."
    ]


def test_every_wrong_answer_fails_in_one_way_and_limits_count_the_right_ones_no_longer_than_they_are():
    of = material()
    frame = of.answers
    (broken,) = chains.broken(of)
    for texts in (broken.unedited, *(texts for _, texts in broken.edited)):
        own = frame[frame["edit"] == texts.about.edit]
        rows = list(texts.fails())
        assert sum(row.answers for row in rows) == int((~own["correct"]).sum())
        for row in texts.within(0.95):
            said = own["tokens"] - (own["finish"] == "stop")  # the token that ends an answer would not be missed
            assert row.accuracy.value == (own["correct"] & (said <= row.limit)).mean()


def test_how_much_longer_chains_are_is_the_median_with_the_sign_test_and_is_said_where_it_is_shown():
    of = material()
    layers = of.answers["edit"].str.partition("×")[0]
    items = of.answers["item"].str.partition("-")[2].astype(int)
    tokens = 20 + items + 7 * (layers == "1") - 9 * (layers == "2") + (layers == "3") * (items == 0)
    changed = Material(of.summary, of.answers.assign(tokens=tokens), of.items)
    (broken,) = chains.broken(changed)
    by_block = {row.cut: row.longer for row in broken.rows}
    assert [by_block[str(layer)].value for layer in range(LAYERS)] == [0, 7, -9, 0]
    assert [by_block[str(layer)].p for layer in range(LAYERS)] == pytest.approx([1.0, 2 * 0.5**10, 2 * 0.5**10, 1.0])
    (claim,) = chains.how_long_chains_are([broken])
    assert claim.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "Without block 1 chains are longer, by 7 tokens [7, 7] in the median of the pairs (corrected p .0078)."
        " Without block 2 chains are shorter, by 9 tokens [9, 9] in the median of the pairs (corrected p .0078)."
    )
    (same,) = chains.broken(of)
    assert not list(chains.how_long_chains_are([same]))


def test_what_a_chain_adds_is_whole_chains_against_early_answers_over_the_limits():
    (broken,) = chains.broken(material())
    frame = broken.unedited.frame.assign(tokens=50, correct=True)
    wrong, right = (frame.assign(correct=value, parsed="1") for value in (False, True))
    texts = replace(broken.unedited, frame=frame, early={8: wrong, 16: right})
    rows = {row.limit: row for row in texts.within(0.95)}
    assert (rows[8].early.value, rows[8].adds.value, rows[16].early.value, rows[16].adds.value) == (0, 1, 1, 0)
    (claim,) = chains.what_chains_add([replace(broken, unedited=texts)])
    assert claim.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "Made to answer after 8 tokens of its chains, the unedited model is right in 0 %, with whole chains in 100 %"
        " (corrected p .0039)."
    )
    (claim,) = chains.what_chains_add([replace(broken, unedited=replace(texts, early={16: right}))])
    assert claim.text.endswith("(corrected p 1): that the rest of the chains changes this is not shown.")
    assert not list(chains.what_chains_add([broken]))


def test_early_answers_in_which_none_can_be_read_are_counted_and_said():
    (broken,) = chains.broken(material())
    frame = broken.unedited.frame.assign(tokens=[4] + [50] * (ITEMS - 1), correct=True)
    early = frame.assign(correct=False, parsed=[None] * 4 + ["1"] * (ITEMS - 4))
    texts = replace(broken.unedited, frame=frame, early={8: early})
    row = next(row for row in texts.within(0.95) if row.early is not None)
    # The first of ten is no longer than the limit, so that it was not cut off: three of nine are unread.
    assert row.unread == pytest.approx(3 / 9)
    (claim,) = chains.what_chains_add([replace(broken, unedited=texts)])
    assert claim.sentences[1].replace("\N{NO-BREAK SPACE}", " ") == (
        "After 8 tokens no answer can be read in 33 % of the chains cut off: the model may not know the form in which"
        " it is asked."
    )
    read = replace(broken, unedited=replace(texts, early={8: early.assign(parsed="1")}))
    assert len(next(iter(chains.what_chains_add([read]))).sentences) == 1


def test_chains_are_as_the_unedited_ones_for_so_many_words_and_right_for_so_many_equations():
    (broken,) = chains.broken(material())
    ((_, texts),) = [pair for pair in broken.edited if str(pair[0].layer) == "3"]
    common = [
        next((n for n, (a, b) in enumerate(zip(one.split(), two.split(), strict=True)) if a != b), len(one.split()))
        for one, two in ((chain(3, item), chain(None, item)) for item in range(ITEMS))
    ]
    same = {row.words: row.same for row in texts.alike(broken.unedited)}
    assert same == {words: sum(n >= words for n in common) / ITEMS for words in chains.WORDS}
    assert [(row.equations, row.right) for row in texts.unmistaken()] == [(1, 0.9)]


def test_answers_without_equations_are_no_chains_and_the_page_has_no_such_part():
    assert chains.part(Material(*study())) is None
    assert chains.part(Material(study()[0])) is None


def test_the_page_of_a_study_of_chains_has_the_part(tmp_path):
    of = material()
    result = AblationResult(tmp_path, of.summary, stored=(of.answers, of.items))
    assert "How do chains of thought break?" in [part.title for part in result.parts()]


def test_of_several_models_it_is_counted_in_how_many_a_block_does_it():
    (one,) = chains.broken(material())
    (none,) = chains.broken(material(lambda layer, item: chain(None, item)))
    (claim,) = chains.how_chains_break([one, one, none])
    assert claim.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "sums: More chains have a wrong equation without block 1 in 2 of 3 models."
        " Fewer chains have an equation without blocks 0 and 2 in 2 of 3 models."
    )
    (claim,) = chains.how_chains_break([none] * 3)
    assert claim.sentences == ("No block is shown to make more chains calculate wrongly, or fewer calculate.",)
