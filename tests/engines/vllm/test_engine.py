"""vLLM says what the transformers engine says: token for token in float32, under every edit, and after it."""

from collections.abc import Iterator

import pytest
import torch

from alone import drawn, greedy
from lesion.core.proofs import Proofs
from lesion.core.prove import prove
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleParameters, Truncate
from lesion.edits.selections.controls import Random
from lesion.edits.selections.topk import Magnitude
from lesion.edits.units import ScaleExpert, ScaleHead
from lesion.engines.engine import Decoding, Engine, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, load
from vllm_cases import NEEDED, answers, assert_same, generations, places, prompts, units

pytest.importorskip("vllm", reason=NEEDED)

PRUNED = ScaleParameters(Magnitude(0.1), 0.0)
BOOSTED = ScaleParameters(Random(Magnitude(0.3), 1), 1.7)
IN_WEIGHTS = (
    Truncate("2.mlp.up", 0.1),
    Truncate("3.attention.q", 0.0),
    Truncate("1.attention.v", 0.2, "bottom"),
    Truncate("4.mlp.down", 0.3, "bottom"),
    PRUNED,
    BOOSTED,
    Compose((PRUNED, ScaleBlock(1))),
    Compose((ScaleBlock(2), Truncate("5.mlp.gate", 0.2), Truncate("5.attention.o", 0.5))),
)
CHOICES = ((5, 6, 7), (5, 6, 8), (9,), (10,), (5, 11))


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def model(request: pytest.FixtureRequest) -> Model:
    return load(f"bundled:{request.param}-base")


