"""What tests of layout searches share: plain greedy decoding, a layout made by hand, questions with a network's own
answers as gold.
"""

import copy
from collections.abc import Sequence
from itertools import count, islice

import torch
from torch import nn

from commandline import write
from lesion.studies.search.study import SearchStudy
from tiny import tokenizer

LIMIT = 3


def greedy(network, prompts: Sequence[str], limit: int = LIMIT) -> list[str]:
    """What plain transformers says to each prompt, up to the end of the line, where an answer ends; prompts of one
    length at once, so that none is padded.
    """
    spell = tokenizer()
    told = {}
    for length in dict.fromkeys(map(len, prompts)):
        alike = list(dict.fromkeys(text for text in prompts if len(text) == length))
        ids = spell(alike, return_tensors="pt").input_ids
        said = network.generate(ids, max_new_tokens=limit, do_sample=False, pad_token_id=0)[:, ids.shape[1] :]
        texts = (spell.decode(row, skip_special_tokens=True).partition("\n")[0] for row in said)
        told |= dict(zip(alike, texts, strict=True))
    return [told[text] for text in prompts]


def by_hand(network, order, factors=()):
    """A copy of a llama with copied blocks in this order; `factors`: of a place, what its last matrices are times."""
    network = copy.deepcopy(network)
    network.model.layers = nn.ModuleList(copy.deepcopy(network.model.layers[number]) for number in order)
    network.config.num_hidden_layers = len(order)
    for place, layer in enumerate(network.model.layers):
        layer.self_attn.layer_idx = place
    with torch.no_grad():
        for place, factor in dict(factors).items():
            network.model.layers[place].self_attn.o_proj.weight.mul_(factor)
            network.model.layers[place].mlp.down_proj.weight.mul_(factor)
    return network


def prompt(number: int) -> str:
    """The question of an item."""
    return f"what is {number} and {3 * number + 1}?"


def questions(file, network, wanted: int = 40):
    """A file of questions whose gold answers are those of a network, each beginning with a letter or digit."""
    told: dict[int, str] = {}
    for begin in count(0, 2 * wanted):
        if len(told) >= wanted:
            break
        numbers = range(begin, begin + 2 * wanted)
        answers = (said.strip() for said in greedy(network, [*map(prompt, numbers)]))
        told |= {number: said for number, said in zip(numbers, answers, strict=True) if said.isalnum()}
    rows = islice(told.items(), wanted)
    return write(file, ({"id": f"i{n}", "prompt": prompt(n), "answer": said} for n, said in rows))


def study(task, **values) -> SearchStudy:
    """A search of the tiny llama on a file."""
    given = {"model": "tiny:llama", "tasks": [str(task)], "items": "all", "decoding": {"max_new_tokens": LIMIT}}
    return SearchStudy.make(**{**given, **values})
