"""A search from its study to its folder: what was planted is found, and what is not there is not claimed."""

import hashlib
import json
import re
import shlex
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import searching
import torch
from layouts import LIMIT, by_hand, greedy, prompt, questions, study
from scipy.stats import binom, binomtest
from searching import Known, Say
from transformers import AutoModelForCausalLM

from commandline import lesion, save, undrawn, write
from lesion.core import paper
from lesion.core.cached_answers import Answers
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import Truncate
from lesion.edits.files.artefact import read_edit
from lesion.errors import LesionError
from lesion.models.load import wrap
from lesion.statistics.paired import paired_drop
from lesion.studies.search import report
from lesion.studies.search.run import summarise
from lesion.studies.search.search import Networks, Search, candidates
from lesion.studies.search.study import METHOD
from lesion.studies.search.temperature import TEMPERATURES
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_passage
from runs import recall_search, run_search
from tiny import save as save_network
from tiny import tiny, tokenizer

# -- planted truth


def test_a_repetition_that_the_questions_were_made_for_is_found_and_shown(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2]))
    what = study(file, lengths=[1, 2], screen=3)
    result = run_search(what, tmp_path / "out", model=llama)
    (choice,) = result.summary.choices
    assert (choice.candidate, choice.order, choice.edit) == ("block 1 twice", "0-1,1-2", "")
    assert (choice.candidates, choice.finalists) == (5, 3)
    (test,) = result.summary.tests
    assert test.accuracy.value == 1
    assert test.shown == 1
    assert choice.luck.p < 0.05
    assert "With block 1 twice, q.jsonl rises from" in result.verdict or "With block 1 twice, q rises" in result.verdict
    assert result.written["block 1 twice"].endswith("--order 0-1,1-2 --out best")


def test_a_block_that_stands_twice_is_the_one_that_can_be_left_out(tmp_path):
    file = questions(tmp_path / "q.jsonl", tiny("llama"))
    doubled = wrap(by_hand(tiny("llama"), [0, 1, 1, 2]), tokenizer(), "tiny:llama")
    what = study(file, family=["drop"], lengths=[1, 2], anyway=True)
    result = run_search(what, tmp_path / "out", model=doubled)
    one, two = result.summary.choices
    assert one.candidate in ("block 1 left out", "block 2 left out")  # either of the two is the same
    assert result.summary.of("drop 1")[0].accuracy.value == 1
    assert result.summary.of("drop 2")[0].accuracy.value < 1
    assert two.contest == "drop 2"


@pytest.fixture
def useless(tmp_path):
    """A model whose block 1 adds nothing, and questions that it answers."""
    network = tiny("llama")
    for matrix in (network.model.layers[1].self_attn.o_proj, network.model.layers[1].mlp.down_proj):
        torch.nn.init.zeros_(matrix.weight)
    return wrap(network, tokenizer(), "tiny:llama"), questions(tmp_path / "q.jsonl", network)


def test_a_useless_block_is_found_and_said_to_cost_less_than_the_margin(useless, tmp_path):
    network, file = useless
    what = study(file, family=["drop"], lengths=[1], margin=20)
    result = run_search(what, tmp_path / "out", model=network)
    (test,) = result.summary.tests
    assert (test.candidate, test.gain.value, test.verdict) == ("block 1 left out", 0, "no worse")
    assert "With block 1 left out, tiny:llama loses less than 20 points" in result.findings[0]
    assert result.summary.choices[0].order == "0,2"
    assert "apply" in {check.command for check in result.checks()}
    strict = run_search(what.model_copy(update={"margin": 0.1}), tmp_path / "out", model=network)
    assert strict.summary.tests[0].verdict == "cannot be told"
    assert "apply" not in {check.command for check in strict.checks()}


