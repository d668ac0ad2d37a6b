"""What a model says to one prompt alone under one edit: no batch, no padding, no gates of other rows, no cache."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
import transformers as hf
from torch import Tensor
from transformers import DynamicCache

import tiny
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request, Response, Work
from lesion.engines.sampling import TIE, noise_key
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.prefill import Prefilled
from lesion.models.load import Model, wrap

EDITS: tuple[Edit, ...] = (
    BASELINE, ScaleBlock(0), ScaleBlock(1), ScaleBlock(2, 0.5), ScaleAttention(1), ScaleMlp(2, 1.1),
    Compose((ScaleMlp(0, 0.3), ScaleAttention(2))),
)  # fmt: skip


SLIDING = (hf.MistralForCausalLM, hf.Phi3ForCausalLM, hf.Qwen2ForCausalLM)


def sliding(network: type[hf.PreTrainedModel]) -> Model:
    """A tiny network whose rows see five tokens."""
    settings = {**tiny._GATED, "sliding_window": 5}
    if network is hf.Qwen2ForCausalLM:
        settings |= {"use_sliding_window": True, "max_window_layers": 1}
    return wrap(tiny._scaled_up(network(network.config_class(**settings))), tiny.tokenizer(), "tiny:sliding")


def prompts(count: int, longest: int = 12, seed: int = 0, shortest: int = 1) -> list[tuple[int, ...]]:
    """Random prompts of random lengths, of tokens that every tiny model knows and that end no text."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(5, 60) for _ in range(rng.randint(shortest, longest))) for _ in range(count)]


def forward(model: Model, tokens: Sequence[int], edit: Edit = BASELINE) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits [length, vocabulary], and keys and values [heads, length, size] per layer, of one plain pass."""
    with applied(model, edit):
        return _forward(model, tokens)


def _forward(model: Model, tokens: Sequence[int]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    cache = DynamicCache()  # without the configuration, also sliding layers keep every key
    with torch.inference_mode():
        output = model.network(torch.tensor([list(tokens)]), past_key_values=cache, use_cache=True)
    return output.logits[0], [layer.keys[0] for layer in cache.layers], [layer.values[0] for layer in cache.layers]


def ends(model: Model) -> set[int]:
    """The tokens that end an answer."""
    return {model.network.generation_config.eos_token_id, model.tokenizer.eos_token_id}


def greedy(model: Model, prompt: Sequence[int], edit: Edit, limit: int, guess: Sequence[int] = ()) -> tuple[int, ...]:
    """Greedy decoding without a cache: the whole sequence anew at each step, or where the guess is wrong.

    A guess changes no token. As far as it is right, one pass over it has the logits of every step: those behind a token
    depend on no later one.
    """
    with applied(model, edit):
        return _greedy(model, prompt, limit, guess)


def _greedy(model: Model, prompt: Sequence[int], limit: int, guess: Sequence[int]) -> tuple[int, ...]:
    said: list[int] = []
    with torch.inference_mode():
        while len(said) < limit and not (said and said[-1] in ends(model)):
            ahead = list(guess[len(said) :])
            logits = model.network(input_ids=torch.tensor([[*prompt, *said, *ahead[:-1]]]), use_cache=False).logits
            begin = len(prompt) + len(said) - 1
            said += as_guessed(map(int, logits[0, begin:].argmax(-1)), ahead, ends(model))[: limit - len(said)]
            guess = guess if list(guess[: len(said)]) == said else ()
    return tuple(said)


def generated(model: Model, prompt: Sequence[int], edit: Edit, limit: int) -> tuple[int, ...]:
    """What transformers' own `generate` says to one prompt on the edited model."""
    ids = torch.tensor([list(prompt)])
    settings = {"max_new_tokens": limit, "do_sample": False, "pad_token_id": 0}
    with applied(model, edit), torch.inference_mode():
        said = model.network.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return tuple(said[0, len(prompt) :].tolist())


def as_guessed(chosen: Iterable[int], guess: Sequence[int], last: set[int]) -> list[int]:
    """The tokens chosen one after another, up to the first that was not guessed or ends the answer, and with it."""
    kept: list[int] = []
    for place, token in enumerate(chosen):
        kept.append(token)
        if token in last or place >= len(guess) or token != guess[place]:
            break
    return kept


def nucleus(logits: np.ndarray, temperature: float, top_p: float) -> dict[int, float]:
    """The tokens of the nucleus, most likely first, with their probability in it; token by token, in float64.

    The smallest set of most likely tokens that reaches `top_p`, with all that are as likely as its last one.
    """
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    inside: dict[int, float] = {}
    for token in sorted(range(len(logits)), key=lambda token: (-probabilities[token], token)):
        if sum(p for other, p in inside.items() if logits[other] > logits[token] + TIE) >= top_p:
            break
        inside[token] = probabilities[token]
    whole = sum(inside.values())
    return {token: probability / whole for token, probability in inside.items()}


def split_mix(state: int, count: int) -> int:
    """The last of the first `count` numbers of SplitMix64 (Steele, Lea and Flood 2014) from this state."""
    word = (1 << 64) - 1
    number = (state + count * 0x9E3779B97F4A7C15) & word
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & word
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & word
    return number ^ (number >> 31)


def noise(key: int, position: int, token: int) -> float:
    """The Gumbel noise of one token, from Python's whole numbers."""
    uniform = ((split_mix(split_mix(key, position + 1), token + 1) >> 12) + 0.5) / 2**52
    return -math.log(-math.log(uniform))