@pytest.fixture(scope="module")
def vllm(model: Model) -> Iterator[VllmEngine]:
    with VllmEngine(model, 16, in_process=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(model: Model) -> Engine:
    return TransformersEngine(model, 16)


def test_every_ablated_block_branch_and_unit_in_one_running_batch(model, vllm, plain):
    asked = generations(prompts(model), [*places(model), *units(model)])
    # Fewer rows than requests: answers leave the batch and others enter it, under other edits.
    assert len(asked) > 3 * vllm.batch_size
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    assert len({response.token_ids for key, response in told.items() if key.startswith("0 ")}) > 5


def test_edits_are_proved_to_act_while_it_decodes(model, vllm, plain, tmp_path):
    edits = [ScaleBlock(2), ScaleBlock(4, 0.5), PRUNED]
    for name, engine in (("vllm", vllm), ("plain", plain)):
        prove(tmp_path, name, engine, model, prompts(model)[0], edits)
    proofs = Proofs.of(tmp_path).models
    for edit, proof in proofs["vllm"].items():
        assert proof.state == "acts"
        assert proof.decoded == pytest.approx(proofs["plain"][edit].decoded, abs=1e-3)


def test_an_answer_is_what_the_network_says_alone(model, vllm):
    edits = [BASELINE, ScaleBlock(0), ScaleBlock(3, 0.5), Truncate("2.mlp.up", 0.1)]
    told = answers(vllm, generations(prompts(model)[:2], edits))
    for index, text in enumerate(prompts(model)[:2]):
        for edit in edits:
            assert told[f"{index} {edit} {Decoding(12)}"].token_ids == greedy(model, text, edit, 12)


def test_edits_of_weights_and_what_is_left_after_them(model, vllm, plain):
    before = answers(vllm, generations(prompts(model), [BASELINE, ScaleBlock(2)]))
    weights = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    asked = generations(prompts(model), IN_WEIGHTS)
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    unedited = [before[f"{index} {BASELINE} {Decoding(12)}"].token_ids for index in range(5)]
    said = [[told[f"{index} {edit} {Decoding(12)}"].token_ids for index in range(5)] for edit in IN_WEIGHTS]
    assert sum(one != unedited for one in said) >= 6
    assert_same(answers(vllm, generations(prompts(model), [BASELINE, ScaleBlock(2)])), before, within=0)
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_weights_are_restored_when_answers_are_given_up(model, vllm):
    before = answers(vllm, generations(prompts(model), [BASELINE]))
    half = vllm.answer(generations(prompts(model), [PRUNED], Decoding(40)))
    next(half)
    half.close()
    assert_same(answers(vllm, generations(prompts(model), [BASELINE])), before, within=0)


def test_choices_and_tokens(model, vllm, plain):
    edits = [*places(model)[:4], PRUNED, Truncate("2.mlp.up", 0.1)]
    asked = [
        request
        for index, text in enumerate(prompts(model))
        for edit in edits
        for request in (
            Request(f"choices {index} {edit}", text, edit, choices=CHOICES),
            Request(f"greedy {index} {edit}", text, edit, choices=(greedy(model, text, BASELINE, 3), (9,))),
            Request(f"tokens {index} {edit}", text, edit, tokens=(5, 61, 5)),
        )
    ]
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    assert told[f"greedy 0 {BASELINE}"].answer.greedy == (True, False)


def test_stop_strings_cut_as_elsewhere(model, vllm, plain):
    for stop in (("\n",), (" has", "ns"), ("2", "Answer"), ("#### ",)):
        asked = generations(prompts(model), places(model)[:3], Decoding(40, stop=stop))
        told = answers(vllm, asked)
        assert_same(told, answers(plain, asked))
        assert {response.answer.finish for response in told.values()} >= {"stop"}


def test_loops_end_at_the_same_token_and_their_steps_are_saved(model, vllm, plain):
    told = {}
    for times in (0, 2, 6):
        for decoding in (Decoding(90, stop_loops=times), Decoding(70, (" has",), 0.3, seed=1, stop_loops=times)):
            asked = generations(prompts(model), places(model)[:4], decoding)
            told[times, decoding.temperature] = answers(vllm, asked)
            assert_same(told[times, decoding.temperature], answers(plain, asked))
    endings = [{one.answer.finish for one in told[times, 0.0].values()} for times in (0, 2, 6)]
    assert ["loop" in one for one in endings] == [False, True, True]
    spent = [sum(one.answer.tokens for one in told[times, 0.0].values()) for times in (0, 6, 2)]
    assert spent == sorted(spent, reverse=True)


def test_traces_are_closed_at_the_same_token(model, vllm, plain):
    tag = tuple(model.tokenizer.encode("<think>\n", add_special_tokens=False))
    opened = [(*prompt, *tag) for prompt in prompts(model)]
    for decoding in (
        Decoding(60, thinking_tokens=20),
        Decoding(60, ("\n",), thinking_tokens=20, stop_loops=3),
        Decoding(50, temperature=0.7, seed=1, thinking_tokens=20),
    ):
        asked = generations(opened, places(model)[:4], decoding)
        told = answers(vllm, asked)
        assert_same(told, answers(plain, asked))
        assert any("</think>" in response.answer.text for response in told.values())


def test_what_is_ended_for_its_loop_leaves_vllm_at_once(model, vllm, monkeypatch):
    silent = Compose(tuple(ScaleBlock(block.index) for block in model.anatomy.blocks))
    steps = []
    step = vllm._running.engine.step
    monkeypatch.setattr(vllm._running.engine, "step", lambda: (steps.append(1), step())[1])
    for times in (0, 2):
        steps.clear()
        (told,) = vllm.answer([Request("it", prompts(model)[0], silent, Decoding(200, stop_loops=times))])
        assert told.answer.tokens <= len(steps) <= told.answer.tokens + 2
        assert told.answer.finish == ("loop" if times else "length")


def test_samples_draw_with_the_same_noise(model, vllm, plain):
    decodings = Decoding(10, temperature=0.9, top_p=0.8, seed=5), Decoding(10, temperature=1.3, seed=6)
    asked = [request for decoding in decodings for request in generations(prompts(model), places(model)[:3], decoding)]
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    for decoding in decodings:
        alone = drawn(model, prompts(model)[0], ScaleBlock(0), decoding)
        assert told[f"0 {ScaleBlock(0)} {decoding}"].token_ids == alone


def test_the_end_of_the_context(model, vllm, plain):
    context = model.context
    silent = Compose(tuple(ScaleBlock(block.index) for block in model.anatomy.blocks))
    full = tuple(7 * index % 2000 + 8 for index in range(context))
    asked = [
        Request("choices", full[: context - 1], choices=((5,), (6, 7))),
        Request("tokens", full, ScaleBlock(1), tokens=(5,)),
        Request("text", full[: context - 3], silent, Decoding(20)),
        Request("sampled", full[: context - 3], silent, Decoding(20, temperature=1.0)),
        Request("full", full, silent, Decoding(20)),
    ]
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    # The last token of an answer needs no position.
    for key, count in (("text", 4), ("sampled", 4), ("full", 1)):
        assert (told[key].answer.tokens, told[key].answer.finish) == (count, "length")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request("long", (7,) * 600), LesionError),
        (Request("empty", ()), LesionError),
        (Request("choice", (7,), choices=((5,), ())), LesionError),
        (Request("unknown", (70000,)), LesionError),
        (Request("block", (7,), ScaleBlock(99)), UsageError),
        (Request("head", (7,), ScaleHead(1, 99)), UsageError),
        (Request("expert", (7,), ScaleExpert(1, 0)), UsageError),
        (Request("matrix", (7,), Truncate("0.mlp.middle", 0.5)), UsageError),
    ],
    ids=lambda value: value.key if isinstance(value, Request) else None,
)
def test_what_cannot_be_answered_is_refused_in_the_same_words(vllm, plain, request_, error):
    with pytest.raises(error) as expected:
        list(plain.answer([request_]))
    with pytest.raises(error) as told:
        list(vllm.answer([request_]))
    assert str(told.value) == str(expected.value)


def test_broken_numbers_end_an_answer(model, vllm, plain):
    # A factor so large that the stream overflows.
    burst = ScaleBlock(0, 1e39)
    asked = [
        *generations(prompts(model)[:2], [burst, BASELINE]),
        *generations(prompts(model)[:2], [burst], Decoding(5, temperature=0.5)),
        Request("choices", prompts(model)[0], burst, choices=CHOICES),
        Request("tokens", prompts(model)[0], burst, tokens=(5, 61)),
    ]
    told = answers(vllm, asked)
    assert_same(told, answers(plain, asked))
    assert told[f"0 {burst} {Decoding(12)}"].answer.finish == "nonfinite"
    assert told["choices"].answer.finish == told["tokens"].answer.finish == "nonfinite"


def test_one_iterator_at_a_time(model, vllm):
    first = vllm.answer(generations(prompts(model), [BASELINE]))
    next(first)
    with pytest.raises(LesionError, match="at work on other requests"):
        next(vllm.answer(generations(prompts(model), [BASELINE])))
    first.close()
    assert len(answers(vllm, generations(prompts(model), [BASELINE]))) == 5


def test_every_answer_names_its_engine(model, vllm):
    import vllm as library

    (told,) = vllm.answer([Request("one", prompts(model)[0], decoding=Decoding(1))])
    assert told.engine == f"vllm {library.__version__}, float32, CPU_ATTN, cpu"