def test_the_checkpoint_that_the_page_names_says_what_the_candidate_said(capsys, tmp_path, monkeypatch):
    folder = save(tmp_path / "tiny", "llama")
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2], {2: 0.5}))
    words = ("--task", file, "--items", "all", "--lengths", "1,2", "--damping", "0.5", "--max-new-tokens", LIMIT)
    assert lesion(capsys, "search", folder, *words, "--out", tmp_path / "out").code == 0
    result = METHOD.recall(tmp_path / "out")
    (command,) = result.written.values()
    assert command.endswith("--order 0-1,1-2 --edit '2.attention×0.5 + 2.mlp×0.5' --out best")
    monkeypatch.chdir(tmp_path)
    assert lesion(capsys, *shlex.split(command)[1:]).code == 0
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "best")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    said = greedy(network, [row["prompt"] for row in rows])
    assert [text.strip() for text in said] == [row["answer"] for row in rows]


# -- nothing there


class Drawn(Networks):
    """Answers that are drawn: candidates hang together through a share of the items, and none of them differs."""

    def __init__(self, everyone, generator, items, gain=None):
        # A gold answer is as likely as a latent ability says; what is right is that it exceeds a threshold.
        own = generator.normal(size=items)
        common = generator.normal(size=items)
        noise = {each: generator.normal(size=items) for each in everyone}
        shift = gain or {}
        self.latent = {None: own} | {
            each: 0.6 * own + 0.4 * common + 0.69 * noise[each] + shift.get(each.name, 0) for each in everyone
        }

    def name(self, order):
        return "drawn"

    def evaluate(self, wanted, tasks, items, what):
        pass

    def answers(self, candidate, choice, items):
        at = [int(item.id[1:]) for item in items]
        latent = self.latent[candidate][at]
        right = latent > 0
        labels = tuple(f"{place}" for place in range(len(at)))
        return Answers(right, latent, labels, np.zeros((len(at), 0)), np.zeros((len(at), 0), dtype=np.int64))

    def gold(self, candidate, choice, items):
        return float(self.answers(candidate, choice, items).gold.mean())


ITEMS = 80


def drawn_search(llama, task, seed, gain=None):
    """A search among answers that are drawn, with all its parts but the engine."""
    what = study("q.jsonl", lengths=[1, 2, 3], damping=[1.0, 0.5, 0.25], times=[2, 3], screen=6, seed=seed)
    everyone = candidates(what, llama.anatomy, range(3))
    choice, items = TaskChoice(name="q.jsonl"), task.load()
    generator = np.random.default_rng(seed)
    split = (items[:20], items[20:40], items[40:])
    search = Search(
        what, everyone, Drawn(everyone, generator, ITEMS, gain), {choice: task}, {},
        *({choice: part} for part in split),
    )  # fmt: skip
    search.run()
    return summarise(search, llama)


@pytest.fixture
def task(tmp_path):
    write(tmp_path / "q.jsonl", ({"id": f"i{n}", "prompt": f"what is {n}?", "answer": "x"} for n in range(ITEMS)))
    return find(str(tmp_path / "q.jsonl"))


def test_the_screen_halves_the_candidates_on_ever_more_items(llama, task):
    what = study("q.jsonl", lengths=[1, 2, 3], damping=[1.0, 0.5, 0.25], times=[2, 3], screen=6)
    everyone = candidates(what, llama.anatomy, range(3))
    choice, items = TaskChoice(name="q.jsonl"), task.load()
    drawn = Drawn(everyone, np.random.default_rng(0), ITEMS)
    parts = ({choice: part} for part in (items[:20], items[20:40], items[40:]))
    search = Search(what, everyone, drawn, {choice: task}, {}, *parts)
    assert len(everyone) == 36
    assert search.rounds == [(8, 18), (16, 9), (20, 6)]
    search.run()
    counts = [seen for _, seen in search.screened.values()]
    assert [counts.count(seen) for seen in (8, 16, 20)] == [18, 9, 9]
    gold = {each: drawn.latent[each] - drawn.latent[None] for each in everyone}
    best = sorted(everyone, key=lambda each: -gold[each][:8].mean())[:18]
    best = sorted(best, key=lambda each: -gold[each][:16].mean())[:9]
    best = sorted(best, key=lambda each: -gold[each][:20].mean())[:6]
    assert set(search.contests[0].finalists) == set(best)