def drawn(
    model: Model, prompt: Sequence[int], edit: Edit, decoding: Decoding, guess: Sequence[int] = ()
) -> tuple[int, ...]:
    """Sampled decoding with the noise of the prompt; a guess saves passes as in `greedy`, and changes no token."""
    with applied(model, edit):
        return _drawn(model, prompt, decoding, guess)


def _drawn(model: Model, prompt: Sequence[int], decoding: Decoding, guess: Sequence[int]) -> tuple[int, ...]:
    said: list[int] = []
    key = noise_key(decoding.seed, prompt)

    def choose(logits: np.ndarray, place: int) -> int:
        inside = nucleus(logits, decoding.temperature, decoding.top_p)
        return max(inside, key=lambda token: math.log(inside[token]) + noise(key, place, token))

    while len(said) < decoding.max_new_tokens and not (said and said[-1] in ends(model)):
        ahead = list(guess[len(said) :])
        with torch.inference_mode():
            logits = model.network(torch.tensor([[*prompt, *said, *ahead[:-1]]]), use_cache=False).logits[0]
        rows = logits[len(prompt) + len(said) - 1 :].numpy()
        steps = (choose(row, place) for place, row in enumerate(rows, len(said)))
        said += as_guessed(steps, ahead, ends(model))[: decoding.max_new_tokens - len(said)]
        guess = guess if list(guess[: len(said)]) == said else ()
    return tuple(said)


def assert_alone(model: Model, requests: Sequence[Request], found: Mapping[str, Response]) -> None:
    """Every request has the answer that the model gives to it alone."""
    for edit, own in _by_edit(requests).items():
        with applied(model, edit):
            for request in own:
                said, how = found[request.key].token_ids, request.decoding
                if how.temperature:
                    assert said == _drawn(model, request.prompt, how, said), request.key
                else:
                    assert said == _greedy(model, request.prompt, how.max_new_tokens, said), request.key


def _by_edit(requests: Iterable[Request]) -> dict[Edit, list[Request]]:
    together: dict[Edit, list[Request]] = {}
    for request in requests:
        together.setdefault(request.edit, []).append(request)
    return together


def questions(
    texts: Iterable[tuple[int, ...]], edits: Sequence[Edit] = EDITS, limit: int = 10, **kind
) -> list[Request]:
    """Every prompt under every edit."""
    kind = {"decoding": Decoding(limit), **kind}
    return [Request(f"{item} under {edit}", text, edit, **kind) for item, text in enumerate(texts) for edit in edits]


def answered(model: Model, requests: Iterable[Request], batch_size: int = 8) -> tuple[dict[str, Response], Work]:
    """The responses by key, one for every request, and the work that the engine counted."""
    engine, requests = TransformersEngine(model, batch_size), list(requests)
    responses = list(engine.answer(requests))
    assert sorted(response.key for response in responses) == sorted(request.key for request in requests)
    return {response.key: response for response in responses}, engine.work


def log_probability(model: Model, prompt: Sequence[int], choice: Sequence[int], edit: Edit = BASELINE) -> float:
    """Of a choice behind a prompt: the sum in float64, token after token, from one plain pass over both."""
    with applied(model, edit):
        return _log_probability(model, prompt, choice)


def _log_probability(model: Model, prompt: Sequence[int], choice: Sequence[int]) -> float:
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([[*prompt, *choice]]), use_cache=False).logits[0].double()
    before = logits[len(prompt) - 1 : -1]
    return sum(float(row[token]) - float(row.logsumexp(0)) for row, token in zip(before, choice, strict=True))


def assert_scored_alone(model: Model, requests: Sequence[Request], found: Mapping[str, Response]) -> None:
    """Every choice of every request has the log-probability that it has alone."""
    for edit, own in _by_edit(requests).items():
        with applied(model, edit):
            for request in own:
                expected = [_log_probability(model, request.prompt, choice) for choice in request.choices]
                scores = found[request.key].answer.scores
                assert len(scores) == len(expected), request.key
                assert np.allclose(scores, expected, rtol=0, atol=2e-4), request.key


def assert_close(one: Tensor, other: Tensor, about: object) -> None:
    if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-4, atol=1e-4):  # much sooner said
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=lambda text: f"{about}: {text}")


def assert_each_row_is_as_alone(model: Model, found: Prefilled, texts, edits) -> None:
    """Logits, keys, values and mask of every row of a prefill against one plain pass of its own."""
    width = found.mask.shape[1]
    assert width == max(map(len, texts))
    rows = [*zip(texts, edits, strict=True)]
    alone = {}
    for edit in dict.fromkeys(edits):
        with applied(model, edit):
            alone |= {(text, edit): _forward(model, text) for text in dict.fromkeys(texts) if (text, edit) in rows}
    for row, (text, edit) in enumerate(rows):
        logits, keys, values = alone[text, edit]
        kept = min(found.logits.shape[1], len(text))
        about = f"row {row}, {len(text)} tokens under {edit}"
        assert_close(found.logits[row, -kept:], logits[-kept:], about)
        assert found.mask[row].tolist() == [False] * (width - len(text)) + [True] * len(text)
        for (layer, source), own_keys, own_values in zip(found.kept, keys, values, strict=True):
            stored = int(source[row])
            assert_close(layer.keys[stored][:, width - len(text) :], own_keys, about)
            assert_close(layer.values[stored][:, width - len(text) :], own_values, about)
