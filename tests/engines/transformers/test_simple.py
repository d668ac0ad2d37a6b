"""The simple way: what a network's own `generate` says to one prompt alone, under hooks or zeros of our own."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from replaced import some_reference
from transformers import AutoModelForCausalLM, GenerationConfig

import architectures_zoo as zoo
import tiny
from alone import assert_alone, prompts
from lesion.activations.hidden_states import hidden_states
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Edit, ScaleAttention, ScaleBlock, Truncate
from lesion.edits.replace import Replace
from lesion.engines.engine import Decoding, Request, Response
from lesion.engines.transformers.engine import TransformersEngine, refuse_simple, refuse_unloaded, way_of
from lesion.engines.transformers.growing import Growth
from lesion.engines.transformers.ways import Kind, Way
from lesion.errors import LesionError
from lesion.models.load import Model, wrap

# One of each way in which blocks keep something else than keys and values of their own.
TELLING = {
    "gemma3n_text": Kind.APART,  # keys that blocks share; streams stand before rows
    "deepseek_v32": Kind.SHARED,  # attention to indexed tokens
    "hy_v4": Kind.SHARED,  # blocks hand on which tokens they attended to
    "minimax": Kind.MIXED,  # linear attention, with a cache of its own class that does not copy rows
    "zaya": Kind.SHARED,  # blocks hand on what chose their experts
    "rwkv": Kind.ALONE,  # its own code mixes the rows of a batch
    "recurrent_gemma": Kind.MIXED,  # its modules hold the state
    "openai-gpt": Kind.SHARED,  # no cache
    "gpt_bigcode": Kind.SHARED,  # its rows cannot branch off
}
UNTOLD = ("gemma3n_text", "zaya", "minimax", "rwkv", "recurrent_gemma", "openai-gpt", "gpt_bigcode")
"""What only a pass shows."""
TEXTS = [*prompts(2, longest=13, shortest=13), *prompts(1, longest=4, shortest=4, seed=1)]
EDITS = (BASELINE, ScaleBlock(0), ScaleBlock(1, 0.5), ScaleBlock(3))
LIMIT = 5


def made(kind: str) -> Model:
    return wrap(zoo.made(kind), tiny.tokenizer(), kind)


kept = cache(made)
"""A model of the kind for all tests that leave it as it is, so that its way is tried once."""


@pytest.fixture(scope="module", params=TELLING)
def model(request) -> Model:
    return kept(request.param)


@contextmanager
def scaled(model: Model, edit: Edit) -> Iterator[None]:
    """One block's contribution multiplied by a hook."""
    if edit == BASELINE:
        yield
        return

    def scale(module, args, kwargs, output):
        stream = args[0] if args else kwargs["hidden_states"]
        whole = output if isinstance(output, torch.Tensor) else output[0]
        changed = stream + edit.factor * (whole - stream) if edit.factor else stream
        return changed if whole is output else type(output)((changed, *output[1:]))

    handle = model.anatomy.blocks[edit.layer].module.register_forward_hook(scale, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def zeroed(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """Weights that are zero inside the block and what they were behind it."""
    before = [(parameter, parameter.clone()) for parameter in parameters]
    assert before
    try:
        for parameter, _ in before:
            parameter.zero_()
        yield
    finally:
        for parameter, values in before:
            parameter.copy_(values)


def greedy(network, prompt: Sequence[int], limit: int = LIMIT) -> tuple[int, ...]:
    """What plain greedy `generate` says to one prompt."""
    ids = torch.tensor([list(prompt)])
    settings = GenerationConfig(max_new_tokens=limit, eos_token_id=2, pad_token_id=0, do_sample=False)
    said = network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return tuple(said[0, len(prompt) :].tolist())


def answers(model: Model, requests: Sequence[Request], size: int | str = "auto") -> dict[str, Response]:
    responses = list(TransformersEngine(model, size).answer(requests))
    assert sorted(response.key for response in responses) == sorted(request.key for request in requests)
    return {response.key: response for response in responses}


def sweep(edits: Sequence[Edit] = EDITS) -> list[Request]:
    return [Request(f"{text} {edit}", text, edit, Decoding(LIMIT)) for text in TEXTS for edit in edits]


def test_a_sweep_says_what_plain_generate_says_to_each_prompt_alone(model):
    said = answers(model, requests := sweep())
    assert way_of(model).kind is TELLING[model.name]
    for request in requests:
        with scaled(model, request.edit):
            assert said[request.key].token_ids == greedy(model.network, request.prompt), request.key
    assert len({response.token_ids for response in said.values()}) > 3


@pytest.mark.parametrize("kind", ["mamba", "deepseek_v32", "gemma4_text", "llama4_text"])
def test_edits_of_all_blocks_in_one_batch_say_what_weights_changed_by_hand_say(kind):
    """Blocks that lend keys go on lending them, so only what ends in the stream is zeroed."""
    model, ends = kept(kind), ("o_proj", "down_proj", "out_proj", "output_linear", "per_layer_projection", ".w2")
    blocks = range(len(model.anatomy.blocks))
    scored = [Request(f"{t} {b} c", t, ScaleBlock(b), choices=((7,), (8, 9))) for t in TEXTS for b in blocks]
    said = answers(model, [*(requests := sweep((BASELINE, *map(ScaleBlock, blocks)))), *scored])
    assert way_of(model).kind is (Kind.SHARED if kind == "deepseek_v32" else Kind.FAST)
    for request in requests:
        if request.edit == BASELINE:
            assert said[request.key].token_ids == greedy(model.network, request.prompt), request.key
    for block in model.anatomy.blocks:
        edit, named = ScaleBlock(block.index), block.module.named_parameters()
        with zeroed(parameter for name, parameter in named if any(end in name for end in ends)):
            for request in requests:
                if request.edit == edit:
                    assert said[request.key].token_ids == greedy(model.network, request.prompt), request.key
            for request in scored:
                if request.edit == edit:
                    assert said[request.key].answer.scores == pytest.approx(scores(model, request), abs=1e-4)


def scores(model: Model, request: Request) -> list[float]:
    """Log-probabilities of choices, each by a plain pass of its own."""
    summed = []
    for choice in request.choices or ((7,), (8,)):
        ids = torch.tensor([[*request.prompt, *choice[:-1]]])
        rows = model.network(input_ids=ids, use_cache=False).logits[0, -len(choice) :].double().log_softmax(-1)
        summed.append(float(rows[range(len(choice)), list(choice)].sum()))
    return summed


@pytest.mark.parametrize(("kind", "shares"), [("zaya", True), ("minimax", False)])
def test_blocks_below_an_edit_run_once_for_each_prompt(kind, shares):
    model = made(kind)
    way_of(model)
    came: list[int] = []
    for block in model.anatomy.blocks:
        block.module.register_forward_hook(
            lambda module, args, output: came.append(len(output if isinstance(output, torch.Tensor) else output[0]))
        )
    edits = (BASELINE, *(ScaleBlock(block, 0.5) for block in range(4)), ScaleBlock(2, 0.1))
    for choices in ((), ((7,), (8,))):
        came.clear()
        engine = TransformersEngine(model, 12)
        requests = [Request(f"{t} {e}", t, e, Decoding(2), choices) for t in TEXTS[:2] for e in edits]
        assert len(list(engine.answer(requests))) == 12
        assert came[:4] == ([4, 6, 10, 12] if shares else [12] * 4)
        assert engine.work.prompt == (13 * 8 if shares else 13 * 12)
        assert came[4:] == ([] if choices else [12] * 4)


@pytest.mark.parametrize("kind", ["gemma4_text", "bamba"])
def test_rows_of_one_prompt_share_it_under_any_edits_and_under_none(kind):
    """Without a baseline, an edit twice, parts of blocks, the head, a replacement: each row says what it says alone."""
    model = kept(kind)
    edits = ["2×0", "2×0", "3.attention×0.5", "3.mlp×0", "0.mlp.neuron.3×0", "1.attention.k×0.5"]
    edits += ["1.attention.head.1×0", Truncate("1.mlp.up", 0.5), Replace("1", "position", some_reference(model))]
    if model.anatomy.head is not None:
        edits.append(Truncate("head", 0.5))
    requests = [Request(f"{n}", TEXTS[0], edit, Decoding(LIMIT, temperature=0.7)) for n, edit in enumerate(edits)]
    unedited = [Request(f"{n}", TEXTS[0], BASELINE, Decoding(LIMIT, temperature=0.7, seed=n)) for n in range(3)]
    for some in (requests, unedited):
        together = answers(model, some)
        alone = [answers(model, [request])[request.key] for request in some]
        assert [together[request.key].token_ids for request in some] == [response.token_ids for response in alone]
        assert len({response.token_ids for response in alone}) > len(some) // 2


@pytest.mark.parametrize("kind", ["gemma4_text", "llama4_text", "zaya"])
@pytest.mark.parametrize("length", [4, 8])  # as many as heads, as rows
def test_what_has_as_many_entries_as_there_are_rows_is_not_taken_for_rows(kind, length):
    model = kept(kind)
    edits = (BASELINE, *(ScaleBlock(block % 4, 0.1 * block) for block in range(1, 8)))
    requests = [Request(str(e), TEXTS[0][:length], e, Decoding(LIMIT)) for e in edits[: max(length, 4)]]
    together = answers(model, requests)
    for request in requests:
        with scaled(model, request.edit):
            assert together[request.key].token_ids == greedy(model.network, request.prompt), request.key


@pytest.mark.parametrize("at", ["fill", "sources"])
def test_rows_that_would_start_from_another_prompt_are_seen_in_the_trial(at, monkeypatch):
    right = getattr(Growth, at)
    wrong = {
        "fill": lambda growth, value, rows: right(growth, value, rows).roll(1, 0),
        "sources": lambda growth, count: right(growth, count).clamp(max=0) if count < 4 else right(growth, count),
    }
    monkeypatch.setattr(Growth, at, wrong[at])
    assert way_of(made("zaya")).kind is Kind.MIXED


@pytest.mark.parametrize("kind", ["qwen3_next", "mamba2", "gemma4_text", "rwkv", "falcon_mamba"])
@torch.inference_mode()
def test_what_replaces_a_block_at_a_decoded_token_is_what_it_is_in_the_whole_text(kind):
    model = kept(kind)
    reference = some_reference(model, seed=1)
    edits = [Replace("1", "position", reference), Replace("0", "mean", reference), Replace("3", "position", reference)]
    said = answers(model, requests := sweep(edits))
    for request in requests:
        vectors = request.edit.vectors

        def put(module, args, kwargs, output, vectors=vectors):
            stream = args[0] if args else kwargs["hidden_states"]
            changed = stream + vectors[torch.arange(stream.shape[-2]).clamp(max=len(vectors) - 1)]
            return changed if isinstance(output, torch.Tensor) else type(output)((changed, *output[1:]))

        handle = model.anatomy.blocks[request.edit.layer].module.register_forward_hook(put, with_kwargs=True)
        text = list(request.prompt)
        for token in said[request.key].token_ids:
            logits = model.network(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
            assert token == int(logits.argmax()), request.key
            text.append(token)
        handle.remove()


@torch.inference_mode()
def test_what_replaces_a_block_of_reformer_is_what_it_is_in_the_whole_text():
    model = kept("reformer")
    reference = some_reference(model, seed=1, width=64)  # of two streams
    for kind in ("mean", "position"):
        requests = [Request("", TEXTS[0], Replace("1", kind, reference), Decoding(LIMIT))]
        assert_alone(model, requests, answers(model, requests))


@pytest.mark.parametrize(("kind", "count"), [("cpmant", 4), ("xlm", 1)])
def test_positions_in_a_network_that_adds_tokens_of_its_own_are_not_guessed(kind, count):
    model = kept(kind)
    edit = Replace("1", "position", some_reference(model))
    with pytest.raises(LesionError, match=f"adds {count} tokens? of its own"):
        answers(model, [Request("", TEXTS[0], edit, Decoding(LIMIT))])


@torch.inference_mode()
def test_a_position_that_a_state_does_not_tell_is_not_guessed():
    model = made("mamba2")
    state = model.network(torch.tensor([TEXTS[0]]), use_cache=True).cache_params
    with applied(model, Replace("1", "mean", some_reference(model))):
        model.network(torch.tensor([TEXTS[0]]), use_cache=False)
        with pytest.raises(LesionError, match="pass the whole text"):
            model.network(torch.tensor([[5]]), cache_params=state)


@pytest.mark.parametrize("kind", ["zaya", "recurrent_gemma"])
def test_after_a_sweep_the_model_says_what_it_said_before(kind):
    model = kept(kind)
    before, settings = [greedy(model.network, text) for text in TEXTS], model.network.generation_config
    weights = tiny.bits(model.network)
    answers(model, sweep())
    assert [greedy(model.network, text) for text in TEXTS] == before
    assert model.network.generation_config is settings
    assert tiny.same_bits(model.network, weights)


@torch.inference_mode()
def test_choices_and_looked_up_tokens_are_scored_as_in_a_pass_of_their_own(model):
    options = ((7,), (8, 9), (8, 10, 11))
    requests = [Request(f"{t} {e}", t, e, choices=options) for t in TEXTS for e in EDITS]
    requests += [Request(f"{t} {e} tokens", t, e, tokens=(7, 8)) for t in TEXTS for e in EDITS]
    scored = answers(model, requests)
    for request in requests:
        with scaled(model, request.edit):
            assert scored[request.key].answer.scores == pytest.approx(scores(model, request), abs=1e-4)


def test_hidden_states_of_texts_of_several_lengths_are_those_of_each_alone():
    """Where equal scores decide which tokens are attended to, padding would decide it."""
    model = kept("deepseek_v32")
    with hidden_states(model, TEXTS) as states:
        for place, text in enumerate(TEXTS):
            streams = model.network(torch.tensor([text]), use_cache=False, output_hidden_states=True).hidden_states
            for layer, stream in enumerate(streams[:-1]):  # the last has been through the norm
                own = torch.tensor(states.layer(layer, states.text_of == place))
                torch.testing.assert_close(own, stream[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "before"), [("gemma3n_text", True), ("deepseek_v4", False)])
def test_the_state_of_a_token_is_all_of_its_streams(kind, before):
    model = kept(kind)
    seen = []
    texts = [TEXTS[0][:4], TEXTS[1][:4], TEXTS[0][2:6], TEXTS[1][2:6]]  # as many texts as streams and tokens
    with hidden_states(model, texts) as states:
        handle = model.anatomy.blocks[2].module.register_forward_hook(lambda module, args, output: seen.append(output))
        for text in texts:
            model.network(torch.tensor([text]), use_cache=False)
        handle.remove()
        expected = [(stream[:, 0].transpose(0, 1) if before else stream[0]).flatten(1) for stream in seen]
        assert states.width == 4 * 32
        torch.testing.assert_close(torch.tensor(states.layer(3)), torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["zaya", "rwkv", "openai-gpt"])
def test_drawn_tokens_are_those_of_the_items_own_noise(kind):
    model = kept(kind)
    decoding = Decoding(LIMIT, temperature=1.3, seed=5)
    requests = [Request(str(text), text, ScaleBlock(1), decoding) for text in TEXTS]
    assert_alone(model, requests, answers(model, requests))


def test_an_answer_ends_with_the_context():
    model = made("zaya")
    context = model.network.config.max_position_embeddings = 20
    said = answers(model, [Request("k", TEXTS[0], BASELINE, Decoding(50))])["k"]
    assert said.token_ids == greedy(model.network, TEXTS[0], context + 1 - len(TEXTS[0]))


def test_settings_of_generation_that_came_with_a_network_change_nothing():
    model = made("zaya")
    plain = {key: response.token_ids for key, response in answers(model, sweep()).items()}
    settings = model.network.generation_config
    settings.repetition_penalty, settings.do_sample, settings.suppress_tokens = 5.0, True, [7, 8, 9]
    assert {key: response.token_ids for key, response in answers(model, sweep()).items()} == plain


def test_rows_that_do_not_fit_are_halved_and_say_the_same():
    model = made("zaya")
    requests = sweep()
    whole = {key: response.token_ids for key, response in answers(model, requests).items()}

    def full(module, args, kwargs):
        if kwargs["input_ids"].shape[0] > 3 and kwargs["input_ids"].shape[1] == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.network.register_forward_pre_hook(full, with_kwargs=True)
    engine = TransformersEngine(model, 12)
    assert {response.key: response.token_ids for response in engine.answer(requests)} == whole
    assert engine.work.batch_size == 3


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.FAST])
def test_every_simple_way_says_what_the_fast_one_says(kind, monkeypatch):
    model = tiny.model("llama")
    requests = sweep((BASELINE, ScaleBlock(0), ScaleAttention(1, 0.5)))
    fast = {key: response.token_ids for key, response in answers(model, requests).items()}
    monkeypatch.setattr("lesion.engines.transformers.engine.way_of", lambda model: Way(kind))
    assert {key: response.token_ids for key, response in answers(model, requests, 8).items()} == fast


def test_a_network_of_keys_and_values_goes_the_fast_way():
    assert all(way_of(tiny.model(family)).fast for family in ("llama", "gemma3", "unknown"))


def test_a_network_that_counts_tokens_by_attention_that_it_lacks_answers_without_a_cache():
    config = zoo.config_of("nemotron_h")
    config.layers_block_type = ["linear_attention", "moe", "linear_attention", "mlp"]
    model = wrap(AutoModelForCausalLM.from_config(config).eval(), tiny.tokenizer(), "states")
    assert_alone(model, requests := sweep(), answers(model, requests))
    assert way_of(model).kind is Kind.PLAIN


def test_studies_that_need_shared_prompts_refuse_the_others():
    with pytest.raises(LesionError, match=r"zaya answers in the simple way, since the fast way failed a trial"):
        refuse_simple(made("zaya"), "patching")


@pytest.mark.parametrize("kind", [kind for kind in TELLING if kind not in UNTOLD])
def test_such_studies_refuse_by_the_configuration_alone(kind):
    with pytest.raises(LesionError, match=f"{kind} answers in the simple way, since .*; effects needs the fast way"):
        refuse_unloaded(zoo.config_of(kind), kind, "effects")


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_no_configuration_of_keys_and_values_is_refused(family):
    refuse_unloaded(tiny.tiny(family).config, family, "effects")
