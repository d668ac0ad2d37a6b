"""MathNeuro on real weights and real texts equals a brute force in numpy float64, entry for entry.

The brute force sees every input by hooks of its own, scores every weight by |W_ij| · Σ_i ‖X_i[:, j]‖₂ and sorts all
scores. Vectors are rounded to float32 once, as documented; nothing else is rounded.
"""

import csv
import json
from decimal import Decimal

import numpy as np
import pytest
import torch

from lesion.activations.calibration import calibration
from lesion.activations.observation import observe
from lesion.edits.selections.topk import MathNeuro
from lesion.models.load import load
from lesion.tasks.catalogue import find

KEEPS = (1e-4, 0.005, 0.025, 0.15)
BATCH_TOKENS = 2048

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tasks(shared, tmp_path_factory):
    file = tmp_path_factory.mktemp("mmlu") / "mmlu.jsonl"
    lines = []
    for source in sorted((shared / "data/mmlu").glob("*_test.csv"))[:3]:
        rows = csv.reader(source.read_text(encoding="utf-8").splitlines())
        for number, (question, *options, letter) in enumerate(rows):
            lettered = "".join(f"\n{name}. {option}" for name, option in zip("ABCD", options, strict=True))
            item = {"id": f"{source.stem}{number}", "prompt": f"{question}{lettered}\nAnswer: ", "answer": letter}
            lines.append(json.dumps(item))
    file.write_text("\n".join(lines), encoding="utf-8")
    return find(f"gsm8k:{shared}/data/gsm8k/train-first1500.jsonl"), find(f"jsonl:{file}")


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(shared, request):
    return load(str(shared / "models/stories260K"), dtype=request.param)


def in_batches(texts, tokens):
    """The longest first, as many rows as fit; written anew, since batches are part of what is compared."""
    rest = sorted(enumerate(texts), key=lambda pair: (-len(pair[1]), pair[0]))
    while rest:
        rows = max(1, tokens // len(rest[0][1]))
        yield rest[:rows]
        rest = rest[rows:]


def norms_per_text(model, texts, batch_tokens):
    """address → {place of a text: ‖X_i[:, j]‖₂ for every j, float64}, from hooks on every linear map."""
    modules = {
        address: model.network.get_submodule(matrix.parameter.removesuffix(".weight"))
        for address, matrix in model.anatomy.matrices.items()
    }
    seen, found = {}, {address: {} for address in modules}

    def hook(address):
        return lambda module, args: seen.__setitem__(address, args[0].float().numpy().astype(np.float64))

    handles = [module.register_forward_pre_hook(hook(address)) for address, module in modules.items()]
    try:
        for batch in in_batches(texts, batch_tokens):
            width = len(batch[0][1])
            ids = torch.zeros(len(batch), width, dtype=torch.long)
            mask = torch.zeros(len(batch), width, dtype=torch.long)
            for row, (_, text) in enumerate(batch):
                ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
            with torch.no_grad():
                model.network(input_ids=ids, attention_mask=mask, use_cache=False)
            for address, x in seen.items():
                for row, (place, text) in enumerate(batch):
                    found[address][place] = np.sqrt((x[row, : len(text)] ** 2).sum(axis=0))
    finally:
        for handle in handles:
            handle.remove()
    return found


def weights_of(model):
    return {a: m.read().float().numpy().astype(np.float64) for a, m in model.anatomy.matrices.items()}


def vector_of(norms, draw):
    return sum(norms[place] for place in draw.places).astype(np.float32)


def cut_of(scores, keep):
    count = max(1, int(Decimal(str(keep)) * scores.size))
    return np.sort(scores, axis=None)[::-1][count - 1]


@pytest.mark.parametrize("samples", [1, 16])
def test_vectors_and_masks_equal_the_brute_force_entry_for_entry(model, tasks, samples):
    draws = [calibration(model, task, samples) for task in tasks]
    skill, control = (observe(model, texts, batch_tokens=BATCH_TOKENS)[0] for texts in draws)
    brute = [norms_per_text(model, texts.texts, BATCH_TOKENS) for texts in draws]
    assert all(len(set(map(len, texts.texts))) > 10 for texts in draws) or samples == 1  # padding is at work
    assert set(skill.readers) == set(model.anatomy.scored)
    selections = [MathNeuro(skill, (control,), keep).fixed(model) for keep in KEEPS]
    selected = 0
    for address, weight in weights_of(model).items():
        vectors = [vector_of(norms[address], texts.draws[0]) for norms, texts in zip(brute, draws, strict=True)]
        for inputs, vector in zip((skill, control), vectors, strict=True):
            np.testing.assert_array_equal(inputs.of(address).norms.numpy(), vector)
        scores = [np.abs(weight) * vector.astype(np.float64) for vector in vectors]
        for keep, selection in zip(KEEPS, selections, strict=True):
            top = [(s >= cut_of(s, keep)) & (s > 0) for s in scores]
            mask = selection.mask(address, model.anatomy.matrix(address).read()).numpy()
            np.testing.assert_array_equal(mask, top[0] & ~top[1])
            selected += mask.sum()
    assert selected > 0


def test_other_batches_move_only_entries_at_the_threshold(model, tasks):
    draws = [calibration(model, task, 10) for task in tasks]
    skill, control = (observe(model, texts, batch_tokens=BATCH_TOKENS)[0] for texts in draws)
    brute = [norms_per_text(model, texts.texts, 1) for texts in draws]
    # What the forward pass rounds, in another order in every batch.
    noise = 1e-5 if model.dtype == torch.float32 else 1e-2
    different = total = 0
    for address, weight in weights_of(model).items():
        scores = [
            np.abs(weight) * vector_of(norms[address], texts.draws[0]).astype(np.float64)
            for norms, texts in zip(brute, draws, strict=True)
        ]
        for keep in KEEPS:
            cuts = [cut_of(s, keep) for s in scores]
            expected = (scores[0] >= cuts[0]) & ~(scores[1] >= cuts[1]) & (scores[0] > 0)
            mask = MathNeuro(skill, (control,), keep).mask(address, model.anatomy.matrix(address).read()).numpy()
            near = [np.abs(s - c) <= noise * c for s, c in zip(scores, cuts, strict=True)]
            moved = mask != expected
            assert not (moved & ~(near[0] | near[1])).any(), address
            different, total = different + moved.sum(), total + expected.sum()
    assert different <= 0.01 * total
