"""The primer's documents and test splits: what is trained is never asked, and everything follows from a seed."""

import random
import re
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.models.load import load
from lesion.tasks.catalogue import find
from lesion.tasks.gold_classes import classified
from lesion.tasks.primer import NAMES, arithmetic, atlas, document, lexicon, reading, task
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer

DOCUMENTS = 12_000


@pytest.fixture(scope="module")
def documents():
    """The beginning of the stream, and a stretch far behind it where the mixture has long settled."""
    starts = (0, 200_000)
    return [document(0, start + index) for start in starts for index in range(DOCUMENTS // len(starts))]


@pytest.fixture(scope="module")
def tokenizer():
    return load("bundled:llama-base").tokenizer


def items(name: str):
    return find(f"primer:{name}").load()


def turns(documents, skill: str) -> list[tuple[str, str]]:
    """The prompts and answers of one skill that the documents teach."""
    return [turn for made in documents if made.skill == skill for turn in made.turns]


# -- documents


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 10**9))
def test_a_document_is_a_function_of_seed_and_index_alone(seed, index):
    first = document(seed, index)
    random.seed(index)  # nobody else's luck gets in
    document(seed + 1, index)
    assert document(seed, index) == first


def test_the_stream_holds_every_skill(documents):
    skills = Counter(d.skill for d in documents)
    assert set(NAMES) <= set(skills)
    for name in NAMES:
        assert skills[name] > 0.05 * len(documents)


def test_a_question_is_trained_in_the_prompt_in_which_it_will_be_asked(documents, tokenizer):
    model = load("bundled:llama-base")
    for name in NAMES:
        trained = turns(documents, name)[0][0]
        question = re.fullmatch(r"Question: (.*)\nAnswer:", trained, re.DOTALL)
        assert question, trained
        asked = items(name)[0]
        prompt = tokenizer(trained.replace(question[1], asked.question)).input_ids
        assert tuple(prompt) == encode(model, find(f"primer:{name}"), asked)


# -- splits


def test_no_problem_of_the_test_split_is_trained_in_whatever_words(documents):
    chains = [answer for _, answer in turns(documents, "arithmetic")]
    assert len(chains) > 500
    trained = {problem(chain) for chain in chains}
    asked = {item.id for item in items("arithmetic")}
    assert asked == {problem(item.solution) for item in items("arithmetic")}
    assert not trained & asked


def problem(chain: str) -> str:
    """`14+7-5` for `14+7=21. 21-5=16. #### 16`."""
    steps = re.findall(r"(\d+)([-+*/]\d+)=", chain)
    return steps[0][0] + "".join(operation for _, operation in steps)


def test_no_fact_is_trained_in_the_wording_in_which_it_will_be_asked(documents):
    everywhere = "\n".join(d.text for d in documents)
    assert not any(item.question in everywhere for item in items("atlas"))


def test_every_fact_is_trained_in_several_other_wordings(documents):
    trained = dict(turns(documents, "atlas"))
    wordings = Counter()
    for fact in atlas.facts():
        for wording in range(len(atlas.QUESTIONS[fact.relation])):
            prompt = f"Question: {fact.question(wording)}\nAnswer:"
            if prompt in trained:
                assert trained[prompt] == fact.value
                wordings[fact.index] += 1
    # This is a fortieth of the stream or less: most facts have come up already, none as it will be asked.
    assert len(wordings) > 0.5 * len(atlas.facts())
    assert max(wordings.values()) == 4


def test_no_passage_of_the_test_split_is_trained(documents):
    """Nor is a test question asked behind its passage as the second question about it."""
    taught = set()
    for made in documents:
        if made.skill == "reading":
            (first, _), *others = made.turns
            passage = re.match(r"Question: ((?:[^.?]+[.] )+)", first)[1]
            questions = [first.removeprefix(f"Question: {passage}"), *(q.removeprefix("Question: ") for q, _ in others)]
            taught |= {passage + question.removesuffix("\nAnswer:") for question in questions}
    assert len(taught) > 1000
    asked = {item.question for item in items("reading")}
    assert {question.count("?") for question in taught | asked} == {1}
    assert not taught & asked


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_a_training_problem_is_never_one_of_the_test_split_and_the_reverse(seed):
    for test in (True, False):
        found, _, _ = arithmetic.example(random.Random(seed), test=test)
        assert found.is_test == test


# -- items


@pytest.mark.parametrize("name", NAMES)
def test_the_items_are_the_same_every_time_and_told_apart_by_their_ids(name):
    everything = items(name)
    assert everything == task(name).load()
    assert len({item.id for item in everything}) == len(everything) >= 300
    assert len({item.question for item in everything}) == len(everything)
    assert all(item.gold and item.group and item.solution for item in everything)
    assert len({item.group for item in everything}) >= 3