def test_of_200_searches_among_candidates_that_do_nothing_few_claim_a_gain(llama, task):
    summaries = [drawn_search(llama, task, seed) for seed in range(200)]
    gains = [float(summary.choices[0].gain) for summary in summaries]
    assert np.mean(gains) > 0.05  # the best on the items that chose it, which is luck
    most = binom.isf(0.001, 200, 0.05)
    claims = [test.shown == 1 for summary in summaries for test in summary.of("better")]
    assert sum(claims) <= most
    assert sum(summary.choices[0].luck.p <= 0.05 for summary in summaries) <= most
    said = [claim.text for summary in summaries for claim in report.what_the_test_shows(summary)]
    assert sum(" rises " in text for text in said) == sum(claims)


def test_a_candidate_that_is_truly_better_is_mostly_found_and_shown(llama, task):
    summaries = [drawn_search(llama, task, seed, {"blocks 1–2 twice (×0.5)": 2.0}) for seed in range(40)]
    found = [summary.choices[0].candidate == "blocks 1–2 twice (×0.5)" for summary in summaries]
    assert sum(found) >= 36
    assert sum(summary.tests[0].shown == 1 for summary in summaries) >= 32
    assert sum(summary.choices[0].luck.p <= 0.05 for summary in summaries) >= 32


# -- the test


def test_what_is_tested_is_what_two_lists_of_right_answers_say(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2]))
    other = questions(tmp_path / "other.jsonl", tiny("llama"), 30)
    what = study(file, lengths=[1, 2], family=["repeat", "drop"], controls=[str(other)], margin=30)
    result = run_search(what, tmp_path / "out", model=llama)
    answers = result.answers[result.answers["task"].isin([str(file), str(other)])]
    names = {row.name: (row.model, row.edit) for row in result.summary.candidates}
    tests = result.summary.tests
    assert len(tests) == 3 * 2
    margins = [test for test in tests if test.control or test.contest != "better"]
    assert len(margins) == 5
    for test in tests:
        network, edit = names[test.candidate]
        under = answers[(answers["model_name"] == network) & (answers["edit"] == edit) & (answers["task"] == test.task)]
        right = dict(zip(under["item"], under["correct"], strict=True))
        own = answers[(answers["model_name"] == "tiny:llama") & (answers["edit"] == "baseline")]
        own = own[(own["task"] == test.task) & own["item"].isin(right)]
        before = dict(zip(own["item"], own["correct"], strict=True))
        items = sorted(before) if test.control else [item for item in sorted(before) if item in last_half(file)]
        assert test.items == len(items)
        won = sum(right[item] and not before[item] for item in items)
        lost = sum(before[item] and not right[item] for item in items)
        assert test.gain.value == pytest.approx((won - lost) / len(items))
        assert test.gain.p == pytest.approx(binomtest(won, won + lost).pvalue if won + lost else 1)
        if test in margins:  # a wider interval, for five of them
            assert (test.gain.low > -0.3 and test.baseline > 0.3) == (test.verdict == "no worse")
            assert (test.gain.high < -0.3) == (test.verdict == "worse")
            plain = paired_drop(*(np.array([each[item] for item in items]) for each in (right, before)), 1 - 0.05 / 5)
            assert (test.gain.low, test.gain.high) == pytest.approx((plain.low, plain.high))
        else:
            assert test.verdict is None
            assert test.gain.p_corrected is None  # there is no other task


def first_token(network, text, forbidden=()):
    """The likeliest token behind a prompt that is allowed."""
    logits = network(**tokenizer()(text, return_tensors="pt")).logits[0, -1]
    logits[list(forbidden)] = -torch.inf
    return int(logits.argmax())


