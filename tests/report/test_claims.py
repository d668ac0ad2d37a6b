"""Claims: at most three sentences, made by rules."""

import pytest
from made_rows import made

from lesion.report.claims import MOST, RULES, Claim, rule


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
        yield Claim(("Block 1 matters.",), (records[1],))

    (claim,) = some_block_matters(made())
    assert (claim.rule, claim.rows) == ("some block matters", (made()[1],))
    del RULES[next(key for key in RULES if key.endswith(":some block matters"))]
