"""A replaced head gives what plain hooks put before the output projection, in every known family."""

import pytest
import torch
from headed import headed
from replaced import in_one_pass_and_with_a_cache, replaced, some_heads, some_reference
from torch import Tensor

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleMlp, of_replacements
from lesion.edits.gates import gated
from lesion.edits.replace import Replace
from lesion.edits.selections.controls import matched_controls
from lesion.edits.table import tabulate
from lesion.edits.text import from_json, parse, to_json
from lesion.edits.units import ScaleGroup, ScaleHead
from lesion.errors import UsageError
from lesion.models.load import wrap
from tiny import BUILDS, model, tiny, tokenizer

KNOWN = [family for family in BUILDS if family != "unknown"]
families = pytest.mark.parametrize("family", KNOWN)
some = pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])


def tokens(rows: int = 1, length: int = 12) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(0))


def every_kind(reference) -> list[Replace | Compose]:
    return [
        Replace("0.attention.head.3", "mean", reference),
        Replace("1.attention.head.0", "position", reference),
        Replace("1.attention.head.2", "resample", reference, 1),
        Replace("2.attention.head.1", "optimal", reference),
        Compose(
            (Replace("1.attention.head.0", "mean", reference), Replace("1.attention.head.3", "resample", reference))
        ),
    ]


def logits(network, ids: Tensor, **arguments) -> Tensor:
    with torch.no_grad():
        return network(ids, use_cache=False, **arguments).logits


def assert_close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> None:
    assert other.isfinite().all()
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@families
def test_every_kind_is_what_plain_hooks_do_alone_and_as_rows_of_one_batch(family):
    subject, ids = model(family), tokens()
    edits = every_kind(some_heads(subject, family))
    unedited = logits(subject.network, ids)
    expected = []
    for edit in edits:
        with replaced(subject.network, family, edit, ids.shape[1]):
            expected.append(logits(subject.network, ids))
        with applied(subject, edit):
            assert_close(logits(subject.network, ids), expected[-1])
        assert not torch.allclose(expected[-1], unedited, atol=0.01)
    scaled = ScaleHead(1, 2)
    with headed(subject.network, family, {(1, 2): 0.0}):
        removed = logits(subject.network, ids)
    with gated(subject) as gates:
        gates.assign([BASELINE, *edits, scaled])
        together = logits(subject.network, ids.expand(len(edits) + 2, -1))
    assert_close(together, torch.cat([unedited, *expected, removed]))


@some
def test_it_mixes_with_scaled_heads_and_replaced_places_in_one_row(family):
    subject, ids = model(family), tokens(2)
    places = some_reference(subject)
    head, block = Replace("1.attention.head.1", "position", some_heads(subject, family)), Replace("2", "mean", places)
    with (
        headed(subject.network, family, {(1, 0): 0.5}),
        replaced(subject.network, family, Compose((head, block)), ids.shape[1]),
    ):
        expected = logits(subject.network, ids)
    with applied(subject, [ScaleHead(1, 0, 0.5), head, block]):
        assert_close(logits(subject.network, ids), expected)


@some
def test_with_a_cache_each_token_gets_what_its_position_gets_in_one_pass(family):
    subject, ids = model(family), tokens(2)
    reference = some_heads(subject, family)
    edits = [Replace("1.attention.head.1", kind, reference) for kind in ("resample", "position")]
    with gated(subject) as gates:
        gates.assign(edits)
        whole, pieces = in_one_pass_and_with_a_cache(subject.network, ids)
    assert_close(pieces, whole, 1e-4)


def test_half_precision_rounds_the_vector_once_and_a_broken_head_is_gone():
    subject = wrap(tiny("llama").bfloat16(), tokenizer(), "tiny:bfloat16")
    part = Replace("1.attention.head.2", "mean", some_heads(subject, "llama"))
    with torch.no_grad():
        subject.anatomy.matrix("1.attention.v").tensor[8:].fill_(float("nan"))  # of heads 2 and 3
    given = []
    with applied(subject, [part, ScaleHead(1, 3)]):
        module = subject.anatomy.heads(1).matrix.module
        handle = module.register_forward_pre_hook(lambda module, args: given.append(args[0]))
        assert logits(subject.network, tokens()).isfinite().all()
        handle.remove()
    first, others = part.vectors.bfloat16()
    assert torch.equal(given[0][0, :, 16:24], torch.stack([first, *[others] * 11]))


def test_text_json_and_controls_name_the_head():
    subject = model("llama")
    reference = some_heads(subject, "llama")
    references = {reference.digest: reference}
    edit = Replace("01.attention.head.02", "resample", reference, 3)
    assert str(edit) == f"1.attention.head.2→resample 3@{reference.digest}"
    assert (edit.layer, edit.unit, edit.head) == (1, "head", 2)
    assert parse(str(edit), references=references) == edit
    assert from_json(to_json(edit), references=references) == edit
    each = parse(f"0-1.attention.head.3->mean@{reference.digest}", references=references)
    assert [part.address for part in of_replacements(each)] == ["0.attention.head.3", "1.attention.head.3"]
    controls = matched_controls(edit, subject, 5)
    assert {part.address for part in controls} == {"0.attention.head.2", "2.attention.head.2"}


def test_what_cannot_be_is_refused_by_name():
    subject = model("llama")
    reference = some_heads(subject, "llama")
    part = Replace("1.attention.head.2", "mean", reference)
    for other in (ScaleHead(1, 2, 0.5), ScaleGroup(1, 1), Replace("1.attention.head.2", "resample", reference)):
        for both in ((part, other), (other, part)):
            with pytest.raises(UsageError, match=r"replaces 1\.attention\.head\.2 and changes it once more"):
                tabulate([Compose(both)], subject.anatomy)
    allowed = Compose((part, ScaleHead(1, 2, 1.0), ScaleHead(1, 1), ScaleAttention(1, 0.5), ScaleMlp(1)))
    assert tabulate([allowed], subject.anatomy).columns == 1
    beyond = {"mean": {"1.attention.head.9": torch.zeros(1, 8)}}
    absent = type(reference)(reference.model, reference.fingerprint, "some texts", 9, beyond)
    with pytest.raises(
        UsageError, match=r"no 1\.attention\.head\.9: .* 4 query heads, 0 to 3; write 1\.attention\.head\.3→"
    ):
        tabulate([Replace("1.attention.head.9", "mean", absent)], subject.anatomy)
    with gated(model("qwen2")) as gates, pytest.raises(UsageError, match="takes contributions of tiny:llama"):
        gates.assign([part])
    with pytest.raises(UsageError, match="lesion ablate MODEL --task TASK --unit head --replace mean,resample"):
        parse(str(part))
    with pytest.raises(UsageError, match="The heads of block 1 of tiny:unknown are not known"):
        tabulate([part], model("unknown").anatomy)