def test_a_gain_stands_beside_the_unedited_model_with_its_frequent_wrong_first_tokens_forbidden(llama, tmp_path):
    network, other = tiny("llama"), by_hand(tiny("llama"), [0, 1, 1, 2])
    file = questions(tmp_path / "q.jsonl", other)
    result = run_search(study(file, lengths=[1]), tmp_path / "out", model=llama)
    rows = {row["id"]: row for row in map(json.loads, file.read_text().splitlines())}
    (row,), test = result.summary.forbidden, last_half(file)
    assert (row.candidate, row.items) == ("block 1 twice", len(test))

    def right(network, item, forbidden=()):
        first = first_token(network, rows[item]["prompt"], forbidden)
        text = rows[item]["prompt"] + tokenizer().decode([first])
        return (tokenizer().decode([first]) + greedy(network, [text], LIMIT - 1)[0]).partition("\n")[0].strip()

    wrong = Counter(
        first_token(network, rows[item]["prompt"])
        for item in rows
        if item not in test and greedy(network, [rows[item]["prompt"]])[0].strip() != rows[item]["answer"]
    )
    frequent = sorted(wrong, key=lambda token: (-wrong[token], token))[: len(row.tokens)]
    assert row.tokens == tuple(tokenizer().decode([token]) for token in frequent)
    gold = {item: rows[item]["answer"] for item in test}
    alone = [right(network, item, frequent) == gold[item] for item in test]
    both = [right(other, item, frequent) == gold[item] for item in test]
    assert (row.accuracy.value, row.both.value) == (np.mean(alone), np.mean(both))
    assert row.beyond.value == pytest.approx(np.mean(both) - np.mean(alone))
    assert row.instead.value == pytest.approx(1 - np.mean(alone))
    again = run_search(study(file, lengths=[1]), tmp_path / "out", model=llama)
    assert (again.evaluated, again.summary) == (0, result.summary)


