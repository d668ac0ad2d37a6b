"""Tokenizer: the one that the checkpoint's own tokenizer.json describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedTokenizerBase

PROBE = "Hello there,  wide World! It's 12+34=46.\n\n\tNaïve “quotes” — (3/4) of $1,200.\n"


def read_tokenizer(
    place: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id, as it came: no token is added.

    For some architectures (`qwen2` is one) transformers builds the tokenizer of the architecture out of the
    checkpoint's vocabulary, whatever rules stand in tokenizer.json, and may lose characters. So both read a probe, and
    where they disagree, the file counts.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils import cached_file

    tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
    file = cached_file(
        place,
        "tokenizer.json",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if file is None:
        if len(tokenizer) <= len(tokenizer.all_special_ids):
            # Where no file is there, transformers makes some architectures a tokenizer that knows no words.
            raise ValueError("there are no words in its vocabulary")
        return tokenizer
    own = Tokenizer.from_file(file)
    # A file may come with a maximum length or padding of its own, which is not about rules.
    own.no_truncation()
    own.no_padding()
    if own.encode(PROBE, add_special_tokens=False).ids == list(tokenizer(PROBE, add_special_tokens=False)["input_ids"]):
        return tokenizer
    return PreTrainedTokenizerFast.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