def test_the_atlas_asks_every_fact_once_in_every_wording_of_its_relation_about_as_often():
    asked = {item.question: item.gold for item in items("atlas")}
    assert len(asked) == len(atlas.facts()) == 3 * atlas.PEOPLE
    used = Counter()
    for fact in atlas.facts():
        (wording,) = [w for w in range(len(atlas.QUESTIONS[fact.relation])) if fact.question(w) in asked]
        assert asked[fact.question(wording)] == fact.value
        used[fact.relation, wording] += 1
    assert len(used) == sum(map(len, atlas.QUESTIONS.values()))
    assert max(used.values()) - min(used.values()) <= 1


def test_the_atlas_cannot_be_guessed_from_the_commonest_value():
    for relation in atlas.QUESTIONS:
        values = Counter(fact.value for fact in atlas.facts() if fact.relation == relation)
        assert values.most_common(1)[0][1] < 0.1 * atlas.PEOPLE


def test_all_prompts_fit_the_bundled_models_context_with_their_answers():
    model = load("bundled:llama-base")
    for name in NAMES:
        for item in items(name)[::7]:
            encode(model, task(name), item)  # raises where the prompt and the task's token limit do not fit
            solution = model.tokenizer(f" {item.solution}", add_special_tokens=False).input_ids
            assert len(solution) + 1 <= task(name).max_new_tokens


# -- judges


@pytest.mark.parametrize(
    ("said", "parsed", "correct"),
    [
        ("14+7=21. 21*2=42. #### 42", "42", True), ("#### 42", "42", True), (" ####42 \n", "42", True),
        ("#### 7 no, #### 42", "42", True), ("14+7=21. #### 21", "21", False), ("#### 42 apples", None, False),
        ("#### 4 2", None, False), ("the answer is 42", None, False),
    ],
)  # fmt: skip
def test_arithmetic_reads_the_number_behind_the_mark_at_the_end(said, parsed, correct):
    item = next(item for item in items("arithmetic"))
    item = type(item)(id="x", question="?", gold="42")
    verdict = task("arithmetic").judge(item, Answer(said))
    assert (verdict.parsed, verdict.correct) == (parsed, correct)


@pytest.mark.parametrize("name", ["atlas", "reading"])
@pytest.mark.parametrize(
    ("said", "parsed", "correct"),
    [
        ("baker", "baker", True),
        (" baker\n", "baker", True),
        ("Baker", "Baker", False),
        ("a baker", "a baker", False),
        (" \n", None, False),
    ],
)
def test_a_word_must_be_exactly_the_word(name, said, parsed, correct):
    item = next(iter(items(name)))
    item = type(item)(id="x", question="?", gold="baker")
    verdict = task(name).judge(item, Answer(said))
    assert (verdict.parsed, verdict.correct) == (parsed, correct)


@pytest.mark.parametrize("name", NAMES)
def test_every_solution_is_judged_right_and_that_of_another_item_wrong(name):
    everything = items(name)
    for item, other in pairwise(everything):
        assert task(name).judge(item, Answer(item.solution)).correct
        assert task(name).judge(item, Answer(other.solution)).correct == (other.gold == item.gold)


# -- biography


def test_biography_asks_once_about_everybody_and_calibrates_on_other_prompts():
    asked, pool = items("biography"), find("primer:biography").calibration()
    assert len(asked) == atlas.PEOPLE
    assert (
        len({item.id for item in (*asked, *pool)}) == len({item.question for item in (*asked, *pool)}) == 3 * len(asked)
    )
    by_value = {(fact.who, fact.value): fact for fact in atlas.facts()}
    for item in asked:
        animal, who = re.fullmatch(r"An? (\w+) lives with (.+)\.", item.question).groups()
        town, job = item.gold.split(", ")
        relations = [by_value[who, value].relation for value in (town, job, animal)]
        assert relations == ["town", "job", "animal"]
        assert item.solution == lexicon.articles(f"{who} lives in {town}. {who} is a {job}.")