def last_half(file):
    """The second half of the items in the order of their draw."""
    ids = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    return sorted(ids, key=lambda each: hashlib.sha256(f"0:{each}".encode()).digest())[len(ids) // 2 :]


def lost(network, passages, temperature: float = 1.0) -> list[float]:
    """What plain transformers loses of every passage, in nats."""
    losses = []
    for ahead, passage in passages:
        with torch.no_grad():
            logits = network(torch.tensor([[*ahead, *passage]])).logits[0, len(ahead) - 1 : -1].double() / temperature
        losses.append(-float(logits.log_softmax(-1)[range(len(passage)), list(passage)].sum()))
    return losses


def running_text(folder, passages: int) -> str:
    """A task of running text."""
    (folder / "t.txt").write_text("\n\n".join(f"{prompt(n)} " * 30 for n in range(passages)))
    return f"text:{folder / 't.txt'}"


def test_a_control_of_running_text_has_the_ratio_of_plain_perplexities(llama, tmp_path):
    file, control = questions(tmp_path / "q.jsonl", tiny("llama"), 12), running_text(tmp_path, 5)
    what = study(file, family=["drop"], lengths=[1], controls=[control], margin=30)
    result = run_search(what, tmp_path / "out", model=llama)
    (row,) = result.summary.texts
    passages = [encode_passage(llama, find(control), item) for item in find(control).load()]
    assert (row.texts, row.tokens) == (len(passages), sum(len(passage) for _, passage in passages))
    order = [block for block in range(3) if row.candidate != f"block {block} left out"]

    def perplexity(network):
        return np.exp(sum(lost(network, passages)) / row.tokens)

    before, after = perplexity(tiny("llama")), perplexity(by_hand(tiny("llama"), order))
    assert (row.baseline, row.perplexity, row.ratio.value) == pytest.approx((before, after, after / before), rel=1e-4)
    (claim,) = report.whether_controls_are_worse(result.summary)
    assert "perplexity" in claim.text
    assert paper.tex(claim.text) in paper.paragraph(result)
    assert "McNemar" in paper.paragraph(result)
    with pytest.raises(LesionError, match=r"chooses by perplexity and .*q\.jsonl by accuracy.*--control"):
        run_search(study(file, tasks=[str(file), control]), tmp_path / "other", model=llama)


def test_running_text_chooses_by_its_perplexity_and_other_text_tests(llama, tmp_path):
    task = running_text(tmp_path, 12)
    what = study(task, family=["drop", "repeat"], lengths=[1], margin=1)
    result = run_search(what, tmp_path / "out", model=llama)
    summary, items = result.summary, draw(find(task), None, what.seed)
    (split,) = summary.tasks
    passages = [encode_passage(llama, find(task), item) for item in items]
    chose, test = passages[: split.choice_items], passages[len(passages) - split.test_items :]
    orders = {f"block {n} left out": [b for b in range(3) if b != n] for n in range(3)}
    orders |= {f"block {n} twice": [*range(n + 1), *range(n, 3)] for n in range(3)}
    networks = {name: by_hand(tiny("llama"), order) for name, order in orders.items()}
    before = sum(lost(tiny("llama"), chose))
    tokens = sum(len(passage) for _, passage in chose)
    gains = {name: (before - sum(lost(network, chose))) / tokens for name, network in networks.items()}
    assert {row.name: row.gain for row in summary.candidates} == pytest.approx(gains, abs=1e-5)
    for choice in summary.choices:
        best = max((name for name in gains if ("left" in name) == (choice.contest == "drop 1")), key=gains.get)
        assert choice.candidate == best
        assert (choice.nothing is None) == (choice.contest == "drop 1" or gains[best] > 0)
    for row in summary.texts:
        ratios = {
            name: np.exp((sum(lost(network, test)) - sum(lost(tiny("llama"), test))) / row.tokens)
            for name, network in networks.items()
        }
        assert row.ratio.value == pytest.approx(ratios[row.candidate], rel=1e-4)
        alike = [name for name in ratios if name.split()[2:] == row.candidate.split()[2:] and name != row.candidate]
        assert sorted(row.rivals) == pytest.approx(sorted(ratios[name] for name in alike), rel=1e-4)
    assert not summary.tests
    assert "the perplexity of t falls from" in result.verdict
    assert "McNemar" not in paper.paragraph(result)
    again = run_search(what.model_copy(update={"lengths": (1, 2)}), tmp_path / "out", model=llama).summary
    assert again.earlier == 1
    (first,), (second,) = ([row for row in each.texts if row.contest == "drop 1"] for each in (summary, again))
    assert (second.ratio.low, first.ratio.high) < (first.ratio.low, second.ratio.high)
    screened = run_search(study(task, family=["repeat"], lengths=[1], screen=1), tmp_path / "screened", model=llama)
    seen = passages[: screened.summary.candidates[0].screened]
    before, tokens = sum(lost(tiny("llama"), seen)), sum(len(passage) for _, passage in seen)
    gains = {name: (before - sum(lost(network, seen))) / tokens for name, network in networks.items()}
    for row in screened.summary.candidates:
        assert row.screen == pytest.approx(gains[row.name], abs=1e-5)


def test_a_lower_perplexity_stands_beside_that_of_the_unedited_model_at_a_temperature(llama, tmp_path, monkeypatch):
    task = running_text(tmp_path, 16)
    what = study(task, family=["repeat"], lengths=[1], screen=1, damping=[0.5])
    result = run_search(what, tmp_path / "out", model=llama)
    (row,), (text,), (choice,) = result.summary.temperatures, result.summary.texts, result.summary.choices
    items = draw(find(task), None, what.seed)
    passages = [encode_passage(llama, find(task), item) for item in items]
    fitting, test = passages[: -text.texts], passages[-text.texts :]
    block = int(choice.candidate.split()[1])
    plain, layout = tiny("llama"), by_hand(tiny("llama"), [*range(block + 1), *range(block, 3)], {block + 1: 0.5})
    for network, found in ((plain, row.temperature), (layout, row.own)):
        losses = {each: sum(lost(network, fitting, each)) for each in TEMPERATURES}
        assert found == min(losses, key=losses.get)
    before, after, alone, both = (
        sum(lost(network, test, each))
        for network, each in ((plain, 1.0), (layout, 1.0), (plain, row.temperature), (layout, row.own))
    )
    ratios = np.exp(np.array([alone - before, after - alone, both - alone]) / text.tokens)
    assert [row.ratio.value, row.instead.value, row.beyond.value] == pytest.approx(list(ratios), rel=1e-4)
    assert row.perplexity == pytest.approx(np.exp(alone / text.tokens), rel=1e-4)
    monkeypatch.setattr("lesion.studies.search.run.at_temperatures", Mock(side_effect=AssertionError))
    assert run_search(what, tmp_path / "out", model=llama).summary.temperatures == (row,)  # they are kept


def test_a_passage_that_stands_in_a_text_twice_is_read_once_and_few_texts_are_said_to_be_few(llama, tmp_path):
    (tmp_path / "t.txt").write_text("\n\n".join(f"{prompt(n)} " * 30 for n in (0, 1, 2, 3) for _ in range(2)))
    what = study(f"text:{tmp_path / 't.txt'}", family=["drop"], lengths=[1])
    result = run_search(what, tmp_path / "out", model=llama)
    passages = find(what.tasks[0].name).load()
    (split,) = result.summary.tasks
    assert split.choice_items + split.test_items == len({item.question for item in passages}) < len(passages)
    assert any("Fewer than 10 test texts" in check.text for check in result.checks())


def test_the_page_begins_with_the_test_and_files_have_every_number(llama, tmp_path, tab):
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2]))
    what = study(file, lengths=[1, 2, 3], damping=[1.0, 0.5, 0.25], family=["repeat", "drop", "swap", "scale"])
    result = run_search(what, tmp_path / "out", model=llama)
    result.report()
    assert " on test items" in result.verdict
    for name in ("candidates", "compared", "test", "rivals"):
        assert (tmp_path / "out" / f"{name}.csv").exists()
        assert name in result.tables
    tab.open((tmp_path / "out" / "report.html").as_uri())
    assert tab.complaints == []
    assert tab.ask("document.documentElement.scrollHeight") <= 3500
    assert result.verdict.split(",")[0] in tab.ask("document.body.innerText").replace("\n", " ")


