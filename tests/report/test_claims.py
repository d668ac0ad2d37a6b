"""Claims: at most three sentences, made by rules that say what they can say and what they need to."""

import pytest
from made_rows import made

from lesion.registry import methods
from lesion.report.claims import MOST, RULES, Claim, rule


@pytest.fixture(scope="module")
def rules():
    """Every rule of the studies that there are."""
    for method in methods().values():
        method.result_class()  # reads the modules in which its rules are
    return {key: each for key, each in RULES.items() if each.module.startswith(("lesion.", "lesion_labs."))}


def test_a_claim_has_no_more_than_three_sentences():
    assert len(Claim(("One.", "Two.", "Three.")).sentences) == MOST
    with pytest.raises(ValueError, match="at most 3 sentences, not 4: One"):
        Claim(("One.", "Two.", "Three.", "Four."))


def test_its_text_begins_with_its_subject():
    assert Claim(("It holds.", "By 3."), subject="sums").text == "sums: It holds. By 3."
    assert Claim(("It holds.",)).text == "It holds."


def test_what_a_rule_makes_has_the_name_of_the_rule_and_the_rows_that_it_rests_on():
    @rule
    def some_block_matters(records):
        """Which block matters.

        Says: Block L matters. | No block is
        shown to matter.
        Needs: a drop
        """
        yield Claim(("Block 1 matters.",), (records[1],))

    (claim,) = some_block_matters(made())
    assert (claim.rule, claim.rows) == ("some block matters", (made()[1],))
    (key,) = (key for key in RULES if key.endswith(":some block matters"))
    own = RULES.pop(key)
    assert own.says == ("Block L matters.", "No block is shown to matter.")
    assert (own.about, own.needs) == ("Which block matters.", "a drop")


def test_every_rule_says_what_it_can_say_and_what_it_needs(rules):
    assert rules
    for key, each in rules.items():
        assert each.says, key
        assert all(sentence == sentence.strip() and sentence for sentence in each.says), key
        assert each.needs.strip(), key
        assert each.about, key
        assert len(set(each.says)) == len(each.says), key
