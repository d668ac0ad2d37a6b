"""Accuracy and loss by class of gold token: against loops over items, exact tests, and plain hooks on the network."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import lesion as library
from lesion.edits.edit import ScaleBlock
from lesion.statistics.paired import holm, sign_flip_exact, wilson
from lesion.studies.effects import report
from lesion.studies.effects.measurement import ClassSums
from lesion.studies.effects.result import TaskEffects, UnitEffects
from lesion.studies.effects.study import EffectsStudy
from lesion.studies.effects.summary import by_class
from lesion.tasks.catalogue import find

ITEMS, BLOCKS = 40, 3
STUDY = EffectsStudy.make(models=["m"], tasks=["primer:arithmetic"], unit=["block"])
EDITS = [ScaleBlock(layer) for layer in range(BLOCKS)]
GROUPS = ["1 step" if row % 4 else "2 steps" for row in range(ITEMS)]
# The share of tokens that are still right without each block; block 2 takes nothing.
LEFT = {"form": (1.0, 0.5, 1.0), "copied number": (0.6, 0.5, 1.0), "result": (0.9, 0.5, 1.0)}


def sums():
    """Planted: block 0 takes copied numbers, block 1 from all classes alike, block 2 nothing."""
    generator = np.random.default_rng(1)
    made = []
    for row in range(ITEMS):
        item = {}
        for name, left in LEFT.items():
            tokens = int(generator.integers(2, 12))
            top = tokens - (name == "result" and row % 5 == 0)
            without = {str(block): int(generator.binomial(top, left[block])) for block in range(BLOCKS)}
            loss = {place: 0.5 * (top - kept) + 0.01 * generator.normal() for place, kept in without.items()}
            item[name] = ClassSums(
                tokens=tokens, top=top, log_probability=-0.1 * tokens, top_without=without, loss=loss
            )
        made.append(item)
    del made[3]["result"]
    return made


@pytest.fixture(scope="module")
def fields():
    return by_class(STUDY, find("primer:arithmetic"), GROUPS, sums(), EDITS)


def ratio(items, name, numerator):
    own = [item[name] for item in items if name in item]
    return sum(map(numerator, own)) / sum(each.tokens for each in own)


def test_rates_are_sums_over_items_per_token_and_classes_without_tokens_stay(fields):
    table = fields["classes"]
    assert [each.name for each in table.classes] == [
        "form",
        "copied number",
        "operation",
        "result",
        "step or end",
        "final answer",
    ]
    assert {each.name: (each.items, each.tokens) for each in table.classes if not each.tokens} == {
        "operation": (0, 0),
        "step or end": (0, 0),
        "final answer": (0, 0),
    }
    for baseline in table.present:
        assert baseline.accuracy.value == pytest.approx(ratio(sums(), baseline.name, lambda own: own.top))
        assert baseline.log_probability.value == pytest.approx(-0.1)
    assert next(each.items for each in table.classes if each.name == "result") == ITEMS - 1
    for place in table.of("block"):
        for effect in place.effects:
            left = ratio(sums(), effect.name, lambda own, at=str(place.layer): own.top_without[at])
            before = ratio(sums(), effect.name, lambda own: own.top)
            loss = ratio(sums(), effect.name, lambda own, at=str(place.layer): own.loss[at])
            assert effect.accuracy.value == pytest.approx(left)
            assert effect.drop.value == pytest.approx(before - left)
            assert effect.loss.value == pytest.approx(loss)


def test_intervals_draw_whole_items_again(fields):
    effect = fields["classes"].of("block")[0].of("copied number")
    own = [item["copied number"] for item in sums()]
    generator, drawn = np.random.default_rng(9), []
    for _ in range(2000):
        rows = [own[at] for at in generator.integers(ITEMS, size=ITEMS)]
        drawn.append(sum(each.top_without["0"] for each in rows) / sum(each.tokens for each in rows))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert effect.accuracy.low == pytest.approx(low, abs=0.01)
    assert effect.accuracy.high == pytest.approx(high, abs=0.01)
    whole = fields["classes"].of("block")[2].of("form").accuracy
    assert (whole.value, whole.low, whole.high) == (1.0, *wilson(ITEMS, ITEMS))


def test_drops_are_tested_by_signs_of_items_and_corrected_over_places_and_classes(fields):
    places = fields["classes"].of("block")
    tested = [effect.drop for name in LEFT for effect in (place.of(name) for place in places)]
    assert [drop.p_corrected for drop in tested] == pytest.approx(holm([drop.p for drop in tested]))
    lost = np.array([item["result"].top - item["result"].top_without["0"] for item in sums() if "result" in item])
    assert places[0].of("result").drop.p == pytest.approx(sign_flip_exact(lost), abs=0.01)
    assert all(place.of(name).drop.p == 1 for name in LEFT for place in places[2:])


def test_the_class_that_loses_most_is_shown_only_where_all_others_lose_less(fields):
    first, second, third = fields["classes"].of("block")
    assert first.shown.name == "copied number"
    assert second.shown is None
    assert all(effect.is_lost for effect in second.effects)
    assert third.shown is None
    assert not any(effect.is_lost for effect in third.effects)


def test_groups_are_the_same_over_their_items_without_tests(fields):
    one, two = fields["groups"]
    assert (one.group, one.items, two.group, two.items) == ("1 step", 30, "2 steps", 10)
    own = [item for item, group in zip(sums(), GROUPS, strict=True) if group == "2 steps"]
    left = ratio(own, "copied number", lambda each: each.top_without["0"])
    assert two.of("block")[0].of("copied number").accuracy.value == pytest.approx(left)
    assert two.of("block")[0].of("copied number").drop.p is None


def test_a_claim_names_the_blocks_of_which_it_can_be_told_what_loses_most(fields):
    task = TaskEffects.model_construct(
        model="m", task="t", units=(UnitEffects.model_construct(unit="block"),), **fields
    )
    (claim,) = report.which_tokens_are_lost([task])
    (text,) = (text.replace("\N{NO-BREAK SPACE}", " ") for text in claim.sentences)
    assert text.startswith("Most is lost of 'copied number': 100 % falls to ")
    assert text.count("without") == 1  # of the other blocks it cannot be told
    (line,) = claim.rows
    assert (line.layer, line.token_class, line.loses_most) == (0, "copied number", True)


def test_a_contrast_has_no_classes_and_items_that_all_differ_in_nothing_no_groups():
    assert by_class(STUDY, find("primer:atlas?form=contrast"), GROUPS, sums(), EDITS) == {}
    assert by_class(STUDY, find("primer:arithmetic"), ["1 step"] * ITEMS, sums(), EDITS)["groups"] == ()


def test_a_bundled_model_is_measured_as_plain_transformers_token_by_token():
    """Spans written by hand from the form `a+b=c. #### c` of one-step items; blocks switched off by a plain hook."""
    task = find("primer:arithmetic")
    drawn = [item for item in task.load() if item.group == "1 step"][:3]
    own = library.task(
        "sums",
        [{"prompt": f"Question: {i.question}\nAnswer:", "answer": i.gold, "solution": i.solution} for i in drawn],
        style="raw",
    )
    own = replace(own, gold_classes=task.gold_classes)
    result = library.effects("bundled:llama-base", own, unit="block", items="all").tables["classes"]
    model = library.load("bundled:llama-base")
    right = {(block, name): [] for block in (None, 2, 7) for name in set(result["token_class"])}
    for item in drawn:
        prompt = model.tokenizer(f"Question: {item.question}\nAnswer:", add_special_tokens=True).input_ids
        whole = model.tokenizer(
            f"Question: {item.question}\nAnswer: {item.solution}", add_special_tokens=True
        ).input_ids
        equation, result_digits = item.solution.split(" #### ")[0].split("=")
        kinds = ["form"]  # the space
        kinds += ["copied number" if letter.isdigit() else "operation" for letter in equation]
        kinds += ["form", *["result"] * (len(result_digits) - 1), "form", "step or end", "form"]
        kinds += ["final answer"] * len(item.gold)
        assert len(kinds) == len(whole) - len(prompt)
        for block in (None, 2, 7):
            hooks = []
            if block is not None:
                layer = model.network.model.layers[block]
                hooks.append(
                    layer.register_forward_hook(
                        lambda module, args, kwargs, output: args[0] if args else kwargs["hidden_states"],
                        with_kwargs=True,
                    )
                )
            with torch.inference_mode():
                said = model.network(torch.tensor([whole])).logits[0].argmax(-1).tolist()
            for hook in hooks:
                hook.remove()
            for at, kind in enumerate(kinds, start=len(prompt)):
                right[block, kind].append(said[at - 1] == whole[at])
    for row in result[result["layer"].isin([2, 7])].to_dict("records"):
        assert row["tokens"] == len(right[None, row["token_class"]])
        assert row["unedited"] == pytest.approx(np.mean(right[None, row["token_class"]]))
        assert row["accuracy"] == pytest.approx(np.mean(right[row["layer"], row["token_class"]]))
    assert set(result["token_class"]) == {"form", "copied number", "operation", "result", "step or end", "final answer"}