# -- its folder


def test_a_search_that_was_killed_goes_on_and_ends_with_the_same_numbers(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2]))
    what = study(file, lengths=[1, 2], screen=2, family=["repeat", "drop", "swap"])
    whole = run_search(what, tmp_path / "whole", model=llama)

    class Dying:
        left = whole.evaluated // 2

        def begin(self, *args):
            pass

        def answered(self, count):
            Dying.left -= count
            if Dying.left < 0:
                raise KeyboardInterrupt

        def note(self, text):
            pass

    with pytest.raises(KeyboardInterrupt):
        run_search(what, tmp_path / "out", model=llama, watcher=Dying())
    with pytest.raises(LesionError, match="is not finished"):
        recall_search(tmp_path / "out")
    rest = run_search(what, tmp_path / "out", model=llama)
    assert 0 < rest.evaluated < whole.evaluated
    assert rest.summary == whole.summary == recall_search(tmp_path / "out")
    again = run_search(what, tmp_path / "out", model=llama)
    assert (again.evaluated, again.planned) == (0, whole.planned)


def test_what_is_said_of_prompts_is_said_once_for_networks_in_every_order(llama, tmp_path):
    rows = ({"id": f"{n}", "prompt": f"{n} ÷ 1 =", "answer": f"{n}"} for n in range(12))
    what = study(write(tmp_path / "q.jsonl", rows), family=["swap"], lengths=[1], items=12, anyway=True)
    watcher = Mock()
    result = run_search(what, tmp_path / "out", model=llama, watcher=watcher)
    assert len({row.model for row in result.summary.candidates}) > 1
    (note,) = [call.args[0] for call in watcher.note.call_args_list if "does not know" in call.args[0]]
    assert "12 prompts" in note


def test_a_truncation_that_was_chosen_is_left_as_an_edit_and_taken_away_where_it_is_no_more(llama, tmp_path):
    def table(edit, item):
        return Say(edit == "1.mlp.up top 0.25" or int(item[1:]) % 3 == 0, -1.0 - ("0.5" in edit))

    file, search = searching.questions(tmp_path / "q.jsonl"), {"family": ["truncate"], "matrices": ["mlp.up"]}
    what = study(file, keep=[0.5, 0.25], screen=3, **search)
    result = run_search(what, tmp_path / "out", model=llama, make_engine=Known(table))
    assert read_edit(tmp_path / "out" / "best.edit").edit == Truncate("1.mlp.up", 0.25)
    assert result.summary.tests[0].shown == 1
    (command,) = result.written.values()
    assert command == "lesion apply tiny:llama --edit '1.mlp.up top 0.25' --out best"
    nothing = run_search(study(file, keep=[0.5], **search), tmp_path / "out", model=llama, make_engine=Known(table))
    assert nothing.verdict.startswith("No candidate evaluated in full has more items right")
    assert not (tmp_path / "out" / "best.edit").exists()


