"""The settings of decoding: what cannot be meant is refused, and their text tells answers apart."""

import pytest

from lesion.engines.engine import Decoding
from lesion.errors import UsageError


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 0}, {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"top_p": 0.0}, {"top_p": 1.01}, {"top_p": float("nan")},
    ],
    ids=str,
)  # fmt: skip
def test_a_decoding_that_cannot_be_meant_is_refused(settings):
    with pytest.raises(UsageError, match=r"needs at least 1|temperature is|top_p is|must be a finite number"):
        Decoding(**settings)


def test_the_text_of_sampled_decoding_names_the_way_of_sampling_and_that_of_greedy_decoding_does_not():
    """It is a part of an answer's key: answers that were drawn in another way have other keys."""
    assert str(Decoding(8)) == "greedy max=8 stop=[]"
    assert str(Decoding(8, temperature=0.5, seed=3)) == "T=0.5 p=1 seed=3 gumbel max=8 stop=[]"