@pytest.mark.parametrize(
    ("said", "parsed", "correct"),
    [
        ("Ada Mill is a hunter. Ada Mill lives in Oakhurst.", "Oakhurst, hunter", True),
        (" The job of Ada Mill is hunter. Ada Mill comes from Oakhurst.", "Oakhurst, hunter", True),
        ("Ada Mill keeps a owl. Ada Mill is a hunter. Ada Mill lives in Oakhurst.", "Oakhurst, hunter, owl", True),
        ("Ada Mill is a hunter. Ada Mill lives in Oakhurst", "hunter", False),
        ("Ada Mill keeps an owl. Ada Mill is a hunter. Ada Mill lives in Oakhurst.", "Oakhurst, hunter, owl", True),
        ("Ada Mill is a hunter. Ada Mill is a hunter.", "hunter", False),
        ("Ada Mill is a hunter. Ada Mill keeps a crow. Ada Mill lives in Oakhurst.", "Oakhurst, crow, hunter", False),
        ("Ada Mill is a hunter. Bo Mill lives in Oakhurst.", "Oakhurst, hunter", False),
        ("Ada Mill is a hunter. Ada Mill lives in Oakhurst. She sang.", "Oakhurst, hunter", False),
        ("hunter, Oakhurst", None, False),
        ("", None, False),
    ],
)  # fmt: skip
def test_a_biography_is_right_where_every_sentence_is_true_of_the_person_and_none_is_missing(said, parsed, correct):
    item = type(items("atlas")[0])(id="x", question="An owl lives with Ada Mill.", gold="Oakhurst, hunter")
    verdict = task("biography").judge(item, Answer(said))
    assert (verdict.parsed, verdict.correct) == (parsed, correct)


def test_every_statement_of_the_atlas_is_read_and_solutions_are_judged_right():
    asked = items("biography")
    for item, other in pairwise(asked):
        assert task("biography").judge(item, Answer(item.solution)).correct
        assert not task("biography").judge(item, Answer(other.solution)).correct
    for fact in atlas.facts():
        for wording in atlas.STATEMENTS[fact.relation]:
            said = lexicon.articles(wording.format(who=fact.who, value=fact.value))
            assert task("biography").judge(asked[0], Answer(said)).parsed == fact.value


def test_the_tokens_of_a_biography_are_names_facts_and_form(tokenizer):
    item = next(item for item in items("biography") if item.gold == "Farrowdale, teacher")
    ids = tokenizer(f" {item.solution}", add_special_tokens=False).input_ids
    classes = classified(tokenizer, ids, item, task("biography").gold_classes)
    by_class = {name: [tokenizer.decode([token]).strip() for token, of in zip(ids, classes, strict=True) if of == name]
                for name in set(classes)}  # fmt: skip
    assert by_class == {
        "copied name": ["Nola", "Birken"] * 2,
        "recalled fact": ["Farrowdale", "teacher"],
        "form": ["lives", "in", ".", "is", "a", "."],
    }


# -- words


def words(documents) -> Counter[str]:
    return Counter(word for d in documents for word in re.findall(r"[A-Za-z]+", d.text))


@cache
def part_of_speech(word: str) -> str | None:
    """The part of speech of a word type, or None where it has none or more than one in this world.

    Sentence-initial capitals are looked up in lower case: `The` is a determiner.
    """
    parts = {part for part, words in lexicon.PARTS_OF_SPEECH.items() if word in words or word.lower() in words}
    return parts.pop() if len(parts) == 1 else None


def test_the_stream_says_hundreds_of_word_types_with_a_known_part_of_speech(documents):
    parts = {word: part_of_speech(word) for word in words(documents)}
    known = Counter(part for part in parts.values() if part)
    assert sum(known.values()) >= 500
    assert sum(known.values()) >= 0.85 * len(parts)
    for part, least in {"noun": 150, "name": 60, "adjective": 60, "verb": 50, "adverb": 30, "preposition": 10}.items():
        assert known[part] >= least, part


def test_articles_agree_with_the_letter_that_follows(documents):
    texts = "\n".join(d.text for d in documents)
    assert not re.findall(r"\b[Aa] [aeiou]\w*", texts)
    assert not re.findall(r"\b[Aa]n [^aeiouh\W]\w*", texts)


def test_every_digit_is_one_token_and_numbers_are_their_digits(tokenizer):
    for number in (*range(10), 42, 199, 999, 1000):
        for text in (f"{number}", f" {number}", f"#### {number}", f"7+{number}={number}."):
            tokens = tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
            for token in tokens:
                assert len(re.findall(r"\d", token)) == (len(token) == 1 and token.isdigit()), (text, tokens)


def test_nearly_every_word_that_the_stream_says_in_mid_sentence_is_one_token(documents, tokenizer):
    texts = "\n".join(d.text for d in documents)
    said = Counter(re.findall(r"(?<= )[A-Za-z]+", texts))
    split = {word for word, count in said.items() if count >= 20 and len(tokenizer.tokenize(f" {word}")) > 1}
    # The vocabulary was trained before the portraits: a few of their frame words are spelt in two tokens.
    answers = {word for words in reading.KINDS.values() for word in words}
    assert not split & (answers | set(lexicon.FIRST_NAMES))
    assert len(split) <= 0.03 * len(said)
