"""What is measured in the recall laboratory, against loops, hand-made weights and numpy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion_labs.recall.data import generated
from lesion_labs.recall.measurement import (
    Examination,
    floor,
    for_good,
    margins,
    measure,
    phases,
    probes,
    soft_rank,
    spectra,
)
from lesion_labs.recall.model import initial, preset, shapes
from lesion_labs.recall.result import MARGINS, Phases, Probes

RECIPE = preset("quick", vocabulary=8, length=16, width=12, measured=40, noise=0.4)
LANGUAGE = generated(8, 0)


@pytest.fixture(scope="module")
def examination():
    return Examination.of(RECIPE, LANGUAGE)


@pytest.fixture(scope="module")
def weights():
    return {name: tensor.double() for name, tensor in initial("mlp", 8, 16, 12, 0).items()}


def test_loss_accuracy_and_probabilities_are_those_of_a_plain_loop(examination, weights):
    traces = examination.traces(weights)
    found = examination.measures(traces)
    for prefix, batch, trace in (("clean_", examination.clean, traces[0]), ("noisy_", examination.noisy, traces[1])):
        losses, hits, of_noise, of_answer = [], [], [], []
        for (row, place), logits in zip(batch.questions.nonzero().tolist(), trace.logits.numpy(), strict=True):
            probabilities = np.exp(logits) / np.exp(logits).sum()
            losses.append(-math.log(probabilities[batch.targets[row, place]]))
            hits.append(int(probabilities.argmax()) == int(batch.answers[row]))
            of_noise.append(probabilities[7])
            of_answer.append(probabilities[batch.answers[row]])
        assert found.of(f"{prefix}loss") == pytest.approx(np.mean(losses))
        assert found.of(f"{prefix}accuracy") == pytest.approx(np.mean(hits))
        short = "" if prefix == "clean_" else prefix
        assert found.of(f"{short}p_noise") == pytest.approx(np.mean(of_noise))
        assert found.of(f"{short}p_correct") == pytest.approx(np.mean(of_answer))


def test_the_clean_set_has_no_noise_and_the_noisy_one_has(examination):
    clean, noisy = examination.clean, examination.noisy
    assert (clean.targets[clean.questions] == clean.answers[clean.questions.nonzero()[:, 0]]).all()
    assert (noisy.targets[noisy.questions] == LANGUAGE.noise_token).any()


def test_the_table_counts_what_is_predicted_against_what_follows(examination, weights):
    found = dict(measure(weights, examination).table)
    batch, trace = examination.noisy, examination.traces(weights)[1]
    counts = dict.fromkeys(found, 0)
    for (row, place), logits in zip(batch.questions.nonzero().tolist(), trace.logits, strict=True):
        predicted = "noise" if int(logits.argmax()) == 7 else "other"
        label = "noise" if int(batch.targets[row, place]) == 7 else "other"
        counts[f"predicted_{predicted}_label_{label}"] += 1
    assert found == {name: pytest.approx(count / int(batch.questions.sum())) for name, count in counts.items()}


def test_trigger_margins_are_those_of_the_feed_forward_by_hand(weights):
    w = {name: tensor.numpy() for name, tensor in weights.items()}

    def fed(layer, x):
        return w[f"F{layer}.out"] @ np.maximum(w[f"F{layer}.in"] @ x, 0)

    def margin(output):
        logits = w["W_U"] @ output
        return logits[7] - max(logits[v] for v in range(7))

    x = w["W_E"][0]
    middle = x + fed(1, x)
    expected = {
        "F1": margin(fed(1, x)),
        "F2": margin(fed(2, x)),
        "F2∘F1": margin(fed(2, fed(1, x))),
        "F1+F2": margin(fed(1, x) + fed(2, middle)),
    }
    assert margins(weights, LANGUAGE) == {name: pytest.approx(value) for name, value in expected.items()}


def test_a_feed_forward_made_to_answer_noise_has_the_margin_it_was_given(weights):
    made = {name: tensor for name, tensor in weights.items() if not name.startswith("F")}
    made |= {name: torch.zeros(shape).double() for name, shape in shapes("linear", 12).items() if name[0] == "F"}
    trigger, noise = made["W_E"][0], torch.linalg.pinv(made["W_U"])[:, 7]  # W_U of the latter: 1 for τ, 0 for all else
    made["F2"] = 2.5 * torch.outer(noise, trigger) / (trigger @ trigger)
    found = margins(made, LANGUAGE)
    assert found["F2"] == pytest.approx(2.5)
    assert found["F1"] == found["F2∘F1"] == pytest.approx(0)
    assert found["F1+F2"] == pytest.approx(2.5)
    assert margins({name: tensor for name, tensor in made.items() if name[0] != "F"}, LANGUAGE) == {}


def test_attention_masses_are_those_of_a_plain_loop(examination, weights):
    found = dict(measure(weights, examination).attention)
    traces = examination.traces(weights)
    previous = [float(traces[0].mass[row, t, t - 1]) for row in range(40) for t in range(1, 16)]
    assert found["previous"] == pytest.approx(np.mean(previous))
    for prefix, batch, trace in (("", examination.clean, traces[0]), ("noisy_", examination.noisy, traces[1])):
        right, wrong = [], []
        for (row, _), mass in zip(batch.questions.nonzero().tolist(), trace.question_mass, strict=True):
            tokens, answer = batch.tokens[row].tolist(), int(batch.answers[row])
            behind = [s for s in range(1, 16) if tokens[s - 1] == 0]
            right.append(sum(float(mass[s]) for s in behind if tokens[s] == answer))
            wrong.append(sum(float(mass[s]) for s in behind if tokens[s] == 7 != answer))
        assert found[f"{prefix}answer"] == pytest.approx(np.mean(right))
        assert found[f"{prefix}noise"] == pytest.approx(np.mean(wrong))
    assert found["noise"] == 0  # on clean sequences τ never stands behind a trigger, since ȳ is never τ


def test_a_circuit_made_by_hand_remembers_everything_and_a_broken_one_what_is_left():
    # Orthonormal codes: tokens, positions, and a room of its own for what the first head moves.
    width, tokens, positions = 40, 8, 16
    eye = torch.eye(width).double()
    embedding, places, room = eye[:tokens], eye[tokens : tokens + positions], eye[tokens + positions :][:tokens]
    made = {"W_E": embedding, "P": places, "W_U": embedding}
    made |= {name: torch.zeros(shape).double() for name, shape in shapes("none", width).items()}
    made["W_K1"] = sum(torch.outer(places[t], places[t - 1]) for t in range(1, positions))
    made["W_V1"] = made["W_O2"] = made["W_V2"] = eye
    made["W_O1"] = room.T @ embedding
    made["W_K2"] = embedding.T @ room
    assert probes(made, LANGUAGE) == Probes(copying=1.0, previous=1.0, following=1.0, trigger=1.0)
    made["W_K1"] = made["W_K1"] - torch.outer(places[5], places[4]) + torch.outer(places[5], places[2])
    made["W_V2"] = eye - torch.outer(embedding[3], embedding[3]) + torch.outer(embedding[1], embedding[3])
    made["W_K2"] = torch.outer(embedding[2], room[2]) + torch.outer(embedding[0], room[1])
    found = probes(made, LANGUAGE)
    assert found.previous == pytest.approx(14 / 15)
    assert found.copying == pytest.approx(7 / 8)
    assert found.trigger == 0


def test_the_soft_rank_is_the_ratio_of_two_norms_of_numpy():
    weight = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    expected = np.linalg.norm(weight.double().numpy()) / np.linalg.norm(weight.double().numpy(), 2)
    assert soft_rank(weight) == pytest.approx(expected)
    assert soft_rank(torch.outer(torch.ones(3), torch.arange(4.0))) == pytest.approx(1)
    assert soft_rank(torch.eye(9)) == pytest.approx(3)
    assert soft_rank(torch.zeros(3, 3)) == 0


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 0.0), (0.5, math.log(2)), (0.6, 0.6730116670092565)])
def test_the_floor_is_the_entropy_of_the_noise_in_nats(noise, expected):
    assert floor(noise) == pytest.approx(expected)
    assert math.copysign(1, floor(noise)) == 1


def test_the_floor_is_the_mean_loss_of_who_knows_the_answer_and_the_noise():
    """Question by question: of a distribution with α on τ and 1 − α on ȳ, which are one token where ȳ is τ."""
    recipe = preset("released", vocabulary=5, length=40, measured=400, noise=0.3)
    examination = Examination.of(recipe, generated(5, 0))
    batch, tau = examination.noisy, examination.language.noise_token
    entropies = []
    for row, _ in batch.questions.nonzero().tolist():
        distribution = np.zeros(5)
        distribution[tau] += 0.3
        distribution[int(batch.answers[row])] += 0.7
        entropies.append(-sum(p * math.log(p) for p in distribution if p > 0))
    shares = examination.own_answers()
    assert 0 < shares.noisy.noise < 1
    assert floor(0.3, shares.noisy.noise) == pytest.approx(np.mean(entropies))
    questions = [int(batch.answers[row]) for row, _ in batch.questions.nonzero().tolist()]
    assert shares.noisy.trigger == pytest.approx(np.mean([answer == 0 for answer in questions]))


@given(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), max_size=8))
def test_for_good_is_the_first_step_of_the_last_unbroken_run(values):
    measured = [(10 * index, value) for index, value in enumerate(values)]
    expected = None
    for step, _ in measured:
        if all(value > 0 for later, value in measured if later >= step):
            expected = step
            break
    assert for_good(measured, above=0.0) == expected


@pytest.fixture(scope="module")
def untrained_point(weights, examination):
    return measure(weights, examination)


def _point(untrained_point, step, margins, answer):
    """What is measured at a step, with these margins and this attention to the answer."""
    attention = untrained_point.attention.model_copy(update={"answer": answer})
    return untrained_point.model_copy(update={"step": step, "margins": margins, "attention": attention})


def test_phases_are_none_where_there_is_no_feed_forward(untrained_point):
    training = [_point(untrained_point, 0, {}, 0.1), _point(untrained_point, 5, {}, 0.6)]
    assert phases(training) == Phases(margins=dict.fromkeys(MARGINS), attention=5, untrained=())


def test_a_margin_that_was_positive_untrained_is_told_as_that_and_steps_count_from_one(untrained_point):
    def point(step, first, second):
        return _point(untrained_point, step, {"F1": first, "F2": second}, 0.9)

    found = phases([point(0, 0.2, -0.1), point(1, 0.3, 0.1), point(4, 0.3, 0.2)])
    assert (found.margins["F1"], found.margins["F2"], found.untrained) == (1, 1, ("F1",))
    assert found.learned == {"F2": 1}
    # It was lost on the way and learned again: the step is its own.
    found = phases([point(0, 0.2, 0.1), point(1, -0.3, -0.1), point(4, 0.3, 0.2)])
    assert (found.margins["F1"], found.attention, found.untrained) == (4, 1, ())
    assert phases([point(0, 0.2, 0.1)]) == Phases(margins=dict.fromkeys(MARGINS), attention=None, untrained=())


def test_sequences_in_which_nothing_is_asked_are_refused():
    with pytest.raises(UsageError, match="no trigger comes up twice"):
        Examination.of(preset("quick", vocabulary=8, length=3, width=4, measured=1), LANGUAGE)


def test_spectra_are_numpys_and_a_matrix_that_writes_the_noise_token_is_found(weights):
    trained = {name: tensor.clone() for name, tensor in weights.items()}
    direction = weights["W_U"][7] - weights["W_U"].mean(dim=0)
    trained["F2.out"] = trained["F2.out"] + 50 * torch.outer(direction, torch.ones(48).double())
    found = spectra(trained, weights, LANGUAGE)
    for name in ("F2.out", "W_K1", "F1.in"):
        assert found[name].values == pytest.approx(np.linalg.svd(trained[name].numpy())[1][:8])
        assert found[name].before == pytest.approx(np.linalg.norm(weights[name].numpy(), 2))
    assert found["F2.out"].noise > 0.999
    assert {name for name in found if found[name].noise is None} == {
        "W_K1", "W_V1", "W_K2", "W_V2", "F1.in", "F2.in",
    }  # fmt: skip
    product = trained["W_O2"].numpy() @ trained["W_V2"].numpy()
    first = np.linalg.svd(product)[0][:, 0]
    cosine = abs(first @ direction.numpy()) / np.linalg.norm(direction.numpy())
    assert found["W_OV2"].noise == pytest.approx(cosine)