def test_more_candidates_are_all_that_is_asked_in_a_folder_that_has_some(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", tiny("llama"), 20)
    few = run_search(study(file, lengths=[1], screen="none"), tmp_path / "out", model=llama)
    more = run_search(study(file, lengths=[1], damping=[1.0, 0.5], screen="none"), tmp_path / "out", model=llama)
    whole = run_search(study(file, lengths=[1], damping=[1.0, 0.5], screen="none"), tmp_path / "whole", model=llama)
    assert more.summary.candidates == whole.summary.candidates
    assert more.evaluated < whole.evaluated < few.evaluated + more.evaluated + 1


def test_another_search_in_a_folder_allows_for_the_tests_before_it_and_the_same_one_again_does_not(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", by_hand(tiny("llama"), [0, 1, 1, 2]))
    first, alone = (study(file, lengths=lengths, screen="none") for lengths in ([1], [1, 2]))
    run_search(first, tmp_path / "out", model=llama)
    again = run_search(first, tmp_path / "out", model=llama)
    assert again.summary.earlier == 0
    (test,) = run_search(alone, tmp_path / "alone", model=llama).summary.tests
    for looks in (2, 2):  # the same search once more is no further look
        after = run_search(alone, tmp_path / "out", model=llama)
        assert after.summary.earlier == looks - 1
        (corrected,) = after.summary.tests
        assert corrected.gain.p_corrected == pytest.approx(min(1, looks * test.gain.p))
        assert corrected.gain.low < test.gain.low
        assert corrected.gain.value == test.gain.value
        with undrawn():
            page = after.report().read_text()
        assert "Other searches tested on these items before: 1; p and intervals allow for them." in page


def test_a_folder_of_another_search_is_refused(llama, tmp_path):
    file = questions(tmp_path / "q.jsonl", tiny("llama"), 12)
    run_search(study(file, lengths=[1]), tmp_path / "out", model=llama)
    with pytest.raises(LesionError, match=r"seed"):
        run_search(study(file, lengths=[1], seed=1), tmp_path / "out", model=llama)


def test_where_nothing_is_left_to_gain_that_is_said(capsys, tmp_path):
    tiny("llama").save_pretrained(tmp_path / "llama")
    tokenizer().save_pretrained(tmp_path / "llama")
    said = {}
    for name, gold in (("own", tiny("llama")), ("others", by_hand(tiny("llama"), [0, 1, 1, 2]))):
        file = questions(tmp_path / f"{name}.jsonl", gold, 12)
        words = ("--items", "all", "--lengths", "1", "--max-new-tokens", LIMIT, "--anyway", "--out", tmp_path / name)
        said[name] = lesion(capsys, "search", tmp_path / "llama", "--task", file, *words).err
    assert "has all 6 items right that choose, so that no candidate can be better; give harder ones." in said["own"]
    assert "items right that choose" not in said["others"]


def test_a_dry_run_counts_every_answer_of_a_search_that_shows_a_gain(capsys, tmp_path):
    network = by_hand(tiny("llama"), [0, 1, 2, 0, 1, 2, 0])
    folder = save_network(network, tmp_path / "llama")
    file = questions(tmp_path / "q.jsonl", by_hand(network, [0, 1, 1, 2, 3, 4, 5, 6]), 80)
    words = ("search", folder, "--task", file, "--items", "all", "--lengths", "1", "--screen", "3")
    words = (*words, "--max-new-tokens", LIMIT, "--out", tmp_path / "out")
    dry = lesion(capsys, *words, "--dry-run")
    assert dry.code == 0, dry.err
    (count,) = re.findall(r"note: ([\d,]+) answers to come", dry.err)
    done = lesion(capsys, *words)
    (row,) = recall_search(tmp_path / "out").forbidden
    assert len(row.tokens) > 0
    assert f"evaluated {count} of " in done.out
